"""Writes the compiled binding: python _generate.py tally.h _native.c > _native_all.c

Writes one C function per function of tally.h. Each unpacks the Python arguments, runs the call in its own scope with
the interpreter lock released, and wraps the result. The shared code is written by hand in _native.c; this file
generates only the repetitive part. Everything uses Python's stable ABI (3.10), so one binary serves that version and
all later ones.
"""
import sys

sys.path.append(sys.path.pop(0))  # this folder behind the standard library: it has a module named types, as torch has

from _header import Header  # noqa: E402

GETTERS = {"tensor": "get_tensor", "ints": "get_ints", "longs": "get_longs", "double": "get_double", "text": "get_text",
           "pointer": "get_pointer", "tensors": "get_tensors"}
# Any other integer type is read as an int.
INTEGERS = {"bool": "get_bool", "int64_t": "get_long", "uint64_t": "get_unsigned", "size_t": "get_unsigned"}


def releases_lock(f):
    """Reading a field is quicker than letting another thread in."""
    return f.result in ("tensor", "bool") or any(p.type == "tl_tensor *" for p in f.parameters)


def declare(p, i):
    if p.kind == "tensors":
        return f"struct tensor_list a{i} = {{0}};"
    if p.kind in ("ints", "longs"):
        return f"struct {p.kind} a{i};"
    if p.kind == "scalar":
        return f"tl_scalar a{i};" + (f" bool has{i};" if "*" in p.type else "")
    if p.kind == "out":
        return f"tl_tensor *a{i} = NULL;"
    if p.kind == "integer":
        return f"{p.type if p.type in INTEGERS else 'int'} a{i};"
    return {"tensor": f"tl_tensor *a{i};", "double": f"double a{i};", "text": f"const char *a{i};",
            "pointer": f"void *a{i};", "count": ""}[p.kind]


def read(f, p, i, at):
    """The condition that holds when argument `at` has been read into a{i}."""
    if p.kind == "scalar":
        return f'get_scalar(args[{at}], &a{i}, {"&has" + str(i) if "*" in p.type else "NULL"}, &site, {at})'
    getter = INTEGERS.get(p.type, "get_int") if p.kind == "integer" else GETTERS[p.kind]
    return f"{getter}(args[{at}], &a{i}, &site, {at})"


def lengths(f, given):
    """The conditions that hold when lists that C takes for equally long are so."""
    position = {id(p): (at, i) for at, (i, p) in enumerate(given)}
    for p in f.parameters:
        if p.kind == "count" and len(p.counts) == 2:
            (at, i), (other_at, k) = position[id(p.counts[0])], position[id(p.counts[1])]
            yield f"same_length(a{i}.at ? a{i}.n : -1, a{k}.at ? a{k}.n : -1, &site, {at}, {other_at})"
        elif p.is_per_axis:
            at, i = position[id(p)]
            yield f"one_per_axis(a0, a{i}.at ? a{i}.n : -1, &site, {at})"


def pass_on(f, p, i):
    if p.kind == "count":
        lists = [f.parameters.index(c) for c in p.counts]
        return f"a{lists[0]}.n"  # of two, the second is as long: see lengths
    if p.kind == "scalar" and "*" in p.type:
        return f"has{i} ? &a{i} : NULL"
    if p.kind in ("ints", "longs", "tensors"):
        return f"a{i}.at"
    return f"&a{i}" if p.kind == "out" else f"a{i}"


def write_function(f, out):
    given = [(i, p) for i, p in enumerate(f.parameters) if p.kind not in ("count", "out")]
    lists = [i for i, p in enumerate(f.parameters) if p.kind == "tensors"]
    outs = [i for i, p in enumerate(f.parameters) if p.kind == "out"]
    names = "".join(f'"{p.name}", ' for _, p in given)
    out(f"static PyObject *call_{f.name}(PyObject *module, PyObject *const *args, Py_ssize_t n) {{")
    out(f'    static const struct site site = {{"{f.name[3:]}", {len(given)}, {{{names}}}}};')
    out("    (void)module, (void)args;")
    for i, p in enumerate(f.parameters):
        if declare(p, i):
            out("    " + declare(p, i))
    clean = "".join(f" list_free(&a{i});" for i in lists)
    reads = [read(f, p, i, at) for at, (i, p) in enumerate(given)]
    for condition in ["has_count(n, &site)"] + reads + list(lengths(f, given)):
        out(f"    if (!{condition}) {{{clean} return NULL; }}")
    arguments = ", ".join(pass_on(f, p, i) for i, p in enumerate(f.parameters))
    lock = releases_lock(f)
    scope = f.result == "tensor" or bool(outs)
    kept = "".join(f" keep(a{i});" for i in outs)
    result = {"tensor": "tl_tensor *r = ", "void": ""}.get(f.result, f"{f.result_type} r = ")
    if lock:
        out("    PyThreadState *thread = PyEval_SaveThread();")
    if scope:
        out("    tl_scope scope = p_tl_scope_begin();")
    out(f"    {result}p_{f.name}({arguments});")
    if scope:
        out(f"   {' keep(r);' if f.result == 'tensor' else ''}{kept} p_tl_scope_end(scope);")
    if lock:
        out("    PyEval_RestoreThread(thread);")
    if clean:
        out("   " + clean)
    out("    " + give(f, given, outs))
    out("}")


def give(f, given, outs):
    """The statement that returns the result."""
    if outs:
        first = "r" if f.result == "tensor" else None
        tensors = ", ".join(([first] if first else []) + [f"a{i}" for i in outs])
        ok = "r != NULL" if first else "r"
        return f"return give_tuple({ok}, (tl_tensor *[]){{{tensors}}}, {len(outs) + bool(first)}, &site);"
    if f.result == "tensor":
        may = "true" if f.may_be_none else "false"
        return f"return give_tensor(r, args, {len(given)}, {may}, &site);"
    unsigned = f.result_type in ("size_t", "uint64_t")
    made = {"void": "Py_NewRef_None()", "bool": "PyBool_FromLong(r)", "double": "PyFloat_FromDouble(r)",
            "integer": "PyLong_FromUnsignedLongLong(r)" if unsigned else "PyLong_FromLongLong(r)",
            "text": "give_text(r)", "pointer": "give_pointer(r)"}[f.result]
    return f"return has_failed() ? NULL : {made};"


def main(header_path, parts_path):
    functions = [f for f in Header(header_path).functions.values()
                 if f.is_plain and f.name not in ("tl_keep", "tl_drop")]
    raw = ["tl_keep", "tl_drop", "tl_scope_begin", "tl_scope_enter", "tl_scope_end"]
    lines = ["/* Written by _generate.py. */"]
    out = lines.append
    for name in raw + [f.name for f in functions]:
        out(f"static __typeof__(&{name}) p_{name};")
    lines.append(f'#line 1 "{parts_path}"')
    with open(parts_path, encoding="utf-8") as file:
        head, tail = file.read().split("/* GENERATED */")
    lines.insert(0, '#define Py_LIMITED_API 0x030A0000\n#define PY_SSIZE_T_CLEAN\n'
                    '#include <Python.h>\n#include "tally.h"')
    out(head)
    for f in functions:
        write_function(f, out)
    out("static PyMethodDef generated[] = {")
    for f in functions:
        out(f'    {{"{f.name}", (PyCFunction)(void (*)(void))call_{f.name}, METH_FASTCALL, NULL}},')
    out("    {0}};")
    out("static const struct symbol symbols[] = {")
    for name in raw + [f.name for f in functions]:
        out(f'    {{"{name}", (void **)&p_{name}}},')
    out("    {0}};")
    out(tail)
    print("\n".join(lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
