"""Finds the library that the Python tests run against.

TALLY_LIB names another one than build/libtally.so. Where there is none, every file here is skipped and says why.
"""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(os.environ.get("TALLY_LIB", ROOT / "build" / "libtally.so")).absolute()
# Seconds: what takes longer hangs. Nothing takes a tenth of it, also on a busy machine.
PATIENCE = 600

# Use the package in the tree, here and in the processes that tests start. It finds the library through the same
# variable.
sys.path.insert(0, str(ROOT / "python"))
os.environ["TALLY_LIB"] = str(LIBRARY)
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests" / "python"),
                                            os.environ.get("PYTHONPATH", "")])


class WithoutLibrary(pytest.Module):
    """A test file that is not even imported, since `import tally` at its top would fail."""

    def collect(self):
        pytest.skip(f"{LIBRARY} is not there: run make, or set TALLY_LIB", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return None if LIBRARY.exists() else WithoutLibrary.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def library_path():
    """The path of the shared library under test."""
    return LIBRARY


@pytest.fixture
def run_python(tmp_path):
    """Runs a program in its own interpreter and returns what it printed. It must exit with 0 and write nothing to
    stderr."""
    def run(program, **environment):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path,
                              timeout=PATIENCE, env={**os.environ, **environment})
        assert (done.returncode, done.stderr) == (0, ""), f"exit status {done.returncode}\n{done.stderr}\n{done.stdout}"
        return done.stdout
    return run
