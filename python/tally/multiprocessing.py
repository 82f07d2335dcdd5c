"""torch.multiprocessing: Python's. Tensors are sent as copies of their data."""
from multiprocessing import *  # noqa: F401, F403
from multiprocessing import get_context


def get_all_sharing_strategies():
    return {"file_system"}


def get_sharing_strategy():
    return "file_system"


def set_sharing_strategy(new_strategy):
    """Accepted: memory is not shared."""


def _start(fn, i, args):
    fn(i, *args)


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """fn(i, *args) in nprocs processes."""
    context = get_context(start_method)
    processes = [context.Process(target=_start, args=(fn, i, args), daemon=daemon) for i in range(nprocs)]
    for p in processes:
        p.start()
    if not join:
        return processes
    for i, p in enumerate(processes):
        p.join()
        if p.exitcode:
            raise RuntimeError(f"process {i} terminated with exit code {p.exitcode}")
    return None
