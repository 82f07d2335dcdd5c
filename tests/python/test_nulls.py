"""Every function of tally.h with NULL in each of its pointer arguments, one at a time, and in all of them: it must not
crash. Each function runs in a child process, so that a crash is counted and named. The other arguments are valid as far
as their types say; what a call does with them is not looked at."""
import ctypes
import os
import signal

import pytest
from tally import _library

c, header = _library.c, _library.header

# A format for printf; and settings of which NULL means the defaults: it would train.
SKIPPED = {"tl_lengths", "tl_train"}


def new_tensor():
    return c.tl_full(2, (ctypes.c_int64 * 2)(2, 3), 0.5, header.constants["TL_F32"], None)


MAKERS = {
    "tl_tensor": new_tensor,
    "tl_device": lambda: c.tl_device_find(b"cpu"),
    "tl_ledger": lambda: c.tl_ledger_begin(b"null"),
    "tl_tokenizer": lambda: c.tl_tokenizer_bytes(),
    "tl_module": lambda: c.tl_nn_linear(3, 3, True, header.constants["TL_F32"], None),
    "tl_optimizer": lambda: c.tl_optimizer_new(0),
    "tl_comm": lambda: c.tl_comm_world(),
}


def valid(argument):
    """A value of the argument's type; None where no call here can make one."""
    kind, name = argument.type, argument.name
    bare = kind.replace("const ", "").replace(" [", " *")
    if bare == "tl_tensor **":
        return (ctypes.c_void_p * 64)(*[new_tensor() for _ in range(64)])
    if bare.endswith("*"):
        what = bare.rstrip("* ")
        if name in ("release", "deleter") or bare.count("*") > 1:
            return None
        if what == "char":
            return b"a b" if kind.startswith("const") else ctypes.create_string_buffer(1 << 16)
        if what in MAKERS and bare.count("*") == 1:
            return MAKERS[what]()
        if what in ("int", "int64_t"):
            element = ctypes.c_int if what == "int" else ctypes.c_int64
            return ctypes.cast((element * 64)(*[1] * 64), ctypes.c_void_p)
        if what in header.structs or what in ("void", "char", "double", "float", "int32_t", "uint32_t", "uint64_t",
                                              "size_t", "bool") or what in header.enums:
            return ctypes.cast(ctypes.create_string_buffer(1 << 16), ctypes.c_void_p)
        return None  # an object that no call here can make
    if bare in header.callbacks:
        return None
    if bare in header.structs:
        return header.structs[bare]()
    if name == "rank":
        return 2
    return {"double": 0.5, "bool": False}.get(bare, 1)


def calls(function):
    """The argument lists to try: which place is NULL ("all": every one)."""
    places = [i for i, a in enumerate(function.arguments)
              if "*" in a.type or "[" in a.type or a.type in header.callbacks]
    return [[i] for i in places] + ([places] if len(places) > 1 else [])


def run_all(function):
    """In the child, which writes down each call before it makes it."""
    usual, call = getattr(c, function.name), c[function.name]  # one of its own, which does not read texts:
    call.argtypes = usual.argtypes                             # tl_tokenizer_token's need not end with NUL
    call.restype = ctypes.c_void_p if usual.restype is ctypes.c_char_p else usual.restype
    for nulls in calls(function):
        c.tl_error_clear()
        c.tl_scope_begin()
        values, kept = [], []
        for i, argument in enumerate(function.arguments):
            if argument.type == "...":
                continue
            value = valid(argument)
            kept.append(value)
            values.append(None if i in nulls else value)
        os.write(report, (f"{function.name}: NULL as " +
                          ", ".join(function.arguments[i].name for i in nulls) + "\n").encode())
        call(*values)


report = None


@pytest.mark.parametrize("name", sorted(header.functions))
def test_null_arguments_do_not_crash(name, tmp_path):
    global report
    function = header.functions[name]
    if name in SKIPPED or not calls(function):
        return
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            report = write
            os.chdir(tmp_path)  # some calls write a file
            signal.alarm(20)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            run_all(function)
        except ctypes.ArgumentError:
            os._exit(3)
        finally:
            os._exit(0)
    os.close(write)
    said = b""
    while chunk := os.read(read, 65536):
        said += chunk
    os.close(read)
    status = os.waitpid(child, 0)[1]
    last = said.decode().strip().splitlines()[-1:] or [name]
    how = f"signal {status & 127}" if status & 127 else f"status {status >> 8}"
    assert status == 0, f"{last[0]}: ends with {how}"
