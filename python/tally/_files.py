"""save and load: tensors as safetensors, and the rest of the object as a JSON text in the file's metadata.

A file never runs code: pickle is not read, but for PyTorch's archives, by a machine that makes tensors alone
(_archive.py). JSON values can be saved, and tensors, dtypes and devices
inside them. A dict of tensors, as state_dict gives it, becomes a plain safetensors file with the dict's keys as names.

    a value         its JSON
    None, bool, int, float, str   itself
    list            [values]
    dict            {"dict": [[key, value], ...]}       keys: str, int, float, bool, None
    tuple           {"tuple": [values]}
    tensor          {"tensor": its name in the file}    "device" if it was not on the CPU; "parameter": requires_grad
    dtype, device   {"dtype": "float32"}, {"device": "cuda:0"}
"""
import collections
import ctypes
import json
import os
import tempfile

from . import _errors
from ._library import c, lib
from ._numpy import known
from ._tensor import Tensor
from ._types import BY_NAME, Size, as_device, device as device_type, dtype as dtype_type

_KEY = "tally.tree"


class _Writer:
    """Takes an object apart."""

    def __init__(self):
        self.tensors, self._names = {}, {}

    def name(self, x, path):
        """One name per tensor. A tensor with the elements of one that is already stored, such as a tied weight, gets
        that one's name."""
        identity = (x.data_ptr(), tuple(x.shape), x.stride(), x.dtype.name, str(x.device)) if x.numel() else id(x)
        if identity not in self._names:
            name = unused = "/".join(path) or "tensor"
            n = 1
            while unused in self.tensors:
                n += 1
                unused = f"{name}#{n}"
            self._names[identity] = unused
            self.tensors[unused] = x
        return self._names[identity]

    def tensor(self, x, path):
        from .nn.parameter import Parameter
        entry = {"tensor": self.name(x.detach(), path)}
        if x.device.type != "cpu":
            entry["device"] = str(x.device)
        if isinstance(x, Parameter):
            entry["parameter"] = x.requires_grad
        return entry

    def value(self, x, path):
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        if isinstance(x, Tensor):
            return self.tensor(x, path)
        if isinstance(x, known.generic):
            return self.value(x.item(), path)
        if isinstance(x, collections.abc.Mapping):
            for key in x:
                if not (key is None or isinstance(key, (bool, int, float, str))):
                    raise TypeError(f"save: {_at(path)}: a key is a {type(key).__name__}, and keys are texts or "
                                    "numbers")
            return {"dict": [[k, self.value(v, path + [str(k)])] for k, v in x.items()]}
        if isinstance(x, list):
            return [self.value(v, path + [str(i)]) for i, v in enumerate(x)]
        if isinstance(x, (tuple, Size)):
            return {"tuple": [self.value(v, path + [str(i)]) for i, v in enumerate(x)]}
        if isinstance(x, dtype_type):
            return {"dtype": x.name}
        if isinstance(x, device_type):
            return {"device": str(x)}
        raise TypeError(f"save: {_at(path)} is a {type(x).__name__}; a file holds tensors, numbers, texts, None, and "
                        "dicts and lists of these. Save a module by its state_dict().")


def _at(path):
    return "[" + "][".join(map(repr, path)) + "]" if path else "the object"


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True):
    """Writes an object made of tensors, numbers, strings, dicts and lists: a path that ends in .pt or .pth as PyTorch's
    archive, any other, and a binary file open for writing, as safetensors."""
    if hasattr(f, "write"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "object")
            save(obj, path)
            with open(path, "rb") as file:
                f.write(file.read())
        return
    if os.fsdecode(f).endswith(_ARCHIVES):
        from . import _archive
        return _archive.save(obj, f)
    writer = _Writer()
    tree = json.dumps(writer.value(obj, []), ensure_ascii=False, separators=(",", ":"))
    names, tensors = list(writer.tensors), list(writer.tensors.values())
    ok = c.tl_safetensors_save(os.fsencode(f), (ctypes.c_char_p * len(names))(*[n.encode() for n in names]),
                               (ctypes.c_void_p * len(names))(*[lib.address_of(x) for x in tensors]), len(names),
                               (ctypes.c_char_p * 1)(_KEY.encode()), (ctypes.c_char_p * 1)(tree.encode()), 1)
    if not ok:
        _raise()


def _raise():
    status, message = c.tl_error(), c.tl_error_message().decode()
    c.tl_error_clear()
    raise _errors.from_status(status, message)


class _Reader:
    """Puts an object together."""

    def __init__(self, file, device):
        self.file, self.device, self._made = file, device, {}

    def tensor(self, name, device):
        """A copy, so that nothing depends on the file; the same object for the same name."""
        device = self.device if self.device is not None else as_device(device)
        key = (name, str(device))
        if key not in self._made:
            x = lib.tl_safetensors_get(self.file, name)
            self._made[key] = lib.tl_clone(x) if device.type == "cpu" else lib.tl_to(x, device.address)
        return self._made[key]

    def value(self, x):
        if isinstance(x, list):
            return [self.value(v) for v in x]
        if not isinstance(x, dict):
            return x
        if "tensor" in x:
            found = self.tensor(x["tensor"], x.get("device", "cpu"))
            if "parameter" not in x:
                return found
            from .nn.parameter import Parameter
            return Parameter(found, requires_grad=x["parameter"])
        if "dict" in x:
            return {k: self.value(v) for k, v in x["dict"]}
        if "tuple" in x:
            return tuple(self.value(v) for v in x["tuple"])
        return BY_NAME[x["dtype"]] if "dtype" in x else as_device(x["device"])


_ARCHIVES = (".pt", ".pth")  # PyTorch's endings


def _is_archive(f):
    """Whether it is a file of torch.save; a bare pickle is refused."""
    with open(f, "rb") as file:
        start = file.read(9)
    # A safetensors file begins with a length of 8 bytes, any of which may look like something else, and a brace.
    if start[8:] == b"{":
        return False
    if start[:1] == b"\x80":
        raise RuntimeError(f"{os.fspath(f)} is a pickle, which can run code when it is read, so it is not read here; "
                           "files of torch.save from PyTorch 1.6 on are archives, which are read. Load it with torch, "
                           "and save it again.")
    return start[:4] == b"PK\x03\x04"


def _map_location(device):
    if device is None or isinstance(device, (str, device_type)):
        return None if device is None else as_device(device)
    if callable(device):  # lambda storage, location: storage
        return as_device("cpu")
    if isinstance(device, dict) and len(set(map(str, device.values()))) == 1:
        return as_device(next(iter(device.values())))
    raise NotImplementedError("map_location is a device here, for all tensors alike")


def load(f, map_location=None, weights_only=True, **_):
    """Reads a file written by save, any safetensors file, which gives a dict of tensors, or a file of torch.save, of
    which tensors and plain containers are read and all else is refused (_archive.py). f: a path, or a binary file open
    for reading."""
    if hasattr(f, "read"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "object")
            with open(path, "wb") as file:
                file.write(f.read())
            return load(path, map_location)
    device = _map_location(map_location)
    if _is_archive(f):
        from . import _archive
        return _archive.load(f, device)
    file = lib.tl_safetensors_open(os.fsdecode(f))
    try:
        reader = _Reader(file, device)
        tree = c.tl_safetensors_metadata(file, _KEY.encode())
        if tree is None:
            names = [lib.tl_safetensors_name(file, i) for i in range(lib.tl_safetensors_count(file))]
            return {name: reader.tensor(name, "cpu") for name in names}
        return _read_tree(reader, tree.decode())
    finally:
        c.tl_safetensors_close(file)


def _read_tree(reader, text):
    try:
        return reader.value(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise RuntimeError(f"load: the file's {_KEY} is not one that save writes ({type(error).__name__}: "
                           f"{error})") from None
