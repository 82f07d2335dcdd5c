"""torch.masked: reductions over the elements where a mask is true."""
import math

from . import _composed as c
from . import _functions as f
from ._library import lib
from ._functions import _axes
from ._types import bool_, float32, iinfo, int64


def _filled(input, mask, value):
    return input if mask is None else f.where(_spread(mask, input), input, value)


def _spread(mask, input):
    if mask.dtype is not bool_:
        mask = mask.to(bool_)
    return lib.tl_broadcast_to(mask, lib.shape_of(input)) if lib.shape_of(mask) != lib.shape_of(input) else mask


def _least(kind):
    return -math.inf if kind.is_floating_point else False if kind is bool_ else iinfo(kind).min


def _most(kind):
    return math.inf if kind.is_floating_point else True if kind is bool_ else iinfo(kind).max


def _all(input, dim):
    return tuple(range(input.ndim)) if dim is None or dim == () else _axes(dim)


def _count(input, dim, keepdim, mask):
    one = lib.tl_ones(lib.shape_of(input), int64.code, lib.tl_device_of(input))
    return f.sum(_filled(one, mask, 0), _all(input, dim) or None, keepdim)


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of what the mask keeps."""
    return f.sum(_filled(f._cast(input, dtype), mask, 0), _all(input, dim) or None, keepdim, dtype=dtype)


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of what the mask keeps."""
    x = _filled(f._cast(input, dtype), mask, 1)
    for axis in sorted((d % max(x.ndim, 1) for d in _all(input, dim)), reverse=True):
        x = f.prod(x, axis, True, dtype=dtype)
    return x if keepdim else _without(x, input, dim)


def _without(x, input, dim):
    """x without the axes that were reduced to 1."""
    gone = {d % max(input.ndim, 1) for d in _all(input, dim)}
    return lib.tl_reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in gone))


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The largest of what the mask keeps."""
    x = f._cast(input, dtype)
    return f.amax(_filled(x, mask, _least(x.dtype)), _all(input, dim), keepdim)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The smallest of what the mask keeps."""
    x = f._cast(input, dtype)
    return f.amin(_filled(x, mask, _most(x.dtype)), _all(input, dim), keepdim)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the largest of what the mask keeps is."""
    x = f._cast(input, dtype)
    return f.argmax(_filled(x, mask, _least(x.dtype)), dim, keepdim).to(x.dtype)  # as torch.masked has it


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """Where the smallest of what the mask keeps is."""
    x = f._cast(input, dtype)
    return f.argmin(_filled(x, mask, _most(x.dtype)), dim, keepdim).to(x.dtype)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of what the mask keeps."""
    if dtype is None and not input.dtype.is_inexact:
        dtype = float32
    total = sum(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
    return f.div(total, _count(input, dim, keepdim, mask).to(total.dtype))


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median of what the mask keeps."""
    from ._ordered import nanmedian
    x = f._cast(input, dtype)
    return nanmedian(_filled(x, mask, math.nan), dim, keepdim).values


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log of the sum of e^x of what the mask keeps."""
    x = f._cast(input, dtype)
    return f.logsumexp(_filled(x, mask, -math.inf), _all(input, dim), keepdim)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(e^input + e^other), each where its mask keeps it."""
    a, b = f._cast(input, dtype), f._cast(other, dtype)
    return c.logaddexp(_filled(a, input_mask, -math.inf), _filled(b, other_mask, -math.inf))


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The vector norm of what the mask keeps."""
    from .linalg import vector_norm
    x = f._cast(input, dtype)
    neutral = math.inf if ord < 0 else 0
    return vector_norm(_filled(x, mask, neutral), ord, _all(input, dim) or None, keepdim, dtype=dtype)


def _spread_of(input, dim, unbiased, keepdim, dtype, mask, root):
    dtype = float32 if dtype is None and not input.dtype.is_inexact else dtype
    x = f._cast(input, dtype)
    axes = _all(input, dim)
    count = _count(input, dim, True, mask).to(x.dtype)
    centre = f.div(sum(x, dim, keepdim=True, mask=mask), count)
    square = f.sum(_filled(f.square(f.sub(x, centre)), mask, 0), axes or None, True)
    left = f.clamp(f.sub(count, 1), min=0) if unbiased else count
    y = f.div(square, left)
    y = f.sqrt(y) if root else y
    return y if keepdim else _without(y, input, dim)


def var(input, dim=None, unbiased=True, *, keepdim=False, dtype=None, mask=None):
    """The variance of what the mask keeps."""
    return _spread_of(input, dim, unbiased, keepdim, dtype, mask, False)


def std(input, dim=None, unbiased=True, *, keepdim=False, dtype=None, mask=None):
    """The standard deviation of what the mask keeps."""
    return _spread_of(input, dim, unbiased, keepdim, dtype, mask, True)


def cumsum(input, dim, *, dtype=None, mask=None):
    """Running sums of what the mask keeps."""
    return f.cumsum(_filled(f._cast(input, dtype), mask, 0), dim, dtype=dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    """Running products of what the mask keeps."""
    return f.cumprod(_filled(f._cast(input, dtype), mask, 1), dim, dtype=dtype)


def softmax(input, dim, *, dtype=None, mask=None):
    """softmax over what the mask keeps."""
    return f.softmax(_filled(f._cast(input, dtype), mask, -math.inf), dim)


def log_softmax(input, dim, *, dtype=None, mask=None):
    """log_softmax over what the mask keeps."""
    return f.log_softmax(_filled(f._cast(input, dtype), mask, -math.inf), dim)


def softmin(input, dim, *, dtype=None, mask=None):
    """softmin over what the mask keeps."""
    return f.softmax(f.neg(_filled(f._cast(input, dtype), mask, math.inf)), dim)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """x over its norm, both of what the mask keeps."""
    x = f._cast(input, dtype)
    length = norm(x, ord, dim, keepdim=True, mask=mask)
    return f.div(_filled(x, mask, 0), f.clamp(length, min=eps))
