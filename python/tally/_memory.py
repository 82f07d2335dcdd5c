"""Memory shared with others: NumPy arrays and DLPack capsules, both ways, without copies."""
import ctypes
import warnings

from ._library import c, forever, lib
from ._numpy import narrow_dtypes, np
from ._types import BY_NAME, DTYPES, as_device


# ---- NumPy ----

def numpy_dtype(d):
    """NumPy's dtype, or a TypeError in torch's words where it has none."""
    narrow = getattr(narrow_dtypes(), d.numpy_name, None)
    if narrow is not None:
        return np.dtype(narrow)
    try:
        return np.dtype(d.numpy_name)
    except TypeError:
        raise TypeError(f"Got unsupported ScalarType {d.name}: NumPy has no such dtype (install ml_dtypes, or use "
                        ".float())") from None


def from_numpy_dtype(d):
    for ours in DTYPES if d.isnative else ():
        if ours.numpy_name == d.name:
            return ours
    raise TypeError(f"can't convert np.ndarray of type {d}. The only supported types are: "
                    "float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint16, uint8, and "
                    "bool.")


class _Holder:
    """What NumPy sees, and holds on to as long as the array lives."""

    def __init__(self, tensor, interface):
        self.tensor, self.__array_interface__ = tensor, interface


def array_interface(x, d=None):
    d = numpy_dtype(x.dtype) if d is None else d
    size = d.itemsize
    return {"version": 3, "shape": lib.shape_of(x), "typestr": d.str,
            "strides": tuple(s * size for s in lib.stride_of(x)), "data": (lib.tl_data(x) or 0, False)}


def to_numpy(x, force=False):
    if lib.tl_device_of(x) != as_device("cpu").address:
        if not force:
            raise TypeError(f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy the "
                            "tensor to host memory first.")
        x = x.cpu()
    if lib.tl_needs_grad(x):
        if not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        x = x.detach()
    d = numpy_dtype(x.dtype)
    if x.dtype.bits < 8:  # NumPy keeps one per byte
        out = np.empty(lib.shape_of(x), d)
        out[...] = to_numpy(lib.tl_cast(x, BY_NAME["float32"].code))
        return out
    if not lib.tl_numel(x):
        return np.empty(lib.shape_of(x), d)
    # NumPy's protocols have no name for dtypes that other packages add.
    plain = d if d.isbuiltin == 1 else np.dtype(f"u{d.itemsize}")
    array = np.asarray(_Holder(x, array_interface(x, plain)))
    return array if plain == d else array.view(d)


def from_numpy(array):
    d = from_numpy_dtype(array.dtype)
    if not array.flags.writeable:
        warnings.warn("The given NumPy array is not writable, and tensors cannot be protected from writing: copy it "
                      "first if you do not want to write to it (np.copy).", UserWarning, 3)
    if d.bits < 8:
        return lib.tl_cast(from_numpy(array.astype(np.float32)), d.code)
    if any(s % array.itemsize for s in array.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to "
                         "reallocate the memory.")
    return share(array, array.ctypes.data, array.shape, [s // array.itemsize for s in array.strides], d)


def share(owner, address, shape, stride, d, device=None):
    """A tensor over somebody's memory, on the cpu unless told; `owner` lives as long as it is used."""
    if address % d.itemsize:
        raise ValueError(f"the memory given is not aligned to its elements of {d.itemsize} bytes: copy it first")
    low = high = 0  # the elements that strides reach, from the first one
    for n, s in zip(shape, stride):
        if n == 0:
            return lib.tl_empty(shape, d.code, device or as_device("cpu").address)
        low, high = low + min(0, (n - 1) * s), high + max(0, (n - 1) * s)
    size = d.itemsize
    start, count = address + low * size, high - low + 1
    x = lib.from_external(owner, start, count * size, (count,), None, d.code, device)
    if tuple(shape) == (count,) and tuple(stride) == (1,):
        return x
    return lib.tl_as_strided(x, shape, stride, -low)


# ---- DLPack ----

class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _DLDevice), ("ndim", ctypes.c_int32), ("dtype", _DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _DLManagedTensor(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = [("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter)]


class _DLManagedTensorVersioned(ctypes.Structure):
    pass


_VersionedDeleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensorVersioned))
_DLManagedTensorVersioned._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                                      ("manager_ctx", ctypes.c_void_p), ("deleter", _VersionedDeleter),
                                      ("flags", ctypes.c_uint64), ("dl_tensor", _DLTensor)]
_READ_ONLY, _COPIED = 1, 2
_CPU, _CUDA, _CUDA_HOST = 1, 2, 3
_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_CODES = {"float64": (_FLOAT, 64), "float32": (_FLOAT, 32), "float16": (_FLOAT, 16), "bfloat16": (_BFLOAT, 16),
          "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8), "float8_e8m0fnu": (14, 8), "int64": (_INT, 64),
          "int32": (_INT, 32), "int16": (_INT, 16), "uint16": (_UINT, 16), "int8": (_INT, 8), "uint8": (_UINT, 8),
          "bool": (_BOOL, 8), "complex64": (_COMPLEX, 64), "complex128": (_COMPLEX, 128)}

_py = ctypes.pythonapi
_py.PyCapsule_New.restype = ctypes.py_object
_py.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_py.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_py.PyCapsule_GetPointer.restype = ctypes.c_void_p
_py.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_py.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_NAMES = {False: (b"dltensor", b"used_dltensor"), True: (b"dltensor_versioned", b"used_dltensor_versioned")}

_exported = {}  # address of a managed tensor -> everything it needs to live


@forever
@_Deleter
def _release(managed, pop=_exported.pop, address=ctypes.addressof):
    pop(address(managed.contents), None)


@forever
@_VersionedDeleter
def _release_versioned(managed, pop=_exported.pop, address=ctypes.addressof):
    pop(address(managed.contents), None)


# A capsule that was never consumed must free its tensor when it is destroyed. Its destructor gets an object that is
# already being freed, so it may only use the raw address.
_CapsuleDestructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_raw_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _py))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _py))


@forever
@_CapsuleDestructor
def _capsule_gone(capsule, names=tuple(n for n, _ in _NAMES.values()), is_valid=_raw_is_valid, pointer=_raw_pointer,
                  pop=_exported.pop):
    for name in names:
        if is_valid(capsule, name):
            pop(pointer(capsule, name), None)


def dlpack_device(x):
    device = x.device
    if device.type == "meta":
        raise BufferError("a tensor on meta has no data to share")
    return (_CUDA, device.index or 0) if device.type == "cuda" else (_CPU, 0)


def to_dlpack(x, versioned=False, is_copy=False):
    if lib.tl_needs_grad(x):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if x.dtype.name not in _CODES:
        raise BufferError(f"{x.dtype} has no DLPack type")
    kind, index = dlpack_device(x)
    if kind == _CUDA:
        c.tl_device_sync(x.device.address)
    rank = len(lib.shape_of(x))
    shape, stride = (ctypes.c_int64 * rank)(*lib.shape_of(x)), (ctypes.c_int64 * rank)(*lib.stride_of(x))
    code, bits = _CODES[x.dtype.name]
    inner = _DLTensor(lib.tl_data(x), _DLDevice(kind, index), rank, _DLDataType(code, bits, 1),
                      ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
                      ctypes.cast(stride, ctypes.POINTER(ctypes.c_int64)), 0)
    if versioned:
        managed = _DLManagedTensorVersioned(1, 0, None, _release_versioned, _COPIED if is_copy else 0, inner)
    else:
        managed = _DLManagedTensor(inner, None, _release)
    _exported[ctypes.addressof(managed)] = (managed, x, shape, stride)
    return _py.PyCapsule_New(ctypes.addressof(managed), _NAMES[versioned][0],
                             ctypes.cast(_capsule_gone, ctypes.c_void_p))


class _Imported:
    """Somebody's managed tensor, released when the last view of it goes."""

    def __init__(self, managed):
        self.managed = managed

    def __del__(self):
        if self.managed.deleter:
            self.managed.deleter(ctypes.pointer(self.managed))


def from_dlpack(source):
    """A tensor that shares memory with anything that has __dlpack__ (torch, NumPy, JAX), or with a capsule."""
    capsule = _capsule_of(source) if hasattr(source, "__dlpack__") else source
    for versioned, (name, used) in _NAMES.items():
        if _py.PyCapsule_IsValid(capsule, name):
            break
    else:
        raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only "
                           "once, so you might have already constructed a tensor from it once.")
    kind = _DLManagedTensorVersioned if versioned else _DLManagedTensor
    managed = kind.from_address(_py.PyCapsule_GetPointer(capsule, name))
    if versioned and managed.major != 1:
        raise BufferError(f"DLPack version {managed.major}.{managed.minor} is not known here (1.x is)")
    inner = managed.dl_tensor
    d, device = _dlpack_dtype(inner.dtype), _dlpack_home(inner.device)
    if versioned and managed.flags & _READ_ONLY:
        warnings.warn("The given memory is read-only, and tensors cannot be protected from writing.", UserWarning, 2)
    shape = [inner.shape[i] for i in range(inner.ndim)]
    stride = [inner.strides[i] for i in range(inner.ndim)] if inner.strides else _dense_strides(shape)
    _py.PyCapsule_SetName(capsule, used)  # ours from here on
    return share(_Imported(managed), (inner.data or 0) + inner.byte_offset, shape, stride, d, device)


def _capsule_of(source):
    """The producer's capsule. One on a GPU is told our stream, which it lets wait for its own work."""
    kind, index = source.__dlpack_device__() if hasattr(source, "__dlpack_device__") else (_CPU, 0)
    stream = {"stream": lib.tl_device_stream(as_device(f"cuda:{index}").address)} if kind == _CUDA else {}
    try:
        return source.__dlpack__(max_version=(1, 0), **stream)
    except TypeError:  # made before versions
        return source.__dlpack__(**stream)


def _dlpack_home(device):
    if device.type in (_CPU, _CUDA_HOST):
        return as_device("cpu").address
    if device.type != _CUDA:
        raise BufferError(f"DLPack device type {device.type} cannot be shared with Tally: copy it to the cpu first")
    return as_device(f"cuda:{device.id}").address


def _dlpack_dtype(t):
    for name, code in _CODES.items():
        if code == (t.code, t.bits) and t.lanes == 1:
            return BY_NAME[name]
    raise BufferError(f"DLPack type with code {t.code}, {t.bits} bits and {t.lanes} lanes is not known here")


def _dense_strides(shape):
    strides, n = [], 1
    for size in reversed(shape):
        strides.insert(0, n)
        n *= size
    return strides
