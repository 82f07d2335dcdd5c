"""Reads tally.h, the only place where a signature is written down.

`Header(path)` gives `.constants` (enums and numbers), `.structs` (ctypes structures) and `.functions`: name ->
Function, whose `result` and `parameters` say how a call looks from Python. A parameter is one Python argument; it may
stand for several C arguments: an array and its length are one list. Both bindings, the compiled one (_generate.py
writes it) and the ctypes one (_fallback.py), are made from this, so they accept the same calls.

    kind of parameter   C                                   Python
    tensor              tl_tensor *x                        a Tensor, or None for NULL
    tensors             tl_tensor **x, int n                a list of tensors
    out                 tl_tensor **x                       nothing: it joins the result, which becomes a tuple
    ints, longs         const int *x, const int64_t *x      a list of integers, or None. Its length is passed if C takes
                                                            one; otherwise the list must have one entry per axis of the
                                                            first tensor (is_per_axis)
    scalar              tl_scalar, const tl_scalar *        a number (a pointer: or None)
    double              double                              a float
    integer             int, int64_t, bool, an enum ...     an int
    text                const char *                        a str, or None
    pointer             any other pointer                   an address, or None

If a function has a parameter or result of another kind (a struct by value, a character buffer), its `is_plain` is
False, and it is called only through ctypes.
"""
import ctypes
import re

_C = {"int": ctypes.c_int, "unsigned": ctypes.c_uint, "bool": ctypes.c_bool, "double": ctypes.c_double,
      "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "uint32_t": ctypes.c_uint32,
      "uint16_t": ctypes.c_uint16, "uint8_t": ctypes.c_uint8, "char": ctypes.c_char}
_ARRAYS = {"const int *": "ints", "const int64_t *": "longs", "tl_tensor **": "tensors"}
# Their tl_tensor ** at the end receives an array whose length another argument tells.
_FILL_ARRAYS = {"tl_gradients", "tl_split", "tl_chunk", "tl_meshgrid", "tl_op_call"}


class Argument:
    """One argument as C sees it."""

    def __init__(self, type, name):
        self.type, self.name = type, name


class Parameter:
    """One argument as Python sees it. Of kind "count": none, it tells C the length of the lists in `counts`."""

    def __init__(self, kind, argument):
        self.kind, self.type, self.name = kind, argument.type, argument.name


class Function:
    def __init__(self, name, result, arguments, enums, structs):
        self.name, self.result_type, self.arguments = name, result, arguments
        self.result = _result_kind(result, enums)
        self.parameters = _parameters(arguments, enums)
        self.may_be_none = name == "tl_grad_of"  # a NULL that is an answer, not an error
        self.is_plain = (name not in _FILL_ARRAYS and self.result != "other"
                         and all(p.kind != "other" for p in self.parameters))


def _result_kind(type, enums):
    if type == "tl_tensor *":
        return "tensor"
    if type in ("const char *", "void", "bool", "double"):
        return {"const char *": "text"}.get(type, type)
    if type in _C or type in enums:
        return "integer"
    return "pointer" if type.endswith("*") else "other"


def _kind(type, enums):
    if type in ("tl_tensor *", "const tl_tensor *"):
        return "tensor"
    if type in _ARRAYS:
        return _ARRAYS[type]
    if type in ("tl_scalar", "const tl_scalar *"):
        return "scalar"
    if type == "double":
        return type
    if type in _C or type in enums:
        return "integer"
    if type == "const char *":
        return "text"
    if type.endswith("**") or type in ("char *", "...") or "[" in type:
        return "other"
    return "pointer" if "*" in type else "other"


def _parameters(arguments, enums):
    """One per Python argument; lengths are marked as kind "count" and name the list they count."""
    parameters = [Parameter(_kind(a.type, enums), a) for a in arguments]
    is_array = [p.kind in ("ints", "longs", "tensors") for p in parameters]
    for i, p in enumerate(parameters):
        if p.kind != "integer" or p.type != "int" or not re.fullmatch(r"rank|n|n_\w+", p.name):
            continue
        before = i > 0 and is_array[i - 1]
        after = not before and i + 1 < len(parameters) and parameters[i + 1].kind in ("ints", "longs")
        if after or before:
            p.kind = "count"
            p.counts = [parameters[i + 1]] if after else [parameters[i - 1]]
            if not after and i > 1 and is_array[i - 2]:
                p.counts.insert(0, parameters[i - 2])
            if after and i + 2 < len(parameters) and is_array[i + 2]:
                p.counts.append(parameters[i + 2])
    counted = {id(c) for p in parameters if p.kind == "count" for c in p.counts}
    for p in parameters:
        if p.kind == "tensors" and id(p) not in counted:
            p.kind = "out"
        p.is_per_axis = p.kind in ("ints", "longs") and id(p) not in counted
    return parameters


class Header:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.constants = {"TL_END": 2**63 - 1, "TL_ALL": -1}
        for name, value in re.findall(r"^#define (TL_\w+) (\d+)$", text, re.M):
            self.constants[name] = int(value)
        self.version = re.search(r'^#define TL_VERSION "(.*)"', text, re.M).group(1)
        text = re.sub(r"^#ifdef __cplusplus\n.*?^#(?:else|endif)$", "", text, flags=re.S | re.M)
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//[^\n]*", " ", text)
        text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*$", "", text, flags=re.M)
        text = re.sub(r"TL_PRINTF\([^)]*\)", "", text).replace("TL_API", "")
        self.enums, self.structs, self.callbacks, self.functions = set(), {}, {}, {}
        definition = r"typedef\s+(enum|struct)\s+\w+\s*\{(.*?)\}\s*(\w+)\s*;"
        for kind, body, name in re.findall(definition, text, re.S):
            if kind == "enum":
                self.enums.add(name)
                self._read_enum(body)
        for kind, body, name in re.findall(definition, text, re.S):
            if kind == "struct":
                self._read_struct(body, name)
        text = re.sub(definition, "", text, flags=re.S)
        for result, name, arguments in re.findall(r"typedef\s+([^;{]*?)\(\*(\w+)\)\(([^;]*)\)\s*;", text, re.S):
            self.callbacks[name] = ctypes.CFUNCTYPE(self._type(_squeeze(result)),
                                                    *[self._type(a.type) for a in _arguments(arguments)])
        text = re.sub(r"typedef[^;]*;", "", text)
        for result, name, arguments in re.findall(r"([\w\s]+?[\s*]+)(tl_\w+)\(((?:[^()]|\([^()]*\))*)\)\s*;", text):
            self.functions[name] = Function(name, _squeeze(result), _arguments(arguments), self.enums, self.structs)

    def _read_enum(self, body):
        value = -1
        for item in filter(None, (x.strip() for x in body.split(","))):
            name, _, explicit = item.partition("=")
            value = int(explicit) if explicit else value + 1
            self.constants[name.strip()] = value

    def _read_struct(self, body, name):
        fields = []
        for line in filter(None, (x.strip() for x in body.split(";"))):
            if "(*" in line:
                fields.append((re.search(r"\(\*(\w+)\)", line).group(1), ctypes.c_void_p))
                continue
            kind, names = re.match(r"((?:const\s+)?\w+)\s*(.*)", line, re.S).groups()
            for item in names.split(","):
                base, size = re.match(r"([\s*\w]+?)\s*(?:\[(\w+)\])?$", item.strip()).groups()
                is_text = kind in ("char", "const char") and base.count("*") == 1
                type = ctypes.c_char_p if is_text else ctypes.c_void_p if "*" in base else self._type(_squeeze(kind))
                if size:
                    type = type * (self.constants[size] if size in self.constants else int(size))
                fields.append((re.search(r"\w+$", base).group(), type))
        self.structs[name] = _structure(name, fields)

    def _type(self, type):
        """The ctypes type of a C type."""
        if type == "void":
            return None
        bare = type.replace("const ", "")
        if bare in _C:
            return _C[bare]
        if bare in self.enums:
            return ctypes.c_int
        if bare in self.structs:
            return self.structs[bare]
        if type in ("const char *", "char *"):
            return ctypes.c_char_p
        return ctypes.c_void_p

    def declare(self, library):
        """Tells ctypes the signatures of a loaded library. A library that lacks a function is of another version and
        is refused."""
        for name, f in self.functions.items():
            function = getattr(library, name, None)
            if function is None:
                raise ImportError(f"{library._name} has no {name}: it is not the library of this package (version "
                                  f"{self.version})")
            # a text that the caller frees is an address: as c_char_p it would be a copy, and the text itself lost
            function.restype = ctypes.c_void_p if f.result_type == "char *" else self._type(f.result_type)
            function.argtypes = [self._type(a.type) for a in f.arguments if a.type != "..."]


def _structure(name, fields):
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def _squeeze(type):
    """One spelling per type: "const tl_tensor *", "tl_tensor **"."""
    type = " ".join(type.replace("*", " * ").split())
    return type.replace("* *", "**")


def _arguments(text):
    items = [x.strip() for x in re.split(r",(?![^()]*\))", text)]
    if items in (["void"], [""]):
        return []
    arguments = []
    for item in items:
        if "(*" in item:
            arguments.append(Argument("void *", re.search(r"\(\*(\w+)\)", item).group(1)))
        elif item == "...":
            arguments.append(Argument("...", ""))
        elif "[" in item:
            arguments.append(Argument(_squeeze(item[:item.index("[")].rsplit(None, 1)[0]) + " [", item))
        else:
            type, name = (re.match(r"(.*?[\s*])(\w+)$", item, re.S).groups() if re.search(r"[\s*]\w+$", item)
                          else (item, ""))
            arguments.append(Argument(_squeeze(type), name))
    return arguments
