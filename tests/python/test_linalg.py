"""Factorisations and solutions of matrices. PyTorch's own samples of them run in test_opinfo.py; here are second
derivatives, errors, prices, and results that come out in more than one way."""
import numpy as np
import pytest
import tally
import torch
from tally.autograd import gradcheck, gradgradcheck

L = tally.linalg


def drawn(*shape):
    return tally.randn(*shape, dtype=tally.float64, requires_grad=True)


def positive(x):
    return x @ x.mT + 2 * tally.eye(x.shape[-1], dtype=x.dtype)


CASES = {
    "cholesky": (lambda x: L.cholesky(positive(x), upper=True), [(2, 3, 3)]),
    "inv": (L.inv, [(2, 3, 3)]),
    "solve": (L.solve, [(2, 3, 3), (3, 2)]),
    "solve from the right": (lambda a, b: L.solve(a, b, left=False), [(3, 3), (2, 3)]),
    "solve_triangular": (lambda a, b: L.solve_triangular(a, b, upper=False, unitriangular=True, left=False),
                         [(3, 3), (2, 3)]),
    "det": (L.det, [(2, 3, 3)]),
    "slogdet": (lambda a: L.slogdet(a).logabsdet, [(2, 3, 3)]),
    "lu, square": (lambda a: L.lu(a)[1:], [(3, 3)]),
    "lu, wide": (lambda a: L.lu_factor(a).LU, [(2, 4)]),
    "lu, tall": (lambda a: L.lu_factor(a).LU, [(4, 2)]),
    "lu_solve": (lambda a, b: L.lu_solve(*L.lu_factor(a), b, adjoint=True), [(3, 3), (3, 2)]),
    "qr": (L.qr, [(4, 3)]),
    "qr, wide": (L.qr, [(2, 4)]),
    "eigh": (lambda x: L.eigh(x + x.mT), [(3, 3)]),
    "eigvalsh": (lambda x: L.eigvalsh(x + x.mT, UPLO="U"), [(3, 3)]),
    "eig": (lambda x: [part for y in L.eig(x) for part in (y.abs(), (y * y.conj()).real)], [(2, 3, 3)]),
    "eigvals": (lambda x: tally.view_as_real(L.eigvals(x) ** 2), [(4, 4)]),
    "svd": (lambda x: L.svd(x, False), [(4, 3)]),
    "svd, wide": (lambda x: L.svd(x, False), [(3, 4)]),
    "svdvals": (L.svdvals, [(2, 3, 4)]),
    "pinv": (L.pinv, [(4, 3)]),
    "cholesky_solve": (lambda b, x: tally.cholesky_solve(b, L.cholesky(positive(x))), [(3, 2), (3, 3)]),
}


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives(name):
    tally.manual_seed(0)
    function, shapes = CASES[name]
    inputs = [drawn(*shape) for shape in shapes]
    assert gradcheck(function, inputs) and gradgradcheck(function, inputs)


def test_eigenvalues_of_any_matrix_solve_its_equation():
    x = tally.randn(3, 5, 5, dtype=tally.float64)
    values, vectors = L.eig(x)
    np.testing.assert_allclose((x.to(vectors.dtype) @ vectors).numpy(), (vectors * values[:, None]).numpy(), atol=1e-12)
    np.testing.assert_allclose(np.sort_complex(L.eigvals(x).numpy()), np.sort_complex(np.linalg.eigvals(x.numpy())),
                               atol=1e-12)
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        L.eig(tally.full((2, 2), float("nan")))


def test_pinv_of_equal_singular_values_has_a_gradient():
    x, y = tally.eye(3, requires_grad=True), torch.eye(3, requires_grad=True)
    L.pinv(x).cumsum(0).sum().backward()
    torch.linalg.pinv(y).cumsum(0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), atol=1e-6)


@pytest.mark.parametrize("call", [
    "t.linalg.cholesky(-t.eye(3))", "t.linalg.inv(t.zeros(2, 3, 3))", "t.linalg.solve(t.ones(2, 2), t.ones(2))",
    "t.linalg.lu_factor(t.zeros(2, 2))", "t.linalg.inv(t.ones(2, 3))", "t.linalg.cholesky(t.ones(3))",
    "t.linalg.qr(t.eye(2), 'all')", "t.linalg.svd(t.full((2, 2), float('nan')))",
    "t.linalg.solve(t.eye(2), t.ones(3, 1))", "t.linalg.det(t.ones(2, 2, dtype=t.int64))", "t.inverse(t.zeros(2, 2))",
    "t.linalg.matrix_norm(t.ones(2, 2), 7)", "t.linalg.eigvalsh(t.eye(2), 'X')",
])
def test_errors_are_of_torchs_classes(call):
    classes = []
    for t in (torch, tally):
        with pytest.raises(Exception) as error:
            eval(call, {"t": t})
        classes.append(type(error.value).__name__.lstrip("_"))
    assert classes[0] == classes[1], str(error.value)


def test_errors_name_the_matrix():
    a = tally.stack([tally.eye(3), -tally.eye(3)])
    with pytest.raises(L.LinAlgError, match=r"cholesky: \(Batch element 1\): .* leading minor of order 1 is"):
        L.cholesky(a)
    assert L.cholesky_ex(a).info.tolist() == [0, 1] and L.inv_ex(a * 0).info.tolist() == [1, 1]


def test_prices_are_receipts():
    def work(device):
        x = tally.zeros(5, 6, 6, device=device) + 10 * tally.eye(6, device=device)
        x.requires_grad_()
        with tally.ledger(device=device) as ledger:
            w, v = L.eigh(x)
            y = L.inv(x) + L.cholesky(x) + L.solve(x, x) + v * w.unsqueeze(-1) + L.det(x)[:, None, None] + L.qr(x).R
            (y.sum() + tally.logdet(x).sum() + L.svd(x).S.sum() + L.pinv(x).sum()).backward()
        return ledger.by("phase", "op")  # the samples of test_samples.c compare peaks of memory
    price, receipt = work("meta"), work("cpu")
    assert len(price) > 30 and price == receipt
