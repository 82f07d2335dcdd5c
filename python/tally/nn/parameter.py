"""Parameters: tensors that a module registers by their name and trains."""
from .._library import constants, lib
from .._tensor import Tensor

_PARAMETER = constants["TL_PARAMETER"]


class Parameter(Tensor):
    """A leaf that requires grad. Its storage is billed as a parameter."""

    def __new__(cls, data=None, requires_grad=True):
        data = lib.tl_empty((0,), 1, None) if data is None else data
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data must be a Tensor, not {type(data).__name__}")
        if requires_grad and not data.dtype.is_inexact:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        bare = lib.tl_detach(data)  # has a name, so that it lives until it is wrapped
        x = lib.wrap(cls, lib.address_of(bare))
        lib.tl_set_purpose(x, _PARAMETER)
        return lib.tl_requires_grad(x, True) if requires_grad else x

    def __init__(self, data=None, requires_grad=True):
        super().__init__()

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()

    def __deepcopy__(self, memo):
        return lib.tl_set_purpose(super().__deepcopy__(memo), _PARAMETER)

    def __reduce__(self):
        make, state = super().__reduce__()
        return (_rebuild, (type(self), make, state))


def _rebuild(cls, make, state):
    return lib.tl_set_purpose(make(*state), _PARAMETER)


class Buffer(Tensor):
    """A tensor that a module registers as a buffer."""

    def __new__(cls, data=None, *, persistent=True):
        bare = lib.tl_empty((0,), 1, None) if data is None else lib.tl_detach(data)
        x = lib.wrap(cls, lib.address_of(bare))
        x.persistent = persistent
        return x

    def __init__(self, data=None, *, persistent=True):
        super().__init__()
