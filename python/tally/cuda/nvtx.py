"""torch.cuda.nvtx: names of ranges for a profiler that is not there."""
import contextlib


def range_push(msg):
    return 0


def range_pop():
    return 0


def mark(msg):
    pass


@contextlib.contextmanager
def range(msg, *args, **kwargs):
    yield
