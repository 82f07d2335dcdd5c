"""torch.fft: discrete Fourier transforms. The library transforms one axis (tl_fft and its like); those of several axes
are made of it, one after the other."""
from . import _creation
from . import _functions as f
from ._library import constants, lib
from ._types import float64, get_default_dtype

_NORMS = {None: "BACKWARD", "backward": "BACKWARD", "ortho": "ORTHO", "forward": "FORWARD"}
_OTHER = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _norm(norm):
    if norm not in _NORMS:
        raise RuntimeError(f"Invalid normalization mode: \"{norm}\"")
    return constants["TL_FFT_" + _NORMS[norm]]


def _float(x):
    """Integers and bool as the default float; 16-bit floats have no transform."""
    if not x.dtype.is_inexact:
        return x.to(get_default_dtype())
    if x.dtype.bits < 32:
        raise RuntimeError(f"Unsupported dtype {f._scalar_name(x)}")
    return x


def _length(n):
    if n is not None and n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return 0 if n is None else n


def _out(out, y):
    return y if out is None else f._into(out, y)


# ---- One axis ----

def fft(input, n=None, dim=-1, norm=None, *, out=None):
    """The transform along an axis."""
    return _out(out, lib.tl_fft(_float(input), _length(n), dim, _norm(norm)))


def ifft(input, n=None, dim=-1, norm=None, *, out=None):
    """The inverse transform along an axis."""
    return _out(out, lib.tl_ifft(_float(input), _length(n), dim, _norm(norm)))


def rfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The transform of real numbers: the n/2 + 1 numbers that determine the rest."""
    return _out(out, lib.tl_rfft(_float(input), _length(n), dim, _norm(norm)))


def irfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The inverse of rfft; n is 2 (size - 1) unless it is given."""
    return _out(out, lib.tl_irfft(_float(input), _length(n), dim, _norm(norm)))


def hfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The transform of numbers whose mirror images are their conjugates: real numbers."""
    return _out(out, irfft(lib.tl_conj(_float(input)), n, dim, _other(norm)))


def ihfft(input, n=None, dim=-1, norm=None, *, out=None):
    """The inverse of hfft, of real numbers."""
    return _out(out, lib.tl_conj(rfft(input, n, dim, _other(norm))))


def _other(norm):
    _norm(norm)
    return _OTHER[norm]


# ---- Several axes ----

def _axes(input, s, dim):
    """The axes, and the sizes that are asked for, None where there is none."""
    sizes = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is None:
        n = input.ndim if sizes is None else len(sizes)
        if n > input.ndim:
            raise RuntimeError("Got shape with more values than input has dimensions.")
        axes = list(range(input.ndim - n, input.ndim))
    else:
        axes = [f._axis(d, input.ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    if len(set(axes)) != len(axes):
        raise RuntimeError("FFT dims must be unique")
    if sizes is not None and len(sizes) != len(axes):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    return axes, [None if n == -1 else n for n in sizes or [None] * len(axes)]


def _along(transform, x, axes, sizes, norm):
    for axis, n in zip(axes, sizes):
        x = transform(x, n, axis, norm)
    return x


def fftn(input, s=None, dim=None, norm=None, *, out=None):
    """The transform along several axes."""
    axes, sizes = _axes(input, s, dim)
    _norm(norm)
    x = _float(input)
    return _out(out, _along(fft, x if x.dtype.is_complex else x.to(x.dtype.to_complex()), axes, sizes, norm))


def ifftn(input, s=None, dim=None, norm=None, *, out=None):
    """The inverse transform along several axes."""
    axes, sizes = _axes(input, s, dim)
    _norm(norm)
    x = _float(input)
    return _out(out, _along(ifft, x if x.dtype.is_complex else x.to(x.dtype.to_complex()), axes, sizes, norm))


def rfftn(input, s=None, dim=None, norm=None, *, out=None):
    """The transform of real numbers along several axes, the last of which is halved."""
    axes, sizes = _axes(input, s, dim)
    if not axes:
        raise RuntimeError("rfftn must transform at least one axis")
    half = rfft(input, sizes[-1], axes[-1], norm)
    return _out(out, _along(fft, half, axes[:-1], sizes[:-1], norm))


def irfftn(input, s=None, dim=None, norm=None, *, out=None):
    """The inverse of rfftn."""
    axes, sizes = _axes(input, s, dim)
    if not axes:
        raise RuntimeError("irfftn must transform at least one axis")
    return _out(out, irfft(_along(ifft, _float(input), axes[:-1], sizes[:-1], norm), sizes[-1], axes[-1], norm))


def hfftn(input, s=None, dim=None, norm=None, *, out=None):
    """hfft along the last of several axes, fft along the others."""
    axes, sizes = _axes(input, s, dim)
    if not axes:
        raise RuntimeError("hfftn must transform at least one axis")
    return _out(out, hfft(_along(fft, _float(input), axes[:-1], sizes[:-1], norm), sizes[-1], axes[-1], norm))


def ihfftn(input, s=None, dim=None, norm=None, *, out=None):
    """The inverse of hfftn."""
    axes, sizes = _axes(input, s, dim)
    if not axes:
        raise RuntimeError("ihfftn must transform at least one axis")
    half = ihfft(input, sizes[-1], axes[-1], norm)
    return _out(out, _along(ifft, half, axes[:-1], sizes[:-1], norm))


def _two(name, function):
    def call(input, s=None, dim=(-2, -1), norm=None, *, out=None):
        return function(input, s, dim, norm, out=out)
    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{function.__name__} of two axes."
    return call


fft2, ifft2, rfft2, irfft2 = (_two("fft2", fftn), _two("ifft2", ifftn), _two("rfft2", rfftn), _two("irfft2", irfftn))
hfft2, ihfft2 = _two("hfft2", hfftn), _two("ihfft2", ihfftn)


# ---- Frequencies and their order ----

def fftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False, out=None):
    """The frequencies of fft's results: 0, 1, ..., then the negative ones, over n d."""
    numbers = _creation.arange(n, dtype=float64, device=device)
    numbers = f.where(f.ge(numbers, (n + 1) // 2), f.sub(numbers, n), numbers)
    return _frequencies(numbers, n, d, dtype, requires_grad, out)


def rfftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False, out=None):
    """The frequencies of rfft's results: 0 to n/2, over n d."""
    return _frequencies(_creation.arange(n // 2 + 1, dtype=float64, device=device), n, d, dtype, requires_grad, out)


def _frequencies(numbers, n, d, dtype, requires_grad, out):
    y = f.mul(numbers, 1.0 / (n * d)).to(dtype or get_default_dtype())
    return _out(out, y.requires_grad_() if requires_grad else y)


def _shift(input, dim, sign):
    axes = range(input.ndim) if dim is None else [f._axis(d, input.ndim) for d in
                                                  ([dim] if isinstance(dim, int) else dim)]
    shifts = [input.size(a) // 2 if sign > 0 else -(input.size(a) // 2) for a in axes]
    return f.roll(input, shifts, list(axes)) if shifts else lib.tl_clone(input)


def fftshift(input, dim=None):
    """Moves the frequency 0 to the middle."""
    return _shift(input, dim, 1)


def ifftshift(input, dim=None):
    """The inverse of fftshift."""
    return _shift(input, dim, -1)
