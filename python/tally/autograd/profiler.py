"""torch.autograd.profiler, the older names of torch.profiler."""
from ..profiler import profile, record_function  # noqa: F401


class emit_nvtx:
    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False
