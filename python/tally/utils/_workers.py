"""The worker processes of a DataLoader: each gets the numbers of its batches, loads them and sends them back."""
import itertools
import multiprocessing
import os
import queue
import random
import threading
import traceback

from .. import _creation
from .._library import lib
from .._numpy import np

_PATIENCE_S = 5.0  # between two looks at whether the workers are alive


class WorkerInfo:
    """What a worker knows about itself: id, num_workers, seed, dataset."""

    def __init__(self, id, num_workers, seed, dataset):
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset


info = None  # of this process, where it is a worker


class _Failure:
    """An exception in a worker, as text: what it holds may not be sendable."""

    def __init__(self, worker, error):
        self.worker, self.kind, self.text = worker, type(error), traceback.format_exc()

    def reraise(self):
        text = f"Caught {self.kind.__name__} in DataLoader worker process {self.worker}.\nOriginal {self.text}"
        try:
            error = self.kind(text)
        except Exception:  # noqa: BLE001 (a class with arguments of its own)
            error = RuntimeError(text)
        raise error


class _End:
    """An iterable dataset of this worker has no more."""

    def __init__(self, worker):
        self.worker = worker


def _work(loader, worker, n_workers, seed, tasks, results, parent):
    global info
    lib.tl_set_threads(1)  # the pool of the parent's threads is not there after a fork
    random.seed(seed)
    np.random.seed(seed % 2**32)
    _creation.manual_seed(seed)
    info = WorkerInfo(worker, n_workers, seed, loader.dataset)
    source, failure = None, None
    try:
        if loader.worker_init_fn is not None:
            loader.worker_init_fn(worker)
        if loader._is_iterable:
            source = loader._own_batches()
    except Exception as error:  # noqa: BLE001 (the parent raises it)
        failure = _Failure(worker, error)
    while True:
        try:
            task = tasks.get(timeout=_PATIENCE_S)
        except queue.Empty:
            if os.getppid() != parent:
                return
            continue
        if task is None:
            return
        number, indices = task
        if failure is not None:
            results.put((number, failure))
            continue
        try:
            results.put((number, next(source) if source is not None else loader._load(indices)))
        except StopIteration:
            results.put((number, _End(worker)))
        except Exception as error:  # noqa: BLE001
            results.put((number, _Failure(worker, error)))


class Workers:
    """One pass over a loader by its processes. Batches come in the order of one process."""

    def __init__(self, loader):
        self.loader, self.n = loader, loader.num_workers
        context = loader.multiprocessing_context or multiprocessing.get_context("fork")
        context = multiprocessing.get_context(context) if isinstance(context, str) else context
        seed = int(_creation.randint(0, 2**62, (1,)).item())
        self.results = context.Queue()
        self.tasks = [context.Queue() for _ in range(self.n)]
        self.processes = [context.Process(target=_work, daemon=True,
                                          args=(loader, i, self.n, seed + i, self.tasks[i], self.results, os.getpid()))
                          for i in range(self.n)]
        for p in self.processes:
            p.start()
        self.lock = threading.Lock()

    def passes(self):
        loader = self.loader
        batches = itertools.repeat(None) if loader._is_iterable else iter(loader._index_batches())
        turns, sent, wanted, early, open_workers = itertools.cycle(range(self.n)), 0, 0, {}, set(range(self.n))
        owner, ahead = {}, self.n * (2 if loader.prefetch_factor is None else loader.prefetch_factor)
        is_over = False
        while True:
            while not is_over and sent - wanted < ahead and open_workers:
                indices = next(batches, self)
                if indices is self:
                    is_over = True
                    break
                worker = next(w for w in turns if w in open_workers)
                self.tasks[worker].put((sent, indices))
                owner[sent] = worker
                sent += 1
            if wanted == sent:
                return
            while wanted not in early:
                number, value = self._receive()
                early[number] = value
            value = early.pop(wanted)
            wanted += 1
            if isinstance(value, _Failure):
                value.reraise()
            if isinstance(value, _End):
                open_workers.discard(value.worker)
                continue
            yield value

    def _receive(self):
        limit = self.loader.timeout
        waited = 0.0
        while True:
            patience = min(_PATIENCE_S, limit - waited) if limit else _PATIENCE_S
            try:
                return self.results.get(timeout=patience)
            except queue.Empty:
                waited += patience
                dead = [p.pid for p in self.processes if not p.is_alive()]
                if dead:
                    raise RuntimeError(f"DataLoader worker (pid(s) {', '.join(map(str, dead))}) exited "
                                       "unexpectedly") from None
                if limit and waited >= limit:
                    raise RuntimeError(f"DataLoader timed out after {limit} seconds") from None

    def stop(self):
        for tasks, p in zip(self.tasks, self.processes):
            if p.is_alive():
                tasks.put(None)
        for p in self.processes:
            p.join(_PATIENCE_S)
            if p.is_alive():
                p.terminate()
        for q in (*self.tasks, self.results):
            q.cancel_join_thread()
            q.close()


def batches(loader):
    """A pass; its processes end with it, unless they are persistent."""
    workers = loader._workers if loader.persistent_workers and loader._workers is not None else Workers(loader)
    if loader.persistent_workers:
        loader._workers = workers
    is_whole = False
    try:
        yield from workers.passes()
        is_whole = True
    finally:
        if not loader.persistent_workers or not is_whole:
            loader._workers = None
            workers.stop()
