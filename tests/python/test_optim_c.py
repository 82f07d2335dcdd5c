"""Optimizers of many parameters, clipping, accumulation and schedules against torch.optim."""
import contextlib
import ctypes
import math

import numpy as np
import pytest
import torch

from tally_c import TallyError, tl
from test_torch_fused import OPTIMIZERS, PEERS, STEPS
from test_torch_ops import normal
from torch_peer import NUMPY, assert_near, from_torch, to_torch

SHAPES = [(7, 5), (5,), (3, 2, 4)]
CASES = [(kind, options) for kind, options in OPTIMIZERS if "initial_accumulator_value" not in options]
IDS = [f"{kind}-{i}" for i, (kind, _) in enumerate(CASES)]
RELATIVE = {"float64": 1e-12, "float32": 1e-6}


def options_of(kind, given, **more):
    options = tl.optimizer_defaults(getattr(tl, kind.upper()))
    given = dict(given, **more)
    options.beta1, options.beta2 = given.pop("betas", (options.beta1, options.beta2))
    for name, value in given.items():
        setattr(options, name, value)
    return options


@contextlib.contextmanager
def optimizer_of(kind, parameters, options):
    """options: one for all, or one for each."""
    optimizer = tl.optimizer_new(getattr(tl, kind.upper()))
    for i, p in enumerate(parameters):
        assert tl.optimizer_add(optimizer, f"p{i}", p, options[i] if isinstance(options, list) else options)
    yield optimizer
    tl.optimizer_free(optimizer)


def states_of(optimizer):
    n = ctypes.c_int()
    address = tl.library.tl_optimizer_list(optimizer, ctypes.byref(n))
    tl.check()
    rows = [address[i] for i in range(n.value)]
    return {row.name if isinstance(row.name, str) else ctypes.string_at(row.name).decode(): row.tensor for row in rows}


def assert_near_path(ours, theirs, start, what, relative):
    """Near, relative to the largest number of the way: roundings add up along it, also where it ends near 0."""
    largest, now = np.abs(start.astype(np.float64)).max(), max(1e-3, np.abs(theirs.astype(np.float64)).max())
    assert_near(ours, theirs, what, relative=relative * max(1, largest / now))


def starts(rng, name):
    values = [normal(rng, *shape).astype(NUMPY[name]) for shape in SHAPES]
    return (values, [tl.requires_grad(tl.tensor(v), True) for v in values],
            [to_torch(v).requires_grad_() for v in values])


def give_grads(rng, ours, theirs, name, size=1.0):
    for p, q in zip(ours, theirs):
        grad = (size * normal(rng, *q.shape)).astype(NUMPY[name])
        tl.set_grad(p, tl.tensor(grad))
        q.grad = to_torch(grad)


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
@pytest.mark.parametrize("name", ["float64", "float32"])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_50_steps(kind, options, name, clip):
    """Three parameters, a schedule, and clipping by their common norm: large gradients at first, small ones later."""
    rng = np.random.default_rng(1)
    values, ours, theirs = starts(rng, name)
    peer = PEERS[kind](theirs, foreach=False, **options)
    factor = lambda step: 1 - 0.5 * step / STEPS
    schedule = torch.optim.lr_scheduler.LambdaLR(peer, factor)
    with optimizer_of(kind, ours, options_of(kind, options)) as optimizer:
        for step in range(STEPS):
            give_grads(rng, ours, theirs, name, 2 ** -(step / 8))
            scale = None
            if clip:
                norm = tl.grad_norm(ours, len(ours))
                their_norm = torch.nn.utils.clip_grad_norm_(theirs, clip, foreach=False)
                assert_near(norm.numpy(), from_torch(their_norm), "norm", relative=RELATIVE[name])
                scale = tl.clip_scale(norm, clip, 1.0)
            peer.step()
            schedule.step()
            assert tl.optimizer_step(optimizer, factor(step), scale)
            # the factor is an f32 number: it rounds once more than torch's f64 one
            relative = RELATIVE[name] if name == "float32" or not clip else 1e-6
            for i, (p, q, start) in enumerate(zip(ours, theirs, values)):
                assert_near_path(p.numpy(), from_torch(q), start, f"{kind} {options} step {step} parameter {i}",
                                 relative)
        assert tl.optimizer_steps(optimizer) == STEPS
    if clip:  # both sides of the limit were met
        assert float(their_norm) < clip


@pytest.mark.parametrize("kind,options", CASES, ids=IDS)
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_50_steps_of_narrow_parameters(kind, options, name):
    """Masters take f32 steps on narrow gradients; the parameter is the rounded master, every step."""
    rng = np.random.default_rng(2)
    values, ours, _ = starts(rng, name)
    theirs = [to_torch(v.astype(np.float32)).requires_grad_() for v in values]
    peer = PEERS[kind](theirs, foreach=False, **options)
    with optimizer_of(kind, ours, options_of(kind, options, has_master=True)) as optimizer:
        masters = states_of(optimizer)
        for step in range(STEPS):
            for p, q in zip(ours, theirs):
                grad = normal(rng, *q.shape).astype(NUMPY[name])
                tl.set_grad(p, tl.tensor(grad))
                q.grad = to_torch(grad.astype(np.float32))
            peer.step()
            assert tl.optimizer_step(optimizer, 1.0, None)
            for i, (p, q) in enumerate(zip(ours, theirs)):
                master = np.empty(q.shape, np.float32)
                assert tl.to_data(masters[f"master.p{i}"], master.ctypes.data, master.nbytes)
                assert_near(master, from_torch(q), f"{kind} step {step} master {i}", relative=1e-6)
                assert np.array_equal(p.numpy(), master.astype(NUMPY[name]))


def test_settings_of_each_parameter_are_torchs_groups():
    rng = np.random.default_rng(3)
    _, ours, theirs = starts(rng, "float32")
    peer = torch.optim.AdamW([{"params": [theirs[0], theirs[2]], "weight_decay": 0.3, "lr": 0.02},
                              {"params": [theirs[1]], "weight_decay": 0.0}],
                             lr=0.01, foreach=False)
    heavy = options_of("adamw", dict(lr=0.02, weight_decay=0.3))
    light = options_of("adamw", dict(lr=0.01, weight_decay=0.0))
    with optimizer_of("adamw", ours, [heavy, light, heavy]) as optimizer:
        for step in range(STEPS):
            give_grads(rng, ours, theirs, "float32")
            if step % 5 == 4:  # no gradient: neither steps
                tl.set_grad(ours[1], None)
                theirs[1].grad = None
                break
            peer.step()
            assert tl.optimizer_step(optimizer, 1.0, None)
        before = ours[1].numpy()
        peer.step()
        assert tl.optimizer_step(optimizer, 1.0, None)
        for p, q in zip(ours, theirs):
            assert_near(p.numpy(), from_torch(q), "groups", relative=1e-6)
        assert np.array_equal(before, ours[1].numpy())


def test_states_are_torchs():
    rng = np.random.default_rng(4)
    for kind, options in CASES:
        _, ours, theirs = starts(rng, "float32")
        peer = PEERS[kind](theirs, foreach=False, **options)
        with optimizer_of(kind, ours, options_of(kind, options)) as optimizer:
            for _ in range(3):
                give_grads(rng, ours, theirs, "float32")
                peer.step()
                assert tl.optimizer_step(optimizer, 1.0, None)
            states = states_of(optimizer)
            wanted = {f"{key}.p{i}": value for i, q in enumerate(theirs) for key, value in peer.state[q].items()
                      if key != "step" and value is not None}
            assert sorted(states) == sorted(wanted)
            for key, value in wanted.items():
                got = np.empty(value.shape, np.float32)
                assert tl.to_data(states[key], got.ctypes.data, got.nbytes)
                assert_near(got, from_torch(value), f"{kind} {key}", relative=1e-6)


@pytest.mark.parametrize("k", [2, 4])
def test_micro_batches_equal_one_batch(k):
    """k passes whose gradients add up, with divisor k, against torch with the whole batch."""
    rng = np.random.default_rng(5)
    x, start = normal(rng, 12, 6), normal(rng, 3, 6)
    w, theirs = tl.requires_grad(tl.tensor(start), True), to_torch(start).requires_grad_()
    peer = torch.optim.AdamW([theirs], lr=0.01, weight_decay=0.1, foreach=False)
    with optimizer_of("adamw", [w], options_of("adamw", dict(lr=0.01, weight_decay=0.1))) as optimizer:
        for step in range(STEPS):
            peer.zero_grad()
            torch.tanh(to_torch(x) @ theirs.T).square().mean().backward()
            torch.nn.utils.clip_grad_norm_([theirs], 0.05, foreach=False)
            peer.step()
            tl.zero_grad(w, False)
            for rows in np.split(x, k):
                y = tl.tanh(tl.linear(tl.tensor(rows), w, None))
                tl.backward(tl.mean_all(tl.mul(y, y)), None, 0)
            assert tl.optimizer_step(optimizer, 1.0, tl.clip_scale(tl.grad_norm([w], 1), 0.05, float(k)))
            assert_near(w.numpy(), from_torch(theirs), f"step {step}", relative=1e-6)


def test_sum_squares_of_every_float():
    rng = np.random.default_rng(6)
    for name in ("float64", "float32", "bfloat16", "float16"):
        values = [normal(rng, *shape).astype(NUMPY[name]) for shape in [(300, 70), (), (0, 3), (5,)] + 100 * [(3,)]]
        total = tl.sum_squares([tl.tensor(v) for v in values], len(values)).numpy()
        assert total.dtype == (np.float64 if name == "float64" else np.float32)
        want = sum((v.astype(np.float64) ** 2).sum() for v in values)
        assert abs(total / want - 1) < (1e-13 if name == "float64" else 1e-6)
    with pytest.raises(TallyError, match="there are no tensors"):
        tl.library.tl_sum_squares(None, 0)
        tl.check()


def test_a_norm_that_is_not_finite_voids_the_step():
    rng = np.random.default_rng(7)
    for bad in (np.nan, np.inf):
        _, ours, theirs = starts(rng, "float32")
        with optimizer_of("adamw", ours, options_of("adamw", {})) as optimizer:
            give_grads(rng, ours, theirs, "float32")
            before = [p.numpy() for p in ours]
            tl.set_grad(ours[1], tl.tensor(np.full(5, bad, np.float32)))
            scale = tl.clip_scale(tl.grad_norm(ours, 3), 1.0, 1.0)
            assert math.isnan(scale.numpy())
            assert tl.optimizer_step(optimizer, 1.0, scale)
            for p, value in zip(ours, before):
                assert np.array_equal(p.numpy(), value)


def test_schedules():
    """torch's CosineAnnealingLR and LinearLR after warm-up; formulas elsewhere are in tests/test_optim.c."""
    total, warmup = 60, 10
    for kind, peer in (("COSINE", lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, total - warmup, eta_min=0.1)),
                       ("LINEAR", lambda o: torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, total - warmup))):
        optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        theirs = peer(optimizer)
        schedule = tl.schedule(getattr(tl, "SCHEDULE_" + kind), warmup, total, 0, 0.1)
        for step in range(warmup, total + 1):
            assert abs(tl.schedule_factor(schedule, step) - optimizer.param_groups[0]["lr"]) < 1e-12
            optimizer.step()
            theirs.step()
