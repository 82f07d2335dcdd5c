"""dtypes, devices and shapes, with torch's names."""

from ._library import c, constants, lib


class dtype:
    """An element type: tally.float32 and so on."""
    __slots__ = ("name", "code", "bits", "is_floating_point", "is_signed", "is_complex", "is_inexact",
                 "numpy_name")

    def __init__(self, name, code, kind, numpy_name):
        self.name, self.code, self.numpy_name = name, code, numpy_name
        self.bits = lib.tl_dtype_bits(code)
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_inexact = kind in "fc"  # a float or complex, for which there are gradients
        self.is_signed = kind in "fic"

    @property
    def itemsize(self):
        """Bytes of an element; half a byte counts as one (see Tensor.nbytes for the true size)."""
        return (self.bits + 7) // 8

    def to_complex(self):
        """The complex dtype with parts of this one: complex128 for float64, else complex64."""
        return self if self.is_complex else BY_NAME["complex128" if self.name == "float64" else "complex64"]

    def to_real(self):
        """The dtype of a complex one's parts; any other is itself."""
        return BY_NAME["float64" if self.bits == 128 else "float32"] if self.is_complex else self

    def __repr__(self):
        return "tally." + self.name

    def __reduce__(self):
        return (_dtype_by_name, (self.name,))


# In the order of enum tl_dtype: torch's name, and the one of NumPy or of ml_dtypes, which adds these to NumPy.
_ROWS = [("float64", "f", "float64"), ("float32", "f", "float32"), ("float16", "f", "float16"),
         ("bfloat16", "f", "bfloat16"), ("float8_e4m3fn", "f", "float8_e4m3fn"), ("float8_e5m2", "f", "float8_e5m2"),
         ("float8_e8m0fnu", "f", "float8_e8m0fnu"), ("float4_e2m1fn", "f", "float4_e2m1fn"), ("int64", "i", "int64"),
         ("int32", "i", "int32"), ("int16", "i", "int16"), ("uint16", "u", "uint16"), ("int8", "i", "int8"),
         ("uint8", "u", "uint8"), ("bool", "b", "bool"), ("complex64", "c", "complex64"),
         ("complex128", "c", "complex128")]
DTYPES = [dtype(name, code, kind, numpy_name) for code, (name, kind, numpy_name) in enumerate(_ROWS)]
BY_NAME = {d.name: d for d in DTYPES}
ALIASES = {"double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
           "short": "int16", "cfloat": "complex64", "cdouble": "complex128"}
float64, float32, float16, bfloat16 = DTYPES[:4]
int64, int32, bool_ = BY_NAME["int64"], BY_NAME["int32"], BY_NAME["bool"]
assert len(DTYPES) == constants["TL_DTYPE_COUNT"]

_default = float32


def _dtype_by_name(name):
    return BY_NAME[name]


def get_default_dtype():
    return _default


def set_default_dtype(d):
    global _default
    if not isinstance(d, dtype) or d.code > bfloat16.code:
        raise TypeError("only floating-point types are supported as the default type")
    _default = d


def as_dtype(d):
    """A dtype, or the Python type that stands for one."""
    if isinstance(d, dtype):
        return d
    if d is float:
        return float64
    if d is bool:
        return bool_
    if d is int:
        return int64
    if d is complex:
        return BY_NAME["complex128"]
    raise TypeError(f"expected a dtype, got {d!r}")


def promote_types(type1, type2):
    code = lib.tl_promote(type1.code, type2.code)
    return DTYPES[code]


class device:
    """The device of a tensor: device("cpu"), device("cuda", 0), device("meta"), device("meta:h200")."""
    __slots__ = ("type", "index", "_name", "_address")

    def __init__(self, name, index=None):
        if isinstance(name, device):
            name = name._name
        if not isinstance(name, str):
            raise TypeError(f"device(): argument 'type' (position 1) must be str, not {type(name).__name__}")
        kind, _, rest = name.partition(":")
        if kind not in ("cpu", "cuda", "meta"):
            raise RuntimeError(f"Expected one of cpu, cuda, meta device type at start of device string: {name}")
        if index is not None and rest:
            raise RuntimeError(f"type (string) must not include an index because index was passed explicitly: {name}")
        if rest and kind != "meta" and not rest.isdecimal():
            raise RuntimeError(f"Invalid device string: '{name}'")
        self.type = kind
        self.index = int(rest) if rest.isdecimal() else index
        self._name = name if index is None else f"{kind}:{index}"
        self._address = None

    @property
    def address(self):
        """The tl_device; finding it may fail, for want of a GPU."""
        if self._address is None:
            name = "cpu" if self.type == "cpu" else "meta" if self._name == "meta:0" else self._name
            self._address = lib.tl_device_find(name)
            _devices[self._address] = _devices.get(self._address) or self
        return self._address

    def __str__(self):
        return self._name

    def __repr__(self):
        return f"device(type='{self.type}'" + (f", index={self._name.partition(':')[2]})" if ":" in self._name else ")")

    def __eq__(self, other):
        return isinstance(other, device) and self._name == other._name

    def __hash__(self):
        return hash(self._name)

    def __reduce__(self):
        return (device, (self._name,))


_devices = {}  # tl_device -> device


def device_at(address):
    found = _devices.get(address)
    if found is None:
        name = lib.tl_device_name(address)
        found = _devices[address] = device(name + ":0" if name == "cuda" else name)
        found._address = address
    return found


def as_device(d):
    return d if isinstance(d, device) else device("cuda", d) if isinstance(d, int) else device(d)


class Size(tuple):
    """A tensor's shape: a tuple."""
    __slots__ = ()

    def numel(self):
        n = 1
        for size in self:
            n *= size
        return n

    def __repr__(self):
        return f"tally.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):
        found = tuple.__getitem__(self, index)
        return Size(found) if isinstance(index, slice) else found

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size(tuple.__add__(tuple(other), tuple(self)))

    def __mul__(self, n):
        return Size(tuple.__mul__(self, n))

    __rmul__ = __mul__


class finfo:
    """Limits of a float dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    def __init__(self, type=None):
        type = _default if type is None else type
        if not isinstance(type, dtype) or not type.is_inexact:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        type = type.to_real()
        info = c.tl_finfo(type.code)
        self.bits, self.eps, self.max, self.min = info.bits, info.eps, info.max, info.min
        self.tiny, self.smallest_normal, self.resolution = info.tiny, info.smallest_normal, info.resolution
        self.dtype = type.name

    def __repr__(self):
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")


class iinfo:
    """Limits of an integer dtype: bits, min, max."""

    def __init__(self, type):
        if not isinstance(type, dtype) or type.is_inexact or type is bool_:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        info = c.tl_iinfo(type.code)
        self.bits, self.min, self.max, self.dtype = info.bits, info.min, info.max, type.name

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


