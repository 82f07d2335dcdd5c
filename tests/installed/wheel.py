"""What an installed wheel must do, by the Python that has it and NumPy: python3 tests/installed/wheel.py, from any
folder outside the source tree. tests/python/test_wheel.py and scripts/build-wheel run it."""
import os
import re
import subprocess
import sys
import sysconfig
import tempfile

import numpy as np

import tally
from tally import _library, nn

HOME = os.path.dirname(tally.__file__)
OURS = (f"{HOME}/", f"{HOME}.libs/")  # auditwheel puts libraries beside the package
# What every system has: the C library, the compiler's own and, as auditwheel counts it, zlib.
SYSTEM = re.compile(r"(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libutil|libgcc_s|libstdc\+\+|libz)\.so")
# Without NumPy, which may load libraries of its own.
LOADED = "import tally; tally.linalg.inv(tally.eye(2)); print(open('/proc/self/maps').read())"


def check_tensors():
    x, w = (np.random.default_rng(seed).standard_normal((8, 8)) for seed in (1, 2))
    ours = tally.tensor(w, requires_grad=True)
    y = tally.tensor(x) @ ours
    y.sum().backward()
    assert np.allclose(y.detach().numpy(), x @ w) and np.allclose(ours.grad.numpy(), x.T @ np.ones((8, 8)))
    assert tally.linalg.inv(2 * tally.eye(2)).equal(tally.eye(2) / 2)


def check_training():
    tally.manual_seed(1)
    x = tally.randn(64, 4)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = tally.optim.AdamW(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10, losses


def check_carried():
    """Every library that the package's files need comes from the package."""
    maps = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout
    names = ("libtally", "libjansson", "libpcre2", "libzstd", "libblis", "libopenblas", "liblapack", "libblas",
             "libgomp", "libgfortran", "_native")
    paths = {line.split()[-1] for line in maps.splitlines() if "/" in line}
    loaded = {path for path in paths if os.path.basename(path).startswith(names)}
    assert sys.prefix in HOME and f"{HOME}/lib/libtally.so" in loaded, loaded
    assert all(path.startswith(OURS) for path in loaded), loaded
    # Two copies of OpenMP would be two pools of threads.
    assert sum("libgomp" in path for path in loaded) == 1, loaded
    # The loader lists what a file would load, and does not start it.
    listed = subprocess.run([f"{HOME}/bin/tally"], env={"LD_TRACE_LOADED_OBJECTS": "1"}, check=True,
                            capture_output=True, text=True).stdout
    for line in listed.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        assert not arrow or SYSTEM.match(os.path.basename(name)) or path.startswith(OURS), line
    return sorted({os.path.basename(path).split(".")[0] for path in loaded})


def check_program():
    def run(*words):
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout
    script = os.path.join(sysconfig.get_path("scripts"), "tally")
    assert "usage: tally COMMAND" in run(script, "--help")
    assert run(sys.executable, "-m", "tally", "--help") == run(script, "--help")
    with tempfile.TemporaryDirectory() as folder:
        said = run(script, "train", "--data", "builtin", "--model", "tiny-gpt2", "--layers", "2", "--channels", "32",
                   "--heads", "2", "--batch", "4", "--seq", "32", "--steps", "20", "--out", f"{folder}/run")
        assert "0 differences: price and receipt tally" in said, said
        assert tally.eval(f"{folder}/run")["loss"] < 5.5


if __name__ == "__main__":
    check_tensors()
    check_training()
    carried = check_carried()
    check_program()
    print(f"tally {tally.__version__} on Python {sys.version.split()[0]}, compiled binding: {_library.is_compiled},"
          f" {' '.join(carried)}")
