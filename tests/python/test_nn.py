"""tally.nn beside torch.nn: the same weights give the same outputs and gradients, names, texts and errors."""
import copy
import json
import math
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tally
import torch

HERE = Path(__file__).resolve().parent


# ---- Both sides ----

def array(*shape, seed=0, scale=1.0):
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) * scale).astype(np.float32)


def both(a, grad=False):
    """The same numbers as a tally and as a torch tensor."""
    return tally.tensor(a, requires_grad=grad), torch.tensor(a, requires_grad=grad)


def values(x):
    return np.asarray(x.detach().float().numpy() if x.dtype in (torch.bfloat16, tally.bfloat16) else x.detach().numpy())


def assert_close(ours, theirs, rtol=1e-5, atol=1e-6):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert repr(ours.dtype).split(".")[1] == repr(theirs.dtype).split(".")[1]
    np.testing.assert_allclose(values(ours), values(theirs), rtol=rtol, atol=atol)


def compare(function, *arrays, grads=True, rtol=1e-5, atol=1e-6):
    """function(lib, *tensors) on both sides: results and, of floats, gradients."""
    ours, theirs = zip(*[both(a, grads and a.dtype == np.float32) for a in arrays])
    y, z = function(tally, *ours), function(torch, *theirs)
    assert_close(y, z, rtol, atol)
    if grads:
        seed = array(*z.shape, seed=99)
        y.backward(tally.tensor(seed))
        z.backward(torch.tensor(seed))
        for a, b in zip(ours, theirs):
            assert (a.grad is None) == (b.grad is None)
            if b.grad is not None:
                assert_close(a.grad, b.grad, rtol * 10, atol * 10)


def twins(make):
    """A module made on both sides, ours with torch's weights."""
    torch.manual_seed(0)
    ours, theirs = make(tally.nn), make(torch.nn)
    ours.load_state_dict({k: tally.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
    return ours, theirs


def same_error(function):
    """Both sides raise the same class; gives our message."""
    raised = []
    for lib in (tally, torch):
        with pytest.raises(Exception) as caught:
            function(lib)
        raised.append(caught)
    assert raised[0].type is raised[1].type, (raised[0].value, raised[1].value)
    return str(raised[0].value), str(raised[1].value)


# ---- Layers ----

LAYERS = {
    "linear": (lambda nn: nn.Linear(6, 4), (3, 5, 6)),
    "linear without bias": (lambda nn: nn.Linear(6, 4, bias=False), (6,)),
    "layer_norm": (lambda nn: nn.LayerNorm(6), (3, 6)),
    "layer_norm of two axes": (lambda nn: nn.LayerNorm((5, 6), eps=1e-3), (3, 5, 6)),
    "layer_norm without bias": (lambda nn: nn.LayerNorm(6, bias=False), (3, 6)),
    "layer_norm without weights": (lambda nn: nn.LayerNorm(6, elementwise_affine=False), (3, 6)),
    "rms_norm": (lambda nn: nn.RMSNorm(6), (3, 6)),
    "rms_norm of two axes": (lambda nn: nn.RMSNorm((5, 6), eps=1e-4), (3, 5, 6)),
    "gelu": (lambda nn: nn.GELU(), (3, 6)),
    "gelu tanh": (lambda nn: nn.GELU("tanh"), (3, 6)),
    "silu": (lambda nn: nn.SiLU(), (3, 6)),
    "relu": (lambda nn: nn.ReLU(), (3, 6)),
    "leaky_relu": (lambda nn: nn.LeakyReLU(0.2), (3, 6)),
    "elu": (lambda nn: nn.ELU(0.7), (3, 6)),
    "mish": (lambda nn: nn.Mish(), (3, 6)),
    "softplus": (lambda nn: nn.Softplus(2.0), (3, 6)),
    "tanh": (lambda nn: nn.Tanh(), (3, 6)),
    "sigmoid": (lambda nn: nn.Sigmoid(), (3, 6)),
    "logsigmoid": (lambda nn: nn.LogSigmoid(), (3, 6)),
    "softmax": (lambda nn: nn.Softmax(dim=1), (3, 6, 2)),
    "log_softmax": (lambda nn: nn.LogSoftmax(dim=-1), (3, 6)),
    "glu": (lambda nn: nn.GLU(), (3, 6)),
    "flatten": (lambda nn: nn.Flatten(), (3, 6, 2)),
    "unflatten": (lambda nn: nn.Unflatten(1, (2, 3)), (3, 6)),
    "identity": (lambda nn: nn.Identity(), (3, 6)),
    "dropout of nothing": (lambda nn: nn.Dropout(0.0), (3, 6)),
    "dropout of all": (lambda nn: nn.Dropout(1.0), (3, 6)),
    "sequential": (lambda nn: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Sequential(nn.Linear(8, 3))), (4, 6)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    make, shape = LAYERS[name]
    ours, theirs = twins(make)
    for (n, p), (m, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert n == m
        fresh = array(*q.shape, seed=len(n))
        p.data.copy_(tally.tensor(fresh))
        q.data.copy_(torch.tensor(fresh))
    a = array(*shape)
    x, y = both(a, grad=True)
    u, v = ours(x), theirs(y)
    assert_close(u, v)
    seed = array(*v.shape, seed=7)
    u.backward(tally.tensor(seed))
    v.backward(torch.tensor(seed))
    assert_close(x.grad, y.grad, 1e-4, 1e-5)
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert_close(p.grad, q.grad, 1e-4, 1e-5)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())


def test_embedding_and_its_padding():
    for padding in (None, 2, -1):
        ours, theirs = twins(lambda nn: nn.Embedding(5, 3, padding_idx=padding))
        ids = np.array([[0, 2, 4], [2, 1, 2]])
        u, v = ours(tally.tensor(ids)), theirs(torch.tensor(ids))
        assert_close(u, v)
        u.sum().backward()
        v.sum().backward()
        assert_close(ours.weight.grad, theirs.weight.grad)
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(need_weights, batch_first):
    ours, theirs = twins(lambda nn: nn.MultiheadAttention(8, 2, batch_first=batch_first))
    x, y = both(array(3, 5, 8), grad=True)
    n_time = 5 if batch_first else 3
    mask = np.triu(np.ones((n_time, n_time), bool), 1)
    u, w = ours(x, x, x, attn_mask=tally.tensor(mask), need_weights=need_weights)
    v, t = theirs(y, y, y, attn_mask=torch.tensor(mask), need_weights=need_weights)
    assert_close(u, v)
    assert_close(w, t) if need_weights else None
    u.sum().backward()
    v.sum().backward()
    assert_close(x.grad, y.grad, 1e-4, 1e-5)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)


# ---- Functions ----

IDS = np.array([1, 0, 3, 2, 1])
FUNCTIONS = {
    "linear": (lambda t, x, w, b: t.nn.functional.linear(x, w, b), [(3, 6), (4, 6), (4,)]),
    "softplus": (lambda t, x: t.nn.functional.softplus(x, 3, 1.5), [(3, 6)]),
    "elu": (lambda t, x: t.nn.functional.elu(x, 0.3), [(3, 6)]),
    "relu6": (lambda t, x: t.nn.functional.relu6(x * 5), [(3, 6)]),
    "hardtanh": (lambda t, x: t.nn.functional.hardtanh(x, -0.5, 0.25), [(3, 6)]),
    "softsign": (lambda t, x: t.nn.functional.softsign(x), [(3, 6)]),
    "softmin": (lambda t, x: t.nn.functional.softmin(x, dim=0), [(3, 6)]),
    "softmax dtype": (lambda t, x: t.nn.functional.softmax(x, dim=0, dtype=t.float64), [(3, 6)]),
    "normalize": (lambda t, x: t.nn.functional.normalize(x, dim=-1), [(3, 6)]),
    "normalize 1": (lambda t, x: t.nn.functional.normalize(x, p=1.0, dim=0), [(3, 6)]),
    "cosine_similarity": (lambda t, x, y: t.nn.functional.cosine_similarity(x, y, dim=-1), [(3, 6), (3, 6)]),
    "pad": (lambda t, x: t.nn.functional.pad(x, (1, 2, 0, 3), value=0.5), [(2, 3, 4)]),
    "pad cut": (lambda t, x: t.nn.functional.pad(x, (-1, 2)), [(2, 3, 4)]),
    "pad reflect": (lambda t, x: t.nn.functional.pad(x, (1, 2), mode="reflect"), [(2, 3, 4)]),
    "mse": (lambda t, x, y: t.nn.functional.mse_loss(x, y), [(3, 6), (3, 6)]),
    "mse none": (lambda t, x, y: t.nn.functional.mse_loss(x, y, reduction="none"), [(3, 6), (3, 6)]),
    "l1 sum": (lambda t, x, y: t.nn.functional.l1_loss(x, y, reduction="sum"), [(3, 6), (3, 6)]),
    "smooth_l1": (lambda t, x, y: t.nn.functional.smooth_l1_loss(x, y, beta=0.5), [(3, 6), (3, 6)]),
    "huber": (lambda t, x, y: t.nn.functional.huber_loss(x, y, delta=0.5), [(3, 6), (3, 6)]),
    "kl_div": (lambda t, x, y: t.nn.functional.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
               [(3, 6), (3, 6)]),
    "bce logits": (lambda t, x, y: t.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid()), [(3, 6), (3, 6)]),
    "bce": (lambda t, x, y: t.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="sum"),
            [(3, 6), (3, 6)]),
    "cross_entropy probabilities": (
        lambda t, x, y: t.nn.functional.cross_entropy(x, y.softmax(-1), label_smoothing=0.2), [(3, 6), (3, 6)]),
    "layer_norm bias alone": (lambda t, x, b: t.nn.functional.layer_norm(x, (6,), None, b), [(3, 6), (6,)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    function, shapes = FUNCTIONS[name]
    compare(function, *[array(*s, seed=i) for i, s in enumerate(shapes)])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignore", [-100, 1])
@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_cross_entropy(reduction, smoothing, ignore, shape):
    ids = np.random.default_rng(1).integers(0, 4, (5, *shape[2:]))
    compare(lambda t, x, w: t.nn.functional.cross_entropy(x, t.tensor(ids), t.tensor(abs(array(4))),
                                                          ignore_index=ignore, reduction=reduction,
                                                          label_smoothing=smoothing) + 0 * w.sum(),
            array(*shape), array(4))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss(reduction):
    compare(lambda t, x: t.nn.functional.nll_loss(x.log_softmax(-1), t.tensor(IDS), ignore_index=0,
                                                  reduction=reduction), array(5, 4))


def test_one_hot():
    for n in (-1, 6):
        assert_close(tally.nn.functional.one_hot(tally.tensor(IDS), n),
                     torch.nn.functional.one_hot(torch.tensor(IDS), n))
    same_error(lambda t: t.nn.functional.one_hot(t.tensor(IDS), 2))
    same_error(lambda t: t.nn.functional.one_hot(t.tensor([-1, 0])))
    same_error(lambda t: t.nn.functional.one_hot(t.tensor([0.5])))


# ---- Attention ----

@pytest.mark.parametrize("times", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("kind", ["plain", "causal", "scale", "bool", "bool and causal", "float", "float and causal",
                                  "float per head", "gqa"])
def test_attention(times, kind):
    t_, s_ = times
    heads = 2 if kind == "gqa" else 4

    def run(t, q, k, v):
        options = {"causal": dict(is_causal=True), "scale": dict(scale=0.3),
                   "gqa": dict(enable_gqa=True, is_causal=True)}.get(kind, {})
        if kind.startswith("bool"):
            options = dict(attn_mask=t.tensor(np.random.default_rng(0).random((t_, s_)) < 0.6),
                           is_causal="causal" in kind)
        if kind in ("float", "float and causal"):
            options = dict(attn_mask=t.tensor(array(t_, s_)), is_causal="causal" in kind)
        if kind == "float per head":
            options = dict(attn_mask=t.tensor(array(2, 4, t_, s_)))
        return t.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    compare(run, array(2, 4, t_, 8), array(2, heads, s_, 8, seed=1), array(2, heads, s_, 8, seed=2), rtol=1e-5,
            atol=2e-6)


def test_attention_of_other_ranks_and_value_sizes():
    compare(lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), array(3, 4, 8),
            array(3, 4, 8, seed=1), array(3, 4, 8, seed=2), atol=2e-6)
    compare(lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v), array(2, 3, 4, 8),
            array(2, 3, 5, 8), array(2, 3, 5, 6), atol=2e-6)
    compare(lambda t, q, k, v, m: t.nn.functional.scaled_dot_product_attention(q, k, v, m), array(2, 3, 4, 8),
            array(2, 3, 5, 8),
            array(2, 3, 5, 8, seed=3), array(4, 5), atol=2e-6)  # a mask that learns


@pytest.mark.parametrize("dropout_p", [0.0, 0.25])
def test_attention_makes_no_copy_and_no_score_matrix(dropout_p):
    """(B, T, 3, H, D) -> heads first, as models do: reading q, k, v and writing the result is all that is billed."""
    b, t_, h, d = 2, 16, 2, 8
    x = tally.randn(b, t_, 3, h, d)
    q, k, v = x.permute(2, 0, 3, 1, 4)
    from tally._library import c
    ledger = c.tl_ledger_begin(b"attention")
    y = tally.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout_p)
    c.tl_ledger_end(ledger)
    calls = c.tl_ledger_total(ledger, -1, None).calls
    views = sum(c.tl_ledger_total(ledger, -1, n).calls for n in (b"transpose", b"permute"))
    assert calls - views == 1
    c.tl_ledger_free(ledger)
    assert y.shape == (b, h, t_, d) and y.transpose(1, 2).is_contiguous()


def test_attention_dropout_keeps_the_mean():
    tally.manual_seed(0)
    q, k, v = (tally.ones(1, 1, 4, 8) for _ in range(3))
    mean = sum(tally.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5).mean().item()
               for _ in range(400)) / 400
    assert abs(mean - 1) < 0.05
    assert tally.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=1.0).abs().max().item() == 0
    same_error(lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(1, 1, 4, 8)] * 3, dropout_p=1.5))


@pytest.mark.parametrize("times", [(4, 4), (3, 6), (6, 3)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_drops_what_dropout_would(times, causal):
    """The mask is that of dropout on (B, H, T, S rounded up to 8) with the same seed; torch multiplies by it."""
    t_, s_ = times
    tally.manual_seed(7)
    n_seen = min(t_, s_) if causal else s_  # keys that no query sees are cut off
    mask = tally.nn.functional.dropout(tally.ones(2, 4, t_, -(-n_seen // 8) * 8), 0.25)[..., :n_seen].numpy()

    def run(t, q, k, v):
        if t is tally:
            tally.manual_seed(7)
            return t.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.25, is_causal=causal,
                                                                enable_gqa=True)
        k, v = k[:, :, :n_seen].repeat_interleave(2, 1), v[:, :, :n_seen].repeat_interleave(2, 1)
        scores = q @ k.transpose(-2, -1) / 8 ** 0.5
        if causal:
            scores = scores.masked_fill(~t.ones(t_, n_seen, dtype=t.bool).tril(), -float("inf"))
        return scores.softmax(-1) * t.tensor(mask) @ v
    compare(run, array(2, 4, t_, 8), array(2, 2, s_, 8, seed=1), array(2, 2, s_, 8, seed=2), rtol=1e-5, atol=2e-6)
    assert 0 < (mask == 0).mean() < 1


def test_attention_errors():
    q = lambda t: t.zeros(1, 2, 3, 4)  # noqa: E731
    same_error(lambda t: t.nn.functional.scaled_dot_product_attention(t.zeros(3), q(t), q(t)))
    same_error(lambda t: t.nn.functional.scaled_dot_product_attention(q(t), t.zeros(1, 3, 3, 4), t.zeros(1, 3, 3, 4)))


# ---- Modules ----

def make_model(lib):
    class Block(lib.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = lib.nn.LayerNorm(width)
            self.mlp = lib.nn.Sequential(lib.nn.Linear(width, 2 * width), lib.nn.GELU(),
                                         lib.nn.Linear(2 * width, width))

        def forward(self, x):
            return x + self.mlp(self.norm(x))

    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = lib.nn.Embedding(11, 4)
            self.blocks = lib.nn.ModuleList(Block(4) for _ in range(3))
            self.parts = lib.nn.ModuleDict({"a": lib.nn.Linear(4, 4), "b": lib.nn.Identity()})
            self.head = lib.nn.Linear(4, 11, bias=False)
            self.head.weight = self.embed.weight
            self.scale = lib.nn.Parameter(lib.ones(4))
            self.register_buffer("mask", lib.ones(3))
            self.register_buffer("cache", lib.zeros(2), persistent=False)
            self.register_parameter("nothing", None)

        def forward(self, ids):
            x = self.embed(ids)
            for block in self.blocks:
                x = block(x)
            return self.head(self.parts["a"](x) * self.scale)
    return Model()


def test_registration_walks_and_names():
    ours, theirs = make_model(tally), make_model(torch)
    for walk in ("named_parameters", "named_modules", "named_buffers", "named_children"):
        assert [n for n, _ in getattr(ours, walk)()] == [n for n, _ in getattr(theirs, walk)()], walk
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [type(m).__name__ for m in ours.modules()] == [type(m).__name__ for m in theirs.modules()]
    assert ([n for n, _ in ours.named_parameters(remove_duplicate=False)]
            == [n for n, _ in theirs.named_parameters(remove_duplicate=False)])
    assert repr(ours) == repr(theirs)
    assert len(list(ours.parameters())) == len(list(theirs.parameters()))
    assert ours.get_submodule("blocks.1.mlp") is ours.blocks[1].mlp
    assert ours.get_parameter("blocks.0.norm.weight") is ours.blocks[0].norm.weight
    assert ours.head.weight is ours.embed.weight


def test_the_same_outputs_and_gradients():
    ours, theirs = make_model(tally), make_model(torch)
    assert (str(ours.load_state_dict({k: tally.tensor(v.numpy()) for k, v in theirs.state_dict().items()}))
            == "<All keys matched successfully>")
    ids = np.array([[1, 2, 10], [0, 5, 5]])
    u, v = ours(tally.tensor(ids)), theirs(torch.tensor(ids))
    assert_close(u, v)
    u.square().sum().backward()
    v.square().sum().backward()
    for (n, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters()):
        assert_close(p.grad, q.grad, 1e-4, 1e-4)


def test_load_state_dict_says_what_is_wrong():
    def load(change, **options):
        def run(lib):
            model = make_model(lib)
            state = dict(model.state_dict())
            change(lib, state)
            return model.load_state_dict(state, **options)
        return run

    def lacks(lib, state):
        del state["scale"], state["blocks.1.norm.bias"]
        state["more.weight"] = state["other"] = lib.ones(1)
    ours, theirs = same_error(load(lacks))
    assert ours == theirs

    def other_shape(lib, state):
        state["scale"] = lib.ones(5)
    ours, theirs = same_error(load(other_shape))
    assert ours == theirs
    ours, theirs = load(lacks, strict=False)(tally), load(lacks, strict=False)(torch)
    assert ours.missing_keys == theirs.missing_keys and ours.unexpected_keys == theirs.unexpected_keys
    same_error(lambda lib: lib.nn.Linear(2, 2).load_state_dict([1]))


def test_load_state_dict_assign():
    m = tally.nn.Linear(3, 2)
    w, b = tally.ones(2, 3), tally.zeros(2)
    m.load_state_dict({"weight": w, "bias": b}, assign=True)
    w.fill_(5)
    assert m.weight[0, 0].item() == 5 and isinstance(m.weight, tally.nn.Parameter) and m.weight.requires_grad


def test_assigning_errors():
    def bad(statement):
        def run(lib):
            class M(lib.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.w = lib.nn.Parameter(lib.ones(2))
                    self.m = lib.nn.Linear(1, 1)
                    self.register_buffer("b", lib.ones(1))
            m = M()
            statement(lib, m)
        return run
    for statement in [lambda lib, m: setattr(m, "w", lib.ones(2)), lambda lib, m: setattr(m, "m", 3),
                      lambda lib, m: setattr(m, "b", 3), lambda lib, m: m.register_parameter("a.b", None),
                      lambda lib, m: m.register_parameter("", None), lambda lib, m: m.register_parameter("w2", 3),
                      lambda lib, m: m.register_buffer("w", lib.ones(1)), lambda lib, m: m.add_module("x", 3),
                      lambda lib, m: m.add_module("forward", lib.nn.Linear(1, 1)), lambda lib, m: m.nothing,
                      lambda lib, m: m.get_submodule("m.x"), lambda lib, m: m.get_parameter("b"),
                      lambda lib, m: m.to(lib.int64), lambda lib, m: m.train(3), lambda lib, m: lib.nn.Module()(1),
                      lambda lib, m: m[0]]:
        ours, theirs = same_error(bad(statement))
        assert ours.replace("tally", "torch") == theirs.replace("tally", "torch") or len(ours) > 20, (ours, theirs)

    def early(lib):
        class M(lib.nn.Module):
            def __init__(self):
                self.w = lib.nn.Linear(1, 1)
        M()
    same_error(early)
    same_error(lambda lib: lib.nn.Parameter(lib.ones(2, dtype=lib.int64)))


def test_to_changes_floats_in_place():
    m = make_model(tally)
    m.register_buffer("ids", tally.zeros(2, dtype=tally.int64))
    p = m.scale
    m(tally.tensor([[1]])).sum().backward()
    assert m.bfloat16() is m and m.scale is p
    assert (p.dtype is tally.bfloat16 and p.grad.dtype is tally.bfloat16 and m.ids.dtype is tally.int64
            and m.mask.dtype is tally.bfloat16)
    assert m.double().scale.dtype is tally.float64 and m.to("cpu", tally.float32).scale.dtype is tally.float32
    assert m.to(device="meta").scale.device.type == "meta"
    assert m.to_empty(device="cpu").scale.device.type == "cpu" and m.head.weight is m.embed.weight


def test_train_eval_apply_requires_grad_zero_grad():
    m = make_model(tally)
    assert m.eval() is m and not m.blocks[0].mlp[0].training and m.train().blocks[2].training
    seen = []
    m.apply(lambda x: seen.append(type(x).__name__))
    theirs = []
    make_model(torch).apply(lambda x: theirs.append(type(x).__name__))
    assert seen == theirs
    m(tally.tensor([[1]])).sum().backward()
    m.zero_grad(set_to_none=False)
    assert m.scale.grad.abs().sum().item() == 0
    m.zero_grad()
    assert m.scale.grad is None
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())


def test_hooks():
    def run(lib):
        m, log = lib.nn.Linear(2, 2), []
        m.weight.data.fill_(1.0)
        m.bias.data.fill_(0.0)
        pre = m.register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
        post = m.register_forward_hook(lambda mod, args, out: (log.append(args[0].sum().item()), out + 1)[1])
        m.register_forward_hook(lambda mod, args, kwargs, out: log.append(sorted(kwargs)), with_kwargs=True)
        first = m(lib.ones(1, 2)).tolist()
        pre.remove()
        post.remove()
        return first, m(input=lib.ones(1, 2)).tolist(), log
    assert run(tally) == run(torch)


def test_deepcopy_and_pickle():
    m = tally.nn.Sequential(tally.nn.Linear(3, 4), tally.nn.LayerNorm(4))
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert list(other.state_dict()) == list(m.state_dict())
        assert all(tally.equal(a, b) for a, b in zip(m.parameters(), other.parameters()))
        other[0].weight.data.fill_(9)
        assert m[0].weight.abs().max().item() < 9
        assert isinstance(other[0].weight, tally.nn.Parameter) and other[0].weight.requires_grad
        assert tally._library.lib.tl_purpose_of(other[0].weight) == tally._library.constants["TL_PARAMETER"]
        other(tally.ones(2, 3)).sum().backward()
        assert other[0].weight.grad is not None and m[0].weight.grad is None


def test_parameter():
    p, q = tally.nn.Parameter(tally.ones(2)), torch.nn.Parameter(torch.ones(2))
    assert repr(p) == repr(q) and p.is_leaf and isinstance(p, tally.Tensor)
    assert not tally.nn.Parameter(tally.ones(2), requires_grad=False).requires_grad
    assert tally._library.lib.tl_purpose_of(p) == tally._library.constants["TL_PARAMETER"]
    (p * 3).sum().backward()
    p.data -= 0.5 * p.grad  # as students write it
    assert p.tolist() == [-0.5, -0.5] and p.grad.tolist() == [3, 3] and p.requires_grad
    seen = []
    handle = p.register_hook(lambda g: seen.append(g.tolist()))
    p.data = p.data * 2
    assert p.tolist() == [-1, -1] and p.grad.tolist() == [3, 3] and p.requires_grad
    (p * 2).sum().backward()
    assert seen == [[2, 2]] and p.grad.tolist() == [5, 5]
    handle.remove()
    (p * 2).sum().backward()
    assert len(seen) == 1


def test_containers():
    def run(lib):
        nn = lib.nn
        s = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
        s.append(nn.Linear(2, 3))
        s.insert(1, nn.Tanh())
        del s[0]
        l = nn.ModuleList([nn.Linear(1, 1)] + [nn.ReLU() for _ in range(3)])
        l.insert(0, nn.Tanh())
        l.pop(1)
        l += [nn.Sigmoid()]
        d = nn.ModuleDict([("a", nn.Linear(1, 1))])
        d["b"] = nn.ReLU()
        return [repr(s), repr(s[-1]), repr(s[:2]), repr(l), repr(l[1:3]), len(l), repr(d), list(d), "a" in d,
                repr(nn.ModuleList())]
    assert run(tally) == run(torch)
    same_error(lambda lib: lib.nn.ModuleList([lib.nn.ReLU()])[1])
    same_error(lambda lib: lib.nn.Sequential(lib.nn.ReLU())[-2])
    same_error(lambda lib: lib.nn.ModuleDict()["x"])
    same_error(lambda lib: lib.nn.ModuleList()(1))


def bills(run):
    """The paths that the ledger bills."""
    import ctypes
    from tally._library import c
    ledger = c.tl_ledger_begin(b"run")
    run()
    c.tl_ledger_end(ledger)
    c.tl_ledger_json.restype = ctypes.c_void_p
    text = c.tl_ledger_json(ledger, tally.device("cpu").address)
    report = json.loads(ctypes.string_at(text).decode())
    c.tl_ledger_free(ledger)
    ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return report


def test_calls_are_billed_by_path():
    model = make_model(tally)
    report = bills(lambda: model(tally.tensor([[1, 2]])).sum().backward())
    paths = {row["path"] for row in report["rows"]}
    assert {"Model.embed", "Model.blocks.0.norm", "Model.blocks.2.mlp.0", "Model.parts.a", "Model.head",
            "Model"} <= paths
    from tally._library import c
    assert c.tl_path() == b""
    with pytest.raises(Exception):
        model(tally.ones(2))
    assert c.tl_path() == b""


# ---- init ----

def moments(x):
    a = values(x).astype(np.float64)
    return a.mean(), a.std(), a.min(), a.max()


@pytest.mark.parametrize("name,options", [("uniform_", dict(a=-1.0, b=2.0)), ("normal_", dict(mean=1.0, std=0.5)),
                                          ("xavier_uniform_", dict(gain=2.0)), ("xavier_normal_", {}),
                                          ("kaiming_uniform_", dict(a=math.sqrt(5))),
                                          ("kaiming_normal_", dict(mode="fan_out", nonlinearity="relu")),
                                          ("trunc_normal_", dict(mean=0.5, std=1.0, a=-1.0, b=1.0))])
def test_init_distributions(name, options):
    tally.manual_seed(1)
    torch.manual_seed(1)
    ours, theirs = tally.empty(200, 300), torch.empty(200, 300)
    assert getattr(tally.nn.init, name)(ours, **options) is ours
    getattr(torch.nn.init, name)(theirs, **options)
    for a, b, bar in zip(moments(ours), moments(theirs), (0.03, 0.03, 0.4, 0.4)):
        assert abs(a - b) < bar * moments(theirs)[1], (name, moments(ours), moments(theirs))


def test_init_constants_and_gains():
    for name, args in [("constant_", (0.3,)), ("ones_", ()), ("zeros_", ()), ("eye_", ())]:
        assert_close(getattr(tally.nn.init, name)(tally.empty(3, 4), *args),
                     getattr(torch.nn.init, name)(torch.empty(3, 4), *args))
    for name in ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv2d"):
        assert tally.nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert tally.nn.init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)
    fan = tally.nn.init._calculate_fan_in_and_fan_out
    assert fan(tally.empty(3, 4, 5)) == torch.nn.init._calculate_fan_in_and_fan_out(torch.empty(3, 4, 5))
    for statement in [lambda lib: lib.nn.init.calculate_gain("x"),
                      lambda lib: lib.nn.init.xavier_uniform_(lib.empty(3)),
                      lambda lib: lib.nn.init.kaiming_normal_(lib.empty(3, 3), mode="x"),
                      lambda lib: lib.nn.init.eye_(lib.empty(3))]:
        ours, theirs = same_error(statement)
        assert ours == theirs
    q = tally.nn.init.orthogonal_(tally.empty(3, 5), gain=2.0)
    np.testing.assert_allclose((q @ q.T).numpy(), 4 * np.eye(3), atol=1e-5)


def test_default_initializations():
    tally.manual_seed(2)
    m = tally.nn.Linear(400, 300)
    bound = 1 / math.sqrt(400)
    for x in (m.weight, m.bias):
        _, std, low, high = moments(x)
        assert (-bound <= low < -0.95 * bound and 0.95 * bound < high <= bound
                and abs(std - bound / math.sqrt(3)) < 0.06 * bound)
    mean, std, _, _ = moments(tally.nn.Embedding(300, 100).weight)
    assert abs(mean) < 0.02 and abs(std - 1) < 0.02


# ---- utils ----

@pytest.mark.parametrize("norm_type", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(norm_type, max_norm):
    results = []
    for lib in (tally, torch):
        ps = [lib.nn.Parameter(lib.tensor(array(3, 4, seed=i))) for i in range(3)]
        for i, p in enumerate(ps[:2]):
            p.grad = lib.tensor(array(3, 4, seed=10 + i))
        results.append([lib.nn.utils.clip_grad_norm_(iter(ps), max_norm, norm_type), ps[0].grad, ps[1].grad])
    for a, b in zip(*results):
        assert_close(a, b)

    def nan(lib):
        p = lib.nn.Parameter(lib.ones(2))
        p.grad = lib.full((2,), math.nan)
        lib.nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    ours, theirs = same_error(nan)
    assert ours == theirs


def test_clip_value_and_vectors():
    results = []
    for lib in (tally, torch):
        ps = [lib.nn.Parameter(lib.tensor(array(3, 4))), lib.nn.Parameter(lib.tensor(array(2)))]
        ps[0].grad = lib.tensor(array(3, 4, seed=5))
        lib.nn.utils.clip_grad_value_(ps, 0.3)
        vector = lib.nn.utils.parameters_to_vector(ps)
        lib.nn.utils.vector_to_parameters(vector * 2, ps)
        results.append([ps[0].grad, vector, *ps])
    for a, b in zip(*results):
        assert_close(a, b)


# ---- Checkpoints ----

def test_checkpoint_gives_the_same_gradients_and_frees_its_function():
    import gc
    import weakref
    from tally.utils.checkpoint import checkpoint, checkpoint_sequential
    model = tally.nn.Sequential(*[tally.nn.Sequential(tally.nn.Linear(4, 4), tally.nn.Tanh(), tally.nn.Dropout(0.3))
                                  for _ in range(4)])
    x = tally.randn(5, 4, requires_grad=True)
    results = []
    for way in (model, lambda x: checkpoint(model, x, use_reentrant=False),
                lambda x: checkpoint(lambda a, b, k=None: (a + 0 * b, k)[0], model(x), x, k=3),
                lambda x: checkpoint_sequential(model, 2, x), lambda x: checkpoint(model, x, keep="matmuls")):
        tally.manual_seed(3)
        y = way(x)
        y.square().sum().backward()
        results.append([y.detach(), x.grad, *[p.grad for p in model.parameters()]])
        x.grad = None
        model.zero_grad()
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert tally.equal(a, b)

    class Function:
        def __call__(self, x):
            return x.exp(), "text", x * 2
    f = Function()
    gone = weakref.ref(f)
    a, text, b = checkpoint(f, x)
    del f
    gc.collect()
    assert gone() is not None and text == "text"
    (a + b).sum().backward()
    del a, b
    gc.collect()
    assert gone() is None
    assert_close(x.grad, torch.tensor(x.detach().numpy()).exp() + 2)


def test_checkpoint_raises_what_its_function_raises():
    from tally.utils.checkpoint import checkpoint
    calls = []

    def twice(x):
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("the second time")
        return x * 2
    x = tally.ones(2, requires_grad=True)
    with pytest.raises(ZeroDivisionError):
        checkpoint(lambda x: 1 / 0, x)
    y = checkpoint(twice, x)
    with pytest.raises(KeyError):
        y.sum().backward()


# ---- Data ----

def test_data_loader():
    from tally.utils import data
    from torch.utils import data as theirs
    a, b = np.arange(10, dtype=np.float32).reshape(5, 2), np.arange(5)
    ours = data.DataLoader(data.TensorDataset(tally.tensor(a), tally.tensor(b)), batch_size=2)
    other = theirs.DataLoader(theirs.TensorDataset(torch.tensor(a), torch.tensor(b)), batch_size=2)
    assert len(ours) == len(other) == 3
    for x, y in zip(ours, other):
        assert_close(x[0], y[0])
        assert_close(x[1], y[1])
    assert len(data.DataLoader(range(5), batch_size=2, drop_last=True)) == 2
    items = [{"x": 1, "y": [1.5, np.float32(2)], "z": "s"}] * 2
    u, v = next(iter(data.DataLoader(items, batch_size=2))), next(iter(theirs.DataLoader(items, batch_size=2)))
    assert u["z"] == v["z"]
    assert_close(u["x"], v["x"])
    assert_close(u["y"][0], v["y"][0])
    assert_close(u["y"][1], v["y"][1])
    tally.manual_seed(1)
    shuffled = [x.item() for x in data.DataLoader(range(50), shuffle=True)]
    assert sorted(shuffled) == list(range(50)) != shuffled
    parts = data.random_split(range(10), [0.75, 0.25])
    assert [len(p) for p in parts] == [8, 2] and sorted(list(parts[0]) + list(parts[1])) == list(range(10))
    for bad in (dict(batch_size=0), dict(shuffle=True, sampler=[1])):
        with pytest.raises(ValueError):
            data.DataLoader(range(3), **bad)
        with pytest.raises(ValueError):
            theirs.DataLoader(range(3), **bad)


# ---- A whole program ----

def test_a_program_written_for_torch_follows_torch(tmp_path):
    losses = {}
    for name in ("torch", "tally"):
        out = tmp_path / f"{name}.json"
        subprocess.run([sys.executable, str(HERE / "scripts" / "train_small.py"), name, str(out),
                        str(tmp_path / f"{name}.pt")], check=True,
                       env={**__import__("os").environ, "PYTHONPATH": str(HERE.parents[1] / "python")})
        losses[name] = json.loads(out.read_text())
    assert len(losses["torch"]["losses"]) == 30 and losses["torch"]["losses"][-1] < 0.7 * losses["torch"]["losses"][0]
    np.testing.assert_allclose(losses["tally"]["losses"], losses["torch"]["losses"], atol=1e-4)
    np.testing.assert_allclose(losses["tally"]["norms"], losses["torch"]["norms"], rtol=1e-3)
    assert losses["tally"]["sample"] == losses["torch"]["sample"]


def test_training_leaves_nothing_behind():
    import gc
    from tally._library import c
    from tally.utils.checkpoint import checkpoint
    model = tally.nn.Sequential(tally.nn.Linear(16, 16), tally.nn.LayerNorm(16), tally.nn.Dropout(0.1),
                                tally.nn.Linear(16, 4))
    optimizer, scaler = tally.optim.AdamW(model.parameters()), tally.amp.GradScaler("cpu")
    live = []
    for _ in range(3):
        for _ in range(5):
            with tally.autocast("cpu"):
                loss = tally.nn.functional.cross_entropy(checkpoint(model, tally.randn(8, 16)), tally.randint(4, (8,)))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            tally.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        gc.collect()
        memory = c.tl_device_memory(tally.device("cpu").address)
        live.append((memory.live_bytes, memory.live_tensors))
    assert live[0] == live[1] == live[2]


def test_no_warning_that_torch_does_not_give():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tally.nn.functional.softmax(tally.ones(2), dim=0)
        with pytest.raises(UserWarning):
            tally.nn.functional.softmax(tally.ones(2))
        with pytest.raises(UserWarning):
            tally.nn.functional.mse_loss(tally.ones(2), tally.ones(1))
