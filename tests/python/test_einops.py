"""The einops package on our tensors: how it finds them, and its own test suite, run on them (einops_plugin.py)."""
import os
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("einops")
einops_tests = pytest.importorskip("einops.tests", reason="this einops does not carry its tests (0.8.1 does)")
import einops  # noqa: E402

import tally  # noqa: E402

# What of the suite is skipped, and why. Nothing else may be.
SKIPPED = {
    "test_pytorch_yolo_fragment": "about torch",
    "test_torch_layer": "about torch's layers",
    "test_torch_layers_scripting": "about torch.jit",
    "test_torch_compile_for_layers": "about torch.compile",
    "test_torch_compile_for_functions": "about torch.compile",
    "test_torch_compile_with_dynamic_shape": "about torch.compile",
    "test_keras_layer": "about keras",
    "test_flax_layers": "about flax",
    "test_parse_shape_symbolic[NOTSET]": "for backends without values: there are none",
    "test_parse_shape_symbolic_ellipsis[NOTSET]": "for backends without values: there are none",
    "test_einops_threading": "starts a process that imports torch",
    "test_rearrange_array_api": "needs NumPy 2",
    "test_reduce_array_api": "needs NumPy 2",
}


@pytest.mark.parametrize("order", ["einops, tally", "tally, einops"])
def test_found_in_either_order(order, run_python):
    run_python(f"""import sys, {order}
assert 'torch' not in sys.modules
y = einops.rearrange(tally.arange(6), '(a b) -> b a', a=2)
assert y.tolist() == [[0, 3], [1, 4], [2, 5]], y""")


def test_not_imported_by_us(run_python):
    run_python("import sys, tally; assert 'einops' not in sys.modules")


def test_views_stay_views_and_gradients_flow():
    x = tally.arange(24, dtype=tally.float32).reshape(2, 3, 4)
    x.requires_grad_()
    y = einops.rearrange(x, "a b c -> c (b a)")
    assert einops.rearrange(x, "a b c -> c b a").data_ptr() == x.data_ptr()
    assert einops.repeat(x, "a b c -> a n b c", n=5).data_ptr() == x.data_ptr()
    (y * y).sum().backward()
    assert np.array_equal(x.grad.numpy(), 2 * x.detach().numpy())
    with pytest.raises(einops.EinopsError, match="can't divide axis"):
        einops.rearrange(x, "a (b c) d -> a b c d", b=2)


def run_suite(tmp_path, backends, *options):
    """(names that passed, names that were skipped, calls of our backend)"""
    report, counts = tmp_path / "report.xml", tmp_path / "calls"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "einops_plugin", "-W", "ignore",
               f"--junitxml={report}", str(Path(einops_tests.__file__).parent), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path,
                          env={**os.environ, "EINOPS_TEST_BACKENDS": backends, "EINOPS_CALLS": str(counts)})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    cases = {c.get("name"): c.find("skipped") is None
             for c in xml.etree.ElementTree.parse(report).getroot().iter("testcase")}
    called = {name: int(n) for name, n in (line.split() for line in counts.read_text().splitlines())}
    return [n for n, ok in cases.items() if ok], [n for n, ok in cases.items() if not ok], called


def test_its_own_suite(tmp_path):
    passed, skipped, called = run_suite(tmp_path, "numpy")
    assert set(skipped) <= set(SKIPPED), skipped
    assert len(passed) >= 50
    for name, least in [("reshape", 500), ("transpose", 100), ("reduce", 100), ("concat", 50),
                        ("stack_on_zeroth_dimension", 20), ("add_axes", 5), ("from_numpy", 200), ("to_numpy", 500)]:
        assert called.get(name, 0) >= least, (name, called)
    if hasattr(tally, "einsum"):
        assert called.get("einsum", 0) >= 20


def test_its_gradients_beside_torch(tmp_path):
    """It compares the backends that it is given with each other: so torch must be there too."""
    pytest.importorskip("torch")
    passed, _, called = run_suite(tmp_path, "numpy,torch", "-k", "gradients_imperatives")
    assert passed == ["test_gradients_imperatives"] and called["reduce"] >= 15
