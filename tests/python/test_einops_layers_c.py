"""tl_nn_rearrange, tl_nn_reduce and tl_nn_einmix against the einops package's layers for torch: values, gradients,
shapes and ranges of parameters, printed text, prices, errors."""
import ctypes
import math

import einops.layers.torch as layers
import numpy as np
import pytest
import torch
from tally_c import TallyError, Tensor, tl


class Module:
    """A tl_module, freed with this object."""

    def __init__(self, name, *arguments):
        self.pointer = getattr(tl, name)(*arguments)

    def __del__(self):
        if getattr(self, "pointer", None):
            tl.library.tl_module_free(self.pointer)

    def __call__(self, x):
        with tl.scope():
            y = Tensor(tl.library.tl_module_forward(self.pointer, x._as_parameter_))
        tl.check()
        return y

    def tensor(self, index):
        pointer = tl.library.tl_module_tensor(self.pointer, index)
        return Tensor(tl.library.tl_keep(pointer)) if pointer else None

    def __str__(self):
        text = ctypes.create_string_buffer(500)
        tl.library.tl_module_print(self.pointer, text, 500)
        return text.value.decode().strip()


def text_of(lengths):
    return ", ".join(f"{k}={v}" for k, v in lengths.items())


def rearrange(pattern, **lengths):
    return Module("nn_rearrange", pattern, text_of(lengths)), layers.Rearrange(pattern, **lengths)


def reduce(pattern, reduction, **lengths):
    return Module("nn_reduce", pattern, reduction, text_of(lengths)), layers.Reduce(pattern, reduction, **lengths)


def einmix(pattern, weight, bias=None, dtype=tl.F64, **lengths):
    torch.manual_seed(0)
    ours = Module("nn_einmix", pattern, weight, bias, text_of(lengths), dtype, None)
    theirs = layers.EinMix(pattern, weight, bias, **lengths)
    for index, parameter in enumerate((theirs.weight, theirs.bias)):
        mine = ours.tensor(index)
        assert (mine is None) == (parameter is None)
        if mine is not None:
            assert mine.numpy().shape == tuple(parameter.shape)
            with tl.no_grad():
                tl.copy_(mine, tl.tensor(parameter.detach().double().numpy()))
    return ours, theirs.double()


def check(pair, shape):
    """Values and the gradients of input and parameters, in f64."""
    ours, theirs = pair
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    x, y = tl.tensor(values), torch.tensor(values, requires_grad=True)
    tl.requires_grad(x, True)
    out, want = ours(x), theirs(y)
    np.testing.assert_allclose(out.numpy(), want.detach().numpy(), rtol=1e-12, atol=1e-12)
    seed = np.random.default_rng(1).standard_normal(tuple(want.shape))
    parameters = [p for p in (ours.tensor(0), ours.tensor(1)) if p is not None]
    gradients = tl.gradients_of(out, [x, *parameters], tl.tensor(seed))
    wanted = torch.autograd.grad(want, [y, *theirs.parameters()], torch.tensor(seed))
    for g, w in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-11, atol=1e-11)
    assert str(ours) == repr(theirs)


REARRANGES = [("b c h w -> b (c h w)", {}, (2, 3, 4, 5)), ("b (h d) ... -> b h ... d", {"h": 2}, (3, 8, 5)),
              ("a b -> b a 1", {}, (3, 4)), ("b (c i j) h w -> b c (h i) (w j)", {"i": 2, "j": 3}, (2, 12, 4, 5)),
              ("... -> (...)", {}, (2, 3, 4))]
REDUCES = [("b (h 2) (w 2) -> b h w", "max", {}, (2, 4, 6)), ("b c ... -> b c", "mean", {}, (2, 3, 4, 5)),
           ("a b -> ", "sum", {}, (3, 4)), ("b (t p) c -> c t b", "sum", {"p": 5}, (2, 10, 3)),
           ("a b -> a", "min", {}, (4, 5))]
EINMIXES = [
    ("b t cin -> b t cout", "cin cout", "cout", dict(cin=5, cout=7), (2, 3, 5)),
    ("b t cin -> b t cout", "cin cout", None, dict(cin=5, cout=7), (2, 3, 5)),
    ("b t (head cin) -> b t (head cout)", "head cin cout", "head cout", dict(head=2, cin=3, cout=4), (2, 5, 6)),
    ("h w c -> hout w c", "h hout", "hout", dict(h=6, hout=5), (6, 4, 3)),
    ("t b c -> t b c", "c", None, dict(c=4), (2, 3, 4)),
    ("b h w c -> b (h w) d", "c d", "d", dict(c=3, d=5), (2, 4, 3, 3)),
    ("b (t p) c -> b t q d", "p c q d", "q d", dict(p=2, c=3, q=2, d=4), (2, 6, 3)),
    ("... c -> ... d", "c d", "d", dict(c=4, d=3), (2, 5, 4)),
    ("... c -> ... d", "c d", "d", dict(c=4, d=3), (4,)),
    ("b ... c -> b (...) d", "c d", "d", dict(c=4, d=3), (2, 3, 5, 4)),
    ("b 1 c -> b c 1 d", "c d", "c d", dict(c=4, d=3), (2, 1, 4)),
    ("b c -> b", "c", None, dict(c=6), (3, 6)),
    ("b c -> c b", "", None, dict(), (3, 6)),
    ("b (c d) -> b d c", "c", "c", dict(c=2, d=3), (4, 6)),
]


@pytest.mark.parametrize("pattern, lengths, shape", REARRANGES, ids=str)
def test_rearrange_is_the_packages(pattern, lengths, shape):
    check(rearrange(pattern, **lengths), shape)


@pytest.mark.parametrize("pattern, reduction, lengths, shape", REDUCES, ids=str)
def test_reduce_is_the_packages(pattern, reduction, lengths, shape):
    check(reduce(pattern, reduction, **lengths), shape)


@pytest.mark.filterwarnings("ignore:EinMix")
@pytest.mark.parametrize("pattern, weight, bias, lengths, shape", EINMIXES, ids=str)
def test_einmix_is_the_packages(pattern, weight, bias, lengths, shape):
    check(einmix(pattern, weight, bias, **lengths), shape)


@pytest.mark.parametrize("pattern, weight, fan_in",
                         [("b c -> b d", "c d", 300), ("b c -> b c", "c", 1), ("b c h -> b d", "c h d", 900)])
def test_einmix_begins_in_the_packages_range(pattern, weight, fan_in):
    lengths = {name: {"c": 300, "d": 40, "h": 3}[name] for name in weight.split()}
    ours = Module("nn_einmix", pattern, weight, None, text_of(lengths), tl.F32, None)
    values, bound = ours.tensor(0).numpy(), math.sqrt(3 / fan_in)
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() > 0.97 * bound
    assert abs(values.mean()) < 0.15 * bound


def test_the_biass_range():
    ours = Module("nn_einmix", "b c -> b d", "c d", "d", "c=16 d=4000", tl.F32, None)
    bias = np.abs(ours.tensor(1).numpy())
    assert 0.99 * 0.25 < bias.max() <= 0.25


def test_price_is_receipt():
    def totals(device):
        with tl.scope():
            module = Module("nn_einmix", "b (t p) c -> b t (q d)", "p c q d", "q d", "p=2 c=3 q=2 d=4", tl.F32, device)
            x = tl.zeros(3, [2, 6, 3], tl.F32, device)
            ledger = tl.library.tl_ledger_begin(b"layers")
            module(x)
            tl.library.tl_ledger_end(ledger)
            all = tl.library.tl_ledger_total(ledger, -1, None)
            got = [tl.library.tl_count_value(f) for f in (all.flops, all.bytes_read, all.bytes_written)] + [all.calls]
            tl.library.tl_ledger_free(ledger)
        return got
    meta = tl.library.tl_device_find(b"meta")
    assert totals(meta) == totals(None)
    assert totals(meta)[0] > 2 * 2 * 3 * 6 * 8  # the product, and the bias


MISTAKES = [
    (("b c -> b d", "c", None, "c=2"), 'neither on the left side nor in the weight'),
    (("b ... c -> b d", "c d", None, "c=2 d=2"), "an ellipsis on one side only"),
    (("b (... c) -> b ... d", "c d", None, "c=2 d=2"), "an ellipsis in parentheses on the left"),
    (("b c -> b d", "c d ...", None, "c=2 d=2"), "an ellipsis in the shape of the weight"),
    (("b 2 c -> b d", "c d", None, "c=2 d=2"), "an axis of size 2 without a name"),
    (("b c -> b d", "(c d)", None, "c=2 d=2"), "need names only"),
    (("b c -> b d", "c 1 d", None, "c=2 d=2"), "need names only"),
    (("b c -> b d", "c d", None, "c=2"), 'axis "d" needs a length'),
    (("b c -> b d", "c d", None, "c=2 d=0"), "has length 0"),
    (("b c -> b d", "c d", None, "c=2 d=2 e=3"), 'a length is given for "e"'),
    (("b c -> b d", "c d e", None, "c=2 d=2 e=3"), 'axis "e" is on neither side'),
    (("b c -> b d", "c d", "c", "c=2 d=2"), 'axis "c" is not in the output'),
    (("b c -> b d", "c d", "b", "c=2 d=2"), 'axis "b" needs a length'),
    (("b ... c -> d ... b", "c d", "d", "c=2 d=2"), "comes before the ellipsis"),
    (("b c", "c", None, "c=2"), "there is no arrow"),
    (("b c -> b d", "c (d", None, "c=2 d=2"), "parentheses"),
    (("b c -> b d", "c d", None, "c=2 d=x"), "a size is a whole number"),
    ((None, "c d", None, None), "got NULL"),
    (("b c -> b d", None, None, None), "got NULL"),
]


@pytest.mark.parametrize("arguments, words", MISTAKES, ids=lambda a: str(a)[:40])
def test_mistakes_are_found_when_the_module_is_made(arguments, words):
    with pytest.raises(TallyError) as error:
        tl.nn_einmix(*arguments, tl.F32, None)
    assert words in str(error.value)


def test_mistakes_of_rearrange_and_reduce():
    for call, arguments, words in [("nn_rearrange", ("a b -> a", None), "on the left side only"),
                                   ("nn_rearrange", (None, None), "got NULL"),
                                   ("nn_rearrange", ("a (b c) -> a b c", None), "cannot both be inferred"),
                                   ("nn_reduce", ("a b -> a", "median", None), "no reduction"),
                                   ("nn_reduce", ("a b -> a", None, None), "no reduction"),
                                   ("nn_reduce", ("a b -> a", "sum", "c=2"), "not in the pattern")]:
        with pytest.raises(TallyError) as error:
            getattr(tl, call)(*arguments)
        assert words in str(error.value)
    with pytest.raises(TallyError):
        Module("nn_rearrange", "a b -> b a", "")(tl.tensor(np.zeros((2, 3, 4))))
