"""torch.signal: windows, as functions of `signal.windows`."""
import math
import sys
import types

from . import _creation
from . import _functions as f
from ._special import i0
from ._types import float64, get_default_dtype


def _finish(y, dtype, device, requires_grad):
    y = y.to(get_default_dtype() if dtype is None else dtype)
    y = y if device is None else y.to(device)
    return y.requires_grad_() if requires_grad else y


def _window(shape):
    """shape(M, sym, ...) gives the window in f64."""
    def window(M, *args, sym=True, dtype=None, layout=None, device=None, requires_grad=False, **options):
        if M < 0:
            raise ValueError(f"{shape.__name__} requires non-negative window length, got M={M}")
        if dtype is not None and not dtype.is_floating_point:
            raise ValueError(f"{shape.__name__} expects float32 or float64 dtypes, got: {dtype}")
        made = (shape(M, M if not sym else M - 1, *args, **options) if M > 1
                else _creation.ones(M, dtype=float64))
        return _finish(made, dtype, device, requires_grad)
    window.__name__, window.__doc__ = shape.__name__, shape.__doc__
    return window


def _steps(M):
    return _creation.arange(M, dtype=float64)


@_window
def general_cosine(M, n, *, a):
    """sum of (-1)^k a[k] cos(2 pi k t / n)"""
    if not a:
        raise ValueError("Coefficients cannot be empty")
    t, total = _steps(M) * (2 * math.pi / n), None
    for k, c in enumerate(a):
        part = f.cos(t * k) * ((-1) ** k * float(c))
        total = part if total is None else total + part
    return total


@_window
def general_hamming(M, n, *, alpha=0.54):
    """alpha - (1 - alpha) cos(2 pi t / n)"""
    return alpha - f.cos(_steps(M) * (2 * math.pi / n)) * (1 - alpha)


def _cosines(name, coefficients):
    def shape(M, n):
        t, total = _steps(M) * (2 * math.pi / n), None
        for k, c in enumerate(coefficients):
            part = f.cos(t * k) * ((-1) ** k * c)
            total = part if total is None else total + part
        return total
    shape.__name__, shape.__doc__ = name, "A sum of cosines."
    return _window(shape)


hamming, hann = _cosines("hamming", (0.54, 0.46)), _cosines("hann", (0.5, 0.5))
blackman = _cosines("blackman", (0.42, 0.5, 0.08))
nuttall = _cosines("nuttall", (0.3635819, 0.4891775, 0.1365995, 0.0106411))


@_window
def bartlett(M, n):
    """A triangle."""
    return 1 - (_steps(M) * (2 / n) - 1).abs()


@_window
def cosine(M, n):
    """sin(pi (t + 1/2) / (n + 1))"""
    return f.sin((_steps(M) + 0.5) * (math.pi / (n + 1)))


@_window
def exponential(M, n, *, center=None, tau=1.0):
    """e^(-|t - center| / tau)"""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    return f.exp((_steps(M) - (n / 2 if center is None else center)).abs() * (-1 / tau))


@_window
def gaussian(M, n, *, std=1.0):
    """e^(-(t - n/2)^2 / 2 std^2)"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return f.exp(((_steps(M) - n / 2) / (std * math.sqrt(2))) ** 2 * -1)


@_window
def kaiser(M, n, *, beta=12.0):
    """i0(beta sqrt(1 - (2 t / n - 1)^2)) / i0(beta)"""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    inside = (1 - (_steps(M) * (2 / n) - 1) ** 2).clamp(min=0)
    return i0(f.sqrt(inside) * beta) / i0(_creation.tensor(beta, dtype=float64))


windows = types.ModuleType(__name__ + ".windows", "Windows of signals.")
for _name in """general_cosine general_hamming hamming hann blackman nuttall bartlett cosine exponential gaussian
kaiser""".split():
    setattr(windows, _name, globals()[_name])
sys.modules[windows.__name__] = windows
