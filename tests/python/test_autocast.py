"""Autocast beside torch's on the cpu, and the scale of gradients."""
import threading

import numpy as np
import pytest
import tally
import torch

from test_nn import array, same_error, twins

F, G = tally.nn.functional, torch.nn.functional  # ours, theirs


def bf16(lib, *shape, seed=0):
    return lib.tensor(array(*shape, seed=seed)).to(lib.bfloat16)


def name(d):
    return repr(d).split(".")[1]


# Where torch's lists for cpu and cuda agree, the dtype must be torch's; elsewhere ours follows the list for cuda, which
# torch documents.
ON_CPU = {
    "matmul": lambda t: t.ones(2, 3) @ t.ones(3, 2),
    "linear": lambda t: t.nn.functional.linear(t.ones(2, 3), t.ones(4, 3), t.ones(4)),
    "mm of mixed": lambda t: t.mm(t.ones(2, 3), bf16(t, 3, 2)),
    "bmm": lambda t: t.bmm(t.ones(2, 3, 2), t.ones(2, 2, 3)),
    "matmul of double": lambda t: t.ones(2, 3, dtype=t.float64) @ t.ones(3, 2, dtype=t.float64),
    "attention": lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(1, 2, 3, 4)] * 3, is_causal=True),
    "mse": lambda t: t.nn.functional.mse_loss(bf16(t, 3), bf16(t, 3, seed=1)),
    "l1": lambda t: t.nn.functional.l1_loss(bf16(t, 3), bf16(t, 3, seed=1)),
    "smooth_l1": lambda t: t.nn.functional.smooth_l1_loss(bf16(t, 3), bf16(t, 3, seed=1)),
    "nll": lambda t: t.nn.functional.nll_loss(bf16(t, 3, 4), t.tensor([0, 1, 2])), "prod": lambda t: bf16(t, 3).prod(),
    "cross_entropy": lambda t: t.nn.functional.cross_entropy(bf16(t, 3, 4), t.tensor([0, 1, 2])),
    "add": lambda t: bf16(t, 3) + bf16(t, 3), "gelu": lambda t: t.nn.functional.gelu(bf16(t, 3)),
    "add mixed": lambda t: bf16(t, 3) + t.ones(3),
    "embedding": lambda t: t.nn.functional.embedding(t.tensor([1]), t.ones(3, 2)), "relu": lambda t: bf16(t, 3).relu(),
}
AS_ON_CUDA = {
    "softmax": lambda t: bf16(t, 3).softmax(0), "log_softmax": lambda t: bf16(t, 3).log_softmax(0),
    "sum": lambda t: bf16(t, 3).sum(),
    "layer_norm": lambda t: t.nn.functional.layer_norm(bf16(t, 2, 3), (3,), t.ones(3), t.zeros(3)),
    "exp": lambda t: bf16(t, 3).exp(), "cumsum": lambda t: bf16(t, 3).cumsum(0), "norm": lambda t: bf16(t, 3).norm(),
    "softplus": lambda t: t.nn.functional.softplus(bf16(t, 3)),
    "bce": lambda t: t.nn.functional.binary_cross_entropy_with_logits(bf16(t, 3), bf16(t, 3, seed=1).sigmoid()),
}


@pytest.mark.parametrize("function", ON_CPU)
def test_dtypes_are_torchs(function):
    with tally.autocast("cpu"), torch.autocast("cpu"):
        ours, theirs = ON_CPU[function](tally), ON_CPU[function](torch)
    assert name(ours.dtype) == name(theirs.dtype)
    np.testing.assert_allclose(ours.double().numpy(), theirs.double().numpy(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("function", AS_ON_CUDA)
def test_what_runs_in_float32(function):
    with tally.autocast("cpu"):
        ours = AS_ON_CUDA[function](tally)
    assert ours.dtype is tally.float32
    theirs = AS_ON_CUDA[function](torch) if function != "layer_norm" else G.layer_norm(bf16(torch, 2, 3).float(), (3,))
    np.testing.assert_allclose(ours.numpy(), theirs.float().numpy(), rtol=1e-2, atol=1e-2)


def test_a_model_under_autocast_follows_torch():
    def make(nn):
        return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8))
    ours, theirs = twins(make)
    a, ids = array(64, 16), np.arange(64) % 8
    results = []
    for lib, model in ((tally, ours), (torch, theirs)):
        optimizer = lib.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(10):
            with lib.autocast(device_type="cpu", dtype=lib.bfloat16):
                y = model(lib.tensor(a))
                loss = lib.nn.functional.cross_entropy(y, lib.tensor(ids))
            assert name(y.dtype) == "bfloat16" and name(loss.dtype) == "float32"
            optimizer.zero_grad()
            loss.backward()
            assert all(name(p.grad.dtype) == "float32" for p in model.parameters())
            optimizer.step()
            losses.append(loss.item())
        results.append(losses)
    np.testing.assert_allclose(*results, rtol=2e-2)
    assert results[0][-1] < 0.9 * results[0][0]


def test_gradients_are_those_of_the_casts_written_out():
    x, w = tally.tensor(array(4, 6), requires_grad=True), tally.tensor(array(3, 6), requires_grad=True)
    with tally.autocast("cpu"):
        F.linear(x, w).softmax(-1).square().sum().backward()
    grads = [x.grad, w.grad]
    x.grad = w.grad = None
    F.linear(x.bfloat16(), w.bfloat16()).float().softmax(-1).square().sum().backward()
    assert tally.equal(grads[0], x.grad) and tally.equal(grads[1], w.grad)


def test_regions_nest_decorate_and_end():
    assert not tally.is_autocast_enabled()
    with tally.autocast("cpu"):
        assert tally.is_autocast_enabled() and tally.get_autocast_dtype("cpu") is tally.bfloat16
        with tally.autocast("cpu", enabled=False):
            assert (tally.ones(2, 2) @ tally.ones(2, 2)).dtype is tally.float32
        with tally.amp.autocast("cpu", tally.float16):
            assert (tally.ones(2, 2) @ tally.ones(2, 2)).dtype is tally.float16
        other = []
        thread = threading.Thread(target=lambda: other.append(tally.is_autocast_enabled()))
        thread.start()
        thread.join()
        assert other == [False]
        assert (tally.ones(2, 2) @ tally.ones(2, 2)).dtype is tally.bfloat16
    with pytest.raises(ZeroDivisionError), tally.autocast("cpu"):
        1 / 0
    assert not tally.is_autocast_enabled()

    @tally.autocast("cpu")
    def product(x):
        return x @ x
    assert product(tally.ones(2, 2)).dtype is tally.bfloat16 and not tally.is_autocast_enabled()
    for statement in [lambda lib: lib.autocast(3), lambda lib: lib.autocast("nothing")]:
        same_error(statement)


def test_a_checkpoint_runs_again_as_it_ran():
    from tally.utils.checkpoint import checkpoint
    model = tally.nn.Sequential(tally.nn.Linear(4, 4), tally.nn.Tanh(), tally.nn.Linear(4, 4))
    x = tally.randn(3, 4)
    grads = []
    for way in (model, lambda x: checkpoint(model, x, use_reentrant=False)):
        model.zero_grad()
        with tally.autocast("cpu"):
            y = way(x)
        y.float().square().sum().backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(tally.equal(a, b) for a, b in zip(*grads))


def test_grad_scaler_follows_torch():
    results = []
    for lib in (tally, torch):
        p = lib.nn.Parameter(lib.tensor(array(4)))
        optimizer = lib.optim.SGD([p], lr=0.1)
        scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
        trace = []
        for step in range(10):
            optimizer.zero_grad()
            loss = (p * p).sum() * (float("inf") if step == 5 else 1.0)
            scaler.scale(loss).backward()
            if step % 2:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            trace.append((scaler.get_scale(), p.detach().tolist()))
        results.append((trace, scaler.state_dict()))
    for (a, p), (b, q) in zip(results[0][0], results[1][0]):
        assert a == b
        np.testing.assert_allclose(p, q, rtol=1e-5)
    assert results[0][1] == results[1][1]
    fresh = tally.amp.GradScaler("cpu")
    fresh.load_state_dict(results[1][1])
    assert fresh.state_dict() == results[1][1]


def test_grad_scaler_errors():
    def twice(lib):
        p = lib.nn.Parameter(lib.ones(2))
        p.grad = lib.ones(2)
        optimizer, scaler = lib.optim.SGD([p]), lib.amp.GradScaler("cpu")
        scaler.scale(lib.ones(1))
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)
    ours, theirs = same_error(twice)
    assert ours == theirs

    def early(lib):
        scaler = lib.amp.GradScaler("cpu")
        scaler.scale(lib.ones(1))
        scaler.update()
    same_error(early)
    off = tally.amp.GradScaler(enabled=False)
    x = tally.ones(1)
    assert off.scale(x) is x and off.state_dict() == {} and off.get_scale() == 1.0
