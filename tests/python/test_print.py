"""tl_print says what PyTorch's repr says, character for character."""
import ctypes

import ml_dtypes
import numpy as np
import pytest
import torch

from tally_c import tl
from torch_peer import NUMPY, TORCH, to_torch

SEED = 20240611
N_RANDOM = 40  # per dtype
END = 2**63 - 1
SHAPES = [(), (1,), (7,), (40,), (1000,), (1001,), (3, 4), (1, 1), (7, 30), (40, 40), (2000, 1), (2, 3, 4),
          (12, 11, 10), (1, 5, 1, 3), (4, 8, 7, 6), (0,), (0, 3), (2, 0, 3)]


def same(values, change=lambda library, x: x):
    ours = repr(change("ours", tl.tensor(values)))
    theirs = repr(change("torch", to_torch(values)))
    assert ours == theirs, f"ours:\n{ours}\ntorch:\n{theirs}"


def random_values(rng, dtype, shape):
    """Every style of content that chooses another format."""
    if dtype == np.bool_:
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        high = int(rng.choice([5, 100, info.max]))
        return rng.integers(max(info.min, -high), high, shape, dtype=np.int64).astype(dtype)
    style = rng.integers(8)
    values = rng.standard_normal(shape)
    if style == 1:
        values = np.round(values * 20)
    elif style == 2:
        values = values * 10.0 ** rng.uniform(-6, 6, shape)
    elif style == 3:
        values = values * 1e-5
    elif style == 4:
        values = np.round(values * 1e9)
    elif style == 5:
        values = np.where(rng.random(shape) < 0.3, rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], shape), values)
    elif style == 6:
        values = np.where(rng.random(shape) < 0.5, rng.choice([np.nan, np.inf, -np.inf], shape), np.round(values * 3))
    elif style == 7:
        values = np.abs(values) * 100
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


@pytest.mark.parametrize("name", [n for n in TORCH if n != "float8_e8m0fnu"])
def test_random_tensors_print_as_in_torch(name):
    dtype = NUMPY[name]
    rng = np.random.default_rng([SEED, len(name), ord(name[-1])])
    for case in range(N_RANDOM):
        shape = SHAPES[case % len(SHAPES)] if case < len(SHAPES) else tuple(rng.integers(1, 9, rng.integers(0, 5)))
        same(random_values(rng, dtype, shape))


def test_e8m0_prints_its_powers_of_two():
    same(np.array([1.0, 2.0, 0.5, 4.0], np.float32).astype(ml_dtypes.float8_e8m0fnu))


def test_f4_prints_its_values():
    x = tl.cast(tl.tensor(np.array([0.5, -6, 3, 1.5, 0, -0.5], np.float32)), tl.F4E2M1)
    assert repr(x) == ("tensor([ 0.5000, -6.0000,  3.0000,  1.5000,  0.0000, -0.5000],\n"
                       "       dtype=torch.float4_e2m1fn_x2)")


@pytest.mark.parametrize("values", [
    [np.nan], [np.inf, -np.inf], [0.0], [-0.0, 0.0], [1.0, np.nan], [np.nan, 0.5], [1e8], [1e8 + 1, 1],
    [99999999.0, 1.0], [1000.0, 1.0], [1000.1, 1.0], [1e-4], [0.99e-4], [1.0, 1001.0], [2.5, 2500.1], [-1e300, 1e300],
    [5e-324], [1.7976931348623157e308], [123456.5, 99999.25], [0.00005, np.inf], [1e10, np.nan, np.inf]])
def test_special_values_choose_the_same_format(values):
    for dtype in ("float64", "float32"):
        with np.errstate(all="ignore"):
            same(np.array(values, np.float64).astype(dtype))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int64", "bool"])
def test_views_print_what_they_show(name):
    dtype = NUMPY[name]
    values = random_values(np.random.default_rng(SEED), dtype, (24, 60))
    same(values, lambda library, x: tl.transpose(x, 0, 1) if library == "ours" else x.t())
    same(values, lambda library, x: tl.select(x, 1, 3) if library == "ours" else x[:, 3])
    same(values, lambda library, x: tl.slice(tl.slice(x, 0, 1, 20, 3), 1, 5, 50, 2) if library == "ours"
         else x[1:20:3, 5:50:2])
    same(values, lambda library, x: tl.expand(x, 3, [9, 24, 60]) if library == "ours" else x.expand(9, 24, 60))
    ours = tl.slice(tl.tensor(values), 1, -1, END, -1)
    assert repr(ours) == repr(to_torch(values).flip(1))


def test_suffixes_break_the_line_where_torch_does():
    for n in range(1, 30):
        same(np.full(n, 1.5))
        same(np.full(n, 1.5, np.float32), lambda library, x: tl.requires_grad(x, True) if library == "ours"
             else x.requires_grad_())
        same(np.full((2, n), 7, np.int32))


def test_graph_is_shown():
    def result(f, ours):
        x = (tl.requires_grad(tl.tensor(np.ones((2, 2), np.float32)), True) if ours
             else torch.ones(2, 2, requires_grad=True))
        return f(x)
    for name in ("exp", "neg", "sqrt", "tanh"):
        ours, theirs = result(getattr(tl, name), True), result(getattr(torch, name), False)
        assert repr(ours) == repr(theirs)
    assert repr(result(lambda x: tl.layer_norm(x, None, None, 1e-5), True)).endswith("grad_fn=<LayerNormBackward0>)")
    assert "grad" not in repr(result(tl.detach, True))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
@pytest.mark.parametrize("name", ["float32", "float64", "int64", "bool"])
def test_meta_has_no_data_to_show(shape, name):
    dtype = NUMPY[name]
    ours = tl.zeros(len(shape), list(shape), dtype, tl.device_find("meta"))
    assert repr(ours) == repr(torch.zeros(shape, dtype=TORCH[name], device="meta"))
    target = tl.zeros(1, [3], tl.F32, tl.device_find("meta:h200"))
    assert repr(target) == "tensor(..., device='meta:h200', size=(3,))"


def test_no_byte_behind_the_buffer_is_written():
    x = tl.tensor(np.arange(30, dtype=np.float64))
    whole = repr(x).encode()
    for size in [0, 1, 2, 7, 50, len(whole), len(whole) + 1, len(whole) + 20]:
        buffer = ctypes.create_string_buffer(b"#" * 400, 400)
        assert tl.print(x, buffer, size) == len(whole)
        assert buffer.raw[size:] == b"#" * (400 - size)
        if size:
            assert buffer.value == whole[:size - 1]


def test_printing_leaves_no_trace_in_the_ledger():
    x = tl.transpose(tl.tensor(np.ones((50, 50), np.float32)), 0, 1)
    ledger = tl.ledger_begin("print")
    repr(x)
    tl.ledger_end(ledger)
    assert tl.ledger_total(ledger, -1, None).calls == 0
    tl.ledger_free(ledger)


def test_failing_allocations_leave_an_empty_text():
    x = tl.tensor(np.arange(4.0))
    buffer = ctypes.create_string_buffer(b"#" * 100, 100)
    tl.fail_allocation(1, False)
    assert tl.library.tl_print(x, buffer, 100) == 0 and buffer.value == b""
    tl.library.tl_fail_allocation(0, False)
    with pytest.raises(RuntimeError, match="out of host memory"):
        tl.check()
    assert repr(x) == "tensor([0., 1., 2., 3.], dtype=torch.float64)"
