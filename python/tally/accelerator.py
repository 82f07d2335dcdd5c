"""torch.accelerator: the GPU, if there is one."""
from . import cuda
from ._types import as_device


def is_available():
    return cuda.is_available()


def device_count():
    return cuda.device_count()


def current_accelerator(check_available=False):
    """The GPU's device, or None."""
    return as_device("cuda") if cuda.is_available() else None


def current_device_index():
    return cuda.current_device()


current_device_idx = current_device_index


def set_device_index(device):
    cuda.set_device(device)


set_device_idx = set_device_index


def synchronize(device=None):
    if cuda.is_available():
        cuda.synchronize(device)


def empty_cache():
    cuda.empty_cache()


memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
memory_reserved, max_memory_reserved = cuda.memory_reserved, cuda.max_memory_reserved
reset_peak_memory_stats = cuda.reset_peak_memory_stats
