"""tally.optim beside torch.optim: trajectories, states, schedules."""
import copy
import itertools
import math
import pickle
import warnings

import numpy as np
import pytest
import tally
import torch

from test_nn import array, assert_close, same_error

STEPS = 20


def options(**values):
    """Every combination."""
    return [dict(zip(values, v)) for v in itertools.product(*values.values())]


CASES = (
    [("SGD", o) for o in options(lr=[0.1], momentum=[0, 0.9], dampening=[0, 0.3], weight_decay=[0, 0.1],
                                 nesterov=[False, True], maximize=[False, True])
     if not o["nesterov"] or (o["momentum"] and not o["dampening"])] +
    [("Adagrad", o) for o in options(lr=[0.1], lr_decay=[0, 0.1], weight_decay=[0, 0.1],
                                     initial_accumulator_value=[0, 0.5], maximize=[False, True])] +
    [("RMSprop", o) for o in options(lr=[0.01], alpha=[0.9], weight_decay=[0, 0.1], momentum=[0, 0.9],
                                     centered=[False, True], maximize=[False, True])] +
    [(n, o) for n in ("Adam", "AdamW")
     for o in options(lr=[0.05], betas=[(0.9, 0.99)], eps=[1e-6], weight_decay=[0, 0.1], amsgrad=[False, True],
                      maximize=[False, True])])


def parameters(lib):
    return [lib.nn.Parameter(lib.tensor(array(4, 3, seed=1))), lib.nn.Parameter(lib.tensor(array(5, seed=2))),
            lib.nn.Parameter(lib.ones(2))]


def give_grads(lib, ps, step):
    for i, p in enumerate(ps[:2]):  # the third has none
        p.grad = lib.tensor(array(*p.shape, seed=100 * step + i))


def text(case):
    return case[0] + " " + " ".join(f"{k}={v}" for k, v in case[1].items())


@pytest.mark.parametrize("case", CASES, ids=text)
def test_trajectory(case):
    name, o = case
    sides = []
    for lib in (tally, torch):
        ps = parameters(lib)
        groups = [{"params": ps[:1]}, {"params": ps[1:], "lr": o["lr"] / 2}]
        optimizer = getattr(lib.optim, name)(groups, **o)
        for step in range(STEPS):
            give_grads(lib, ps, step)
            optimizer.step()
        sides.append((ps, optimizer))
    for p, q in zip(sides[0][0], sides[1][0]):
        assert_close(p, q, 2e-5, 2e-6)
    ours, theirs = (optimizer.state_dict() for _, optimizer in sides)
    assert ours["param_groups"] == theirs["param_groups"]
    assert list(ours["state"]) == list(theirs["state"])
    for key, state in theirs["state"].items():
        assert set(ours["state"][key]) == set(state)
        for k, v in state.items():
            assert_close(ours["state"][key][k], v, 2e-5, 2e-6)


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "RMSprop", "Adam", "AdamW"])
def test_a_state_of_torch_goes_on_here_and_ours_there(name):
    o = {"SGD": dict(lr=0.1, momentum=0.9)}.get(name, dict(lr=0.1))

    def run(lib, start, state, first, last):
        ps = [lib.nn.Parameter(lib.tensor(a)) for a in start]
        optimizer = getattr(lib.optim, name)(ps, **o)
        if state:
            make = lib.tensor
            optimizer.load_state_dict({"param_groups": state["param_groups"], "state": {
                i: {k: make(v.numpy()) if hasattr(v, "numpy") else v for k, v in s.items()}
                for i, s in state["state"].items()}})
        for step in range(first, last):
            give_grads(lib, ps, step)
            optimizer.step()
        return [p.detach().numpy() for p in ps], optimizer.state_dict()
    start = [p.detach().numpy() for p in parameters(torch)]
    whole, _ = run(torch, start, None, 0, 10)
    for one, other in ((torch, tally), (tally, torch), (tally, tally)):
        middle, state = run(one, start, None, 0, 5)
        end, _ = run(other, middle, state, 5, 10)
        for a, b in zip(end, whole):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_state_and_grads_are_billed_for_what_they_are():
    from tally._library import constants, lib
    p = tally.nn.Parameter(tally.ones(3))
    p.grad = tally.ones(3)
    optimizer = tally.optim.AdamW([p])
    seen = []
    optimizer.register_step_pre_hook(lambda *a: seen.append("before"))
    optimizer.register_step_post_hook(lambda *a: seen.append("after"))
    optimizer.step()
    assert seen == ["before", "after"]
    assert lib.tl_purpose_of(optimizer.state[p]["exp_avg"]) == constants["TL_OPTIMIZER"]
    assert lib.tl_purpose_of(p) == constants["TL_PARAMETER"]


def phase():
    from tally._library import constants, lib
    now = lib.tl_set_phase(constants["TL_FORWARD"])
    lib.tl_set_phase(now)
    return {v: k for k, v in constants.items() if k in ("TL_FORWARD", "TL_UPDATE")}[now]


def test_a_subclass_is_an_optimizer_and_is_billed_to_the_update():
    phases = []

    def make(lib):
        class MySGD(lib.optim.Optimizer):
            def __init__(self, params, lr=0.1, momentum=0.0):
                super().__init__(params, {"lr": lr, "momentum": momentum})

            def step(self, closure=None):
                loss = None if closure is None else closure()
                if lib is tally:
                    phases.append(phase())
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        t = state.get("t", 0)
                        buffer = state.setdefault("buffer", lib.zeros_like(p))
                        buffer.mul_(group["momentum"]).add_(p.grad)
                        p.data -= group["lr"] / math.sqrt(t + 1) * buffer
                        state["t"] = t + 1
                return loss
        return MySGD
    results = []
    for lib in (tally, torch):
        ps = parameters(lib)
        optimizer = make(lib)([{"params": ps[:2]}, {"params": ps[2:], "lr": 0.5}], momentum=0.5)

        def closure():
            optimizer.zero_grad()
            loss = sum((p ** 2).sum() for p in ps)
            if lib is tally:
                phases.append(phase())
            loss.backward()
            return loss
        losses = [optimizer.step(closure).item() for _ in range(5)]
        results.append((losses, ps, optimizer.state_dict()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    for p, q in zip(results[0][1], results[1][1]):
        assert_close(p, q)
    assert results[0][2]["param_groups"] == results[1][2]["param_groups"]
    assert results[0][2]["state"][0]["t"] == 5
    assert set(phases[0::2]) == {"TL_FORWARD"} and set(phases[1::2]) == {"TL_UPDATE"} and phase() == "TL_FORWARD"


def test_closures_zero_grad_repr_and_copies():
    results = []
    for lib in (tally, torch):
        ps = parameters(lib)
        optimizer = lib.optim.SGD(ps, lr=0.1, momentum=0.9)

        def closure():
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in ps)
            loss.backward()
            return loss
        losses = [optimizer.step(closure).item() for _ in range(3)]
        optimizer.zero_grad(set_to_none=False)
        zero = [p.grad.abs().sum().item() for p in ps]
        optimizer.zero_grad()
        results.append((losses, zero, [p.grad for p in ps], repr(optimizer)))
        other = copy.deepcopy(optimizer)
        assert other.param_groups[0]["params"][0] is not ps[0] and len(other.state) == 3
        assert len(pickle.loads(pickle.dumps(optimizer)).param_groups) == 1
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    assert results[0][1:] == results[1][1:]


def test_named_parameters_are_taken():
    p, q = tally.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert (tally.optim.Adam(p.named_parameters()).state_dict()["param_groups"]
            == torch.optim.Adam(q.named_parameters()).state_dict()["param_groups"])


def test_errors():
    def p(lib):
        return lib.nn.Parameter(lib.ones(2))
    for statement in [lambda lib: lib.optim.SGD([], lr=0.1), lambda lib: lib.optim.SGD(p(lib), lr=0.1),
                      lambda lib: lib.optim.SGD([3], lr=0.1), lambda lib: lib.optim.SGD([p(lib)], lr=-1),
                      lambda lib: lib.optim.SGD([p(lib)], momentum=-1),
                      lambda lib: lib.optim.SGD([p(lib)], nesterov=True),
                      lambda lib: lib.optim.Adam([p(lib)], betas=(1.0, 0.9)),
                      lambda lib: lib.optim.Adam([p(lib)], eps=-1.0),
                      lambda lib: lib.optim.AdamW([p(lib)], weight_decay=-1.0),
                      lambda lib: lib.optim.RMSprop([p(lib)], alpha=-1.0),
                      lambda lib: lib.optim.Adagrad([p(lib)], lr_decay=-1.0), lambda lib: lib.optim.SGD([p(lib) * 2]),
                      lambda lib: lib.optim.SGD([{"params": {p(lib)}}]),
                      lambda lib: (lambda x: lib.optim.SGD([{"params": [x]}, {"params": [x]}]))(p(lib)),
                      lambda lib: lib.optim.SGD([p(lib)]).load_state_dict(lib.optim.SGD([p(lib), p(lib)]).state_dict()),
                      lambda lib: lib.optim.SGD([p(lib)]).load_state_dict(
                          lib.optim.SGD([{"params": [p(lib)]}, {"params": [p(lib)]}]).state_dict())]:
        ours, theirs = same_error(statement)
        assert ours.replace("tally", "torch") == theirs


def test_narrow_parameters_have_wide_state():
    p = tally.nn.Parameter(tally.ones(4, dtype=tally.bfloat16))
    optimizer = tally.optim.Adam([p], lr=0.1)
    p.grad = tally.ones(4, dtype=tally.bfloat16)
    optimizer.step()
    assert p.dtype is tally.bfloat16 and optimizer.state[p]["exp_avg"].dtype is tally.float32
    assert abs(p[0].item() - 0.9) < 0.01


# ---- Schedules ----

SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.9 ** e),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda e: 1 / (e + 1), lambda e: 2.0]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9 + 0.01 * e),
    "step": lambda s, o: s.StepLR(o, 3, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], 0.3),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 4),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.8, 6),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.8),
    "polynomial": lambda s, o: s.PolynomialLR(o, 7, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 6, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4, 2, 0.02),
    "restarts of one length": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3),
    "sequential": lambda s, o: s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 10)], [4]),
    "three": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 20), s.ExponentialLR(o, 0.7), s.StepLR(o, 2)],
                                         [3, 8]),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
    "one cycle": lambda s, o: s.OneCycleLR(o, 1.0, total_steps=15),
    "one cycle, linear in three": lambda s, o: s.OneCycleLR(o, [1.0, 2.0], epochs=5, steps_per_epoch=3,
                                                            anneal_strategy="linear", three_phase=True),
}


def rates_of(lib, name, n=14):
    ps = parameters(lib)
    for p in ps:
        p.grad = lib.zeros_like(p)
    optimizer = lib.optim.SGD([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.3}], lr=0.1, momentum=0.9)
    scheduler = SCHEDULES[name](lib.optim.lr_scheduler, optimizer)
    rates = []
    for _ in range(n):
        rates.append([(g["lr"], g["momentum"]) for g in optimizer.param_groups])
        assert scheduler.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        optimizer.step()
        scheduler.step()
    return rates, scheduler, optimizer


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours, a, _ = rates_of(tally, name)
    theirs, b, _ = rates_of(torch, name)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert len({str(x) for x in ours}) > 1
    if name not in ("chained", "one cycle", "one cycle, linear in three"):
        assert set(a.state_dict()) == set(b.state_dict())


@pytest.mark.parametrize("name", ["step", "multistep", "cosine", "restarts", "sequential", "exponential"])
def test_a_schedule_goes_on_from_its_state(name):
    whole, _, _ = rates_of(tally, name, 12)
    _, scheduler, optimizer = rates_of(tally, name, 5)
    fresh, again, o = rates_of(tally, name, 0)
    again.load_state_dict(scheduler.state_dict())
    o.load_state_dict(optimizer.state_dict())
    rest = []
    for _ in range(7):
        rest.append([(g["lr"], g["momentum"]) for g in o.param_groups])
        o.step()
        again.step()
    np.testing.assert_allclose(rest, whole[5:], rtol=1e-12)


def test_schedule_warnings_and_errors():
    p = tally.nn.Parameter(tally.ones(2))
    scheduler = tally.optim.lr_scheduler.StepLR(tally.optim.SGD([p]), 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    def sgd(lib, **options):
        return lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], **options)

    for statement in [lambda lib: lib.optim.lr_scheduler.StepLR(3, 2),
                      lambda lib: lib.optim.lr_scheduler.LambdaLR(sgd(lib), [abs, abs]),
                      lambda lib: lib.optim.lr_scheduler.LinearLR(sgd(lib), 2.0),
                      lambda lib: lib.optim.lr_scheduler.StepLR(sgd(lib), 2, last_epoch=3),
                      lambda lib: lib.optim.lr_scheduler.CosineAnnealingWarmRestarts(sgd(lib), 0),
                      lambda lib: lib.optim.lr_scheduler.OneCycleLR(sgd(lib, momentum=0.9), 1.0)]:
        same_error(statement)
