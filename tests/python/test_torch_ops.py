"""Every public op against PyTorch: values, gradients, result dtype and shape, and what is refused.

A case is one line: our function, torch's, and the shapes of the inputs. It runs in every float dtype, with the inputs'
axes in a random order in memory. f64 and f32 are compared directly; f16 and bf16 by their distance from torch's f64
result.
"""
import gc
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tally_c import tl
from torch_peer import NUMPY, TORCH, assert_as_good, assert_near, from_torch, outcome, spread, to_torch

SEED = 7
FLOATS = ["float64", "float32", "float16", "bfloat16"]
DTYPES = FLOATS + ["int64", "int32", "int16", "int8", "uint8", "bool"]
END = 2**63 - 1


# ---- One op, forward and backward, in both libraries ----

def is_real(values):
    return values.dtype.kind not in "iub"  # ml_dtypes' have a kind of their own


def both(ours, theirs, values, name, orders):
    """[(our leaves, our result), (torch leaves, result)] in a dtype; values that are no floats stay as they are."""
    results = []
    for f, tensor, permute, wants in (
            (ours, tl.tensor, tl.permute, lambda x: tl.requires_grad(x, True)),
            (theirs, to_torch, torch.permute, lambda x: x.requires_grad_())):
        leaves, views = [], []
        for v, order in zip(values, orders):
            is_float = is_real(v)
            leaf, view = spread(v.astype(NUMPY[name]) if is_float else v, order, tensor, lambda x, axes: x)
            if is_float:
                wants(leaf)
            axes = [int(a) for a in np.argsort(order)]
            views.append(permute(leaf, axes) if axes != sorted(axes) else leaf)
            leaves.append(leaf)
        results.append((leaves, f(*views)))
    return results


def run(ours, theirs, values, name, orders, grad):
    """Results and gradients as two lists of arrays."""
    (our_leaves, y), (their_leaves, z) = both(ours, theirs, values, name, orders)
    a, b = [y.numpy()], [from_torch(z)]
    if grad and z.requires_grad:
        assert y.shape == tuple(z.shape)
        seed = np.random.default_rng(SEED).standard_normal(y.shape).astype(y.dtype)
        tl.backward(y, tl.tensor(seed), 0)
        z.backward(to_torch(seed))
        for ours_leaf, their_leaf in zip(our_leaves, their_leaves):
            if their_leaf.grad is not None:
                grad = ours_leaf.grad  # where torch has zeros, since what was there is overwritten, we have none
                a.append(grad.numpy() if grad else np.zeros_like(ours_leaf.numpy()))
                b.append(from_torch(their_leaf.grad))
    return a, b


def check(what, ours, theirs, values, names=FLOATS, grad=True, seed=0, ulps=1):
    rng = np.random.default_rng([SEED, seed])
    for name in names:
        orders = [rng.permutation(v.ndim) for v in values]
        rounded = [v.astype(NUMPY[name]) if is_real(v) else v for v in values]
        a, b = run(ours, theirs, rounded, name, orders, grad)
        if name in ("float64", "float32"):
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                assert_near(x, y, f"{what} {name} {'gradient %d' % (i - 1) if i else 'value'}")
            continue
        wide = [v.astype(np.float64) if is_real(v) else v for v in rounded]
        _, exact = run(ours, theirs, wide, "float64", orders, grad)
        for i, (x, y, z) in enumerate(zip(a, b, exact, strict=True)):
            assert_as_good(x, y, z, f"{what} {name} {'gradient %d' % (i - 1) if i else 'value'}", ulps)


def normal(rng, *shape):
    return np.asarray(rng.standard_normal(shape))


def positive(rng, *shape):
    return np.asarray(rng.uniform(0.5, 2, shape))


# ---- Elementwise ----

UNARY = [("neg", torch.neg, normal), ("exp", torch.exp, normal), ("log", torch.log, positive),
         ("sqrt", torch.sqrt, positive), ("tanh", torch.tanh, normal), ("sigmoid", torch.sigmoid, normal),
         ("relu", torch.relu, normal), ("gelu", lambda x: F.gelu(x, approximate="tanh"), normal),
         ("silu", F.silu, normal), ("clone", torch.clone, normal), ("sum_all", torch.sum, normal),
         ("mean_all", torch.mean, normal)]


@pytest.mark.parametrize("name,theirs,draw", UNARY, ids=[u[0] for u in UNARY])
def test_unary(name, theirs, draw):
    for i, shape in enumerate([(), (1,), (7,), (3, 5), (2, 3, 4), (1000,), (0, 3), (2, 1, 3, 2)]):
        check(f"{name} {shape}", getattr(tl, name), theirs, [draw(np.random.default_rng(i), *shape)], seed=i)


@pytest.mark.parametrize("name", ["neg", "exp", "log", "sqrt", "tanh", "sigmoid", "relu", "gelu", "silu"])
def test_unary_of_special_values(name):
    theirs = dict((u[0], u[1]) for u in UNARY)[name]
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 1e4, -1e4, 80.0, -80.0, 1.0, -1.0])
    if name in ("gelu", "silu"):  # at -inf torch has NaN, we have the limit
        values[3] = 0
        assert getattr(tl, name)(tl.tensor(np.array([-np.inf]))).numpy() == 0
    for dtype in ("float64", "float32"):
        x = values.astype(dtype)
        assert_near(getattr(tl, name)(tl.tensor(x)).numpy(), from_torch(theirs(to_torch(x))), f"{name} {dtype}")


PAIRS = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 3), ()), ((2, 1, 3), (4, 1)),
         ((5,), (1,)), ((0, 3), (3,)), ((), ()), ((300, 7), (7,))]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "swiglu"])
def test_binary(name):
    theirs = {"swiglu": lambda a, b: F.silu(a) * b}.get(name) or getattr(torch, name)
    for i, (a, b) in enumerate(PAIRS):
        rng = np.random.default_rng(i)
        # The gradient of b in a/b takes three ops in both libraries, in different orders; where it is a single number,
        # torch may be more accurate by chance.
        check(f"{name} {a} {b}", getattr(tl, name), theirs, [normal(rng, *a), positive(rng, *b)], seed=i,
              ulps=4 if name == "div" else 1)


@pytest.mark.parametrize("scale,shift", [(2.5, -1), (1, 0.3), (0, 2), (-1, 0)])
def test_affine_and_scale(scale, shift):
    x = normal(np.random.default_rng(0), 4, 5)
    check("affine", lambda x: tl.affine(x, scale, shift), lambda x: x * scale + shift, [x], ["float64", "float32"])
    check("scale", lambda x: tl.scale(x, scale), lambda x: x * scale, [x])


@pytest.mark.parametrize("name,theirs", [("add_", torch.Tensor.add_), ("sub_", torch.Tensor.sub_),
                                         ("mul_", torch.Tensor.mul_), ("div_", torch.Tensor.div_),
                                         ("copy_", torch.Tensor.copy_)])
def test_in_place_binary(name, theirs):
    for i, (a, b) in enumerate([((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 3, 4), (3, 1)), ((5,), ())]):
        rng = np.random.default_rng(i)
        check(f"{name} {a} {b}", lambda x, y: getattr(tl, name)(tl.clone(x), y), lambda x, y: theirs(x.clone(), y),
              [normal(rng, *a), positive(rng, *b)], seed=i)


@pytest.mark.parametrize("name,ours,theirs", [
    ("exp_", tl.exp_, torch.Tensor.exp_), ("relu_", tl.relu_, torch.Tensor.relu_),
    ("fill_", lambda x: tl.fill_(x, 3.0), lambda x: x.fill_(3.0)),
    ("affine_", lambda x: tl.affine_(x, 2.0, 1.0), lambda x: x.mul_(2.0).add_(1.0))])
def test_in_place_unary(name, ours, theirs):
    x = normal(np.random.default_rng(0), 3, 4)
    check(name, lambda x: ours(tl.clone(x)), lambda x: theirs(x.clone()), [x], ["float64", "float32"])


def sample(rng, name, shape):
    if name == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if NUMPY[name].kind in "iu":
        return np.asarray(rng.integers(0 if name.startswith("u") else -5, 6, shape)).astype(NUMPY[name])
    return np.asarray(rng.integers(-20, 20, shape) / 4).astype(NUMPY[name])


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "cmp", "where", "add_", "mul_", "sub_", "copy_"])
def test_dtypes_promote_as_in_torch(op):
    calls = {"cmp": (lambda a, b: tl.cmp(a, tl.LT, b), torch.lt),
             "where": (lambda a, b: tl.where(tl.tensor(mask), a, b), lambda a, b: torch.where(to_torch(mask), a, b))}
    mask = np.array([True, False, True, True, False, False])
    rng = np.random.default_rng(SEED)
    for first, second in itertools.product(DTYPES, DTYPES):
        for shapes in (((6,), (6,)), ((6,), ()), ((), (6,)), ((), ())):
            if op in ("add_", "mul_", "sub_", "copy_") and shapes[0] == () and shapes[1]:
                continue
            a, b = sample(rng, first, shapes[0]), sample(rng, second, shapes[1])
            if op == "cmp" and () in shapes and first != second:
                continue  # torch brings a scalar to the other's dtype, where it may wrap; we compare the numbers
            if op == "copy_":
                # Negative floats cast to u8 saturate at 0 here and wrap in torch.
                b = np.asarray(np.abs(b)) if second != "bool" else b
            if op == "div":
                b = np.where(b == 0, np.ones_like(b), b)
            ours, theirs = calls.get(op) or (getattr(tl, op), getattr(torch.Tensor, op))
            y, error = outcome(lambda: ours(tl.tensor(a), tl.tensor(b)).numpy())
            z, their_error = outcome(lambda: from_torch(theirs(to_torch(a), to_torch(b))))
            what = f"{op} {first}{list(shapes[0])} {second}{list(shapes[1])}"
            assert (error is None) == (their_error is None), \
                f"{what}: ours {error or y.dtype}, torch {their_error or z.dtype}"
            if error is None:
                assert y.dtype == z.dtype, f"{what}: ours {y.dtype}, torch {z.dtype}"
                assert_near(y.astype(np.float64), z.astype(np.float64), what,
                            1e-2 if y.dtype.itemsize < 4 and y.dtype.kind not in "iub" else 1e-6)


def test_mixed_dtypes_bring_gradients_back_to_their_own():
    a, b = np.array([1.0, 2.0], np.float32), np.array([3.0, 4.0], np.float64)
    for first, second in ((a, b), (b, a)):
        x, y = (tl.requires_grad(tl.tensor(v), True) for v in (first, second))
        p, q = (to_torch(v).requires_grad_() for v in (first, second))
        tl.backward(tl.sum_all(tl.mul(x, y)), None, 0)
        (p * q).sum().backward()
        assert_near(x.grad.numpy(), from_torch(p.grad), "first")
        assert_near(y.grad.numpy(), from_torch(q.grad), "second")


@pytest.mark.parametrize("relation,theirs", [("EQ", torch.eq), ("NE", torch.ne), ("LT", torch.lt), ("LE", torch.le),
                                             ("GT", torch.gt), ("GE", torch.ge)])
def test_compare(relation, theirs):
    rng = np.random.default_rng(1)
    for name in DTYPES:
        a, b = sample(rng, name, (5, 7)), sample(rng, name, (7,))
        if name in FLOATS:
            a[0, :3] = [np.nan, np.inf, -0.0]
        ours = tl.cmp(tl.tensor(a), getattr(tl, relation), tl.tensor(b)).numpy()
        assert_near(ours, from_torch(theirs(to_torch(a), to_torch(b))), f"{relation} {name}")


def test_where():
    rng = np.random.default_rng(2)
    for i, (c, a, b) in enumerate([((3, 4), (3, 4), (3, 4)), ((4,), (3, 1), ()), ((3, 1), (4,), (3, 4))]):
        condition = rng.random(c) < 0.5
        check("where", lambda x, y: tl.where(tl.tensor(condition), x, y),
              lambda x, y: torch.where(torch.from_numpy(condition), x, y), [normal(rng, *a), normal(rng, *b)], seed=i)


# ---- Reductions ----

@pytest.mark.parametrize("name,theirs", [("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)])
def test_reductions(name, theirs):
    rng = np.random.default_rng(3)
    for i, (shape, axes) in enumerate([((5,), [0]), ((3, 4), [0]), ((3, 4), [1]), ((3, 4), [-1, 0]), ((2, 3, 4), [1]),
                                       ((2, 3, 4), [0, 2]), ((2, 3, 4), []), ((2000, 3), [0]), ((3, 2000), [1]),
                                       ((2, 3, 1, 4), [2, 3])]):
        x = normal(rng, *shape)
        for keep in (False, True):
            their_axes = axes or list(range(len(shape)))
            check(f"{name} {shape} {axes} {keep}", lambda x: getattr(tl, name)(x, axes, len(axes), keep),
                  lambda x: theirs(x, dim=their_axes, keepdim=keep), [x], seed=i)


def test_maximum_shares_its_gradient_among_equals():
    x = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    check("max", lambda x: tl.max(x, [1], 1, False), lambda x: torch.amax(x, 1), [x], ["float64"])


@pytest.mark.parametrize("name", ["sum", "max"])
def test_reductions_of_integers(name):
    rng = np.random.default_rng(4)
    for dtype in ("int64", "int32", "int16", "int8", "uint8", "bool"):
        x = sample(rng, dtype, (4, 5))
        theirs = to_torch(x).sum(1) if name == "sum" else to_torch(x).amax(1)
        assert_near(getattr(tl, name)(tl.tensor(x), [1], 1, False).numpy(), from_torch(theirs), f"{name} {dtype}")


def test_reductions_over_nothing():
    x = np.zeros((0, 3))
    assert_near(tl.sum(tl.tensor(x), [0], 1, False).numpy(), np.zeros(3), "sum")
    assert np.isnan(tl.mean(tl.tensor(x), [0], 1, False).numpy()).all()
    _, error = outcome(lambda: tl.max(tl.tensor(x), [0], 1, False))
    assert error


def test_reductions_see_nan():
    x = np.array([[1.0, np.nan, 2.0], [np.inf, 1, -np.inf]], np.float32)
    for name, theirs in (("max", torch.amax), ("sum", torch.sum)):
        assert_near(getattr(tl, name)(tl.tensor(x), [1], 1, False).numpy(), from_torch(theirs(to_torch(x), 1)), name)


# ---- Products ----

MATMULS = [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)),
           ((2, 3), (5, 3, 4)), ((3,), (5, 3, 4)), ((5, 2, 3), (3,)), ((6, 1, 2, 3), (5, 3, 4)), ((1, 3), (3, 1)),
           ((2, 0), (0, 3)), ((0, 3), (3, 2)), ((70, 33), (33, 65)), ((2, 1, 4, 3), (1, 3, 3, 2))]


@pytest.mark.parametrize("a,b", MATMULS)
def test_matmul(a, b):
    rng = np.random.default_rng(5)
    for seed in range(2):
        check(f"matmul {a} {b}", tl.matmul, torch.matmul, [normal(rng, *a), normal(rng, *b)], seed=seed)


@pytest.mark.parametrize("x,w,bias", [((3,), (4, 3), True), ((2, 3), (4, 3), True), ((5, 2, 3), (4, 3), False),
                                      ((2, 5, 2, 3), (1, 3), True), ((40, 64), (48, 64), True)])
def test_linear(x, w, bias):
    rng = np.random.default_rng(6)
    values = [normal(rng, *x), normal(rng, *w)] + ([normal(rng, w[0])] if bias else [])
    check(f"linear {x} {w}", lambda x, w, b=None: tl.linear(x, w, b), lambda x, w, b=None: F.linear(x, w, b), values)


# ---- Rows: softmax, norms, tokens ----

@pytest.mark.parametrize("shape", [(5,), (3, 7), (2, 3, 65), (4, 1), (3, 1000), (0, 4)])
def test_softmax(shape):
    check("softmax", lambda x: tl.softmax(x, -1), lambda x: F.softmax(x, -1),
          [3 * normal(np.random.default_rng(7), *shape)])


def test_softmax_with_masked_entries():
    x = np.array([[0.5, -np.inf, 1.0], [-np.inf, -np.inf, 2.0]])
    assert_near(tl.softmax(tl.tensor(x), -1).numpy(), from_torch(F.softmax(to_torch(x), -1)), "softmax")


@pytest.mark.parametrize("shape", [(8,), (3, 16), (2, 3, 65), (5, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_norms(shape, weighted):
    rng, C = np.random.default_rng(8), shape[-1:]
    values = [normal(rng, *shape)] + ([normal(rng, *C), normal(rng, *C)] if weighted else [])
    check("layer_norm", lambda x, w=None, b=None: tl.layer_norm(x, w, b, 1e-5),
          lambda x, w=None, b=None: F.layer_norm(x, C, w, b, 1e-5), values)
    check("rms_norm", lambda x, w=None: tl.rms_norm(x, w, 1e-6), lambda x, w=None: F.rms_norm(x, C, w, 1e-6),
          values[:2])


@pytest.mark.parametrize("ids_shape", [(), (5,), (2, 7), (0,)])
@pytest.mark.parametrize("ids_dtype", ["int64", "int32"])
def test_embedding(ids_shape, ids_dtype):
    rng = np.random.default_rng(9)
    ids = np.asarray(rng.integers(0, 6, ids_shape)).astype(ids_dtype)
    check("embedding", tl.embedding, lambda w, i: F.embedding(i, w), [normal(rng, 6, 4), ids])


@pytest.mark.parametrize("n,v", [(1, 2), (5, 7), (33, 300)])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_cross_entropy(n, v, dtype):
    rng = np.random.default_rng(10)
    targets = rng.integers(0, v, n).astype(dtype)
    logits = 3 * normal(rng, n, v)
    check("cross_entropy", lambda x, t: tl.cross_entropy(x, t, None), lambda x, t: F.cross_entropy(x, t.long()),
          [logits, targets], ["float64", "float32"])
    for name in ("float16", "bfloat16"):  # the loss is f32, as documented; torch rounds it to the logits' dtype
        x = tl.requires_grad(tl.tensor(logits.astype(NUMPY[name])), True)
        loss = tl.cross_entropy(x, tl.tensor(targets), None)
        tl.backward(loss, None, 0)
        wide = to_torch(logits.astype(NUMPY[name])).double().requires_grad_()
        exact = F.cross_entropy(wide, torch.from_numpy(targets).long())
        exact.backward()
        narrow = to_torch(logits.astype(NUMPY[name])).requires_grad_()
        F.cross_entropy(narrow, torch.from_numpy(targets).long()).backward()
        assert_near(loss.numpy(), from_torch(exact.float()), "loss")
        assert_as_good(x.grad.numpy(), from_torch(narrow.grad), from_torch(wide.grad), f"gradient {name}")


@pytest.mark.parametrize("which", ["embedding", "cross_entropy"])
@pytest.mark.parametrize("bad", [-1, 7])
def test_ids_out_of_range_are_refused(which, bad):
    table, ids = tl.tensor(np.zeros((3 if which == "cross_entropy" else 7, 7))), tl.tensor(np.array([0, bad, 1]))
    _, error = outcome(lambda: tl.embedding(table, ids) if which == "embedding" else tl.cross_entropy(table, ids, None))
    assert error


# ---- Attention ----

def rope(x, base, first):
    """first: the first position, or a position for each token, (B,T)."""
    B, T, H, D = x.shape
    at = first if torch.is_tensor(first) else torch.arange(first, first + T)
    angle = at.double()[..., None] * base ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
    cos, sin = (f(angle)[..., None, :].to(x.dtype) for f in (torch.cos, torch.sin))  # (T,1,D/2), or (B,T,1,D/2)
    a, b = x[..., :D // 2], x[..., D // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@pytest.mark.parametrize("shape,first", [((2, 5, 3, 8), 0), ((1, 1, 1, 2), 7), ((2, 33, 2, 64), 100)])
def test_rope(shape, first):
    x = normal(np.random.default_rng(11), *shape)
    check("rope", lambda x: tl.rope(x, 10000.0, first, None), lambda x: rope(x, 10000.0, first), [x])
    at = np.random.default_rng(12).integers(0, 300, shape[:2]).astype(np.int32)
    check("rope_at", lambda x: tl.rope_at(x, 10000.0, tl.tensor(at), None),
          lambda x: rope(x, 10000.0, torch.from_numpy(at)), [x])


def attention(q, k, v, causal, scale):
    B, T, H, D = q.shape
    S, group = k.shape[1], H // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T) if causal else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale or None).transpose(1, 2)


@pytest.mark.parametrize("B,T,S,H,G,D", [(1, 1, 1, 1, 1, 2), (2, 5, 5, 3, 3, 8), (2, 4, 9, 4, 2, 16),
                                         (1, 33, 33, 4, 1, 32), (1, 70, 130, 2, 1, 5)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [0, 0.3])
def test_attention(B, T, S, H, G, D, causal, scale):
    rng = np.random.default_rng(12)
    values = [normal(rng, B, T, H, D), normal(rng, B, S, G, D), normal(rng, B, S, G, D)]
    check("attention", lambda q, k, v: tl.attention(q, k, v, tl.attention_options(causal=causal, scale=scale), None),
          lambda q, k, v: attention(q, k, v, causal, scale), values)


# ---- Views ----

VIEWS = [
    ("select", (3, 4, 5), lambda x: tl.select(x, 1, -1), lambda x: x.select(1, -1)),
    ("slice", (3, 9), lambda x: tl.slice(x, 1, 1, -1, 3), lambda x: x[:, 1:-1:3]),
    ("slice beyond", (3, 9), lambda x: tl.slice(x, 1, -20, 20, 2), lambda x: x[:, -20:20:2]),
    ("slice of nothing", (3, 9), lambda x: tl.slice(x, 0, 2, 1, 1), lambda x: x[2:1]),
    ("slice backwards", (3, 9), lambda x: tl.slice(x, 1, 7, 0, -2), lambda x: x.flip(1)[:, 1:8:2]),
    ("slice to the end backwards", (3, 4), lambda x: tl.slice(x, 0, -1, END, -1), lambda x: x.flip(0)),
    ("view", (4, 6), lambda x: tl.view(tl.contiguous(x), 3, [2, -1, 3]), lambda x: x.contiguous().view(2, -1, 3)),
    ("reshape", (4, 6), lambda x: tl.reshape(x, 2, [3, 8]), lambda x: x.reshape(3, 8)),
    ("reshape to scalar", (1, 1), lambda x: tl.reshape(x, 0, []), lambda x: x.reshape(())),
    ("transpose", (2, 3, 4), lambda x: tl.transpose(x, 0, -1), lambda x: x.transpose(0, -1)),
    ("permute", (2, 3, 4), lambda x: tl.permute(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1)),
    ("expand", (3, 1), lambda x: tl.expand(x, 3, [2, -1, 4]), lambda x: x.expand(2, -1, 4)),
    ("broadcast_to", (3, 1), lambda x: tl.broadcast_to(x, 2, [3, 4]), lambda x: x.broadcast_to(3, 4)),
    ("squeeze", (3, 1, 2), lambda x: tl.squeeze(x, 1), lambda x: x.squeeze(1)),
    ("squeeze of another size", (3, 1, 2), lambda x: tl.squeeze(x, 0), lambda x: x.squeeze(0)),
    ("unsqueeze", (3, 2), lambda x: tl.unsqueeze(x, -1), lambda x: x.unsqueeze(-1)),
    ("flatten", (2, 3, 4, 2), lambda x: tl.flatten(x, 1, -2), lambda x: x.flatten(1, -2)),
    ("flatten a scalar", (), lambda x: tl.flatten(x, 0, -1), lambda x: x.flatten()),
    ("unflatten", (2, 12), lambda x: tl.unflatten(x, 1, 2, [3, -1]), lambda x: x.unflatten(1, (3, -1))),
    ("diagonal", (4, 5), lambda x: tl.diagonal(x, 1, 0, 1), lambda x: x.diagonal(1)),
    ("diagonal below", (2, 4, 5), lambda x: tl.diagonal(x, -2, 2, 1), lambda x: x.diagonal(-2, 2, 1)),
    ("diagonal of nothing", (4, 5), lambda x: tl.diagonal(x, 9, 0, 1), lambda x: x.diagonal(5)),
    ("as_strided", (20,), lambda x: tl.as_strided(x, 2, [3, 4], [2, 3], 1), lambda x: x.as_strided((3, 4), (2, 3), 1)),
    ("as_strided that overlaps", (20,), lambda x: tl.as_strided(x, 2, [5, 4], [1, 1], 3),
     lambda x: x.as_strided((5, 4), (1, 1), 3)),
    ("contiguous", (3, 4), lambda x: tl.contiguous(x), lambda x: x.contiguous()),
    ("chain", (4, 6), lambda x: tl.slice(tl.transpose(tl.slice(x, 0, 1, END, 2), 0, 1), 0, 0, END, 2),
     lambda x: x[1::2].t()[::2])]


@pytest.mark.parametrize("what,shape,ours,theirs", VIEWS, ids=[v[0].replace(" ", "_") for v in VIEWS])
def test_views(what, shape, ours, theirs):
    for seed in range(3):
        check(what, ours, theirs, [normal(np.random.default_rng(seed), *shape)], ["float64", "bfloat16"], seed=seed)


def test_views_have_torchs_strides():
    for what, shape, ours, theirs in VIEWS:
        x = np.zeros(shape)
        y, z = ours(tl.tensor(x)), theirs(to_torch(x))
        if "backwards" not in what and z.numel() > 0:
            used = [i for i, n in enumerate(z.shape) if n > 1]
            assert [y.stride[i] for i in used] == [z.stride()[i] for i in used], what


@pytest.mark.parametrize("source", FLOATS + ["int64", "int8", "bool"])
def test_cast(source):
    x = sample(np.random.default_rng(13), source, (5, 3))
    for target in DTYPES:
        if target == "uint8" and source != "bool":
            x = np.abs(x) if source != "bool" else x
        y = tl.cast(tl.tensor(x), NUMPY[target]).numpy()
        assert_near(y.astype(np.float64), from_torch(to_torch(x).to(TORCH[target])).astype(np.float64),
                    f"{source} to {target}", 1e-12)


def test_cast_carries_gradients():
    x = normal(np.random.default_rng(14), 3, 4)
    for target in ("float32", "bfloat16"):
        check("cast", lambda x: tl.cast(x, NUMPY[target]), lambda x: x.to(TORCH[target]), [x],
              ["float64"] if target == "float32" else ["float16"])


def test_nonzero():
    for name in ("float32", "int64", "bool"):
        for shape in ((6,), (4, 5), (2, 3, 4), (0, 3)):
            x = sample(np.random.default_rng(15), name, shape)
            assert_near(tl.nonzero(tl.tensor(x)).numpy(), from_torch(to_torch(x).nonzero()), f"{name} {shape}")


def test_creation():
    for name in DTYPES:
        for function, theirs in (("zeros", torch.zeros), ("ones", torch.ones)):
            assert_near(getattr(tl, function)(2, [2, 3], NUMPY[name], None).numpy(),
                        from_torch(theirs(2, 3, dtype=TORCH[name])), function)
        x = tl.full(1, [3], 2.0, NUMPY[name], None)
        assert_near(x.numpy(), from_torch(torch.full((3,), 2.0, dtype=TORCH[name])), "full")
        assert_near(tl.zeros_like(x).numpy(), np.zeros(3, NUMPY[name]), "zeros_like")
        assert_near(tl.ones_like(x).numpy(), np.ones(3, NUMPY[name]), "ones_like")
    assert_near(tl.arange(1.0, 0.5, 7, tl.F64, None).numpy(),
                from_torch(torch.arange(1.0, 4.5, 0.5, dtype=torch.float64)), "arange")
    assert_near(tl.arange(3, -2, 4, tl.I64, None).numpy(), np.array([3, 1, -1, -3]), "arange")


def test_dropout_zeroes_some_and_scales_the_rest():
    x = tl.requires_grad(tl.tensor(np.ones(10000)), True)
    y = tl.dropout(x, 0.25)
    tl.backward(tl.sum_all(y), None, 0)
    values = y.numpy()
    assert (set(np.round(np.unique(values), 12)) == {0, np.round(1 / 0.75, 12)}
            and abs((values == 0).mean() - 0.25) < 0.02)
    assert np.array_equal(values, x.grad.numpy())


# ---- Updates ----

@pytest.mark.parametrize("name", ["float64", "float32"])
@pytest.mark.parametrize("weight_decay,beta2", [(0.0, 0.999), (0.1, 0.95)])
def test_adamw_over_20_steps(name, weight_decay, beta2):
    rng = np.random.default_rng(16)
    start = normal(rng, 7, 5).astype(name)
    parameter, m, v = tl.tensor(start), tl.zeros(2, [7, 5], NUMPY[name], None), tl.zeros(2, [7, 5], NUMPY[name], None)
    theirs = to_torch(start).requires_grad_()
    optimizer = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, beta2), eps=1e-8, weight_decay=weight_decay)
    for step in range(1, 21):
        grad = normal(rng, 7, 5).astype(name)
        theirs.grad = to_torch(grad)
        optimizer.step()
        options = tl.adam_options(lr=0.01, beta1=0.9, beta2=beta2, eps=1e-8, weight_decay=weight_decay, decoupled=True,
                                  step=step)
        assert tl.adam_(parameter, tl.tensor(grad), m, v, None, options)
        assert_near(parameter.numpy(), from_torch(theirs), f"step {step}")


def test_sgd():
    start, grad = normal(np.random.default_rng(17), 9), normal(np.random.default_rng(18), 9)
    parameter, theirs = tl.tensor(start), to_torch(start).requires_grad_()
    theirs.grad = to_torch(grad)
    torch.optim.SGD([theirs], lr=0.1).step()
    assert tl.sgd_(parameter, tl.tensor(grad), None, tl.sgd_options(lr=0.1))
    assert_near(parameter.numpy(), from_torch(theirs), "sgd")


# ---- What is refused ----

def f64(*shape):
    return np.zeros(shape)


REFUSED = [
    ("add", [f64(2, 3), f64(4)], tl.add, torch.add),
    ("mul", [f64(2, 3), f64(2, 4)], tl.mul, torch.mul),
    ("add_ that grows", [f64(3), f64(2, 3)], tl.add_, torch.Tensor.add_),
    ("add_ of a float to integers", [np.zeros(3, np.int64), f64(3)], tl.add_, torch.Tensor.add_),
    ("mul_ of an integer to bools", [np.zeros(3, np.bool_), np.zeros(3, np.int64)], tl.mul_, torch.Tensor.mul_),
    ("sub of bools", [np.zeros(3, np.bool_), np.zeros(3, np.bool_)], tl.sub, torch.sub),
    ("neg of bools", [np.zeros(3, np.bool_)], tl.neg, torch.neg),
    ("copy_", [f64(3), f64(4)], tl.copy_, torch.Tensor.copy_),
    ("copy_ that grows", [f64(3), f64(2, 3)], tl.copy_, torch.Tensor.copy_),
    ("add_ to an expanded tensor", [f64(1, 3), f64(2, 3)], lambda a, b: tl.add_(tl.expand(a, 2, [2, 3]), b),
     lambda a, b: a.expand(2, 3).add_(b)),
    ("matmul", [f64(2, 3), f64(2, 3)], tl.matmul, torch.matmul),
    ("matmul of scalars", [f64(), f64(3)], tl.matmul, torch.matmul),
    ("matmul of a scalar on the right", [f64(1), f64()], tl.matmul, torch.matmul),
    ("matmul of batches", [f64(2, 3, 4), f64(3, 4, 2)], tl.matmul, torch.matmul),
    ("matmul of vectors", [f64(3), f64(4)], tl.matmul, torch.matmul),
    ("matmul of two dtypes", [f64(3, 3), np.zeros((3, 3), np.float32)], tl.matmul, torch.matmul),
    ("linear", [f64(2, 3), f64(4, 2)], lambda x, w: tl.linear(x, w, None), F.linear),
    ("linear with a wrong bias", [f64(2, 3), f64(4, 3), f64(5)], tl.linear, F.linear),
    ("layer_norm", [f64(2, 3), f64(4), f64(4)], lambda x, w, b: tl.layer_norm(x, w, b, 1e-5),
     lambda x, w, b: F.layer_norm(x, (3,), w, b)),
    ("layer_norm of integers", [np.zeros((2, 3), np.int64)], lambda x: tl.layer_norm(x, None, None, 1e-5),
     lambda x: F.layer_norm(x, (3,))),
    ("softmax of integers", [np.zeros((2, 3), np.int64)], lambda x: tl.softmax(x, -1), lambda x: F.softmax(x, -1)),
    ("mean of integers", [np.zeros((2, 3), np.int64)], tl.mean_all, torch.mean),
    ("sum over a missing axis", [f64(2, 3)], lambda x: tl.sum(x, [2], 1, False), lambda x: x.sum(2)),
    ("sum over an axis twice", [f64(2, 3)], lambda x: tl.sum(x, [0, -2], 2, False), lambda x: x.sum([0, -2])),
    ("embedding with float ids", [f64(4, 3), f64(2)], tl.embedding, lambda w, i: F.embedding(i, w)),
    ("cross_entropy", [f64(4, 3), np.zeros(5, np.int64)], lambda x, t: tl.cross_entropy(x, t, None), F.cross_entropy),
    ("view", [f64(4, 6)], lambda x: tl.view(x, 2, [5, 5]), lambda x: x.view(5, 5)),
    ("view of a transposed", [f64(4, 6)], lambda x: tl.view(tl.transpose(x, 0, 1), 1, [24]), lambda x: x.t().view(24)),
    ("view with two -1", [f64(4, 6)], lambda x: tl.view(x, 2, [-1, -1]), lambda x: x.view(-1, -1)),
    ("view with -2", [f64(4, 6)], lambda x: tl.view(x, 2, [-2, 12]), lambda x: x.view(-2, 12)),
    ("reshape of nothing", [f64(0, 6)], lambda x: tl.reshape(x, 2, [0, -1]), lambda x: x.reshape(0, -1)),
    ("expand", [f64(3, 2)], lambda x: tl.expand(x, 2, [3, 4]), lambda x: x.expand(3, 4)),
    ("expand to fewer axes", [f64(3, 2)], lambda x: tl.expand(x, 1, [2]), lambda x: x.expand(2)),
    ("expand a new axis by -1", [f64(3)], lambda x: tl.expand(x, 2, [-1, 3]), lambda x: x.expand(-1, 3)),
    ("select", [f64(3, 2)], lambda x: tl.select(x, 0, 3), lambda x: x.select(0, 3)),
    ("select of a scalar", [f64()], lambda x: tl.select(x, 0, 0), lambda x: x.select(0, 0)),
    ("transpose", [f64(3, 2)], lambda x: tl.transpose(x, 0, 2), lambda x: x.transpose(0, 2)),
    ("permute an axis twice", [f64(3, 2)], lambda x: tl.permute(x, [0, 0]), lambda x: x.permute(0, 0)),
    ("flatten backwards", [f64(3, 2)], lambda x: tl.flatten(x, 1, 0), lambda x: x.flatten(1, 0)),
    ("unflatten", [f64(3, 4)], lambda x: tl.unflatten(x, 1, 2, [3, 2]), lambda x: x.unflatten(1, (3, 2))),
    ("diagonal of one axis", [f64(3, 3)], lambda x: tl.diagonal(x, 0, 1, 1), lambda x: x.diagonal(0, 1, 1)),
    ("as_strided outside", [f64(3, 3)], lambda x: tl.as_strided(x, 1, [4], [3], 0),
     lambda x: x.as_strided((4,), (3,), 0)),
    ("where without bools", [np.zeros(3, np.int64), f64(3), f64(3)], tl.where, torch.where),
    ("maximum of nothing", [f64(0, 3)], lambda x: tl.max(x, [0], 1, False), lambda x: x.amax(0)),
    ("integers that require gradients", [np.zeros(3, np.int64)], lambda x: tl.requires_grad(x, True),
     lambda x: x.requires_grad_()),
    ("backward of many", [f64(3)], lambda x: tl.backward(tl.exp(tl.requires_grad(x, True)), None, 0),
     lambda x: x.requires_grad_().exp().backward()),
    ("backward without a graph", [f64()], lambda x: tl.backward(x, None, 0), lambda x: x.backward()),
]


@pytest.mark.parametrize("what,values,ours,theirs", REFUSED, ids=[r[0].replace(" ", "_") for r in REFUSED])
def test_what_torch_refuses(what, values, ours, theirs):
    _, their_error = outcome(lambda: theirs(*map(to_torch, values)))
    assert their_error, f"{what}: torch accepts this; the case is wrong"
    _, error = outcome(lambda: ours(*map(tl.tensor, values)))
    assert error, f"{what}: torch says {their_error}"
    assert tl.error() == 0


def test_no_tensor_is_left_behind():
    device = tl.device_find("cpu")
    gc.collect()  # what other tests have left in reference cycles
    before = tl.device_memory(device).live_tensors
    test_norms((3, 16), True)
    test_matmul((2, 3), (3, 4))
    gc.collect()
    assert tl.device_memory(device).live_tensors == before
