"""The GPU, as torch.cuda shows it."""
from ._library import c, lib
from ._types import as_device


def is_available():
    """Is there a GPU that tensors can live on?"""
    return device_count() > 0


def device_count():
    n = 0
    while n < 64 and c.tl_device_find(f"cuda:{n}".encode()):
        n += 1
    c.tl_error_clear()
    return n


def _memory(device):
    return c.tl_device_memory(as_device("cuda" if device is None else device).address)


def memory_allocated(device=None):
    """Bytes of the tensors held now, each rounded as the pool rounds."""
    return _memory(device).allocated_bytes


def max_memory_allocated(device=None):
    """The most bytes of tensors ever held at once, since reset_peak_memory_stats."""
    return _memory(device).peak_bytes


def memory_reserved(device=None):
    """Bytes the pool has taken from the device."""
    return _memory(device).reserved_bytes


def max_memory_reserved(device=None):
    return _memory(device).peak_reserved_bytes


def reset_peak_memory_stats(device=None):
    lib.tl_memory_reset_peak(as_device("cuda" if device is None else device).address)


def empty_cache():
    """Returns unused memory of the pool to the device."""
    if is_available():
        lib.tl_pool_trim(as_device("cuda").address)


def synchronize(device=None):
    """Waits until everything asked of the GPU is done."""
    lib.tl_device_sync(as_device("cuda" if device is None else device).address)


def current_device():
    return 0


class _Properties:
    def __init__(self, name, total_memory):
        self.name, self.total_memory = name, total_memory

    def __repr__(self):
        return f"_CudaDeviceProperties(name='{self.name}', total_memory={self.total_memory // 2**20}MB)"


def get_device_properties(device=None):
    memory = _memory(device)
    return _Properties(lib.tl_device_name(as_device("cuda" if device is None else device).address),
                       memory.device_total_bytes)


def get_device_name(device=None):
    return get_device_properties(device).name


def manual_seed(seed):
    from ._creation import manual_seed as set_seed
    set_seed(seed)


manual_seed_all = manual_seed
