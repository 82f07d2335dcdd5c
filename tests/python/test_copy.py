"""Copies of permuted, sliced and broadcast views against NumPy, bit for bit: every element size, with conversion, on 1
and 3 threads.

Sizes are drawn so that tiles of the permuting copy come out whole, cut at the edge, and too small to be worth one.
"""
import ml_dtypes
import numpy as np
import pytest
from tally_c import tl

DTYPES = [np.dtype(t) for t in (np.uint8, np.float16, np.float32, np.float64)]
SIZES = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 128, 130, 200, 257, 300]
MOST = 1 << 18


def random_view(rng, dtype):
    """A NumPy view, and the same one of ours: a dense tensor, sliced (any step, also backwards) and permuted."""
    rank = int(rng.integers(2, 6))
    while True:
        shape = rng.choice(SIZES, rank)
        if np.prod(shape) <= MOST:
            break
    values = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype).reshape(shape)
    x, y = tl.tensor(values), values
    if rng.random() < 0.4:
        axis = int(rng.integers(rank))
        step = int(rng.choice([-2, -1, 1, 2]))
        n = shape[axis]
        keep = int(rng.integers(1, n + 1))
        y = y[tuple(slice(None) if a != axis else slice(None, None, step) for a in range(rank))]
        x = tl.slice(x, axis, 0 if step > 0 else int(n) - 1, int(n) if step > 0 else -int(n) - 1, step)
        y = y[tuple(slice(None) if a != axis else slice(0, keep) for a in range(rank))]
        x = tl.slice(x, axis, 0, min(keep, y.shape[axis]), 1)
    order = rng.permutation(rank)
    return tl.permute(x, [int(a) for a in order]), y.transpose(order)


def bits(x):
    return np.ascontiguousarray(x).view(np.uint8)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_permuted_views_are_copied_bit_by_bit(dtype, threads):
    rng = np.random.default_rng([dtype.itemsize, threads])
    before = tl.set_threads(threads)
    try:
        for _ in range(150):
            x, y = random_view(rng, dtype)
            with np.errstate(all="ignore"):
                assert np.array_equal(bits(tl.clone(x).numpy()), bits(y)), (y.shape, y.strides)
    finally:
        tl.set_threads(before)


@pytest.mark.parametrize("to", [np.dtype(t) for t in (np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8)],
                         ids=str)
def test_permuted_views_are_converted(to):
    rng = np.random.default_rng(to.itemsize)
    for _ in range(80):
        shape = rng.choice(SIZES, int(rng.integers(2, 5)))
        if np.prod(shape) > MOST:
            continue
        values = rng.integers(0, 200, shape).astype(np.float32)
        order = [int(a) for a in rng.permutation(len(shape))]
        got = tl.cast(tl.permute(tl.tensor(values), order), to).numpy()
        assert np.array_equal(got, values.transpose(order).astype(to)), (shape, order)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_into_permuted_views(dtype):
    rng = np.random.default_rng(7)
    for _ in range(60):
        shape = rng.choice(SIZES, int(rng.integers(2, 5)))
        if np.prod(shape) > MOST:
            continue
        values = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8).view(dtype).reshape(shape)
        order = [int(a) for a in rng.permutation(len(shape))]
        target = tl.zeros(len(shape), [int(shape[a]) for a in order], dtype, None)
        view = tl.permute(target, [int(a) for a in np.argsort(order)])
        tl.copy_(view, tl.tensor(values))
        assert np.array_equal(bits(target.numpy()), bits(values.transpose(order))), (shape, order)


LONG = [((70, 4500), (1, 0)), ((4500, 70), (1, 0)), ((3, 130, 2050), (2, 0, 1)), ((9, 33, 7, 600), (3, 1, 2, 0)),
        ((20, 20000, 16), (1, 0, 2))]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "order"), LONG, ids=str)
def test_long_axes_are_copied_to_their_last_tile(shape, order, dtype):
    """Axes longer than what tiles follow at a stretch, which does not divide them."""
    raw = np.random.default_rng(len(shape)).integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    values = raw.view(dtype).reshape(shape)
    got = tl.clone(tl.permute(tl.tensor(values), list(order))).numpy()
    assert np.array_equal(bits(got), bits(values.transpose(order)))
