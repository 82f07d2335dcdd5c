"""x[...] and x[...] = y.

An index is processed from left to right. Numbers, slices, None and ... make a view, one axis after the other. Integer
tensors and masks are set aside, each with its axis, and applied to that view at the end, all at once. So x[0, :, i]
picks row 0 first and then columns i, as torch does (NumPy would count 0 among the index arrays). A mask covers as many
axes as it has itself; True and False add an axis of length one or zero.
"""
import math

from ._library import constants, lib
from ._numpy import known, np
from ._types import bool_, int64

_END = constants["TL_END"]
_BOOL, _INT64, _UINT8 = bool_.code, int64.code, bool_.code - 1
_Tensor = None  # set by _tensor.py
_as_tensor = _scalar_name = None


def _index_tensor(i):
    """An index as a tensor of int64, int32 or bool."""
    if not isinstance(i, _Tensor):
        i = _as_tensor(np.asarray(i)) if isinstance(i, range) else _as_tensor(i)
        if not lib.tl_numel(i) and i.dtype.is_floating_point:
            i = lib.tl_cast(i, _INT64)  # an empty list
    kind = i.dtype
    if kind.name not in ("int64", "int32", "bool", "uint8"):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if kind.code == _UINT8:
        return lib.tl_cast(i, _BOOL)
    return i


def _is_list(i):
    return isinstance(i, (_Tensor, known.ndarray, list, range, tuple))


def _consumed(i):
    """How many axes of the tensor an index is for."""
    if i is None or i is Ellipsis or isinstance(i, bool):
        return 0
    if isinstance(i, _Tensor):
        return i.ndim if lib.tl_dtype_of(i) in (_BOOL, _UINT8) else 1
    return 1


def _bound(i):
    """An end of a slice as a number."""
    try:
        return i.__index__()
    except AttributeError:
        raise TypeError("slice indices must be integers or None or have an __index__ method") from None


def take_slice(x, axis, i):
    start, stop, step = i.start, i.stop, i.step
    if step is None:
        step = 1
        if start is None and stop is None:
            return x
    else:
        step = _bound(step)
        if step == 0:
            raise ValueError("step must be greater than zero")
    start = (0 if step > 0 else -1) if start is None else _bound(start)
    return lib.tl_slice(x, axis, start, _END if stop is None else _bound(stop), step)


def _select(view, axis, number, at):
    """`at`: the place in the index, which torch's message calls the dimension."""
    try:
        return lib.tl_select(view, axis, number)
    except IndexError:
        if not lib.tl_rank(view):
            raise IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in "
                             "C++ to convert a 0-dim tensor to a number") from None
        raise IndexError(f"index {number} is out of bounds for dimension {at} with size "
                         f"{lib.tl_size(view, axis)}") from None


def number(x, i):
    """x[i]"""
    try:
        return lib.tl_select(x, 0, i)
    except IndexError:
        if lib.tl_rank(x):
            raise
        raise IndexError(f"invalid index of a 0-dim tensor: index {i} is out of bounds for dimension 0 with size 0. "
                         "Use `tensor.item()` to convert a 0-dim tensor to a number") from None


def take_apart(x, items):
    """(view, axes, tensors): what is left to do when the views are made."""
    if type(items) is not tuple:
        # torch takes a list that holds more than numbers for a tuple, as NumPy once did
        is_tuple = (type(items) is list
                    and any(i is None or i is Ellipsis or isinstance(i, (list, tuple, slice, _Tensor)) for i in items))
        items = tuple(items) if is_tuple else (items,)
    rank = lib.tl_rank(x)
    consumed = 0
    for i in items:  # the common kinds first: this is what every x[...] passes
        kind = type(i)
        consumed += 1 if kind is slice or kind is int else _consumed(i)
    if consumed > rank:
        for i in items:
            if type(i) is slice:
                [_bound(end) for end in (i.start, i.stop, i.step) if end is not None]
        raise IndexError(f"invalid index of a 0-dim tensor: index {items[0]} is out of bounds for dimension 0 with "
                         "size 0. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a 0-dim tensor "
                         "to a number" if not rank and len(items) == 1 and isinstance(items[0], int) else
                         f"too many indices for tensor of dimension {rank}")
    view, axis, axes, tensors, has_ellipsis = x, 0, [], [], False
    for at, i in enumerate(items):
        kind = type(i)
        if kind is slice:
            view, axis = take_slice(view, axis, i), axis + 1
        elif kind is int:
            view = _select(view, axis, i, at)
        elif i is None:
            view, axis = lib.tl_unsqueeze(view, axis), axis + 1
        elif i is Ellipsis:
            if not has_ellipsis:
                axis, has_ellipsis = axis + rank - consumed, True
        elif kind is bool:
            view = lib.tl_unsqueeze(view, axis)
            axes.append(axis)
            tensors.append(lib.tl_zeros((int(i),), _INT64, lib.tl_device_of(x)))
            axis += 1
        elif _is_list(i):
            i = _index_tensor(i)
            if lib.tl_dtype_of(i) == _BOOL:
                if not lib.tl_rank(i):
                    view, i = lib.tl_unsqueeze(view, axis), lib.tl_zeros((int(i.item()),), _INT64, lib.tl_device_of(x))
                axes.append(axis)
                tensors.append(i)
                axis += lib.tl_rank(i)
            elif not lib.tl_rank(i):
                view = _select(view, axis, lib.tl_item_int(i), at)
            else:
                axes.append(axis)
                tensors.append(i)
                axis += 1
        elif hasattr(i, "__index__") and not isinstance(i, known.bool_):
            view = _select(view, axis, i.__index__(), at)
        elif isinstance(i, str):
            raise TypeError("new(): invalid data type 'str'")
        else:
            raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are "
                             f"valid indices (got {type(i).__name__})")
    return view, axes, tensors


def put_apart(x, indices, values):
    """take_apart for index_put, where None is a whole axis."""
    apart = take_apart(x, tuple(slice(None) if i is None else i for i in indices))
    if values.dtype is not x.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{_scalar_name(x)} for the destination and {_scalar_name(values)} for the source.")
    return apart


def _indexed(view, axes, tensors):
    try:
        return lib.tl_index(view, axes, tensors)
    except RuntimeError as error:
        raise (IndexError(str(error)) if _is_of_indices(error) else error) from None


def _is_of_indices(error):
    """Of shapes that do not fit, those of indices are an IndexError in torch."""
    return any(words in str(error) for words in ("shape mismatch: indexing tensors", "The shape of the mask"))


def get(x, items):
    view, axes, tensors = take_apart(x, items)
    if tensors:
        return _indexed(view, axes, tensors)
    return lib.tl_view(x, lib.shape_of(x)) if view is x else view  # x[:] is another tensor


def _value_tensor(x, value):
    """A number as a scalar of x's dtype."""
    if isinstance(value, (bool, int, float, known.integer)):
        scalar = lib.tl_empty((), lib.tl_dtype_of(x), lib.tl_device_of(x))
        value = int(value) if isinstance(value, known.integer) else value
        try:
            return lib.tl_fill_scalar_(scalar, value)
        except RuntimeError:
            if not x.dtype.is_inexact:
                raise
            return lib.tl_fill_scalar_(scalar, math.copysign(math.inf, value))  # what is too large for a float
    if isinstance(value, complex) and x.dtype.is_complex:
        from ._complex import beside
        return beside(value, x)
    module = type(value).__module__
    raise TypeError(f"can't assign a {module + '.' if module != 'builtins' else ''}{type(value).__name__} to a "
                    f"tally.{_scalar_name(x)}Tensor (need a number or a tensor)")


def put(x, items, value):
    if not isinstance(value, _Tensor):
        value = _value_tensor(x, value)
    elif not lib.tl_rank(value) and lib.tl_device_of(value) != lib.tl_device_of(x):
        value = lib.tl_to(value, lib.tl_device_of(x))
    view, axes, tensors = take_apart(x, items)
    if tensors:
        if lib.tl_numel(value) == 1 and _is_one_mask(tensors):
            value = lib.tl_cast(value, lib.tl_dtype_of(x))
        _put_indexed(x, view, axes, tensors, value)
        return
    extra = lib.tl_rank(value) - lib.tl_rank(view)
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        value = (lib.tl_view(value, value.shape[extra:]) if value.is_contiguous()
                 else lib.tl_reshape(value, value.shape[extra:]))
    if lib.tl_rank(value) and lib.shape_of(value) != lib.shape_of(view):
        value = lib.tl_expand(value, lib.shape_of(view))
    lib.tl_copy_(view, value)


def _is_one_mask(tensors):
    """One mask and nothing else that is no view: there torch casts a single value."""
    return len(tensors) == 1 and lib.tl_dtype_of(tensors[0]) == _BOOL


def _put_indexed(x, view, axes, tensors, value):
    masks = [lib.tl_dtype_of(t) == _BOOL for t in tensors]
    rank = (lib.tl_rank(view) - sum(lib.tl_rank(t) if m else 1 for t, m in zip(tensors, masks))
            + max(1 if m else lib.tl_rank(t) for t, m in zip(tensors, masks)))
    extra = lib.tl_rank(value) - rank
    if extra > 0 and all(n == 1 for n in value.shape[:extra]):
        value = lib.tl_reshape(value, value.shape[extra:])
    try:
        lib.tl_index_put_(view, axes, tensors, value, False)
    except RuntimeError as error:
        raise (IndexError(str(error)) if _is_of_indices(error) else error) from None
