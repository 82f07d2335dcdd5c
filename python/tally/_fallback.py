"""The binding without a compiler: the functions of _native, called through ctypes. Calls are slower; nothing else
differs."""
import ctypes
import operator

_header = _library = None
_tensor_type = _on_error = _size_type = _dtypes = None
_MAX_LIST = 64


class TensorBase:
    """Holds a tl_tensor."""
    __slots__ = ("_address",)  # not in __dict__, which copies take over

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        self._address = None
        return self

    shape = property(lambda x: _size_type(shape_of(x)))
    dtype = property(lambda x: _dtypes[_library.tl_dtype_of(address_of(x))])
    ndim = property(lambda x: _library.tl_rank(address_of(x)))

    def __del__(self):
        address = getattr(self, "_address", None)
        if address and _library is not None:
            _library.tl_drop(address)


def load(path, header):
    global _header, _library
    _library, _header = ctypes.CDLL(path), header
    header.declare(_library)
    for f in header.functions.values():
        if f.is_plain and f.name not in ("tl_keep", "tl_drop"):
            globals()[f.name] = _function(f)


def set_types(tensor, on_error, size, dtypes):
    global _tensor_type, _on_error, _size_type, _dtypes
    _tensor_type, _on_error, _size_type, _dtypes = tensor, on_error, size, dtypes


def address_of(x):
    address = x._address if isinstance(x, TensorBase) else None
    if not address:
        raise TypeError("expected a Tensor")
    return address


def shape_of(x):
    address = address_of(x)
    return tuple(_library.tl_size(address, i) for i in range(_library.tl_rank(address)))


def stride_of(x):
    address = address_of(x)
    return tuple(_library.tl_stride(address, i) for i in range(_library.tl_rank(address)))


def wrap(kind, address):
    """Another object for a tensor, which it keeps."""
    if not isinstance(kind, type) or not issubclass(kind, TensorBase) or not address:
        raise TypeError("wrap(class, address)")
    _library.tl_keep(address)
    return _own(kind, address)


def replace(x, y):
    """The object x stands for y's tensor from now on."""
    old, new = address_of(x), address_of(y)
    _library.tl_keep(new)
    x._address = new
    _library.tl_drop(old)


def scope_enter(name):
    """Opens a named scope; gives what scope_end takes."""
    scope = _library.tl_scope_enter(name.encode())
    _check()
    return scope


def scope_end(scope):
    _library.tl_scope_end(scope)
    _check()


_owners = {}  # number -> what must live as long as a tensor over its memory


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _release(number, pop=_owners.pop):
    pop(number, None)


ctypes.pythonapi.Py_IncRef(ctypes.py_object(_release))  # tensors may go after this module, at exit


def from_external(owner, address, n_bytes, shape, stride, dtype, device):
    """A tensor over memory that owner holds."""
    number = id(owner) or 1
    while number in _owners:
        number += 1
    _owners[number] = owner
    return globals()["tl_from_external"](address, n_bytes, shape, stride, dtype, device,
                                         ctypes.cast(_release, ctypes.c_void_p).value, number)


def _own(kind, address):
    x = object.__new__(kind)  # a subclass's __new__ may want arguments
    x._address = address
    return x


def _check():
    status = _library.tl_error()
    if status:
        message = _library.tl_error_message().decode()
        _library.tl_error_clear()
        raise _on_error(status, message)


# ---- Arguments: each reader gives what ctypes takes ----

class _Site:
    def __init__(self, function, position, name):
        self.function, self.position, self.name = function, position, name

    def refuse(self, want, value):
        return TypeError(f"{self.function}(): argument '{self.name}' (position {self.position}) must be {want}, not "
                         f"{type(value).__name__}")

    def too_large(self):
        return OverflowError(f"{self.function}(): argument '{self.name}' (position {self.position}) is out of range")


def _tensor(value, site):
    if value is None:
        return None
    if not isinstance(value, TensorBase):
        raise site.refuse("Tensor", value)
    return value._address


def _ranged(bits, signed):
    low, high = (-2**(bits - 1), 2**(bits - 1) - 1) if signed else (0, 2**bits - 1)

    def read(value, site):
        try:
            number = operator.index(value)
        except TypeError:
            raise site.refuse("int", value) from None
        if not low <= number <= high:
            raise site.too_large()
        return number
    return read


_long = _ranged(64, True)


def _double(value, site, want="float"):
    kind = type(value)
    try:
        if hasattr(kind, "__float__") or hasattr(kind, "__index__"):  # float() alone would read text
            return float(value)
    except TypeError:
        pass
    except OverflowError:
        if not isinstance(value, int):
            raise  # the argument's own
        raise site.too_large() from None
    raise site.refuse(want, value)


def _text(value, site):
    if value is not None and not isinstance(value, str):
        raise site.refuse("str", value)
    return None if value is None else value.encode()


def _pointer(value, site):
    if value is not None and not isinstance(value, int):
        raise site.refuse("an address", value)
    return value


def _scalar(value, site):
    scalar = _header.structs["tl_scalar"]
    kinds = _header.constants
    if isinstance(value, bool):
        return scalar(kinds["TL_SCALAR_BOOL"], int(value), 0.0)
    if not isinstance(value, float) and hasattr(value, "__index__"):  # NumPy's integers too
        return scalar(kinds["TL_SCALAR_INT"], _long(value.__index__(), site), 0.0)
    return scalar(kinds["TL_SCALAR_FLOAT"], 0, _double(value, site, "Number"))


def _items(value, want, site):
    try:
        return tuple(value)
    except TypeError:
        raise site.refuse(want, value) from None


def _list(kind, clip):
    def read(value, site):
        if value is None:
            return None
        items = (value,) if isinstance(value, int) else _items(value, "a list of ints", site)
        if len(items) > _MAX_LIST:
            raise ValueError(f"{site.function}(): {len(items)} sizes are too many")
        items = [_long(v, site) for v in items]
        if clip:
            items = [max(-2**31, min(v, 2**31 - 1)) for v in items]
        return (kind * len(items))(*items)
    return read


def _tensors(value, site):
    held = _items(value, "tuple of Tensors", site)
    items = [_tensor(v, site) for v in held]
    array = (ctypes.c_void_p * len(items))(*items)
    array.held = held  # nobody else may hold on to them during the call
    return array


def _reader(p):
    if p.kind == "integer":
        if p.type == "bool":
            return lambda value, site: bool(value)
        return _ranged(32 if p.type not in ("int64_t", "uint64_t", "size_t") else 64,
                       p.type not in ("uint64_t", "size_t"))
    if p.kind == "scalar" and "*" in p.type:
        return lambda value, site: None if value is None else ctypes.pointer(_scalar(value, site))
    return {"tensor": _tensor, "tensors": _tensors, "ints": _list(ctypes.c_int, True),
            "longs": _list(ctypes.c_int64, False), "scalar": _scalar, "double": _double, "text": _text,
            "pointer": _pointer}[p.kind]


def _check_lengths(f, given):
    """A function that rejects lists of different lengths where C assumes equal ones (see lengths in _generate.py)."""
    pairs = [(given.index(p.counts[0]), given.index(p.counts[1]))
             for p in f.parameters if p.kind == "count" and len(p.counts) == 2]
    per_axis = [given.index(p) for p in given if p.is_per_axis]
    name = f.name[3:]

    def check(values):
        for i, k in pairs:
            n = len(values[i] or ())
            if values[k] is not None and n != len(values[k]):
                raise RuntimeError(f"{name}(): '{given[i].name}' has {n} items and '{given[k].name}' has "
                                   f"{len(values[k])}: there must be as many")
        for i in per_axis:
            n, rank = -1 if values[i] is None else len(values[i]), _library.tl_rank(values[0]) if values[0] else None
            if rank is not None and n != rank:
                raise RuntimeError(f"{name}(): '{given[i].name}' has {max(n, 0)} items, and the tensor {rank} axes")
    return check if pairs or per_axis else None


def _function(f):
    function = getattr(_library, f.name)
    given = [p for p in f.parameters if p.kind not in ("count", "out")]
    check = _check_lengths(f, given)
    readers = [(_reader(p), _Site(f.name[3:], i + 1, p.name)) for i, p in enumerate(given)]
    # Where each C argument comes from: ("given", i), ("count", [i ...]) or ("out", i).
    plan, n_out = [], 0
    for p in f.parameters:
        if p.kind == "count":
            plan.append(("count", [given.index(c) for c in p.counts]))
        elif p.kind == "out":
            plan.append(("out", n_out))
            n_out += 1
        else:
            plan.append(("given", given.index(p)))

    def call(*arguments):
        if len(arguments) != len(readers):
            raise TypeError(f"{f.name[3:]}() takes {len(readers)} arguments but {len(arguments)} were given")
        values = [read(a, site) for (read, site), a in zip(readers, arguments)]
        if check is not None:
            check(values)
        outs = [ctypes.c_void_p() for _ in range(n_out)]
        c = []
        for kind, at in plan:
            if kind == "given":
                c.append(values[at])
            elif kind == "out":
                c.append(ctypes.addressof(outs[at]))
            else:
                c.append(len(values[at[0]] or ()))  # of two, the second is as long
        if f.result != "tensor" and not outs:
            result = function(*c)
            _check()
            return result.decode() if isinstance(result, bytes) else result
        scope = _library.tl_scope_begin()
        result = function(*c)
        tensors = ([result] if f.result == "tensor" else []) + [o.value for o in outs]
        for t in tensors:
            if t:
                _library.tl_keep(t)
        _library.tl_scope_end(scope)
        return _give(f, result, tensors, arguments, bool(outs))
    call.__name__ = f.name
    return call


def _give(f, result, tensors, arguments, is_tuple):
    if not result:
        for t in tensors:
            if t:
                _library.tl_drop(t)
        _check()
        if f.may_be_none:
            return None
        raise TypeError(f"{f.name[3:]}(): an argument must be Tensor, not None")
    if is_tuple:
        return tuple(_own(_tensor_type, t) if t else None for t in tensors)
    for a in arguments:
        if isinstance(a, TensorBase) and a._address == result:
            _library.tl_drop(result)
            return a
    return _own(_tensor_type, result)
