"""torch.compiler, and what programs set in torch._dynamo and torch._inductor: nothing is compiled here, so functions
come back as they are and settings are kept without effect."""
import sys
import types


def disable(fn=None, recursive=True, **_):
    return fn if fn is not None else (lambda f: f)


def is_compiling():
    return False


is_dynamo_compiling = is_exporting = is_compiling


def _nothing(*args, **kwargs):
    """There is nothing to do."""


reset = cudagraph_mark_step_begin = set_stance = mark_dynamic = mark_static = graph_break = _nothing


def allow_in_graph(fn):
    return fn


assume_constant_result = substitute_in_graph = optimize = allow_in_graph


class _Config(types.ModuleType):
    """Takes any setting; a group of settings is made when it is first asked for."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        group = _Config(f"{self.__name__}.{name}")
        setattr(self, name, group)
        return group


config = _Config(__name__ + ".config")
sys.modules[config.__name__] = config
