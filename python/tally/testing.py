"""torch.testing: assert_close, and tensors of random numbers for tests."""
import collections.abc

from . import _creation, _functions
from ._tensor import Tensor
from ._types import bool_

# The relative and absolute tolerance of a dtype, as in torch.
_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def _tolerances(a, b, rtol, atol):
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and "
                         f"atol={atol} instead.")
    if rtol is not None:
        return rtol, atol
    found = [_TOLERANCES.get(x.dtype.name, (0.0, 0.0)) for x in (a, b)]
    return max(f[0] for f in found), max(f[1] for f in found)


def assert_close(actual, expected, *, allow_subclasses=True, rtol=None, atol=None, equal_nan=False, check_device=True,
                 check_dtype=True, check_layout=True, check_stride=False, msg=None):
    """Raises AssertionError where |actual - expected| > atol + rtol |expected|, or shapes or dtypes differ. Tensors,
    numbers, and lists and dicts of them."""
    options = dict(rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=check_device, check_dtype=check_dtype,
                   check_stride=check_stride)
    wrong = _difference(actual, expected, "", options)
    if wrong:
        raise AssertionError(wrong if msg is None else msg(wrong) if callable(msg) else msg)


def _difference(a, b, where, options):
    if isinstance(b, collections.abc.Mapping) and isinstance(a, collections.abc.Mapping):
        if set(a) != set(b):
            return f"The keys of the mappings do not match{where}: {sorted(map(str, set(a) ^ set(b)))}"
        return next(filter(None, (_difference(a[k], b[k], f"{where}[{k!r}]", options) for k in b)), None)
    if isinstance(b, collections.abc.Sequence) and isinstance(a, collections.abc.Sequence) and not isinstance(b, str):
        if len(a) != len(b):
            return f"The length of the sequences mismatch{where}: {len(a)} != {len(b)}"
        return next(filter(None, (_difference(x, y, f"{where}[{i}]", options)
                                  for i, (x, y) in enumerate(zip(a, b)))), None)
    if a is None or b is None:
        return None if a is b else f"None mismatch{where}: {a} is not {b}"
    if not isinstance(a, Tensor) and not isinstance(b, Tensor) and type(a) is not type(b) and options["check_dtype"]:
        if not (isinstance(a, (int, float)) and isinstance(b, (int, float))):
            return f"The types do not match{where}: {type(a)} and {type(b)}"
    x, y = (v if isinstance(v, Tensor) else _creation.tensor(v, dtype=_float64() if isinstance(v, float) else None)
            for v in (a, b))
    return _of_tensors(x, y, where, options)


def _float64():
    from ._types import float64
    return float64


def _of_tensors(x, y, where, options):
    at = f" of {where}" if where else ""
    if x.shape != y.shape:
        return f"The values{at} for attribute 'shape' do not match: {x.shape} != {y.shape}."
    if options["check_device"] and x.device != y.device:
        return f"The values{at} for attribute 'device' do not match: {x.device} != {y.device}."
    if options["check_dtype"] and x.dtype is not y.dtype:
        return f"The values{at} for attribute 'dtype' do not match: {x.dtype} != {y.dtype}."
    if options["check_stride"] and x.stride() != y.stride():
        return f"The values{at} for attribute 'stride()' do not match: {x.stride()} != {y.stride()}."
    rtol, atol = _tolerances(x, y, options["rtol"], options["atol"])
    x, y = x.detach().cpu(), y.detach().cpu()
    kind = _float64() if x.dtype.is_floating_point or y.dtype.is_floating_point or x.dtype is bool_ else x.dtype
    close = _functions.isclose(x.to(kind), y.to(kind), rtol, atol, options["equal_nan"])
    if bool(close.all()):
        return None
    wrong, n = close.logical_not(), close.numel()
    off = (x.to(_float64()) - y.to(_float64())).abs()
    worst = off[wrong].nan_to_num(float("inf")).max().item() if n else 0.0
    share = (off / y.to(_float64()).abs())[wrong].nan_to_num(float("inf")).max().item() if n else 0.0
    n_wrong = int(wrong.sum())
    return (f"Tensor-likes are not close{at}!\n\nMismatched elements: {n_wrong} / {n} ({100 * n_wrong / n:.1f}%)\n"
            f"Greatest absolute difference: {worst} (up to {atol} allowed)\n"
            f"Greatest relative difference: {share} (up to {rtol} allowed)")


def assert_allclose(actual, expected, rtol=None, atol=None, equal_nan=True, msg=""):
    """The older form of assert_close."""
    assert_close(actual, expected if isinstance(expected, Tensor) else _creation.tensor(expected), rtol=rtol, atol=atol,
                 equal_nan=equal_nan, check_device=False, check_dtype=False, msg=msg or None)


def make_tensor(*shape, dtype, device="cpu", low=None, high=None, requires_grad=False, noncontiguous=False,
                exclude_zero=False, memory_format=None):
    """Random numbers between low and high: of floats [-9, 9), of integers [-9, 10), of bool [0, 2)."""
    shape = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    if dtype is bool_:
        x = _creation.randint(0, 2, shape, device=device).bool()
    elif dtype.is_floating_point:
        low, high = -9 if low is None else low, 9 if high is None else high
        x = (_creation.rand(*shape, device=device) * (high - low) + low).to(dtype)
    else:
        low, high = (-9 if dtype.is_signed else 0) if low is None else low, 10 if high is None else high
        x = _creation.randint(int(low), int(high), shape, dtype=dtype, device=device)
    if exclude_zero:
        x = _functions.where(x == 0, 1, x)
    if noncontiguous and x.numel() > 1:
        x = _functions.repeat_interleave(x, 2, dim=-1)[..., ::2]
    return x.requires_grad_() if requires_grad else x
