"""Complex numbers against PyTorch: values, dtypes and gradients, printing, other formats, and what is refused."""
import warnings

import numpy as np
import pytest
import torch

import tally

R = np.random.default_rng(0)
A = (R.standard_normal((3, 4)) + 1j * R.standard_normal((3, 4))).astype("complex64")
B = (R.standard_normal(4) + 1j * R.standard_normal(4)).astype("complex64")
F = R.standard_normal((3, 4)).astype("float32")


def in_place(m, x, y):
    z = x * 1
    z += y
    z *= y
    z[0] = 3
    z[1, 2] = 1j
    z.mul_(2).add_(1j)
    z[:, 0] = y[0]
    z /= y
    return z


def through_views(m, x, y):
    z = m.zeros(3, 4, dtype=m.complex64)
    z[1] = y
    z[2] = x[0] * y
    z.real[0] = 5.0
    z.imag.mul_(2)
    w = m.view_as_complex(m.view_as_real(x * 1))
    w[0] = y
    return z * z + w


def rotary(m, x):
    angles = m.outer(m.arange(3.0), m.tensor([1.0, 0.1]))
    turned = m.view_as_complex(x.float().reshape(3, 2, 2)) * m.polar(m.ones_like(angles), angles)
    return m.view_as_real(turned).flatten(1).type_as(x)


CASES = {
    "mixed": (lambda m, x, y: (x + y) / (y - 2j) - x, A, F),
    "numbers": (lambda m, x: (2j - x * 2) / 3 + 1 / (x + 0.5), A),
    "of floats": (lambda m, x: (1j * x + 1) / (3 - 1j), F),
    "of doubles": (lambda m, x: x * 1j, F.astype("float64")),
    "of integers": (lambda m, x: x * 1j, np.arange(3)),
    "a wider scalar": (lambda m, x, y: x * y, F, np.array(1 + 2j)),
    "quotients": (lambda m, x, y: x / y, A * np.float32(1e30), B * np.float32(1e-25)),
    "by zero": (lambda m, x: x / m.zeros(4, dtype=m.complex64), A, None),
    "powers": (lambda m, x: x ** 3 + x ** -1 + x ** 0.5 + x ** 2.5, A),
    "functions": (lambda m, x: m.exp(x) + m.log(x) * m.sqrt(x) - m.sin(x) + m.cos(x) / m.rsqrt(x), A),
    "hyperbolic": (lambda m, x: m.sinh(x) + m.cosh(x) * m.tanh(x) - m.sigmoid(x) + m.tanh(x * 60), A),
    "powers of tensors": (lambda m, x, y: x ** y + m.pow(y, x.real), A, B),
    "products of all": (lambda m, x: x.prod() + x.prod(0) * m.prod(x.T, 1, keepdim=True), A),
    "matrices": (lambda m, x: m.linalg.solve(x[:, :3], x) + m.linalg.inv(x[:, 1:]) @ x, A),
    "hermitian matrices": (lambda m, x: m.linalg.cholesky(x @ x.mH) * m.linalg.eigvalsh(x @ x.mH, UPLO="U")
                           + m.linalg.svdvals(x) * m.linalg.matrix_norm(x, 2), A),
    "parts": (lambda m, x: x.real * m.angle(x) + m.abs(x) - x.imag + m.conj(x).imag, A),
    "sign": (lambda m, x: m.sgn(x), np.where(np.abs(A) < 0.7, 0, A)),
    "angle of floats": (lambda m, x: m.angle(x), F),
    "products": (lambda m, x, y: (x @ y)[:, None] @ y.reshape(1, 4) + x @ x.mH @ x, A, B),
    "einsum": (lambda m, x, y: m.einsum("ij,j,kj->ik", x, y, x), A, B),
    "sums": (lambda m, x: x.sum(0, keepdim=True) + x.mean() + x.cumsum(0), A),
    "joined": (lambda m, x, y: m.stack([m.cat([x, y[None], m.ones(1, 4)]), m.zeros(5, 4)], 1), A, B),
    "indexed": (lambda m, x: x[[0, 2]] + x[m.tensor([True, False, True])] + x[1:, ::2].repeat(1, 2), A),
    "gathered": (lambda m, x:
                 x.gather(1, m.tensor([[0, 1], [2, 3], [1, 1]])).T.index_select(1, m.tensor([2, 0, 0])), A),
    "scattered": (lambda m, x: m.zeros(3, 4, dtype=m.complex64).scatter_add(1, m.tensor([[0, 0, 3, 1]] * 3), x), A),
    "padded": (lambda m, x: m.nn.functional.pad(m.roll(x.flip(0), 1, 0).tril(), (1, 2), value=3.0), A),
    "chosen": (lambda m, x, y: m.where(x.real > 0, x, y).masked_fill(x.imag > 0, 2j), A, B),
    "compared": (lambda m, x, y: (x == x[0]) | (x != y) & (x == 1j), A, B),
    "casts": (lambda m, x: x.to(m.complex128).to(m.complex64) * 2, A),
    "from real": (lambda m, x: m.complex(x, x * 2).to(m.complex128), F),
    "as bool": (lambda m, x: x.bool().any(), A),
    "polar": (lambda m, x: m.polar(x.abs(), x), F),
    "in place": (in_place, A, B),
    "through views": (through_views, A, B),
    "rotary": (rotary, F),
    "norm": (lambda m, x: m.linalg.vector_norm(x, dim=0), A),
    "vdot": (lambda m, x: m.vdot(x[0], x[1]), A),
}


def gradients(m, y, xs, weight):
    return m.autograd.grad(y, xs, m.tensor(weight).to(y.dtype), allow_unused=True)


def same(x, y, what):
    y = y.detach().resolve_conj().resolve_neg()
    assert str(x.dtype).split(".")[1] == str(y.dtype).split(".")[1], f"{what}: {x.dtype}, torch {y.dtype}"
    np.testing.assert_allclose(x.detach().numpy(), y.numpy(), rtol=1e-5, atol=2e-5, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    function, *arrays = CASES[name]
    arrays, results = [a for a in arrays if a is not None], []
    for m in (tally, torch):
        xs = [m.tensor(a) for a in arrays]
        leaves = [x.requires_grad_() for x in xs if x.dtype.is_floating_point or x.dtype.is_complex]
        results.append((m, leaves, function(m, *xs)))
    (_, ours, p), (_, theirs, q) = results
    same(p, q, name)
    if name == "by zero" or not q.requires_grad:
        return
    weight = R.standard_normal(q.shape) * (1 + 0.5j if q.is_complex() else 1)
    for x, y in zip(gradients(tally, p, ours, weight), gradients(torch, q, theirs, weight)):
        assert (x is None) == (y is None)
        if y is not None:
            same(x, y, f"{name}: gradient")


def test_second_derivatives():
    found = []
    for m in (tally, torch):
        x = m.tensor(A, requires_grad=True)
        g, = m.autograd.grad((x * x.conj() / (x + 3)).abs().sum(), x, create_graph=True)
        (g * g).real.sum().backward()
        found.append(x.grad)
    same(*found, "second derivative")


def test_printing():
    for x in ([1 + 2j, 3.5 - 4j], [1 + 2j, -3 - 4j], 1j, [1e9 + 1j, 2], [complex("nan") + 1j, complex(1, np.inf)],
              [complex(1, -0.0)], np.arange(30) * (1 + 1j), A, A.astype("complex128"), np.zeros((0, 3), "complex64"),
              R.standard_normal((20, 80)) + 1j, [100.25 - 1j, 2 - 1234.5j]):
        assert repr(tally.tensor(x)).replace("tally.", "torch.") == repr(torch.tensor(x))
    assert tally.tensor(1 + 2j).item() == 1 + 2j and tally.tensor([[1j]]).tolist() == [[1j]]
    assert complex(tally.tensor(2j)) == 2j and bool(tally.tensor(1j)) and not tally.tensor(0j)


def test_promotion():
    names = [str(d).split(".")[1] for d in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64,
                                            torch.uint8, torch.uint16, torch.bool, torch.complex64, torch.complex128,
                                            torch.float8_e4m3fn)]
    for a in ("complex64", "complex128"):
        for b in names:
            try:
                want = str(torch.promote_types(getattr(torch, a), getattr(torch, b))).split(".")[1]
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    tally.promote_types(getattr(tally, a), getattr(tally, b))
                continue
            assert tally.promote_types(getattr(tally, a), getattr(tally, b)).name == want
    assert tally.complex64.to_real() is tally.float32 and tally.float64.to_complex() is tally.complex128
    assert tally.finfo(tally.complex64).eps == torch.finfo(torch.complex64).eps


def test_memory_is_shared_and_saved(tmp_path):
    for array in (A, A.astype("complex128")):
        x = tally.from_numpy(array.copy())
        assert x.numpy().ctypes.data == x.data_ptr() and np.array_equal(x.numpy(), array)
        y = torch.from_dlpack(x)
        y[0, 0] = 7j
        assert x[0, 0].item() == 7j and tally.from_dlpack(y).data_ptr() == x.data_ptr()
        torch.save({"x": y}, tmp_path / "theirs.pt")
        assert np.array_equal(tally.load(tmp_path / "theirs.pt")["x"].numpy(), y.numpy())
    from safetensors.numpy import load_file
    c = tally._library.c
    import ctypes

    def save(x):
        names = (ctypes.c_char_p * 1)(b"x")
        return c.tl_safetensors_save(str(tmp_path / "x.safetensors").encode(), names,
                                     (ctypes.c_void_p * 1)(tally._library.lib.address_of(x)), 1, None, None, 0)
    assert save(tally.tensor(A)) and np.array_equal(load_file(tmp_path / "x.safetensors")["x"], A)
    assert not save(tally.tensor(A.astype("complex128"))) and b"complex128" in c.tl_error_message()
    c.tl_error_clear()


def test_the_price_is_the_receipt():
    bills = []
    for device in ("meta", "cpu"):
        x = tally.ones(3, 4, dtype=tally.complex64, device=device, requires_grad=True)
        w = tally.ones(4, 5, dtype=tally.complex64, device=device, requires_grad=True)
        with tally.ledger(device=device) as bill:
            y = (tally.exp(x) @ w / 3 + x.sum()).abs().sum()
            y.backward()
        bills.append((bill.calls, bill.flops, bill.bytes))
        assert x.grad.dtype is tally.complex64
    assert bills[0] == bills[1] and bills[0][1] > 0


def test_random_numbers_and_constants():
    tally.manual_seed(0)
    x = tally.randn(20000, dtype=tally.complex64)
    assert abs(x.abs().square().mean().item() - 1) < 0.05 and abs(x.real.std().item() - 0.5 ** 0.5) < 0.02
    assert tally.rand(3, dtype=tally.complex128).dtype is tally.complex128
    assert tally.full((2,), 1 + 2j).tolist() == [1 + 2j] * 2 and tally.ones(2, dtype=tally.cfloat).tolist() == [1, 1]
    assert tally.eye(2, dtype=tally.complex64).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("call, words", [
    (lambda x: tally.softmax(x, 0), "softmax: not implemented for complex64"),
    (lambda x: x < x, "complex numbers have no order: c64"),
    (lambda x: tally.sort(x), "sort: not implemented for complex64"),
    (lambda x: tally.floor(x), "floor: not implemented for complex64"),
    (lambda x: tally.acos(x), "acos: not implemented for 'ComplexFloat'"),
    (lambda x: x // 2, "not implemented for 'ComplexFloat'"),
    (lambda x: tally.linalg.det(x[:, None]), "det: not implemented for 'ComplexFloat'"),
    (lambda x: tally.arange(3, dtype=tally.complex64), "arange: not implemented for complex64"),
    (lambda x: x.requires_grad_().sum().backward(), "only for real scalar outputs"),
    (lambda x: x.real.add_(x), "can't be cast to the desired output type Float"),
    (lambda x: x.real.imag, "non-complex"),
    (lambda x: tally.view_as_complex(tally.ones(3)), "last dimension of size 2"),
])
def test_refusals_name_the_op_and_the_dtype(call, words):
    with warnings.catch_warnings(), pytest.raises((RuntimeError, NotImplementedError), match=words):
        call(tally.tensor(B))


# Made of ops that take complex numbers, with formulas that are for real ones; torch refuses them too.
REAL_ONLY = {
    "deg2rad": (), "rad2deg": (), "isposinf": (), "isneginf": (), "logit": (), "hypot": (1,), "isin": ([1.0],),
    "unique_consecutive": (), "nn.functional.avg_pool1d": (2,), "nn.functional.adaptive_avg_pool1d": (2,),
    "nn.functional.interpolate": (2,), "nn.functional.local_response_norm": (2,), "nn.functional.glu": (),
    "nn.functional.batch_norm": (None, None), "nn.functional.mse_loss": (None,), "nn.functional.kl_div": (None,),
    "nn.functional.cosine_similarity": (None,), "nn.functional.pdist": (), "cauchy_": (), "geometric_": (0.5,),
    "log_normal_": (), "normal": (None,),
}


@pytest.mark.parametrize("name", REAL_ONLY)
def test_functions_of_real_numbers_refuse_complex_ones(name):
    for m in (tally, torch):
        x = m.ones(2, 2, 4, dtype=m.complex64)[0 if name.endswith("pdist") else slice(None)]
        arguments = [x if a is None else m.tensor(a) if isinstance(a, list) else a for a in REAL_ONLY[name]]
        arguments = [x.real * 0, x.real] * (name == "nn.functional.batch_norm") or arguments
        function = getattr(x, name, None) if name.endswith("_") else getattr(m.nn.functional if "." in name else m,
                                                                             name.split(".")[-1])
        words = "not implemented for 'ComplexFloat'" if m is tally else None
        with warnings.catch_warnings(), pytest.raises((RuntimeError, NotImplementedError, TypeError), match=words):
            warnings.simplefilter("ignore")
            function(*arguments) if name.endswith("_") else function(x, *arguments)
