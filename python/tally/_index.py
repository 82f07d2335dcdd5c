"""x[...] and x[...] = y.

An index is taken apart from left to right. Numbers, slices, None and ... make a view, one axis after the other; tensors of integers
and masks are put aside, with the axis they are for, and applied to that view at the end, all at once. So x[0, :, i] picks row 0
first and then columns i, as torch does (NumPy would count 0 among the index arrays).
"""
import numpy as np

from ._library import constants, lib
from ._types import bool_

_END = constants["TL_END"]
_Tensor = None  # set by _tensor.py
_as_tensor = None


def _is_advanced(i):
    return isinstance(i, (_Tensor, np.ndarray, list, range)) or isinstance(i, tuple)


def _consumed(i):
    """How many axes of the tensor an index is for."""
    if i is None or i is Ellipsis or isinstance(i, (bool, np.bool_)):
        return 0
    if isinstance(i, _Tensor) and i.dtype is bool_:
        return i.ndim
    if isinstance(i, np.ndarray) and i.dtype == bool:
        return i.ndim
    return 1


def _index_tensor(i, x):
    i = i if isinstance(i, _Tensor) else _as_tensor(i)
    if i.numel() == 0 and i.dtype.is_floating_point and i.ndim == 1:
        i = lib.tl_cast(i, 8)  # an empty list
    if i.dtype.is_floating_point:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if i.dtype is not bool_ and i.dtype.name not in ("int64", "int32"):
        i = lib.tl_cast(i, 8)
    return i


def _whole(items):
    """Without the ellipsis' meaning: a list of indices, one of which may be Ellipsis."""
    if not isinstance(items, tuple):
        # torch takes a list as an index tensor
        items = (items,)
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    return items


def _slice(x, axis, i):
    step = 1 if i.step is None else i.step.__index__()
    if step == 0:
        raise ValueError("step must be greater than zero")
    start = (0 if step > 0 else -1) if i.start is None else i.start.__index__()
    stop = _END if i.stop is None else i.stop.__index__()
    if i.start is None and i.stop is None and step == 1:
        return x
    return lib.tl_slice(x, axis, start, stop, step)


def take_apart(x, items):
    """(view, axes, tensors): what is left to do when the views are made."""
    items = _whole(items)
    rank = len(lib.shape_of(x))
    consumed = sum(map(_consumed, items))
    if consumed > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    view, axis, axes, tensors = x, 0, [], []
    for i in items:
        if isinstance(i, slice):
            view, axis = _slice(view, axis, i), axis + 1
        elif i is None:
            view, axis = lib.tl_unsqueeze(view, axis), axis + 1
        elif i is Ellipsis:
            axis += rank - consumed
        elif isinstance(i, (bool, np.bool_)):
            view = lib.tl_unsqueeze(view, axis)
            view, axis = view if i else lib.tl_slice(view, axis, 0, 0, 1), axis + 1
        elif _is_advanced(i):
            i = _index_tensor(i, x)
            if i.ndim == 0 and i.dtype is not bool_:
                view = lib.tl_select(view, axis, lib.tl_item_int(i))
                continue
            axes.append(axis)
            tensors.append(i)
            axis += i.ndim if i.dtype is bool_ else 1
        elif hasattr(i, "__index__"):
            view = lib.tl_select(view, axis, i.__index__())
        else:
            raise TypeError(f"only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {type(i).__name__})")
    return view, axes, tensors


def get(x, items):
    view, axes, tensors = take_apart(x, items)
    if tensors:
        return lib.tl_index(view, axes, tensors)
    return lib.tl_view(x, lib.shape_of(x)) if view is x else view  # x[:] is another tensor


def put(x, items, value):
    view, axes, tensors = take_apart(x, items)
    if not isinstance(value, _Tensor):
        if isinstance(value, (bool, int, float)) and not tensors:
            lib.tl_fill_scalar_(view, value)
            return
        value = _as_tensor(value, dtype=None if isinstance(value, np.ndarray) else x.dtype, device=x.device)
    if lib.tl_dtype_of(value) != lib.tl_dtype_of(x) and tensors:
        if value.ndim:
            raise RuntimeError(f"Index put requires the source and destination dtypes match, got {x.dtype.name} for the destination and {value.dtype.name} for the source.")
        value = lib.tl_cast(value, lib.tl_dtype_of(x))
    if value.device != x.device and value.ndim == 0:
        value = lib.tl_to(value, x.device.address)
    if tensors:
        lib.tl_index_put_(view, axes, tensors, value, False)
        return
    while value.ndim > view.ndim and value.shape[0] == 1:
        value = lib.tl_squeeze(value, 0)
    lib.tl_copy_(view, value)
