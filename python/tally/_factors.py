"""Factorisations and solutions under the names that torch has outside of torch.linalg. Imported when one is first asked
for."""
import collections
import functools

from . import _functions as f
from . import linalg
from ._library import lib
from ._types import float64
from .linalg import _mT, det, slogdet  # noqa: F401

_qr = collections.namedtuple("qr", ["Q", "R"])
_svd = collections.namedtuple("svd", ["U", "S", "V"])
_unpack = collections.namedtuple("lu_unpack", ["P", "L", "U"])
_triangular = collections.namedtuple("triangular_solve", ["solution", "cloned_coefficient"])


def cholesky(input, upper=False, *, out=None):
    """linalg.cholesky"""
    return linalg.cholesky(input, upper=upper, out=out)


def _solve_by(L, B, upper):
    lower = _mT(L) if upper else L
    return lib.tl_solve_triangular(_mT(lower), lib.tl_solve_triangular(lower, B, False, False), True, False)


@functools.cache
def _cholesky_solve_function():
    from .autograd import Function

    class CholeskySolve(Function):
        """The gradient of the factor is that of L in L L^T, all of it, as torch's is."""
        @staticmethod
        def forward(ctx, B, L, upper):
            X = _solve_by(L, B, upper)
            ctx.upper = upper
            ctx.save_for_backward(L, X)
            return X

        @staticmethod
        def backward(ctx, g):
            """dB = A^-1 g; dL = -(dB X^T + X dB^T) L"""
            L, X = ctx.saved_tensors
            dB = cholesky_solve(g, L, ctx.upper)
            half = f.matmul(dB, _mT(X))
            both = f.neg(f.add(half, _mT(half)))
            return dB, f.matmul(L, both) if ctx.upper else f.matmul(both, L), None
    return CholeskySolve


def cholesky_solve(B, L, upper=False, *, out=None):
    """X with A X = B from the Cholesky factor of A."""
    linalg._matrix("cholesky_solve", L, True)
    batch = f.broadcast_shapes(B.shape[:-2], L.shape[:-2])
    B, L = (lib.tl_expand(x, (*batch, *x.shape[-2:])) for x in (B, L))
    return linalg._give(_cholesky_solve_function().apply(B, L, upper), out)


def cholesky_inverse(L, upper=False, *, out=None):
    """The inverse of A from its Cholesky factor."""
    linalg._matrix("cholesky_inverse", L, True)
    return linalg._give(cholesky_solve(linalg._eye_like(L, L.shape[-1]), L, upper), out)


def inverse(input, *, out=None):
    """linalg.inv"""
    return linalg.inv(input, out=out)


def pinverse(input, rcond=1e-15):
    """linalg.pinv"""
    return linalg.pinv(input, rcond)


def logdet(input):
    """log det A; NaN where the determinant is negative."""
    sign, logarithm = linalg.slogdet(input)
    return f.where(f.eq(sign, -1), float("nan"), logarithm)


def qr(input, some=True, *, out=None):
    """linalg.qr"""
    return linalg._give(_qr(*linalg.qr(input, "reduced" if some else "complete")), out)


def svd(input, some=True, compute_uv=True, *, out=None):
    """A = U diag(S) V^T; without compute_uv, zeros for U and V."""
    if not compute_uv:
        m, n = linalg._matrix("svd", input).shape[-2:]
        batch, code, device = tuple(input.shape[:-2]), input.dtype.code, lib.tl_device_of(input)
        return linalg._give(_svd(lib.tl_zeros((*batch, m, m), code, device), linalg.svdvals(input),
                                 lib.tl_zeros((*batch, n, n), code, device)), out)
    U, S, Vh = linalg.svd(input, not some)
    return linalg._give(_svd(U, S, _mT(Vh)), out)


def lu(A, pivot=True, get_infos=False, out=None):
    """(LU, pivots), and the columns where U has a zero if get_infos."""
    linalg._pivoting("lu", pivot)
    found = lib.tl_lu_ex(linalg._matrix("lu", A))
    if not get_infos and bool(f.any(f.ne(found[2], 0))):
        raise RuntimeError("lu: U has a zero on its diagonal; get_infos=True says where")
    return linalg._give(tuple(found) if get_infos else tuple(found[:2]), out)


def lu_solve(b, LU_data, LU_pivots, *, out=None):
    """linalg.lu_solve"""
    return linalg.lu_solve(LU_data, LU_pivots, b, out=out)


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True, *, out=None):
    """(P, L, U) of linalg.lu_factor's results; empty where one is not asked for."""
    nothing = lib.tl_empty((0,), LU_data.dtype.code, lib.tl_device_of(LU_data))
    P, L, U = linalg._unpacked(linalg._matrix("lu_unpack", LU_data), LU_pivots)
    return linalg._give(_unpack(P if unpack_pivots else nothing, *((L, U) if unpack_data else (nothing, nothing))), out)


def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """(X with A X = b, a copy of A)"""
    coefficient = _mT(A) if transpose else A
    X = lib.tl_solve_triangular(coefficient, b, upper != transpose, unitriangular)
    return _triangular(X, lib.tl_clone(A))


# Of the expansion p(A) / p(-A) of e^A, degree 13, exact in float64 up to a norm of 5.37 (Higham 2005).
_PADE = [64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
         670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1]


def matrix_exp(input):
    """e^A, by a Pade approximation of A / 2^s and s squarings."""
    A = linalg._matrix("matrix_exp", input, True).to(float64)  # squarings multiply what was rounded
    if not A.numel():
        return lib.tl_clone(input)
    largest = f.amax(linalg.matrix_norm(A.detach(), 1)).item()
    squarings = 0
    while largest / 2**squarings > 5.37 and squarings < 1100:
        squarings += 1
    A = f.mul(A, 0.5**squarings)
    A2 = f.matmul(A, A)
    A4 = f.matmul(A2, A2)
    A6 = f.matmul(A2, A4)
    one, b = linalg._eye_like(A, A.shape[-1]), _PADE

    def of_powers(c6, c4, c2):
        return f.add(f.add(f.mul(A6, c6), f.mul(A4, c4)), f.mul(A2, c2))
    odd = f.add(f.add(f.matmul(A6, of_powers(b[13], b[11], b[9])), of_powers(b[7], b[5], b[3])), f.mul(one, b[1]))
    even = f.add(f.add(f.matmul(A6, of_powers(b[12], b[10], b[8])), of_powers(b[6], b[4], b[2])), f.mul(one, b[0]))
    odd = f.matmul(A, odd)
    E = lib.tl_solve(f.sub(even, odd), f.add(even, odd))
    for _ in range(squarings):
        E = f.matmul(E, E)
    return E.to(input.dtype)
