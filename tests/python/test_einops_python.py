"""tally.einops beside the einops package with torch: functions, layers, errors."""
import pickle

import einops
import einops.layers.torch as theirs_layers
import numpy as np
import pytest
import torch

import tally
import tally.einops as ours
from tally.einops import EinopsError, layers

X = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
CASES = [
    ("rearrange", ("b c h w -> b (c h) w",), {}), ("rearrange", ("b c (h a) w -> b a c h w",), {"a": 2}),
    ("rearrange", ("... w -> w ...",), {}), ("reduce", ("b c h w -> b c", "mean"), {}),
    ("reduce", ("b c (h 2) w -> b c h w", "max"), {}), ("reduce", ("b c h w ->", "sum"), {}),
    ("reduce", ("b c h w -> b c h", "prod"), {}), ("reduce", ("b ... -> b", "mean"), {}),
    ("repeat", ("b c h w -> b c h w d",), {"d": 3}), ("repeat", ("b c h w -> (b r) c h w",), {"r": 2}),
]


@pytest.mark.parametrize("name, args, lengths", CASES)
def test_values_and_gradients(name, args, lengths):
    x, t = tally.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    y, u = getattr(ours, name)(x, *args, **lengths), getattr(einops, name)(t, *args, **lengths)
    np.testing.assert_allclose(y.detach().numpy(), u.detach().numpy(), rtol=1e-5)
    (y * y).sum().backward()
    (u * u).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-5)


def test_a_function_reduces():
    x, t = tally.tensor(X), torch.tensor(X)
    y = ours.reduce(x, "b c (h a) w -> (w b) h", lambda x, axes: x.sum(axes), a=2)
    u = einops.reduce(t, "b c (h a) w -> (w b) h", lambda x, axes: x.sum(tuple(axes)), a=2)
    np.testing.assert_allclose(y.numpy(), u.numpy(), rtol=1e-6)


def test_einsum_in_both_spellings():
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4)), np.random.default_rng(1).standard_normal((2, 4, 5))
    want = np.einsum("bij,bjk->bik", a, b)
    np.testing.assert_allclose(ours.einsum(tally.tensor(a), tally.tensor(b), "b i j, b j k -> b i k").numpy(), want,
                               rtol=1e-12)
    np.testing.assert_allclose(tally.einsum("bij,bjk->bik", tally.tensor(a), tally.tensor(b)).numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(tally.einsum("...ij->...i", tally.tensor(a)).numpy(), a.sum(-1), rtol=1e-12)
    assert "FLOPs" in ours.einsum_plan(tally.tensor(a), tally.tensor(b), "b i j, b j k -> b i k")


def test_pack_unpack_parse_shape_and_lists():
    parts = [X[0], X[0, :, :, 0], X[0].reshape(3, 2, 2, 5)]
    packed, shapes = ours.pack([tally.tensor(p) for p in parts], "c *")
    want, want_shapes = einops.pack([torch.tensor(p) for p in parts], "c *")
    assert np.array_equal(packed.numpy(), want.numpy()) and shapes == [tuple(s) for s in want_shapes]
    for back, part in zip(ours.unpack(packed, shapes, "c *"), parts):
        assert np.array_equal(back.numpy(), part) and back.untyped_storage() == packed.untyped_storage()
    assert ours.parse_shape(tally.tensor(X), "b _ h 5") == {"b": 2, "h": 4}
    assert ours.rearrange([tally.tensor(X[0]), tally.tensor(X[1])], "b c h w -> c b (h w)").shape == (3, 2, 20)


@pytest.mark.parametrize("call, words", [
    (lambda x: ours.rearrange(x, "b c h w -> b c h"), "w"), (lambda x: ours.rearrange(x, "b c h w -> b (c h w", ), "("),
    (lambda x: ours.rearrange(x, "b (c d) h w -> b c d h w", d=2), "d"),
    (lambda x: ours.rearrange(x, "b c h w -> b c h w", z=2), "z"),
    (lambda x: ours.rearrange(x, "b (c d) h w -> b c d h w", d=1.5), "d"),
    (lambda x: ours.reduce(x, "b c h w -> b", "median"), "median"), (lambda x: ours.rearrange([], "a -> a"), "empty"),
    (lambda x: ours.rearrange(7, "a -> a"), "unknown"), (lambda x: ours.einsum(x), "two"),
    (lambda x: ours.einsum(x, x), "pattern"), (lambda x: ours.unpack(x, [(1,), (-1,), (-1,)], "b c h *"), "-1"),
])
def test_mistakes_are_named(call, words):
    with pytest.raises(EinopsError) as caught:
        call(tally.tensor(X))
    assert words in str(caught.value)


LAYERS = [("Rearrange", ("b c h w -> b (c h w)",), {}), ("Reduce", ("b c (h 2) w -> b c h w", "mean"), {}),
          ("EinMix", ("b c h w -> b h w d", "c d"), {"bias_shape": "d", "c": 3, "d": 6}),
          ("EinMix", ("b c ... -> b ... (e f)", "c e f"), {"bias_shape": "e f", "c": 3, "e": 2, "f": 3}),
          ("EinMix", ("b (c k) h w -> b h (w d)", "c k d"), {"c": 3, "k": 1, "d": 2})]


@pytest.mark.parametrize("name, args, options", LAYERS)
def test_layers(name, args, options):
    mine, other = getattr(layers, name)(*args, **options), getattr(theirs_layers, name)(*args, **options)
    assert len(list(mine.parameters())) == len(list(other.parameters()))
    for p, q in zip(mine.parameters(), other.parameters()):
        p.data.copy_(tally.tensor(q.detach().numpy().reshape(tuple(p.shape))))
    np.testing.assert_allclose(mine(tally.tensor(X)).detach().numpy(), other(torch.tensor(X)).detach().numpy(),
                               rtol=1e-4, atol=1e-4)
    assert args[0] in repr(mine)
    again = pickle.loads(pickle.dumps(mine))
    np.testing.assert_array_equal(again(tally.tensor(X)).detach().numpy(), mine(tally.tensor(X)).detach().numpy())


@pytest.mark.parametrize("args, options", [
    (("b c -> b d", "c d"), {"c": 3}), (("b c -> b e", "c d"), {"c": 3, "d": 2}), (("b ... -> b d", "d"), {"d": 2}),
    (("b c -> b d", "c (d)"), {"c": 3, "d": 2}), (("b c -> b d", "c d"), {"c": 3, "d": 2, "z": 1}),
    (("b c -> b d", "c d x"), {"c": 3, "d": 2, "x": 1}), (("b c -> b d", "c d"), {"c": 3, "d": 2, "bias_shape": "c"}),
    (("b c 2 -> b d", "c d"), {"c": 3, "d": 2}), (("b c -> b d", "c d"), {"c": 3, "d": 2, "bias_shape": 7}),
])
def test_wrong_mixes_are_refused_by_both(args, options):
    with pytest.raises(Exception):
        theirs_layers.EinMix(*args, **options)
    with pytest.raises(EinopsError):
        layers.EinMix(*args, **options)
