"""torch.nn.modules: the layers of torch.nn under their older path."""
from .. import Module, ModuleDict, ModuleList, Sequential  # noqa: F401


def __getattr__(name):
    from ... import nn
    return getattr(nn, name)
