"""torch.utils: activation checkpointing and data loading."""
from . import checkpoint, data  # noqa: F401
