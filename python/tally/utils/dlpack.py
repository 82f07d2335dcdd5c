"""torch.utils.dlpack: memory shared with other libraries."""
from .._memory import from_dlpack  # noqa: F401


def to_dlpack(tensor):
    return tensor.__dlpack__()
