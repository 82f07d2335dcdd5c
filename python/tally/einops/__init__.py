"""Einops of our own, in C: patterns with named axes, with the einops package's names and signatures.

    rearrange(x, "b s (h d) -> b h s d", h=8)      a view where strides allow it
    reduce(x, "b c (h 2) (w 2) -> b c h w", "max")
    repeat(x, "h w -> h w c", c=3)
    einsum(q, k, "b h q d, b h k d -> b h q k")

A wrong pattern is an EinopsError that shows the pattern with a mark under the place, the shape, the lengths, and what
to change. Layers: Rearrange, Reduce, EinMix in tally.einops.layers.
"""
import ctypes

from .._library import c, lib, structs
from .._tensor import Tensor
from ..autograd import _raise

__all__ = ["rearrange", "reduce", "repeat", "einsum", "pack", "unpack", "parse_shape", "asnumpy", "einsum_plan",
           "EinopsError"]


class EinopsError(RuntimeError):
    """A pattern that is wrong, or does not fit its tensor."""


def _called(function, *arguments):
    try:
        return function(*arguments)
    except RuntimeError as error:
        raise EinopsError(str(error)) from None


def _lengths(lengths):
    for name, n in lengths.items():
        if not hasattr(n, "__index__"):
            raise EinopsError(f"the length of axis {name} is {n!r} (need a whole number)")
    return " ".join(f"{name}={n.__index__()}" for name, n in lengths.items()) or None


def _one(tensor):
    """A list of tensors is a tensor with one more axis in front."""
    if isinstance(tensor, (list, tuple)):
        if not tensor:
            raise EinopsError("a list of tensors must not be empty")
        return _called(lib.tl_stack, tensor, 0)
    if not isinstance(tensor, Tensor):
        raise EinopsError(f"Tensor type unknown to einops: {type(tensor)}")
    return tensor


def rearrange(tensor, pattern, **axes_lengths):
    """Reorders, splits and merges axes; every axis is on both sides."""
    return _called(lib.tl_rearrange, _one(tensor), pattern, _lengths(axes_lengths))


def reduce(tensor, pattern, reduction, **axes_lengths):
    """Reduces the axes that are only on the left side: by "sum", "mean", "max", "min", "prod", "any", "all" or
    "logsumexp", or by a function of (tensor, axes)."""
    if callable(reduction):
        return _reduce_by(_one(tensor), pattern, reduction, axes_lengths)
    return _called(lib.tl_reduce, _one(tensor), pattern, reduction, _lengths(axes_lengths))


def _reduce_by(x, pattern, function, lengths):
    """Brings the axes that go to the end, and lets the function reduce them there."""
    left, arrow, right = pattern.partition("->")
    if not arrow:
        raise EinopsError(f"pattern {pattern!r} has no arrow")
    names = [n for n in left.replace("(", " ").replace(")", " ").split() if n != "1"]
    kept = set(right.replace("(", " ").replace(")", " ").split())
    gone = [n for n in names if n not in kept]
    if any(n.isdecimal() for n in names):
        raise EinopsError(f"pattern {pattern!r}: axes without a name cannot be reduced by a function: name them")
    flat = [n for n in names if n in kept]
    x = rearrange(x, f"{left}-> {' '.join(flat + gone)}", **lengths)
    known = dict(zip(flat, x.shape)) if "..." not in flat else {}
    known.update(lengths)
    x = function(x, tuple(range(x.ndim - len(gone), x.ndim))) if gone else x
    return rearrange(x, f"{' '.join(flat)} -> {right}",
                     **{n: v for n, v in known.items() if n in flat and n.isidentifier()})


def repeat(tensor, pattern, **axes_lengths):
    """Axes on the right side only are new, of the lengths given."""
    return _called(lib.tl_repeat, _one(tensor), pattern, _lengths(axes_lengths))


def einsum(*tensors_and_pattern):
    """einsum(x, y, "b i, b j -> b i j"): sums of products over the axes that the right side lacks."""
    if len(tensors_and_pattern) < 2:
        raise EinopsError("einsum takes at least two arguments: the tensors (at least one), followed by the pattern")
    *tensors, pattern = tensors_and_pattern
    if not isinstance(pattern, str):
        raise EinopsError("the last argument of einsum must be a pattern, einops' way round: einsum(x, y, 'i j, j k -> "
                          "i k')")
    return _called(lib.tl_einsum, pattern, tensors)


def einsum_plan(*tensors_and_pattern):
    """In which order einsum would contract, what each step costs, and the largest intermediate: a text."""
    *tensors, pattern = tensors_and_pattern
    text = ctypes.c_void_p()
    addresses = (ctypes.c_void_p * len(tensors))(*[lib.address_of(x) for x in tensors])
    if not c.tl_einsum_plan(pattern.encode(), False, addresses, len(tensors), None, None, ctypes.addressof(text)):
        _raise()
    from .._ledger import _taken
    return _taken(text.value)


def pack(tensors, pattern):
    """Joins tensors of different rank along *; the result, and the shapes that unpack wants."""
    tensors = list(tensors)
    shapes = (structs["tl_packed"] * max(len(tensors), 1))()
    packed = _called(lib.tl_pack, tensors, pattern, ctypes.addressof(shapes))
    return packed, [tuple(s.size[:s.rank]) for s in shapes[:len(tensors)]]


def unpack(tensor, packed_shapes, pattern):
    """The way back: a list of views."""
    n = len(packed_shapes)
    shapes, parts = (structs["tl_packed"] * max(n, 1))(), (ctypes.c_void_p * max(n, 1))()
    for s, sizes in zip(shapes, packed_shapes):
        sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
        s.rank = len(sizes)
        s.size[:len(sizes)] = sizes
    scope = c.tl_scope_begin()
    ok = c.tl_unpack(lib.address_of(tensor), shapes, n, pattern.encode(), parts)
    found = [lib.wrap(Tensor, p) for p in parts[:n]] if ok else None
    c.tl_scope_end(scope)
    if not ok:
        try:
            _raise()
        except RuntimeError as error:
            raise EinopsError(str(error)) from None
    return found


def parse_shape(x, pattern):
    """The sizes of x by name: {"b": 2, "h": 8}."""
    dims = structs["tl_dims"]()
    _called(lib.tl_parse_shape, x, pattern, ctypes.addressof(dims))
    names = [c.tl_dims_name(ctypes.addressof(dims), i).decode() for i in range(dims.n)]
    return {name: dims.size[i] for i, name in enumerate(names)}


def asnumpy(tensor):
    """As a NumPy array."""
    return tensor.detach().cpu().numpy()
