"""A pytest plugin (-p einops_plugin) that makes einops' own tests run on our tensors, see test_einops.py.

It changes two things in the tests. They list the backends they know by class, so ours is added to the lists. The helper
that compares with NumPy computes a result and discards it, so one that asserts replaces it. The backend counts its
calls, so that the report can prove that our tensors were used.
"""
import collections
import os

import einops._backends
import einops.tests
import numpy as np

import tally

calls = collections.Counter()
Plain = next(b for b in einops._backends.AbstractBackend.__subclasses__() if b.framework_name == "tally")


class _Counting(Plain):
    framework_name = "tally"

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("_"):
            calls[name] += 1
        return value


def _collect(symbolic=False, layers=False, known=einops.tests.collect_test_backends):
    return known(symbolic=symbolic, layers=layers) + ([] if symbolic or layers else [ours])


ours = _Counting()
einops._backends._loaded_backends["tally"] = ours
einops._backends._type2backend[tally.Tensor] = ours
einops.tests.collect_test_backends = _collect


def check_op_against_numpy(backend, numpy_input, pattern, axes_lengths, reduction="rearrange", is_symbolic=False):
    assert not is_symbolic

    def operation(x):
        if reduction == "rearrange":
            return einops.rearrange(x, pattern, **axes_lengths)
        return einops.reduce(x, pattern, reduction, **axes_lengths)
    want, got = np.asarray(operation(numpy_input)), backend.to_numpy(operation(backend.from_numpy(numpy_input)))
    assert got.shape == want.shape, f"{pattern}: {got.shape}, not {want.shape}"
    if reduction in ("rearrange", "min", "max", "any", "all"):
        assert np.array_equal(want, got), pattern
    elif reduction == "prod" and np.log2(numpy_input[numpy_input > 1]).sum() > 1000:
        # A product can leave the range of f64 on the way, depending on the order of the factors, which is unspecified.
        out_of_range = (want == 0) | ~np.isfinite(want) | (got == 0) | ~np.isfinite(got)
        assert np.allclose(want[~out_of_range], got[~out_of_range]), pattern
    else:
        assert np.allclose(want, got), f"{pattern}: {np.abs(want - got).max()}"


def pytest_collection_modifyitems(items):
    for module in {item.module for item in items}:
        if hasattr(module, "check_op_against_numpy"):
            module.check_op_against_numpy = check_op_against_numpy
        if hasattr(module, "valid_backends_functional") and hasattr(tally, "einsum"):
            module.valid_backends_functional.append("tally")


def pytest_sessionfinish():
    with open(os.environ["EINOPS_CALLS"], "w", encoding="utf-8") as file:
        for name, n in sorted(calls.items()):
            print(name, n, file=file)
