"""torch.autograd.functional: derivatives of functions, by backward passes."""
from . import grad as _grad
from .._creation import ones_like, zeros_like
from .._functions import stack
from .._grad import enable_grad
from .._tensor import Tensor


def _tuple(x):
    return (x, False) if isinstance(x, (tuple, list)) else ((x,), True)


def _call(func, inputs, create_graph):
    """(inputs as leaves, outputs, whether each was one tensor)"""
    inputs, one_in = _tuple(inputs)
    leaves = tuple(x if create_graph and x.requires_grad else x.detach().requires_grad_() for x in inputs)
    leaves = tuple(x.view_as(x) if create_graph else x for x in leaves)
    outputs, one_out = _tuple(func(*leaves))
    if not all(isinstance(y, Tensor) for y in outputs):
        raise TypeError("The outputs of the user-provided function must be Tensors")
    return leaves, tuple(outputs), one_in, one_out


def _gradient(outputs, inputs, seeds, create_graph, strict=False):
    flowing = [(y, s) for y, s in zip(outputs, seeds) if y.requires_grad]
    if not flowing:
        if strict:
            raise RuntimeError("Output 0 of the user-provided function does not require gradients.")
        return tuple(zeros_like(x) for x in inputs)
    found = _grad([y for y, _ in flowing], inputs, [s for _, s in flowing], retain_graph=True,
                  create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        raise RuntimeError("The output of the user-provided function is independent of an input.")
    return tuple(zeros_like(x) if g is None else g for x, g in zip(inputs, found))


def _plain(x, create_graph):
    return x if create_graph else x.detach()


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v^T J)"""
    with enable_grad():
        leaves, outputs, one_in, one_out = _call(func, inputs, create_graph)
        if v is None and (len(outputs) > 1 or outputs[0].numel() != 1):
            raise RuntimeError("The vector v can only be None if the user-provided function returns a single Tensor "
                               "with a single element.")
        seeds = [ones_like(outputs[0])] if v is None else _tuple(v)[0]
        found = tuple(_plain(g, create_graph) for g in _gradient(outputs, leaves, seeds, create_graph, strict))
    values = tuple(_plain(y, create_graph) for y in outputs)
    return values[0] if one_out else values, found[0] if one_in else found


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), J v): the derivative of u^T J by u, times v."""
    with enable_grad():
        leaves, outputs, one_in, one_out = _call(func, inputs, create_graph)
        if v is None and (len(leaves) > 1 or leaves[0].numel() != 1):
            raise RuntimeError("The vector v can only be None if the input to the user-provided function is a single "
                               "Tensor with a single element.")
        v = (ones_like(leaves[0]),) if v is None else _tuple(v)[0]
        seeds = [zeros_like(y).requires_grad_() for y in outputs]
        back = _gradient(outputs, leaves, seeds, True, strict)
        found = _gradient(back, seeds, v, create_graph)
        found = tuple(_plain(g, create_graph) for g in found)
    values = tuple(_plain(y, create_graph) for y in outputs)
    return values[0] if one_out else values, found[0] if one_out else found


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """Of each output by each input: of shape output.shape + input.shape."""
    with enable_grad():
        leaves, outputs, one_in, one_out = _call(func, inputs, create_graph)
        rows = []
        for y in outputs:
            flat, per_input = y.reshape(-1), [[] for _ in leaves]
            for i in range(y.numel()):
                for found, g in zip(per_input, _gradient([flat[i]], leaves, [ones_like(flat[i])], create_graph,
                                                         strict)):
                    found.append(_plain(g, create_graph))
            rows.append(tuple((stack(found) if found else zeros_like(x).expand(0, *x.shape)).reshape(
                tuple(y.shape) + tuple(x.shape)) for found, x in zip(per_input, leaves)))
    result = tuple(r[0] if one_in else r for r in rows)
    return result[0] if one_out else result


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """Second derivatives of a function with one number as its result."""
    _, one_in = _tuple(inputs)

    def slope(*leaves):
        y = func(*leaves)
        if not isinstance(y, Tensor) or y.numel() != 1:
            raise RuntimeError("The Tensor returned by the function given to hessian should contain a single element")
        return _gradient([y.reshape(())], leaves, [ones_like(y.reshape(()))], True, strict)
    found = jacobian(slope, inputs if not one_in else (inputs,), create_graph, strict)
    return found[0][0] if one_in else found


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(inputs), v^T H)"""
    _, one_in = _tuple(inputs)
    with enable_grad():
        leaves, outputs, _, _ = _call(func, inputs, create_graph)
        slope = _gradient(outputs, leaves, [ones_like(outputs[0])], True, strict)
        found = _gradient(slope, leaves, _tuple(v)[0], create_graph)
    found = tuple(_plain(g, create_graph) for g in found)
    return _plain(outputs[0], create_graph), found[0] if one_in else found


hvp = vhp  # a Hessian is symmetric
