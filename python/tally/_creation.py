"""New tensors: from numbers and arrays, of a constant, of random numbers."""
import functools
import warnings

from . import _memory
from ._functions import _refuse_complex, _sizes
from ._library import constants, lib
from ._numpy import known, np
from ._types import BY_NAME, DTYPES, as_device, as_dtype, bool_, get_default_dtype, int64

_Tensor = None  # set by _tensor.py
_POOL_WORDS = 2**64


def _finish(x, requires_grad):
    return lib.tl_requires_grad(x, True) if requires_grad else x


def _code(dtype):
    return (get_default_dtype() if dtype is None else as_dtype(dtype)).code


def _address(device):
    return None if device is None else as_device(device).address


# ---- From data ----

def _infer(data):
    """The dtype torch gives to nested lists: bool, int64, or the default float."""
    kinds = set()

    def look(item):
        if isinstance(item, (list, tuple)):
            for x in item:
                look(x)
        elif isinstance(item, (bool, known.bool_)):
            kinds.add(bool_)
        elif isinstance(item, (int, known.integer)):
            kinds.add(int64)
        elif isinstance(item, (_Tensor, known.ndarray)):
            kinds.add(item.dtype if isinstance(item, _Tensor) else _memory.from_numpy_dtype(item.dtype))
        elif isinstance(item, (float, known.floating)):
            kinds.add(get_default_dtype())
        elif isinstance(item, (complex, known.complexfloating)):
            kinds.add(get_default_dtype().to_complex())
        elif isinstance(item, str):
            raise TypeError("new(): invalid data type 'str'")
        else:
            raise RuntimeError(f"Could not infer dtype of {type(item).__name__}")
    look(data)
    floats = sorted((k for k in kinds if k.is_inexact), key=lambda k: -k.is_complex)
    return floats[0] if floats else int64 if kinds - {bool_} else bool_ if kinds else get_default_dtype()


def _check_nested(data):
    """Sizes must agree; torch's words when they do not."""
    def shape_of(item, depth):
        if not isinstance(item, (list, tuple)):
            return ()
        shapes = [shape_of(x, depth + 1) for x in item]
        for s in shapes[1:]:
            if shapes[0] and not s:
                raise TypeError("not a sequence")
            if s != shapes[0]:
                expected = shapes[0][0] if shapes[0] else 0
                got = s[0] if s else 0
                raise ValueError(f"expected sequence of length {expected} at dim {depth + 1} (got {got})")
        return (len(item),) + (shapes[0] if shapes else ())
    return shape_of(data, 0)


def _plain(item):
    """Tensors inside lists become numbers."""
    if isinstance(item, (list, tuple)):
        return [_plain(x) for x in item]
    if item is None:
        raise TypeError("must be real number, not NoneType")
    return item.tolist() if isinstance(item, (_Tensor, known.ndarray)) else item


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """A copy of numbers, nested lists of them, or an array."""
    if isinstance(data, _Tensor):
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than tensor(sourceTensor).",
                      UserWarning, 2)
        x = lib.tl_clone(lib.tl_detach(data)).to(dtype=dtype, device=device)
        return _finish(x, requires_grad)
    if isinstance(data, (known.ndarray, known.generic)):
        x = _from_array(np.asarray(data), dtype, device)
    else:
        x = _from_nested(data, dtype, device)
    return _finish(x, requires_grad)


def _from_nested(data, dtype, device):
    data = list(data) if isinstance(data, range) else data
    if not isinstance(data, (list, tuple, int, float, bool, complex)):
        if hasattr(data, "__array__"):
            return _from_array(np.asarray(data), dtype, device)
        if hasattr(data, "__index__"):
            data = data.__index__()
        elif hasattr(data, "__float__") and not isinstance(data, str):
            data = float(data)
        elif isinstance(data, str):
            raise TypeError("new(): invalid data type 'str'")
        else:
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}") if dtype is None else \
                TypeError(f"must be real number, not {type(data).__name__}")
    kind = _infer(data) if dtype is None else as_dtype(dtype)
    data = _plain(data)
    _check_nested(data)
    host = "float64" if kind.is_floating_point else "complex128" if kind.is_complex else kind.numpy_name
    try:
        if host == "bool":
            array = (np.asarray(np.asarray(data, dtype=object if data == [] else None) != 0, bool) if data != []
                     else np.zeros(0, bool))
        elif host in ("float64", "complex128") or not _holds_floats(data):
            array = np.array(data, dtype=host)
        else:
            array = np.array(data, dtype="float64")
            if not (np.abs(array) < 2.0**63).all():
                raise OverflowError
            array = array.astype("int64").astype(host)
    except ValueError:
        raise TypeError("must be real number, not str") from None
    except OverflowError as error:
        if "int too" in str(error) or kind is int64 and not _holds_floats(data):
            raise ValueError("Overflow when unpacking long long") from error
        raise RuntimeError(f"value cannot be converted to type {kind.name} without overflow") from error
    except TypeError as error:
        raise TypeError(f"new(): invalid data type: {error}") from None
    x = _from_array(array, None, device)
    return lib.tl_cast(x, kind.code)


def _holds_floats(data):
    if isinstance(data, (list, tuple)):
        return any(map(_holds_floats, data))
    return isinstance(data, float)


def _from_array(array, dtype, device):
    kind = _memory.from_numpy_dtype(array.dtype)
    dense = np.ascontiguousarray(array).reshape(array.shape)
    x = lib.tl_from_data(dense.ctypes.data, dense.shape, kind.code, _address(device))
    return x if dtype is None else lib.tl_cast(x, as_dtype(dtype).code)


def as_tensor(data, dtype=None, device=None):
    """Shares memory with a tensor or array if possible; otherwise like tensor()."""
    if isinstance(data, _Tensor):
        return data.to(dtype=dtype, device=device)
    if isinstance(data, known.ndarray):
        return _memory.from_numpy(data).to(dtype=dtype, device=device)
    return tensor(data, dtype=dtype, device=device)


asarray = as_tensor


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """A tensor without axes."""
    return tensor(s, dtype=dtype or get_default_dtype(), device=device, requires_grad=requires_grad)


# ---- Constants ----

def empty(*args, size=None, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Uninitialised."""
    return _finish(lib.tl_empty(_sizes(args if size is None else (size,)), _code(dtype), _address(device)),
                   requires_grad)


def zeros(*args, size=None, dtype=None, device=None, requires_grad=False):
    """All 0."""
    return _finish(lib.tl_zeros(_sizes(args if size is None else (size,)), _code(dtype), _address(device)),
                   requires_grad)


def ones(*args, size=None, dtype=None, device=None, requires_grad=False):
    """All 1."""
    return _finish(lib.tl_ones(_sizes(args if size is None else (size,)), _code(dtype), _address(device)),
                   requires_grad)


def full(size, fill_value, *, dtype=None, device=None, requires_grad=False):
    """Filled with one number, whose type determines the dtype."""
    if isinstance(fill_value, _Tensor):
        fill_value = fill_value.item()
    if dtype is None:
        dtype = (bool_ if isinstance(fill_value, bool) else int64 if isinstance(fill_value, int)
                 else get_default_dtype().to_complex() if isinstance(fill_value, complex) else get_default_dtype())
    x = lib.tl_empty(_sizes((size,)), as_dtype(dtype).code, _address(device))
    return _finish(x.fill_(fill_value), requires_grad)


def _like(input, dtype, device):
    return (as_dtype(dtype).code if dtype is not None else lib.tl_dtype_of(input),
            _address(device) or lib.tl_device_of(input))


def empty_like(input, *, dtype=None, device=None, requires_grad=False):
    """Of input's shape, dtype and device."""
    return _finish(lib.tl_empty(lib.shape_of(input), *_like(input, dtype, device)), requires_grad)


def zeros_like(input, *, dtype=None, device=None, requires_grad=False):
    """Of input's shape, dtype and device."""
    return _finish(lib.tl_zeros(lib.shape_of(input), *_like(input, dtype, device)), requires_grad)


def ones_like(input, *, dtype=None, device=None, requires_grad=False):
    """Of input's shape, dtype and device."""
    return _finish(lib.tl_ones(lib.shape_of(input), *_like(input, dtype, device)), requires_grad)


def full_like(input, fill_value, *, dtype=None, device=None, requires_grad=False):
    """Of input's shape, dtype and device."""
    fill_value = fill_value.item() if isinstance(fill_value, _Tensor) else fill_value
    x = lib.tl_empty(lib.shape_of(input), *_like(input, dtype, device))
    return _finish(x.fill_(fill_value), requires_grad)


def arange(*args, start=0, end=None, step=1, dtype=None, device=None, requires_grad=False):
    """start, start + step, ... before end."""
    if len(args) == 1 and end is None:
        end = args[0]
    elif len(args) == 1:
        start = args[0]
    elif args:
        start, end, step = (*args, step)[:3]
    if end is None or len(args) > 3:
        raise TypeError(f"arange() received an invalid combination of arguments - got {len(args)}: end is needed")
    numbers = [x.item() if isinstance(x, _Tensor) else x for x in (start, end, step)]
    start, end, step = numbers
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    whole = all(isinstance(x, (int, known.integer)) for x in numbers)
    if dtype is None:
        dtype = int64 if whole else get_default_dtype()
    n = -(-(end - start) // step) if whole else int(np.ceil((end - start) / step))
    return _finish(lib.tl_arange(start, step, int(n), as_dtype(dtype).code, _address(device)), requires_grad)


def linspace(start, end, steps, *, dtype=None, device=None, requires_grad=False):
    """`steps` numbers from start to end, both included."""
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    return _finish(lib.tl_linspace(start, end, steps, _code(dtype), _address(device)), requires_grad)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None, requires_grad=False):
    """base^start to base^end, evenly spaced in the exponent."""
    exponents = linspace(start, end, steps, dtype=BY_NAME["float64"], device=device)
    return _finish(lib.tl_cast(lib.tl_rpow_scalar(exponents, float(base)), _code(dtype)), requires_grad)


def eye(n, m=None, *, dtype=None, device=None, requires_grad=False):
    """1 on the diagonal."""
    return _finish(lib.tl_eye(n, n if m is None else m, _code(dtype), _address(device)), requires_grad)


# ---- Random numbers: counter-based, the same on every device and for every number of threads ----

def manual_seed(seed):
    """Reseeds the calling thread's random generator."""
    lib.tl_seed(int(seed) % _POOL_WORDS)


def initial_seed():
    """The seed of the calling thread's random numbers."""
    from ._library import c
    return c.tl_generator_get().seed


def get_rng_state():
    """The state of the calling thread's random numbers: (seed, stream, index)."""
    from ._library import c
    g = c.tl_generator_get()
    return tensor([x - _POOL_WORDS if x >= _POOL_WORDS // 2 else x for x in (g.seed, g.stream, g.index)], dtype=int64)


def set_rng_state(new_state):
    """Restores a state from get_rng_state."""
    from ._library import c, structs
    c.tl_generator_set(structs["tl_generator"](*[x % _POOL_WORDS for x in new_state.tolist()]))


class Generator:
    """Random numbers of its own: `generator=` of the functions that draw uses and advances it."""

    def __init__(self, device="cpu"):
        self.device = as_device(device)
        self.manual_seed(67280421310721)

    def manual_seed(self, seed):
        from ._library import structs
        self._state = structs["tl_generator"](int(seed) % _POOL_WORDS, 0, 0)
        return self

    def seed(self):
        """A seed that is not foreseeable."""
        import secrets
        self.manual_seed(secrets.randbits(63))
        return self.initial_seed()

    def initial_seed(self):
        return self._state.seed

    def get_state(self):
        with self:
            return get_rng_state()

    def set_state(self, new_state):
        with self:
            set_rng_state(new_state)
        return self

    def __enter__(self):
        from ._library import c
        self._other = c.tl_generator_get()
        c.tl_generator_set(self._state)
        return self

    def __exit__(self, *error):
        from ._library import c
        self._state = c.tl_generator_get()
        c.tl_generator_set(self._other)


def _draws(function):
    """Takes generator=, too."""
    @functools.wraps(function)
    def call(*args, generator=None, **kwargs):
        if generator is None:
            return function(*args, **kwargs)
        with generator:
            return function(*args, **kwargs)
    return call


def _draw(call, shape, code, device):
    """Standard numbers of a distribution, of any float or complex dtype."""
    if not DTYPES[code].is_complex:
        return call(shape, 0.0, 1.0, code, device)
    from ._complex import HALF, drawn
    return drawn(call, shape, DTYPES[code], device, HALF if call is lib.tl_normal else 1.0)


@_draws
def rand(*args, size=None, dtype=None, device=None, requires_grad=False):
    """Uniform in [0, 1); of complex numbers, both parts."""
    return _finish(_draw(lib.tl_uniform, _sizes(args if size is None else (size,)), _code(dtype), _address(device)),
                   requires_grad)


@_draws
def randn(*args, size=None, dtype=None, device=None, requires_grad=False):
    """Normal, mean 0 and deviation 1; of complex numbers, both parts have the variance 1/2."""
    return _finish(_draw(lib.tl_normal, _sizes(args if size is None else (size,)), _code(dtype), _address(device)),
                   requires_grad)


@_draws
def randint(low, high=None, size=None, *, dtype=None, device=None, requires_grad=False):
    """Whole numbers in [low, high)."""
    if not isinstance(high, int) or size is None:  # randint(high, size)
        low, high, size = 0, low, high if size is None else size
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    kind = int64 if dtype is None else as_dtype(dtype)
    if kind.is_floating_point or kind is bool_:
        numbers = lib.tl_integers(_sizes((size,)), low, high, int64.code, _address(device))
        return _finish(lib.tl_cast(numbers, kind.code), requires_grad)
    return lib.tl_integers(_sizes((size,)), low, high, kind.code, _address(device))


@_draws
def randperm(n, *, dtype=None, device=None):
    """0 .. n-1 in random order."""
    return lib.tl_cast(lib.tl_permutation(n, _address(device)), (int64 if dtype is None else as_dtype(dtype)).code)


@_draws
def rand_like(input, *, dtype=None, device=None, requires_grad=False):
    """Uniform in [0, 1), of input's shape, dtype and device."""
    return _finish(_draw(lib.tl_uniform, lib.shape_of(input), *_like(input, dtype, device)), requires_grad)


@_draws
def randn_like(input, *, dtype=None, device=None, requires_grad=False):
    """Normal, of input's shape, dtype and device."""
    return _finish(_draw(lib.tl_normal, lib.shape_of(input), *_like(input, dtype, device)), requires_grad)


@_draws
def randint_like(input, low, high=None, *, dtype=None, device=None):
    """Whole numbers in [low, high), of input's shape, dtype and device."""
    if high is None:
        low, high = 0, low
    return randint(low, high, lib.shape_of(input), dtype=dtype or input.dtype, device=device or input.device)


@_draws
def normal(mean, std=1.0, size=None, *, dtype=None, device=None, layout=None, pin_memory=False):
    """Normal; mean and deviation are numbers (with a size) or tensors."""
    if not isinstance(mean, _Tensor) and not isinstance(std, _Tensor):
        return lib.tl_normal(_sizes((size,)), mean, std, _code(dtype), _address(device))
    _refuse_complex("normal: a deviation", std)
    like = mean if isinstance(mean, _Tensor) else std
    noise = randn_like(like + (std if isinstance(std, _Tensor) else 0))
    return noise * std + mean


@_draws
def bernoulli(input):
    """1 with the probability given by each element."""
    _refuse_complex("bernoulli", input)
    uniform = lib.tl_uniform(lib.shape_of(input), 0.0, 1.0, BY_NAME["float64"].code, lib.tl_device_of(input))
    chance = lib.tl_cast(lib.tl_detach(input), BY_NAME["float64"].code)
    return lib.tl_cast(lib.tl_cmp(uniform, constants["TL_LT"], chance), lib.tl_dtype_of(input))


@_draws
def exponential_(self, lambd=1.0):
    """Fills with exponentially distributed numbers: -log(1 - u) / lambd."""
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    return lib.tl_copy_(self, lib.tl_mul_scalar(lib.tl_log1p(lib.tl_neg(rand_like(self))), -1.0 / lambd))


@_draws
def multinomial(input, num_samples, replacement=False):
    """Category indices, sampled with the given weights."""
    return lib.tl_multinomial(input, num_samples, replacement)


def from_numpy(ndarray):
    """Shares the array's memory."""
    if not isinstance(ndarray, known.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return _memory.from_numpy(ndarray)


__all__ = [n for n, v in list(globals().items()) if getattr(v, "__module__", None) == __name__
           and not n.startswith("_")]
