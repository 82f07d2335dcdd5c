"""libtally.so from Python, for tests: the functions of include/tally.h and nothing else.

Prototypes, enums, structs and callback types are read from the header, so a signature exists once. `tl.add(a, b)` calls
tl_add: the call runs in a scope of its own, and its result is kept by a `Tensor` until Python lets go of it. An
error becomes a TallyError. Lists become arrays, NumPy dtypes become tl_dtype.
"""
import contextlib
import ctypes
import os
import re
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "tally.h"
LIBRARY = os.environ.get("TALLY_LIB", str(ROOT / "build" / "libtally.so"))

# In the order of enum tl_dtype.
NUMPY_DTYPES = [np.dtype(t) for t in (
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, np.int64, np.int32, np.int16, np.uint16, np.int8, np.uint8,
    np.bool_)]
SCALARS = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "bool": ctypes.c_bool, "double": ctypes.c_double,
           "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32, "uint16_t": ctypes.c_uint16, "uint8_t": ctypes.c_uint8,
           "char": ctypes.c_char}


class TallyError(RuntimeError):
    """What tl_error_message() said."""


# ---- The header ----

class Header:
    """What tally.h declares: .constants, .types (structs, enums, callbacks) and .functions, name -> (result, arguments)."""

    def __init__(self, path):
        self.text = path.read_text()
        text = re.sub(r"/\*.*?\*/", " ", self.text, flags=re.S)
        text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M | re.S)
        text = text.replace("TL_API", "").replace("extern \"C\" {", "")
        text = re.sub(r"TL_PRINTF\([^)]*\)", "", text)
        self.constants, self.types, self.functions = {}, {}, {}
        for body, name in re.findall(r"typedef\s+enum\s+\w+\s*\{(.*?)\}\s*(\w+)\s*;", text, re.S):
            self.read_enum(body)
            self.types[name] = ctypes.c_int
        for declaration in re.findall(r"typedef\s+struct\s+\w+\s*\{.*?\}\s*\w+\s*;|typedef[^;{]*\(\*\w+\)\([^;]*\)\s*;", text, re.S):
            if "{" in declaration:
                body, name = re.search(r"\{(.*)\}\s*(\w+)\s*;", declaration, re.S).groups()
                self.read_struct(body, name)
            else:
                result, name, arguments = re.search(r"typedef\s+(.*?)\(\*(\w+)\)\((.*)\)\s*;", declaration, re.S).groups()
                self.types[name] = ctypes.CFUNCTYPE(self.type_of(result.strip()), *self.argument_types(arguments))
        text = re.sub(r"typedef\s+(enum|struct)\s+\w+\s*\{.*?\}\s*\w+\s*;|typedef[^;]*;", "", text, flags=re.S)
        for result, name, arguments in re.findall(r"([\w\s]+?[\s*]+)(tl_\w+)\(((?:[^()]|\([^()]*\))*)\)\s*;", text):
            self.functions[name] = (self.type_of(result.strip()), self.argument_types(arguments), result.strip())

    def read_enum(self, body):
        value = -1
        for item in filter(None, (x.strip() for x in body.split(","))):
            name, _, explicit = item.partition("=")
            value = int(explicit) if explicit else value + 1
            self.constants[name.strip()] = value

    def read_struct(self, body, name):
        fields = []
        for line in filter(None, (x.strip() for x in body.split(";"))):
            if "(*" in line:
                fields.append((re.search(r"\(\*(\w+)\)", line).group(1), ctypes.c_void_p))
                continue
            kind, names = re.match(r"((?:const\s+)?\w+)\s*(.*)", line, re.S).groups()
            for item in names.split(","):
                pointer = "*" in item
                item, _, length = item.strip(" *]").partition("[")
                kind_of = ctypes.c_void_p if pointer else self.type_of(kind)
                fields.append((item, kind_of * self.length_of(length) if length else kind_of))
        self.types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})

    def length_of(self, text):
        return int(text) if text.isdigit() else int(re.search(rf"^#define {text} (\d+)", self.text, re.M).group(1))

    def type_of(self, text):
        text = re.sub(r"\bconst\b", "", text).strip()
        if "(*" in text:
            return ctypes.c_void_p
        if "*" in text or "[" in text:
            base = re.match(r"(\w+)", text).group(1)
            if base == "char" and text.count("*") == 1:
                return ctypes.c_char_p
            if base in ("int", "int64_t") and text.count("*") == 1:
                return ctypes.POINTER(SCALARS[base])
            if base == "tl_tensor" and text.count("*") == 2:
                return ctypes.POINTER(ctypes.c_void_p)
            return ctypes.POINTER(self.types[base]) if base in self.types else ctypes.c_void_p
        if text == "void":
            return None
        return SCALARS.get(text) or self.types[text]

    def argument_types(self, text):
        items = [x.strip() for x in re.split(r",(?![^()]*\))", text)]
        if items in (["void"], [""]):
            return []
        types = []
        for item in items:
            if item == "...":
                continue
            if "(*" not in item and "[" not in item:
                item = re.sub(r"(?<=[\s*])\w+$", "", item) if re.search(r"[\s*]\w+$", item) else item
            types.append(self.type_of(item.strip()))
        return types


# ---- Tensors ----

class Tensor:
    """A handle that Python keeps."""

    def __init__(self, pointer):
        self._as_parameter_ = pointer
        tl.library.tl_keep(pointer)

    def __del__(self):
        tl.library.tl_drop(self._as_parameter_)

    rank = property(lambda x: tl.rank(x))
    shape = property(lambda x: tuple(tl.size(x, i) for i in range(tl.rank(x))))
    stride = property(lambda x: tuple(tl.stride(x, i) for i in range(tl.rank(x))))
    dtype = property(lambda x: NUMPY_DTYPES[tl.dtype_of(x)])
    grad = property(lambda x: tl.grad_of(x))

    def numpy(self):
        out = np.empty(self.shape, self.dtype)
        tl.to_data(self, out.ctypes.data, out.nbytes)
        return out

    def __repr__(self):
        length = tl.print(self, None, 0)
        buffer = ctypes.create_string_buffer(length + 1)
        tl.print(self, buffer, length + 1)
        return buffer.value.decode()


class Tally:
    def __init__(self):
        self.header = Header(HEADER)
        self.library = ctypes.CDLL(LIBRARY)
        self.own_scopes = True
        for name, (result, arguments, _) in self.header.functions.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        self.library.tl_error_policy(self.header.constants["TL_RETURN"])

    def __getattr__(self, name):
        """tl.add is tl_add, tl.F32 is TL_F32, tl.adamw_options is the struct."""
        header = self.header
        if "TL_" + name in header.constants:
            value = header.constants["TL_" + name]
        elif "tl_" + name in header.functions:
            value = self.function("tl_" + name)
        elif "tl_" + name in header.types:
            value = header.types["tl_" + name]
        else:
            raise AttributeError(name)
        setattr(self, name, value)
        return value

    def function(self, name):
        _, types, result_text = self.header.functions[name]
        function, gives_tensor = getattr(self.library, name), result_text.replace(" ", "") == "tl_tensor*"

        def call(*arguments):
            values = [convert(a, t) for a, t in zip(arguments, types, strict=True)]
            if not gives_tensor:
                result = function(*values)
                self.check()
                return result
            with self.scope() if self.own_scopes else contextlib.nullcontext():
                pointer = function(*values)
                result = Tensor(pointer) if pointer else None
            self.check()
            return result
        call.__name__ = name
        return call

    def check(self):
        if self.library.tl_error():
            message = self.library.tl_error_message().decode()
            self.library.tl_error_clear()
            raise TallyError(message)

    @contextlib.contextmanager
    def scope(self, name=None):
        token = self.library.tl_scope_enter(name.encode()) if name else self.library.tl_scope_begin()
        try:
            yield
        finally:
            self.library.tl_scope_end(token)

    @contextlib.contextmanager
    def no_grad(self):
        before = self.library.tl_grad_mode(False)
        try:
            yield
        finally:
            self.library.tl_grad_mode(before)

    @contextlib.contextmanager
    def callback(self):
        """Inside a callback results belong to the scope of the caller, so that it finds them when Python has left."""
        before, self.own_scopes = self.own_scopes, False
        try:
            yield
        finally:
            self.own_scopes = before

    def tensor(self, values, device=None):
        """From a NumPy array."""
        values = np.asarray(values)
        data = np.ascontiguousarray(values).reshape(values.shape)
        return self.from_data(data.ctypes.data, data.ndim, list(data.shape), data.dtype, device)

    def checkpoint_of(self, fn, inputs, n_outputs=1, keep="KEEP_INPUTS"):
        """Outputs of fn(*inputs), a list, under tl_checkpoint."""
        problem = []

        def run(_, inputs_at, n_in, outputs_at, n_out):
            try:
                with self.callback():
                    outputs = fn(*[Tensor(inputs_at[i]) for i in range(n_in)])
                for j in range(n_out):
                    outputs_at[j] = outputs[j]._as_parameter_
                return True
            except TallyError as error:
                problem.append(error)
                return False
        callback = self.header.types["tl_checkpoint_fn"](run)
        callbacks.append(callback)  # backward calls it again
        outputs = (ctypes.c_void_p * n_outputs)()
        with self.scope():
            ok = self.library.tl_checkpoint(callback, None, 0, getattr(self, keep), convert(inputs, None), len(inputs), outputs, n_outputs)
            results = [Tensor(p) for p in outputs] if ok else []
        if problem:
            self.library.tl_error_clear()
            raise problem[0]
        self.check()
        return results

    def gradients_of(self, output, inputs, seed=None, flags=0):
        """A list with None where there is no path."""
        grads = (ctypes.c_void_p * len(inputs))()
        with self.scope():
            self.library.tl_gradients(convert(output, None), convert(seed, None), convert(inputs, None), len(inputs), flags, grads)
            results = [Tensor(p) if p else None for p in grads]
        self.check()
        return results


callbacks = []


def convert(value, kind):
    if isinstance(value, Tensor):
        return value._as_parameter_
    if isinstance(value, np.dtype):
        return NUMPY_DTYPES.index(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], Tensor):
            return (ctypes.c_void_p * len(value))(*[v._as_parameter_ for v in value])
        return (kind._type_ * len(value))(*value)
    if isinstance(value, ctypes.Structure) and kind is not type(value):
        return ctypes.byref(value)
    return value


tl = Tally()
