"""Hooks of a module's backward pass. The module's inputs and results go through two identities: the one behind the
results sees their gradients first, the one before the inputs sees theirs last."""
from .._library import lib
from .._tensor import Tensor
from ..autograd import Function
from ..utils._pytree import tree_flatten, tree_unflatten


class _Through(Function):
    """Its arguments, unchanged; backward passes the gradients through `see`."""

    @staticmethod
    def forward(ctx, see, *tensors):
        ctx.see = see
        return tuple(lib.tl_view(x, lib.shape_of(x)) if x.is_contiguous() else x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx, *grads):
        return (None, *ctx.see(grads))


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


def _send(tree, see):
    """The tree with its tensors that require grad sent through; None where there are none."""
    leaves, spec = tree_flatten(tree)
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor) and x.requires_grad]
    if not places:
        return tree, 0, ()
    tensors = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    for i, x in zip(places, _through(see, [leaves[i] for i in places])):
        leaves[i] = x
    return tree_unflatten(leaves, spec), len(tensors), tuple(tensors.index(i) for i in places)


def _through(see, tensors):
    return _Through.apply(see, *tensors)


def _spread(grads, n, places):
    """One gradient per tensor: None for those that need none."""
    full = [None] * n
    for i, g in zip(places, grads):
        full[i] = g
    return tuple(full)


def forward_between(module, args, kwargs):
    state = {}

    def at_inputs(grads):
        grads = _spread(grads, n_in, in_places)
        for hook, *_ in list(module._backward_hooks.values()):
            changed = hook(module, grads, state["grad_output"])
            if changed is not None:
                grads = _tuple(changed)
        return [grads[i] for i in in_places]

    def at_results(grads):
        grads = _spread(grads, n_out, out_places)
        for hook, *_ in list(module._backward_pre_hooks.values()):
            changed = hook(module, grads)
            if changed is not None:
                grads = _tuple(changed)
        state["grad_output"] = grads
        if not in_places:  # no input needs a gradient: what comes to the results is all there is
            for hook, *_ in list(module._backward_hooks.values()):
                if hook(module, (None,) * max(n_in, 1), grads) is not None:
                    raise RuntimeError("Backward hook for Modules where no input requires gradient should always "
                                       "return None or None for all gradients.")
        return [grads[i] for i in out_places]

    args, n_in, in_places = _send(args, at_inputs)
    n_in = n_in or sum(isinstance(a, Tensor) for a in args)
    result = module.forward(*args, **kwargs)
    result, n_out, out_places = _send(result, at_results)
    return result
