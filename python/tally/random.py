"""torch.random: the state of the calling thread's random numbers."""
import contextlib

from ._creation import get_rng_state, initial_seed, manual_seed, set_rng_state  # noqa: F401
from ._runtime import seed  # noqa: F401


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """The numbers drawn inside do not move those outside."""
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)
