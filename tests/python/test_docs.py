"""The Python tour shows what it prints: every example of docs/python.md is run."""
import doctest
from pathlib import Path

import pytest

pytest.importorskip("tally.nn")
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["python.md"])
def test_every_example_prints_what_it_shows(name):
    failed, tried = doctest.testfile(str(DOCS / name), module_relative=False,
                                     optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert tried > 20 and not failed
