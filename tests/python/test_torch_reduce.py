"""Reductions, scans, the softmax family and losses against PyTorch: values, gradients, dtypes, shapes,
errors."""
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tally_c import tl
from test_torch_ops import DTYPES, FLOATS, check, normal, positive
from torch_peer import NUMPY, assert_near, from_torch, outcome, to_torch

INTEGERS = ["int64", "int32", "int16", "int8", "uint8", "bool"]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (1000,), (0, 3), (2, 1, 3, 2)]


def axis_lists(shape):
    """Lists of axes to reduce; [] is all."""
    lists = [[]] + [[i] for i in range(len(shape))] + [[-1]] * bool(shape)
    return lists + [[0, -1]] * (len(shape) > 2)


def cases(shapes=SHAPES):
    return [(i, shape, axes, keep) for i, shape in enumerate(shapes) for axes in axis_lists(shape)
            for keep in (False, True)]


def over(x, axes):
    """What torch wants as dim for our list."""
    return tuple(axes) if axes else tuple(range(x.ndim))


def empty_output_or_full(shape, axes):
    """Whether every output has at least one element."""
    sizes = [shape[a] for a in (axes or range(len(shape)))]
    return 0 not in sizes


# ---- Reductions with gradients ----

REDUCTIONS = {
    "min": (lambda x, axes, keep: tl.min(x, axes, len(axes), keep),
            lambda x, axes, keep: torch.amin(x, over(x, axes), keep)),
    "var": (lambda x, axes, keep: tl.var(x, axes, len(axes), 1, keep),
            lambda x, axes, keep: torch.var(x, over(x, axes), correction=1, keepdim=keep)),
    "var0": (lambda x, axes, keep: tl.var(x, axes, len(axes), 0, keep),
             lambda x, axes, keep: torch.var(x, over(x, axes), correction=0, keepdim=keep)),
    "std": (lambda x, axes, keep: tl.std(x, axes, len(axes), 0, keep),
            lambda x, axes, keep: torch.std(x, over(x, axes), correction=0, keepdim=keep)),
    "logsumexp": (lambda x, axes, keep: tl.logsumexp(x, axes, len(axes), keep),
                  lambda x, axes, keep: torch.logsumexp(x, over(x, axes), keep)),
    "nansum": (lambda x, axes, keep: tl.nansum(x, axes, len(axes), keep),
               lambda x, axes, keep: torch.nansum(x, over(x, axes), keep)),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*")
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    ours, theirs = REDUCTIONS[name]
    for i, shape, axes, keep in cases():
        if not empty_output_or_full(shape, axes) and name == "min":
            continue
        n = math.prod(shape[a] for a in axes) if axes else math.prod(shape)
        grad = not (name == "var" and n <= 1) and not (name in ("var0", "std") and n == 0)
        draw = positive if name == "nansum" else normal
        check(f"{name} {shape} {axes} {keep}", lambda x: ours(x, axes, keep), lambda x: theirs(x, axes, keep),
              [draw(np.random.default_rng(i), *shape)], seed=i, grad=grad, ulps=4)


def torch_prod(x, axes, keep):
    if not axes:
        y = torch.prod(x)
        return y.reshape([1] * x.ndim) if keep else y
    for a in sorted((a % x.ndim for a in axes), reverse=True):
        x = torch.prod(x, a, keepdim=keep)
    return x


def test_prod():
    for i, shape, axes, keep in cases([s for s in SHAPES if s != (1000,)]):
        check(f"prod {shape} {axes} {keep}", lambda x: tl.prod(x, axes, len(axes), keep),
              lambda x: torch_prod(x, axes, keep), [positive(np.random.default_rng(i), *shape)], seed=i, ulps=12)


def test_prod_with_zeros():
    for n_zeros in (0, 1, 2, 3):
        x = normal(np.random.default_rng(n_zeros), 4, 6)
        x[1, :n_zeros] = 0
        x[3, 6 - n_zeros:] = 0
        for axes in ([1], [0], [], [0, 1]):
            check(f"prod, {n_zeros} zeros, {axes}", lambda x: tl.prod(x, axes, len(axes), False),
                  lambda x: torch_prod(x, axes, False), [x], names=["float64", "float32"])
        check(f"cumprod, {n_zeros} zeros", lambda x: tl.cumprod(x, 1), lambda x: torch.cumprod(x, 1), [x],
              names=["float64", "float32"])


def test_a_product_of_16_bits_is_rounded_once():
    """In f32 or more, in any number of chunks: torch's is in f16, and infinite where a part of it is."""
    rng = np.random.default_rng(5)
    for i in range(400):
        x = rng.standard_normal((2, 7, 1, 4)) * 10.0 ** rng.integers(-1, 3, (2, 7, 1, 4))
        if i % 4 == 0:
            x[rng.random(x.shape) < 0.05] = rng.choice([math.nan, math.inf, -math.inf, 0.0])
        for dtype in ("float16", "bfloat16"):
            y = x.astype(NUMPY[dtype])
            for axes in ([], [1], [0, 3]):
                with np.errstate(all="ignore"):
                    exact = np.prod(y.astype(np.float64), tuple(axes) or None).astype(NUMPY[dtype])
                assert np.array_equal(tl.prod(tl.tensor(y), axes, len(axes), False).numpy().astype(np.float64),
                                      exact.astype(np.float64), equal_nan=True)


def test_the_deviation_of_equal_numbers_is_0_and_so_is_its_gradient():
    for value in (1.5513533484604847, 0.1, -1e-300, 1e10 / 3):
        for n in (2, 3, 6, 7, 1000, 5000):
            for dtype in ("float64", "float32", "bfloat16"):
                x = tl.requires_grad(tl.tensor(np.full((2, n), value).astype(NUMPY[dtype])), True)
                y = tl.std(x, [1], 1, 0.0, False)
                tl.backward(tl.sum_all(y), None, 0)
                assert not y.numpy().any() and not x.grad.numpy().any(), (value, n, dtype)


def test_a_product_stays_finite_on_its_way():
    x = np.array([1e30, 1e30, 1e-30, 1e-30], np.float32)
    leaf = tl.requires_grad(tl.tensor(x), True)
    y = tl.prod_all(leaf)
    assert abs(float(y.numpy()) - 1) < 1e-5
    tl.backward(y, None, 0)
    assert np.allclose(leaf.grad.numpy(), 1 / x, rtol=1e-5, atol=0)


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, 4.25, -1, math.inf, -math.inf])
def test_norm(p):
    for i, shape, axes, keep in cases():
        if not empty_output_or_full(shape, axes) and (p < 0 or p == math.inf):
            continue
        x = normal(np.random.default_rng(i), *shape)
        check(f"norm {p} {shape} {axes} {keep}", lambda x: tl.norm(x, p, axes, len(axes), keep),
              lambda x: torch.linalg.vector_norm(x, p, over(x, axes), keep), [x], seed=i, ulps=8,
              grad=p != 0, names=FLOATS if p in (1, 2, math.inf) else ["float64", "float32"])


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])
def test_norm_at_zero(p):
    x = np.array([[0.0, 0, 0], [0, 2, -3], [1, -1, 1]])
    check(f"norm {p}", lambda x: tl.norm(x, p, [1], 1, False), lambda x: torch.linalg.vector_norm(x, p, 1), [x],
          names=["float64", "float32"])


def test_std_at_zero():
    x = np.array([[1.5, 1.5, 1.5], [0, 2, -3]])
    check("std", lambda x: tl.std(x, [1], 1, 1, False), lambda x: torch.std(x, 1), [x], names=["float64", "float32"])


@pytest.mark.parametrize("name", ["var", "std", "logsumexp", "norm", "prod", "min"])
def test_large(name):
    """Several chunks, the reduced axis inside and outside."""
    ours = {"var": lambda x, axes: tl.var(x, axes, len(axes), 1, False),
            "std": lambda x, axes: tl.std(x, axes, len(axes), 1, False),
            "norm": lambda x, axes: tl.norm(x, 2, axes, len(axes), False)}.get(name) or \
        (lambda x, axes: getattr(tl, name)(x, axes, len(axes), False))
    theirs = {"var": lambda x, d: torch.var(x, d), "std": lambda x, d: torch.std(x, d), "logsumexp": torch.logsumexp,
              "norm": lambda x, d: torch.linalg.vector_norm(x, 2, d), "prod": lambda x, d: torch_prod(x, d, False),
              "min": torch.amin}[name]
    draw = (lambda rng, *shape: rng.uniform(0.998, 1.002, shape)) if name == "prod" else normal
    for i, (shape, axes) in enumerate([((3, 9001), [1]), ((9001, 3), [0]), ((50, 40, 30), [0, 2]), ((20, 30, 40), [])]):
        check(f"{name} {shape}", lambda x: ours(x, axes), lambda x: theirs(x, over(x, axes)),
              [draw(np.random.default_rng(i), *shape)], names=["float64", "float32"], seed=i)


def test_variance_far_from_zero():
    x = 1e4 + np.random.default_rng(0).standard_normal((2, 10000))
    y = tl.var(tl.tensor(x.astype(np.float32)), [1], 1, 1, False).numpy()
    assert np.allclose(y, x.astype(np.float32).astype(np.float64).var(1, ddof=1), rtol=1e-6)


# ---- Places and truths ----

@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg(name):
    ours, theirs = getattr(tl, name), getattr(torch, name)
    for dtype in [d for d in DTYPES if d != "bool"]:
        for i, shape in enumerate([(1,), (7,), (3, 5), (2, 3, 4), (9000,), (2, 9000), ()]):
            rng = np.random.default_rng(i)
            x = rng.integers(0, 5, shape) if "int" in dtype else rng.integers(-20, 20, shape) / 8
            x = np.asarray(x).astype(NUMPY[dtype])
            for axis in [None] + list(range(len(shape))):
                for keep in (False, True):
                    axes = [] if axis is None else [axis]
                    assert_near(ours(tl.tensor(x), axes, len(axes), keep).numpy(),
                                from_torch(theirs(to_torch(x), axis, keep)), f"{name} {dtype} {shape} {axis} {keep}")


@pytest.mark.parametrize("name", ["argmax", "argmin", "min", "logsumexp", "norm", "norm_inf", "var", "prod", "cumsum",
                                  "cumprod", "log_softmax", "softmax"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_values(name):
    inf, nan = math.inf, math.nan
    rows = np.array([[1, nan, 3, nan, 2], [inf, 1, -inf, 2, 3], [-inf] * 5, [inf, inf, 1, 1, 0], [nan, inf, -inf, 0, 1],
                     [0, -0.0, 0, -0.0, 0], [5, 5, -5, -5, 1], [-inf, 1, 2, -inf, 0]])
    ours = {"norm": lambda x: tl.norm(x, 2, [1], 1, False), "norm_inf": lambda x: tl.norm(x, inf, [1], 1, False),
            "var": lambda x: tl.var(x, [1], 1, 1, False), "cumsum": lambda x: tl.cumsum(x, 1),
            "cumprod": lambda x: tl.cumprod(x, 1), "log_softmax": lambda x: tl.log_softmax(x, 1),
            "softmax": lambda x: tl.softmax(x, 1)}.get(name) or \
        (lambda x: getattr(tl, name)(x, [1], 1, False))
    theirs = {"norm": lambda x: torch.linalg.vector_norm(x, 2, 1),
              "norm_inf": lambda x: torch.linalg.vector_norm(x, inf, 1),
              "min": lambda x: torch.amin(x, 1)}.get(name) or (lambda x: getattr(torch, name)(x, 1))
    for dtype in ("float64", "float32"):
        x = rows.astype(dtype)
        assert_near(ours(tl.tensor(x)).numpy(), from_torch(theirs(to_torch(x))), f"{name} {dtype}")


@pytest.mark.parametrize("name", ["any", "all", "count_nonzero"])
def test_truth(name):
    theirs = {"count_nonzero": lambda x, axes, keep: torch.count_nonzero(x, over(x, axes) or None)}.get(name) or \
        (lambda x, axes, keep: getattr(torch, name)(x, over(x, axes), keep))
    for dtype in DTYPES:
        for i, shape, axes, keep in cases():
            if name == "count_nonzero" and keep:
                continue
            x = np.asarray(np.random.default_rng(i).integers(0, 3, shape) * 0.5).astype(NUMPY[dtype])
            assert_near(getattr(tl, name)(tl.tensor(x), axes, len(axes), keep).numpy(),
                        from_torch(theirs(to_torch(x), axes, keep)), f"{name} {dtype} {shape} {axes} {keep}")


@pytest.mark.parametrize("name", ["prod", "min", "cumsum", "cumprod", "sum_i32", "sum_f32"])
def test_integers(name):
    pairs = {"prod": (lambda x: tl.prod(x, [1], 1, False), lambda x: torch.prod(x, 1)),
             "min": (lambda x: tl.min(x, [1], 1, False), lambda x: torch.amin(x, 1)),
             "cumsum": (lambda x: tl.cumsum(x, 0), lambda x: torch.cumsum(x, 0)),
             "cumprod": (lambda x: tl.cumprod(x, 1), lambda x: torch.cumprod(x, 1)),
             "sum_i32": (lambda x: tl.cast(tl.sum(tl.cast(x, tl.I32), [0], 1, True), tl.I32),
                         lambda x: torch.sum(x, 0, True, dtype=torch.int32)),
             "sum_f32": (lambda x: tl.sum(tl.cast(x, tl.F32), [], 0, False),
                         lambda x: torch.sum(x, dtype=torch.float32))}
    ours, theirs = pairs[name]
    for dtype in INTEGERS:
        x = np.random.default_rng(3).integers(0 if dtype in ("bool", "uint8") else -9, 2 if dtype == "bool" else 10,
                                              (4, 30)).astype(NUMPY[dtype])
        assert_near(ours(tl.tensor(x)).numpy(), from_torch(theirs(to_torch(x))), f"{name} {dtype}")


# ---- Scans and softmax along any axis ----

@pytest.mark.parametrize("name", ["cumsum", "cumprod", "softmax", "log_softmax"])
def test_along_an_axis(name):
    ours = getattr(tl, name)
    theirs = getattr(torch, name)
    draw = positive if name == "cumprod" else normal
    for i, shape in enumerate([(), (1,), (7,), (3, 5), (2, 3, 4), (3000,) if name != "cumprod" else (40,), (0, 3),
                               (3, 0), (2, 1, 3, 2)]):
        for axis in range(-1, max(1, len(shape))):
            check(f"{name} {shape} {axis}", lambda x: ours(x, axis), lambda x: theirs(x, axis),
                  [draw(np.random.default_rng(i), *shape)], seed=i, ulps=4)


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_scan_in_place(name):
    for shape, axis in (((3, 4), 0), ((3, 4), 1), ((5,), 0)):
        check(f"{name} {shape}", lambda x: getattr(tl, name)(tl.clone(x), axis),
              lambda x: getattr(torch.Tensor, name)(x.clone(), axis), [positive(np.random.default_rng(0), *shape)],
              ulps=4)


def test_log_softmax_of_large_logits():
    x = np.array([[1e5, 1e5 - 3, 1e5 - 1.5]], np.float32)
    assert_near(tl.log_softmax(tl.tensor(x), 1).numpy(), from_torch(torch.log_softmax(to_torch(x), 1)), "shifted")


# ---- Losses ----

REDUCTION = {"none": 0, "mean": 1, "sum": 2}


def options(**fields):
    o = tl.cross_entropy_defaults()
    o.ignore_index = -100  # torch's default
    for name, value in fields.items():
        setattr(o, name, value)
    return o


@pytest.mark.parametrize("reduction", REDUCTION)
@pytest.mark.parametrize("smoothing", [0, 0.1, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction, smoothing, weighted):
    rng = np.random.default_rng(1)
    for n, v, ignored in ((6, 5, -100), (6, 5, 2), (9, 1300, 7), (0, 4, -100) if reduction != "mean" else (1, 1, -1)):
        targets = rng.integers(0, v, n)
        if ignored >= 0 and n:
            targets[0] = ignored
        elif n > 2:
            targets[1] = -100
        weight = positive(rng, v)

        def ours(x, w=None):
            return tl.cross_entropy(x, tl.tensor(targets), options(
                weight=w._as_parameter_ if w is not None else None, ignore_index=ignored, label_smoothing=smoothing,
                reduction=REDUCTION[reduction]))

        def theirs(x, w=None):
            return F.cross_entropy(x, torch.tensor(targets), w, ignore_index=ignored, label_smoothing=smoothing,
                                   reduction=reduction)
        for dtype in ("float64", "float32"):
            logits, w = normal(rng, n, v).astype(dtype), weight.astype(dtype)
            x, z = tl.requires_grad(tl.tensor(logits), True), to_torch(logits).requires_grad_()
            w1, w2 = (tl.tensor(w), to_torch(w)) if weighted else (None, None)
            y, t = ours(x, w1), theirs(z, w2)
            what = f"{n} {v} {ignored} {dtype}"
            assert_near(y.numpy(), from_torch(t), what)
            seed = np.asarray(np.random.default_rng(2).standard_normal(y.shape)).astype(dtype)
            tl.backward(y, tl.tensor(seed), 0)
            t.backward(to_torch(seed))
            assert_near(x.grad.numpy(), from_torch(z.grad), what + " gradient")


@pytest.mark.parametrize("reduction", REDUCTION)
@pytest.mark.parametrize("smoothing", [0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_with_probabilities(reduction, smoothing, weighted):
    rng = np.random.default_rng(4)
    p = rng.random((5, 7))
    p /= p.sum(1, keepdims=True)
    w = positive(rng, 7)
    keep = []

    def ours(x, t):
        o = options(label_smoothing=smoothing, reduction=REDUCTION[reduction])
        if weighted:
            keep.append(tl.tensor(w.astype(x.dtype)))
            o.weight = keep[-1]._as_parameter_
        return tl.cross_entropy(x, t, o)

    def theirs(x, t):
        return F.cross_entropy(x, t, torch.tensor(w, dtype=x.dtype) if weighted else None, label_smoothing=smoothing,
                               reduction=reduction)
    check("probabilities", ours, theirs, [normal(rng, 5, 7), p], names=["float64", "float32"])


@pytest.mark.parametrize("reduction", REDUCTION)
def test_nll_loss(reduction):
    rng = np.random.default_rng(5)
    targets = rng.integers(0, 6, 8)
    w = positive(rng, 6)
    for ignored in (-100, 3):
        for weighted in (False, True):
            keep = []

            def ours(x):
                keep.append(tl.tensor(w.astype(x.dtype)))
                return tl.nll_loss(x, tl.tensor(targets), options(ignore_index=ignored, reduction=REDUCTION[reduction],
                                                                  weight=keep[-1]._as_parameter_ if weighted else None))
            check(f"nll {ignored}", ours,
                  lambda x: F.nll_loss(x, torch.tensor(targets),
                                       to_torch(w.astype(NUMPY[str(x.dtype)[6:]])) if weighted else None,
                                       ignore_index=ignored, reduction=reduction), [normal(rng, 8, 6)], ulps=4)


SHAPES = [(5,), (4, 5), (2, 5, 3), (2, 3, 2, 3), (2, 3, 2, 1, 2), (1,), (2, 3, 0)]


@pytest.mark.parametrize("reduction", REDUCTION)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_losses_of_any_rank(shape, reduction):
    """Classes in axis 0 of a vector, in axis 1 of anything else."""
    rng = np.random.default_rng(7)
    v, rows = (shape[0], ()) if len(shape) == 1 else (shape[1], shape[:1] + shape[2:])
    ids, p, w = np.asarray(rng.integers(0, v, rows)), rng.random(shape), positive(rng, v)
    how, keep = REDUCTION[reduction], []
    for weighted, smoothing, ignored in ((False, 0, -100), (True, 0, -100), (True, 0.1, 1), (False, 0.3, 0),
                                         (True, 0, 0)):
        def set_up(x):
            keep.append(tl.tensor(w.astype(x.dtype)))
            return options(weight=keep[-1]._as_parameter_ if weighted else None, label_smoothing=smoothing,
                           ignore_index=ignored, reduction=how)

        def more(x):
            return {"weight": torch.tensor(w, dtype=x.dtype) if weighted else None, "reduction": reduction}
        what, names = f"{shape} {reduction} {weighted} {smoothing} {ignored}", ["float64", "float32"]
        t = torch.tensor(ids)
        check("ids " + what, lambda x: tl.cross_entropy(x, tl.tensor(ids), set_up(x)),
              lambda x: F.cross_entropy(x, t, ignore_index=ignored, label_smoothing=smoothing, **more(x)),
              [normal(rng, *shape)], names=names)
        if ignored < 0 or smoothing:
            check("probabilities " + what, lambda x, y: tl.cross_entropy(x, y, set_up(x)),
                  lambda x, y: F.cross_entropy(x, y, label_smoothing=smoothing, **more(x)), [normal(rng, *shape), p],
                  names=names)
        if not smoothing:  # contiguous: torch's gradient of four axes refuses other strides
            check("nll " + what, lambda x: tl.nll_loss(x, tl.tensor(ids), set_up(x)),
                  lambda x: F.nll_loss(x.contiguous(), t, ignore_index=ignored, **more(x)), [normal(rng, *shape)],
                  names=names)
    check("plain", lambda x: tl.cross_entropy(x, tl.tensor(ids), None), lambda x: F.cross_entropy(x, t),
          [normal(rng, *shape)], names=names)
    check("plain, probabilities", lambda x, t: tl.cross_entropy(x, t, None), F.cross_entropy, [normal(rng, *shape), p],
          names=names)


def test_everything_ignored():
    targets = np.full(3, -100)
    x = normal(np.random.default_rng(0), 3, 4)
    for reduction in REDUCTION:
        ours = tl.cross_entropy(tl.tensor(x), tl.tensor(targets), options(reduction=REDUCTION[reduction]))
        theirs = F.cross_entropy(to_torch(x), torch.tensor(targets), reduction=reduction)
        assert_near(ours.numpy(), from_torch(theirs), reduction)


LOSSES = {"mse": (tl.mse_loss, F.mse_loss), "l1": (tl.l1_loss, F.l1_loss),
          "smooth_l1": (lambda a, b, r: tl.smooth_l1_loss(a, b, 0.75, r),
                        lambda a, b, reduction: F.smooth_l1_loss(a, b, beta=0.75, reduction=reduction)),
          "smooth_l1_0": (lambda a, b, r: tl.smooth_l1_loss(a, b, 0, r),
                          lambda a, b, reduction: F.smooth_l1_loss(a, b, beta=0, reduction=reduction)),
          "bce": (lambda a, b, r: tl.bce_with_logits(a, b, None, None, r), F.binary_cross_entropy_with_logits)}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("reduction", REDUCTION)
def test_elementwise_loss(name, reduction):
    ours, theirs = LOSSES[name]
    for i, shape in enumerate([(), (1,), (3, 5), (2, 3, 4), (0, 3), (700,)]):
        rng = np.random.default_rng(i)
        b = rng.random(shape) if name == "bce" else normal(rng, *shape)
        check(f"{name} {shape}", lambda a, b: ours(a, b, REDUCTION[reduction]),
              lambda a, b: theirs(a, b, reduction=reduction), [normal(rng, *shape), np.asarray(b)], seed=i, ulps=4)


def test_l1_where_equal():
    x = np.array([1.0, 2.0, 3.0])
    for name in ("l1", "smooth_l1"):
        ours, theirs = LOSSES[name]
        check(name, lambda a, b: ours(a, b, 0), lambda a, b: theirs(a, b, reduction="none"),
              [x, np.array([1.0, 0, 3.5])], names=["float64"])


def test_bce_weights_and_large_logits():
    rng = np.random.default_rng(0)
    x, t, w, pw = np.linspace(-90, 90, 24).reshape(4, 6), rng.random((4, 6)), positive(rng, 4, 1), positive(rng, 6)
    for reduction in REDUCTION:
        check("bce", lambda x, t: tl.bce_with_logits(x, t, tl.tensor(w.astype(x.dtype)), tl.tensor(pw.astype(x.dtype)),
                                                     REDUCTION[reduction]),
              lambda x, t: F.binary_cross_entropy_with_logits(x, t, torch.tensor(w, dtype=x.dtype),
                                                              pos_weight=torch.tensor(pw, dtype=x.dtype),
                                                              reduction=reduction), [x, t],
              names=["float64", "float32"])
    right = tl.bce_with_logits(tl.tensor(np.float32([30.0])), tl.tensor(np.float32([1.0])), None, None, 0).numpy()
    assert abs(right[0] / math.exp(-30) - 1) < 1e-6  # small losses keep their digits


# ---- Second derivatives ----

SECOND = {
    "log_softmax": (lambda x: tl.log_softmax(x, 1), lambda x: torch.log_softmax(x, 1)),
    "log_softmax axis 0": (lambda x: tl.log_softmax(x, 0), lambda x: torch.log_softmax(x, 0)),
    "softmax axis 0": (lambda x: tl.softmax(x, 0), lambda x: torch.softmax(x, 0)),
    "cross_entropy": (lambda x: tl.cross_entropy(x, tl.tensor(np.array([1, 0, 3])), None),
                      lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3]))),
    "cross_entropy, smoothed": (lambda x: tl.cross_entropy(x, tl.tensor(np.array([1, 0, 3])),
                                                           options(label_smoothing=0.1)),
                                lambda x: F.cross_entropy(x, torch.tensor([1, 0, 3]), label_smoothing=0.1)),
    "nll of log_softmax": (lambda x: tl.nll_loss(tl.log_softmax(x, 1), tl.tensor(np.array([1, 0, 3])), None),
                           lambda x: F.nll_loss(torch.log_softmax(x, 1), torch.tensor([1, 0, 3]))),
    "prod": (lambda x: tl.prod(x, [1], 1, False), lambda x: torch.prod(x, 1)),
    "var": (lambda x: tl.var(x, [1], 1, 1, False), lambda x: torch.var(x, 1)),
    "std": (lambda x: tl.std(x, [0], 1, 1, False), lambda x: torch.std(x, 0)),
    "logsumexp": (lambda x: tl.logsumexp(x, [1], 1, False), lambda x: torch.logsumexp(x, 1)),
    "norm 2": (lambda x: tl.norm(x, 2, [1], 1, False), lambda x: torch.linalg.vector_norm(x, 2, 1)),
    "norm 3": (lambda x: tl.norm(x, 3, [1], 1, False), lambda x: torch.linalg.vector_norm(x, 3, 1)),
    "cumsum": (lambda x: tl.mul(tl.cumsum(x, 1), x), lambda x: torch.cumsum(x, 1) * x),
    "bce": (lambda x: tl.bce_with_logits(x, tl.tensor(np.full((3, 4), 0.25)), None, None, 1),
            lambda x: F.binary_cross_entropy_with_logits(x, torch.full((3, 4), 0.25, dtype=torch.float64))),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivative(name):
    ours, theirs = SECOND[name]
    values = normal(np.random.default_rng(6), 3, 4)
    x, z = tl.requires_grad(tl.tensor(values), True), to_torch(values).requires_grad_()
    y, t = ours(x), theirs(z)
    rng = np.random.default_rng(7)
    seed, v = np.asarray(rng.standard_normal(y.shape)), rng.standard_normal((3, 4))
    (g,) = tl.gradients_of(y, [x], tl.tensor(seed), tl.CREATE_GRAPH)
    (h,) = torch.autograd.grad(t, z, to_torch(seed), create_graph=True)
    assert_near(g.numpy(), from_torch(h), name + " first")
    (gg,) = tl.gradients_of(g, [x], tl.tensor(v), 0)
    (hh,) = torch.autograd.grad(h, z, to_torch(v))
    assert_near(gg.numpy(), from_torch(hh), name + " second")


# ---- Refusals ----

F64 = np.zeros((2, 3))
REFUSED = {
    "argmax of bool": (lambda: tl.argmax(tl.tensor(F64 > 0), [], 0, False), lambda: torch.argmax(to_torch(F64 > 0))),
    "argmax of nothing": (lambda: tl.argmax(tl.tensor(F64[:0]), [], 0, False), lambda: torch.argmax(to_torch(F64[:0]))),
    "argmax of an empty axis": (lambda: tl.argmax(tl.tensor(F64[:0]), [0], 1, False),
                                lambda: torch.argmax(to_torch(F64[:0]), 0)),
    "min of nothing": (lambda: tl.min(tl.tensor(F64[:0]), [], 0, False), lambda: torch.amin(to_torch(F64[:0]))),
    "var of integers": (lambda: tl.var(tl.tensor(F64.astype(int)), [], 0, 1, False),
                        lambda: torch.var(to_torch(F64.astype(int)))),
    "norm of integers": (lambda: tl.norm(tl.tensor(F64.astype(int)), 2, [], 0, False),
                         lambda: torch.linalg.vector_norm(to_torch(F64.astype(int)))),
    "inf norm of nothing": (lambda: tl.norm(tl.tensor(F64[:0]), math.inf, [], 0, False),
                            lambda: torch.linalg.vector_norm(to_torch(F64[:0]), math.inf)),
    "-1 norm of nothing": (lambda: tl.norm(tl.tensor(F64[:0]), -1, [0], 1, False),
                           lambda: torch.linalg.vector_norm(to_torch(F64[:0]), -1, 0)),
    "axis out of range": (lambda: tl.cumsum(tl.tensor(F64), 2), lambda: torch.cumsum(to_torch(F64), 2)),
    "log_softmax of integers": (lambda: tl.log_softmax(tl.tensor(F64.astype(int)), 0),
                                lambda: torch.log_softmax(to_torch(F64.astype(int)), 0)),
    "log_softmax axis": (lambda: tl.log_softmax(tl.tensor(F64), -3), lambda: torch.log_softmax(to_torch(F64), -3)),
    "target outside": (lambda: tl.nll_loss(tl.tensor(F64), tl.tensor(np.array([0, 3])), None),
                       lambda: F.nll_loss(to_torch(F64), torch.tensor([0, 3]))),
    "too few targets": (lambda: tl.cross_entropy(tl.tensor(F64), tl.tensor(np.array([0])), None),
                        lambda: F.cross_entropy(to_torch(F64), torch.tensor([0]))),
    "targets with classes": (lambda: tl.cross_entropy(tl.tensor(F64), tl.tensor(np.zeros((2, 3), np.int64)), None),
                             lambda: F.cross_entropy(to_torch(F64), torch.zeros((2, 3), dtype=torch.int64))),
    "no classes": (lambda: tl.cross_entropy(tl.tensor(F64[0, 0]), tl.tensor(np.int64(0)), None),
                   lambda: F.cross_entropy(to_torch(F64[0, :1])[0], torch.tensor(0))),
    "probabilities too few": (lambda: tl.cross_entropy(tl.tensor(F64), tl.tensor(F64[0]), None),
                              lambda: F.cross_entropy(to_torch(F64), to_torch(F64[0]))),
    "smoothing of 2": (lambda: tl.cross_entropy(tl.tensor(F64), tl.tensor(np.array([0, 1])),
                                                options(label_smoothing=2)),
                       lambda: F.cross_entropy(to_torch(F64), torch.tensor([0, 1]), label_smoothing=2)),
    "negative beta": (lambda: tl.smooth_l1_loss(tl.tensor(F64), tl.tensor(F64), -1, 0),
                      lambda: F.smooth_l1_loss(to_torch(F64), to_torch(F64), beta=-1)),
    "bce of other shape": (lambda: tl.bce_with_logits(tl.tensor(F64), tl.tensor(F64[0]), None, None, 1),
                           lambda: F.binary_cross_entropy_with_logits(to_torch(F64), to_torch(F64[0]))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    ours, theirs = REFUSED[name]
    assert outcome(theirs)[1] is not None, "torch takes it"
    assert outcome(ours)[1] is not None, "torch refuses it"


# ---- Means of more than 16 bits can count or hold ----

def test_means_of_many_narrow_numbers():
    many = np.full(70000, 3, np.float16)
    assert tl.mean_all(tl.tensor(many)).numpy() == 3  # their sum is no f16
    assert tl.mse_loss(tl.tensor(many), tl.tensor(many - 1), tl.REDUCE_MEAN).numpy() == 1
    x = np.full((1001, 2), -2.5).astype(NUMPY["bfloat16"])  # bf16 has no 1001
    ids = np.zeros(1001, np.int64)
    assert tl.nll_loss(tl.tensor(x), tl.tensor(ids), tl.cross_entropy_defaults()).numpy() == 2.5
    leaf = tl.requires_grad(tl.tensor(many), True)
    tl.backward(tl.mean_all(leaf), None, 0)
    assert np.allclose(leaf.grad.numpy().astype(np.float64), 1 / 70000, rtol=2e-3)
