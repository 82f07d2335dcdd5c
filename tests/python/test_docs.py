"""Runs every example of docs/python.md and the program in the README, and compares what they print with what the
documentation shows."""
import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

pytest.importorskip("tally.nn")
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["python.md"])
def test_every_example_prints_what_it_shows(name):
    failed, tried = doctest.testfile(str(DOCS / name), module_relative=False,
                                     optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert tried > 20 and not failed


def test_the_first_program_of_the_readme_prints_what_it_shows():
    match = re.search(r"^```python\n(.*?)^```\n\n```\n\$ python3 step.py\n(.*?)^```$",
                      (DOCS.parent / "README.md").read_text(), re.M | re.S)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(match[1], "README.md", "exec"), {"__name__": "__main__"})
    assert printed.getvalue() == match[2]
