"""torch.func: functions of functions. Derivatives are by backward passes; vmap calls the function once per slice."""
import functools

from . import autograd as _autograd
from ._functions import stack, unbind
from ._grad import enable_grad
from ._tensor import Tensor
from .autograd import functional as _functional
from .utils import _pytree


def _leaves(x):
    return [v.detach().requires_grad_() if isinstance(v, Tensor) and v.dtype.is_inexact else v
            for v in _pytree.tree_leaves(x)]


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that returns (gradients, value)."""
    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        args, wanted, specs = list(args), [], []
        with enable_grad():
            for n in numbers:
                leaves, spec = _pytree.tree_flatten(args[n])
                leaves = [x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in leaves]
                args[n] = _pytree.tree_unflatten(leaves, spec)
                wanted.append(leaves)
                specs.append(spec)
            result = func(*args, **kwargs)
            value, aux = result if has_aux else (result, None)
            if value.numel() != 1:
                raise RuntimeError("Expected f(*args) to return a scalar tensor, got tensor with "
                                   f"{value.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
            flat = [x for leaves in wanted for x in leaves]
            found = _autograd.grad(value, flat, create_graph=True, allow_unused=True, materialize_grads=True)
        found, trees = iter(found), []
        for leaves, spec in zip(wanted, specs):
            trees.append(_pytree.tree_unflatten([next(found).detach() for _ in leaves], spec))
        gradients = trees[0] if isinstance(argnums, int) else tuple(trees)
        value = value.detach()
        return (gradients, (value, aux)) if has_aux else (gradients, value)
    return wrapped


def grad(func, argnums=0, has_aux=False):
    """A function that returns the gradient of func."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        gradients, value = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients
    return wrapped


def vjp(func, *primals, has_aux=False):
    """(func(primals), a function of v that gives v^T J)"""
    with enable_grad():
        leaves = [x.detach().requires_grad_() for x in primals]
        result = func(*leaves)
        result, aux = result if has_aux else (result, None)

    def pull(v):
        outputs, seeds = _pytree.tree_leaves(result), _pytree.tree_leaves(v)
        return _autograd.grad(outputs, leaves, seeds, retain_graph=True, allow_unused=True, materialize_grads=True)
    value = _pytree.tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, result)
    return (value, pull, aux) if has_aux else (value, pull)


def jvp(func, primals, tangents, *, has_aux=False):
    """(func(primals), J tangents)"""
    value, slope = _functional.jvp(func, tuple(primals), tuple(tangents))
    return value, slope


def _jacobian(func, argnums=0, has_aux=False):
    @functools.wraps(func)
    def wrapped(*args):
        if isinstance(argnums, int):
            return _functional.jacobian(lambda x: func(*args[:argnums], x, *args[argnums + 1:]), args[argnums])
        pick = tuple(argnums)

        def of_some(*given):
            full = list(args)
            for n, x in zip(pick, given):
                full[n] = x
            return func(*full)
        return _functional.jacobian(of_some, tuple(args[n] for n in pick))
    return wrapped


jacrev = jacfwd = _jacobian


def hessian(func, argnums=0):
    """Second derivatives of a function of one argument."""
    @functools.wraps(func)
    def wrapped(*args):
        return _functional.hessian(lambda x: func(*args[:argnums], x, *args[argnums + 1:]), args[argnums])
    return wrapped


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """func on every slice of its arguments, the results stacked: one call per slice."""
    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        dims = (in_dims,) * len(args) if isinstance(in_dims, int) else in_dims
        parts, n = [], None
        for a, d in zip(args, dims):
            leaves, spec = _pytree.tree_flatten(a)
            leaf_dims = [d] * len(leaves) if d is None or isinstance(d, int) else _pytree.tree_leaves(d)
            cut = [x if at is None or not isinstance(x, Tensor) else unbind(x, at) for x, at in zip(leaves, leaf_dims)]
            sizes = {len(c) for c, at in zip(cut, leaf_dims) if at is not None and isinstance(c, tuple)}
            if len(sizes | ({n} if n is not None else set())) > 1:
                raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got "
                                 f"sizes {sorted(sizes | {n} if n is not None else sizes)} for the mapped dimension")
            n = sizes.pop() if sizes else n
            parts.append((cut, leaf_dims, spec))
        if n is None:
            raise ValueError("vmap: at least one argument must be mapped over")
        results = []
        for i in range(n):
            given = [_pytree.tree_unflatten([c if at is None or not isinstance(c, tuple) else c[i]
                                             for c, at in zip(cut, leaf_dims)], spec)
                     for cut, leaf_dims, spec in parts]
            results.append(func(*given, **kwargs))
        flat = [_pytree.tree_flatten(r) for r in results]
        n_out = len(flat[0][0])
        outs = [out_dims] * n_out if isinstance(out_dims, int) else list(out_dims)
        joined = [stack([f[0][j] for f in flat], outs[j]) for j in range(n_out)]
        return _pytree.tree_unflatten(joined, flat[0][1])
    return wrapped


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """module(*args) with these tensors in place of its parameters and buffers."""
    tensors = {}
    for each in (parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, (list, tuple))
                 else [parameter_and_buffer_dicts]):
        tensors.update(each)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    before = []
    own = dict(module.named_parameters(remove_duplicate=False), **dict(module.named_buffers(remove_duplicate=False)))
    if tie_weights:  # one tensor under two names is replaced under both
        for name, x in list(tensors.items()):
            for other, y in own.items():
                if name in own and y is own[name] and other not in tensors:
                    tensors[other] = x
    try:
        for name, x in tensors.items():
            path, _, last = name.rpartition(".")
            holder = module.get_submodule(path)
            table = next((t for t in (holder._parameters, holder._buffers) if last in t), None)
            if table is None:
                if strict:
                    raise RuntimeError(f"Unexpected key in functional_call: {name}")
                continue
            before.append((table, last, table[last]))
            table[last] = x
        return module(*args, **(kwargs or {}))
    finally:
        for table, last, x in reversed(before):
            table[last] = x


def stack_module_state(models):
    """(parameters, buffers) of several modules of one kind, stacked."""
    def stacked(named):
        return {k: stack([dict(getattr(m, named)())[k].detach() for m in models])
                for k, _ in getattr(models[0], named)()}
    return ({k: x.requires_grad_() for k, x in stacked("named_parameters").items()}, stacked("named_buffers"))


def linearize(func, *primals):
    """(func(primals), a function of tangents that gives J tangents)"""
    value = func(*primals)
    return value, lambda *tangents: jvp(func, primals, tangents)[1]
