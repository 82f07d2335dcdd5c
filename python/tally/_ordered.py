"""Functions with torch's names that are rarer than those of _composed.py: order statistics, running extremes,
histograms, distances, scattering with other reductions, copies of views. Imported when one is first asked for."""
import builtins
import collections
import itertools
import math
import warnings

from . import _composed as c
from . import _functions as f
from ._creation import arange, empty, full, tensor, zeros
from ._functions import _axes, _axis, _sizes
from ._grad import no_grad
from ._library import lib
from ._types import bool_, finfo, float32, float64, get_default_dtype, iinfo, int64

_Pair = {name: collections.namedtuple(name, ["values", "indices"])
         for name in ("cummax", "cummin", "mode", "nanmedian")}


# ---- Order ----

def _running(name, input, dim):
    """Running extremes and where they are: the last of equal ones, NaN once it has come."""
    if not input.ndim:
        _axis(dim, 0)
        return _Pair[name](lib.tl_clone(input), lib.tl_zeros((), int64.code, lib.tl_device_of(input)))
    axis, n = _axis(dim, input.ndim), input.size(dim)
    if not n:
        return _Pair[name](lib.tl_clone(input), lib.tl_cast(input, int64.code))
    better = f.ge if name == "cummax" else f.le
    with no_grad():
        values = input.detach()
        shape = [1] * input.ndim
        shape[axis] = n
        places = lib.tl_expand(lib.tl_reshape(arange(n, device=input.device), shape), lib.shape_of(input))
        step = 1
        while step < n:  # the best of 1, 2, 4, ... elements
            now_v, now_i = (lib.tl_slice(x, axis, step, n, 1) for x in (values, places))
            old_v, old_i = (lib.tl_slice(x, axis, 0, n - step, 1) for x in (values, places))
            keeps = better(now_v, old_v)
            if values.dtype.is_floating_point:
                keeps = f.logical_or(f.isnan(now_v), f.logical_and(keeps, f.logical_not(f.isnan(old_v))))
            head_v, head_i = (lib.tl_slice(x, axis, 0, step, 1) for x in (values, places))
            values = f.cat([head_v, f.where(keeps, now_v, old_v)], axis)
            places = f.cat([head_i, f.where(keeps, now_i, old_i)], axis)
            step *= 2
    return _Pair[name](f.gather(input, axis, places), places)


def cummax(input, dim):
    """(values, indices) of the largest so far along an axis."""
    return _running("cummax", input, dim)


def cummin(input, dim):
    """(values, indices) of the smallest so far along an axis."""
    return _running("cummin", input, dim)


def logcumsumexp(input, dim):
    """log of the running sum of e^x along an axis, without overflow."""
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f"\"logcumsumexp_out_cpu\" not implemented for '{f._scalar_name(input)}'")
    if not input.ndim or not input.numel():
        _axis(dim, input.ndim)
        return lib.tl_clone(input)
    axis, n, x, step = _axis(dim, input.ndim), input.size(dim), input.to(float64), 1
    while step < n:
        now, old = lib.tl_slice(x, axis, step, n, 1), lib.tl_slice(x, axis, 0, n - step, 1)
        x = f.cat([lib.tl_slice(x, axis, 0, step, 1), c.logaddexp(now, old)], axis)
        step *= 2
    return x.to(input.dtype)


def _quantile(name, input, q, dim, keepdim, interpolation, ignores_nan):
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if not f.is_tensor(q):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = tensor(q, dtype=input.dtype, device=input.device)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if q.numel() and not bool(f.all(f.logical_and(f.ge(q, 0), f.le(q, 1)))):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                           f"{interpolation}")
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    shape = list(input.shape)
    axis = None if dim is None else _axis(dim, input.ndim)
    x = lib.tl_reshape(input, (-1,)) if dim is None else f.movedim(input, axis, -1) if input.ndim else \
        lib.tl_reshape(input, (1,))
    ordered = f.sort(x, -1).values
    flat_q = lib.tl_reshape(q, (-1,))
    last = f.sub(f.sum(f.logical_not(f.isnan(ordered)), -1, True), 1) if ignores_nan else \
        full((*ordered.shape[:-1], 1), ordered.shape[-1] - 1, dtype=int64, device=input.device)
    rank = f.mul(last.to(input.dtype), flat_q)
    rank = f.where(f.lt(rank, 0), 0.0, rank)
    if not ignores_nan:  # NaN is sorted to the end: where it is, it is the result
        spoiled = f.isnan(f.select(ordered, -1, -1))
        rank = f.where(lib.tl_unsqueeze(spoiled, -1), float(ordered.shape[-1] - 1), rank)
    rank = {"lower": f.floor, "higher": f.ceil, "nearest": f.round}.get(interpolation, lambda r: r)(rank)
    below = f.floor(rank).to(int64)
    low = f.gather(ordered, -1, below)
    if interpolation in ("linear", "midpoint"):
        high = f.gather(ordered, -1, f.ceil(rank).to(int64))
        weight = f.sub(rank, below.to(rank.dtype))
        if interpolation == "midpoint":
            weight = f.where(f.gt(weight, 0), 0.5, weight)
        low = f.lerp(low, high, weight)
    y = f.movedim(low, -1, 0)  # (q, ...)
    if keepdim:
        y = (lib.tl_reshape(y, (y.shape[0], *[1] * len(shape))) if dim is None
             else lib.tl_unsqueeze(y, axis + 1) if input.ndim else lib.tl_reshape(y, (y.shape[0],)))
    return y if q.ndim else f.select(y, 0, 0)


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The value below which the share q of the values lie."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """quantile of the values that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


def nanmedian(input, dim=None, keepdim=False):
    """The median of the values that are not NaN, the lower of two; along an axis (values, indices)."""
    if not input.dtype.is_floating_point:
        found = c.median(input) if dim is None else c.median(input, dim, keepdim)
        return found if dim is None else _Pair["nanmedian"](*found)
    if dim is None:
        if not input.numel():
            return f.add(f.sum(input), math.nan)
        return nanmedian(lib.tl_reshape(input, (-1,)), 0).values
    if input.ndim and not input.size(dim):
        raise IndexError(f"nanmedian(): Expected reduction dim {_axis(dim, input.ndim)} to have non-zero size.")
    if not input.ndim:
        return _Pair["nanmedian"](lib.tl_clone(input), lib.tl_zeros((), int64.code, lib.tl_device_of(input)))
    values, indices = f.sort(input, dim)
    count = f.sum(f.logical_not(f.isnan(values)), dim, True)
    at = f.clamp(f.floor_divide(f.sub(count, 1), 2), min=0)
    found = [f.gather(x, dim, at) for x in (values, indices)]
    return _Pair["nanmedian"](*(x if keepdim else f.squeeze(x, dim) for x in found))


def mode(input, dim=-1, keepdim=False):
    """(value, index) of the most frequent value along an axis: the smallest of several, at its last place."""
    if not input.ndim:
        return _Pair["mode"](lib.tl_clone(input), lib.tl_zeros((), int64.code, lib.tl_device_of(input)))
    axis, n = _axis(dim, input.ndim), input.size(dim)
    if not n:
        raise IndexError(f"mode(): Expected reduction dim {axis} to have non-zero size.")
    with no_grad():
        moved = f.movedim(input.detach(), axis, -1)
        values, indices = f.sort(moved, -1)
        same = f.eq(lib.tl_unsqueeze(values, -1), lib.tl_unsqueeze(values, -2))
        counts = f.sum(same, -1)
        first = lib.tl_argmax(counts, (-1,), True)
        at = f.add(first, f.sub(f.gather(counts, -1, first), 1))  # the last of the run
        places = f.movedim(f.gather(indices, -1, at), -1, axis)
    picked = f.gather(input, axis, places)
    return _Pair["mode"](*(x if keepdim else f.squeeze(x, axis) for x in (picked, places)))


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The values without their repetitions next to each other."""
    f._refuse_complex("unique_consecutive", input)
    x = lib.tl_reshape(input, (-1,)) if dim is None else f.movedim(input, dim, 0)
    n = x.shape[0]
    rows = lib.tl_reshape(x, (n, -1)) if n else x
    if n:
        differ = f.any(f.ne(lib.tl_slice(rows, 0, 1, n, 1), lib.tl_slice(rows, 0, 0, n - 1, 1)), 1)
        starts = f.cat([full((1,), True, dtype=bool_, device=x.device), differ])
    else:
        starts = zeros(0, dtype=bool_, device=x.device)
    at = f.select(f.nonzero(starts), 1, 0)
    values = f.index_select(x, 0, at)
    values = values if dim is None else f.movedim(values, 0, dim)
    inverse = f.sub(f.cumsum(starts.to(int64), 0), 1)
    if dim is None:
        inverse = lib.tl_reshape(inverse, lib.shape_of(input))
    ends = f.cat([lib.tl_slice(at, 0, 1, at.shape[0], 1), full((1,), n, dtype=int64, device=x.device)]) if n else at
    found = (values,) + ((inverse,) if return_inverse else ()) + ((f.sub(ends, at),) if return_counts else ())
    return found if len(found) > 1 else values


def unique_along(input, dim, return_inverse, return_counts):
    """Distinct slices of an axis, in the order of their elements."""
    rows = f.movedim(input, dim, 0)
    n = rows.shape[0]
    flat = lib.tl_reshape(rows, (n, math.prod(rows.shape[1:])))
    order = arange(n, device=input.device)
    for column in range(flat.shape[1] - 1, -1, -1):  # stable sorts, the first element last
        key = f.index_select(f.select(flat, 1, column), 0, order)
        order = f.index_select(order, 0, f.argsort(key, stable=True))
    found = unique_consecutive(f.index_select(rows, 0, order), True, True, 0)
    inverse = f.scatter(zeros(n, dtype=int64, device=input.device), 0, order, found[1])
    values = f.movedim(found[0], 0, dim)
    found = (values,) + ((inverse,) if return_inverse else ()) + ((found[2],) if return_counts else ())
    return found if len(found) > 1 else values


# ---- Histograms ----

_Histogram = collections.namedtuple("histogram", ["hist", "bin_edges"])


def histc(input, bins=100, min=0, max=0):
    """How many values fall into each of `bins` equal parts of [min, max]."""
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    low, high = (x.item() if f.is_tensor(x) else x for x in (min, max))
    x = lib.tl_reshape(input.detach(), (-1,))
    if low == high and x.numel():
        low, high = f.min(x).item(), f.max(x).item()
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("max must be larger than min")
    f._refuse_complex("histc", x)
    wide = x.to(float64)
    inside = f.logical_and(f.ge(wide, low), f.le(wide, high))
    at = f.clamp(f.floor(f.mul(f.div(f.sub(wide, low), high - low), bins)), 0, bins - 1)
    at = f.where(f.isnan(at), 0.0, at).to(int64)
    return f.index_add(zeros(bins, dtype=input.dtype, device=input.device), 0, at, inside.to(input.dtype))


def histogram(input, bins, *, range=None, weight=None, density=False):
    """(counts, edges): of equal parts, or between the edges that are given."""
    x = lib.tl_reshape(input.detach(), (-1,))
    w = full((x.numel(),), 1, dtype=input.dtype, device=input.device) if weight is None else \
        lib.tl_reshape(weight.detach(), (-1,))
    if f.is_tensor(bins):
        edges = bins
    else:
        low, high = range if range is not None else (
            (f.min(x).item(), f.max(x).item()) if x.numel() else (0.0, 1.0))
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = lib.tl_linspace(low, high, bins + 1, input.dtype.code, lib.tl_device_of(input))
    n = edges.numel() - 1
    at = f.sub(f.searchsorted(edges, x, right=True), 1)
    at = f.where(f.eq(x, f.select(edges, 0, -1)), n - 1, at)
    inside = f.logical_and(f.ge(at, 0), f.lt(at, n))
    inside = f.logical_and(inside, f.ge(x, f.select(edges, 0, 0)))
    counts = f.index_add(zeros(n, dtype=input.dtype, device=input.device), 0, f.clamp(at, 0, builtins.max(n - 1, 0)),
                         f.mul(inside.to(input.dtype), w))
    if density:
        counts = f.div(counts, f.mul(f.sum(counts), c.diff(edges)))
    return _Histogram(counts, edges)


# ---- Distances, products, statistics ----

def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The p-norm of the difference of every row of one with every row of the other."""
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    f._refuse_complex("cdist", x1, x2)
    apart = f.sub(lib.tl_unsqueeze(x1, -2), lib.tl_unsqueeze(x2, -3))
    if not x1.shape[-1]:
        return f.sum(apart, -1)
    return _p_norm(apart, p)


def _p_norm(apart, p):
    """Along the last axis; where everything is 0 the gradient is 0."""
    if p == 0:
        return f._constant_of(apart, (-1,), False, f.sum(f.ne(apart, 0), -1).to(apart.dtype))
    if p == math.inf:
        return f.amax(f.abs(apart), -1)
    if p == 1:
        return f.sum(f.abs(apart), -1)
    return lib.tl_norm(apart, float(p), (-1,), False)


def pdist(input, p=2.0):
    """The distances of every two rows, in order."""
    f._refuse_complex("pdist", input)
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    n = input.shape[0]
    i, j = f.unbind(c.triu_indices(n, n, 1, device=input.device), 0)
    return _p_norm(f.sub(f.index_select(input, 0, i), f.index_select(input, 0, j)), p)


def cross(input, other, dim=None):
    """The vector product of vectors of three, along the first axis of size 3 unless told."""
    from .linalg import cross as product
    if dim is None:
        shape = f.broadcast_shapes(input.shape, other.shape)
        dim = next((i for i, n in enumerate(shape) if n == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
    return product(input, other, dim=dim)


def cov(input, *, correction=1, fweights=None, aweights=None):
    """Covariances of rows."""
    if input.ndim > 2:
        raise RuntimeError("cov(): expected input to have two or fewer dimensions but got an input with "
                           f"{input.ndim} dimensions")
    x = c.atleast_2d(input)
    x = x if x.dtype.is_inexact else x.to(get_default_dtype())
    w = None
    for each in (fweights, aweights):
        if each is not None:
            w = each.to(x.dtype) if w is None else f.mul(w, each.to(x.dtype))
    total = x.shape[1] if w is None else f.sum(w)
    mean = f.mean(x, 1, True) if w is None else f.div(f.sum(f.mul(x, w), 1, True), total)
    norm = total - correction
    if aweights is not None and correction:
        a = aweights.to(x.dtype)
        norm = f.sub(total, f.mul(f.div(f.sum(f.mul(w, a)), total), correction))
    d = f.sub(x, mean)
    y = f.div(f.matmul(d if w is None else f.mul(d, w), lib.tl_conj(f.t(d))),
              f.clamp(norm, min=0) if f.is_tensor(norm) else builtins.max(norm, 0))
    return f.squeeze(y)


def corrcoef(input):
    """Correlations of rows."""
    y = cov(input)
    if not y.ndim:
        return f.div(y, y)
    root = f.sqrt(f.diagonal(y))
    return f.clamp(f.div(f.div(y, lib.tl_unsqueeze(root, 1)), root), -1, 1)


def trapezoid(y, x=None, *, dx=None, dim=-1):
    """The integral along an axis by trapezoids."""
    width = _widths(y, x, dx, dim)
    n = y.size(dim)
    if not n:
        return f.sum(y, dim)
    a, b = lib.tl_slice(y, dim, 0, n - 1, 1), lib.tl_slice(y, dim, 1, n, 1)
    return f.mul(f.sum(f.mul(f.add(a, b), width), dim), 0.5)


def _widths(y, x, dx, dim):
    if x is None:
        return 1.0 if dx is None else dx
    if x.ndim == 1:
        d = c.diff(x)
        return lib.tl_reshape(d, [-1] + [1] * (y.ndim - 1 - _axis(dim, y.ndim)))
    return c.diff(x, dim=dim) if x.ndim == y.ndim else c.diff(x, dim=-1)


trapz = trapezoid


def cumulative_trapezoid(y, x=None, *, dx=None, dim=-1):
    """Running integrals along an axis by trapezoids."""
    n, width = y.size(dim), _widths(y, x, dx, dim)
    if not n:
        return lib.tl_clone(y)
    a, b = lib.tl_slice(y, dim, 0, n - 1, 1), lib.tl_slice(y, dim, 1, n, 1)
    return f.mul(f.cumsum(f.mul(f.add(a, b), width), dim), 0.5)


def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """Differences of neighbours on both sides over their distance, along axes."""
    spacing = 1 if spacing is None else spacing
    axes = list(range(input.ndim)) if dim is None else [_axis(d, input.ndim) for d in _axes(dim)]
    spacings = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    found = []
    for axis, h in zip(axes, spacings):
        n = input.size(axis)
        if n < edge_order + 1:
            raise RuntimeError(f"torch.gradient expected each dimension size to be at least edge_order+1")
        part = lambda x, a, b: lib.tl_slice(x, axis, a, b, 1)  # noqa: E731
        if f.is_tensor(h) and h.ndim == 1:
            shape = [1] * input.ndim
            shape[axis] = n - 1
            step = lib.tl_reshape(c.diff(h), shape)
        else:
            shape = [1] * input.ndim
            shape[axis] = n - 1
            value = h.item() if f.is_tensor(h) else h
            step = full(shape, float(value),
                        dtype=input.dtype if input.dtype.is_floating_point else get_default_dtype(),
                        device=input.device)
        slope = f.div(c.diff(input, dim=axis), step)
        left, right = part(step, 0, n - 2), part(step, 1, n - 1)
        inner = f.div(
    f.add(
        f.mul(
            part(
                slope,
                0,
                n - 2),
                right),
                f.mul(
                    part(
                        slope,
                        1,
                        n - 1),
                        left)),
                        f.add(
                            left,
                             right))
        first, last = part(slope, 0, 1), part(slope, n - 2, n - 1)
        if edge_order == 2:
            h0, h1 = part(step, 0, 1), part(step, 1, 2)
            first = f.sub(first, f.mul(f.div(f.sub(part(slope, 1, 2), first), f.add(h0, h1)), h0))
            h0, h1 = part(step, n - 2, n - 1), part(step, n - 3, n - 2)
            last = f.add(last, f.mul(f.div(f.sub(last, part(slope, n - 3, n - 2)), f.add(h0, h1)), h0))
        found.append(f.cat([first, inner, last], axis))
    return found


def combinations(input, r=2, with_replacement=False):
    """Every choice of r elements of a vector."""
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    pick = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(pick(range(input.numel()), r))
    if not r:
        return empty(0, dtype=input.dtype, device=input.device)
    index = tensor(rows, dtype=int64, device=input.device) if rows else empty(0, r, dtype=int64, device=input.device)
    return lib.tl_reshape(f.index_select(input, 0, lib.tl_reshape(index, (-1,))), tuple(index.shape))


def renorm(input, p, dim, maxnorm):
    """Slices of an axis, scaled down to a p-norm of at most maxnorm."""
    axis = _axis(dim, input.ndim)
    others = tuple(i for i in range(input.ndim) if i != axis)
    norm = lib.tl_norm(input, float(p), others, True)
    scale = f.where(f.gt(norm, maxnorm), f.mul(f.reciprocal(f.add(norm, 1e-7)), maxnorm), 1.0)
    return f.mul(input, scale)


def vander(x, N=None, increasing=False):
    """Rows of the powers of each number."""
    n = x.shape[0] if N is None else N
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    kind = x.dtype if x.dtype is not bool_ else int64
    powers = [f.pow(x.to(kind), i) for i in range(n)]
    y = f.stack(powers, 1) if n else empty(x.shape[0], 0, dtype=kind, device=x.device)
    return y if increasing else f.flip(y, (1,)) if n else y


def chain_matmul(*matrices):
    """The product of several matrices."""
    from .linalg import multi_dot
    return multi_dot(list(matrices)) if len(matrices) > 1 else matrices[0]


def matrix_power(input, n):
    from .linalg import matrix_power as power
    return power(input, n)


# ---- Scattering ----

def scatter_reduced(input, dim, index, src, reduce, include_self):
    """input with src combined into it where index says: sum, prod, mean, amax, amin."""
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if not input.ndim:
        y = scatter_reduced(lib.tl_reshape(input, (1,)), 0, lib.tl_reshape(index, (1,)), lib.tl_reshape(src, (1,)),
                            reduce, include_self)
        return lib.tl_reshape(y, ())
    axis = _axis(dim, input.ndim)
    part = src if lib.shape_of(src) == lib.shape_of(index) else \
        src[tuple(builtins.slice(0, n) for n in index.shape)]
    if not index.numel():
        return lib.tl_clone(input)
    hit = _counts(input, axis, index)
    start = input
    if not include_self:
        start = f.where(f.gt(hit, 0), _neutral(reduce, input.dtype), input)
    if reduce in ("sum", "mean"):
        y = lib.tl_scatter_add(start, axis, index, part)
        if reduce == "mean":
            n = f.clamp(f.add(hit, 1) if include_self else hit, min=1)
            y = f.div(y, n.to(y.dtype)) if y.dtype.is_inexact else f.floor_divide(y, n.to(y.dtype))
        return y
    return _by_rounds(start, axis, index, part, reduce)


def _neutral(reduce, kind):
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if kind.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    if kind is bool_:
        return reduce == "amin"
    return iinfo(kind).min if reduce == "amax" else iinfo(kind).max


def _counts(input, axis, index):
    ones = full(tuple(index.shape), 1, dtype=int64, device=input.device)
    return lib.tl_scatter_add(zeros(*input.shape, dtype=int64, device=input.device), axis, index, ones)


def _by_rounds(start, axis, index, part, reduce):
    """A place that is named k times is combined with the k values in k rounds: each round has every place once."""
    with no_grad():
        order = f.argsort(index, axis, stable=True)
        ordered = f.gather(index, axis, order)
        n = index.shape[axis]
        shape = [1] * index.ndim
        shape[axis] = n
        place = lib.tl_expand(lib.tl_reshape(arange(n, device=index.device), shape), lib.shape_of(index))
        same = f.eq(lib.tl_slice(ordered, axis, 1, n, 1), lib.tl_slice(ordered, axis, 0, n - 1, 1)) if n > 1 else None
        begins = place if n < 2 else f.cat([lib.tl_slice(place, axis, 0, 1, 1),
                                            f.where(same, 0, lib.tl_slice(place, axis, 1, n, 1))], axis)
        rank = f.sub(place, cummax(begins, axis).values)  # how many of the same place came before
        n_rounds = int(f.max(rank).item()) + 1
    values = f.gather(part, axis, order)
    if reduce != "prod" and (lib.tl_needs_grad(start) or lib.tl_needs_grad(part)):
        with no_grad():
            y = _by_rounds(start.detach(), axis, index, part.detach(), reduce)
        return _shared(y, start, axis, index, part)
    y, neutral = start, _neutral(reduce, start.dtype)
    for k in range(n_rounds):
        now = f.eq(rank, k)
        spread = lib.tl_full(lib.shape_of(start), 0.0, start.dtype.code, lib.tl_device_of(start))
        value = f.where(now, values, 0 if start.dtype is not bool_ else False).to(start.dtype)
        spread = lib.tl_scatter_add(spread, axis, ordered, value)
        is_hit = f.gt(lib.tl_scatter_add(zeros(*start.shape, dtype=int64, device=start.device), axis, ordered,
                                         now.to(int64)), 0)
        other = f.where(is_hit, spread, neutral)
        y = f.mul(y, other) if reduce == "prod" else (f.maximum if reduce == "amax" else f.minimum)(y, other)
    return y


def _shared(y, start, axis, index, part):
    """The extremes y, whose gradient all that are equal to them share."""
    mine, theirs = f.eq(start, y), f.eq(part, f.gather(y, axis, index))
    n = f.reciprocal(lib.tl_scatter_add(mine.to(y.dtype), axis, index, theirs.to(y.dtype)))
    own = f.mul(f.where(mine, start, 0.0), n)
    given = f.mul(f.where(theirs, part, 0.0), f.gather(n, axis, index))
    through = lib.tl_scatter_add(f.where(mine, own, 0.0), axis, index, f.where(theirs, given, 0.0))
    through = f.where(f.isfinite(through), through, 0.0)
    return f.add(y, f.sub(through, through.detach()))


def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """input with slices of source combined into its slices: prod, mean, amax, amin."""
    f._refuse_complex("index_reduce", input)
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError("index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got " + reduce)
    warnings.warn("index_reduce() is in beta and the API may change at any time.", UserWarning, 2)
    if not input.ndim:
        return scatter_reduced(input, 0, lib.tl_reshape(index, ()), source, reduce, include_self)
    axis = _axis(dim, input.ndim)
    shape = [1] * input.ndim
    shape[axis] = index.numel()
    whole = lib.tl_expand(lib.tl_reshape(index.to(int64), shape), lib.shape_of(source))
    return scatter_reduced(input, axis, whole, source, reduce, include_self)


def put(input, index, source, accumulate=False):
    """input with the elements at flat indices from source, or added."""
    flat = lib.tl_reshape(input, (-1,))
    return lib.tl_reshape(c.index_put(flat, (lib.tl_reshape(index, (-1,)),), lib.tl_reshape(source, (-1,)), accumulate),
                          lib.shape_of(input))


def nonzero_static(input, *, size, fill_value=-1):
    """The first `size` indices of what is not 0, and fill_value beyond."""
    found = f.nonzero(input)
    found = lib.tl_slice(found, 0, 0, builtins.min(size, found.shape[0]), 1)
    more = full((size - found.shape[0], input.ndim), fill_value, dtype=int64, device=input.device)
    return f.cat([found, more], 0)


def unravel_index(indices, shape):
    """Flat indices as an index per axis."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    found, rest = [], indices
    for n in reversed(shape):
        found.append(f.remainder(rest, n))
        rest = f.floor_divide(rest, n)
    return tuple(reversed(found))


def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """input with a part that any geometry names from src."""
    x = lib.tl_clone(input)
    lib.tl_copy_(x.as_strided(size, stride, 0 if storage_offset is None else storage_offset), src)
    return x


def constant_pad_nd(input, pad, value=0):
    from .nn.functional import pad as padded
    return padded(input, pad, "constant", value)


# ---- Copies of views ----

def _copy(name, view):
    def function(*args, **kwargs):
        found = view(*args, **kwargs)
        return tuple(lib.tl_clone(x) for x in found) if isinstance(found, tuple) else lib.tl_clone(found)
    function.__name__, function.__doc__ = name, f"{name[:-5]}, as a copy."
    return function


_VIEWS = {"alias": lambda x: x, "as_strided": c.as_strided, "detach": lambda x: x.detach(), "diagonal": f.diagonal,
          "expand": lambda x, *size, **_: x.expand(*size), "permute": f.permute, "select": f.select,
          "split": f.split, "split_with_sizes": c.split_with_sizes, "squeeze": f.squeeze, "t": f.t,
          "transpose": f.transpose, "unbind": f.unbind, "unsqueeze": f.unsqueeze,
          "unfold": lambda x, dimension, size, step: x.unfold(dimension, size, step),
          "view": lambda x, *shape, **kw: x.view(*(kw.values() or shape)),
          "slice": lambda x, dim=0, start=None, end=None, step=1: lib.tl_slice(
              x, dim, 0 if start is None else start, 2**63 - 1 if end is None else end, step)}
for _name, _view in _VIEWS.items():
    globals()[_name + "_copy"] = _copy(_name + "_copy", _view)


# ---- Layouts that are not row-major ----

def empty_strided(size, stride, *, dtype=None, device=None, requires_grad=False, pin_memory=False, layout=None):
    """Uninitialised, with these strides."""
    n = 1 + builtins.sum((a - 1) * b for a, b in zip(size, stride)) if 0 not in tuple(size) else 0
    x = empty(n, dtype=dtype, device=device).as_strided(tuple(size), tuple(stride), 0)
    return x.requires_grad_() if requires_grad else x


def empty_permuted(size, physical_layout, *, dtype=None, device=None, requires_grad=False, pin_memory=False,
                   layout=None):
    """Uninitialised, with the axes in this order in memory."""
    order = list(physical_layout)
    x = f.permute(empty([size[i] for i in order], dtype=dtype, device=device),
                  [order.index(i) for i in range(len(order))])
    return x.requires_grad_() if requires_grad else x


# ---- Random numbers of other kinds ----

def cauchy_(self, median=0, sigma=1, *, generator=None):
    f._refuse_complex("cauchy_", self)
    from ._creation import rand_like
    return lib.tl_copy_(self, f.add(f.mul(c.tan(f.mul(f.sub(rand_like(self, generator=generator), 0.5), math.pi)),
                                          float(sigma)), median))


def log_normal_(self, mean=1, std=2, *, generator=None):
    f._refuse_complex("log_normal_", self)
    from ._creation import randn_like
    return lib.tl_copy_(self, f.exp(f.add(f.mul(randn_like(self, generator=generator), float(std)), mean)))


def geometric_(self, p, *, generator=None):
    f._refuse_complex("geometric_", self)
    from ._creation import rand
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    u = rand(*self.shape, dtype=float64, device=self.device, generator=generator)
    return lib.tl_copy_(self, f.ceil(f.div(f.log1p(f.neg(u)), math.log1p(-p))).clamp(min=1).to(self.dtype))
