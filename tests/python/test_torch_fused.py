"""Fused ops, attention's options and the optimizers against PyTorch."""
import ctypes

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tally_c import Tensor, TallyError, tl
from test_torch_ops import FLOATS, check, normal
from torch_peer import NUMPY, assert_near, from_torch, to_torch


def with_second(function, *arguments):
    """The result and the one that comes by pointer."""
    second = (ctypes.c_void_p * 1)()
    with tl.scope():
        values = [a._as_parameter_ if isinstance(a, Tensor)
                  else ctypes.byref(a) if isinstance(a, ctypes.Structure) else a for a in arguments]
        first = function(*values, second)
        results = (Tensor(first), Tensor(second[0])) if first else None
    tl.check()
    return results


# ---- swiglu ----

@pytest.mark.parametrize("a,b", [((), ()), ((1,), (1,)), ((5, 7), (5, 7)), ((3, 1), (4,)), ((0, 3), (3,)),
                                 ((2, 3, 4), (3, 1)), ((700,), (700,))])
def test_swiglu(a, b):
    rng = np.random.default_rng(1)
    check(f"swiglu {a} {b}", tl.swiglu, lambda x, y: F.silu(x) * y, [3 * normal(rng, *a), normal(rng, *b)], ulps=2)


def test_swiglu_of_mixed_dtypes():
    for x in FLOATS:
        for y in FLOATS:
            a, b = np.ones(3).astype(NUMPY[x]), np.ones(3).astype(NUMPY[y])
            assert tl.swiglu(tl.tensor(a), tl.tensor(b)).dtype == from_torch(F.silu(to_torch(a)) * to_torch(b)).dtype


# ---- Sum and norm ----

def rms(x, weight, eps):
    return F.rms_norm(x, x.shape[-1:], weight, eps)


@pytest.mark.parametrize("shape", [(4,), (1, 1), (3, 5), (2, 3, 8), (0, 4), (5, 1300)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("use", ["normed", "sum", "both"])
def test_sum_and_norm(shape, weighted, kind, use):
    rng = np.random.default_rng(2)
    values = [normal(rng, *shape), normal(rng, *shape)]
    n_weights = 0 if not weighted else 1 if kind == "rms" else 2
    values += [normal(rng, shape[-1]) for _ in range(n_weights)]

    def pick(y, total, multiply, add):
        return {"normed": y, "sum": total, "both": add(y, multiply(total, total))}[use]

    def ours(x, residual, *w):
        w = list(w) + [None] * ((1 if kind == "rms" else 2) - len(w))
        function = tl.library.tl_add_rms_norm if kind == "rms" else tl.library.tl_add_layer_norm
        y, total = with_second(function, x, residual, *w, 1e-5)
        return pick(y, total, tl.mul, tl.add)

    def theirs(x, residual, *w):
        total = x + residual
        y = (rms(total, w[0] if w else None, 1e-5) if kind == "rms"
             else F.layer_norm(total, total.shape[-1:], *w, eps=1e-5))
        return pick(y, total, torch.mul, torch.add)

    # the gradient of the layer norm of one element is 0, and f32 has rounding errors of 1 instead
    names = ["float64"] if kind == "layer" and shape[-1] == 1 else FLOATS
    check(f"add_{kind}_norm {shape} {use}", ours, theirs, values, names=names, ulps=3)


# ---- The head ----

def head_options(ignore_index=-100, is_sum=False, **more):
    options = tl.linear_cross_entropy_defaults()
    assert options.ignore_index == -100 and not options.is_sum
    options.ignore_index, options.is_sum = ignore_index, is_sum
    for name, value in more.items():
        setattr(options, name, value)
    return options


@pytest.mark.parametrize("N,V,C", [(1, 1, 1), (5, 7, 3), (33, 101, 16), (64, 1000, 40), (6, 9, 0)])
@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("index", [np.int64, np.int32])
def test_linear_cross_entropy(N, V, C, is_sum, ignored, index):
    rng = np.random.default_rng(3)
    targets = rng.integers(0, V, N).astype(index)
    if ignored and N > 2:
        targets[::3] = -7
    values = [normal(rng, N, C), normal(rng, V, C)]
    options = head_options(-7, is_sum)
    wanted = torch.from_numpy(targets.astype(np.int64))

    def theirs(x, w):  # the loss in f32 (f64), as ours; torch's 16-bit logits are rounded
        logits = F.linear(x, w)
        return F.cross_entropy(logits if x.dtype == torch.float64 else logits.float(), wanted, ignore_index=-7,
                               reduction="sum" if is_sum else "mean")

    check(f"linear_cross_entropy {N} {V} {C}", lambda x, w: tl.linear_cross_entropy(x, w, tl.tensor(targets), options),
          theirs, values)


@pytest.mark.parametrize("N,V,C", [(5, 7, 3), (33, 101, 16), (3, 1, 2)])
@pytest.mark.parametrize("smoothing,z,cap", [(0.1, 0, 0), (1, 0, 0), (0, 0.01, 0), (0.3, 0.5, 0), (0.2, 0.1, 2.5)])
@pytest.mark.parametrize("is_sum", [False, True])
def test_label_smoothing_and_z_loss(N, V, C, smoothing, z, cap, is_sum):
    rng = np.random.default_rng(4)
    targets = rng.integers(0, V, N)
    targets[::3] = -7
    values = [normal(rng, N, C), normal(rng, V, C)]
    options = head_options(-7, is_sum, label_smoothing=smoothing, z_loss=z, soft_cap=cap)
    wanted = torch.from_numpy(targets)

    def theirs(x, w):
        logits = F.linear(x, w)
        logits = logits if x.dtype == torch.float64 else logits.float()
        logits = cap * torch.tanh(logits / cap) if cap else logits
        loss = F.cross_entropy(logits, wanted, ignore_index=-7, label_smoothing=smoothing, reduction="sum")
        loss = loss + z * torch.logsumexp(logits[wanted != -7], -1).square().sum()
        return loss if is_sum else loss / (wanted != -7).sum()

    check(f"linear_cross_entropy {N} {V} {C} smoothing {smoothing} z {z} cap {cap}",
          lambda x, w: tl.linear_cross_entropy(x, w, tl.tensor(targets), options), theirs, values)


def test_head_with_all_rows_ignored_and_with_none():
    x, w = tl.requires_grad(tl.tensor(np.ones((2, 3))), True), tl.requires_grad(tl.tensor(np.ones((4, 3))), True)
    loss = tl.linear_cross_entropy(x, w, tl.tensor(np.full(2, -100)), None)
    reference = to_torch(np.ones((2, 3))).requires_grad_()
    theirs = F.cross_entropy(F.linear(reference, torch.ones(4, 3, dtype=torch.float64)), torch.full((2,), -100))
    theirs.backward()
    assert np.isnan(loss.numpy()) and torch.isnan(theirs)
    tl.backward(loss, None, 0)
    assert_near(x.grad.numpy(), from_torch(reference.grad), "gradient of no rows")
    empty = tl.linear_cross_entropy(tl.tensor(np.ones((0, 3))), w, tl.tensor(np.ones(0, np.int64)), None)
    assert np.isnan(empty.numpy()) and torch.isnan(F.cross_entropy(torch.ones(0, 4), torch.ones(0, dtype=torch.int64)))


def test_head_refuses():
    x, w, t = tl.tensor(np.ones((2, 3))), tl.tensor(np.ones((4, 3))), tl.tensor(np.zeros(2, np.int64))
    for wrong in ([x, tl.tensor(np.ones((4, 2))), t], [x, w, tl.tensor(np.zeros(3, np.int64))],
                  [x, w, tl.tensor(np.zeros(2))], [x, tl.tensor(np.ones((4, 3), np.float32)), t],
                  [x, w, tl.tensor(np.array([0, 4]))], [x, w, tl.tensor(np.array([0, -1]))]):
        with pytest.raises(TallyError, match="linear_cross_entropy"):
            tl.linear_cross_entropy(*wrong, None)


# ---- Attention with options ----

def attention_options(mask=None, causal=False, window=0, scale=0.0, first_key=None):
    options = tl.attention_defaults()
    options.held = mask, first_key  # the struct has their addresses only
    options.causal, options.window, options.scale = causal, window, scale
    options.mask = mask._as_parameter_ if mask is not None else None
    options.first_key = first_key._as_parameter_ if first_key is not None else None
    return options


def visible(T, S, causal, window):
    """(T,S) bool: which key a query sees."""
    t, s = torch.arange(T)[:, None] + S - T, torch.arange(S)[None]
    seen = torch.ones(T, S, dtype=torch.bool)
    if causal:
        seen &= s <= t
    if window:
        seen &= (s - t).abs() < window
    return seen


def plain_attention(q, k, v, mask, scale):
    """The formula, with the log of the sum: q (B,T,H,D), additive mask (…,T,S)."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5) + mask.to(q.dtype)
    lse = scores.logsumexp(-1)
    p = torch.where(torch.isinf(lse)[..., None], torch.zeros_like(scores), torch.softmax(scores, -1))
    return (p @ v).transpose(1, 2), lse


@pytest.mark.parametrize("B,T,H,D", [(2, 64, 3, 64), (1, 200, 2, 32), (1, 130, 2, 128)])
def test_bf16_error_is_no_more_than_twice_torchs(B, T, H, D):
    """Against f64, of result and gradients: the root of the mean square."""
    rng = np.random.default_rng(11)
    values = [normal(rng, B, T, H, D).astype(NUMPY["bfloat16"]) for _ in range(4)]

    def by_torch(dtype):
        q, k, v = (to_torch(x).to(dtype).requires_grad_() for x in values[:3])
        out = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
        return [out.detach(), *torch.autograd.grad(out, (q, k, v), to_torch(values[3]).to(dtype))]

    inputs = [tl.requires_grad(tl.tensor(x), True) for x in values[:3]]
    out = tl.attention(*inputs, tl.attention_options(causal=True), None)
    ours = [x.numpy().astype(np.float64) for x in [out, *tl.gradients_of(out, inputs, tl.tensor(values[3]))]]
    for name, exact, theirs, own in zip(["out", "dq", "dk", "dv"], by_torch(torch.float64), by_torch(torch.bfloat16),
                                        ours):
        exact, theirs = exact.numpy(), theirs.double().numpy()
        error, allowed = np.sqrt(np.mean((own - exact) ** 2)), 2 * np.sqrt(np.mean((theirs - exact) ** 2))
        print(f"{name}: {error:.3g}, torch {allowed / 2:.3g}")
        assert 0 < error <= allowed, name


SHAPES = [(1, 1, 1, 1, 1, 1), (2, 5, 5, 3, 3, 8), (2, 4, 9, 4, 2, 16), (1, 9, 4, 2, 1, 3), (1, 130, 150, 2, 1, 33),
          (1, 60, 60, 1, 1, 200)]


@pytest.mark.parametrize("B,T,S,H,G,D", SHAPES)
@pytest.mark.parametrize("window", [1, 3, 50, 1000])
@pytest.mark.parametrize("causal", [True, False])
def test_windows(B, T, S, H, G, D, window, causal):
    rng = np.random.default_rng(4)
    values = [normal(rng, B, T, H, D), normal(rng, B, S, G, D), normal(rng, B, S, G, D)]
    mask = torch.zeros(T, S, dtype=torch.float64).masked_fill(~visible(T, S, causal, window), -torch.inf)
    options = attention_options(causal=causal, window=window)
    # With a single key, the gradients of q and k are 0.
    names = FLOATS if window > 1 and T < 9 else ["float64", "float32"] if window > 1 else ["float64"]
    if not visible(T, S, causal, window).any(1).all():  # queries without keys: torch's formula has NaN on the way back
        out, lse = with_second(tl.library.tl_attention, *(tl.tensor(v) for v in values), options)
        expected, expected_lse = plain_attention(*(torch.from_numpy(v) for v in values), mask, 0)
        assert_near(out.numpy(), expected.contiguous().numpy(), "window")
        assert_near(lse.numpy(), expected_lse.contiguous().numpy(), "lse")
        return
    check(f"window {window}", lambda q, k, v: with_second(tl.library.tl_attention, q, k, v, options)[0],
          lambda q, k, v: plain_attention(q, k, v, mask, 0)[0], values, names=names, ulps=2)
    check(f"window {window} by torch", lambda q, k, v: with_second(tl.library.tl_attention, q, k, v, options)[0],
          lambda q, k, v: F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)),
                                                         attn_mask=visible(T, S, causal, window),
                                                         enable_gqa=H != G).transpose(1, 2), values, names=names[:2])


@pytest.mark.parametrize("B,T,S,H,G,D", SHAPES)
@pytest.mark.parametrize("kind", ["bool", "added"])
@pytest.mark.parametrize("full", ["11", "B1", "1H", "BH"])
@pytest.mark.parametrize("causal", [False, True])
def test_masks(B, T, S, H, G, D, kind, full, causal):
    rng = np.random.default_rng(5)
    values = [normal(rng, B, T, H, D), normal(rng, B, S, G, D), normal(rng, B, S, G, D)]
    shape = (B if full[0] == "B" else 1, H if full[1] == "H" else 1, T, S)
    mask = rng.random(shape) < 0.7 if kind == "bool" else normal(rng, *shape)
    added = (torch.zeros(shape, dtype=torch.float64).masked_fill(~torch.from_numpy(mask), -torch.inf) if kind == "bool"
             else torch.from_numpy(mask))
    if causal:
        added = added.masked_fill(~visible(T, S, True, 0), -torch.inf)
    # in memory with the axes in another order
    ours_mask = tl.permute(tl.tensor(np.ascontiguousarray(mask.transpose(3, 0, 2, 1))), [1, 3, 2, 0])
    options = attention_options(ours_mask, causal, scale=0.6)
    out, lse = with_second(tl.library.tl_attention, *(tl.tensor(v) for v in values), options)
    expected, expected_lse = plain_attention(*(torch.from_numpy(v) for v in values), added, 0.6)
    assert_near(out.numpy(), expected.contiguous().numpy(), "masked")
    assert_near(lse.numpy(), expected_lse.contiguous().numpy(), "lse")
    if not torch.isinf(expected_lse).any():
        def theirs(q, k, v):
            return plain_attention(q, k, v, added, 0.6)[0]
        check("masked", lambda q, k, v: with_second(tl.library.tl_attention, q, k, v, options)[0], theirs, values,
              names=["float64", "float32"])
    if not causal:
        theirs = F.scaled_dot_product_attention(*(torch.from_numpy(v).transpose(1, 2) for v in values),
                                                attn_mask=torch.from_numpy(mask), scale=0.6,
                                                enable_gqa=H != G).transpose(1, 2)
        if not torch.isinf(expected_lse).any():
            assert_near(out.numpy(), theirs.contiguous().numpy(), "by torch")


def test_a_query_that_a_mask_blinds_gets_no_gradient():
    rng = np.random.default_rng(6)
    q, k, v = (tl.requires_grad(tl.tensor(normal(rng, 1, 3, 1, 4)), True) for _ in range(3))
    mask = np.ones((3, 3), np.bool_)
    mask[1] = False
    out, lse = with_second(tl.library.tl_attention, q, k, v, attention_options(tl.tensor(mask)))
    assert (out.numpy()[:, 1] == 0).all() and np.isneginf(lse.numpy()[0, 0, 1])
    tl.backward(out, tl.ones_like(out), 0)
    assert (q.grad.numpy()[:, 1] == 0).all()
    for x in (q, k, v):
        assert np.isfinite(x.grad.numpy()).all()


@pytest.mark.parametrize("B,T,S,H,G,D", [(2, 5, 5, 4, 2, 6), (1, 60, 130, 2, 1, 33), (1, 50, 50, 1, 1, 200)])
@pytest.mark.parametrize("shape", ["BHTS", "1HTS", "B1TS", "TS", "H1S", "1"])
@pytest.mark.parametrize("causal,window", [(False, 0), (True, 0), (True, 3), (False, 4)])
def test_an_added_mask_has_a_gradient(B, T, S, H, G, D, shape, causal, window):
    """Of ALiBi and of learned biases: both results take part. A number for all keys has the gradient of lse alone."""
    rng = np.random.default_rng(8)
    sizes = [{"B": B, "H": H, "T": T, "S": S, "1": 1}[c] for c in shape]
    values = [normal(rng, B, T, H, D), normal(rng, B, S, G, D), normal(rng, B, S, G, D), normal(rng, *sizes)]
    hidden = torch.zeros(T, S, dtype=torch.float64).masked_fill(~visible(T, S, causal, window), -torch.inf)

    def ours(q, k, v, mask):
        out, lse = with_second(tl.library.tl_attention, q, k, v, attention_options(mask, causal, window, 0.4))
        return tl.add(tl.sum_all(tl.mul(out, out)), tl.sum_all(tl.mul(lse, lse)))

    def theirs(q, k, v, mask):
        out, lse = plain_attention(q, k, v, mask + hidden, 0.4)
        return (out * out).sum() + (lse * lse).sum()
    check(f"{shape} {causal} {window}", ours, theirs, values, names=["float64", "float32"])


def documents(rng, B, T, mean):
    """(B,T): where the document of each token begins."""
    begins = rng.random((B, T)) < 1 / mean
    return np.maximum.accumulate(np.where(begins, np.arange(T), 0), 1)


@pytest.mark.parametrize("B,T,S,H,G,D", [(2, 9, 9, 4, 2, 8), (3, 200, 200, 2, 1, 16), (1, 60, 60, 1, 1, 200)])
@pytest.mark.parametrize("mean", [1, 4, 70])
@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_attention_inside_documents(B, T, S, H, G, D, mean, kind):
    """Against PyTorch's own attention with a block-diagonal mask, result and gradients."""
    rng = np.random.default_rng(12)
    values = [normal(rng, B, T, H, D), normal(rng, B, S, G, D), normal(rng, B, S, G, D)]
    first = documents(rng, B, T, mean)
    options = attention_options(causal=True, first_key=tl.tensor(first.astype(kind)))
    seen = visible(T, S, True, 0) & (torch.arange(S) >= torch.from_numpy(first)[:, :, None])
    check("documents", lambda q, k, v: with_second(tl.library.tl_attention, q, k, v, options)[0],
          lambda q, k, v: F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)),
                                                         attn_mask=seen[:, None],
                                                         enable_gqa=H != G).transpose(1, 2), values,
          names=["float64", "float32"] if mean > 1 else ["float64"])


@pytest.mark.parametrize("use", ["lse", "both"])
def test_lse_has_a_gradient(use):
    rng = np.random.default_rng(7)
    values = [normal(rng, 2, 5, 4, 6), normal(rng, 2, 7, 2, 6), normal(rng, 2, 7, 2, 6)]
    mask = torch.zeros(5, 7, dtype=torch.float64).masked_fill(~visible(5, 7, True, 4), -torch.inf)
    options = attention_options(causal=True, window=4)

    def ours(q, k, v):
        out, lse = with_second(tl.library.tl_attention, q, k, v, options)
        return lse if use == "lse" else tl.add(tl.sum_all(tl.mul(out, out)), tl.sum_all(tl.mul(lse, lse)))

    def theirs(q, k, v):
        out, lse = plain_attention(q, k, v, mask, 0)
        return lse + 0 * v.sum() if use == "lse" else (out * out).sum() + (lse * lse).sum()

    check(f"lse {use}", ours, theirs, values, names=["float64", "float32"])


def test_attention_refuses():
    q = tl.tensor(np.ones((1, 3, 1, 2)))
    for options, message in ((attention_options(window=-2), "window"),
                             (attention_options(causal=True, window=-1), "window"),
                             (attention_options(tl.tensor(np.zeros((2, 3)))), "attention|expand"),
                             (attention_options(tl.tensor(np.zeros((3, 3), np.int64))), "attention"),
                             (attention_options(first_key=tl.tensor(np.zeros((1, 3)))), "attention"),
                             (attention_options(first_key=tl.tensor(np.array([[0, 2, 1]]))), "falls from 2 to 1")):
        with pytest.raises(TallyError, match=message):
            with_second(tl.library.tl_attention, q, q, q, options)


# ---- Optimizers ----

STEPS = 50
OPTIMIZERS = [
    ("sgd", dict(lr=0.05)), ("sgd", dict(lr=0.05, weight_decay=0.1)), ("sgd", dict(lr=0.05, momentum=0.9)),
    ("sgd", dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.02)),
    ("sgd", dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.02)), ("adagrad", dict(lr=0.1)),
    ("adagrad", dict(lr=0.1, lr_decay=0.05, weight_decay=0.1, initial_accumulator_value=0.3)),
    ("rmsprop", dict(lr=0.01)), ("rmsprop", dict(lr=0.01, alpha=0.9, momentum=0.9, weight_decay=0.1)),
    ("rmsprop", dict(lr=0.01, centered=True)),
    ("rmsprop", dict(lr=0.01, alpha=0.8, centered=True, momentum=0.5, eps=1e-5)),
    ("adam", dict(lr=0.01)), ("adam", dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1, eps=1e-6)),
    ("adam", dict(lr=0.01, amsgrad=True, betas=(0.9, 0.7))), ("adamw", dict(lr=0.01, weight_decay=0.2)),
    ("adamw", dict(lr=0.01, amsgrad=True)), ]
PEERS = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "rmsprop": torch.optim.RMSprop,
         "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class Ours:
    """One of our optimizers with its states, by torch's names and defaults."""

    def __init__(self, kind, parameter, dtype, options, master=None, stochastic=False):
        def state(value=0.0):
            return tl.full(2, list(parameter.shape), value, dtype, None)
        self.kind, self.parameter, self.master = kind, parameter, master
        options = dict(options)
        initial, amsgrad = options.pop("initial_accumulator_value", 0.0), options.pop("amsgrad", False)
        self.o = {"sgd": tl.sgd_defaults, "adagrad": tl.adagrad_defaults,
                  "rmsprop": tl.rmsprop_defaults}.get(kind, tl.adam_defaults)()
        if kind == "adamw":
            self.o.decoupled, self.o.weight_decay = True, 0.01
        self.o.beta1, self.o.beta2 = options.pop("betas", (0.9, 0.999))
        for name, value in options.items():
            setattr(self.o, name, value)
        self.o.update.master = master._as_parameter_ if master else None
        self.o.update.stochastic = stochastic
        momentum = state() if kind in ("sgd", "rmsprop") and self.o.momentum else None
        if kind == "sgd":
            self.states = [momentum]
        elif kind == "adagrad":
            self.states = [state(initial)]
        elif kind == "rmsprop":
            self.states = [state(), state() if self.o.centered else None, momentum]
        else:
            self.states = [state(), state(), state() if amsgrad else None]

    def step(self, number, grad):
        self.o.step = number
        function = {"sgd": tl.sgd_, "adagrad": tl.adagrad_, "rmsprop": tl.rmsprop_}.get(self.kind, tl.adam_)
        assert function(self.parameter, grad, *self.states, self.o)


@pytest.mark.parametrize("kind,options", OPTIMIZERS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(OPTIMIZERS)])
@pytest.mark.parametrize("name", ["float64", "float32"])
def test_optimizer_over_50_steps(kind, options, name):
    rng = np.random.default_rng(8)
    start = normal(rng, 7, 5).astype(name)
    theirs = to_torch(start).requires_grad_()
    peer = PEERS[kind]([theirs], foreach=False, **options)
    ours = Ours(kind, tl.tensor(start), NUMPY[name], options)
    for step in range(1, STEPS + 1):
        grad = normal(rng, 7, 5).astype(name)
        theirs.grad = to_torch(grad)
        peer.step()
        ours.step(step, tl.tensor(grad))
        assert_near(ours.parameter.numpy(), from_torch(theirs), f"{kind} {options} step {step}",
                    relative=1e-12 if name == "float64" else 1e-6)


@pytest.mark.parametrize("kind,options", OPTIMIZERS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(OPTIMIZERS)])
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_optimizer_with_a_master_copy(kind, options, name):
    """The master takes f32 steps on rounded gradients; the parameter is its rounded value, every step."""
    rng = np.random.default_rng(9)
    start = normal(rng, 7, 5).astype(np.float32)
    theirs = to_torch(start).requires_grad_()
    peer = PEERS[kind]([theirs], foreach=False, **options)
    ours = Ours(kind, tl.tensor(start.astype(NUMPY[name])), NUMPY["float32"], options, master=tl.tensor(start))
    for step in range(1, STEPS + 1):
        grad = normal(rng, 7, 5).astype(NUMPY[name])
        theirs.grad = to_torch(grad.astype(np.float32))
        peer.step()
        ours.step(step, tl.tensor(grad))
        assert_near(ours.master.numpy(), from_torch(theirs), f"{kind} step {step}", relative=1e-6)
        assert np.array_equal(ours.parameter.numpy(), ours.master.numpy().astype(NUMPY[name]))


@pytest.mark.parametrize("kind,options", OPTIMIZERS[::3], ids=[f"{k}" for k, _ in OPTIMIZERS[::3]])
def test_stochastic_rounding_takes_a_neighbour(kind, options):
    rng = np.random.default_rng(10)
    start, grad = normal(rng, 40, 50).astype(np.float32), normal(rng, 40, 50).astype(np.float32)
    start = start.astype(NUMPY["bfloat16"]).astype(np.float32)
    exact = Ours(kind, tl.tensor(start), NUMPY["float32"], options)
    exact.step(1, tl.tensor(grad))
    tl.seed(3)
    ours = Ours(kind, tl.tensor(start.astype(NUMPY["bfloat16"])), NUMPY["float32"], options, stochastic=True)
    ours.step(1, tl.tensor(grad))
    got, want = ours.parameter.numpy().astype(np.float32), exact.parameter.numpy()
    down = (want.view(np.uint32) & 0xFFFF0000).view(np.float32)  # towards zero
    up = (down.view(np.uint32) + 0x10000).view(np.float32)
    assert ((got == down) | ((got == up) & (want != down))).all()
    share = (np.abs(want) - np.abs(down)) / (np.abs(up) - np.abs(down))  # probability of `up`
    assert abs((got == up).mean() - share.mean()) < 5 * 0.5 / np.sqrt(got.size)
    assert (got == down).any() and (got == up).any()


def test_optimizers_refuse():
    p, g, s = (tl.tensor(np.ones(3, np.float32)) for _ in range(3))
    with pytest.raises(TallyError, match="Nesterov momentum requires a momentum and zero dampening"):
        tl.sgd_(p, g, None, tl.sgd_options(lr=1, nesterov=True, step=1))
    with pytest.raises(ValueError, match="Nesterov momentum requires a momentum and zero dampening"):
        torch.optim.SGD([torch.ones(3)], lr=1, nesterov=True)
    with pytest.raises(TallyError, match="a buffer is given exactly when there is momentum"):
        tl.sgd_(p, g, s, tl.sgd_options(lr=1, step=1))
    with pytest.raises(TallyError, match="state must be f32"):
        tl.adagrad_(p, g, tl.tensor(np.ones(3)), tl.adagrad_defaults())
    with pytest.raises(TallyError, match="the parameter's shape"):
        tl.adam_(p, tl.tensor(np.ones(4, np.float32)), s, g, None, tl.adam_defaults())
    with pytest.raises(TallyError, match="two of the written-to tensors share memory"):
        tl.adam_(p, g, s, s, None, tl.adam_defaults())


# ---- Products of a stack of rows ----

@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 1, 3, 4), (0, 3, 4)])
def test_second_derivatives_of_folded_products(shape):
    """Gradients of the squared gradients: every product on the way is a folded one."""
    rng = np.random.default_rng(11)
    values = [normal(rng, *shape), normal(rng, 5, 4), normal(rng, 5, 4)]
    ours, theirs = [tl.requires_grad(tl.tensor(v), True)
                    for v in values], [to_torch(v).requires_grad_() for v in values]

    def loss(x, a, b, linear, multiply, total):
        y = linear(x, a)
        return total(multiply(multiply(y, y), linear(x, b)))
    first = tl.gradients_of(loss(*ours, lambda x, w: tl.linear(x, w, None), tl.mul, tl.sum_all), ours,
                            flags=tl.CREATE_GRAPH)
    their_first = torch.autograd.grad(loss(*theirs, F.linear, torch.mul, torch.sum), theirs, create_graph=True)
    sum_of_squares = None
    for g in first:
        square = tl.sum_all(tl.mul(g, g))
        sum_of_squares = square if sum_of_squares is None else tl.add(sum_of_squares, square)
    second = tl.gradients_of(sum_of_squares, ours)
    their_second = torch.autograd.grad(sum((g * g).sum() for g in their_first), theirs)
    for a, b in zip(list(first) + second, list(their_first) + list(their_second), strict=True):
        assert_near(a.numpy(), from_torch(b), f"{shape}")


def add_norm(function, *weights):
    """The norm and the sum in one number each, so that both have a gradient."""
    def run(x, residual, *w):
        y, total = with_second(function, x, residual, *(w or [None] * weights[0]), 1e-5)
        return tl.add(y, tl.mul(total, total))
    return run


def their_add_norm(norm):
    def run(x, residual, *w):
        total = x + residual
        return norm(total, *w) + total * total
    return run


def their_rms(x, w=None):
    return F.rms_norm(x, x.shape[-1:], w, eps=1e-5)


def their_layer(x, *w):
    return F.layer_norm(x, x.shape[-1:], *w)


IDS = np.array([[3, 0, 3], [1, 3, 0]])
TWICE = {
    "layer_norm": ([(2, 3, 4)], lambda x: tl.layer_norm(x, None, None, 1e-5), their_layer),
    "layer_norm, weights": ([(2, 3, 4), (4,), (4,)], lambda *x: tl.layer_norm(*x, 1e-5), their_layer),
    "rms_norm": ([(2, 3, 4)], lambda x: tl.rms_norm(x, None, 1e-5), their_rms),
    "rms_norm, weight": ([(2, 3, 4), (4,)], lambda *x: tl.rms_norm(*x, 1e-5), their_rms),
    "add_rms_norm": ([(3, 4)] * 2, add_norm(tl.library.tl_add_rms_norm, 1), their_add_norm(their_rms)),
    "add_rms_norm, weight": ([(3, 4)] * 2 + [(4,)], add_norm(tl.library.tl_add_rms_norm), their_add_norm(their_rms)),
    "add_layer_norm": ([(3, 4)] * 2, add_norm(tl.library.tl_add_layer_norm, 2), their_add_norm(their_layer)),
    "add_layer_norm, weights": ([(3, 4)] * 2 + [(4,)] * 2, add_norm(tl.library.tl_add_layer_norm),
                                their_add_norm(their_layer)),
    "swiglu": ([(2, 3, 4), (3, 1)], tl.swiglu, lambda a, b: F.silu(a) * b),
    "embedding": ([(4, 2)], lambda w: tl.embedding(w, tl.tensor(IDS)), lambda w: F.embedding(torch.tensor(IDS), w)),
    "cumprod": ([(3, 5)], lambda x: tl.cumprod(x, 1), lambda x: torch.cumprod(x, 1)),
    "cumprod along the first": ([(5, 3)], lambda x: tl.cumprod(x, 0), lambda x: torch.cumprod(x, 0)),
    "prod": ([(3, 5)], lambda x: tl.prod(x, [1], 1, False), lambda x: torch.prod(x, 1)),
    "0 to a power": ([(3,)], lambda x: tl.rpow_scalar(tl.mul(x, x), tl.scalar_float(0)), lambda x: x * 0),
    "gelu": ([(3, 4)], tl.gelu, lambda x: F.gelu(x, approximate="tanh")),
    "silu": ([(3, 4)], tl.silu, F.silu),
}


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name, zeros):
    """Of sum(seed y^2), so that what flows in depends on the inputs too; zeros in the inputs forbid dividing by
    them."""
    shapes, ours, theirs = TWICE[name]
    rng = np.random.default_rng(zeros)
    values = [rng.standard_normal(shape) for shape in shapes]
    for _ in range(zeros):
        for v in values:
            v.flat[rng.integers(v.size)] = 0
    x, z = [tl.requires_grad(tl.tensor(v), True) for v in values], [to_torch(v).requires_grad_() for v in values]
    y, t = ours(*x), theirs(*z)
    seed = rng.standard_normal(y.shape)
    first = tl.gradients_of(tl.sum_all(tl.mul(tl.tensor(seed), tl.mul(y, y))), x, None, tl.CREATE_GRAPH)
    their_first = torch.autograd.grad((to_torch(seed) * t * t).sum(), z, create_graph=True)
    directions = [rng.standard_normal(v.shape) for v in values]
    total, their_total = None, 0
    for g, h, d in zip(first, their_first, directions):
        assert_near(g.numpy(), from_torch(h), name + " first")
        part = tl.sum_all(tl.mul(g, tl.tensor(d)))
        total = tl.add(total, part) if total else part
        their_total = their_total + (h * to_torch(d)).sum()
    for a, b in zip(tl.gradients_of(total, x), torch.autograd.grad(their_total, z)):
        assert_near(a.numpy(), from_torch(b), name + " second")
