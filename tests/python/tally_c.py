"""libtally.so from Python, for tests: the functions of include/tally.h and nothing else.

Prototypes, enums, structs and callback types are read from the header, so a signature exists once. `tl.add(a, b)` calls
tl_add: the call runs in a scope of its own, and its result is kept by a `Tensor` until Python lets go of it. An
error becomes a TallyError. Lists become arrays, NumPy dtypes become tl_dtype.
"""
import contextlib
import ctypes
import importlib.util
import os
from pathlib import Path

import ml_dtypes
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "tally.h"
LIBRARY = os.environ.get("TALLY_LIB", str(ROOT / "build" / "libtally.so"))

# The reader alone: the package would open a library of its own.
_spec = importlib.util.spec_from_file_location("tally_header", ROOT / "python" / "tally" / "_header.py")
_header = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_header)

# In the order of enum tl_dtype.
NUMPY_DTYPES = [np.dtype(t) for t in (
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn, np.int64, np.int32, np.int16, np.uint16, np.int8, np.uint8,
    np.bool_, np.complex64, np.complex128)]


class TallyError(RuntimeError):
    """What tl_error_message() said."""


# ---- The header ----

class Header(_header.Header):
    """The package's reader of tally.h, with pointers that ctypes fills from lists: .types has structs, enums and
    callbacks by name."""

    def __init__(self, path):
        super().__init__(path)
        self.types = {**{name: ctypes.c_int for name in self.enums}, **self.structs, **self.callbacks}

    def _type(self, type):
        bare = type.replace("const ", "")
        if bare in self.callbacks:
            return self.callbacks[bare]
        if bare in ("int *", "int64_t *"):
            return ctypes.POINTER(super()._type(bare[:-2]))
        if bare == "tl_tensor **":
            return ctypes.POINTER(ctypes.c_void_p)
        if bare.endswith(" *") and bare[:-2] in self.structs:
            return ctypes.POINTER(self.structs[bare[:-2]])
        return super()._type(type)


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
        self.header.declare(self.library)
        self.library.tl_set_error_policy(self.header.constants["TL_RETURN"])

    def __getattr__(self, name):
        """tl.add is tl_add, tl.F32 is TL_F32, tl.adam_options is the struct."""
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
        function = getattr(self.library, name)
        types, gives_tensor = function.argtypes, self.header.functions[name].result == "tensor"

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
        before = self.library.tl_set_grad_mode(False)
        try:
            yield
        finally:
            self.library.tl_set_grad_mode(before)

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
            ok = self.library.tl_checkpoint(callback, None, 0, getattr(self, keep), convert(inputs, None), len(inputs),
                                            outputs, n_outputs)
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
            self.library.tl_gradients(convert(output, None), convert(seed, None), convert(inputs, None), len(inputs),
                                      flags, grads)
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
        return (kind._type_ * len(value))(*value) if hasattr(kind, "contents") or value else None
    if isinstance(value, ctypes.Structure) and kind is not type(value):
        return ctypes.byref(value)
    return value


tl = Tally()
