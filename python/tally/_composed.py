"""Functions with torch's names, composed from those of _functions.py. Each runs a few of the library's ops; the ledger
bills these, and gradients come from them.
"""
import builtins
import collections
import math

from . import _functions as f
from . import _index
from ._functions import _axes, _axis, _dtype_of, _sizes
from ._library import constants, lib
from ._types import bool_, finfo, float32, float64, int64, promote_types



# ---- Elementwise ----

def fmax(input, other):
    """The larger of two; if one is NaN, the other."""
    return lib.tl_where(f.logical_or(f.ge(input, other), f.isnan(other)), input, other)


def fmin(input, other):
    """The smaller of two; if one is NaN, the other."""
    return lib.tl_where(f.logical_or(f.le(input, other), f.isnan(other)), input, other)


def logaddexp(input, other):
    """log(e^input + e^other), without overflow."""
    return lib.tl_logsumexp(lib.tl_stack(f.broadcast_tensors(input, other), 0), (0,), False)


def logaddexp2(input, other):
    """log2(2^input + 2^other), without overflow."""
    return f.mul(logaddexp(f.mul(input, math.log(2)), f.mul(other, math.log(2))), 1 / math.log(2))


def hypot(input, other):
    """sqrt(input^2 + other^2), without overflow; infinite if one of them is, even beside NaN."""
    f._refuse_complex("hypot", input, other)
    largest = f.maximum(f.abs(input), f.abs(other)).detach()
    scale = f.where(f.logical_and(f.gt(largest, 0), f.isfinite(largest)), largest, 1.0)
    length = f.mul(f.sqrt(f.add(f.square(f.div(input, scale)), f.square(f.div(other, scale)))), scale)
    return f.where(f.logical_or(f.isinf(input), f.isinf(other)), math.inf, length)


def nan_to_num(input, nan=None, posinf=None, neginf=None):
    """Finite numbers in place of NaN (0) and the infinities (the dtype's largest)."""
    if input.dtype.is_complex:
        return lib.tl_view_as_complex(nan_to_num(lib.tl_view_as_real(input), nan, posinf, neginf))
    if not input.is_floating_point():
        return lib.tl_clone(input)
    limits = finfo(_dtype_of(input))
    x = f.where(f.isnan(input), 0.0 if nan is None else float(nan), input)
    x = f.where(f.eq(input, math.inf), limits.max if posinf is None else float(posinf), x)
    return f.where(f.eq(input, -math.inf), limits.min if neginf is None else float(neginf), x)


def logit(input, eps=None):
    """log(x / (1 - x)); eps clamps x to [eps, 1 - eps] first."""
    f._refuse_complex("logit", input)
    x = input if eps is None else f.clamp(input, eps, 1 - eps)
    return f.log(f.div(x, lib.tl_rsub_scalar(x, 1)))


def frac(input):
    """x - trunc(x)"""
    return f.sub(input, f.trunc(input))


def tan(input):
    """sin x / cos x"""
    return f.div(f.sin(input), f.cos(input))


def signbit(input):
    """Whether it is negative, including -0."""
    negative = f.lt(input, 0)
    if not input.is_floating_point():
        return negative
    return f.logical_or(negative, f.lt(f.reciprocal(f.where(f.eq(input, 0), input.detach(), 1.0)), 0))


def deg2rad(input):
    """Degrees to radians."""
    f._refuse_complex("deg2rad", input)
    return f.mul(input, math.pi / 180)


def rad2deg(input):
    """Radians to degrees."""
    f._refuse_complex("rad2deg", input)
    return f.mul(input, 180 / math.pi)


def xlogy(input, other):
    """input log(other), which is 0 where input is 0 (unless other is NaN)."""
    other = other if f.is_tensor(other) else f._full_like_number(other, input)
    kind = f.result_type(input, other)
    kind = kind if kind.is_inexact else float32
    input, other = lib.tl_cast(input, kind.code), lib.tl_cast(other, kind.code)
    nothing = f.logical_and(f.eq(input, 0), f.le(other, 0))
    return f.mul(input, f.log(f.where(nothing, 1.0, other)))


def positive(input):
    """The tensor itself; bool is an error."""
    if input.dtype is bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def float_power(input, exponent):
    """A power in float64, of complex numbers in complex128."""
    kinds = [x.dtype for x in (input, exponent) if f.is_tensor(x)]
    kind = float64.to_complex() if any(k.is_complex for k in kinds) else float64
    up = lambda x: lib.tl_cast(x, kind.code) if f.is_tensor(x) else float(x)  # noqa: E731
    return f.pow(up(input), up(exponent))


def isposinf(input):
    """Whether it is +infinity."""
    f._refuse_complex("isposinf", input)
    return f.eq(input, math.inf)


def isneginf(input):
    """Whether it is -infinity."""
    f._refuse_complex("isneginf", input)
    return f.eq(input, -math.inf)


def threshold(input, threshold, value):
    """value where x <= threshold, else x: NaN stays."""
    return f.where(f.le(input, threshold), value, input)


# ---- Reductions ----

def var_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(var, mean)"""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return f.var(input, dim, unbiased, keepdim, correction=correction), f.mean(input, dim, keepdim)


def std_mean(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """(std, mean)"""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return f.std(input, dim, unbiased, keepdim, correction=correction), f.mean(input, dim, keepdim)


def nanmean(input, dim=None, keepdim=False, *, dtype=None):
    """The mean of the values that are not NaN."""
    input = f._cast(input, dtype)
    count = f.sum(f.logical_not(f.isnan(input)), dim, keepdim)
    return f.div(f.nansum(input, dim, keepdim), count)


_MinMax = collections.namedtuple("aminmax", ["min", "max"])


def aminmax(input, *, dim=None, keepdim=False):
    """(min, max), over all or along an axis."""
    return _MinMax(f.amin(input, _axes(dim), keepdim), f.amax(input, _axes(dim), keepdim))


def diff(input, n=1, dim=-1, prepend=None, append=None):
    """Differences of neighbours along an axis, n times."""
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    axis = _axis(dim, input.ndim)
    if not n:
        return lib.tl_clone(input)
    joined = [x for x in (prepend, input, append) if x is not None]
    x = f.cat(joined, axis) if len(joined) > 1 else input
    for _ in range(n):
        size = x.size(axis)
        if not size:
            break  # torch's result is the tensor itself then, and so is ours
        high, low = lib.tl_slice(x, axis, 1, size, 1), lib.tl_slice(x, axis, 0, size - 1, 1)
        x = f.logical_xor(high, low) if x.dtype is bool_ else lib.tl_sub(high, low)
    return x


def dist(input, other, p=2):
    """The p-norm of the difference."""
    return f.norm(f.sub(input, other), p)


def trace(input):
    """The sum of a matrix' diagonal."""
    if input.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return f.sum(f.diagonal(input))


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """x1 x2 / (max(|x1|, eps) max(|x2|, eps)), along an axis."""
    f._refuse_complex("cosine_similarity", x1, x2)
    def similarity(a, b):
        lengths = f.mul(f.clamp(f.norm(a, 2, dim), min=eps), f.clamp(f.norm(b, 2, dim), min=eps))
        return f.div(f.sum(f.mul(a, b), dim), lengths)
    return f._in_f32(similarity, *f.broadcast_tensors(x1, x2))


# ---- Order ----

_kth, _median = f._Pair["kthvalue"], f._Pair["median"]


def kthvalue(input, k, dim=-1, keepdim=False):
    """(value, index) of the k-th smallest along an axis; k counts from 1."""
    f._not_empty("kthvalue", input, dim)
    size = input.size(dim) if input.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(dim))
    values, indices = f.sort(input, dim)
    return _kth(*(_pick(x, dim, k - 1, keepdim) for x in (values, indices)))


def _pick(x, dim, at, keepdim):
    if not x.ndim:
        return x
    return lib.tl_slice(x, dim, at, at + 1, 1) if keepdim else lib.tl_select(x, dim, at)


def median(input, dim=None, keepdim=False):
    """The median, the lower of two; along an axis (values, indices). NaN if any value is NaN."""
    if dim is None:
        if not input.numel():
            return f.add(f.sum(input, dtype=input.dtype), math.nan if input.is_floating_point() else 0)
        return median(lib.tl_reshape(input, (-1,)), 0).values
    size = input.size(dim) if input.ndim else 1
    if not size:
        raise IndexError("median(): Expected reduction dim " + str(dim) + " to have non-zero size.")
    values, indices = f.sort(input, dim)
    middle = [_pick(x, dim, (size - 1) // 2, keepdim) for x in (values, indices)]
    if not input.is_floating_point():
        return _median(*middle)
    last = [_pick(x, dim, size - 1, keepdim) for x in (values, indices)]  # NaN is sorted to the end
    spoiled = f.isnan(last[0])
    return _median(*(lib.tl_where(spoiled, a, b) for a, b in zip(last, middle)))


def msort(input):
    """Sorted along the first axis."""
    return f.sort(input, 0).values


def isin(elements, test_elements, *, assume_unique=False, invert=False):
    """Whether each element is one of the others."""
    f._refuse_complex("isin", elements, test_elements)
    if not f.is_tensor(elements):
        elements = f._full_like_number(elements, test_elements)
    if not f.is_tensor(test_elements):
        test_elements = f._full_like_number(test_elements, elements)
    found = f.any(f.eq(lib.tl_unsqueeze(elements, -1), lib.tl_reshape(test_elements, (-1,))), -1)
    return f.logical_not(found) if invert else found


def bucketize(input, boundaries, *, out_int32=False, right=False):
    """The index of the bucket that each value falls into."""
    found = f.searchsorted(boundaries, input, right=right)
    return found.int() if out_int32 else found


# ---- Products ----

def _blend(input, product, beta, alpha):
    """beta input + alpha product; if beta is 0, input is ignored, even NaN."""
    if alpha != 1:
        product = lib.tl_mul_scalar(product, alpha)
    if beta == 0:
        nothing = lib.tl_zeros(lib.shape_of(input), bool_.code, lib.tl_device_of(input))
        return lib.tl_add(lib.tl_where_scalar(nothing, input, 0), product)
    return lib.tl_add(input if beta == 1 else lib.tl_mul_scalar(input, beta), product)


def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta input + alpha mat1 mat2"""
    return _blend(_fits(input, (mat1.shape[0], mat2.shape[1]) if mat1.ndim == mat2.ndim == 2 else None),
                  f.mm(mat1, mat2), beta, alpha)


def _fits(input, shape):
    """The sum has the product's shape: input may broadcast to it, not the other way round."""
    if shape is not None and tuple(input.shape) != tuple(shape):
        lib.tl_expand(input, tuple(shape))
    return input


def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta input + alpha mat vec"""
    return _blend(_fits(input, mat.shape[:1] if mat.ndim == 2 else None), f.mv(mat, vec), beta, alpha)


def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta input + alpha vec1 x vec2"""
    product = f.outer(vec1, vec2)
    return _blend(_fits(input, product.shape), product, beta, alpha)


def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta input + alpha batch1 batch2, matrix by matrix."""
    product = f.bmm(batch1, batch2)
    return _blend(_fits(input, product.shape), product, beta, alpha)


def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta input + alpha times the sum of all products of a batch."""
    product = f.sum(f.bmm(batch1, batch2), 0)
    return _blend(_fits(input, product.shape), product, beta, alpha)


def inner(input, other):
    """Sums of products over the last axis of both."""
    if not input.ndim or not other.ndim:
        return f.mul(input, other)
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError("inner() the last dimension must match on both input tensors but got shapes "
                           f"{list(input.shape)} and {list(other.shape)}")
    return tensordot(input, other, ([-1], [-1]))


def vdot(input, other):
    """dot, of the first conjugated."""
    return f.dot(lib.tl_conj(input), other)


def tensordot(a, b, dims=2):
    """Sums of products over several axes: the last `dims` of a with the first of b, or lists of axes."""
    if isinstance(dims, int):
        if dims < 0 or dims > builtins.min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}" if dims < 0
                               else f"tensordot: dims={dims} is more than the tensors have")
        dims = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    of_a, of_b = ([d % x.ndim for d in _axes(axes)] for x, axes in ((a, dims[0]), (b, dims[1])))
    for i, j in zip(of_a, of_b):  # a size of 1 is broadcast: the sum over the other's
        if a.shape[i] == 1:
            b = lib.tl_sum(b, (j,), True)
        elif b.shape[j] == 1:
            a = lib.tl_sum(a, (i,), True)
        elif a.shape[i] != b.shape[j]:
            raise RuntimeError(f"contracted dimensions need to match, but first has size {a.shape[i]} in dim {i} and "
                               f"second has size {b.shape[j]} in dim {j}")
    free_a, free_b = ([d for d in range(x.ndim) if d not in axes] for x, axes in ((a, of_a), (b, of_b)))
    k = math.prod(a.shape[i] for i in of_a)
    shape_a, shape_b = [a.shape[i] for i in free_a], [b.shape[j] for j in free_b]
    left = lib.tl_reshape(lib.tl_permute(a, free_a + of_a), (math.prod(shape_a), k))
    right = lib.tl_reshape(lib.tl_permute(b, of_b + free_b), (k, math.prod(shape_b)))
    return lib.tl_reshape(f._matmul(left, right), shape_a + shape_b)


def kron(input, other):
    """Every product of two tensors' elements, in blocks."""
    n = builtins.max(input.ndim, other.ndim)
    a, b = ([1] * (n - x.ndim) + list(x.shape) for x in (input, other))
    left = lib.tl_reshape(input, [s for n in a for s in (n, 1)])
    right = lib.tl_reshape(other, [s for n in b for s in (1, n)])
    return lib.tl_reshape(lib.tl_mul(left, right), [x * y for x, y in zip(a, b)])


# ---- Diagonals, blocks, grids ----

def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """The last axis as the diagonal of two new ones."""
    if _axis(dim1, input.ndim + 1) == _axis(dim2, input.ndim + 1):
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    n = input.size(-1) + builtins.abs(offset)
    x = lib.tl_zeros(tuple(input.shape[:-1]) + (n, n), lib.tl_dtype_of(input), lib.tl_device_of(input))
    lib.tl_copy_(lib.tl_diagonal(x, offset, -2, -1), input)
    return x if (dim1, dim2) == (-2, -1) else f.movedim(x, (-2, -1), (dim1, dim2))


def diag(input, diagonal=0):
    """The diagonal matrix of a vector, or the diagonal of a matrix (a copy)."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")
    return diag_embed(input, diagonal) if input.ndim == 1 else lib.tl_clone(f.diagonal(input, diagonal))


def diagflat(input, offset=0):
    """The matrix with all elements as a diagonal."""
    return diag_embed(lib.tl_reshape(input, (-1,)), offset)


def block_diag(*tensors):
    """The matrices along a diagonal."""
    for i, x in enumerate(tensors):
        if x.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                               f"{x.ndim} dimensions")
    blocks = [atleast_2d(x) for x in tensors]
    kind = _common_dtype(tensors)
    whole = lib.tl_zeros((builtins.sum(x.shape[0] for x in blocks), builtins.sum(x.shape[1] for x in blocks)),
                         kind.code, lib.tl_device_of(blocks[0]))
    row = column = 0
    for x in blocks:
        lib.tl_copy_(lib.tl_slice(lib.tl_slice(whole, 0, row, row + x.shape[0], 1), 1, column, column + x.shape[1], 1),
                     x)
        row, column = row + x.shape[0], column + x.shape[1]
    return whole


def _common_dtype(tensors):
    """torch's rule: scalars affect the dtype only if their kind is higher than that of all others."""
    kinds = {}
    for x in tensors:
        old = kinds.get(x.ndim > 0)
        kinds[x.ndim > 0] = x.dtype if old is None else promote_types(old, x.dtype)
    if len(kinds) == 1:
        return next(iter(kinds.values()))
    return kinds[True] if can_cast(kinds[False], kinds[True]) else promote_types(kinds[True], kinds[False])


def cartesian_prod(*tensors):
    """Every combination of the vectors' elements, one a row."""
    for x in tensors:
        if x.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return lib.tl_stack([lib.tl_reshape(g, (-1,)) for g in f.meshgrid(*tensors, indexing="ij")], 1)


def _triangle(keep, row, col, offset, dtype, device):
    from ._creation import ones
    if row < 0 or col < 0:
        raise RuntimeError(f"{'row' if row < 0 else 'col'} must be non-negative, got{row if row < 0 else col}")
    return lib.tl_contiguous(lib.tl_cast(lib.tl_nonzero(keep(ones(row, col, device=device), offset)),
                                         (dtype or int64).code).T)


def tril_indices(row, col, offset=0, *, dtype=None, device=None):
    """(2, n): rows and columns of a lower triangle."""
    return _triangle(f.tril, row, col, offset, dtype, device)


def triu_indices(row, col, offset=0, *, dtype=None, device=None):
    """(2, n): rows and columns of an upper triangle."""
    return _triangle(f.triu, row, col, offset, dtype, device)


# ---- Views and joins ----

def adjoint(input):
    """The last two axes swapped; a view."""
    return input.mT if input.ndim else input


def fliplr(input):
    """Reverses the second axis."""
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return f.flip(input, (1,))


def flipud(input):
    """Reverses the first axis."""
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return f.flip(input, (0,))


def rot90(input, k=1, dims=(0, 1)):
    """Rotates a plane by 90 degrees, k times."""
    k %= 4
    if not k:
        return lib.tl_clone(input)
    if k == 2:
        return f.flip(input, dims)
    return lib.tl_clone(f.transpose(f.flip(input, dims[1] if k == 1 else dims[0]), *dims))


def split_with_sizes(input, split_sizes, dim=0):
    """Parts of these sizes; views."""
    return f.split(input, list(split_sizes), dim)


def hsplit(input, indices_or_sections):
    """tensor_split along the second axis, of a vector the first; views."""
    if input.ndim < 1:
        raise RuntimeError("torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 "
                           "dimensions!")
    return _even_split("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input, indices_or_sections):
    """tensor_split along the first axis; views."""
    if input.ndim < 2:
        raise RuntimeError("torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with "
                           f"{input.ndim} dimensions!")
    return _even_split("vsplit", input, indices_or_sections, 0)


def dsplit(input, indices_or_sections):
    """tensor_split along the third axis; views."""
    if input.ndim < 3:
        raise RuntimeError("torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with "
                           f"{input.ndim} dimensions!")
    return _even_split("dsplit", input, indices_or_sections, 2)


def _even_split(name, input, sections, dim):
    if isinstance(sections, int) and (sections <= 0 or input.shape[dim] % sections):
        raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
                           f"{input.shape[dim]} is not divisible by the split_size {sections}!")
    return f.tensor_split(input, sections, dim)


def sum_to_size(input, *size):
    """Summed over the axes that were broadcast from this size."""
    size = _sizes(size)
    lead = input.ndim - len(size)
    if lead < 0 or builtins.any(s not in (1, n) for s, n in zip(size, input.shape[lead:])):
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(input.shape)}}}.")
    if not size:
        return f.sum(input)
    axes = list(range(lead)) + [i + lead for i, s in enumerate(size) if s == 1 and input.shape[i + lead] != 1]
    return lib.tl_reshape(f.sum(input, axes, True), size) if axes else input


def atleast_1d(*tensors):
    """A scalar becomes a vector."""
    return _at_least(1, tensors)


def atleast_2d(*tensors):
    """A vector becomes a row."""
    return _at_least(2, tensors)


def atleast_3d(*tensors):
    """A matrix becomes a stack of columns."""
    return _at_least(3, tensors)


def _at_least(n, tensors):
    is_list = len(tensors) != 1 or isinstance(tensors[0], (list, tuple))
    tensors = tensors[0] if len(tensors) == 1 and is_list else tensors
    raised = tuple(_raise_rank(x, n) for x in tensors)
    return raised if is_list else raised[0]


def _raise_rank(x, n):
    if x.ndim >= n:
        return x
    if not x.ndim:
        return lib.tl_reshape(x, (1,) * n)
    x = lib.tl_unsqueeze(x, 0) if x.ndim == 1 else x
    return lib.tl_unsqueeze(x, -1) if n == 3 else x


def vstack(tensors):
    """Joins along the first axis, vectors as rows."""
    return f.cat([atleast_2d(x) for x in tensors], 0)


def hstack(tensors):
    """Joins along the second axis, vectors along the first."""
    tensors = [atleast_1d(x) for x in tensors]
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    return f.cat(tensors, 0 if tensors[0].ndim == 1 else 1)


def dstack(tensors):
    """Joins along the third axis."""
    return f.cat([atleast_3d(x) for x in tensors], 2)


def column_stack(tensors):
    """Joins along the second axis, vectors as columns."""
    return f.cat([x if x.ndim > 1 else lib.tl_reshape(x, (-1, 1)) for x in tensors], 1)


row_stack = vstack


# ---- Gathering ----

def take(input, index):
    """Elements by flat index in row-major order; negative indices count from the end."""
    return lib.tl_index(lib.tl_reshape(input, (-1,)), (0,), [lib.tl_cast(index, int64.code)])


def index_put(input, indices, values, accumulate=False):
    """input with input[indices] = values, or +=."""
    view, axes, tensors = _index.put_apart(input, indices, values)
    if view is not input:
        return lib.tl_clone(input).index_put_(indices, values, accumulate)
    return lib.tl_index_put(input, axes, tensors, values, accumulate)


def index_copy(input, dim, index, source):
    """input with slices of an axis from source."""
    return lib.tl_clone(input).index_copy_(dim, index, source)


def index_fill(input, dim, index, value):
    """input with slices of an axis of one value."""
    return lib.tl_clone(input).index_fill_(dim, index, value)


def masked_scatter(input, mask, source):
    """input where the mask is false; elsewhere the elements of source, in order."""
    mask, input = f.broadcast_tensors(mask, input)
    if mask.dtype is not bool_:
        raise RuntimeError("masked_scatter: expected BoolTensor for mask")
    if source.dtype is not input.dtype:
        raise RuntimeError("masked_scatter: expected self and source to have same dtypes but "
                           "got " + f._scalar_name(input) + " and " + f._scalar_name(source))
    flat = lib.tl_reshape(lib.tl_cast(mask, int64.code), (-1,))
    place = f.clamp(f.sub(f.cumsum(flat, 0), 1), min=0)
    if lib.tl_item_int(f.sum(flat)) > source.numel():
        raise RuntimeError("masked_scatter: expected number of elements in source to be at least the number of ones in "
                           "mask")
    if not source.numel():
        return lib.tl_clone(input)
    values = lib.tl_index(lib.tl_reshape(source, (-1,)), (0,), [f.clamp(place, max=source.numel() - 1)])
    return lib.tl_where(mask, lib.tl_reshape(values, input.shape), input)


def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """input with src combined into it where index says: sum, prod, mean, amax or amin; without include_self, of src
    alone where it comes."""
    if reduce == "sum" and include_self:
        return lib.tl_scatter_add(input, dim, index, src)
    from ._ordered import scatter_reduced
    return scatter_reduced(input, dim, index, src, reduce, include_self)


def select_scatter(input, src, dim, index):
    """input with one index of an axis from src."""
    x = lib.tl_clone(input)
    place = lib.tl_select(x, dim, index)
    if lib.shape_of(place) != lib.shape_of(src):
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
                           f"slice size = {list(place.shape)}")
    lib.tl_copy_(place, src)
    return x


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """input with a slice of an axis from src."""
    x = lib.tl_clone(input)
    lib.tl_copy_(lib.tl_slice(x, dim, 0 if start is None else start, constants["TL_END"] if end is None else end, step),
                 src)
    return x


def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """input with a diagonal from src."""
    x = lib.tl_clone(input)
    lib.tl_copy_(lib.tl_diagonal(x, offset, dim1, dim2), src)
    return x


# ---- Of tensors as objects ----

def clone(input, *, memory_format=None):
    """A copy. Memory formats are accepted: tensors here have one."""
    return lib.tl_clone(input)


def detach(input):
    """The same memory without history."""
    return lib.tl_detach(input)


def as_strided(input, size, stride, storage_offset=None):
    """Any geometry inside the storage; a view."""
    return input.as_strided(size, stride, storage_offset)


def is_signed(input):
    """Whether its dtype has negative numbers."""
    return input.is_signed()


def is_nonzero(input):
    """Whether the only element is not 0."""
    return bool(input)


def is_same_size(input, other):
    """Whether the shapes are equal."""
    return lib.shape_of(input) == lib.shape_of(other)


def is_inference(input):
    """False: inference_mode is no_grad here."""
    return False


def can_cast(from_, to):
    """Whether a result of this dtype may be stored in a tensor of that one, by torch's rules."""
    rank = lambda d: 0 if d is bool_ else 3 if d.is_complex else 2 if d.is_floating_point else 1  # noqa: E731
    return rank(from_) <= rank(to)


def narrow_copy(input, dim, start, length):
    """narrow, as a copy."""
    return lib.tl_clone(f.narrow(input, dim, start, length))


def fill(input, value):
    """A tensor like input, all one value."""
    return lib.tl_clone(input).fill_(value)


def rsub(input, other, *, alpha=1):
    """other - alpha input"""
    scaled = f.mul(input, alpha) if alpha != 1 else input
    return f.sub(other, scaled) if f.is_tensor(other) else lib.tl_rsub_scalar(scaled, f._number(other, "rsub", "other"))


unsafe_split_with_sizes = split_with_sizes
ger, fix, unsafe_split, unsafe_chunk = f.outer, f.trunc, f.split, f.chunk
METHODS = """
fmax fmin logaddexp logaddexp2 hypot nan_to_num logit frac tan signbit deg2rad rad2deg xlogy positive
float_power isposinf isneginf nanmean aminmax diff dist trace kthvalue median msort addmm addmv addr
baddbmm addbmm inner vdot kron diag_embed diag diagflat adjoint fliplr flipud rot90 split_with_sizes hsplit
vsplit dsplit sum_to_size take index_put index_copy index_fill masked_scatter scatter_reduce select_scatter
slice_scatter diagonal_scatter is_nonzero is_same_size is_inference narrow_copy ger fix unsafe_split
unsafe_chunk unsafe_split_with_sizes
""".split()
IN_PLACE = """hypot nan_to_num logit frac tan deg2rad rad2deg xlogy addmm addmv addr baddbmm addbmm sgn fix""".split()
f._with_numpy_names(globals())
__all__ = [n for n, v in list(globals().items()) if getattr(v, "__module__", None) == __name__
           and not n.startswith("_")] + \
    ["ger", "fix", "unsafe_split", "unsafe_chunk"]
