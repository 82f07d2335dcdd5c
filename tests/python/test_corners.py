"""Corner values, argument forms and refusals: each line is run with PyTorch and with Tally."""
import re
import warnings

import numpy as np
import pytest
import torch

import tally

INF, NAN = float("inf"), float("nan")

SAME = """
t.fmod(t.tensor([-1e-3, 5.5, -5.5, 0.0, 3.0]), 1e8)
t.fmod(t.tensor([-7.0, 7.0, -7.5, 0.1]), t.tensor([3.0, -3.0, 2.5, -0.3]))
t.fmod(t.tensor([-7, 7, -8]), t.tensor([3, -3, 5]))
t.fmod(t.tensor([1.0, INF, NAN, -2.0]), INF)
t.arange(0, end=3)
t.arange(1, end=7, step=2)
t.meshgrid(t.arange(3), indexing="ij")[0]
t.meshgrid([t.arange(3), t.arange(2)], indexing="ij")[1]
t.full_like(t.ones(2), t.tensor(3.0))
t.ones(2).add_(t.ones(2), alpha=t.tensor(2.0))
t.add(t.ones(2), t.ones(2), alpha=t.tensor(3))
t.prod(t.tensor([2.5, 2.0]), dtype=t.int32)
t.cumsum(t.ones(3), 0, dtype=t.int32)
t.cumprod(t.tensor([2.9, 2.0]), 0, dtype=t.int32)
t.hypot(t.tensor([INF, -INF, 3.0, NAN]), t.tensor([NAN, 1.0, 4.0, 1.0]))
t.nn.functional.threshold(t.tensor([NAN, -1.0, 2.0]), 0.5, 7.0)
t.nn.functional.kl_div(t.tensor([0.1, 0.2, 0.3]), t.tensor([-1.0, 0.0, 2.0]), reduction="none")
t.nn.functional.relu6(t.arange(-2, 9))
t.nn.functional.hardtanh(t.arange(-2, 3), -1, 1)
t.clone(t.ones(2), memory_format=t.preserve_format)
t.repeat_interleave(t.arange(3), t.tensor([1, 2, 1]), output_size=4)
t.einsum(t.arange(6.0).reshape(2, 3), [0, 1], t.arange(6.0).reshape(3, 2), [1, 2])
t.einsum(t.arange(6.0).reshape(2, 3), [0, 1], t.arange(6.0).reshape(3, 2), [1, 2], [2, 0])
t.einsum(t.ones(4, 2, 3), [..., 0, 1], [..., 1])
t.searchsorted(t.arange(5), t.tensor([1, 3]), out_int32=True)
t.searchsorted(t.tensor([3.0, 1.0, 2.0]), t.tensor([2.5]), sorter=t.tensor([1, 2, 0]))
t.searchsorted(t.arange(5), t.tensor([1, 3]), side="right")
t.scatter(t.zeros(3), 0, t.tensor([0, 0]), t.ones(2), reduce="add")
t.nn.functional.scaled_dot_product_attention(Q(1, 4, 5, 8), Q(1, 1, 5, 8), Q(1, 1, 5, 8))
t.nn.functional.scaled_dot_product_attention(Q(1, 1, 5, 8), Q(1, 3, 5, 8), Q(1, 3, 5, 8))
t.nn.functional.scaled_dot_product_attention(*(Q(2, 5, n).bfloat16() for n in (8, 8, 6))).float()
t.addcmul(Q(9).bfloat16(), Q(9).bfloat16(), Q(9).bfloat16() + 1, value=0.3).float()
t.addcdiv(Q(9).half(), Q(9).half(), Q(9).half() + 3, value=0.3).float()
t.addcmul(Q(9), Q(9).bfloat16(), Q(9))
t.randn(3, generator=None).shape
t.rand(2, 2, generator=t.Generator().manual_seed(3)).shape
t.randperm(5, generator=t.Generator().manual_seed(3)).sort().values
""".strip().splitlines()

REFUSED = """
t.ones(3).uniform_(3, -1)
t.nn.functional.hardtanh(t.ones(2), 3, -1)
t.isclose(t.ones(2), t.ones(2), rtol=-1)
t.isclose(t.ones(2), t.ones(2), atol=-1)
t.isclose(t.ones(2), 2)
t.hstack([])
t.ones(2).exponential_(0)
t.searchsorted(t.arange(5), t.tensor([1]), side="left", right=True)
t.scatter(t.zeros(3), 0, t.tensor([0, 0]), t.ones(2), reduce="mean")
""".strip().splitlines()


def numbers(module):
    def q(*shape):
        return module.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32"))
    return q


def value_of(line, module):
    return eval(line, {"t": module, "INF": INF, "NAN": NAN, "Q": numbers(module)})


@pytest.mark.parametrize("line", SAME)
def test_same_as_torch(line):
    want, got = value_of(line, torch), value_of(line, tally)
    if not isinstance(want, torch.Tensor):
        assert tuple(got) == tuple(want)
        return
    assert str(got.dtype).split(".")[1] == str(want.dtype).split(".")[1]
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, atol=1e-7)
    assert (np.signbit(got.numpy()) == np.signbit(want.numpy())).all() or np.isnan(want.numpy()).any()


@pytest.mark.parametrize("line", REFUSED)
def test_refused_as_by_torch(line):
    with pytest.raises(Exception) as theirs:
        value_of(line, torch)
    with pytest.raises(type(theirs.value), match=re.escape(str(theirs.value).split("\n")[0][:20])):
        value_of(line, tally)


def test_fmod_has_the_gradients_of_torch():
    for module in (torch, tally):
        x = module.tensor([-7.0, 7.5, 0.0, -0.2], requires_grad=True)
        y = module.tensor([3.0, -2.0, 1.0, 0.15], requires_grad=True)
        module.fmod(x, y).sum().backward()
        if module is torch:
            want = x.grad.numpy(), y.grad.numpy()
    np.testing.assert_array_equal(x.grad.numpy(), want[0])
    np.testing.assert_array_equal(y.grad.numpy(), want[1])


def test_a_generator_draws_its_own_numbers():
    g = tally.Generator().manual_seed(5)
    tally.manual_seed(1)
    plain = tally.rand(4)
    tally.manual_seed(1)
    first, state = tally.rand(4, generator=g), g.get_state()
    second = tally.empty(3).normal_(generator=g)
    assert tally.equal(tally.rand(4), plain)  # the thread's numbers have not moved
    assert tally.equal(tally.rand(4, generator=tally.Generator().manual_seed(5)), first)
    assert tally.equal(tally.empty(3).normal_(generator=g.set_state(state)), second)
    assert g.initial_seed() == 5


OUT = """
t.add(Q(3), Q(3), alpha=2, out=O(3)) t.mul(Q(3), 2.0, out=O(3)) t.exp(Q(3), out=O(3)) t.matmul(Q(2, 3), Q(3, 2),
out=O(2, 2))
t.sub(Q(3), 1.0, out=O(0)) t.cat([Q(2), Q(3)], out=O(5)) t.stack([Q(2), Q(2)], 1, out=O(4)) t.sum(Q(2, 3), 1, out=O(2))
t.cumsum(Q(4), 0, out=O(4)) t.clamp(Q(4), 0, out=O(4)) t.where(Q(3) > 0, Q(3), Q(3), out=O(3)) t.mm(Q(2, 3), Q(3, 2),
out=O(2, 2))
t.sort(Q(5), out=(O(5), O(5).long())) t.topk(Q(5), 2, out=(O(2), O(2).long())) t.arange(4, out=O(4)) t.zeros(2, 2,
out=O(4))
t.add(Q(3), 1, out=O(3).double()) t.eq(Q(3), 0, out=O(3).bool()) t.linalg.vector_norm(Q(3), out=O(1)) t.erfc(Q(3),
out=O(3))
"""
REFUSED_OUT = """
t.add(Q(3), Q(3), out=O(3).long()) t.exp(Q(3).requires_grad_(), out=O(3)) t.cat([Q(2)], out=3) t.sub(Q(3), 1,
out=O(3).int())
"""


def calls(text):
    return re.split(r" (?=t\.)", " ".join(text.split()))


def test_out_is_honoured_or_refused():
    warned = warnings.catch_warnings()
    with warned:
        warnings.simplefilter("ignore")
        assert len(calls(OUT)) == 20 and len(calls(REFUSED_OUT)) == 4
        for line in calls(OUT):
            made = {}

            def of(module):
                def o(*shape):
                    made.setdefault(module, []).append(module.zeros(*shape))
                    return made[module][-1]
                return o
            want = eval(line, {"t": torch, "Q": numbers(torch), "O": of(torch)})
            got = eval(line, {"t": tally, "Q": numbers(tally), "O": of(tally)})
            pairs = zip(want, got) if isinstance(want, tuple) else [(want, got)]
            for w, g in pairs:
                assert str(g.dtype).split(".")[1] == str(w.dtype).split(".")[1], line
                assert tuple(g.shape) == tuple(w.shape), line
                np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-6, err_msg=line)
            if not re.search(r"O\(.*\)\.", line) and not isinstance(got, tuple):
                assert got is made[tally][0], line
        for line in calls(REFUSED_OUT):
            for module in (torch, tally):
                with pytest.raises((RuntimeError, TypeError)):
                    eval(line, {"t": module, "Q": numbers(module), "O": module.zeros})
    with pytest.raises(TypeError, match="out"):
        tally.einsum("i->i", tally.ones(2), out=tally.ones(2))  # an argument that is not taken is refused
