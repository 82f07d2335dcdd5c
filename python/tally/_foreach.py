"""torch._foreach_*: one op on each tensor of a list. Every op of the package is there in this form."""
from . import _functions, _composed
from ._grad import no_grad
from ._tensor import Tensor


def _pairs(tensors, *rest):
    """Each tensor with its own of the other lists; a number or a tensor belongs to all."""
    for i, x in enumerate(tensors):
        yield (x, *(r[i] if isinstance(r, (list, tuple)) else r for r in rest))


def find(name):
    """The function _foreach_NAME, or None."""
    plain = name[len("_foreach_"):]
    if plain == "copy_":
        return copy_
    if plain == "norm":
        return norm
    if plain.rstrip("_") in ("addcmul", "addcdiv"):
        return _with_value(plain)
    if plain.endswith("_") and hasattr(Tensor, plain):
        def change(self, *rest, **kwargs):
            with no_grad():
                for x, *others in _pairs(self, *rest):
                    getattr(x, plain)(*others, **kwargs)
            return self
        change.__name__ = name
        return change
    function = getattr(_functions, plain, None) or getattr(_composed, plain, None)
    if function is None:
        return None

    def make(self, *rest, **kwargs):
        return [function(*each, **kwargs) for each in _pairs(self, *rest)]
    make.__name__ = name
    return make


def copy_(self, src, non_blocking=False):
    with no_grad():
        for x, y in zip(self, src):
            x.copy_(y)
    return self


def norm(self, ord=2, dtype=None):
    return [_functions.norm(x, ord, dtype=dtype) for x in self]


def _with_value(plain):
    """addcmul and addcdiv: the factor is the last argument, one for all or a list."""
    def call(self, tensor1, tensor2, value=1):
        values = value if isinstance(value, (list, tuple)) else [value] * len(self)
        if plain.endswith("_"):
            with no_grad():
                for x, a, b, v in zip(self, tensor1, tensor2, values):
                    getattr(x, plain)(a, b, value=v)
            return self
        return [getattr(_functions, plain)(x, a, b, value=v) for x, a, b, v in zip(self, tensor1, tensor2, values)]
    call.__name__ = "_foreach_" + plain
    return call
