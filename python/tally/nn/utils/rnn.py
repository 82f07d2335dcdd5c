"""torch.nn.utils.rnn: sequences of several lengths in one tensor."""
import collections

from ... import _creation, _functions
from ..._types import int64

PackedSequence = collections.namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"],
                                        defaults=(None, None))


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Sequences (T_i, ...) as one tensor (T, N, ...), filled up to the longest."""
    sequences = list(sequences)
    longest = max(x.shape[0] for x in sequences)
    rows = []
    for x in sequences:
        more = _creation.full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
        rows.append(_functions.cat([x, more] if padding_side == "right" else [more, x]) if more.shape[0] else x)
    return _functions.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The sequences of pad_sequence again."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[i, :n] for i, n in enumerate(lengths.tolist())]


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """(T, N, ...) as the elements of all sequences, step by step, the longest sequence first."""
    lengths = lengths if hasattr(lengths, "tolist") else _creation.tensor(list(lengths), dtype=int64)
    sizes = lengths.tolist()
    order = None
    x = input.transpose(0, 1) if batch_first else input
    if not enforce_sorted:
        order = _functions.argsort(lengths, descending=True, stable=True)
        x, sizes = _functions.index_select(x, 1, order.to(x.device)), [sizes[i] for i in order.tolist()]
    elif any(a < b for a, b in zip(sizes, sizes[1:])):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can "
                           "pass `enforce_sorted=False` to pack_padded_sequence to sidestep this requirement.")
    if min(sizes) < 1:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    batch_sizes = [sum(n > t for n in sizes) for t in range(max(sizes))]
    data = _functions.cat([x[t, :n] for t, n in enumerate(batch_sizes)])
    inverse = None if order is None else _functions.argsort(order)
    return PackedSequence(data, _creation.tensor(batch_sizes, dtype=int64), order, inverse)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """(padded, lengths) of a packed sequence."""
    sizes = sequence.batch_sizes.tolist()
    longest = len(sizes) if total_length is None else total_length
    lengths = [sum(n > i for n in sizes) for i in range(sizes[0])]
    parts = _functions.split(sequence.data, sizes)
    rows = []
    for part in parts:
        more = _creation.full((sizes[0] - part.shape[0], *part.shape[1:]), padding_value, dtype=part.dtype,
                              device=part.device)
        rows.append(_functions.cat([part, more]) if more.shape[0] else part)
    x = _functions.stack(rows, 0)
    if longest > len(sizes):
        x = _functions.cat([x, _creation.full((longest - len(sizes), *x.shape[1:]), padding_value, dtype=x.dtype,
                                              device=x.device)])
    lengths = _creation.tensor(lengths, dtype=int64)
    if sequence.unsorted_indices is not None:
        x = _functions.index_select(x, 1, sequence.unsorted_indices.to(x.device))
        lengths = _functions.index_select(lengths, 0, sequence.unsorted_indices)
    return x.transpose(0, 1) if batch_first else x, lengths


def pack_sequence(sequences, enforce_sorted=True):
    """pack_padded_sequence of a list of sequences."""
    lengths = _creation.tensor([x.shape[0] for x in sequences], dtype=int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)
