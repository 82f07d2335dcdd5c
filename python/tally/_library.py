"""Opens the library. `lib` has the functions of tally.h that take and return tensors and numbers (see _header.py): from
the compiled extension if there is one, otherwise through ctypes. `c` is the ctypes library for all other functions;
`constants` and `structs` are those of the header.

The library is searched for in this order: $TALLY_LIB, the package's own folder (a wheel contains it), the build folder
of a source tree, the system's folders. The compiled binding is searched for in the same places. TALLY_BINDING=ctypes
disables it.
"""
import ctypes
import importlib.machinery
import importlib.util
import os
from pathlib import Path

from ._header import Header

_PACKAGE = Path(__file__).resolve().parent
_TREE = _PACKAGE.parents[1]


def _first(paths):
    return next((p for p in paths if p.exists()), None)


def forever(callback):
    """Keeps callbacks of the library alive until the process ends: at exit, Python frees modules before the last
    tensors."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callback))
    return callback


def _find_library():
    named = os.environ.get("TALLY_LIB")
    if named:
        return named
    found = _first([_PACKAGE / "lib" / "libtally.so", _TREE / "build" / "libtally.so"])
    return str(found) if found else "libtally.so.0"


def _find_native():
    if os.environ.get("TALLY_BINDING") == "ctypes":
        return None
    beside = Path(os.environ.get("TALLY_LIB") or "nowhere").parent / "python" / "_native.abi3.so"
    path = _first([beside, _PACKAGE / "_native.abi3.so", _TREE / "build" / "python" / "_native.abi3.so"])
    if path is None:
        return None
    loader = importlib.machinery.ExtensionFileLoader("tally._native", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tally._native", loader))
    loader.exec_module(module)
    return module


_header_path = _first([_PACKAGE / "tally.h", _TREE / "include" / "tally.h"])
if _header_path is None:
    raise ImportError(f"tally.h is missing beside {_PACKAGE}: this is no whole installation")
header = Header(_header_path)
constants, structs = header.constants, header.structs
path = _find_library()
try:
    c = ctypes.CDLL(path)
except OSError as error:
    raise ImportError(f"cannot open libtally.so: {error}. In a source tree, run `make`; or set TALLY_LIB to its "
                      "path.") from None
header.declare(c)

lib = _find_native()
is_compiled = lib is not None
if is_compiled:
    lib.load(path)
else:
    from . import _fallback as lib
    lib.load(path, header)
if lib.tl_version() != header.version:
    raise ImportError(f"{path} is version {lib.tl_version()}, this package is of {header.version}")
c.tl_set_error_policy(constants["TL_RETURN"])
