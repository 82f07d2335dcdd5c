"""torch.utils: activation checkpointing, data loading, trees, TensorBoard."""
from . import checkpoint, data  # noqa: F401


def __getattr__(name):
    import importlib
    if name in ("_pytree", "tensorboard", "hooks", "dlpack"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'tally.utils' has no attribute '{name}'")
