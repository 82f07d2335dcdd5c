"""Reads and writes PyTorch's files, .pt and .pth, without running what is in them.

Such a file is a zip archive. data.pkl is a program for Python's pickle machine, which may name any function of any
module and call it; data/0, data/1, ... are the bytes of storages. The machine here knows the opcodes that put together
plain containers, and the few names below. Anything else is refused by its name, before anything is called.

    collections.OrderedDict, set                     containers
    torch._utils._rebuild_tensor_v2, _v3             a tensor: storage, offset, shape, strides
    torch._utils._rebuild_parameter                  a parameter
    torch.FloatStorage and its like, torch.Size, torch.device, torch.float32 and its like

A tensor must lie inside its storage, a storage inside the file, and the archive must not be compressed (PyTorch's are
not), so a small file cannot ask for much memory.
"""
import collections
import io
import math
import os
import pickletools
import struct
import zipfile

from ._library import lib
from ._tensor import Tensor, UntypedStorage
from ._types import BY_NAME, Size, as_device, device as device_type, dtype as dtype_type

_STORAGES = {"FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16",
             "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
             "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
             "ComplexDoubleStorage": "complex128"}
_STORAGE_OF = {kind: name for name, kind in _STORAGES.items()}
_MOST_AXES = 64


class _Name:
    """A name that the file may use, with what it makes of its arguments."""

    def __init__(self, name, make):
        self.name, self.make = name, make


class _Kind:
    """A class of storages; None: of bytes."""

    def __init__(self, dtype):
        self.dtype = dtype


class _Bytes:
    """A storage: its tensors are views of one memory."""

    def __init__(self, data, dtype, n):
        self.data, self.dtype, self.n, self.whole = data, dtype, n, {}

    def as_dtype(self, dtype):
        if dtype not in self.whole:
            n = len(self.data) // dtype.itemsize
            buffer = (lib.tl_empty((n,), dtype.code, _cpu()) if n else lib.tl_empty((0,), dtype.code, _cpu()))
            if n:
                import ctypes
                ctypes.memmove(lib.tl_data(buffer), self.data, n * dtype.itemsize)
            self.whole[dtype] = buffer
        return self.whole[dtype]


def _cpu():
    return as_device("cpu").address


def _integers(values):
    return (isinstance(values, (tuple, list)) and len(values) <= _MOST_AXES
            and all(type(v) is int and 0 <= v < 2**63 for v in values))


class Reader:
    def __init__(self, path, location):
        self.path, self.location = os.fspath(path), location

    def fail(self, what):
        raise RuntimeError(f"{self.path}: {what}")

    # ---- The archive ----

    def read(self):
        size = os.path.getsize(self.path)
        try:
            with zipfile.ZipFile(self.path) as archive:
                entries = {}
                for entry in archive.infolist():
                    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size:
                        self.fail(f"{entry.filename} is compressed, or larger than the file: PyTorch writes no such "
                                  "archive")
                    entries[entry.filename] = entry
                programs = [n for n in entries if n == "data.pkl" or n.count("/") == 1 and n.endswith("/data.pkl")]
                if len(programs) != 1:
                    self.fail("a zip archive without data.pkl: not a file of torch.save")
                self.root = programs[0][:-len("data.pkl")]
                if any(n.startswith(self.root + "code/") or n == self.root + "constants.pkl" for n in entries):
                    self.fail("a TorchScript program, which is not read: save the state_dict() instead")
                order = entries.get(self.root + "byteorder")
                if order and archive.read(order) != b"little":
                    self.fail("its numbers are big-endian, which is not read")
                self.archive, self.entries, self.storages = archive, entries, {}
                return self.run(archive.read(programs[0]))
        except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, ValueError, OverflowError) as error:
            raise RuntimeError(f"{self.path}: not a whole file of torch.save: {error}") from None

    def storage(self, identity):
        if (not isinstance(identity, tuple) or len(identity) != 5 or identity[0] != "storage"
                or not isinstance(identity[1], _Kind) or not isinstance(identity[2], str)
                or type(identity[4]) is not int or identity[4] < 0):
            self.fail(f"a storage is described as {str(identity)[:100]}")
        _, kind, key, _, n = identity
        if key not in self.storages:
            entry = self.entries.get(f"{self.root}data/{key}")
            if entry is None:
                self.fail(f"storage {key} is not in the archive")
            n_bytes = n * (kind.dtype.itemsize if kind.dtype else 1)
            if n_bytes > entry.file_size:
                self.fail(f"storage {key} has {entry.file_size} bytes, and is said to have {n_bytes}")
            self.storages[key] = _Bytes(self.archive.read(entry)[:n_bytes], kind.dtype, n)
        found = self.storages[key]
        if found.dtype is not kind.dtype:
            self.fail(f"storage {key} is said to have two dtypes")
        return found

    # ---- What the names make ----

    def tensor(self, storage, offset, shape, stride, requires_grad=False, hooks=None, dtype=None, *_):
        if not isinstance(dtype, dtype_type):
            dtype = None  # the seventh argument of the second form is metadata
        if not isinstance(storage, _Bytes) or type(offset) is not int or not _integers(shape) or not _integers(stride):
            self.fail("a tensor with an offset, shape or strides that are no numbers, or negative")
        dtype = dtype or storage.dtype
        if dtype is None or len(shape) != len(stride):
            self.fail(f"a tensor of shape {tuple(shape)} with strides {tuple(stride)}, or without a dtype")
        whole = storage.as_dtype(dtype)
        n, last = whole.numel(), offset + sum((size - 1) * step for size, step in zip(shape, stride))
        numel = math.prod(shape)
        if not 0 <= offset <= n or numel and not last < n or numel >= 2**62:
            self.fail(f"a tensor of shape {tuple(shape)}, strides {tuple(stride)} and offset {offset} does not lie in "
                      f"its storage of {n} elements")
        x = (lib.tl_as_strided(whole, tuple(shape), tuple(stride), offset) if numel
             else lib.tl_empty(tuple(shape), dtype.code, _cpu()))
        if self.location is not None and self.location.type != "cpu":
            x = lib.tl_to(x, self.location.address)
        return x.requires_grad_() if requires_grad is True and dtype.is_inexact else x

    def parameter(self, data, requires_grad=True, *_):
        from .nn.parameter import Parameter
        if not isinstance(data, Tensor):
            self.fail("a parameter that is no tensor")
        return Parameter(data.detach(), requires_grad=bool(requires_grad))

    def name(self, module, name):
        """What a name of the file stands for; an error if it is none of ours."""
        whole = f"{module}.{name}"
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _Kind(BY_NAME[_STORAGES[name]])
        if whole in ("torch.storage.UntypedStorage", "torch.UntypedStorage"):
            return _Kind(None)
        if module == "torch" and name in BY_NAME:
            return BY_NAME[name]
        make = {"torch._utils._rebuild_tensor_v2": self.tensor, "torch._utils._rebuild_tensor": self.tensor,
                "torch._utils._rebuild_tensor_v3": self.tensor, "torch._utils._rebuild_parameter": self.parameter,
                "collections.OrderedDict": lambda pairs=(): collections.OrderedDict(self.pairs(pairs)),
                "builtins.set": lambda items=(): set(self.items(items)),
                "__builtin__.set": lambda items=(): set(self.items(items)),
                "torch.Size": lambda sizes=(): Size(self.sizes(sizes)), "torch.device": self.device}.get(whole)
        if make is None:
            raise RuntimeError(f"{self.path}: it names {whole}, which reading it would call; only tensors and plain "
                               "containers are read. Load it with torch where you trust it, and save its state_dict()")
        return _Name(whole, make)

    def pairs(self, pairs):
        if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
            self.fail("an OrderedDict of what are no pairs")
        return pairs

    def items(self, items):
        if not isinstance(items, (list, tuple)):
            self.fail("a set of what is no list")
        return items

    def sizes(self, sizes):
        if not _integers(sizes):
            self.fail("a torch.Size of what are no sizes")
        return sizes

    def device(self, *words):
        if not words or not isinstance(words[0], str) or any(type(w) not in (str, int) for w in words):
            self.fail(f"a device that is described as {str(words)[:100]}")
        return as_device(":".join(map(str, words)))

    # ---- The pickle machine ----

    def run(self, program):
        self.stack, self.marks, self.memo, self.texts = [], [], {}, []
        try:
            for code, argument, _ in pickletools.genops(io.BytesIO(program)):
                if code.name == "STOP":
                    return self.stack.pop()
                self.step(code.name, argument)
        except (IndexError, KeyError, TypeError, UnicodeDecodeError, AttributeError) as error:
            raise RuntimeError(f"{self.path}: data.pkl is damaged: {type(error).__name__}: {error}") from None
        self.fail("data.pkl has no end")

    def since_mark(self):
        at = self.marks.pop()
        items = self.stack[at:]
        del self.stack[at:]
        return items

    def step(self, code, argument):
        stack = self.stack
        if code in _CONSTANTS:
            stack.append(_CONSTANTS[code]())
        elif code in _LITERALS:
            stack.append(argument)
        elif code == "MARK":
            self.marks.append(len(stack))
        elif code in ("PROTO", "FRAME"):
            pass
        elif code in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = stack[-1]
        elif code == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif code in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self.memo[int(argument)])
        elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(code[-1])
            items = tuple(stack[-n:])
            del stack[-n:]
            stack.append(items)
        elif code in ("TUPLE", "LIST", "DICT"):
            items = self.since_mark()
            stack.append(tuple(items) if code == "TUPLE" else items if code == "LIST"
                         else dict(zip(items[::2], items[1::2])))
        elif code in ("APPEND", "APPENDS"):
            items = self.since_mark() if code == "APPENDS" else [stack.pop()]
            self.target(list).extend(items)
        elif code in ("SETITEM", "SETITEMS"):
            items = self.since_mark() if code == "SETITEMS" else [stack.pop(-2), stack.pop()]
            self.target(dict).update(zip(items[::2], items[1::2]))
        elif code == "ADDITEMS":
            items = self.since_mark()
            self.target(set).update(items)
        elif code == "POP":
            stack.pop()
        elif code == "DUP":
            stack.append(stack[-1])
        elif code == "GLOBAL":
            stack.append(self.name(*argument.split(" ", 1)))
        elif code == "STACK_GLOBAL":
            name, module = stack.pop(), stack.pop()
            stack.append(self.name(str(module), str(name)))
        elif code == "BINPERSID":
            stack.append(self.storage(stack.pop()))
        elif code == "REDUCE":
            arguments, function = stack.pop(), stack.pop()
            if not isinstance(function, _Name) or not isinstance(arguments, tuple):
                self.fail(f"it calls {type(function).__name__}, which is no name that may be called")
            stack.append(function.make(*arguments))
        elif code == "BUILD":
            self.build(stack.pop())
        else:
            self.fail(f"data.pkl has the opcode {code}, which makes other objects than tensors and plain containers")

    def target(self, kind):
        if not isinstance(self.stack[-1], kind):
            self.fail(f"data.pkl adds to a {type(self.stack[-1]).__name__} as to a {kind.__name__}")
        return self.stack[-1]

    def build(self, state):
        """The attribute _metadata of a state_dict; nothing else has attributes."""
        target = self.target(collections.OrderedDict)
        if not isinstance(state, dict) or set(state) - {"_metadata"}:
            self.fail("data.pkl gives an OrderedDict attributes that torch.save does not")
        target.__dict__.update(state)


_CONSTANTS = {"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False, "EMPTY_TUPLE": tuple,
              "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
_LITERALS = """BININT BININT1 BININT2 LONG1 LONG4 INT LONG FLOAT BINFLOAT BINUNICODE SHORT_BINUNICODE BINUNICODE8
UNICODE
BINBYTES SHORT_BINBYTES BINBYTES8 BINSTRING SHORT_BINSTRING STRING""".split()


def load(path, location):
    """The object in a file of torch.save."""
    return Reader(path, location).read()


# ---- Writing ----

class Writer:
    """A pickle of protocol 2, as torch.load reads it, also with weights_only=True."""

    def __init__(self):
        self.out, self.storages, self.keep = bytearray(b"\x80\x02"), [], []
        self.keys = {}

    def put(self, *parts):
        for p in parts:
            self.out += p

    def text(self, s):
        data = s.encode("utf-8", "surrogatepass")
        self.put(b"X", struct.pack("<I", len(data)), data)

    def integer(self, n):
        if -2**31 <= n < 2**31:
            self.put(b"J", struct.pack("<i", n))
        else:
            data = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
            if len(data) > 255:
                raise OverflowError(f"save: an integer of {len(data)} bytes")
            self.put(b"\x8a", bytes([len(data)]), data)

    def named(self, module, name):
        self.put(b"c", f"{module}\n{name}\n".encode())

    def value(self, x, path):
        if x is None or isinstance(x, bool):
            self.put({None: b"N", True: b"\x88", False: b"\x89"}[x])
        elif isinstance(x, int):
            self.integer(int(x))
        elif isinstance(x, float):
            self.put(b"G", struct.pack(">d", x))
        elif isinstance(x, str):
            self.text(x)
        elif isinstance(x, Tensor):
            self.tensor(x)
        elif isinstance(x, Size):
            self.named("torch", "Size")
            self.call([tuple(x)], path)
        elif isinstance(x, collections.abc.Mapping):
            self.mapping(x, path)
        elif isinstance(x, list):
            self.put(b"](")
            for i, v in enumerate(x):
                self.value(v, path + [i])
            self.put(b"e")
        elif isinstance(x, tuple):
            self.put(b"(")
            for i, v in enumerate(x):
                self.value(v, path + [i])
            self.put(b"t")
        elif isinstance(x, (set, frozenset)):
            self.named("__builtin__", "set")
            self.call([list(x)], path)
        elif isinstance(x, dtype_type):
            self.named("torch", x.name)
        elif isinstance(x, device_type):
            self.named("torch", "device")
            self.call([x.type] + ([x.index] if x.type == "cuda" and x.index is not None else []), path)
        elif hasattr(x, "item") and getattr(x, "ndim", None) == 0:
            self.value(x.item(), path)
        else:
            where = "".join(f"[{p!r}]" for p in path) or "the object"
            raise TypeError(f"save: {where} is a {type(x).__name__}; a file holds tensors, numbers, texts, None, and "
                            "dicts and lists of these. Save a module by its state_dict().")

    def call(self, arguments, path):
        self.value(tuple(arguments), path)
        self.put(b"R")

    def mapping(self, x, path):
        if isinstance(x, collections.OrderedDict):
            self.named("collections", "OrderedDict")
            self.put(b")R")
        else:
            self.put(b"}")
        self.put(b"(")
        for k, v in x.items():
            self.value(k, path + [k])
            self.value(v, path + [k])
        self.put(b"u")

    def tensor(self, x):
        from .nn.parameter import Parameter
        is_parameter = isinstance(x, Parameter)
        requires_grad, x = x.requires_grad, x.detach()
        if is_parameter:
            self.named("torch._utils", "_rebuild_parameter")
            self.put(b"(")
        if x.dtype.name not in _STORAGE_OF:
            raise TypeError(
                f"save: a .pt file of {x.dtype} tensors is not written: use another ending, for safetensors")
        x = x.cpu() if x.device.type != "cpu" else x
        if any(s < 0 for s in x.stride()):
            x = x.clone()
        self.keep.append(x)  # as long as its memory's address is its name
        self.named("torch._utils", "_rebuild_tensor_v2")
        self.put(b"((")
        self.text("storage")
        self.named("torch", _STORAGE_OF[x.dtype.name])
        self.text(str(self.key(x)))
        self.text("cpu")
        self.integer(UntypedStorage(x).nbytes() // x.dtype.itemsize if x.numel() else 0)
        self.put(b"tQ")
        self.integer(x.storage_offset() if x.numel() else 0)
        self.value(tuple(x.shape), [])
        self.value(tuple(x.stride()), [])
        self.put(b"\x89" if is_parameter or not requires_grad else b"\x88")
        self.named("collections", "OrderedDict")
        self.put(b")RtR")
        if is_parameter:
            self.put(b"\x88" if requires_grad else b"\x89")
            self.named("collections", "OrderedDict")
            self.put(b")RtR")

    def key(self, x):
        """The number of a tensor's storage: tensors of one memory have one."""
        name = (UntypedStorage(x).data_ptr(), x.dtype.name) if x.numel() else id(x)
        if name not in self.keys:
            self.keys[name] = len(self.storages)
            self.storages.append(x)
        return self.keys[name]


def _memory(x):
    import ctypes
    if not x.numel():
        return b""
    storage = UntypedStorage(x)
    n = storage.nbytes() // x.dtype.itemsize * x.dtype.itemsize
    return ctypes.string_at(storage.data_ptr(), n)


def save(obj, path):
    """Writes a file that torch.load reads."""
    writer = Writer()
    writer.value(obj, [])
    writer.put(b".")
    root = os.path.splitext(os.path.basename(os.fspath(path)))[0] or "archive"
    partial = f"{os.fspath(path)}.partial"
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            archive.writestr(f"{root}/data.pkl", bytes(writer.out))
            archive.writestr(f"{root}/byteorder", "little")
            for i, x in enumerate(writer.storages):
                archive.writestr(f"{root}/data/{i}", _memory(x))
            archive.writestr(f"{root}/version", "3\n")
        os.replace(partial, path)
    finally:
        if os.path.exists(partial):
            os.remove(partial)
