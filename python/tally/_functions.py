"""Functions of tensors with torch's names, argument order and keyword names. Most of them are methods too: _tensor.py
attaches them to Tensor unchanged, so that `x.sum(0)` and `tally.sum(x, 0)` run the same code.
"""
import builtins
import collections
import functools
import math
import warnings

from ._library import constants, lib
from ._types import (BY_NAME, DTYPES, Size, as_dtype, bool_, float32, float64, get_default_dtype, int64,
                     promote_types)

_EQ, _NE, _LT, _LE, _GT, _GE = (constants["TL_" + n] for n in ("EQ", "NE", "LT", "LE", "GT", "GE"))
_Tensor = None  # set by _tensor.py


# ---- Arguments ----

def _is_number(x):
    return (isinstance(x, (int, float)) or getattr(x, "ndim", None) == 0 and not isinstance(x, _Tensor)
            and hasattr(x, "item"))


def _number(x, name, argument):
    """A Python number; NumPy's numbers become Python's."""
    if isinstance(x, (int, float)):
        return x
    if getattr(x, "ndim", None) == 0 and hasattr(x, "item"):
        return x.item()
    raise TypeError(f"{name}(): argument '{argument}' must be Number, not {type(x).__name__}")


_UINT8 = BY_NAME["uint8"].code
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}


# In torch these are written in Python, and accept only torch's argument names.
_NO_NUMPY_NAMES = "split unsafe_split unique norm".split()


def _numpy_names(function):
    """Takes axis= and keepdims= for dim= and keepdim=, as torch does."""
    @functools.wraps(function)
    def call(*args, **kwargs):
        if not kwargs.keys().isdisjoint(_NUMPY_NAMES):
            kwargs = {_NUMPY_NAMES.get(k, k): v for k, v in kwargs.items()}
        return function(*args, **kwargs)
    return call


def _with_numpy_names(names):
    """Gives all functions among them that have a `dim` the other name, too."""
    for name, function in list(names.items()):
        code = getattr(function, "__code__", None)
        if (code and not name.startswith("_") and name not in _NO_NUMPY_NAMES
                and "dim" in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]):
            names[name] = _numpy_names(function)


def _axes(dim):
    """A list of axes; [] is all of them."""
    if dim is None:
        return ()
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _sizes(sizes):
    """f(2, 3), f((2, 3)) and f(size) alike."""
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        only = sizes[0]
        return (only.__index__(),) if hasattr(only, "__index__") and not hasattr(only, "__len__") else tuple(only)
    return sizes


def _axis(dim, rank):
    """An axis counted from 0; a scalar has one, as in torch."""
    n = builtins.max(rank, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim + n if dim < 0 else dim


def _dtype_of(x):
    return DTYPES[lib.tl_dtype_of(x)]


def _refuse_complex(name, *tensors):
    """For functions that would take the real part alone."""
    for x in tensors:
        if isinstance(x, _Tensor) and lib.tl_is_complex(x):
            raise NotImplementedError(f"{name}: not implemented for '{_scalar_name(x)}'")


def _cast(x, dtype):
    return x if dtype is None else lib.tl_cast(x, as_dtype(dtype).code)


def _into(out, result):
    """The result in the tensor that out= names, or in those: their shape becomes the result's."""
    if isinstance(out, (tuple, list)):
        for x, y in zip(out, result):
            _into(x, y)
        return result._replace(**dict(zip(result._fields, out))) if hasattr(result, "_fields") else tuple(out)
    if not isinstance(out, _Tensor):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}")
    if lib.tl_needs_grad(result) or lib.tl_needs_grad(out) and is_grad_enabled():
        raise RuntimeError("functions with out=... arguments don't support automatic differentiation, but one of the "
                           "arguments requires grad.")
    from ._composed import can_cast
    if not can_cast(_dtype_of(result), _dtype_of(out)):
        raise RuntimeError(f"result type {_scalar_name(result)} can't be cast to the desired output type "
                           f"{_scalar_name(out)}")
    if lib.tl_device_of(out) != lib.tl_device_of(result):
        raise RuntimeError(f"Expected all tensors to be on the same device, but out is on {out.device} and the result "
                           f"on {result.device}")
    if lib.shape_of(out) != lib.shape_of(result):
        if lib.tl_numel(out):
            warnings.warn(f"An output with one or more elements was resized since it had shape {list(out.shape)}, "
                          f"which "
                          f"does not match the required output shape {list(result.shape)}.", UserWarning, 3)
        lib.replace(out, lib.tl_empty(lib.shape_of(result), lib.tl_dtype_of(out), lib.tl_device_of(out)))
    lib.tl_copy_(out, result)
    return out


def _takes_out(function):
    """Takes out=, too."""
    @functools.wraps(function)
    def call(*args, out=None, **kwargs):
        if out is None:
            return function(*args, **kwargs)
        return _into(out, function(*args, **kwargs))
    return call


# ---- Elementwise ----

def _unary(name, doc):
    call = getattr(lib, "tl_" + name)

    def function(input, *, out=None):
        return call(input) if out is None else _into(out, call(input))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


UNARY = {"exp": "e^x", "exp2": "2^x", "expm1": "e^x - 1", "log": "log x", "log1p": "log(1 + x)", "log2": "log2 x",
         "sqrt": "sqrt x", "rsqrt": "1 / sqrt x", "sin": "sin x", "cos": "cos x", "tanh": "tanh x",
         "sigmoid": "1 / (1 + e^-x)", "erf": "erf x", "erfc": "1 - erf x", "sinh": "sinh x", "cosh": "cosh x",
         "atan": "atan x", "relu": "max(x, 0)", "neg": "-x", "abs": "|x|",
         "sign": "-1, 0 or 1", "floor": "floor x", "ceil": "ceil x", "trunc": "x without its fraction",
         "reciprocal": "1 / x", "square": "x x", "logical_not": "not x", "isnan": "is it NaN?",
         "isfinite": "is it neither infinite nor NaN?"}
for _name, _doc in UNARY.items():
    globals()[_name] = _unary(_name, _doc)
negative, absolute = neg, abs  # noqa: F821


def round(input, *, decimals=0):
    """To the nearest whole number, halves to even; or to so many decimals."""
    if decimals == 0:
        return lib.tl_round(input)
    scale = 10.0 ** decimals
    return lib.tl_div_scalar(lib.tl_round(lib.tl_mul_scalar(input, scale)), scale)


def isinf(input):
    """Is it infinite?"""
    return logical_and(logical_not(isfinite(input)), logical_not(isnan(input)))  # noqa: F821


def log10(input):
    """log10 x"""
    return lib.tl_mul_scalar(lib.tl_log2(input), math.log10(2))


def _complex_beside(value, tensor):
    from ._complex import beside
    return beside(value, tensor)


def _operand(name, x, input=None):
    """The other operand of a binary function: a tensor, or a number. A complex number becomes a tensor."""
    if isinstance(x, _Tensor):
        return x, True
    if isinstance(x, complex) and input is not None:
        return _complex_beside(x, input), True
    return _number(x, name, "other"), False


def _check_alpha(input, other, alpha):
    if isinstance(alpha, bool) and not _dtype_of(input) is bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    is_real = (_dtype_of(input).is_inexact or isinstance(other, float)
               or isinstance(other, _Tensor) and _dtype_of(other).is_inexact)
    if isinstance(alpha, float) and not is_real:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")


def _times(input, other, alpha):
    """alpha other, of the dtype that input + other has: of bool it is bool."""
    kind = result_type(input, other)
    if kind is bool_:
        return other if alpha else logical_xor(other, other) if isinstance(other, _Tensor) else False  # noqa: F821
    return lib.tl_mul_scalar(lib.tl_cast(other, kind.code), alpha) if isinstance(other, _Tensor) else other * alpha


def _add_like(name, input, other, alpha):
    tensor, scalar = getattr(lib, f"tl_{name}"), getattr(lib, f"tl_{name}_scalar")
    if not isinstance(input, _Tensor):
        input = _full_like_number(input, other)
    other, is_tensor = _operand(name, other, input)
    alpha = alpha if isinstance(alpha, int) else _number(alpha, name, "alpha")
    if alpha != 1:
        _check_alpha(input, other, alpha)
        other = _times(input, other, alpha)
    return tensor(input, other) if is_tensor else scalar(input, other)


def _full_like_number(value, other):
    """A number that meets a tensor, as a scalar tensor that promotes like a number: it does not widen a dtype of its
    own kind, even that of another scalar."""
    value, kind = value if isinstance(value, (int, float, complex)) else value.item(), _dtype_of(other)
    if isinstance(value, complex):
        return _complex_beside(value, other)
    if isinstance(value, bool):
        d = bool_
    elif isinstance(value, int):
        d = kind if not lib.tl_rank(other) and kind is not bool_ and not kind.is_inexact else int64
    else:
        d = kind.to_real() if kind.is_inexact else get_default_dtype()
    return lib.tl_full((), float(value), d.code, lib.tl_device_of(other))


def add(input, other, *, alpha=1, out=None):
    """input + alpha other"""
    return _add_like("add", input, other, alpha) if out is None else _into(out, _add_like("add", input, other, alpha))


def sub(input, other, *, alpha=1, out=None):
    """input - alpha other"""
    if (isinstance(input, _Tensor) and bool_.code == lib.tl_dtype_of(input)
            and (isinstance(other, bool) or isinstance(other, _Tensor) and other.dtype is bool_)):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    is_bool = isinstance(other, bool) or isinstance(other, _Tensor) and lib.tl_dtype_of(other) == bool_.code
    difference = _add_like("sub", input, other, 1 if is_bool else alpha)  # bool is refused
    return difference if out is None else _into(out, difference)


def mul(input, other, *, out=None):
    """input other"""
    return _add_like("mul", input, other, 1) if out is None else _into(out, _add_like("mul", input, other, 1))


def div(input, other, *, rounding_mode=None, out=None):
    """input / other; rounding_mode "floor" or "trunc" gives whole numbers, of integers integers."""
    if out is not None:
        return _into(out, div(input, other, rounding_mode=rounding_mode))
    if rounding_mode is None:
        return _add_like("div", input, other, 1)
    if not isinstance(other, _Tensor):
        other = _number(other, "div", "other")
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode != "trunc":
        raise RuntimeError("div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
                           f"'{rounding_mode}'")
    return _whole_division(input, other, lib.tl_trunc)


def _without_gradient(divide):
    """A step: where an operand requires grad, the result does, and the gradient is 0."""
    @functools.wraps(divide)
    def call(a, b, *args):
        with no_grad():
            quotient = divide(a, b, *args)
        for x in (a, b):
            if isinstance(x, _Tensor) and lib.tl_needs_grad(x) and _dtype_of(quotient).is_floating_point:
                never = lib.tl_zeros((), bool_.code, lib.tl_device_of(x))
                quotient = lib.tl_where(never, lib.tl_cast(x, lib.tl_dtype_of(quotient)), quotient)
        return quotient
    return call


@_without_gradient
def _whole_division(a, b, rounds):
    kind = result_type(a, b)
    _refuse_complex("whole division", a, b)
    if kind.is_floating_point:
        return rounds(div(a, b))
    if kind is bool_:
        raise NotImplementedError("whole division is not implemented for 'Bool'")
    if not a.is_meta and (bool(any(eq(b, 0))) if isinstance(b, _Tensor) else b == 0 and a.numel()):
        raise RuntimeError("ZeroDivisionError")
    if isinstance(b, _Tensor):
        quotient = lib.tl_div(lib.tl_cast(a, float64.code), lib.tl_cast(b, float64.code))
    else:
        quotient = lib.tl_div_scalar(lib.tl_cast(a, float64.code), b)
    return lib.tl_cast(rounds(quotient), kind.code)


def floor_divide(input, other):
    """floor(input / other), as Python's // has it."""
    if not isinstance(input, _Tensor):
        input = _full_like_number(input, other)
    if not isinstance(other, _Tensor):
        other = _number(other, "floor_divide", "other")
    kind = result_type(input, other)
    if not kind.is_floating_point:
        return _whole_division(input, other, lib.tl_floor)
    if kind.bits < 32:  # 16-bit floats are computed with in float32, and rounded once
        other = lib.tl_cast(other, float32.code) if isinstance(other, _Tensor) else other
        return lib.tl_cast(_float_floor_division(lib.tl_cast(input, float32.code), other), kind.code)
    return _float_floor_division(lib.tl_cast(input, kind.code), other)


@_without_gradient
def _float_floor_division(a, b):
    """(a - a % b) / b is whole but for rounding; where b is 0, a / b."""
    plain = div(a, b)
    is_zero = eq(b, 0) if isinstance(b, _Tensor) else bool(b == 0)
    if is_zero is True:
        return plain
    whole = lib.tl_round(div(sub(a, remainder(a, b)), b))
    return whole if is_zero is False else where(is_zero, plain, whole)


subtract, multiply, divide, true_divide = sub, mul, div, div


def pow(input, exponent, *, out=None):
    """input^exponent; either may be a number."""
    if out is not None:
        return _into(out, pow(input, exponent))
    if isinstance(exponent, _Tensor):
        return (lib.tl_pow(input, exponent) if isinstance(input, _Tensor)
                else lib.tl_rpow_scalar(exponent, _number(input, "pow", "input")))
    return lib.tl_pow_scalar(input, _number(exponent, "pow", "exponent"))


def remainder(input, other):
    """With the sign of the divisor, as Python's %."""
    if not isinstance(input, _Tensor):
        input = _full_like_number(input, other)
    other, is_tensor = _operand("remainder", other)
    return lib.tl_remainder(input, other) if is_tensor else lib.tl_remainder_scalar(input, other)


def fmod(input, other):
    """With the sign of the dividend, as C's fmod."""
    if result_type(input, other) is bool_:
        raise NotImplementedError("fmod is not implemented for 'Bool'")
    if isinstance(other, _Tensor) and other.dtype is bool_:
        other = lib.tl_cast(other, result_type(input, other).code)
    other = int(other) if isinstance(other, bool) else other
    kind = result_type(input, other)
    if kind.is_floating_point:  # of magnitudes it is the remainder: nothing is added and rounded
        input, other = (lib.tl_cast(x, kind.code) if isinstance(x, _Tensor) else x for x in (input, other))
        whole = remainder(_magnitude(input), _magnitude(other))
        return where(lt(input, 0), neg(whole), whole) if isinstance(input, _Tensor) or input < 0 else whole
    whole = remainder(input, other)
    wrong = logical_and(ne(whole, 0), ne(lt(input, 0), lt(other, 0) if isinstance(other, _Tensor) else other < 0))
    return where(wrong, sub(whole, other), whole)


def _magnitude(x):
    """|x|, whose slope at 0 is 1."""
    return where(lt(x, 0), neg(x), x) if isinstance(x, _Tensor) else builtins.abs(x)


def minimum(input, other, *, out=None):
    """The smaller of two, element by element."""
    return lib.tl_minimum(input, other) if out is None else _into(out, lib.tl_minimum(input, other))


def maximum(input, other, *, out=None):
    """The larger of two, element by element."""
    return lib.tl_maximum(input, other) if out is None else _into(out, lib.tl_maximum(input, other))


def _compare(name, relation, doc):
    mirrored = {_LT: _GT, _GT: _LT, _LE: _GE, _GE: _LE}.get(relation, relation)

    def function(input, other, *, out=None):
        if out is not None:
            return _into(out, function(input, other))
        if isinstance(other, _Tensor):
            return (lib.tl_cmp(input, relation, other) if isinstance(input, _Tensor)
                    else lib.tl_cmp_scalar(other, mirrored, input))
        if isinstance(other, complex):
            return lib.tl_cmp(input, relation, _complex_beside(other, input))
        return lib.tl_cmp_scalar(input, relation, _number(other, name, "other"))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


eq, ne = _compare("eq", _EQ, "input == other"), _compare("ne", _NE, "input != other")
lt, le = _compare("lt", _LT, "input < other"), _compare("le", _LE, "input <= other")
gt, ge = _compare("gt", _GT, "input > other"), _compare("ge", _GE, "input >= other")
not_equal, less, less_equal, greater, greater_equal = ne, lt, le, gt, ge


def logical_and(input, other):
    """Are both not 0?"""
    return lib.tl_logical_and(input, other)


def logical_or(input, other):
    """Is one of them not 0?"""
    return lib.tl_logical_or(input, other)


def logical_xor(input, other):
    """Is exactly one of them not 0?"""
    return lib.tl_logical_xor(input, other)


def _bitwise(name, doc, takes_bool=True):
    call = getattr(lib, "tl_" + name)

    def function(input, other, *, out=None):
        if not isinstance(input, _Tensor):
            input = _full_like_number(input, other)
        elif not isinstance(other, _Tensor):
            other = _full_like_number(other, input)
        if input.dtype.is_inexact or other.dtype.is_inexact or (
                not takes_bool and input.dtype is bool_ and other.dtype is bool_):
            raise NotImplementedError(f"\"{name}_cpu\" not implemented for "
                                      f"'{_SCALAR_NAMES.get(promote_types(input.dtype, other.dtype).name)}'")
        return call(input, other) if out is None else _into(out, call(input, other))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


bitwise_and = _bitwise("bitwise_and", "Bits that are 1 in both, of integers or bool.")
bitwise_or = _bitwise("bitwise_or", "Bits that are 1 in one of them, of integers or bool.")
bitwise_xor = _bitwise("bitwise_xor", "Bits that differ, of integers or bool.")
bitwise_left_shift = _bitwise("bitwise_left_shift", "input 2^other, of integers.", False)
bitwise_right_shift = _bitwise("bitwise_right_shift", "floor(input / 2^other), of integers.", False)


def atan2(input, other, *, out=None):
    """The angle of the point (other, input), in (-pi, pi]."""
    return lib.tl_atan2(input, other) if out is None else _into(out, lib.tl_atan2(input, other))


def bitwise_not(input):
    """Of bool tensors: not. Of integers: -x - 1."""
    if input.dtype is bool_:
        return lib.tl_logical_not(input)
    if input.dtype.is_inexact:
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return lib.tl_rsub_scalar(input, -1)


def clamp(input, min=None, max=None):
    """min(max(x, min), max); bounds are numbers or tensors."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, _Tensor) or isinstance(max, _Tensor):
        if min is not None:
            input = lib.tl_maximum(input, min)
        return input if max is None else lib.tl_minimum(input, max)
    return lib.tl_clamp(input, min, max)


clip = clamp


def clamp_min(input, min):
    """max(x, min)"""
    return clamp(input, min=min)


def clamp_max(input, max):
    """min(x, max)"""
    return clamp(input, max=max)


def where(condition, input=None, other=None):
    """input where the condition holds, other elsewhere; with only the condition, the indices of nonzero elements."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if isinstance(other, complex):
        other = _complex_beside(other, input if isinstance(input, _Tensor) else condition)
    if isinstance(input, complex):
        input = _complex_beside(input, other if isinstance(other, _Tensor) else condition)
    is_a, is_b = isinstance(input, _Tensor), isinstance(other, _Tensor)
    if is_a and not is_b:
        return lib.tl_where_scalar(condition, input, _number(other, "where", "other"))
    if is_b and not is_a:
        return lib.tl_where_scalar(lib.tl_logical_not(condition), other, _number(input, "where", "input"))
    if not is_a:
        a, b = _number(input, "where", "input"), _number(other, "where", "other")
        kind = (get_default_dtype() if isinstance(a, float) or isinstance(b, float)
                else bool_ if isinstance(a, bool) and isinstance(b, bool) else int64)
        return lib.tl_where_scalar(condition, lib.tl_full((), float(a), kind.code, lib.tl_device_of(condition)), b)
    try:
        return lib.tl_where(condition, input, other)
    except RuntimeError:  # the library looks at the values first
        _common_shape([lib.shape_of(x) for x in (condition, input, other)])
        raise


def lerp(input, end, weight):
    """input + weight (end - input)"""
    try:
        return (lib.tl_lerp(input, end, weight) if isinstance(weight, _Tensor)
                else lib.tl_lerp_scalar(input, end, weight))
    except RuntimeError:  # its parts name the operands in another order
        _common_shape([lib.shape_of(x) for x in (input, end, weight) if isinstance(x, _Tensor)])
        raise


def _in_f32(compute, *tensors):
    """A result of several ops on 16-bit numbers, rounded once."""
    if builtins.all(x.dtype.bits != 16 or not x.dtype.is_floating_point for x in tensors):
        return compute(*tensors)
    kind = functools.reduce(promote_types, [x.dtype for x in tensors])
    wide = [lib.tl_cast(x, float32.code) if x.dtype.bits == 16 else x for x in tensors]
    return lib.tl_cast(compute(*wide), kind.code)


def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value tensor1 tensor2"""
    _common_shape([lib.shape_of(x) for x in (input, tensor1, tensor2)])
    return _in_f32(lambda a, b, c: lib.tl_addcmul(a, b, c, _number(value, "addcmul", "value")), input, tensor1, tensor2)


def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value tensor1 / tensor2"""
    _common_shape([lib.shape_of(x) for x in (input, tensor1, tensor2)])
    return _in_f32(lambda a, b, c: lib.tl_addcdiv(a, b, c, _number(value, "addcdiv", "value")), input, tensor1, tensor2)


# ---- Reductions ----

def sum(input, dim=None, keepdim=False, *, dtype=None):
    """Over some axes, or all; of integers and bool in int64."""
    return (lib.tl_sum(input, _axes(dim), keepdim) if dtype is None
            else lib.tl_cast(lib.tl_sum(lib.tl_cast(input, dtype.code), _axes(dim), keepdim), dtype.code))


def nansum(input, dim=None, keepdim=False, *, dtype=None):
    """As sum; NaN counts as 0."""
    return lib.tl_nansum(_cast(input, dtype), _axes(dim), keepdim)


def mean(input, dim=None, keepdim=False, *, dtype=None):
    """Over some axes, or all."""
    return lib.tl_mean(_cast(input, dtype), _axes(dim), keepdim)


def prod(input, dim=None, keepdim=False, *, dtype=None):
    """Of all elements, or along one axis."""
    return _cast(lib.tl_prod(_cast(input, dtype), _axes(dim), keepdim), dtype)


_Pair = {name: collections.namedtuple(name, ["values", "indices"])
         for name in ("max", "min", "sort", "topk", "cummax", "kthvalue", "median")}


def _not_empty(name, input, dim):
    """The minimum or maximum of no elements is an error, with torch's message and class."""
    if lib.tl_numel(input):
        return
    if dim is None or dim == ():
        kind = IndexError if name.startswith("arg") else RuntimeError
        raise kind(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                   "dim with the 'dim' argument.")
    for d in _axes(dim):
        at = _axis(d, input.ndim)
        if input.ndim and not input.shape[at]:
            raise IndexError(f"{name}(): Expected reduction dim {at} to have non-zero size.")


def _extreme(name, input, dim, keepdim, other):
    if isinstance(dim, _Tensor):
        dim, other = None, dim
    if other is not None:
        return (lib.tl_maximum if name == "max" else lib.tl_minimum)(input, other)
    _not_empty(name, input, dim)
    if dim is None:
        return (lib.tl_max if name == "max" else lib.tl_min)(input, (), keepdim)
    looked = lib.tl_cast(input, _UINT8) if lib.tl_dtype_of(input) == bool_.code else input
    index = (lib.tl_argmax if name == "max" else lib.tl_argmin)(looked, (dim,), True)
    if input.ndim == 0:
        return _Pair[name](lib.tl_clone(input), index)
    values = lib.tl_gather(input, dim, index)
    if not keepdim:
        values, index = lib.tl_squeeze(values, dim), lib.tl_squeeze(index, dim)
    return _Pair[name](values, index)


def max(input, dim=None, keepdim=False, *, other=None):
    """The largest element; along an axis (values, indices); of two tensors the larger one element by element."""
    return _extreme("max", input, dim, keepdim, other)


def min(input, dim=None, keepdim=False, *, other=None):
    """The smallest element; along an axis (values, indices); of two tensors the smaller one element by element."""
    return _extreme("min", input, dim, keepdim, other)


def amax(input, dim=(), keepdim=False):
    """The largest over some axes; equal ones share the gradient."""
    _not_empty("amax", input, dim)
    return lib.tl_max(input, _axes(dim), keepdim)


def amin(input, dim=(), keepdim=False):
    """The smallest over some axes; equal ones share the gradient."""
    _not_empty("amin", input, dim)
    return lib.tl_min(input, _axes(dim), keepdim)


def _no_bool(name, input):
    if lib.tl_dtype_of(input) == bool_.code:
        raise RuntimeError(f"{name}(): does not support bool input")


def argmax(input, dim=None, keepdim=False):
    """The index of the largest element; the first of equal ones."""
    _no_bool("argmax", input)
    _not_empty("argmax", input, dim)
    return lib.tl_argmax(input, _axes(dim), keepdim)


def argmin(input, dim=None, keepdim=False):
    """The index of the smallest element; the first of equal ones."""
    _no_bool("argmin", input)
    _not_empty("argmin", input, dim)
    return lib.tl_argmin(input, _axes(dim), keepdim)


def any(input, dim=None, keepdim=False):
    """Is one of them not 0?"""
    return lib.tl_any(input, _axes(dim), keepdim)


def all(input, dim=None, keepdim=False):
    """Is none of them 0?"""
    return lib.tl_all(input, _axes(dim), keepdim)


def count_nonzero(input, dim=None):
    """How many are not 0."""
    return lib.tl_count_nonzero(input, _axes(dim), False)


def _spread(call, input, dim, unbiased, correction, keepdim):
    if isinstance(dim, bool):  # std(x, False)
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return call(input, _axes(dim), correction, keepdim)


def var(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """sum (x - mean)^2 / (n - correction)"""
    return _spread(lib.tl_var, input, dim, unbiased, correction, keepdim)


def std(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The square root of var."""
    return _spread(lib.tl_std, input, dim, unbiased, correction, keepdim)


def logsumexp(input, dim, keepdim=False):
    """log of the sum of e^x, without overflow."""
    return lib.tl_logsumexp(input, _axes(dim), keepdim)


def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """(sum |x|^p)^(1/p); "fro" is 2."""
    if p == "fro" and len(_axes(dim)) > 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, _axes(dim)))} (give p=2 "
                           "for the norm over more axes)")
    if p == "nuc":
        raise NotImplementedError('norm: p="nuc" needs singular values: use numpy.linalg.norm on x.numpy()')
    p = 2.0 if p in ("fro", None) else float(p)
    return lib.tl_norm(_cast(input, dtype), p, _axes(dim), keepdim)


def _constant_of(x, axes, keepdim, y):
    """y, which depends on x by steps: it requires grad where x does, and the gradient is 0."""
    if not lib.tl_needs_grad(x):
        return y
    never = lib.tl_zeros((), bool_.code, lib.tl_device_of(x))
    return lib.tl_where(never, lib.tl_sum(x if y.dtype.is_complex else lib.tl_real(x), axes, keepdim), y)


def cumsum(input, dim, *, dtype=None):
    """Running sums along an axis."""
    return _cast(lib.tl_cumsum(_cast(input, dtype), dim), dtype)


def cumprod(input, dim, *, dtype=None):
    """Running products along an axis."""
    return _cast(lib.tl_cumprod(_cast(input, dtype), dim), dtype)


def softmax(input, dim, *, dtype=None):
    """e^x / sum e^x along an axis."""
    return lib.tl_softmax(_cast(input, dtype), dim)


def log_softmax(input, dim, *, dtype=None):
    """log of softmax, without loss of digits."""
    return lib.tl_log_softmax(_cast(input, dtype), dim)


# ---- Products ----

def _matmul(a, b):
    """The library's product of floats; of integers, sums of products, exact and wrapping as in torch."""
    if _dtype_of(a).is_inexact or _dtype_of(b).is_inexact:
        return lib.tl_matmul(a, b)
    if _dtype_of(a) is not _dtype_of(b):
        raise RuntimeError("expected m1 and m2 to have the same dtype, but got: "
                           f"{_scalar_name(a)} != {_scalar_name(b)}")
    if _dtype_of(a) is bool_:
        raise NotImplementedError("\"addmm_impl_cpu_\" not implemented for 'Bool'")
    return _integer_product(a, b)


_MOST_PRODUCTS = 1 << 22  # held at once


def _integer_product(a, b):
    lib.tl_matmul(*(lib.tl_empty(lib.shape_of(x), float32.code, _META()) for x in (a, b)))  # its checks of shapes
    left = lib.tl_unsqueeze(a, 0) if a.ndim == 1 else a
    right = lib.tl_unsqueeze(b, -1) if b.ndim == 1 else b
    m, k, n = left.shape[-2], left.shape[-1], right.shape[-1]
    batch = math.prod(broadcast_shapes(left.shape[:-2], right.shape[:-2]))
    step = builtins.max(1, _MOST_PRODUCTS // builtins.max(1, m * n * batch))
    total = None
    for at in range(0, builtins.max(k, 1), step):
        x = lib.tl_unsqueeze(lib.tl_slice(left, -1, at, builtins.min(at + step, k), 1), -1)
        y = lib.tl_unsqueeze(lib.tl_slice(right, -2, at, builtins.min(at + step, k), 1), -3)
        part = lib.tl_cast(lib.tl_sum(lib.tl_mul(x, y), (-2,), False), lib.tl_dtype_of(a))
        total = part if total is None else lib.tl_add(total, part)
    total = lib.tl_squeeze(total, -2) if a.ndim == 1 else total
    return lib.tl_squeeze(total, -1) if b.ndim == 1 else total


def _META():
    from ._types import as_device
    return as_device("meta").address


def matmul(input, other, *, out=None):
    """(..., m, k) x (..., k, n); a vector is a row on the left and a column on the right."""
    return _matmul(input, other) if out is None else _into(out, _matmul(input, other))


def mm(input, mat2):
    """(m, k) x (k, n)"""
    if input.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(f"{'self' if input.ndim != 2 else 'mat2'} must be a matrix")
    return _matmul(input, mat2)


def bmm(input, mat2):
    """(b, m, k) x (b, k, n)"""
    if input.ndim != 3 or mat2.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor" if input.ndim != 3 else "batch2 must be a 3D tensor")
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{input.shape[0]}, "
                           f"{input.shape[2]}] but got: [{mat2.shape[0]}, {mat2.shape[1]}].")
    return _matmul(input, mat2)


def mv(input, vec):
    """(m, k) x (k)"""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {input.ndim}, {vec.ndim}")
    return _matmul(input, vec)


def dot(input, tensor):
    """The sum of products of two vectors."""
    if input.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {input.ndim}D and {tensor.ndim}D tensors")
    return _matmul(input, tensor)


def outer(input, vec2):
    """Every product of two vectors' elements."""
    if input.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"outer: Expected 1-D argument {'self' if input.ndim != 1 else 'vec2'}, but got "
                           f"{(input if input.ndim != 1 else vec2).ndim}-D")
    return lib.tl_mul(lib.tl_unsqueeze(input, 1), vec2)


def _spelled(arguments):
    """x, [0, 1], y, [1, 2] [, [0, 2]] as an equation and its operands; Ellipsis is "..."."""
    def letters(axes):
        return "".join("..." if a is Ellipsis else chr((ord("A") if a < 26 else ord("a") - 26) + a) for a in axes)
    has_result = len(arguments) % 2
    lists = arguments[1::2] if not has_result else arguments[1:-1:2]
    if builtins.any(a is not Ellipsis and not 0 <= a < 52 for axes in (*lists, arguments[-1]) for a in axes):
        raise RuntimeError("einsum(): subscripts in a sublist must be in the range [0, 52)")
    equation = ",".join(letters(axes) for axes in lists)
    return equation + ("->" + letters(arguments[-1]) if has_result else ""), arguments[:2 * len(lists):2]


def einsum(equation, *operands):
    """Sums of products in torch's spelling: einsum("bik,bkj->bij", x, y), or einsum(x, [0, 1], y, [1, 2]) with numbers
    for letters. tally.einops.einsum takes names."""
    if isinstance(equation, _Tensor):
        equation, operands = _spelled((equation, *operands))
    return lib.tl_einsum_letters(equation, operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple))
                                 else operands)


# ---- Views ----

def reshape(input, shape):
    """A view if strides allow it, otherwise a copy; one size may be -1."""
    return lib.tl_reshape(input, _sizes((shape,)))


def transpose(input, dim0, dim1):
    """Swaps two axes; a view."""
    if not lib.tl_rank(input):
        _axis(dim0, 0), _axis(dim1, 0)
        return lib.tl_view(input, ())
    return lib.tl_transpose(input, dim0, dim1)


swapdims = transpose


def swapaxes(input, axis0, axis1):
    """Two axes swapped; a view."""
    return transpose(input, axis0, axis1)


def t(input):
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return lib.tl_transpose(input, 0, 1) if input.ndim == 2 else lib.tl_view(input, lib.shape_of(input))


def permute(input, dims):
    """The axes in another order; a view."""
    dims = _sizes((dims,))
    if len(dims) != input.ndim:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length "
                           f"of the desired ordering of dimensions i.e. input.dim() = {input.ndim} is not equal to "
                           f"len(dims) = {len(dims)}")
    return lib.tl_permute(input, dims)


def movedim(input, source, destination):
    """Moves axes to other places; a view."""
    n = input.ndim
    source, destination = [_axis(d, n) for d in _axes(source)], [_axis(d, n) for d in _axes(destination)]
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({source} dims) should contain the "
                           f"same number of dims as destination ({destination} dims)")
    if len(set(source)) < len(source) or len(set(destination)) < len(destination):
        raise RuntimeError("movedim: repeated dim in `source` or `destination`")
    if not n:
        return lib.tl_view(input, ())
    order = [None] * n
    for s, d in zip(source, destination):
        order[d] = s
    rest = iter(d for d in range(n) if d not in source)
    return lib.tl_permute(input, [next(rest) if o is None else o for o in order])


moveaxis = movedim


def squeeze(input, dim=None):
    """Leaves out axes of size 1: all of them, one, or some; a view."""
    if dim is None:
        return lib.tl_view(input, tuple(n for n in lib.shape_of(input) if n != 1))
    n = input.ndim
    axes = [_axis(d, n) for d in _axes(dim)]
    if not n or not axes:
        return lib.tl_view(input, lib.shape_of(input))
    for d in sorted(axes, reverse=True):
        input = lib.tl_squeeze(input, d)
    return input


def unsqueeze(input, dim):
    """A new axis of size 1; a view."""
    return lib.tl_unsqueeze(input, dim)


def flatten(input, start_dim=0, end_dim=-1):
    """Several axes as one; a view where strides allow it."""
    n = lib.tl_rank(input)
    if n and _axis(start_dim, n) == _axis(end_dim, n):
        return input
    return lib.tl_flatten(input, start_dim, end_dim)


def unflatten(input, dim, sizes):
    """One axis as several; a view."""
    if not input.ndim:
        _axis(dim, 0)
        raise RuntimeError("unflatten: Dimension specified as 0 but tensor has no dimensions")
    return lib.tl_unflatten(input, dim, sizes)


def ravel(input):
    """One axis; a view where strides allow it."""
    return lib.tl_view(lib.tl_contiguous(input), (-1,))


def narrow(input, dim, start, length):
    """`length` elements of an axis from `start` on; a view."""
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    size = input.size(dim)
    start = start.item() if isinstance(start, _Tensor) else start
    start = start + size if start < 0 else start
    if start > size or start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return lib.tl_slice(input, dim, start, start + length, 1)


def select(input, dim, index):
    """One index of an axis, which goes; a view."""
    return lib.tl_select(input, dim, index)


def diagonal(input, offset=0, dim1=0, dim2=1):
    """A diagonal of two axes, as the last axis; a view."""
    if not input.ndim:
        if _axis(dim1, 0) == _axis(dim2, 0):
            raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return lib.tl_diagonal(input, offset, dim1, dim2)


def broadcast_to(input, size):
    """Repeats axes of size 1 without copying; a view."""
    return lib.tl_broadcast_to(input, size)


def broadcast_tensors(*tensors):
    """All tensors at their common shape; views."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    shape = _common_shape([lib.shape_of(x) for x in tensors])
    return tuple(x if lib.shape_of(x) == shape else lib.tl_broadcast_to(x, shape) for x in tensors)


def _common_shape(shapes):
    """The shape that shapes broadcast to; torch's error message if they do not."""
    common = ()
    for s in shapes:
        n = builtins.max(len(s), len(common))
        a, b = (1,) * (n - len(common)) + tuple(common), (1,) * (n - len(s)) + tuple(s)
        for i in range(n - 1, -1, -1):
            if a[i] != b[i] and 1 not in (a[i], b[i]):
                raise RuntimeError(f"The size of tensor a ({a[i]}) must match the size of tensor b ({b[i]}) at "
                                   f"non-singleton dimension {i}")
        common = tuple(y if x == 1 else x for x, y in zip(a, b))
    return common


def broadcast_shapes(*shapes):
    """The shape that all of these broadcast to."""
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    n = builtins.max((len(s) for s in shapes), default=0)
    result = [1] * n
    for s in shapes:
        for i, size in enumerate(s, n - len(s)):
            if size != 1 and result[i] not in (1, size):
                raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
            if size != 1:
                result[i] = size
    return Size(result)


_MOST_PARTS = 1 << 20  # each is a tensor: a count of billions is a mistake, and would take the memory of the machine


def _check_parts(name, n):
    if n > _MOST_PARTS:
        raise RuntimeError(f"{name}: {n} parts are too many (need at most {_MOST_PARTS})")


def split(tensor, split_size_or_sections, dim=0):
    """Parts of one size (the last may be smaller), or of these sizes; views."""
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    size = tensor.size(dim)
    sections = split_size_or_sections
    if isinstance(sections, int):
        if sections < 0 or sections == 0 and size:
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={sections}"
                               if sections < 0 else
                               f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        _check_parts("split", -(-size // sections) if size else 1)
        sections = [builtins.min(sections, size - at) for at in range(0, size, sections)] if size else [size]
    elif builtins.sum(sections) != size:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at "
                           f"dimension {dim}), but got split_sizes={list(sections)}")
    parts, at = [], 0
    for n in sections:
        parts.append(lib.tl_slice(tensor, dim, at, at + n, 1))
        at += n
    return tuple(parts)


def chunk(input, chunks, dim=0):
    """Up to so many parts of equal size, the last may be smaller; views."""
    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    size = input.size(dim)
    n = -(-size // chunks)
    _check_parts("chunk", -(-size // n) if n else chunks)
    return split(input, n, dim) if n else tuple(lib.tl_slice(input, dim, 0, 0, 1) for _ in range(chunks))


def tensor_split(input, indices_or_sections, dim=0):
    """Parts of nearly equal size, or cut at these indices; views."""
    if not input.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    size = input.size(dim)
    if isinstance(indices_or_sections, _Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {indices_or_sections}")
        _check_parts("tensor_split", indices_or_sections)
        n, extra = divmod(size, indices_or_sections)
        ends = [n * (i + 1) + builtins.min(i + 1, extra) for i in range(indices_or_sections)]
    else:
        ends = [*indices_or_sections, size]
    return tuple(lib.tl_slice(input, dim, a, b, 1) for a, b in zip([0] + ends[:-1], ends))


def unbind(input, dim=0):
    """Every index of an axis; views."""
    _check_parts("unbind", input.size(dim))
    return tuple(lib.tl_select(input, dim, i) for i in range(input.size(dim)))


# ---- Joining, repeating, reordering ----

def cat(tensors, dim=0):
    """Joins tensors along an axis."""
    try:
        return lib.tl_concat(tensors, dim)
    except IndexError:
        for i, x in enumerate(tensors):
            if not x.ndim:
                raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated") from None
        raise


concat = concatenate = cat


def stack(tensors, dim=0):
    """Joins tensors along a new axis."""
    return lib.tl_stack(tensors, dim)


def tile(input, dims):
    """Repeats the whole along each axis."""
    return lib.tl_tile(input, dims)


def repeat_interleave(input, repeats, dim=None, *, output_size=None):
    """Each slice of an axis so many times. output_size, the resulting size of that axis, is checked."""
    if dim is not None and not input.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if dim is None:
        input, dim = lib.tl_reshape(input, (-1,)), 0
    out = (lib.tl_repeat_counts(input, dim, repeats) if isinstance(repeats, _Tensor)
           else lib.tl_repeat_interleave(input, dim, repeats))
    if output_size is not None and out.size(dim) != output_size:
        raise RuntimeError(f"repeat_interleave: the repeats make {out.size(dim)} slices, output_size is {output_size}")
    return out


def flip(input, dims):
    """Turns axes around. A copy, as in torch; a slice with a negative step is the view."""
    return lib.tl_clone(lib.tl_flip(input, _axes(dims)))


def roll(input, shifts, dims=None):
    """Moves elements along axes, around the end."""
    if dims is not None and not input.ndim:
        raise IndexError(f"Dimension specified as {_axes(dims)[0]} but tensor has no dimensions")
    return lib.tl_roll(input, _axes(shifts), None if dims is None else _axes(dims))


def triu(input, diagonal=0):
    """Zero below a diagonal."""
    return lib.tl_triu(input, diagonal)


def tril(input, diagonal=0):
    """Zero above a diagonal."""
    return lib.tl_tril(input, diagonal)


def meshgrid(*tensors, indexing="ij"):
    """Grids of vectors; views."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}")
    order = ([1, 0] + list(range(2, len(tensors))) if indexing == "xy" and len(tensors) > 1
             else list(range(len(tensors))))
    shape = [tensors[i].numel() for i in order]
    grids = []
    for i, x in enumerate(tensors):
        own = [1] * len(tensors)
        own[order.index(i)] = x.numel()
        grids.append(lib.tl_expand(lib.tl_reshape(x, own), shape))
    return tuple(grids)


# ---- Gathering ----

def gather(input, dim, index):
    """out[i][j] = input[index[i][j]][j] for axis 0."""
    return lib.tl_gather(input, dim, index)


def take_along_dim(input, indices, dim=None):
    """gather, with the other axes broadcast."""
    if dim is not None and not input.ndim:
        raise IndexError(f"Dimension specified as {_axis(dim, 0)} but tensor has no dimensions")
    if dim is None:
        input, indices, dim = lib.tl_reshape(input, (-1,)), lib.tl_reshape(indices, (-1,)), 0
    return lib.tl_take_along(input, dim, indices)


def scatter(input, dim, index, src=None, *, value=None, reduce=None):
    """input with [index[i][j]][j] = src[i][j] for axis 0; with reduce="add", += instead of =."""
    src = value if src is None else src
    if reduce is not None:
        if reduce not in ("add", "multiply"):
            raise RuntimeError("reduce argument must be either add or multiply.")
        src = src if isinstance(src, _Tensor) else lib.tl_full(lib.shape_of(index), float(src), lib.tl_dtype_of(input),
                                                               lib.tl_device_of(input))
        if reduce == "multiply":
            from ._ordered import scatter_reduced
            return scatter_reduced(input, dim, index, src, "prod", True)
        return lib.tl_scatter_add(input, dim, index, src)
    if not isinstance(src, _Tensor):
        return lib.tl_scatter_scalar(input, dim, index, src)
    return lib.tl_scatter(input, dim, index, src)


def scatter_add(input, dim, index, src):
    """As scatter, with += instead of =."""
    return lib.tl_scatter_add(input, dim, index, src)


def index_select(input, dim, index):
    """Slices of an axis by their numbers."""
    return lib.tl_index_select(input, dim, index)


def index_add(input, dim, index, source, *, alpha=1):
    """input with alpha source added to slices of an axis."""
    return lib.tl_index_add(input, dim, index, source, alpha)


def masked_fill(input, mask, value):
    """value where the mask holds."""
    if isinstance(value, _Tensor):
        if value.ndim:
            raise RuntimeError("masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                               f"{value.ndim} dimension(s).")
        _common_shape([lib.shape_of(mask), lib.shape_of(input)])
        return lib.tl_where(mask, lib.tl_cast(value, lib.tl_dtype_of(input)), input)
    if isinstance(value, complex):
        return masked_fill(input, mask, _complex_beside(value, input))
    return lib.tl_masked_fill(input, mask, value)


def masked_select(input, mask):
    """The elements where the mask is true, as a vector."""
    _common_shape([lib.shape_of(mask), lib.shape_of(input)])
    return lib.tl_masked_select(input, mask)


def nonzero(input, *, as_tuple=False):
    """The indices of nonzero elements: (n, ndim), or a vector per axis."""
    found = lib.tl_nonzero(input)
    if not as_tuple:
        return found
    return unbind(found, 1) if input.ndim else unbind(lib.tl_nonzero(lib.tl_reshape(input, (1,))), 1)


argwhere = nonzero


def sort(input, dim=-1, descending=False, stable=False):
    """(values, indices); always stable."""
    return _Pair["sort"](*lib.tl_sort(input, dim, descending))


def argsort(input, dim=-1, descending=False, stable=False):
    """The indices that sort."""
    return lib.tl_argsort(input, dim, descending)


def topk(input, k, dim=-1, largest=True, sorted=True):
    """The k largest (or smallest), in order: (values, indices)."""
    return _Pair["topk"](*lib.tl_topk(input, k, dim, largest))


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None):
    """The index at which each value would be inserted into a sorted sequence, or one that `sorter` puts in order."""
    if side is not None:
        if side not in ("left", "right") or right and side == "left":
            raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of "
                               f"{side} while right was {right}")
        right = side == "right"
    if sorter is not None:
        sorted_sequence = lib.tl_gather(sorted_sequence, -1, sorter)
    if not isinstance(input, _Tensor):
        kind = sorted_sequence.dtype if isinstance(input, float) and sorted_sequence.is_floating_point() else float64
        input = lib.tl_full((), float(input), kind.code, lib.tl_device_of(sorted_sequence))
    found = lib.tl_searchsorted(sorted_sequence, input, right)
    return lib.tl_cast(found, BY_NAME["int32"].code) if out_int32 else found


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The distinct values, rising."""
    if dim is not None:
        from ._ordered import unique_along
        return unique_along(input, dim, return_inverse, return_counts)
    found = lib.tl_unique(input)
    wanted = (found[0],) + ((found[1],) if return_inverse else ()) + ((found[2],) if return_counts else ())
    return wanted if len(wanted) > 1 else found[0]


def bincount(input, weights=None, minlength=0):
    """How often each of 0, 1, ... occurs."""
    input = lib.tl_cast(input, int64.code) if input.dtype.name in ("uint8", "int8", "int16") else input
    n = builtins.max(int(lib.tl_item_int(lib.tl_max(input, (), False))) + 1 if input.numel() else 0, minlength)
    if weights is not None:  # sums are of float32, or of float64
        if not lib.tl_numel(input):  # as torch: counts, of nothing
            return lib.tl_zeros((n,), int64.code, lib.tl_device_of(input))
        weights = lib.tl_cast(weights, (weights.dtype if weights.dtype is float32 else float64).code)
    return lib.tl_bincount(input, n, weights)


# ---- Comparing whole tensors ----

def equal(input, other):
    """Same shape and values?"""
    if lib.shape_of(input) != lib.shape_of(other):
        return False
    return bool(lib.tl_item(lib.tl_all(lib.tl_cmp(input, _EQ, other), (), False)))


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """|a - b| <= atol + rtol |b|, or equal."""
    if not isinstance(other, _Tensor):
        raise TypeError(f"isclose(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value:g}")
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{_scalar_name(input)} did not match {_scalar_name(other)}")
    with no_grad():
        close = lib.tl_cmp(input, _EQ, other)
        if equal_nan and input.dtype.is_inexact:
            close = logical_or(close, logical_and(isnan(input), isnan(other)))  # noqa: F821
        if input.dtype.is_inexact or rtol or atol:
            a, b = ((input, other) if input.dtype.is_inexact
                    else (lib.tl_cast(input, float64.code), lib.tl_cast(other, float64.code)))
            allowed = lib.tl_add_scalar(lib.tl_mul_scalar(lib.tl_abs(b), float(rtol)), float(atol))
            distance = lib.tl_abs(lib.tl_sub(a, b))
            near = logical_and(lib.tl_isfinite(distance), lib.tl_cmp(distance, _LE, allowed))
            close = logical_or(close, logical_and(near, lib.tl_isfinite(b)))
        return close


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Is every element close?"""
    return bool(all(isclose(input, other, rtol, atol, equal_nan)))


def _scalar_name(x):
    """torch's name of a dtype in messages and tensor types."""
    return _SCALAR_NAMES.get(x.dtype.name, x.dtype.name)


_SCALAR_NAMES = {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "bool": "Bool",
                 "float16": "Half", "bfloat16": "BFloat16", "int16": "Short", "int8": "Char", "uint8": "Byte",
                 "uint16": "UInt16", "complex64": "ComplexFloat", "complex128": "ComplexDouble"}


def is_tensor(obj):
    """Is it a Tensor?"""
    return isinstance(obj, _Tensor)


def numel(input):
    """How many elements it has."""
    return lib.tl_numel(input)


def is_floating_point(input):
    """Is its dtype a float?"""
    return _dtype_of(input).is_floating_point


def result_type(tensor1, tensor2):
    """The dtype that adding them would give."""
    from ._grad import no_grad as off
    with off():
        return add(tensor1, tensor2).dtype


from ._grad import is_grad_enabled, no_grad  # noqa: E402

_with_numpy_names(globals())
__all__ = [n for n, v in list(globals().items()) if getattr(v, "__module__", None) == __name__
           and not n.startswith("_")]
