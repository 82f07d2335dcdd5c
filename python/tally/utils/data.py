"""Data in batches: torch.utils.data, in this process or in worker processes."""
import bisect
import collections
import itertools
import math

from .. import _creation, _functions
from .._numpy import known, np
from .._tensor import Tensor


class Dataset:
    """Has __getitem__ by index, and usually __len__."""

    def __getitem__(self, index):
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other):
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Has only __iter__."""

    def __iter__(self):
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")


class TensorDataset(Dataset):
    """Rows of tensors of one length."""

    def __init__(self, *tensors):
        if any(tensors[0].size(0) != x.size(0) for x in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(x[index] for x in self.tensors)

    def __len__(self):
        return self.tensors[0].size(0)


class Subset(Dataset):
    """Some of a dataset's items."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]

    def __len__(self):
        return len(self.indices)


class ConcatDataset(Dataset):
    """One dataset after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise ValueError("absolute value of index should not exceed dataset length")
        i = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[i][index - (self.cumulative_sizes[i - 1] if i else 0)]


def random_split(dataset, lengths, generator=None):
    """Random parts of these lengths, or of these fractions."""
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        fractions, n = lengths, len(dataset)
        lengths = [math.floor(n * f) for f in fractions]
        for i in range(n - sum(lengths)):
            lengths[i % len(lengths)] += 1
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = _creation.randperm(sum(lengths), generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - n:end]) for n, end in zip(lengths, ends)]


class Sampler:
    """Yields the indices of items in some order."""

    def __iter__(self):
        raise NotImplementedError


class SequentialSampler(Sampler):
    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """A random order, or random items with replacement, by the thread's generator."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples
        self.generator = generator

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, wanted = len(self.data_source), self.num_samples
        if self.replacement:
            return iter(_creation.randint(n, (wanted,), generator=self.generator).tolist())
        permutations = (_creation.randperm(n, generator=self.generator).tolist() for _ in itertools.count())
        return itertools.islice(itertools.chain.from_iterable(permutations), wanted)

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    def __init__(self, sampler, batch_size, drop_last):
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        yield from _batches(self.sampler, self.batch_size, self.drop_last)

    def __len__(self):
        n = len(self.sampler)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def _batches(items, size, drop_last):
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        if len(batch) == size or not drop_last:
            yield batch


def default_collate(batch):
    """Collates the items of a batch: stacks tensors and arrays, turns numbers into tensors, and collates dicts and
    tuples element by element."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _functions.stack(batch)
    if isinstance(first, known.ndarray):
        return _functions.stack([_creation.as_tensor(x) for x in batch])
    if isinstance(first, known.generic):
        return _creation.as_tensor(np.asarray(batch))
    if isinstance(first, float):
        return _creation.tensor(batch, dtype=_float64())
    if isinstance(first, int):
        return _creation.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return type(first)({k: default_collate([x[k] for x in batch]) for k in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(x)) for x in zip(*batch)))
    if isinstance(first, collections.abc.Sequence):
        if any(len(x) != len(first) for x in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(x)) for x in zip(*batch)]
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first)}")


def _float64():
    from .._types import float64
    return float64


def _as_it_is(x):
    return x


default_convert = _as_it_is


def get_worker_info():
    """In a worker process: its id, num_workers, seed and dataset; None elsewhere."""
    from . import _workers
    return _workers.info


class DataLoader:
    """Batches of a dataset."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device="", in_order=True):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if not num_workers and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to "
                             "enable multiprocessing, otherwise set prefetch_factor to None.")
        if persistent_workers and not num_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.num_workers, self.timeout, self.worker_init_fn = num_workers, timeout, worker_init_fn
        self.multiprocessing_context, self.generator = multiprocessing_context, generator
        self.prefetch_factor, self.persistent_workers = prefetch_factor, persistent_workers
        self.pin_memory, self.pin_memory_device, self._workers = pin_memory, pin_memory_device, None
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and "
                             "drop_last")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size <= 0):
            raise ValueError(f"batch_size should be a positive integer value, but got batch_size={batch_size}")
        self.dataset, self.drop_last = dataset, drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        self._is_iterable = isinstance(dataset, IterableDataset)
        if self._is_iterable and shuffle:
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle option, but got "
                             f"shuffle={shuffle}")
        if not self._is_iterable:
            sampler = sampler or (RandomSampler(dataset, generator=generator) if shuffle
                                  else SequentialSampler(dataset))
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if batch_sampler is None and batch_size is not None and not self._is_iterable:
            self.batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.collate_fn = collate_fn or (default_collate if batch_size is not None or batch_sampler is not None
                                         else _as_it_is)

    def __iter__(self):
        if self.num_workers:
            from ._workers import batches
            return batches(self)
        return self._own_batches() if self._is_iterable else map(self._load, self._index_batches())

    def _own_batches(self):
        """Of an iterable dataset."""
        if self.batch_size is None:
            return (self.collate_fn(x) for x in self.dataset)
        return (self.collate_fn(b) for b in _batches(self.dataset, self.batch_size, self.drop_last))

    def _index_batches(self):
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _load(self, indices):
        """One batch, or one item where nothing is batched."""
        if self.batch_sampler is None:
            return self.collate_fn(self.dataset[indices])
        if hasattr(self.dataset, "__getitems__"):
            return self.collate_fn(self.dataset.__getitems__(indices))
        return self.collate_fn([self.dataset[i] for i in indices])

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "_workers"} | {"_workers": None}

    def __len__(self):
        if self._is_iterable:
            n = len(self.dataset)
            return (n if self.batch_size is None else n // self.batch_size if self.drop_last
                    else -(-n // self.batch_size))
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)


class SubsetRandomSampler(Sampler):
    """These indices, in a random order."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        return (self.indices[i] for i in _creation.randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn by their weights."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        self.weights = _creation.as_tensor(weights, dtype=_float64())
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self):
        return iter(_creation.multinomial(self.weights, self.num_samples, self.replacement,
                                          generator=self.generator).tolist())

    def __len__(self):
        return self.num_samples


class DistributedSampler(Sampler):
    """The part of a dataset that belongs to one of several processes: set_epoch changes the order."""

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        from .. import distributed
        self.num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
        self.rank = distributed.get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]")
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        n = len(dataset)
        self.num_samples = (n // self.num_replicas if drop_last and n % self.num_replicas
                            else -(-n // self.num_replicas))
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self):
        n = len(self.dataset)
        order = list(range(n))
        if self.shuffle:
            order = _creation.randperm(n, generator=_creation.Generator().manual_seed(self.seed + self.epoch)).tolist()
        if not self.drop_last and order:
            order = (order * -(-self.total_size // n))[:self.total_size]
        return iter(order[self.rank:self.total_size:self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch


class ChainDataset(IterableDataset):
    """One iterable dataset after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)

    def __iter__(self):
        return itertools.chain.from_iterable(self.datasets)


class StackDataset(Dataset):
    """Items of several datasets side by side."""

    def __init__(self, *args, **kwargs):
        self.datasets = kwargs or args

    def __getitem__(self, index):
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self):
        return len(next(iter(self.datasets.values())) if isinstance(self.datasets, dict) else self.datasets[0])
