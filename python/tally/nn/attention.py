"""torch.nn.attention: which implementation of attention runs. There is one here: it is the flash form wherever that
applies."""
import contextlib
import enum


class SDPBackend(enum.Enum):
    ERROR, MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION, OVERRIDEABLE = -1, 0, 1, 2, 3, 4


@contextlib.contextmanager
def sdpa_kernel(backends=None, set_priority=False, **_):
    """Accepted: the library chooses."""
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends or ())
    if not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    yield
