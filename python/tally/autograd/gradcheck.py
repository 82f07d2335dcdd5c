"""Gradients against finite differences: gradcheck and gradgradcheck."""
from . import grad as _grad
from .._functions import allclose
from .._creation import randn, zeros_like
from .._grad import enable_grad, no_grad
from .._tensor import Tensor


class GradcheckError(RuntimeError):
    """A gradient is not the one that finite differences give."""


def _tensors(x):
    return [y for y in (x if isinstance(x, (tuple, list)) else [x]) if isinstance(y, Tensor)]


def _numeric(func, inputs, x, seeds, eps):
    """By central differences, element by element: d sum(seed output) / d x."""
    slope = zeros_like(x)
    values, flat = x.detach().reshape(-1), slope.reshape(-1)
    for i in range(x.numel()):
        ends = []
        for step in (eps, -eps):
            before = values[i].item()
            moved = values.clone()
            moved[i] = before + step
            given = [moved.reshape(x.shape) if y is x else y for y in inputs]
            with no_grad():
                ends.append(sum((y * s).sum().item() for y, s in zip(_tensors(func(*given)), seeds) if s is not None))
        flat[i] = (ends[0] - ends[1]) / (2 * eps)
    return slope


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True, nondet_tol=0.0,
              check_undefined_grad=True, check_grad_dtypes=False, check_batched_grad=False,
              check_batched_forward_grad=False,
              check_forward_ad=False, check_backward_ad=True, fast_mode=False, masked=None):
    """Whether the gradients of func at these inputs (float64, requires_grad) agree with finite differences."""
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise ValueError("gradcheck expects at least one input tensor to require gradient")
    with enable_grad():
        outputs = [y for y in _tensors(func(*inputs)) if y.requires_grad]
        seeds = [randn(*y.shape, dtype=y.dtype, device=y.device) for y in outputs]
        if not outputs:
            return True
        ours = _grad(outputs, wanted, seeds, allow_unused=True, retain_graph=True)
    with enable_grad():
        marks = iter(seeds)
        all_seeds = [next(marks) if y.requires_grad else None for y in _tensors(func(*inputs))]
    for n, (x, g) in enumerate(zip(wanted, ours)):
        slope = _numeric(func, inputs, x, all_seeds, eps)
        g = zeros_like(x) if g is None else g.detach()
        if not allclose(g, slope, rtol, atol):
            if not raise_exception:
                return False
            raise GradcheckError(f"Jacobian mismatch for output 0 with respect to input {n},\nnumerical:{slope}\n"
                                 f"analytical:{g}")
    return True


def gradgradcheck(func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, gen_non_contig_grad_outputs=False,
                  raise_exception=True, nondet_tol=0.0, **_):
    """Whether second derivatives agree with finite differences of the first."""
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    with enable_grad():
        outputs = [y for y in _tensors(func(*inputs)) if y.requires_grad]
    seeds = _tensors(grad_outputs) if grad_outputs is not None else [
        randn(*y.shape, dtype=y.dtype, device=y.device).requires_grad_() for y in outputs]

    def slope(*given):
        args, given_seeds = list(given[:len(inputs)]), given[len(inputs):]
        with enable_grad():
            args = [a.detach().requires_grad_() if isinstance(a, Tensor) and b.requires_grad and not a.requires_grad
                    else a for a, b in zip(args, inputs)]
            wanted = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
            made = [y for y in _tensors(func(*args)) if y.requires_grad]
            found = _grad(made, wanted, list(given_seeds), create_graph=True, allow_unused=True)
            return tuple(zeros_like(x) if g is None else g for x, g in zip(wanted, found))
    return gradcheck(slope, [*inputs, *seeds], eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)
