"""Random ops and casts beside PyTorch: shapes, dtypes, refusals, and what both must agree on although they draw other
numbers. Distributions themselves are checked in tests/test_random.c."""
import numpy as np
import pytest
import torch

from tally_c import TallyError, tl
from torch_peer import NUMPY, TORCH, from_torch, outcome, to_torch

FLOATS = ["float64", "float32", "float16", "bfloat16"]


@pytest.mark.parametrize("seed", range(200))
def test_multinomial_takes_and_refuses_what_torch_does(seed):
    rng = np.random.default_rng(seed)
    shape = list(rng.integers(1, 6, rng.integers(0, 4)))
    kind = rng.choice(["fine", "zeros", "negative", "nan", "inf", "sparse", "integers"], p=[.4, .1, .1, .1, .1, .1, .1])
    p = rng.uniform(0.1, 1, shape)
    if p.size and kind in ("negative", "nan", "inf"):
        p.reshape(-1)[rng.integers(p.size)] = {"negative": -0.1, "nan": np.nan, "inf": np.inf}[kind]
    if kind == "zeros":
        p[...] = 0
    if kind == "sparse":
        p[rng.uniform(size=p.shape) < 0.5] = 0
    p = p.astype(np.int64 if kind == "integers" else NUMPY[rng.choice(FLOATS)])
    n, replacement = int(rng.integers(-1, 7)), bool(rng.integers(2))
    mine, refused = outcome(lambda: tl.multinomial(tl.tensor(p), n, replacement))
    theirs, torch_refused = outcome(lambda: torch.multinomial(to_torch(p), n, replacement))
    # Where weights are zero, torch's CPU path draws categories of weight 0, although its documentation says that it
    # refuses them.
    if kind in ("zeros", "sparse") and torch_refused is None and refused is not None:
        assert "invalid multinomial distribution" in str(refused)
        return
    assert (refused is None) == (torch_refused is None), (shape, kind, n, replacement, refused, torch_refused)
    if refused is None:
        assert mine.shape == tuple(theirs.shape) and mine.dtype == np.int64
        ids = mine.numpy().reshape(-1, n)
        rows = p.astype(np.float64).reshape(-1, p.shape[-1])
        assert all(rows[r, k] > 0 for r in range(len(ids)) for k in ids[r])
        assert replacement or all(len(set(row)) == n for row in ids)


@pytest.mark.parametrize("message", ["cannot sample n_sample <= 0 samples",
                                     "cannot sample n_sample > prob_dist.size\\(-1\\) samples without replacement",
                                     "prob_dist must be 1 or 2 dim",
                                     "probability tensor contains either `inf`, `nan` or element < 0"])
def test_multinomial_refuses_in_torchs_words(message):
    p, n = {"cannot sample n_sample <": (np.ones(3), 0), "cannot sample n_sample >": (np.ones(3), 4),
            "prob_dist must be 1 or 2": (np.ones((2, 2, 2)), 2),
            "probability tensor conta": (np.array([1, -1.0]), 1)}[message[:24]]
    with pytest.raises(TallyError, match=message):
        tl.multinomial(tl.tensor(p), n, False)
    with pytest.raises(RuntimeError, match=message):
        torch.multinomial(torch.from_numpy(p), n, False)


@pytest.mark.parametrize("name", FLOATS)
def test_truncated_normals_agree_with_torch_in_distribution(name):
    n = 200_000
    mine = tl.trunc_normal(1, [n], 0.5, 2.0, -1.0, 3.0, NUMPY[name], None).numpy().astype(np.float64)
    theirs = torch.nn.init.trunc_normal_(torch.empty(n, dtype=torch.float64), 0.5, 2.0, -1.0, 3.0).numpy()
    assert mine.min() >= -1 and mine.max() <= 3
    edges = np.linspace(-1, 3, 41)
    a, b = np.histogram(mine, edges)[0] / n, np.histogram(theirs, edges)[0] / n
    if name in ("float64", "float32"):
        assert np.abs(a - b).max() < 5 * np.sqrt(2 * 0.035 / n)
    assert abs(mine.mean() - theirs.mean()) < 0.02 and abs(mine.std() - theirs.std()) < 0.02


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_saturating_casts_equal_a_clamp_in_torch(name, target):
    x = (np.random.default_rng(2).standard_normal(4096) * 10.0 ** np.random.default_rng(3).integers(-8, 8, 4096))
    with np.errstate(over="ignore"):
        x = x.astype(NUMPY[name])
    limit = torch.finfo(TORCH[target]).max
    if name == target:
        return
    mine = tl.round_to(tl.tensor(x), NUMPY[target], tl.SATURATE).numpy()
    theirs = from_torch(to_torch(x).double().clamp(-limit, limit).to(TORCH[target]))
    exact = to_torch(x).double().clamp(-limit, limit).numpy()
    differs = mine.astype(np.float64) != theirs.astype(np.float64)
    # torch goes from f64 through f32; where that rounds twice, ours is the nearer one.
    assert (np.abs(mine.astype(np.float64) - exact) <= np.abs(theirs.astype(np.float64) - exact)).all()
    assert differs.mean() < (0.01 if name == "float64" else 1e-9)


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_stochastic_casts_pick_one_of_two_neighbours(target):
    x = np.random.default_rng(4).uniform(-6, 6, (50, 40)).astype(np.float32)
    got = tl.round_to(tl.tensor(x), NUMPY[target], tl.STOCHASTIC).numpy()
    down = from_torch(torch.from_numpy(x).to(TORCH[target])).astype(np.float64)
    gap = (torch.finfo(TORCH[target]).eps
           * 2.0 ** np.floor(np.log2(np.maximum(np.abs(x), torch.finfo(TORCH[target]).tiny))))
    got = got.astype(np.float64)
    assert (np.abs(got - x) < gap).all() and (got != down).any()
    assert got.shape == x.shape
    exact = tl.round_to(tl.tensor(down.astype(np.float32)), NUMPY[target], tl.STOCHASTIC).numpy()
    assert np.array_equal(exact.astype(np.float64), down)


def test_gradients_pass_through_casts_with_a_mode():
    x = tl.requires_grad(tl.tensor(np.array([1.3, -2.7, 100.0], np.float32)), True)
    y = tl.round_to(x, NUMPY["bfloat16"], tl.STOCHASTIC)
    tl.backward(tl.sum_all(y), None, 0)
    t = torch.tensor([1.3, -2.7, 100.0], requires_grad=True)
    t.to(torch.bfloat16).sum().backward()
    assert np.array_equal(x.grad.numpy(), t.grad.numpy()) and x.grad.dtype == np.float32


@pytest.mark.parametrize("n", [0, 1, 2, 17, 5000])
def test_permutations_are_permutations(n):
    mine, theirs = tl.permutation(n, None), torch.randperm(n)
    assert mine.shape == tuple(theirs.shape) and mine.dtype == np.int64
    assert np.array_equal(np.sort(mine.numpy()), np.sort(theirs.numpy()))


def test_in_place_fills_take_the_dtypes_torch_takes():
    for name in NUMPY:
        if name in ("float8_e8m0fnu", "uint16"):
            continue
        for fill in ("uniform_", "normal_", "bernoulli_"):
            arguments = (0.5,) if fill == "bernoulli_" else (0.0, 1.0)
            zeros = np.zeros(4, NUMPY[name])
            _, refused = outcome(lambda: getattr(tl, fill)(tl.tensor(zeros), *arguments))
            _, torch_refused = outcome(lambda: getattr(to_torch(zeros), fill)(*arguments))
            if name.startswith("float8"):  # we fill these too
                assert refused is None
            else:
                assert (refused is None) == (torch_refused is None), (name, fill, refused, torch_refused)
