"""Every program of docs/einops.md compiles and prints the text below it. `python tests/python/test_einops_docs.py`
writes the output into the page."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "einops.md"
LIBRARY = Path(os.environ.get("TALLY_LIB", ROOT / "build" / "libtally.so")).absolute()
BLOCK = re.compile(r"```c\n(?P<program>#include.*?)```\n\n```\n(?P<output>.*?)```\n", re.S)


def printed_by(program):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder) / "program.c", Path(folder) / "program"
        source.write_text(program)
        subprocess.run([*os.environ.get("CC", "cc").split(), "-std=c17", "-Wall", "-Wextra", "-Werror",
                        f"-I{ROOT}/include", source, "-o", binary, LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}"], check=True)
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout.rstrip("\n") + "\n"


def test_programs_print_what_the_page_says():
    blocks = list(BLOCK.finditer(PAGE.read_text()))
    assert len(blocks) >= 5
    for block in blocks:
        assert printed_by(block["program"]) == block["output"]


if __name__ == "__main__":
    page = BLOCK.sub(lambda b: f"```c\n{b['program']}```\n\n```\n{printed_by(b['program'])}```\n", PAGE.read_text())
    PAGE.write_text(page)
    sys.exit(0)
