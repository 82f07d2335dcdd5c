"""Gathering, scattering, joining, reordering and sorting against PyTorch: values, gradients, dtypes, shapes, refusals.

Cases are drawn from a seed: shapes, axes, indices. Where torch leaves the result open (duplicates of scatter, the order
of equal elements of topk) the indices are distinct, or our own rule is checked against NumPy.
"""
import ctypes

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tally_c import TallyError, Tensor, tl
from test_torch_ops import DTYPES, FLOATS, check, normal, sample
from torch_peer import assert_near, from_torch, outcome, to_torch

CASES = range(25)


def results(function, *arguments, n=2):
    """What a function leaves in the n pointers that are its last arguments."""
    slots = [(ctypes.c_void_p * 1)() for _ in range(n)]
    with tl.scope():
        function(*arguments, *slots)
        return [Tensor(slot[0]) for slot in slots]


def parts(function, *arguments, n):
    """The same for an array of n."""
    slots = (ctypes.c_void_p * n)()
    with tl.scope():
        made = function(*arguments, slots)
        return [Tensor(slots[i]) for i in range(n if made is True else made)]


def shape_of(rng, rank=None, low=1):
    return tuple(int(n) for n in rng.integers(low, 6, rng.integers(1, 5) if rank is None else rank))


def index_of(rng, limit, shape, negative=False):
    return np.asarray(rng.integers(-limit if negative else 0, limit, shape))


def i64(values):
    return to_torch(np.asarray(values, np.int64))


def same_dtypes(what, ours, theirs, names, make):
    """Exact in every dtype, integers too."""
    for name in names:
        values = make(name)
        x = outcome(lambda: ours(*[tl.tensor(v) for v in values]).numpy())
        y = outcome(lambda: from_torch(theirs(*[to_torch(v) for v in values])))
        assert (x[1] is None) == (y[1] is None), f"{what} {name}: ours {x[1]}, torch {y[1]}"
        if x[1] is None:
            assert x[0].dtype == y[0].dtype, f"{what} {name}: {x[0].dtype}, torch {y[0].dtype}"
            assert_near(x[0].astype(np.float64), y[0].astype(np.float64), f"{what} {name}",
                        1e-2 if x[0].dtype.itemsize < 4 else 1e-6)


# ---- gather, scatter ----

def gather_case(rng):
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    index_shape = tuple(int(rng.integers(1, 8)) if i == axis else int(rng.integers(1, n + 1))
                        for i, n in enumerate(shape))
    return shape, axis, index_of(rng, shape[axis], index_shape)


@pytest.mark.parametrize("case", CASES)
def test_gather(case):
    rng = np.random.default_rng(case)
    shape, axis, index = gather_case(rng)
    if case % 2:
        axis -= len(shape)
    check(f"gather {shape} {axis} {index.shape}", lambda x, i: tl.gather(x, axis, i),
          lambda x, i: torch.gather(x, axis, i), [normal(rng, *shape), index])


def test_gather_of_a_scalar():
    check("gather", lambda x: tl.gather(x, 0, tl.tensor(np.zeros(1, np.int64))), lambda x: torch.gather(x, 0, i64([0])),
          [normal(np.random.default_rng(0))])
    check("gather", lambda x: tl.gather(x, 0, tl.tensor(np.array(0))), lambda x: torch.gather(x, 0, i64(0)),
          [normal(np.random.default_rng(0))])


@pytest.mark.parametrize("case", CASES)
def test_scatter_add(case):
    rng = np.random.default_rng(case)
    shape, axis, index = gather_case(rng)
    source = normal(rng, *[n + (case % 3 == 0) for n in index.shape])
    if case % 3 == 0:  # torch has no gradient for a source that is larger than the index
        check("scatter_add", lambda x, s, i: tl.scatter_add(x, axis, i, s),
              lambda x, s, i: torch.scatter_add(x, axis, i, s), [normal(rng, *shape), source, index], grad=False)
        return
    check(f"scatter_add {shape} {axis} {index.shape}", lambda x, s, i: tl.scatter_add(x, axis, i, s),
          lambda x, s, i: torch.scatter_add(x, axis, i, s), [normal(rng, *shape), source, index])
    check("scatter_add_", lambda x, s, i: tl.scatter_add_(tl.clone(x), axis, i, s),
          lambda x, s, i: x.clone().scatter_add_(axis, i, s), [normal(rng, *shape), source, index])


@pytest.mark.parametrize("case", CASES)
def test_scatter_with_distinct_indices(case):
    rng = np.random.default_rng(case)
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    index = np.argsort(rng.random(shape), axis)  # a permutation along the axis
    index = index[tuple(slice(0, int(rng.integers(1, n + 1))) for n in shape)]
    values = [normal(rng, *shape), normal(rng, *index.shape), index]
    check(f"scatter {shape} {axis}", lambda x, s, i: tl.scatter(x, axis, i, s),
          lambda x, s, i: torch.scatter(x, axis, i, s), values)
    check("scatter_", lambda x, s, i: tl.scatter_(tl.clone(x), axis, i, s),
          lambda x, s, i: x.clone().scatter_(axis, i, s), values)
    check("scatter value", lambda x, i: tl.scatter_scalar(x, axis, i, 0.5), lambda x, i: torch.scatter(x, axis, i, 0.5),
          [values[0], index])


def test_the_last_of_several_stays_and_has_the_gradient():
    rng = np.random.default_rng(3)
    index, source, x = index_of(rng, 5, (40,)), normal(rng, 40), normal(rng, 5)
    expected, weight = x.copy(), np.zeros(40)
    for i, v in zip(index, source):
        expected[i] = v
    for place in range(5):
        weight[np.flatnonzero(index == place)[-1:]] = 1
    s = tl.requires_grad(tl.tensor(source), True)
    y = tl.scatter(tl.tensor(x), 0, tl.tensor(index), s)
    z = tl.index_put(tl.tensor(x), [0], [tl.tensor(index)], 1, s, False)
    for result in (y, z):
        assert np.array_equal(result.numpy(), expected)
        tl.zero_grad(s, False)
        tl.backward(tl.sum_all(result), None, 0)
        assert np.array_equal(s.grad.numpy(), weight)


@pytest.mark.parametrize("op", ["gather", "scatter", "scatter_add"])
def test_gather_and_scatter_in_every_dtype(op):
    rng = np.random.default_rng(1)
    index = np.argsort(rng.random((3, 4)), 1) if op == "scatter" else index_of(rng, 4, (3, 9))
    t = i64(index)
    ours = {"gather": lambda x, s: tl.gather(x, 1, tl.tensor(index)),
            "scatter": lambda x, s: tl.scatter(x, 1, tl.tensor(index), s),
            "scatter_add": lambda x, s: tl.scatter_add(x, 1, tl.tensor(index), s)}[op]
    theirs = {"gather": lambda x, s: torch.gather(x, 1, t), "scatter": lambda x, s: torch.scatter(x, 1, t, s),
              "scatter_add": lambda x, s: torch.scatter_add(x, 1, t, s)}[op]
    same_dtypes(op, ours, theirs, DTYPES, lambda name: [sample(rng, name, (3, 4)), sample(rng, name, index.shape)])


@pytest.mark.parametrize("case", range(10))
def test_take_along(case):
    rng = np.random.default_rng(case)
    shape = shape_of(rng, 3)
    axis = int(rng.integers(3))
    a = tuple(1 if i != axis and rng.random() < 0.4 else n for i, n in enumerate(shape))
    b = tuple(int(rng.integers(1, 5)) if i == axis else 1 if rng.random() < 0.4 else n for i, n in enumerate(shape))
    check("take_along", lambda x, i: tl.take_along(x, axis, i), lambda x, i: torch.take_along_dim(x, i, axis),
          [normal(rng, *a), index_of(rng, a[axis], b)])


# ---- Advanced indexing ----

def indexing(rng, negative=True):
    """A shape, axes, index arrays that broadcast, and torch's index."""
    shape = shape_of(rng, int(rng.integers(1, 5)))
    axes = [int(a) for a in rng.permutation(len(shape))[:rng.integers(1, min(3, len(shape)) + 1)]]
    common = shape_of(rng, int(rng.integers(0, 3)))
    indices = []
    for axis in axes:
        own = tuple(1 if rng.random() < 0.3 else n for n in common)
        # Torch selects by a scalar among others
        own = own[int(rng.integers(0, len(own))):] if own and rng.random() < 0.3 else own
        indices.append(index_of(rng, shape[axis], own, negative))
    at = [slice(None)] * len(shape)
    for axis, index in zip(axes, indices):
        at[axis] = i64(index)
    return shape, axes, indices, tuple(at)


@pytest.mark.parametrize("case", range(60))
def test_index(case):
    rng = np.random.default_rng(case)
    shape, axes, indices, at = indexing(rng)
    check(f"index {shape} {axes} {[i.shape for i in indices]}",
          lambda x: tl.index(x, axes, [tl.tensor(i) for i in indices], len(axes)), lambda x: x[at],
          [normal(rng, *shape)])


def test_scalars_among_indices_are_indices_as_in_numpy():
    x = np.arange(60.0).reshape(3, 4, 5)
    for axes, indices in (([0, 2], [np.array(1), np.array([2, 0, -1])]), ([0, 1], [np.array([2, 1]), np.array(-1)]),
                          ([2], [np.array(3)]), ([0, 2], [np.array(1), np.array(2)])):
        at = [slice(None)] * 3
        for axis, index in zip(axes, indices):
            at[axis] = index
        assert np.array_equal(tl.index(tl.tensor(x), axes, [tl.tensor(i) for i in indices], len(axes)).numpy(),
                              x[tuple(at)])


@pytest.mark.parametrize("case", range(60))
@pytest.mark.parametrize("accumulate", [False, True])
def test_index_put(case, accumulate):
    rng = np.random.default_rng(case)
    shape, axes, indices, at = indexing(rng)
    got = torch.zeros(shape)[at].shape
    values = normal(rng, *[1 if rng.random() < 0.2 else n for n in got][int(rng.random() < 0.2):])
    places = tuple(np.asarray(a) if isinstance(a, torch.Tensor) else a for a in at)
    flat = np.arange(int(np.prod(shape))).reshape(shape)[places]
    is_distinct = len(np.unique(flat)) == flat.size
    if not accumulate and not is_distinct:
        pytest.skip("torch does not say which of several stays")

    def theirs(x, v):  # torch's index_put takes no slices: elements are numbered, and put by number
        number = torch.arange(x.numel()).reshape(x.shape)[at].flatten()
        return x.flatten().index_put((number,), v.expand(got).flatten(), accumulate=accumulate).reshape(x.shape)
    what = f"index_put {shape} {axes} {[i.shape for i in indices]} {values.shape}"
    check(what, lambda x, v: tl.index_put(x, axes, [tl.tensor(i) for i in indices], len(axes), v, accumulate), theirs,
          [normal(rng, *shape), values], ulps=2)
    check(what + " in place", lambda x, v: tl.index_put_(tl.clone(x), axes, [tl.tensor(i) for i in indices], len(axes),
                                                         v, accumulate), theirs, [normal(rng, *shape), values], ulps=2)


@pytest.mark.parametrize("case", CASES)
def test_index_select_and_add(case):
    rng = np.random.default_rng(case)
    shape = shape_of(rng)
    axis = int(rng.integers(len(shape)))
    index = index_of(rng, shape[axis], (int(rng.integers(0, 9)),))
    check("index_select", lambda x, i: tl.index_select(x, axis, i), lambda x, i: torch.index_select(x, axis, i),
          [normal(rng, *shape), index])
    source = normal(rng, *[len(index) if i == axis else n for i, n in enumerate(shape)])
    for alpha in (1, -0.5):
        check("index_add", lambda x, s, i: tl.index_add(x, axis, i, s, alpha),
              lambda x, s, i: torch.index_add(x, axis, i, s, alpha=alpha), [normal(rng, *shape), source, index], ulps=2)
        check("index_add_", lambda x, s, i: tl.index_add_(tl.clone(x), axis, i, s, alpha),
              lambda x, s, i: x.clone().index_add_(axis, i, s, alpha=alpha), [normal(rng, *shape), source, index],
              ulps=2)


def test_index_add_in_every_dtype():
    rng = np.random.default_rng(1)
    index = index_of(rng, 3, (7,))
    same_dtypes("index_add", lambda x, s: tl.index_add(x, 0, tl.tensor(index), s, 1),
                lambda x, s: torch.index_add(x, 0, i64(index), s), DTYPES,
                lambda name: [sample(rng, name, (3, 2)), sample(rng, name, (7, 2))])


# ---- Masks ----

def masked_indexing(rng):
    """As indexing, with a mask for a run of axes and perhaps indices for others."""
    shape = shape_of(rng, int(rng.integers(1, 5)))
    first = int(rng.integers(len(shape)))
    n = int(rng.integers(1, len(shape) - first + 1))
    mask = rng.random(shape[first:first + n]) < 0.5
    others = [a for a in range(len(shape)) if not first <= a < first + n and rng.random() < 0.4]
    count = int(mask.sum())
    axes, indices = [first] + others, [mask]
    indices += [index_of(rng, shape[a], (1,) if rng.random() < 0.3 else (count,)) for a in others]
    order = [int(i) for i in rng.permutation(len(axes))]
    at = [slice(None)] * (len(shape) - n + 1)
    for axis, index in zip(axes, indices):
        at[axis if axis <= first else axis - n + 1] = torch.tensor(index)
    return shape, [axes[i] - (len(shape) if rng.random() < 0.3 else 0)
                   for i in order], [indices[i] for i in order], tuple(at)


@pytest.mark.parametrize("case", range(80))
def test_masks_among_indices(case):
    rng = np.random.default_rng(case)
    shape, axes, indices, at = masked_indexing(rng)
    what = f"{shape} {axes} {[(i.dtype, i.shape) for i in indices]}"

    def tensors():
        return [tl.tensor(i) for i in indices]
    check("index " + what, lambda x: tl.index(x, axes, tensors(), len(axes)), lambda x: x[at], [normal(rng, *shape)])
    got = torch.zeros(shape)[at].shape
    places = tuple(np.asarray(a) if isinstance(a, torch.Tensor) else a for a in at)
    flat = np.arange(int(np.prod(shape))).reshape(shape)[places]
    for kind in ("all", "some", "one"):
        own = {"all": tuple(got), "some": tuple(1 if rng.random() < 0.4 else n for n in got), "one": ()}[kind]
        for accumulate in (False, True):
            if not accumulate and len(np.unique(flat)) < flat.size:
                continue

            def theirs(x, v):
                number = torch.arange(x.numel()).reshape(x.shape)[at].flatten()
                return x.flatten().index_put((number,), v.expand(got).flatten(), accumulate=accumulate).reshape(x.shape)
            values = [normal(rng, *shape), np.asarray(normal(rng, *own))]
            # Gradients of what was broadcast are sums, which may cancel
            names = FLOATS if kind == "all" else ["float64"]
            check(f"index_put {kind} {accumulate} " + what,
                  lambda x, v: tl.index_put(x, axes, tensors(), len(axes), v, accumulate), theirs, values, names,
                  ulps=2)
            check(f"index_put_ {kind} {accumulate} " + what,
                  lambda x, v: tl.index_put_(tl.clone(x), axes, tensors(), len(axes), v, accumulate), theirs, values,
                  names, ulps=2)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_masked_put_in_every_dtype(accumulate, whole):
    rng = np.random.default_rng(3)
    mask = rng.random((3, 4)) < 0.5
    n = int(mask.sum())
    names = [name for name in DTYPES if not (accumulate and name == "float8_e8m0fnu")]
    same_dtypes("index_put by a mask", lambda x, v: tl.index_put(x, [0], [tl.tensor(mask)], 1, v, accumulate),
                lambda x, v: torch.index_put(x, (torch.tensor(mask),), v, accumulate=accumulate), names,
                lambda name: [sample(rng, name, (3, 4)), sample(rng, name, (1,) if whole else (n,))])


def test_the_same_mask_for_two_axes_names_a_diagonal():
    mask = np.array([True, False, True])
    x, value = np.zeros((3, 3)), np.array(2.0)
    ours = tl.index_put(tl.tensor(x), [0, 1], [(m := tl.tensor(mask)), m], 2, tl.tensor(value), False).numpy()
    x[mask, mask] = value
    assert np.array_equal(ours, x)


def test_a_mask_on_meta():
    meta = tl.device_find("meta")
    x, mask, one, two = (tl.tensor(v, meta)
                         for v in (np.zeros((3, 4)), np.ones(3, bool), np.array(1.0), np.ones((2, 4))))
    assert tl.index_put(x, [0], [mask], 1, one, False).shape == (3, 4)
    assert tl.index_put_(x, [0], [mask], 1, one, True).shape == (3, 4)
    for refused in (lambda: tl.index(x, [0], [mask], 1), lambda: tl.index_put(x, [0], [mask], 1, two, False)):
        with pytest.raises(TallyError, match="depends on data, and meta has none"):
            refused()


@pytest.mark.parametrize("shapes",
                         [((3, 4), (3, 4)), ((2, 3, 4), (3, 1)), ((4,), ()), ((0, 3), (3,)), ((3, 1), (3, 4))])
def test_masks(shapes):
    rng = np.random.default_rng(4)
    x, mask = normal(rng, *shapes[0]), np.asarray(rng.random(shapes[1]) < 0.5)
    check("masked_fill", lambda x, m: tl.masked_fill(x, m, -0.5), lambda x, m: x.masked_fill(m, -0.5), [x, mask])
    check("masked_select", tl.masked_select, torch.masked_select, [x, mask])
    if shapes != ((3, 1), (3, 4)):
        check("masked_fill_", lambda x, m: tl.masked_fill_(tl.clone(x), m, -0.5),
              lambda x, m: x.clone().masked_fill_(m, -0.5), [x, mask])


# ---- Joining, splitting ----

@pytest.mark.parametrize("case", CASES)
def test_concat_and_stack(case):
    rng = np.random.default_rng(case)
    shape = shape_of(rng, low=0 if case % 3 == 0 else 1)
    axis, n = int(rng.integers(-len(shape), len(shape))), int(rng.integers(1, 6))
    many = [normal(rng, *[int(rng.integers(0, 5)) if i == axis % len(shape) else s for i, s in enumerate(shape)])
            for _ in range(n)]
    check("concat", lambda *x: tl.concat(list(x), n, axis), lambda *x: torch.cat(x, axis), many)
    check("stack", lambda *x: tl.stack(list(x), n, axis), lambda *x: torch.stack(x, axis),
          [normal(rng, *shape) for _ in range(n)])


def test_concat_of_many_and_of_empty_vectors():
    rng = np.random.default_rng(0)
    many = [normal(rng, int(rng.integers(0, 3)), 2) for _ in range(200)]
    check("concat", lambda *x: tl.concat(list(x), 200, 0), lambda *x: torch.cat(x, 0), many, ["float32"])
    check("stack", lambda *x: tl.stack(list(x), 150, 1), lambda *x: torch.stack(x, 1),
          [normal(rng, 2) for _ in range(150)], ["float32"])
    check("concat", lambda *x: tl.concat(list(x), 3, 1), lambda *x: torch.cat(x, 1),
          [normal(rng, 0), normal(rng, 2, 3), normal(rng, 0)])


def test_concat_promotes():
    rng = np.random.default_rng(0)
    for first in DTYPES:
        same_dtypes(f"concat {first}", lambda a, b: tl.concat([a, b], 2, 0), lambda a, b: torch.cat([a, b]), DTYPES,
                    lambda name: [sample(rng, first, (3,)), sample(rng, name, (2,))])


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7])
def test_split_and_chunk(size):
    x = np.random.default_rng(0).standard_normal((2, size))
    for n in (1, 2, 3, 4, 9):
        ours, theirs = parts(tl.chunk, tl.tensor(x), 1, n, n=n), torch.chunk(to_torch(x), n, 1)
        assert len(ours) == len(theirs), f"{size} in {n}"
        for a, b in zip(ours, theirs):
            assert_near(a.numpy(), from_torch(b), f"chunk {size} in {n}")
    sizes = [size // 2, 0, size - size // 2]
    for a, b in zip(parts(tl.split, tl.tensor(x), -1, sizes, 3, n=3), torch.split(to_torch(x), sizes, -1), strict=True):
        assert_near(a.numpy(), from_torch(b), f"split {sizes}")


@pytest.mark.parametrize("case", CASES)
def test_pad(case):
    rng = np.random.default_rng(case)
    shape = shape_of(rng, 3, low=2)
    before, after = ([int(n) for n in rng.integers(-1, 4, 3)] for _ in range(2))
    torch_order = [n for pair in zip(before[::-1], after[::-1]) for n in pair]
    check("pad", lambda x: tl.pad(x, before, after, tl.PAD_CONSTANT, 0.5), lambda x: F.pad(x, torch_order, value=0.5),
          [normal(rng, *shape)])
    before, after = ([0, 0, int(rng.integers(0, shape[2]))] for _ in range(2))
    for mode, name in ((tl.PAD_REFLECT, "reflect"), (tl.PAD_REPLICATE, "replicate"), (tl.PAD_CIRCULAR, "circular")):
        if before[2] + after[2]:
            check(name, lambda x: tl.pad(x, before, after, mode, 0),
                  lambda x: F.pad(x, [before[2], after[2]], mode=name), [normal(rng, *shape)], ulps=2)


# ---- Reordering, repeating ----

@pytest.mark.parametrize("case", CASES)
def test_flip_roll_repeat(case):
    rng = np.random.default_rng(case)
    shape = shape_of(rng, low=0 if case % 4 == 0 else 1)
    rank = len(shape)
    x = normal(rng, *shape)
    axes = [int(a) for a in rng.permutation(rank)[:rng.integers(1, rank + 1)]]
    check("flip", lambda x: tl.flip(x, axes, len(axes)), lambda x: torch.flip(x, axes), [x])
    shifts = [int(n) for n in rng.integers(-9, 10, len(axes))]
    check("roll", lambda x: tl.roll(x, shifts, axes, len(axes)), lambda x: torch.roll(x, shifts, axes), [x])
    check("roll all", lambda x: tl.roll(x, shifts[:1], None, 1), lambda x: torch.roll(x, shifts[0]), [x])
    counts = [int(n) for n in rng.integers(0 if case % 5 == 0 else 1, 4, rank + int(rng.integers(0, 2)))]
    check("repeat", lambda x: tl.tile(x, len(counts), counts), lambda x: x.repeat(counts), [x], ulps=2)
    few = counts[:int(rng.integers(0, len(counts) + 1))]
    check("tile", lambda x: tl.tile(x, len(few), few or [1]), lambda x: torch.tile(x, few), [x], ulps=2)
    n = int(rng.integers(0, 4))
    check("repeat_interleave", lambda x: tl.repeat_interleave(x, axes[0], n),
          lambda x: torch.repeat_interleave(x, n, axes[0]), [x], ulps=2)
    each = rng.integers(0, 4, shape[axes[0]])
    check("repeat_interleave", lambda x, c: tl.repeat_counts(x, axes[0], c),
          lambda x, c: torch.repeat_interleave(x, c, axes[0]), [x, each], ulps=2)


@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (2, 3, 3), (1, 1), (0, 3), (2, 0)])
def test_triangles(shape):
    for k in (-9, -2, -1, 0, 1, 2, 9):
        x = normal(np.random.default_rng(0), *shape)
        check("triu", lambda x: tl.triu(x, k), lambda x: torch.triu(x, k), [x])
        check("tril", lambda x: tl.tril(x, k), lambda x: torch.tril(x, k), [x])
    rng = np.random.default_rng(0)
    same_dtypes("triu", lambda x: tl.triu(x, 0), torch.triu, DTYPES, lambda name: [sample(rng, name, shape)])


# ---- Order ----

@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("descending", [False, True])
def test_sort(case, descending):
    rng = np.random.default_rng(case)
    shape = shape_of(rng, low=0 if case % 5 == 0 else 1)
    if case % 7 == 0:
        shape = (3, 1000)
    axis = int(rng.integers(-len(shape), len(shape)))
    for name in DTYPES:  # few values: equal ones keep their order
        x = sample(rng, name, shape)
        if name in FLOATS and x.size > 3:
            x.flat[::7] = np.nan
            x.flat[1::9] = -0.0
            x.flat[2::11] = np.inf
        values, indices = results(tl.sort, tl.tensor(x), axis, descending)
        a, b = torch.sort(to_torch(x), dim=axis, descending=descending, stable=True)
        assert_near(values.numpy(), from_torch(a), f"sort {name} {shape}")
        assert np.array_equal(indices.numpy(), from_torch(b)), f"sort {name} {shape} {axis}"
        assert np.array_equal(tl.argsort(tl.tensor(x), axis, descending).numpy(), from_torch(b))
    x = np.asarray(rng.permutation(int(np.prod(shape))).reshape(shape) / 8)
    check("sort", lambda x: results(tl.sort, x, axis, descending)[0], lambda x: torch.sort(x, axis, descending)[0], [x],
          ["float64", "float32"])
    k = int(rng.integers(0, shape[axis] + 1))
    check("topk", lambda x: results(tl.topk, x, k, axis, descending)[0],
          lambda x: torch.topk(x, k, axis, descending)[0], [x], ["float64", "float32"])
    assert np.array_equal(results(tl.topk, tl.tensor(x), k, axis, descending)[1].numpy(),
                          from_torch(torch.topk(to_torch(x), k, axis, descending)[1]))


def test_sort_of_a_scalar():
    check("sort", lambda x: results(tl.sort, x, 0, False)[0], lambda x: torch.sort(x, 0)[0],
          [normal(np.random.default_rng(0))])


@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(right):
    for case in CASES:
        rng = np.random.default_rng(case)
        for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8"):
            n = int(rng.integers(0, 9))
            table, values = np.sort(sample(rng, name, (3, n)), 1), sample(rng, name, (3, 5))
            if name in FLOATS:
                values.flat[0] = np.nan
                values.flat[1] = np.inf
            for a, b in ((table, values), (np.ascontiguousarray(table[0]), values),
                         (np.ascontiguousarray(table[0]), np.asarray(values.flat[3]))):
                ours = tl.searchsorted(tl.tensor(a), tl.tensor(b), right).numpy()
                theirs = from_torch(torch.searchsorted(to_torch(a), to_torch(b), right=right))
                assert np.array_equal(ours, theirs), f"{name} {a} {b}"


def test_searchsorted_of_two_dtypes():
    for first, second in (("float64", "float32"), ("int64", "float32"), ("float32", "int64"), ("int32", "int64"),
                          ("uint8", "int8")):
        a, b = np.array([1, 2, 3]).astype(first), np.array([2.5, 2, 0]).astype(second)
        assert np.array_equal(tl.searchsorted(tl.tensor(a), tl.tensor(b), False).numpy(),
                              from_torch(torch.searchsorted(to_torch(a), to_torch(b))))


@pytest.mark.parametrize("case", CASES)
def test_unique(case):
    rng = np.random.default_rng(case)
    for name in DTYPES:
        x = sample(rng, name, shape_of(rng, low=0 if case % 5 == 0 else 1))
        if name in ("float64", "float32") and x.size > 4:
            x.flat[1] = np.nan
        ours = results(tl.unique, tl.tensor(x), n=3)
        theirs = torch.unique(to_torch(x), sorted=True, return_inverse=True, return_counts=True)
        for a, b in zip(ours, theirs, strict=True):
            assert_near(a.numpy(), from_torch(b), f"unique {name}")


# ---- Counting, making ----

def test_one_hot_and_bincount():
    rng = np.random.default_rng(0)
    for shape in ((), (4,), (2, 3), (0,)):
        index = index_of(rng, 5, shape)
        assert_near(tl.one_hot(tl.tensor(index), 6).numpy(), from_torch(F.one_hot(i64(index), 6)), "one_hot")
    x = index_of(rng, 7, (50,))
    assert_near(tl.bincount(tl.tensor(x), 9, None).numpy(), from_torch(torch.bincount(i64(x), minlength=9)), "bincount")
    check("bincount", lambda w: tl.bincount(tl.tensor(x), 9, w),
          lambda w: torch.zeros(9, dtype=w.dtype).index_add(0, i64(x), w), [normal(rng, 50)])


def test_eye_linspace_meshgrid():
    for n, m in ((3, 3), (2, 4), (4, 2), (0, 3)):
        assert_near(tl.eye(n, m, np.dtype("float32"), None).numpy(), from_torch(torch.eye(n, m)), "eye")
    for name in ("float64", "float32"):
        for start, stop, n in ((0, 1, 7), (-3, 2.5, 100), (1, 1, 3), (5, -5, 11), (2, 3, 1), (2, 3, 0), (0, 0.1, 3)):
            theirs = from_torch(torch.linspace(start, stop, n, dtype=getattr(torch, name)))
            assert_near(tl.linspace(start, stop, n, np.dtype(name), None).numpy(), theirs,
                        f"linspace {start} {stop} {n}")
    lines = [np.arange(3.0), np.arange(4.0), np.array(2.0)]
    for is_xy in (False, True):
        ours = parts(tl.meshgrid, [tl.tensor(x) for x in lines], 3, is_xy, n=3)
        for a, b in zip(ours, torch.meshgrid(*[to_torch(x) for x in lines], indexing="xy" if is_xy else "ij"),
                        strict=True):
            assert_near(a.numpy(), from_torch(b), "meshgrid")


# ---- Second derivatives ----

AT, TWO = np.array([[2, 0], [1, 1], [0, 3]]), np.array([2, 0, 2])
PAIR = (AT[:, 0] % 3, AT[:, 1])
TWICE = {
    "gather": (lambda x, v: tl.gather(x, 1, tl.tensor(AT)), lambda x, v: torch.gather(x, 1, i64(AT))),
    "scatter": (lambda x, v: tl.scatter(x, 1, tl.tensor(np.array([[2, 0], [1, 3], [0, 3]])), v),
                lambda x, v: torch.scatter(x, 1, i64([[2, 0], [1, 3], [0, 3]]), v)),
    "scatter_add": (lambda x, v: tl.scatter_add(x, 1, tl.tensor(AT), v),
                    lambda x, v: torch.scatter_add(x, 1, i64(AT), v)),
    "index": (lambda x, v: tl.index(x, [0, 1], [tl.tensor(i) for i in PAIR], 2),
              lambda x, v: x[i64(PAIR[0]), i64(PAIR[1])]),
    "index_put": (lambda x, v: tl.index_put(x, [1], [tl.tensor(np.array([2, 0]))], 1, v, False),
                  lambda x, v: x.clone().index_copy(1, i64([2, 0]), v)),
    "index_add": (lambda x, v: tl.index_add(x, 1, tl.tensor(TWO[1:]), v, 0.5),
                  lambda x, v: x.index_add(1, i64(TWO[1:]), v, alpha=0.5)),
    "concat": (lambda x, v: tl.concat([x, v], 2, 1), lambda x, v: torch.cat([x, v], 1)),
    "pad": (lambda x, v: tl.pad(x, [1, 0], [0, 2], tl.PAD_CONSTANT, 1), lambda x, v: F.pad(x, [0, 2, 1, 0], value=1)),
    "sort": (lambda x, v: results(tl.sort, x, 1, True)[0], lambda x, v: torch.sort(x, 1, True)[0]),
}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name):
    """d/dx of the sum of the squares of d(sum y^3)/dx, for both inputs."""
    rng = np.random.default_rng(0)
    a, b = rng.permutation(12).reshape(3, 4) / 8 - 0.7, normal(rng, 3, 2)
    x, v = (tl.requires_grad(tl.tensor(t), True) for t in (a, b))
    y = TWICE[name][0](x, v)
    first = [g for g in tl.gradients_of(tl.sum_all(tl.mul(y, tl.mul(y, y))), [x, v], None, tl.CREATE_GRAPH) if g]
    total = tl.sum_all(tl.mul(first[0], first[0]))
    for g in first[1:]:
        total = tl.add(total, tl.sum_all(tl.mul(g, g)))
    ours = tl.gradients_of(total, [x, v])
    p, q = to_torch(a).requires_grad_(), to_torch(b).requires_grad_()
    z = TWICE[name][1](p, q)
    first = [g for g in torch.autograd.grad((z ** 3).sum(), [p, q], create_graph=True, allow_unused=True)
             if g is not None]
    theirs = torch.autograd.grad(sum((g ** 2).sum() for g in first), [p, q], allow_unused=True)
    for i, (g, h) in enumerate(zip(ours, theirs)):
        assert (g is None) == (h is None)
        if g:
            assert_near(g.numpy(), from_torch(h), f"{name}, input {i}")


# ---- Refusals ----

X, V, M = np.ones((3, 4)), np.ones(4), np.ones((3, 4), bool)
ONE, BAD = np.zeros(2, np.int64), np.full((2, 2), 7)
REFUSED = [
    ("gather outside", lambda: tl.gather(tl.tensor(X), 1, tl.tensor(BAD)),
     lambda: torch.gather(to_torch(X), 1, i64(BAD))),
    ("gather negative", lambda: tl.gather(tl.tensor(X), 1, tl.tensor(-BAD // 7)),
     lambda: torch.gather(to_torch(X), 1, i64(-BAD // 7))),
    ("gather ranks", lambda: tl.gather(tl.tensor(X), 1, tl.tensor(ONE)),
     lambda: torch.gather(to_torch(X), 1, i64(ONE))),
    ("gather float index", lambda: tl.gather(tl.tensor(X), 1, tl.tensor(X)),
     lambda: torch.gather(to_torch(X), 1, to_torch(X))),
    ("gather axis", lambda: tl.gather(tl.tensor(X), 2, tl.tensor(BAD)), lambda: torch.gather(to_torch(X), 2, i64(BAD))),
    ("scatter dtypes", lambda: tl.scatter(tl.tensor(V), 0, tl.tensor(ONE), tl.tensor(V.astype("f4"))),
     lambda: torch.scatter(to_torch(V), 0, i64(ONE), to_torch(V.astype("f4")))),
    ("scatter short source", lambda: tl.scatter(tl.tensor(V), 0, tl.tensor(ONE), tl.tensor(V[:1])),
     lambda: torch.scatter(to_torch(V), 0, i64(ONE), to_torch(V[:1]))),
    ("index outside", lambda: tl.index(tl.tensor(X), [1], [tl.tensor(BAD)], 1), lambda: to_torch(X)[:, i64(BAD)]),
    ("index no broadcast",
     lambda: tl.index(tl.tensor(X), [0, 1], [tl.tensor(ONE), tl.tensor(np.zeros(3, np.int64))], 2),
     lambda: to_torch(X)[i64([0, 0]), i64([0, 0, 0])]),
    ("index_put shape", lambda: tl.index_put(tl.tensor(X), [0], [tl.tensor(ONE)], 1, tl.tensor(np.ones((3, 4))), False),
     lambda: to_torch(X).index_put((i64(ONE),), torch.ones(3, 4, dtype=torch.float64))),
    ("index_put dtype",
     lambda: tl.index_put(tl.tensor(X), [0], [tl.tensor(ONE)], 1, tl.tensor(np.ones(4, "f4")), False),
     lambda: to_torch(X).index_put((i64(ONE),), torch.ones(4))),
    ("index_select matrix", lambda: tl.index_select(tl.tensor(X), 0, tl.tensor(BAD)),
     lambda: torch.index_select(to_torch(X), 0, i64(BAD))),
    ("index_select negative", lambda: tl.index_select(tl.tensor(X), 0, tl.tensor(ONE - 1)),
     lambda: torch.index_select(to_torch(X), 0, i64(ONE - 1))),
    ("index_add shape", lambda: tl.index_add(tl.tensor(X), 0, tl.tensor(ONE), tl.tensor(np.ones((2, 1))), 1),
     lambda: torch.index_add(to_torch(X), 0, i64(ONE), torch.ones(2, 1, dtype=torch.float64))),
    ("concat sizes", lambda: tl.concat([tl.tensor(X), tl.tensor(X.T)], 2, 0),
     lambda: torch.cat([to_torch(X), to_torch(np.ascontiguousarray(X.T))])),
    ("concat scalars", lambda: tl.concat([tl.tensor(np.array(1.0))], 1, 0), lambda: torch.cat([torch.tensor(1.0)])),
    ("stack sizes", lambda: tl.stack([tl.tensor(V), tl.tensor(V[:2])], 2, 0),
     lambda: torch.stack([to_torch(V), to_torch(V[:2])])),
    ("split sizes", lambda: parts(tl.split, tl.tensor(V), 0, [1, 2], 2, n=2), lambda: torch.split(to_torch(V), [1, 2])),
    ("pad cuts too much", lambda: tl.pad(tl.tensor(V), [-3], [-3], tl.PAD_CONSTANT, 0),
     lambda: F.pad(to_torch(V), [-3, -3])),
    ("reflect too far", lambda: tl.pad(tl.tensor(X), [0, 4], [0, 0], tl.PAD_REFLECT, 0),
     lambda: F.pad(to_torch(X), [4, 0], mode="reflect")),
    ("flip twice", lambda: tl.flip(tl.tensor(X), [0, -2], 2), lambda: torch.flip(to_torch(X), [0, -2])),
    ("tile negative", lambda: tl.tile(tl.tensor(X), 2, [1, -2]), lambda: torch.tile(to_torch(X), (1, -2))),
    ("repeat counts", lambda: tl.repeat_counts(tl.tensor(X), 0, tl.tensor(ONE)),
     lambda: torch.repeat_interleave(to_torch(X), i64(ONE), 0)),
    ("repeat negative", lambda: tl.repeat_counts(tl.tensor(V), 0, tl.tensor(np.array([1, -1, 2, 1]))),
     lambda: torch.repeat_interleave(to_torch(V), i64([1, -1, 2, 1]), 0)),
    ("topk too many", lambda: results(tl.topk, tl.tensor(V), 5, 0, True), lambda: torch.topk(to_torch(V), 5)),
    ("sort axis", lambda: results(tl.sort, tl.tensor(V), 1, True), lambda: torch.sort(to_torch(V), 1)),
    ("search in a scalar", lambda: tl.searchsorted(tl.tensor(np.array(1.0)), tl.tensor(V), False),
     lambda: torch.searchsorted(torch.tensor(1.0), to_torch(V))),
    ("search in other rows", lambda: tl.searchsorted(tl.tensor(X), tl.tensor(X[:2]), False),
     lambda: torch.searchsorted(to_torch(X), to_torch(X[:2]))),
    ("triu of a vector", lambda: tl.triu(tl.tensor(V), 0), lambda: torch.triu(to_torch(V))),
    ("one_hot outside", lambda: tl.one_hot(tl.tensor(BAD), 7), lambda: F.one_hot(i64(BAD), 7)),
    ("index by a mask of another size", lambda: tl.index(tl.tensor(X), [0], [tl.tensor(M[:, 0].repeat(2))], 1),
     lambda: to_torch(X)[to_torch(M[:, 0].repeat(2))]),
    ("index by a mask of too many axes", lambda: tl.index(tl.tensor(V), [0], [tl.tensor(np.ones((4, 1), bool))], 1),
     lambda: to_torch(V)[to_torch(np.ones((4, 1), bool))]),
    ("mask of floats", lambda: tl.masked_fill(tl.tensor(X), tl.tensor(X), 1),
     lambda: to_torch(X).masked_fill(to_torch(X), 1)),
    ("mask of another size", lambda: tl.masked_select(tl.tensor(V), tl.tensor(M[:, :3])),
     lambda: torch.masked_select(to_torch(V), to_torch(np.ascontiguousarray(M[:, :3])))),
]


@pytest.mark.parametrize("what,ours,theirs", REFUSED, ids=[r[0] for r in REFUSED])
def test_what_torch_refuses(what, ours, theirs):
    assert outcome(theirs)[1] is not None, f"torch does {what}"
    assert outcome(ours)[1] is not None, f"{what} is not refused"
