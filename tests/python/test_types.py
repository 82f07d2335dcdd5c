"""Type stubs (tools/python_stubs): they are true to the package, and mypy accepts what is right and nothing else."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
import tally
from tally import nn
import tally.nn.functional as F

x: tally.Tensor = tally.randn(4, 8, requires_grad=True)
(x @ x.T).sum().backward()
gradient: tally.Tensor | None = x.grad
layer = nn.Linear(8, 2, bias=False)
parts: tuple[tally.Tensor, ...] = tally.chunk(F.relu(layer(x)), 2)
n: int = x.numel()
d: tally.dtype = x.dtype
optimizer = tally.optim.AdamW(layer.parameters(), lr=1e-3)
"""
WRONG = {
    "n: int = tally.ones(3).sum()": "Incompatible types in assignment",
    "tally.softmax(tally.ones(3), dmi=0)": 'Unexpected keyword argument "dmi"',
    "tally.sofmax(tally.ones(3), 0)": 'Module has no attribute "sofmax"',
    "tally.ones(3).viev(1)": '"Tensor" has no attribute "viev"',
    "tally.nn.Linear(8)": 'Missing positional argument "out_features"',
}


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """A function that runs one of mypy's modules over stubs made for this package."""
    folder = tmp_path_factory.mktemp("stubs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    subprocess.run([sys.executable, ROOT / "tools" / "python_stubs", folder], check=True, env=environment)
    environment["MYPYPATH"] = str(folder)

    def run(*arguments):
        return subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True,
                              text=True)
    return run


def test_stubs_are_true_to_the_package(mypy):
    done = mypy("mypy.stubtest", "tally", "--ignore-missing-stub", "--concise")
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_are_checked(mypy, tmp_path):
    (tmp_path / "right.py").write_text(RIGHT)
    wrong = tmp_path / "wrong.py"
    wrong.write_text("\n".join(["import tally", *WRONG]))
    done = mypy("mypy", "--strict", "--no-warn-unused-ignores", str(tmp_path / "right.py"), str(wrong))
    for line, message in enumerate(WRONG.values(), 2):
        assert any(f"wrong.py:{line}: error" in text and message in text for text in done.stdout.splitlines()), (
            message, done.stdout)
    assert f"Found {len(WRONG)} errors in 1 file (checked 2 source files)" in done.stdout, done.stdout
