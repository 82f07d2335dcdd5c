"""torch.jit, of programs that would run without it: functions and modules come back as they are."""
from ._files import load, save  # noqa: F401
from .nn.module import Module as ScriptModule  # noqa: F401
from ._runtime import _note


def script(obj=None, optimize=None, **_):
    _note("jit", "tally: torch.jit changes nothing: ops run as they are called")
    return obj


def trace(func=None, example_inputs=None, **_):
    return script(func)


def ignore(drop=False, **_):
    return drop if callable(drop) else (lambda fn: fn)


def unused(fn):
    return fn


export = script_method = interface = _overload = unused


def is_scripting():
    return False


is_tracing = is_scripting


def annotate(the_type, the_value):
    return the_value


def fork(func, *args, **kwargs):
    return func(*args, **kwargs)


def wait(future):
    return future


def freeze(mod, *args, **kwargs):
    return mod


optimize_for_inference = freeze


def isinstance(obj, target_type):
    import builtins
    return builtins.isinstance(obj, target_type)


class Final:
    """For annotations."""

    def __class_getitem__(cls, item):
        return item


Attribute = annotate
