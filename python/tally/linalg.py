"""torch.linalg: norms, products, factorisations and solutions. eig runs on cpu."""
import collections
import functools
import math

from . import _functions as f
from ._errors import LinAlgError
from ._functions import _axes, _axis
from ._library import lib
from ._types import bool_, finfo, float32, float64, int64


def _real(name, x):
    if not x.dtype.is_inexact:
        raise RuntimeError(f"linalg.{name}: Expected a floating point or complex tensor as input. Got "
                           f"{f._scalar_name(x)}")


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None, out=None):
    """(sum |x|^ord)^(1 / ord) over some axes, or all; inf is the largest magnitude, 0 counts what is not 0."""
    _real("vector_norm", x)
    if dtype is not None and not dtype.is_inexact:
        raise RuntimeError(f"linalg.vector_norm: dtype should be floating point. Got {dtype}")
    x = f._cast(x, dtype)
    if dim is None and not keepdim and x.ndim != 1:
        x, dim = lib.tl_reshape(x, (-1,)), (0,)
    axes = tuple(_axis(d, x.ndim) for d in (_axes(dim) or range(x.ndim)))
    ord = float(ord)
    if not x.numel() and (ord < 0 or ord == math.inf):
        if not x.ndim or any(not x.shape[a] for a in axes):
            raise RuntimeError(f"linalg.vector_norm cannot compute the {ord:g} norm on an empty tensor because the "
                               "operation does not have an identity")
    if not x.ndim:
        norm = f._constant_of(x, (), False, f.ne(x, 0).to(x.dtype.to_real())) if ord == 0 else f.abs(x)
    elif ord == 0:
        norm = f._constant_of(x, axes, keepdim, f.sum(f.ne(x, 0), axes, keepdim).to(x.dtype.to_real()))
    else:
        norm = lib.tl_norm(x, ord, axes, keepdim)
    return norm if out is None else f._into(out, norm)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):
    """Of the matrices in two axes: "fro", the sum of the singular values ("nuc"), or the largest (smallest for a
    negative ord) of them (2), of the sums of a column (1) or of a row (inf)."""
    _real("matrix_norm", A)
    if len(dim) != 2 or _axis(dim[0], A.ndim) == _axis(dim[1], A.ndim):
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[-1]})")
    A = f._cast(A, dtype)
    rows, columns = (_axis(d, A.ndim) for d in dim)
    if ord == "fro":
        norm = lib.tl_norm(A, 2.0, (rows, columns), keepdim)
    elif ord in (1, -1, math.inf, -math.inf):
        summed, over = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = f.sum(f.abs(A), summed, True)
        norm = (f.amax if ord > 0 else f.amin)(sums, (over,), True)
        norm = norm if keepdim else f.squeeze(norm, (rows, columns))
    elif ord in (2, -2, "nuc"):
        values = _values(lib.tl_svdvals, f.movedim(A, (rows, columns), (-2, -1)))
        norm = (f.sum if ord == "nuc" else f.amax if ord > 0 else f.amin)(values, -1)
        for axis in sorted((rows, columns)) if keepdim else ():
            norm = lib.tl_unsqueeze(norm, axis)
    else:
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    return norm if out is None else f._into(out, norm)


def norm(A, ord=None, dim=None, keepdim=False, *, out=None, dtype=None):
    """Of a vector or a matrix, as its axes and `ord` say."""
    is_matrix = ord in (
    "fro", "nuc") or dim is not None and not isinstance(
        dim, int) and len(dim) == 2 and ord is not None
    is_matrix = is_matrix or dim is None and ord is not None and A.ndim == 2
    if dim is None and ord is not None and A.ndim not in (1, 2):
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                           f"{A.ndim}D.")
    if is_matrix:
        return matrix_norm(A, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype, out=out)
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype, out=out)


def vecdot(x, y, *, dim=-1, out=None):
    """Sums of products along an axis, of the first conjugated."""
    z = f.sum(f.mul(lib.tl_conj(x), y), dim)
    return z if out is None else f._into(out, z)


def cross(input, other, *, dim=-1, out=None):
    """The vector product of vectors of three."""
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if input.size(dim) != 3 or other.size(dim) != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.size(dim)} and "
                           f"{other.size(dim)}")
    a, b = f.broadcast_tensors(input, other)
    (a0, a1, a2), (b0, b1, b2) = f.unbind(a, dim), f.unbind(b, dim)
    z = f.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], _axis(dim, a.ndim))
    return z if out is None else f._into(out, z)


def diagonal(A, *, offset=0, dim1=-2, dim2=-1):
    return f.diagonal(A, offset, dim1, dim2)


def matmul(input, other, *, out=None):
    z = f.matmul(input, other)
    return z if out is None else f._into(out, z)


def multi_dot(tensors, *, out=None):
    """The product of several matrices, in the order with the fewest multiplications; the first and the last may be
    vectors."""
    n = len(tensors)
    if n < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {n}")
    for i, x in enumerate(tensors):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, n - 1)):
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {x.ndim}D")
    parts = [lib.tl_unsqueeze(x, 0 if i == 0 else 1) if x.ndim == 1 else x for i, x in enumerate(tensors)]
    sizes = [p.shape[0] for p in parts] + [parts[-1].shape[1]]
    cost, cut = {}, {}
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j = i + length
            cost[i, j], cut[i, j] = min(((cost[i, k] + cost[k, j] + sizes[i] * sizes[k] * sizes[j], k)
                                         for k in range(i + 1, j)), default=(0, None))

    def product(i, j):
        return parts[i] if j == i + 1 else f.mm(product(i, cut[i, j]), product(cut[i, j], j))
    z = product(0, n)
    z = f.select(z, 0, 0) if tensors[0].ndim == 1 else z
    z = f.select(z, -1, 0) if tensors[-1].ndim == 1 else z
    return z if out is None else f._into(out, z)


def matrix_power(A, n, *, out=None):
    """A A ... A, n times, by squaring."""
    from ._creation import eye
    if A.ndim < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.matrix_power: A must be batches of square matrices, but they are "
                           f"{'x'.join(map(str, A.shape[-2:]))} matrices")
    if n < 0:
        A, n = inv(A), -n
    if n == 0:
        z = f.add(eye(A.shape[-1], dtype=A.dtype, device=A.device), f.mul(A, 0))
    else:
        z, square = None, A
        while n:
            if n & 1:
                z = square if z is None else f.matmul(z, square)
            n >>= 1
            square = f.matmul(square, square) if n else square
        z = lib.tl_clone(z) if z is A else z
    return z if out is None else f._into(out, z)


def vander(x, N=None):
    """Rows of the powers 0 .. N-1 of each number."""
    x = lib.tl_reshape(x, (1,)) if not x.ndim else x
    N = x.shape[-1] if N is None else N
    if N <= 1:
        raise RuntimeError(f"N must be greater than 1, got {N}")
    x = x.to(f.int64) if x.dtype is bool_ else x
    ones = lib.tl_unsqueeze(f.add(f.mul(x, 0), 1), -1)
    powers = f.cumprod(lib.tl_expand(lib.tl_unsqueeze(x, -1), (*x.shape, N - 1)), -1)
    return f.cat([ones.to(powers.dtype), powers], -1)


# ---- Factorisations and solutions: kernels on cpu, through LAPACK, and prices on meta ----

def _result(name, fields):
    return collections.namedtuple(name, fields.split())


_cholesky_ex = _result("linalg_cholesky_ex", "L info")
_lu_factor = _result("linalg_lu_factor", "LU pivots")
_lu_factor_ex = _result("linalg_lu_factor_ex", "LU pivots info")
_lu = _result("linalg_lu", "P L U")
_solve_ex = _result("linalg_solve_ex", "result info")
_inv_ex = _result("linalg_inv_ex", "inverse info")
_slogdet = _result("linalg_slogdet", "sign logabsdet")
_qr = _result("linalg_qr", "Q R")
_eigh = _result("linalg_eigh", "eigenvalues eigenvectors")
_eig = _result("linalg_eig", "eigenvalues eigenvectors")
_svd = _result("linalg_svd", "U S Vh")
_lstsq = _result("linalg_lstsq", "solution residuals rank singular_values")


def _give(result, out):
    return result if out is None else f._into(out, result)


def _matrix(name, A, square=False, may_be_complex=False):
    """A with two axes or more, in a dtype that LAPACK has."""
    if not isinstance(A, f._Tensor):
        raise TypeError(f"linalg_{name}(): argument 'A' (position 1) must be Tensor, not {type(A).__name__}")
    _real(name, A)
    if not may_be_complex:
        f._refuse_complex(f"linalg.{name}", A)
    if A.dtype.to_real() not in (float32, float64):
        raise RuntimeError(f"linalg.{name}: Low precision dtypes not supported. Got {f._scalar_name(A)}")
    if A.ndim < 2:
        raise RuntimeError(f"linalg.{name}: The input tensor A must have at least 2 dimensions.")
    if square and A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"linalg.{name}: A must be batches of square matrices, but they are {A.shape[-2]} by "
                           f"{A.shape[-1]} matrices")
    return A


def _checked(name, info):
    """Raises where a matrix failed."""
    bad = f.nonzero(info)
    if len(bad):
        raise LinAlgError(f"linalg.{name}: matrix {bad[0].tolist() or ''} failed at column "
                          f"{info[tuple(bad[0].tolist())].item()}")


def _mT(A):
    return lib.tl_transpose(A, -2, -1)


def _eye_like(A, n):
    from ._creation import eye
    return eye(n, dtype=A.dtype, device=A.device)


def _as_real(A):
    """Complex matrices as real ones of twice the size: a + ib is [[a, -b], [b, a]], element by element. Products,
    inverses and Cholesky factors are then those of complex numbers, and eigenvalues and singular values come twice."""
    re, im = lib.tl_real(A), lib.tl_imag(A)
    rows = [f.stack((a, b), -1) for a, b in ((re, f.neg(im)), (im, re))]  # (..., m, n, 2)
    *batch, m, n = A.shape
    return f.reshape(f.stack(rows, -3), (*batch, 2 * m, 2 * n))


def _as_complex(M):
    *batch, m, n = M.shape
    left = f.reshape(M, (*batch, m // 2, 2, n // 2, 2))[..., 0]
    return lib.tl_complex(left[..., 0, :], left[..., 1, :])


def _through_real(function, *matrices):
    """function of matrices, or of the real ones that stand for complex ones."""
    if not matrices[0].dtype.is_complex:
        return function(*matrices)
    return _as_complex(function(*map(_as_real, matrices)))


def _values(function, A):
    """Values of matrices, or every second one of those that stand for complex ones."""
    return lib.tl_slice(function(_as_real(A)), -1, 0, 2 * min(A.shape[-2:]), 2) if A.dtype.is_complex else function(A)


def _mH(A):
    return _mT(lib.tl_conj(A))


def _real_diagonal(A):
    """Hermitian matrices without the imaginary parts of their diagonals, which are not read."""
    return f.where(_eye_like(lib.tl_real(A), A.shape[-1]).bool(), lib.tl_real(A).to(A.dtype), A) \
        if A.dtype.is_complex else A


@functools.cache
def _cholesky_function():
    from .autograd import Function

    class Cholesky(Function):
        """Of complex matrices. The gradient keeps the imaginary parts of the diagonal, as torch's does; through a real
        matrix they would be 0."""
        @staticmethod
        def forward(ctx, A):
            L = _through_real(lib.tl_cholesky, _real_diagonal(A))
            ctx.save_for_backward(L)
            return L

        @staticmethod
        def backward(ctx, g):
            """With P = tril(L^H g), its diagonal halved: dA = L^-H (P + P^H) / 2 L^-1"""
            L, = ctx.saved_tensors
            inner = f.matmul(_mH(L), g)
            both = (f.tril(inner) + _mH(f.tril(inner, -1))) * 0.5
            return _mH(solve(_mH(L), _mH(solve(_mH(L), both))))
    return Cholesky


def cholesky(A, *, upper=False, out=None):
    """L with A = L L^H, of Hermitian positive-definite matrices; upper: its adjoint."""
    _matrix("cholesky", A, True, True)
    L = _cholesky_function().apply(A) if A.dtype.is_complex else lib.tl_cholesky(A)
    return _give(_mH(L) if upper else L, out)


def cholesky_ex(A, *, upper=False, check_errors=False, out=None):
    """(L, info): the order of the first minor that is not positive-definite, or 0."""
    L, info = lib.tl_cholesky_ex(_matrix("cholesky", A, True))
    if check_errors:
        _checked("cholesky_ex", info)
    return _give(_cholesky_ex(_mT(L) if upper else L, info), out)


def lu_factor(A, *, pivot=True, out=None):
    """(LU, pivots) with A = P L U: L below the diagonal and U in one matrix."""
    _pivoting("lu_factor", pivot)
    return _give(_lu_factor(*lib.tl_lu(_matrix("lu_factor", A))), out)


def lu_factor_ex(A, *, pivot=True, check_errors=False, out=None):
    _pivoting("lu_factor_ex", pivot)
    found = _lu_factor_ex(*lib.tl_lu_ex(_matrix("lu_factor_ex", A)))
    if check_errors:
        _checked("lu_factor_ex", found.info)
    return _give(found, out)


def _pivoting(name, pivot):
    if not pivot:
        raise RuntimeError(f"linalg.{name}: LU without pivoting is not implemented on the CPU")


def _unpacked(LU, pivots):
    m, n = LU.shape[-2:]
    k = min(m, n)
    L = f.add(f.tril(lib.tl_slice(LU, -1, 0, k, 1), -1), lib.tl_slice(_eye_like(LU, m), 1, 0, k, 1))
    U = f.triu(lib.tl_slice(LU, -2, 0, k, 1))
    P = lib.tl_swap_rows(lib.tl_expand(_eye_like(LU, m), (*LU.shape[:-2], m, m)), pivots, False)
    return P.detach(), L, U


def lu(A, *, pivot=True, out=None):
    """(P, L, U) with A = P L U."""
    _pivoting("lu", pivot)
    LU, pivots, _ = lib.tl_lu_ex(_matrix("lu", A))
    return _give(_lu(*_unpacked(LU, pivots)), out)


def lu_solve(LU, pivots, B, *, left=True, adjoint=False, out=None):
    """X with A X = B (X A = B if not left) from the factors of A; adjoint: of its transpose."""
    _matrix("lu_solve", LU, True)
    if not left:
        X = _mT(lib.tl_lu_solve(LU, pivots, _mT(B), not adjoint))
    else:
        X = lib.tl_lu_solve(LU, pivots, B, adjoint)
    return _give(X, out)


def _solved(A, B, left, function):
    """function(A, B) with B as columns."""
    is_vector = B.ndim == 1 or A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape
    B = lib.tl_unsqueeze(B, -1) if is_vector else B
    if is_vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. "
                           "In this case linalg.solve is equivalent to B / A.squeeze(-1)")
    if B.dtype is not A.dtype:
        raise RuntimeError(f"linalg.solve: Expected A and B to have the same dtype, but found A of type "
                           f"{f._scalar_name(A)} and B of type {f._scalar_name(B)} instead")
    n, there = A.shape[-1], B.shape[-2 if left else -1]
    if n != there:
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation "
                           f"{'AX = B' if left else 'XA = B'} ({A.shape[-2]}x{n} and {B.shape[-2]}x{B.shape[-1]})")
    found = function(A, B) if left else function(_mT(A), _mT(B))
    X, rest = found if isinstance(found, tuple) else (found, None)
    X = X if left else _mT(X)
    X = lib.tl_squeeze(X, -1) if is_vector else X
    return X if rest is None else (X, rest)


def solve(A, B, *, left=True, out=None):
    """X with A X = B, or X A = B if not left; B may be a vector."""
    return _give(_solved(_matrix("solve", A, True, True), B, left, functools.partial(_through_real, lib.tl_solve)), out)


def solve_ex(A, B, *, left=True, check_errors=False, out=None):
    X, info = _solved(_matrix("solve_ex", A, True), B, left, lib.tl_solve_ex)
    if check_errors:
        _checked("solve_ex", info)
    return _give(_solve_ex(X, info), out)


def solve_triangular(A, B, *, upper, left=True, unitriangular=False, out=None):
    """X with A X = B, or X A = B if not left, where one triangle of A is read."""
    _matrix("solve_triangular", A, True)
    if left:
        X = lib.tl_solve_triangular(A, B, upper, unitriangular)
    else:
        X = _mT(lib.tl_solve_triangular(_mT(A), _mT(B), not upper, unitriangular))
    return _give(X, out)


def inv(A, *, out=None):
    """The inverse."""
    return _give(_through_real(lib.tl_inv, _matrix("inv", A, True, True)), out)


def inv_ex(A, *, check_errors=False, out=None):
    found = _inv_ex(*lib.tl_inv_ex(_matrix("inv_ex", A, True)))
    if check_errors:
        _checked("inv_ex", found.info)
    return _give(found, out)


def det(A, *, out=None):
    """The determinant."""
    return _give(lib.tl_det(_matrix("det", A, True)), out)


def slogdet(A, *, out=None):
    """The sign of the determinant, and the logarithm of its magnitude."""
    return _give(_slogdet(*lib.tl_slogdet(_matrix("slogdet", A, True))), out)


def qr(A, mode="reduced", *, out=None):
    """A = Q R: orthonormal columns and an upper triangle; mode "complete": square Q, "r": R alone."""
    _matrix("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or "
                           "'complete'")
    if mode == "r":
        return _give(_qr(lib.tl_empty((0,), A.dtype.code, lib.tl_device_of(A)), lib.tl_qr_r(A)), out)
    return _give(_qr(*lib.tl_qr(A, mode == "complete")), out)


def _is_upper(UPLO):
    if not isinstance(UPLO, str) or UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper() == "U"


def eigh(A, UPLO="L", *, out=None):
    """Eigenvalues, rising, and eigenvectors (columns) of symmetric matrices."""
    return _give(_eigh(*lib.tl_eigh(_matrix("eigh", A, True), _is_upper(UPLO))), out)


def eigvalsh(A, UPLO="L", *, out=None):
    """The eigenvalues of Hermitian matrices, rising."""
    upper = _is_upper(UPLO)
    A = _real_diagonal(_matrix("eigvalsh", A, True, True))
    return _give(_values(lambda A: lib.tl_eigvalsh(A, upper), A), out)


def eig(A, *, out=None):
    """Eigenvalues and eigenvectors (columns) of any square matrices, as complex numbers."""
    return _give(_eig(*lib.tl_eig(_matrix("eig", A, True))), out)


def eigvals(A, *, out=None):
    """The eigenvalues of any square matrices, as complex numbers."""
    return _give(lib.tl_eigvals(_matrix("eigvals", A, True)), out)


def svd(A, full_matrices=True, *, driver=None, out=None):
    """A = U diag(S) Vh, singular values falling."""
    return _give(_svd(*lib.tl_svd(_matrix("svd", A), full_matrices)), out)


def svdvals(A, *, driver=None, out=None):
    """The singular values, falling."""
    return _give(_values(lib.tl_svdvals, _matrix("svdvals", A, False, True)), out)


# ---- Made of these ----

def _tolerance(A, largest, atol, rtol):
    """The larger of the two, of magnitudes (...) whose largest are (...,1)."""
    if rtol is None:
        rtol = 0.0 if atol is not None and not (f.is_tensor(atol) or atol == 0) else \
            finfo(A.dtype).eps * max(A.shape[-2:])
        if f.is_tensor(atol):
            rtol = f.where(f.gt(atol, 0), 0.0, finfo(A.dtype).eps * max(A.shape[-2:])).to(A.dtype)
    atol = 0.0 if atol is None else atol
    atol, rtol = (lib.tl_unsqueeze(x, -1) if f.is_tensor(x) else x for x in (atol, rtol))
    from ._creation import full_like
    relative = f.mul(largest, rtol)
    return f.maximum(relative, atol.to(relative.dtype) if f.is_tensor(atol) else full_like(relative, atol))


def _spectrum(A, hermitian):
    """Magnitudes of eigenvalues, or singular values, and the largest of each matrix."""
    values = f.abs(eigvalsh(A)) if hermitian else svdvals(A)
    return values, f.amax(values, -1, True) if values.shape[-1] else f.sum(values, -1, True)


def matrix_rank(A, *args, tol=None, atol=None, rtol=None, hermitian=False, out=None):
    """How many singular values are above the tolerance."""
    _matrix("matrix_rank", A, hermitian, True)
    if len(args) > 0:
        tol = args[0]
        hermitian = args[1] if len(args) > 1 else hermitian
    if tol is not None:
        atol, rtol = tol, 0.0
    values, largest = _spectrum(A.detach(), hermitian)
    return _give(f.sum(f.gt(values, _tolerance(A, largest, atol, rtol)), -1), out)


@functools.cache
def _pinv_function():
    from .autograd import Function

    class Pinv(Function):
        """Its gradient does not divide by differences of singular values, as those of svd and eigh do."""
        @staticmethod
        def forward(ctx, A, hermitian, atol, rtol):
            if hermitian:
                values, left = lib.tl_eigh(A, False)
                right, magnitude = _mT(left), f.abs(values)
            else:
                left, values, right = lib.tl_svd(A, False)
                magnitude = values
            keeps = f.gt(magnitude, _tolerance(A, f.amax(magnitude, -1, True), atol, rtol))
            inverse = f.where(keeps, f.reciprocal(f.where(keeps, values, 1.0)), 0.0)
            P = f.matmul(f.mul(_mT(right), lib.tl_unsqueeze(inverse, -2)), _mT(left))
            ctx.save_for_backward(A, P)
            return P

        @staticmethod
        def backward(ctx, g):
            """With h = g^T: dA = -(P h P)^T + (1 - A P) h P P^T + P^T P h (1 - P A)"""
            A, P = ctx.saved_tensors
            h, Pt = _mT(g), _mT(P)
            hP = f.matmul(h, P)
            hPPt, PtPh = f.matmul(hP, Pt), f.matmul(Pt, f.matmul(P, h))
            dA = f.sub(f.sub(hPPt, f.matmul(A, f.matmul(P, hPPt))), _mT(f.matmul(P, hP)))
            return f.add(dA, f.sub(PtPh, f.matmul(f.matmul(PtPh, P), A))), None, None, None
    return Pinv


def pinv(A, rcond=None, hermitian=False, *, atol=None, rtol=None, out=None):
    """The Moore-Penrose inverse: of the singular values, those above the tolerance."""
    _matrix("pinv", A, hermitian)
    if not A.numel():
        return _give(lib.tl_clone(_mT(A)), out)
    return _give(_pinv_function().apply(A, hermitian, atol, rcond if rtol is None else rtol), out)


def lstsq(A, B, rcond=None, *, driver=None):
    """X with the least |A X - B|, and of all such the least |X|."""
    _matrix("lstsq", A)
    is_vector = B.ndim == 1 or A.ndim - 1 == B.ndim and A.shape[:-1] == B.shape
    B = lib.tl_unsqueeze(B, -1) if is_vector else B
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    m, n = A.shape[-2:]
    rtol = finfo(A.dtype).eps * max(m, n) if rcond is None or rcond == -1 else rcond
    X = f.matmul(pinv(A, rtol=rtol), B)
    values, largest = _spectrum(A.detach(), False)
    rank = f.sum(f.gt(values, f.mul(largest, rtol)), -1)
    nothing = lib.tl_empty((0,), A.dtype.code, lib.tl_device_of(A))
    residuals = nothing
    if m > n and (driver == "gels" or driver in ("gelsd", "gelss") and bool(f.all(f.eq(rank, n)))):
        residuals = f.sum(f.square(f.sub(f.matmul(A, X), B)), -2)
    if driver == "gels":
        rank = lib.tl_empty((0,), int64.code, lib.tl_device_of(A))
    return _lstsq(lib.tl_squeeze(X, -1) if is_vector else X, residuals, rank,
                  values if driver in ("gelsd", "gelss") else nothing)


def cond(A, p=None, *, out=None):
    """The norm of A times the norm of its inverse."""
    _matrix("cond", A, False, True)
    if p in (None, 2, -2):
        values = svdvals(A)
        high, low = (lib.tl_select(values, -1, i) for i in (0, -1)) if values.shape[-1] else (None, None)
        z = f.sum(values, -1) if high is None else f.div(low, high) if p == -2 else f.div(high, low)
    else:
        _matrix("cond", A, True)
        inverse, info = lib.tl_inv_ex(A)
        z = f.mul(matrix_norm(A, p), matrix_norm(inverse, p))
        z = f.where(f.ne(info, 0), math.inf, z)
    return _give(z, out)


def tensorinv(A, ind=2, *, out=None):
    """The inverse of a tensor whose first `ind` axes are the rows."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[ind:]) == "
                           f"prod(self.shape[:ind]), but got {math.prod(columns)} != {math.prod(rows)}")
    n = math.prod(rows)
    return _give(lib.tl_reshape(inv(lib.tl_reshape(A, (n, n))), (*columns, *rows)), out)


def tensorsolve(A, B, dims=None, *, out=None):
    """X with tensordot(A, X, X.ndim) = B."""
    if dims is not None:
        A = f.movedim(A, tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim:]
    n = math.prod(shape)
    if n != B.numel():
        raise RuntimeError(f"Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                           f"prod(self.shape[:other.ndim]), but got {n} != {B.numel()}")
    X = solve(lib.tl_reshape(A, (n, n)), lib.tl_reshape(B, (n,)))
    return _give(lib.tl_reshape(X, tuple(shape)), out)


def __getattr__(name):
    from ._missing import message
    raise AttributeError(message("linalg." + name, "linalg"), name=name)
