"""Gradients clipped, parameters as one vector: torch.nn.utils."""
from ... import _functions
from ..._grad import no_grad
from ..._library import lib
from ..._tensor import Tensor


def _grads(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [g for g in (p.grad for p in parameters) if g is not None]


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors as one vector."""
    tensors, p = [tensors] if isinstance(tensors, Tensor) else list(tensors), float(norm_type)
    if not tensors:
        from ..._creation import tensor
        return tensor(0.0)
    with no_grad():
        norms = [lib.tl_norm(x, p, (), False) for x in tensors]
        total = lib.tl_norm(_functions.stack([n.to(norms[0].device) for n in norms]), p, (), False)
    if error_if_nonfinite and not bool(lib.tl_isfinite(total)):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
                           "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
                           "anyway, set `error_if_nonfinite=False`")
    return total


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales gradients with norm total_norm to max_norm; never up."""
    with no_grad():
        factor = lib.tl_clamp(lib.tl_rdiv_scalar(lib.tl_add_scalar(total_norm, 1e-6), float(max_norm)), None, 1.0)
        for g in _grads(parameters):
            lib.tl_mul_(g, factor.to(g.device))


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales gradients so that their norm as one vector is at most max_norm. Returns the norm before."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    total = get_total_norm(_grads(parameters), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, total)
    return total


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clamps every element of the gradients to [-clip_value, clip_value]."""
    with no_grad():
        for g in _grads(parameters):
            lib.tl_clamp_(g, -float(clip_value), float(clip_value))


def parameters_to_vector(parameters):
    """All parameters, one after the other, as one vector."""
    return _functions.cat([lib.tl_reshape(p, (-1,)) for p in parameters])


def vector_to_parameters(vec, parameters):
    """The inverse of parameters_to_vector."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec)}")
    at = 0
    for p in parameters:
        n = p.numel()
        p.data = lib.tl_clone(lib.tl_view(lib.tl_slice(lib.tl_detach(vec), 0, at, at + n, 1), lib.shape_of(p)))
        at += n
