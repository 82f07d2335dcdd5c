"""torch.utils: checkpoints of activations, and loading of data."""
from . import checkpoint, data  # noqa: F401
