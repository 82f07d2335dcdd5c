"""Optimizers that torch.optim has not, or has since 2.5, over 200 steps: beside torch.optim.Muon and Adafactor, and
beside the formulas of their papers in f64."""
import numpy as np
import pytest
import torch

import tally
from tally_c import TallyError, tl
from test_optim_c import assert_near_path, options_of, optimizer_of, states_of
from test_torch_ops import normal
from torch_peer import NUMPY, from_torch, to_torch

STEPS = 200


def grads_of(rng, shape, name="float32"):
    for step in range(STEPS):
        yield (2 ** -(step / 40) * normal(rng, *shape)).astype(NUMPY[name])


# ---- Lion

def lion(p, m, g, lr, betas, decay):
    """The step of the paper (Chen et al. 2023), in place."""
    update = np.sign(betas[0] * m + (1 - betas[0]) * g)
    p -= lr * (update + decay * p)
    m *= betas[1]
    m += (1 - betas[1]) * g


@pytest.mark.parametrize("name,relative", [("float64", 1e-12), ("float32", 1e-6)])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_lion_is_the_papers(name, relative, decay):
    rng = np.random.default_rng(1)
    start = normal(rng, 7, 5).astype(name)
    ours, p, m = tl.requires_grad(tl.tensor(start), True), start.astype(np.float64), np.zeros((7, 5))
    options = options_of("lion", dict(lr=0.01, weight_decay=decay))
    with optimizer_of("lion", [ours], options) as optimizer:
        for step, grad in enumerate(grads_of(rng, (7, 5), name)):
            tl.set_grad(ours, tl.tensor(grad))
            assert tl.optimizer_step(optimizer, 1.0, None)
            lion(p, m, grad.astype(np.float64), 0.01, (0.9, 0.99), decay)
            assert np.abs(ours.numpy() - p).max() < relative * (1 + step / 4) * np.abs(start).max(), f"step {step}"


def test_one_step_of_lion_by_itself():
    rng = np.random.default_rng(2)
    p, m, g = (normal(rng, 4, 3).astype(np.float64) for _ in range(3))
    ours, state = tl.tensor(p), tl.tensor(m)
    options = tl.lion_defaults()
    options.weight_decay = 0.1
    assert tl.lion_(ours, tl.tensor(g), state, options)
    lion(p, m, g, options.lr, (options.beta1, options.beta2), 0.1)
    np.testing.assert_allclose(ours.numpy(), p, rtol=1e-13)
    np.testing.assert_allclose(state.numpy(), m, rtol=1e-13)


# ---- Muon

def muon(p, buffer, g, lr, momentum, decay, nesterov, match):
    """torch.optim.Muon in f64: what both are compared with."""
    buffer += (1 - momentum) * (g - buffer)
    x = g + momentum * (buffer - g) if nesterov else buffer.copy()
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    x = x.T if is_tall else x
    rows, columns = p.shape
    ratio = 0.2 * np.sqrt(max(rows, columns)) if match else np.sqrt(max(1, rows / columns))
    p *= 1 - lr * decay
    p -= lr * ratio * x


CASES = [((24, 40), dict()), ((40, 24), dict(nesterov=False)), ((16, 16), dict(momentum=0.8, weight_decay=0.0)),
         ((48, 8), dict(matches_adamw=True)), ((3, 9), dict())]


@pytest.mark.parametrize("shape,given", CASES)
def test_muon_is_torchs(shape, given):
    """Products are bf16 in both: ours stays within twice torch's distance from the exact iterations. f64 is exact."""
    rng = np.random.default_rng(2)
    start = normal(rng, *shape).astype(np.float32)
    ours, wide = (tl.requires_grad(tl.tensor(start.astype(kind)), True) for kind in (np.float32, np.float64))
    theirs = to_torch(start).requires_grad_()
    exact, buffer = start.astype(np.float64), np.zeros(shape)
    o = dict(lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.1) | given
    match, torchs = o.pop("matches_adamw", False), 0
    peer = torch.optim.Muon([theirs], **o, adjust_lr_fn="match_rms_adamw" if match else None)
    options = options_of("muon", dict(o, matches_adamw=match))
    with optimizer_of("muon", [ours], options) as narrow, optimizer_of("muon", [wide], options) as exactly:
        for step, grad in enumerate(grads_of(rng, shape)):
            tl.set_grad(ours, tl.tensor(grad))
            tl.set_grad(wide, tl.tensor(grad.astype(np.float64)))
            theirs.grad = to_torch(grad)
            peer.step()
            assert tl.optimizer_step(narrow, 1.0, None) and tl.optimizer_step(exactly, 1.0, None)
            muon(exact, buffer, grad.astype(np.float64), o["lr"], o["momentum"], o["weight_decay"], o["nesterov"],
                 match)
            # squaring singular values five times amplifies roundings where they are small
            assert np.abs(wide.numpy() - exact).max() < 1e-9, f"step {step}"
            torchs = max(torchs, np.linalg.norm(from_torch(theirs) - exact))
            error = np.linalg.norm(ours.numpy() - exact)
            assert error <= 2 * torchs + 1e-6 * np.linalg.norm(exact), f"step {step}"
        assert sorted(states_of(narrow)) == ["momentum_buffer.p0"]


def test_muon_leaves_vectors_and_what_says_so_to_adamw():
    rng = np.random.default_rng(3)
    shapes, values = [(6, 4), (4,), (5, 3)], []
    for shape in shapes:
        values.append(normal(rng, *shape).astype(np.float32))
    ours = [tl.requires_grad(tl.tensor(v), True) for v in values]
    theirs = [to_torch(v).requires_grad_() for v in values]
    peer = torch.optim.AdamW(theirs[1:], lr=0.01, weight_decay=0.1, foreach=False)
    options = [options_of("muon", dict(lr=0.01, adamw=i == 2)) for i in range(3)]
    with optimizer_of("muon", ours, options) as optimizer:
        for _ in range(20):
            for p, q in zip(ours, theirs):
                grad = normal(rng, *q.shape).astype(np.float32)
                tl.set_grad(p, tl.tensor(grad))
                q.grad = to_torch(grad)
            peer.step()
            assert tl.optimizer_step(optimizer, 1.0, None)
        assert sorted(states_of(optimizer)) == ["exp_avg.p1", "exp_avg.p2", "exp_avg_sq.p1", "exp_avg_sq.p2",
                                                "momentum_buffer.p0"]
        for p, q, v in list(zip(ours, theirs, values))[1:]:
            assert_near_path(p.numpy(), from_torch(q), v, "AdamW", 1e-6)


def test_muon_refuses():
    p, s = (tl.tensor(np.ones((3, 3), np.float32)) for _ in range(2))
    vector = tl.tensor(np.ones(3, np.float32))
    with pytest.raises(TallyError, match="the parameter has rank 1"):
        tl.muon_(vector, vector, vector, tl.muon_defaults())
    options = tl.muon_defaults()
    options.ns_steps = 100
    with pytest.raises(TallyError, match="0 to 99 steps"):
        tl.muon_(p, p, s, options)


# ---- Adafactor

SHAPES = [(7, 5), (6,), (2, 3, 4), (1, 8), ()]


def adafactor_pair(rng, name, given, **more):
    """Parameters of ours and of torch's; narrow ones have f32 peers, as their master copies are."""
    wide = np.float64 if name == "float64" else np.float32
    starts = [normal(rng, *shape).astype(NUMPY[name]) for shape in SHAPES]
    ours = [tl.requires_grad(tl.tensor(x), True) for x in starts]
    theirs = [to_torch(x.astype(wide)).requires_grad_() for x in starts]
    o = dict(given)
    eps1, o["eps2"] = o.pop("eps", (None, 1e-3))
    options = options_of("adafactor", dict(o, **more) | ({} if eps1 is None else dict(eps=eps1)))
    return ours, theirs, torch.optim.Adafactor(theirs, foreach=False, **given), options


@pytest.mark.parametrize("name,relative", [("float64", 1e-12), ("float32", 1e-6), ("bfloat16", 1e-6)])
@pytest.mark.parametrize("given", [dict(), dict(lr=0.05, weight_decay=0.3),
                                   dict(d=2.0, beta2_decay=-0.5, lr=2.0, eps=(1e-3, 0.5))])
def test_adafactor_is_torchs(name, relative, given):
    """Parameters are within (1 + step / 4) `relative` of the largest number that they had; of narrow ones, the master
    copies."""
    rng = np.random.default_rng(21)
    ours, theirs, peer, options = adafactor_pair(rng, name, given, has_master=True)
    factor = lambda step: 1 - 0.5 * step / STEPS
    schedule = torch.optim.lr_scheduler.LambdaLR(peer, factor)
    wide, largest = np.float64 if name == "float64" else np.float32, [0] * len(ours)
    with optimizer_of("adafactor", ours, options) as optimizer:
        states = states_of(optimizer)
        for step in range(STEPS):
            for p, q in zip(ours, theirs):
                grad = np.asarray(2 ** -(step / 40) * normal(rng, *q.shape)).astype(NUMPY[name])
                tl.set_grad(p, tl.tensor(grad))
                q.grad = to_torch(grad.astype(wide))
            peer.step()
            schedule.step()
            assert tl.optimizer_step(optimizer, factor(step), None)
            for i, (p, q) in enumerate(zip(ours, theirs)):
                got = numbers(states[f"master.p{i}"], q.shape, wide) if name == "bfloat16" else p.numpy()
                assert np.array_equal(p.numpy(), got.astype(NUMPY[name]))
                largest[i] = max(largest[i], np.abs(from_torch(q)).max())
                apart = np.abs(got - from_torch(q)).max()
                assert apart <= relative * (1 + step / 4) * largest[i], f"step {step} parameter {i}"
        for i, q in enumerate(theirs):
            for what in ("row_var", "col_var") if q.ndim >= 2 else ("variance",):
                want = peer.state[q][what].numpy()
                np.testing.assert_allclose(numbers(states[f"{what}.p{i}"], want.shape, wide), want, rtol=20 * relative)
        assert len(states) == 2 * 3 + 2 + (len(SHAPES) if name == "bfloat16" else 0)


def test_adafactor_clips_and_refuses_what_is_not_finite():
    """Clipping by the norm of all, as torch's; a norm that is not finite changes no bit."""
    rng = np.random.default_rng(22)
    ours, theirs, peer, options = adafactor_pair(rng, "float32", dict(weight_decay=0.1))
    with optimizer_of("adafactor", ours, options) as optimizer:
        states = states_of(optimizer)
        for step in range(50):
            for p, q in zip(ours, theirs):
                grad = np.asarray(2 ** (3 - step / 5) * normal(rng, *q.shape)).astype(np.float32)
                tl.set_grad(p, tl.tensor(np.asarray(4 * grad)))  # of four micro-batches
                q.grad = to_torch(grad)
            norm = torch.nn.utils.clip_grad_norm_(theirs, 1.0, foreach=False)
            scale = tl.clip_scale(tl.grad_norm(ours, len(ours)), 1.0, 4.0)
            peer.step()
            assert tl.optimizer_step(optimizer, 1.0, scale)
            for p, q in zip(ours, theirs):
                np.testing.assert_allclose(p.numpy(), from_torch(q), rtol=0, atol=1e-6 * (1 + step / 4) * 3)
        assert float(norm) < 1
        shapes = {f"{what}.p{i}": tuple(x.shape) for i, q in enumerate(theirs) for what, x in peer.state[q].items()}
        everything = lambda: [p.numpy().tobytes() for p in ours] + [
            numbers(states[name], shapes[name], np.float32).tobytes() for name in states]
        before = everything()
        for bad in (np.inf, np.nan):
            assert tl.optimizer_step(optimizer, 1.0, tl.tensor(np.float32(bad)))
            assert everything() == before
        assert tl.optimizer_step(optimizer, 1.0, tl.tensor(np.float32(0.5)))
        assert everything() != before


def test_one_step_of_adafactor_by_itself():
    p, row, column, wrong = (np.ones(shape, np.float32) for shape in ((4, 3), (4, 1), (1, 3), (3, 1)))
    vector = tl.tensor(np.ones(3, np.float32))
    ours, states = tl.tensor(p), [tl.tensor(np.zeros_like(x)) for x in (row, column)]
    assert tl.adafactor_(ours, tl.tensor(2 * p), *states, None, tl.adafactor_defaults())
    np.testing.assert_allclose(ours.numpy(), 0.99, rtol=1e-6)  # rms(p) 1, u 1, lr 0.01
    assert (states[0].numpy() == 4).all() and (states[1].numpy() == 4).all()
    with pytest.raises(TallyError, match="rank 2 needs row and column, and no variance"):
        tl.adafactor_(ours, ours, None, None, ours, tl.adafactor_defaults())
    with pytest.raises(TallyError, match="rank 1 needs a variance, and neither row nor column"):
        tl.adafactor_(vector, vector, vector, vector, None, tl.adafactor_defaults())
    with pytest.raises(TallyError, match="row must have the parameter's shape, with 1 for its last axis"):
        tl.adafactor_(ours, ours, tl.tensor(wrong), states[1], None, tl.adafactor_defaults())
    options = tl.adafactor_defaults()
    options.d = 0.5
    with pytest.raises(TallyError, match="d 0.5"):
        tl.adafactor_(ours, ours, *states, None, options)


# ---- AdamW with bf16 moments

def rounded(x):
    return x.astype(NUMPY["bfloat16"]).astype(np.float32)


@pytest.mark.parametrize("kind,decay", [("adamw", 0.2), ("adam", 0.0)])
def test_narrow_moments_are_adams_rounded_to_bf16(kind, decay):
    """The formula in f64, with moments that are rounded to the nearest bf16 number after every step."""
    rng = np.random.default_rng(4)
    start = normal(rng, 7, 5).astype(np.float32)
    ours, p = tl.requires_grad(tl.tensor(start), True), start.astype(np.float64)
    m, v = (np.zeros((7, 5), np.float32) for _ in range(2))
    options = options_of(kind, dict(lr=0.01, betas=(0.9, 0.95), weight_decay=decay, moment_bits=16))
    with optimizer_of(kind, [ours], options) as optimizer:
        for step, grad in enumerate(grads_of(rng, (7, 5)), 1):
            tl.set_grad(ours, tl.tensor(grad))
            assert tl.optimizer_step(optimizer, 1.0, None)
            first = (m + np.float32(1 - 0.9) * (grad - m)).astype(np.float32)
            second = np.float32(0.95) * v + np.float32(1 - 0.95) * (grad * grad)
            root = np.sqrt(second / (1 - 0.95 ** step)) + 1e-8
            p = p * (1 - 0.01 * decay) - 0.01 / (1 - 0.9 ** step) * first / root
            m, v = rounded(first), rounded(second)
            # an f32 number beside the middle of two bf16 numbers may be rounded to either
            assert np.abs(ours.numpy() - p).max() < 1e-4, f"step {step}"
            assert np.median(np.abs(ours.numpy() - p)) < 1e-6 * (1 + step / 4), f"step {step}"
        for name, state in states_of(optimizer).items():
            got = np.empty((7, 5), NUMPY["bfloat16"])
            assert tl.to_data(state, got.ctypes.data, got.nbytes), name


# ---- AdamW with 8-bit moments

@pytest.mark.parametrize("kind,decay", [("AdamW", 0.2), ("Adam", 0.1)])
def test_8bit_moments_are_torchaos(kind, decay, monkeypatch):
    """torchao's optimizer, uncompiled, with f32 moments of the small parameter. A moment beside the middle of two codes
    may get either, and the element then takes another path: within one update, 0.01."""
    torchao = pytest.importorskip("torchao.optim")
    monkeypatch.setattr(torch, "compile", lambda f, **_: f)
    rng = np.random.default_rng(14)
    shape = (32, 160)  # 20 blocks
    start, small = normal(rng, *shape).astype(np.float32), normal(rng, 7, 5).astype(np.float32)
    ours = [tl.requires_grad(tl.tensor(x), True) for x in (start, small)]
    theirs = [torch.nn.Parameter(torch.from_numpy(x.copy())) for x in (start, small)]
    package = getattr(torchao, kind + "8bit")(theirs, lr=0.01, betas=(0.9, 0.99), weight_decay=decay)
    options = options_of(kind.lower(), dict(lr=0.01, betas=(0.9, 0.99), weight_decay=decay, moment_bits=8))
    with optimizer_of(kind.lower(), ours, options) as optimizer:
        for step, grad in enumerate(grads_of(rng, shape)):
            for mine, other, g in zip(ours, theirs, (grad, grad[:7, :5].copy())):
                tl.set_grad(mine, tl.tensor(g))
                other.grad = torch.from_numpy(g)
            assert tl.optimizer_step(optimizer, 1.0, None)
            package.step()
            apart = np.abs(ours[0].numpy() - theirs[0].detach().numpy())
            assert np.quantile(apart, 0.995) < 2e-5 and apart.max() < 0.01, f"step {step}"
            np.testing.assert_allclose(ours[1].numpy(), theirs[1].detach().numpy(), rtol=1e-5, atol=2e-5)
        states, reference = states_of(optimizer), package.state[theirs[0]]
        assert sorted(states) == ["exp_avg.p0", "exp_avg.p1", "exp_avg_scale.p0", "exp_avg_sq.p0", "exp_avg_sq.p1",
                                  "exp_avg_sq_scale.p0"]
        for name in ("exp_avg", "exp_avg_sq"):
            codes, scales = (numbers(states[f"{name}{part}.p0"], size, dtype)
                             for part, size, dtype in (("", shape, "uint8"), ("_scale", 20, "float32")))
            assert (codes == reference[name].codes.numpy()).mean() > 0.999
            np.testing.assert_allclose(scales, reference[name].scale.numpy(), rtol=1e-5)


# ---- Schedule-free AdamW

class ScheduleFree:
    """AdamWScheduleFree of the package schedulefree, for one tensor, with a learning rate for each step."""
    def __init__(self, p, weight_decay=0.0):
        package = pytest.importorskip("schedulefree")
        self.y = torch.nn.Parameter(p.clone())
        self.package = package.AdamWScheduleFree([self.y], lr=1.0, weight_decay=weight_decay)
        self.package.train()

    def step(self, grad, lr):
        self.package.param_groups[0]["lr"] = lr
        self.y.grad = grad.clone()
        self.package.step()

    def state(self, name):
        return self.package.state[self.y][name].numpy()

    def values(self, is_averaged=False):
        if is_averaged:
            self.package.eval()
        values = self.y.detach().numpy().copy()
        self.package.train()
        return values


@pytest.mark.parametrize("name,relative", [("float64", 1e-11), ("float32", 1e-5)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_schedule_free_is_the_packages(name, relative, decay):
    rng = np.random.default_rng(11)
    start = normal(rng, 7, 5).astype(name)
    ours, theirs = tl.requires_grad(tl.tensor(start), True), ScheduleFree(torch.from_numpy(start), weight_decay=decay)
    options = options_of("schedule_free", dict(lr=0.01, weight_decay=decay))
    with optimizer_of("schedule_free", [ours], options) as optimizer:
        for step, grad in enumerate(grads_of(rng, (7, 5), name)):
            factor = min(1.0, (step + 1) / 20) * (0.5 if step > 150 else 1)  # a warm-up; a lower rate than the largest
            tl.set_grad(ours, tl.tensor(grad))
            assert tl.optimizer_step(optimizer, factor, None)
            theirs.step(torch.from_numpy(grad), 0.01 * factor)
            np.testing.assert_allclose(ours.numpy(), theirs.values(), rtol=relative, atol=relative,
                                       err_msg=f"step {step}")
        before = ours.numpy().copy()
        assert tl.optimizer_average(optimizer, True)
        np.testing.assert_allclose(ours.numpy(), theirs.values(is_averaged=True), rtol=relative, atol=relative)
        assert np.abs(ours.numpy() - before).max() > 1e-3
        assert tl.optimizer_average(optimizer, False)
        assert np.array_equal(ours.numpy(), before)
        weights = tl.optimizer_get_weights(optimizer)
        weight_sum = theirs.package.param_groups[0]["weight_sum"]
        assert weights.largest == 1.0 and abs(weights.sum * 0.01 ** 2 / weight_sum - 1) < 1e-12


def test_one_step_of_schedule_free_by_itself():
    rng = np.random.default_rng(12)
    p, g = (normal(rng, 4, 3).astype(np.float64) for _ in range(2))
    theirs = ScheduleFree(torch.from_numpy(p.copy()))
    ours, z, v = tl.tensor(p), tl.tensor(p.copy()), tl.tensor(np.zeros_like(p))
    assert tl.schedule_free_(ours, tl.tensor(g), z, v, tl.schedule_free_defaults())
    theirs.step(torch.from_numpy(g), 2.5e-3)
    for mine, reference in ((ours, theirs.values()), (z, theirs.state("z")), (v, theirs.state("exp_avg_sq"))):
        np.testing.assert_allclose(mine.numpy(), reference, rtol=1e-12)


@pytest.mark.parametrize("name,relative", [("float64", 1e-11), ("float32", 2e-5)])
@pytest.mark.parametrize("options", [{}, dict(weight_decay=0.1, warmup_steps=20), dict(r=1.0, betas=(0.8, 0.95)),
                                     dict(weight_lr_power=0.0, lr=0.01, eps=1e-3)])
def test_the_class_of_schedule_free_is_the_packages(name, relative, options):
    """200 steps, with an evaluation and a saved state on the way."""
    package = pytest.importorskip("schedulefree")
    rng = np.random.default_rng(13)
    start = [normal(rng, 7, 5).astype(name), normal(rng, 6).astype(name)]
    ours = [tally.nn.Parameter(tally.from_numpy(x.copy())) for x in start]
    theirs = [torch.nn.Parameter(torch.from_numpy(x.copy())) for x in start]
    mine, reference = tally.optim.AdamWScheduleFree(ours, **options), package.AdamWScheduleFree(theirs, **options)
    with pytest.raises(RuntimeError, match="train mode"):
        mine.step()
    for step in range(200):
        mine.train(), reference.train()
        for p, q in zip(ours, theirs):
            grad = normal(rng, *q.shape).astype(name)
            p.grad, q.grad = tally.from_numpy(grad), torch.from_numpy(grad.copy())
        mine.step(), reference.step()
        if step % 50 == 49:  # the model is the average, and training goes on
            mine.eval(), reference.eval()
            saved = mine.state_dict()
            mine = tally.optim.AdamWScheduleFree(ours, **options)
            mine.load_state_dict(saved)
        for p, q in zip(ours, theirs):
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=relative, atol=relative,
                                       err_msg=f"step {step}")
    with tally.ledger() as bill:
        mine.train()
        for p in ours:
            p.grad = p.detach().clone()
        mine.step()
    assert sum(row["calls"] for row in bill.rows if row["op"] == "schedule_free") == 2  # one op for each parameter
    group = {k: v for k, v in mine.param_groups[0].items() if k not in ("params", "maximize", "foreach")}
    reference.train()
    reference.step()
    assert group == {k: pytest.approx(v) for k, v in reference.param_groups[0].items() if k in group}
    assert set(group) == set(reference.param_groups[0]) - {"params", "foreach"}


# ---- The average of weights

def numbers(state, shape, name):
    got = np.empty(shape, name)
    assert tl.to_data(state, got.ctypes.data, got.nbytes)
    return got


@pytest.mark.parametrize("name,relative", [("float64", 1e-12), ("float32", 3e-6), ("bfloat16", 3e-6)])
def test_the_average_is_that_of_torchs_averaged_model(name, relative):
    """AveragedModel with get_ema_multi_avg_fn, of the same weights (of a narrow one: of its master copy)."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    rng = np.random.default_rng(8)
    start = normal(rng, 6, 5).astype(NUMPY[name])
    ours = tl.requires_grad(tl.tensor(start), True)
    wide = torch.float64 if name == "float64" else torch.float32
    theirs = torch.nn.Linear(5, 6, bias=False, dtype=wide)
    average = AveragedModel(theirs, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    options = options_of("adamw", dict(lr=0.01, ema=0.9, has_master=True))
    with optimizer_of("adamw", [ours], options) as optimizer:
        for step, grad in enumerate(grads_of(rng, (6, 5), name)):
            tl.set_grad(ours, tl.tensor(grad))
            assert tl.optimizer_step(optimizer, 1.0, None)
            states = states_of(optimizer)
            own = numbers(states["master.p0"], (6, 5), "float32") if name == "bfloat16" else ours.numpy().copy()
            with torch.no_grad():
                theirs.weight.copy_(torch.from_numpy(own))
            average.update_parameters(theirs)
            expected = average.module.weight.detach().numpy()
            mean = numbers(states["ema.p0"], (6, 5), expected.dtype)
            np.testing.assert_allclose(mean, expected, rtol=relative, atol=relative,
                                       err_msg=f"step {step}")
        before = ours.numpy().copy()
        assert tl.optimizer_average(optimizer, True)
        assert np.array_equal(ours.numpy(), mean.astype(NUMPY[name]))
        with pytest.raises(TallyError, match="have the values of their averages"):
            tl.optimizer_step(optimizer, 1.0, None)
        assert tl.optimizer_average(optimizer, False)
        assert np.array_equal(ours.numpy(), before)
        assert tl.optimizer_step(optimizer, 1.0, None)


@pytest.mark.parametrize("weight", [0.0, 0.1, 0.75, 1.0])
def test_one_step_of_an_average_is_torchs_lerp(weight):
    rng = np.random.default_rng(9)
    average, x = normal(rng, 4, 3), normal(rng, 4, 3)
    ours = tl.tensor(average)
    assert tl.ema_(ours, tl.tensor(x), weight)
    expected = torch.from_numpy(average.copy()).lerp(torch.from_numpy(x), weight)
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-6, atol=1e-7)


def test_an_average_needs_a_step_and_a_decay_below_1():
    ours = tl.requires_grad(tl.tensor(np.ones(3, np.float32)), True)
    with optimizer_of("sgd", [ours], options_of("sgd", dict(ema=0.5))) as optimizer:
        with pytest.raises(TallyError, match="no step was made"):
            tl.optimizer_average(optimizer, True)
    optimizer = tl.optimizer_new(tl.SGD)
    with pytest.raises(TallyError, match="ema is 1 "):
        tl.optimizer_add(optimizer, "p", ours, options_of("sgd", dict(ema=1.0)))
    tl.optimizer_free(optimizer)
