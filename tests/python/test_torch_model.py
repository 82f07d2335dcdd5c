"""Two small language models in both libraries: logits, loss, the gradient of every parameter, and the losses of 20
AdamW steps.

A model is written once, over the handful of functions that `Ours` and `Theirs` have in common.
"""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tally_c import Tensor, callbacks, tl
from torch_peer import NUMPY, assert_near, from_torch, to_torch

B, T, V, C, L, H = 3, 17, 65, 32, 2, 4
D, N_KV, FFN = C // H, 2, 48
RELATIVE = {"float32": 1e-4, "float64": 1e-9}
N_STEPS = 20
OPTIONS = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}


class Ours:
    tensor = staticmethod(lambda values: tl.tensor(values))
    linear = staticmethod(lambda x, w, b=None: tl.linear(x, w, b))
    layer_norm = staticmethod(lambda x, w, b: tl.layer_norm(x, w, b, 1e-5))
    rms_norm = staticmethod(lambda x, w: tl.rms_norm(x, w, 1e-6))
    attention = staticmethod(lambda q, k, v: tl.attention(q, k, v, tl.attention_options(causal=True), None))
    rope = staticmethod(lambda x: tl.rope(x, 10000.0, 0, None))
    reshape = staticmethod(lambda x, *shape: tl.reshape(x, len(shape), list(shape)))
    columns = staticmethod(lambda x, first, last: tl.slice(x, -1, first, last, 1))
    cross_entropy = staticmethod(lambda x, t: tl.cross_entropy(x, t, None))
    add, gelu, swiglu, embedding = (staticmethod(getattr(tl, n)) for n in ("add", "gelu", "swiglu", "embedding"))


class Theirs:
    tensor = staticmethod(to_torch)
    linear = staticmethod(F.linear)
    layer_norm = staticmethod(lambda x, w, b: F.layer_norm(x, (C,), w, b, 1e-5))
    rms_norm = staticmethod(lambda x, w: F.rms_norm(x, (C,), w, 1e-6))
    reshape = staticmethod(lambda x, *shape: x.reshape(shape))
    columns = staticmethod(lambda x, first, last: x[..., first:last])
    add = staticmethod(torch.add)
    gelu = staticmethod(lambda x: F.gelu(x, approximate="tanh"))
    swiglu = staticmethod(lambda gate, up: F.silu(gate) * up)
    embedding = staticmethod(lambda w, ids: F.embedding(ids, w))
    cross_entropy = staticmethod(F.cross_entropy)

    @staticmethod
    def attention(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B,H,T,D)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

    @staticmethod
    def rope(x):
        positions = torch.arange(x.shape[1], dtype=torch.float64)
        # (T, 1, D/2)
        angle = torch.outer(positions, 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / D))[:, None]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :D // 2], x[..., D // 2:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


# ---- The models ----

def gpt2_shapes():
    shapes = {"wte": (V, C), "wpe": (T, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    for i in range(L):
        for name, shape in {"ln_1.weight": (C,), "ln_1.bias": (C,), "attn.weight": (3 * C, C), "attn.bias": (3 * C,),
                            "proj.weight": (C, C), "proj.bias": (C,), "ln_2.weight": (C,), "ln_2.bias": (C,),
                            "fc.weight": (4 * C, C), "fc.bias": (4 * C,), "out.weight": (C, 4 * C),
                            "out.bias": (C,)}.items():
            shapes[f"h.{i}.{name}"] = shape
    return shapes


def gpt2_block(m, p, i, x):
    w = {name.removeprefix(f"h.{i}."): value for name, value in p.items()}
    h = m.layer_norm(x, w["ln_1.weight"], w["ln_1.bias"])
    qkv = m.linear(h, w["attn.weight"], w["attn.bias"])
    q, k, v = (m.reshape(m.columns(qkv, n * C, (n + 1) * C), B, T, H, D) for n in range(3))
    x = m.add(x, m.linear(m.reshape(m.attention(q, k, v), B, T, C), w["proj.weight"], w["proj.bias"]))
    h = m.gelu(m.linear(m.layer_norm(x, w["ln_2.weight"], w["ln_2.bias"]), w["fc.weight"], w["fc.bias"]))
    return m.add(x, m.linear(h, w["out.weight"], w["out.bias"]))


def gpt2(m, p, ids, blocks=None):
    """Logits (B,T,V); the output matrix is the token table."""
    x = m.add(m.embedding(p["wte"], ids), p["wpe"])
    if blocks:
        x = blocks(x)
    else:
        for i in range(L):
            x = gpt2_block(m, p, i, x)
    return m.linear(m.layer_norm(x, p["ln_f.weight"], p["ln_f.bias"]), p["wte"])


def llama_shapes():
    shapes = {"embed": (V, C), "norm": (C,), "head": (V, C)}
    for i in range(L):
        for name, shape in {"norm_1": (C,), "q": (C, C), "k": (N_KV * D, C), "v": (N_KV * D, C), "o": (C, C),
                            "norm_2": (C,), "gate": (FFN, C), "up": (FFN, C), "down": (C, FFN)}.items():
            shapes[f"{i}.{name}"] = shape
    return shapes


def llama(m, p, ids):
    x = m.embedding(p["embed"], ids)
    for i in range(L):
        w = {name.removeprefix(f"{i}."): value for name, value in p.items()}
        h = m.rms_norm(x, w["norm_1"])
        q = m.rope(m.reshape(m.linear(h, w["q"]), B, T, H, D))
        k = m.rope(m.reshape(m.linear(h, w["k"]), B, T, N_KV, D))
        v = m.reshape(m.linear(h, w["v"]), B, T, N_KV, D)
        x = m.add(x, m.linear(m.reshape(m.attention(q, k, v), B, T, C), w["o"]))
        h = m.rms_norm(x, w["norm_2"])
        x = m.add(x, m.linear(m.swiglu(m.linear(h, w["gate"]), m.linear(h, w["up"])), w["down"]))
    return m.linear(m.rms_norm(x, p["norm"]), p["head"])


MODELS = {"gpt2": (gpt2, gpt2_shapes), "llama": (llama, llama_shapes)}


def start(shapes, name, seed=0):
    """Parameters in both libraries, and a batch of ids and targets."""
    rng = np.random.default_rng(seed)
    values = {k: (0.2 * rng.standard_normal(s) + (len(s) == 1 and not k.endswith("bias"))).astype(NUMPY[name])
              for k, s in shapes.items()}
    ours = {k: tl.requires_grad(tl.tensor(v), True) for k, v in values.items()}
    theirs = {k: to_torch(v).requires_grad_() for k, v in values.items()}
    return ours, theirs, rng.integers(0, V, (B, T)), rng.integers(0, V, B * T)


def loss_of(m, model, p, ids, targets):
    logits = model(m, p, m.tensor(ids))
    return logits, m.cross_entropy(m.reshape(logits, B * T, V), m.tensor(targets))


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("which", list(MODELS))
def test_logits_loss_and_every_gradient(which, name):
    model, shapes = MODELS[which]
    ours, theirs, ids, targets = start(shapes(), name)
    logits, loss = loss_of(Ours, model, ours, ids, targets)
    their_logits, their_loss = loss_of(Theirs, model, theirs, ids, targets)
    tl.backward(loss, None, 0)
    their_loss.backward()
    assert_near(logits.numpy(), from_torch(their_logits), "logits", RELATIVE[name])
    assert_near(loss.numpy(), from_torch(their_loss), "loss", RELATIVE[name])
    for key in ours:
        assert_near(ours[key].grad.numpy(), from_torch(theirs[key].grad), key, RELATIVE[name])


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("which", list(MODELS))
def test_losses_of_20_adamw_steps(which, name):
    model, shapes = MODELS[which]
    ours, theirs, ids, targets = start(shapes(), name, seed=1)
    state = {k: (tl.zeros_like(p), tl.zeros_like(p)) for k, p in ours.items()}
    optimizer = torch.optim.AdamW(theirs.values(), lr=OPTIONS["lr"], betas=(OPTIONS["beta1"], OPTIONS["beta2"]),
                                  eps=OPTIONS["eps"], weight_decay=OPTIONS["weight_decay"])
    losses, their_losses = [], []
    for step in range(1, N_STEPS + 1):
        loss, their_loss = loss_of(Ours, model, ours, ids, targets)[1], loss_of(Theirs, model, theirs, ids, targets)[1]
        losses.append(tl.item(loss))
        their_losses.append(their_loss.item())
        tl.backward(loss, None, 0)
        optimizer.zero_grad()
        their_loss.backward()
        optimizer.step()
        for key, p in ours.items():
            assert tl.adam_(p, p.grad, *state[key], None, tl.adam_options(step=step, decoupled=True, **OPTIONS))
            tl.zero_grad(p, step % 2 == 0)
    assert_near(np.array(losses), np.array(their_losses), "losses", RELATIVE[name])
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("policy,k",
                         [("EVERY_K", 1), ("EVERY_K", 2), ("SQRT", 0), ("FULL", 0), ("NOTHING", 0), ("SELECTIVE", 0)])
def test_checkpoints_change_no_bit_of_a_gradient(policy, k):
    ours, _, ids, targets = start(gpt2_shapes(), "float32")

    def layer(_, i, x):
        with tl.callback():
            return gpt2_block(Ours, ours, i, Tensor(x))._as_parameter_
    callback = tl.layer_fn(layer)
    callbacks.append(callback)

    def gradients(blocks):
        tl.backward(loss_of(Ours, lambda m, p, ids: gpt2(m, p, ids, blocks), ours, ids, targets)[1], None, 0)
        result = {key: p.grad.numpy() for key, p in ours.items()}
        for p in ours.values():
            tl.zero_grad(p, False)
        return result
    plain = gradients(None)
    saved = gradients(lambda x: tl.checkpoint_layers(callback, None, L, getattr(tl, "CHECKPOINT_" + policy), k, x))
    for key in plain:
        assert np.array_equal(plain[key], saved[key]), key
