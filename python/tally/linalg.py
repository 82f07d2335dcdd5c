"""torch.linalg: norms and products. Decompositions are in numpy.linalg, on `x.numpy()`."""
import math

from . import _functions as f
from ._functions import _axes, _axis
from ._library import lib
from ._types import bool_


def _real(name, x):
    if not x.dtype.is_floating_point:
        raise RuntimeError(f"linalg.{name}: Expected a floating point or complex tensor as input. Got "
                           f"{f._scalar_name(x)}")


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None, out=None):
    """(sum |x|^ord)^(1 / ord) over some axes, or all; inf is the largest magnitude, 0 counts what is not 0."""
    _real("vector_norm", x)
    if dtype is not None and not dtype.is_floating_point:
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
        norm = f._constant_of(x, (), False, f.ne(x, 0).to(x.dtype)) if ord == 0 else f.abs(x)
    elif ord == 0:
        norm = f._constant_of(x, axes, keepdim, f.sum(f.ne(x, 0), axes, keepdim).to(x.dtype))
    else:
        norm = lib.tl_norm(x, ord, axes, keepdim)
    return norm if out is None else f._into(out, norm)


def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None, out=None):
    """Of the matrices in two axes: "fro", or the largest (smallest for a negative ord) sum of a column (1) or row
    (inf)."""
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
    else:
        raise NotImplementedError(f"linalg.matrix_norm: ord={ord!r} needs singular values: use numpy.linalg.norm on "
                                  "x.numpy()")
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
    """Sums of products along an axis."""
    z = f.sum(f.mul(x, y), dim)
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
        raise NotImplementedError("linalg.matrix_power: a negative power needs the inverse: use numpy.linalg.inv on "
                                  "x.numpy()")
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


def __getattr__(name):
    from ._missing import message
    raise AttributeError(message("linalg." + name, "linalg"), name=name)
