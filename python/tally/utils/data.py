"""Data in batches: torch.utils.data, in one process."""
import bisect
import collections
import itertools
import math

import numpy as np

from .. import _creation, _functions
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
    order = _creation.randperm(sum(lengths)).tolist()
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

    @property
    def num_samples(self):
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n, wanted = len(self.data_source), self.num_samples
        if self.replacement:
            return iter(_creation.randint(n, (wanted,)).tolist())
        permutations = (_creation.randperm(n).tolist() for _ in itertools.count())
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
    if isinstance(first, np.ndarray):
        return _functions.stack([_creation.as_tensor(x) for x in batch])
    if isinstance(first, np.generic):
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


class DataLoader:
    """Batches of a dataset."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device="", in_order=True):
        if num_workers:
            raise NotImplementedError("DataLoader loads in the calling process: use num_workers=0")
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
            sampler = sampler or (RandomSampler if shuffle else SequentialSampler)(dataset)
        self.sampler, self.batch_sampler = sampler, batch_sampler
        if batch_sampler is None and batch_size is not None and not self._is_iterable:
            self.batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.collate_fn = collate_fn or (default_collate if batch_size is not None or batch_sampler is not None
                                         else lambda x: x)

    def __iter__(self):
        if self._is_iterable:
            if self.batch_size is None:
                return (self.collate_fn(x) for x in self.dataset)
            return (self.collate_fn(b) for b in _batches(self.dataset, self.batch_size, self.drop_last))
        if self.batch_sampler is None:
            return (self.collate_fn(self.dataset[i]) for i in self.sampler)
        return (self.collate_fn([self.dataset[i] for i in batch]) for batch in self.batch_sampler)

    def __len__(self):
        if self._is_iterable:
            n = len(self.dataset)
            return (n if self.batch_size is None else n // self.batch_size if self.drop_last
                    else -(-n // self.batch_size))
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
