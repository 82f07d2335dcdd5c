"""What programs for PyTorch set or ask at their start: compile, printing, determinism, typed tensor classes."""
import sys
import warnings

from . import _creation, _tensor
from ._types import BY_NAME
from ._tensor import Tensor

_told = set()


def _note(key, text):
    """Said once in a process."""
    if key not in _told:
        _told.add(key)
        print(text, file=sys.stderr)


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """The model or function itself: nothing is compiled here, and nothing needs to be."""
    if not disable:
        _note("compile", "tally: torch.compile changes nothing: ops run as they are called")
    return model if model is not None else (lambda function: function)


# ---- Determinism: results are the same every time, whatever is asked for ----

_warn_only = False


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Accepted: results are always deterministic."""
    global _warn_only
    _warn_only = bool(mode and warn_only)


def are_deterministic_algorithms_enabled():
    """Yes, always."""
    return True


def is_deterministic_algorithms_warn_only_enabled():
    return _warn_only


def set_deterministic_debug_mode(debug_mode):
    """Accepted: results are always deterministic."""


def get_deterministic_debug_mode():
    return 2


def set_flush_denormal(mode):
    """Not done: False says so."""
    return False


def get_num_interop_threads():
    return 1


def set_num_interop_threads(n):
    """Accepted: ops run one after the other."""


# ---- Printing ----

_PROFILES = {"default": dict(precision=4, threshold=1000, edgeitems=3, linewidth=80, sci_mode=None),
             "short": dict(precision=2, threshold=1000, edgeitems=2, linewidth=80, sci_mode=None),
             "full": dict(precision=4, threshold=sys.maxsize, edgeitems=3, linewidth=80, sci_mode=None)}
_options = dict(_PROFILES["default"])


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None):
    """How tensors are printed. The default's text is the library's own; any other goes through NumPy."""
    if profile is not None:
        _options.update(_PROFILES[profile])
    given = dict(precision=precision, threshold=threshold, edgeitems=edgeitems, linewidth=linewidth, sci_mode=sci_mode)
    _options.update({k: v for k, v in given.items() if v is not None})
    _tensor._printer = None if _options == _PROFILES["default"] else _print


def _print(x):
    import numpy as np
    host = x.detach().cpu()
    host = host.float() if host.dtype.is_floating_point and host.dtype.bits < 32 else host
    form = {}
    if _options["sci_mode"] is not None and x.dtype.is_floating_point:
        form["float_kind"] = lambda v: f"{v:.{_options['precision']}{'e' if _options['sci_mode'] else 'f'}}"
    text = np.array2string(host.numpy(), precision=_options["precision"], threshold=_options["threshold"],
                           edgeitems=_options["edgeitems"], max_line_width=_options["linewidth"], separator=", ",
                           prefix="tensor(", floatmode="fixed", formatter=form or None)
    plain = x.dtype in (_creation.get_default_dtype(), BY_NAME["int64"], BY_NAME["bool"])
    return (f"tensor({text}" + ("" if plain else f", dtype={x.dtype}")
            + (", requires_grad=True" if x.requires_grad and x.is_leaf else "") + ")")


# ---- FloatTensor and its like ----

class _Typed(type):
    """A class of tensors of one dtype: it makes them, and isinstance asks for the dtype."""

    def __call__(cls, *args, device=None):
        return legacy(args, cls.dtype, device)

    def __instancecheck__(cls, x):
        return isinstance(x, Tensor) and x.dtype is cls.dtype and x.device.type == "cpu"

    def __repr__(cls):
        return f"<class 'tally.{cls.__name__}'>"


def legacy(args, dtype, device=None):
    """FloatTensor(2, 3): of that size; FloatTensor([1, 2]): of these numbers; FloatTensor(x): x itself."""
    if len(args) == 1 and isinstance(args[0], Tensor):
        return args[0].to(dtype)
    if len(args) == 1 and not isinstance(args[0], int) and type(args[0]).__name__ != "Size":
        return _creation.tensor(args[0], dtype=dtype, device=device)
    return _creation.empty(*args, dtype=dtype, device=device) if args else _creation.empty(0, dtype=dtype,
                                                                                           device=device)


for _name, _kind in (("Float", "float32"), ("Double", "float64"), ("Half", "float16"), ("BFloat16", "bfloat16"),
                     ("Long", "int64"), ("Int", "int32"), ("Short", "int16"), ("Char", "int8"), ("Byte", "uint8"),
                     ("Bool", "bool")):
    globals()[_name + "Tensor"] = _Typed(_name + "Tensor", (), {"dtype": BY_NAME[_kind],
                                                               "__doc__": f"Tensors of {_kind}."})


def set_default_tensor_type(t):
    """The older form of set_default_dtype: torch.FloatTensor, or its name."""
    from ._types import set_default_dtype
    if isinstance(t, str):
        t = globals().get(t.split(".")[-1], t)
    if not isinstance(t, _Typed):
        raise TypeError(f"invalid type object: {t}: only floating-point types are supported as the default type")
    set_default_dtype(t.dtype)


def seed():
    """Seeds with a number that is not foreseeable, and returns it."""
    import secrets
    number = secrets.randbits(63)
    _creation.manual_seed(number)
    return number


def is_warn_always_enabled():
    return False


def set_warn_always(b):
    if b:
        warnings.simplefilter("always")


def typename(obj):
    """The type's name with its module's."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__name__ if kind.__module__ in ("builtins", "") else f"{kind.__module__}.{kind.__qualname__}"


def is_storage(obj):
    return isinstance(obj, _tensor.UntypedStorage)


def is_vulkan_available():
    return False


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """The memory of a buffer as a vector."""
    import numpy as np
    from ._memory import from_numpy
    array = np.frombuffer(buffer, np.uint8, -1, offset)
    n = len(array) // dtype.itemsize if count < 0 else count
    if not n or n * dtype.itemsize > len(array):
        raise ValueError(f"both buffer length ({len(array)}) after offset ({offset} bytes) and count ({count}) must "
                         "not be 0, and the numbers must fit")
    flat = array[:n * dtype.itemsize]
    flat = flat if flat.flags.writeable else flat.copy()
    x = from_numpy(flat.view(dtype.numpy_name)) if dtype.numpy_name else from_numpy(flat).view(dtype)
    return x.requires_grad_(requires_grad)
