"""torch.cuda.amp, the older names of torch.amp."""
import functools

from .. import amp
from ..amp import GradScaler  # noqa: F401


class autocast(amp.autocast):
    """amp.autocast of cuda."""

    def __init__(self, enabled=True, dtype=None, cache_enabled=True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd=None, *, cast_inputs=None, device_type="cuda"):
    """forward of an autograd.Function: with cast_inputs, outside autocast and on inputs of that dtype."""
    return amp.custom_fwd(fwd, device_type=device_type, cast_inputs=cast_inputs)


custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")
