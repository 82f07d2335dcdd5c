"""The GPU, as torch.cuda shows it."""
import importlib
import re
import time

from .._library import c, lib
from .._types import as_device


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
    from .._creation import manual_seed as set_seed
    set_seed(seed)


manual_seed_all = manual_seed


# ---- What programs ask of a GPU, or set ----

def _capability(device):
    """(9, 0) for "sm_90"; the library's name of the device is all there is to read it from."""
    found = re.search(r"sm_(\d+)(\d)", get_device_name(device))
    return (int(found[1]), int(found[2])) if found else (8, 0)


def get_device_capability(device=None):
    """The compute capability; (8, 0), the least that the kernels are built for, where the device does not tell it."""
    return _capability(device)


def is_bf16_supported(including_emulation=True):
    """Yes, on every GPU that the kernels are built for."""
    return is_available()


def set_device(device):
    """The device that tensors of "cuda" are on: this package uses the first."""
    index = as_device(device if not isinstance(device, int) else f"cuda:{device}").index or 0
    if index:
        raise NotImplementedError(f"cuda.set_device({device}): a process uses one GPU, cuda:0; set "
                                  "CUDA_VISIBLE_DEVICES to choose it")


def mem_get_info(device=None):
    """(free, total) bytes of the GPU."""
    memory = _memory(device)
    return memory.device_total_bytes - memory.device_used_bytes, memory.device_total_bytes


def memory_stats(device=None):
    """The counters that the pool has, by torch's names."""
    memory = _memory(device)
    return {"allocated_bytes.all.current": memory.allocated_bytes, "allocated_bytes.all.peak": memory.peak_bytes,
            "reserved_bytes.all.current": memory.reserved_bytes, "reserved_bytes.all.peak": memory.peak_reserved_bytes}


def ipc_collect():
    """Nothing is shared between processes."""


def is_initialized():
    return is_available()


def init():
    """The GPU is found when it is first used."""


reset_max_memory_allocated = reset_peak_memory_stats
get_arch_list = list


class device:
    """`with cuda.device(0):`; there is one."""

    def __init__(self, device):
        self.idx = device

    def __enter__(self):
        if is_available():
            set_device(self.idx)

    def __exit__(self, *_):
        return False


class Event:
    """A point in time: work is waited for where it is recorded."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._time = None

    def record(self, stream=None):
        if is_available():
            synchronize()
        self._time = time.perf_counter()

    def synchronize(self):
        if is_available():
            synchronize()

    wait = synchronize

    def query(self):
        return True

    def elapsed_time(self, end_event):
        """Milliseconds."""
        return (end_event._time - self._time) * 1e3


class Stream:
    """Work runs in the order of the program: a stream is a name."""

    def __init__(self, device=None, priority=0, **_):
        self.device = device

    def synchronize(self):
        if is_available():
            synchronize()

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record()
        return event


class stream:
    """`with cuda.stream(s):`"""

    def __init__(self, stream):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        return False


def current_stream(device=None):
    return Stream(device)


default_stream = current_stream


def __getattr__(name):
    if name in ("amp", "nvtx"):
        return importlib.import_module("." + name, __name__)
    if name == "OutOfMemoryError":
        from .._errors import OutOfMemoryError
        return OutOfMemoryError
    raise AttributeError(f"module 'tally.cuda' has no attribute '{name}'")
