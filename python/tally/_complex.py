"""Complex numbers: a pair of floats per element. Conjugates are computed at once: no tensor is lazily conjugated."""
import math

from . import _functions as f
from ._library import lib
from ._types import BY_NAME, get_default_dtype


def scalar(value, kind, device):
    """A complex number as a tensor without axes, of a complex dtype."""
    part = kind.to_real().code
    return lib.tl_complex(lib.tl_full((), value.real, part, device), lib.tl_full((), value.imag, part, device))


def beside(value, tensor):
    """A complex number that meets a tensor: it makes complex numbers of floats, as wide as they are."""
    kind = f._dtype_of(tensor)
    kind = kind if kind.is_inexact and kind.bits >= 32 else get_default_dtype()
    return scalar(value, kind.to_complex(), lib.tl_device_of(tensor))


def item(x):
    """The only element of a complex tensor."""
    pair = lib.tl_view_as_real(lib.tl_detach(x))
    return complex_number(*(lib.tl_item(lib.tl_select(pair, -1, i)) for i in (0, 1)))


complex_number = complex  # the function below has the name


def drawn(draw, shape, kind, device, scale=1.0):
    """Random complex numbers: both parts drawn alike."""
    pairs = draw((*shape, 2), 0.0, 1.0, kind.to_real().code, device)
    return lib.tl_view_as_complex(lib.tl_mul_scalar(pairs, scale) if scale != 1 else pairs)


HALF = math.sqrt(0.5)  # of a complex normal number of variance 1, the deviation of each part


def is_complex(input):
    """Is its dtype complex?"""
    return lib.tl_is_complex(input)


def view_as_real(input):
    """(...) complex as (...,2) real; a view."""
    return lib.tl_view_as_real(input)


def view_as_complex(input):
    """(...,2) real as (...) complex; a view."""
    return lib.tl_view_as_complex(input)


def complex(real, imag, *, out=None):
    """real + i imag"""
    y = lib.tl_complex(real, imag)
    return y if out is None else f._into(out, y)


def polar(abs, angle, *, out=None):
    """abs (cos angle + i sin angle)"""
    y = lib.tl_polar(abs, angle)
    return y if out is None else f._into(out, y)


def real(input):
    """The real part, a view; of a real tensor, the tensor itself."""
    return lib.tl_real(input)


def imag(input):
    """The imaginary part, a view."""
    return lib.tl_imag(input)


def conj(input):
    """x - iy for x + iy, computed at once; of a real tensor, the tensor itself."""
    return lib.tl_conj(input)


def conj_physical(input, *, out=None):
    """x - iy for x + iy."""
    y = lib.tl_conj(input)
    return y if out is None else f._into(out, y)


def angle(input, *, out=None):
    """The argument, in radians; of a real number 0 or pi."""
    y = lib.tl_angle(input)
    return y if out is None else f._into(out, y)


def resolve_conj(input):
    """The tensor itself: conjugates are computed at once."""
    return input


def resolve_neg(input):
    """The tensor itself: nothing is lazily negated."""
    return input


def is_conj(input):
    """False: conjugates are computed at once."""
    return False


def is_neg(input):
    """False: nothing is lazily negated."""
    return False


def sgn(input, *, out=None):
    """x / |x|, and 0 for 0."""
    if not lib.tl_is_complex(input):
        return f.sign(input, out=out)
    size = lib.tl_abs(input)
    nothing = f.eq(size, 0)
    y = f.where(nothing, lib.tl_zeros((), lib.tl_dtype_of(input), lib.tl_device_of(input)),
                lib.tl_div(input, f.where(nothing, 1.0, size)))
    return y if out is None else f._into(out, y)


def isreal(input):
    """Is the imaginary part 0?"""
    if not lib.tl_is_complex(input):
        return lib.tl_full(lib.shape_of(input), 1.0, BY_NAME["bool"].code, lib.tl_device_of(input))
    return f.eq(lib.tl_imag(input), 0)


METHODS = "is_complex conj conj_physical angle resolve_conj resolve_neg is_conj is_neg sgn isreal".split()
__all__ = METHODS + "view_as_real view_as_complex complex polar real imag".split()
