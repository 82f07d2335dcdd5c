"""torch.utils.hooks."""
from ..autograd import RemovableHandle  # noqa: F401
