"""Activation checkpointing: torch.utils.checkpoint over tl_checkpoint."""
import ctypes
import weakref

from .._library import c, constants, forever, header, lib
from .._tensor import Tensor
from .._types import as_device, int64
from ..autograd import _give, _put_aside, _raise

# The library takes 16 inputs; one of them holds the record.
_MAX_INPUTS, _MAX_OUTPUTS = 15, constants["TL_MAX_OUTPUTS"]
_KEEP = {"inputs": constants["TL_KEEP_INPUTS"], "matmuls": constants["TL_KEEP_MATMULS"]}
_records = weakref.WeakValueDictionary()  # number -> _Record; the graph holds the records, by their carriers


class _Record:
    """A function and those of its arguments that are not tensors. One input of the checkpoint is a tensor over its
    memory, so it lives exactly as long as the graph may call it."""

    def __init__(self, function, args, kwargs):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.memory, self.result = ctypes.create_string_buffer(1), None
        _records[id(self)] = self

    def carrier(self):
        return lib.from_external(self, ctypes.addressof(self.memory), 1, (1,), None, constants["TL_U8"],
                                 as_device("cpu").address)

    def run(self, inputs):
        """The tensors among the results; `result` remembers where they were."""
        tensors = iter(inputs)
        args = [next(tensors) if a is _TENSOR else a for a in self.args]
        kwargs = {k: next(tensors) if a is _TENSOR else a for k, a in self.kwargs.items()}
        result = self.function(*args, **kwargs)
        parts = list(result) if isinstance(result, (tuple, list)) else [result]
        found = [x for x in parts if isinstance(x, Tensor)]
        if not 1 <= len(found) <= _MAX_OUTPUTS:
            raise NotImplementedError(f"a checkpointed function gives 1 to {_MAX_OUTPUTS} tensors, in a tuple or "
                                      f"alone; this one gives {len(found)}")
        self.result = (type(result) if isinstance(result, (tuple, list)) else None,
                       [_TENSOR if isinstance(x, Tensor) else x for x in parts])
        return found


_TENSOR = object()  # stands where a tensor was


@forever
@header.callbacks["tl_checkpoint_fn"]
def _on_run(number, inputs, n_inputs, outputs, n_outputs):
    try:
        pointers = ctypes.cast(inputs, ctypes.POINTER(ctypes.c_void_p))
        places = ctypes.cast(outputs, ctypes.POINTER(ctypes.c_void_p))
        found = _records[number].run([lib.wrap(Tensor, pointers[i]) for i in range(n_inputs - 1)])
        # How many results there are is not known before: the places that are left get a tensor of nothing.
        found += [lib.tl_empty((0,), int64.code, None)] * (n_outputs - len(found))
        for j, x in enumerate(found):
            places[j] = _give(x)
        return True
    except BaseException as error:
        _put_aside(error)
        return False


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True, determinism_check="default", debug=False,
               keep="inputs", context_fn=None, early_stop=True, **kwargs):
    """function(*args) without keeping intermediate results; backward runs it again, with the same random numbers.

    keep="matmuls" keeps the results of products and attention. use_reentrant is accepted and ignored: there is one
    implementation.
    """
    if context_fn is not None:
        raise NotImplementedError("context_fn is not there: keep=\"matmuls\" is the selective checkpoint")
    record = _Record(function, [_TENSOR if isinstance(a, Tensor) else a for a in args],
                     {k: _TENSOR if isinstance(a, Tensor) else a for k, a in kwargs.items()})
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
    if len(tensors) > _MAX_INPUTS:
        raise NotImplementedError(f"checkpoint takes at most {_MAX_INPUTS} tensors, got {len(tensors)}: give the "
                                  "others by a closure")
    tensors.append(record.carrier())
    inputs = (ctypes.c_void_p * len(tensors))(*[lib.address_of(x) for x in tensors])
    outputs = (ctypes.c_void_p * _MAX_OUTPUTS)()
    scope = c.tl_scope_begin()
    ok = c.tl_checkpoint(_on_run, id(record), 0, _KEEP[keep], inputs, len(tensors), outputs, _MAX_OUTPUTS)
    found = [lib.wrap(Tensor, p) for p in outputs] if ok else None
    c.tl_scope_end(scope)
    if not ok:
        _raise()
    kind, parts = record.result
    tensors = iter(found)
    parts = [next(tensors) if x is _TENSOR else x for x in parts]
    return parts[0] if kind is None else kind(parts) if kind in (tuple, list) else kind(*parts)


def checkpoint_sequential(functions, segments, input, use_reentrant=None, **kwargs):
    """Functions one after the other, in segments; each segment but the last is a checkpoint."""
    functions = list(functions.children()) if hasattr(functions, "children") else list(functions)

    def run(first, last):
        def forward(x):
            for f in functions[first:last]:
                x = f(x)
            return x
        return forward
    size = len(functions) // segments
    for i in range(segments - 1):
        input = checkpoint(run(i * size, (i + 1) * size), input, use_reentrant=use_reentrant, **kwargs)
    return run((segments - 1) * size, len(functions))(input)
