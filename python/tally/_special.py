"""Special functions with torch's names, composed from the library's ops: the ledger bills these, and gradients come
from them. What f32 is not exact enough for is computed in f64 and rounded once."""
import math

from . import _functions as f
from ._creation import arange, linspace
from ._grad import no_grad
from ._library import lib
from ._types import BY_NAME, bool_, finfo, float32, float64, get_default_dtype, int64, promote_types

_INT32 = BY_NAME["int32"]


def _real(x):
    """Integers and bool become the default float."""
    return x if x.dtype.is_inexact else x.to(get_default_dtype())


def _double(x):
    """In f64; complex numbers are refused."""
    f._refuse_complex("this function", x)
    return x.to(float64)


def _wide(compute):
    """In f64, rounded once to the dtype of the arguments."""
    def call(*tensors):
        f._refuse_complex(compute.__name__, *tensors)
        tensors = [_real(x) for x in tensors]
        kind = tensors[0].dtype
        for x in tensors[1:]:
            kind = promote_types(kind, x.dtype)
        return compute(*(x.to(float64) for x in tensors)).to(kind)
    call.__name__, call.__doc__ = compute.__name__, compute.__doc__
    return call


def _tensors(input, other):
    """Both as tensors: a number takes the other's kind."""
    if not f.is_tensor(input):
        input = f._full_like_number(input, other)
    if not f.is_tensor(other):
        other = f._full_like_number(other, input)
    return input, other


# ---- Circular and hyperbolic functions ----

def _root(x):
    """sqrt((1 - x) (1 + x))"""
    return f.sqrt(f.mul(lib.tl_rsub_scalar(x, 1), f.add(x, 1)))


@_wide
def asin(x):
    """The angle whose sine is x."""
    return f.atan2(x, _root(x))


@_wide
def acos(x):
    """The angle whose cosine is x."""
    return f.atan2(_root(x), x)


@_wide
def asinh(x):
    """log(x + sqrt(x^2 + 1)), without loss of digits."""
    a = f._magnitude(x)
    far = f.gt(a, 1e150)
    safe = f.where(far, 1.0, a)
    root = f.sqrt(f.add(f.square(safe), 1))
    near = f.log1p(f.add(safe, f.div(f.square(safe), f.add(root, 1))))
    y = f.where(far, f.add(f.log(f.where(far, a, 1.0)), math.log(2)), near)
    return f.where(f.lt(x, 0), f.neg(y), y)


@_wide
def acosh(x):
    """log(x + sqrt(x^2 - 1)), without loss of digits."""
    far = f.gt(x, 1e150)
    t = f.sub(f.where(far, 1.5, x), 1)
    near = f.log1p(f.add(t, f.sqrt(f.add(f.mul(t, 2), f.square(t)))))
    return f.where(far, f.add(f.log(f.where(far, x, 1.0)), math.log(2)), near)


@_wide
def atanh(x):
    """log((1 + x) / (1 - x)) / 2"""
    return f.mul(f.sub(f.log1p(x), f.log1p(f.neg(x))), 0.5)


def sinc(input):
    """sin(pi x) / (pi x)"""
    x = f.mul(_real(input), math.pi)
    is_zero = f.eq(x, 0)
    safe = f.where(is_zero, 1.0, x)
    return f.where(is_zero, lib.tl_rsub_scalar(f.square(x), 1), f.div(f.sin(safe), safe))


# ---- Signs, exponents, neighbours ----

def copysign(input, other):
    """|input| with the sign of other, also of -0."""
    from ._composed import signbit
    input, other = _tensors(input, other)
    kind = f.result_type(input, other)
    kind = kind if kind.is_inexact else get_default_dtype()
    x = input.to(kind)
    is_negative = signbit(other)
    y = f.where(f.ne(signbit(x), is_negative), f.neg(x), x)
    zero = lib.tl_zeros(lib.shape_of(y), kind.code, lib.tl_device_of(x))  # without a gradient: at 0 there is none
    return f.where(f.eq(x, 0), f.where(is_negative, f.neg(zero), zero), y)


def ldexp(input, other):
    """input 2^other"""
    input, other = _tensors(input, other)
    return f.mul(input, f.pow(2.0, other))


def frexp(input):
    """(mantissa, exponent) with input = mantissa 2^exponent, 0.5 <= |mantissa| < 1."""
    import collections
    if not input.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    kind = collections.namedtuple("frexp", ["mantissa", "exponent"])
    with no_grad():
        x = input.to(float64)
        plain = f.logical_and(f.isfinite(x), f.ne(x, 0))
        safe = f.where(plain, f.abs(x), 1.0)
        e = f.add(f.floor(f.log2(safe)), 1)
        m = f.mul(safe, f.pow(2.0, f.neg(e)))
        e = f.where(f.ge(m, 1), f.add(e, 1), f.where(f.lt(m, 0.5), f.sub(e, 1), e))
        e = f.where(plain, e, 0.0)
    scale = f.pow(2.0, f.neg(e))
    return kind(f.mul(input.to(float64), scale).to(input.dtype), e.to(_INT32))


def heaviside(input, values):
    """0 below 0, 1 above, `values` at 0."""
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    above = f.gt(input, 0).to(input.dtype)
    return f.where(f.eq(input, 0), values, f.where(f.isnan(input), 0, above)
                   if input.dtype.is_floating_point else above)


def nextafter(input, other):
    """The next number from input in the direction of other."""
    kind = f.result_type(input, other)
    bits = {"float64": int64, "float32": _INT32}.get(kind.name)
    if bits is None:
        raise NotImplementedError(f"\"nextafter_cpu\" not implemented for '{f._SCALAR_NAMES.get(kind.name)}'")
    a, b = f.broadcast_tensors(input.to(kind), other.to(kind))
    with no_grad():
        whole = lib.tl_contiguous(a).view(bits)
        step = f.where(f.eq(f.gt(b, a), f.gt(a, 0)), 1, -1).to(bits)
        moved = f.add(whole, step).view(kind)
        tiny = lib.tl_full((), 1.0, bits.code, lib.tl_device_of(a)).view(kind)
        moved = f.where(f.eq(a, 0), f.where(f.gt(b, 0), tiny, f.neg(tiny)), moved)
        return f.where(f.logical_or(f.isnan(a), f.isnan(b)), math.nan, f.where(f.eq(a, b), b, moved))


def gcd(input, other):
    """The greatest common divisor."""
    input, other = _tensors(input, other)
    a, b = (f.abs(x) for x in f.broadcast_tensors(input, other))
    kind = f.result_type(a, b)
    if kind.is_floating_point or kind is bool_:
        raise NotImplementedError(f"\"gcd\" not implemented for '{f._SCALAR_NAMES.get(kind.name)}'")
    a, b = a.to(kind), b.to(kind)
    while bool(f.any(f.ne(b, 0))):  # at most as often as Euclid needs for the hardest pair
        safe = f.where(f.eq(b, 0), 1, b)
        a, b = f.where(f.eq(b, 0), a, b), f.where(f.eq(b, 0), 0, f.remainder(a, safe))
    return a


def lcm(input, other):
    """The least common multiple."""
    input, other = _tensors(input, other)
    g = gcd(input, other)
    safe = f.where(f.eq(g, 0), 1, g)
    return f.abs(f.mul(f.floor_divide(input, safe), other))


# ---- Gamma ----

_LANCZOS = [0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7]


def _digamma_positive(x):
    """For x > 0: by psi(x) = psi(x + 1) - 1 / x to x >= 8, then the asymptotic series."""
    total = f.mul(x, 0)
    for _ in range(8):
        small = f.lt(x, 8)
        total = f.where(small, f.sub(total, f.reciprocal(x)), total)
        x = f.where(small, f.add(x, 1), x)
    z = f.reciprocal(f.square(x))
    series = f.mul(x, 0)
    for c in (-1 / 12 * 1.0, 691 / 32760, -1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12):
        series = f.mul(f.add(series, c), z)
    return f.add(f.add(total, f.sub(f.log(x), f.mul(f.reciprocal(x), 0.5))), series)


def _turn(x):
    """pi times the distance of x from the nearest integer, for sines and tangents of pi x."""
    return f.mul(f.sub(x, f.round(x)), math.pi)


@_wide
def digamma(x):
    """d log Gamma(x) / dx"""
    below = f.le(x, 0)
    safe = f.where(below, lib.tl_rsub_scalar(x, 1), x)  # psi(1 - x) - pi / tan(pi x)
    positive = _digamma_positive(f.where(f.eq(safe, 0), 1.0, safe))
    r = _turn(x)
    reflected = f.sub(positive, f.mul(f.div(f.cos(r), f.sin(r)), math.pi))
    y = f.where(below, reflected, positive)
    y = f.where(f.eq(x, 0), f.neg(f.reciprocal(x)), y)
    return f.where(f.logical_and(f.lt(x, 0), f.eq(x, f.floor(x))), math.nan, y)


def _lgamma_positive(x):
    """For x > 0: Stirling's series at x + 8, less the logarithm of x (x + 1) .. (x + 7)."""
    small = f.lt(x, 8)
    product, y = f.add(f.mul(x, 0), 1), x
    for i in range(8):
        product = f.mul(product, f.where(small, f.add(x, i), 1.0))
    y = f.where(small, f.add(x, 8), x)
    z, series = f.reciprocal(f.square(y)), f.mul(y, 0)
    for c in (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = f.add(f.mul(series, z), c)
    stirling = f.add(f.sub(f.mul(f.sub(y, 0.5), f.log(y)), y), 0.5 * math.log(2 * math.pi))
    return f.sub(f.add(stirling, f.div(series, y)), f.log(product))


@_wide
def _lgamma(x):
    below = f.lt(x, 0.5)  # log(pi / |sin(pi x)|) - log Gamma(1 - x)
    positive = _lgamma_positive(f.where(below, lib.tl_rsub_scalar(x, 1), x))
    sine = f.abs(f.sin(_turn(x)))
    y = f.where(below, f.sub(lib.tl_rsub_scalar(f.log(sine), math.log(math.pi)), positive), positive)
    y = f.where(f.isinf(x), math.inf, y)
    return f.where(f.logical_and(f.le(x, 0), f.eq(x, f.floor(x))), math.inf, y)


class _Known:
    """A function whose derivative is another: forward is computed outside the graph."""

    def __init__(self, forward, slope):
        from .autograd import Function

        class Op(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return forward(x)

            @staticmethod
            def backward(ctx, grad):
                x, = ctx.saved_tensors
                return f.mul(grad, slope(x))
        self.op = Op

    def __call__(self, x):
        return self.op.apply(_real(x))


_known = {}


def _with_slope(name, forward, slope):
    if name not in _known:
        _known[name] = _Known(forward, slope)
    return _known[name]


def lgamma(input):
    """log |Gamma(x)|"""
    return _with_slope("lgamma", _lgamma, digamma)(input)


gammaln = lgamma


def zeta(input, other):
    """The sum of 1 / (other + k)^input over k = 0, 1, ...: twelve terms, then Euler and Maclaurin's formula."""
    input, other = _tensors(input, other)
    return _zeta(input, other)


_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798]


@_wide
def _zeta(s, q):
    s, q = f.broadcast_tensors(s, q)
    n, total = 12, f.mul(q, 0)
    pole = f.logical_and(f.le(q, 0), f.eq(q, f.floor(q)))
    base = f.where(pole, 1.0, q)
    for k in range(n):
        total = f.add(total, _power(f.add(base, k), f.neg(s)))
    a = f.add(base, n)
    tail = f.add(f.div(_power(a, lib.tl_rsub_scalar(s, 1)), f.sub(s, 1)), f.mul(_power(a, f.neg(s)), 0.5))
    rising, factorial = s, 1.0
    power = _power(a, f.sub(f.neg(s), 1))
    for i, b in enumerate(_BERNOULLI):
        factorial *= (2 * i + 1) * (2 * i + 2)
        tail = f.add(tail, f.mul(f.mul(rising, power), b / factorial))
        rising = f.mul(f.mul(rising, f.add(s, 2 * i + 1)), f.add(s, 2 * i + 2))
        power = f.div(power, f.square(a))
    y = f.add(total, tail)
    y = f.where(f.eq(s, 1), math.inf, y)
    y = f.where(pole, math.inf, y)
    bad = f.logical_or(f.lt(s, 1), f.logical_and(f.lt(q, 0), f.ne(s, f.floor(s))))
    return f.where(bad, math.nan, y)


def _power(x, s):
    return f.pow(x, s)


def polygamma(n, input):
    """The n-th derivative of digamma."""
    if f.is_tensor(n):
        n, input = input, n
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n == 0:
        return _with_slope("digamma", digamma, lambda x: polygamma(1, x))(input)
    sign, factorial = (-1) ** (n + 1), math.factorial(n)

    def forward(x):
        kind = _real(x).dtype
        x = _double(x)
        s = lib.tl_full((), n + 1.0, float64.code, lib.tl_device_of(x))
        if n == 1:  # reflected: pi^2 / sin^2(pi x) - psi_1(1 - x)
            below = f.lt(x, 0.5)
            y = _zeta(s, f.where(below, lib.tl_rsub_scalar(x, 1), x))
            sine = f.sin(_turn(x))
            y = f.where(below, f.sub(f.mul(f.reciprocal(f.square(sine)), math.pi ** 2), y), y)
        else:
            y = f.mul(_zeta(s, x), float(sign * factorial))
        return y.to(kind)
    return _with_slope(f"polygamma{n}", forward, lambda x: polygamma(n + 1, x))(input)


def mvlgamma(input, p):
    """log of the multivariate gamma function: p (p - 1) / 4 log pi + sum of log Gamma(x - i / 2)."""
    x = _real(input)
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    total = None
    for i in range(p):
        part = lgamma(f.sub(x, i / 2))
        total = part if total is None else f.add(total, part)
    return f.add(total, p * (p - 1) / 4 * math.log(math.pi))


multigammaln = mvlgamma


# ---- Error functions ----

@_wide
def erfcx(x):
    """e^(x^2) erfc(x): far out by the continued fraction."""
    near = f.mul(f.exp(f.square(f.clamp(x, -27, 5))), f.erfc(f.clamp(x, -27, 5)))
    far, t = f.clamp(x, min=4), None
    for k in range(40, 0, -1):
        t = f.div(f.add(f.mul(far, 0), k / 2), far if t is None else f.add(far, t))
    fraction = f.mul(f.reciprocal(f.add(far, t)), 1 / math.sqrt(math.pi))
    y = f.where(f.gt(x, 4.5), fraction, near)
    return f.where(f.lt(x, -26.7), math.inf, f.where(f.isnan(x), x, y))


@_wide
def _erfinv(x):
    """Giles' two polynomials, then three steps of Newton on erf, or on erfc near the ends."""
    a = f.abs(x)
    inside = f.lt(a, 1)
    a = f.where(inside, a, 0.5)
    w = f.neg(f.mul(f.log1p(f.neg(a)), 1.0))
    w = f.add(w, f.neg(f.log1p(a)))
    first, second = f.sub(w, 2.5), f.sub(f.sqrt(f.clamp(w, min=5)), 3)
    p = _polynomial(first, (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                            -0.00125372503,
                            -0.00417768164, 0.246640727, 1.50140941))
    q = _polynomial(second, (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                             -0.0076224613,
                             0.00943887047, 1.00167406, 2.83297682))
    y = f.mul(f.where(f.lt(w, 5), p, q), a)
    for _ in range(3):
        error = f.where(f.gt(a, 0.5), f.sub(lib.tl_rsub_scalar(a, 1), f.erfc(y)), f.sub(f.erf(y), a))
        step = f.mul(f.mul(error, f.exp(f.square(y))), math.sqrt(math.pi) / 2)
        y = f.sub(y, f.div(step, f.add(f.mul(y, step), 1)))
    y = f.where(inside, y, f.where(f.eq(f.abs(x), 1), math.inf, math.nan))
    return f.where(f.lt(x, 0), f.neg(y), f.where(f.isnan(x), x, y))


def _polynomial(x, coefficients):
    y = None
    for c in coefficients:
        y = f.add(f.mul(x, 0), c) if y is None else f.add(f.mul(y, x), c)
    return y


def erfinv(input):
    """The number whose erf is x."""
    return _with_slope("erfinv", _erfinv,
                       lambda x: f.mul(f.exp(f.square(erfinv(x))), math.sqrt(math.pi) / 2))(input)


def ndtr(input):
    """The normal distribution up to x: erfc(-x / sqrt 2) / 2."""
    return f.mul(f.erfc(f.mul(_real(input), -math.sqrt(0.5))), 0.5)


@_wide
def log_ndtr(x):
    """log of ndtr, also where that is 0."""
    low = f.lt(x, -1)
    t = f.mul(f.where(low, x, -1.0), -math.sqrt(0.5))
    tail = f.sub(f.log(f.mul(erfcx(t), 0.5)), f.square(t))
    return f.where(low, tail, f.log1p(f.mul(f.erfc(f.mul(f.where(low, 0.0, x), math.sqrt(0.5))), -0.5)))


@_wide
def _ndtri(x):
    y = f.mul(_erfinv(f.sub(f.mul(x, 2), 1)), math.sqrt(2))
    low = f.logical_and(f.lt(x, 0.02), f.gt(x, 0))  # 2 x - 1 has lost its digits there
    a = f.where(low, x, 0.01)
    z = f.neg(f.sqrt(f.mul(f.log(a), -2)))
    for _ in range(8):  # Newton on log Phi
        slope = f.mul(f.exp(f.sub(f.mul(f.square(z), -0.5), log_ndtr(z))), 1 / math.sqrt(2 * math.pi))
        z = f.sub(z, f.div(f.sub(log_ndtr(z), f.log(a)), slope))
    return f.where(low, z, y)


def ndtri(input):
    """The number up to which the normal distribution is x."""
    return _with_slope("ndtri", _ndtri, lambda x: f.mul(f.exp(f.mul(f.square(ndtri(x)), 0.5)),
                                                        math.sqrt(2 * math.pi)))(input)


# ---- Logarithms, entropies ----

def entr(input):
    """-x log x; 0 at 0, -infinity below."""
    from ._composed import xlogy
    x = _real(input)
    return f.where(f.lt(x, 0), -math.inf, f.neg(xlogy(x, x)))


def xlog1py(input, other):
    """input log1p(other), 0 where input is 0 (unless other is NaN)."""
    input, other = _tensors(input, other)
    kind = f.result_type(input, other)
    kind = kind if kind.is_inexact else float32
    x, y = input.to(kind), other.to(kind)
    nothing = f.logical_and(f.eq(x, 0), f.le(y, -1))
    return f.mul(x, f.log1p(f.where(nothing, 0.0, y)))


# ---- Bessel functions, by Chebyshev and power series ----

def _bessel_i(order, scaled):
    """sum (x/2)^(2k + order) / (k! (k + order)!), to |x| = 20; beyond it the asymptotic series."""
    def compute(x):
        a = f.abs(x)
        near = f.clamp(a, max=20)
        quarter, term = f.mul(f.square(near), 0.25), f.add(f.mul(near, 0), 1)
        total = term
        for k in range(1, 60):
            term = f.mul(f.mul(term, quarter), 1 / (k * (k + order)))
            total = f.add(total, term)
        total = f.mul(total, f.mul(near, 0.5)) if order else total
        total = f.mul(total, f.exp(f.neg(near)))
        far = f.clamp(a, min=20)
        part, series = 1.0, f.add(f.mul(far, 0), 1)
        inverse, power = f.reciprocal(far), f.add(f.mul(far, 0), 1)
        for k in range(1, 20):
            part *= -(4 * order * order - (2 * k - 1) ** 2) / (8 * k)
            power = f.mul(power, inverse)
            series = f.add(series, f.mul(power, part))
        series = f.mul(series, f.rsqrt(f.mul(far, 2 * math.pi)))
        y = f.where(f.gt(a, 20), series, total)
        y = y if scaled else f.mul(y, f.exp(a))
        return f.where(f.lt(x, 0), f.neg(y), y) if order else y
    return _wide(compute)


_i0, _i0e, _i1, _i1e = _bessel_i(0, False), _bessel_i(0, True), _bessel_i(1, False), _bessel_i(1, True)


def i0(input):
    """The modified Bessel function of the first kind, order 0."""
    return _with_slope("i0", _i0, i1)(input)


def i1(input):
    """The modified Bessel function of the first kind, order 1."""
    def slope(x):
        x = _real(x)
        safe = f.where(f.eq(x, 0), 1.0, x)
        return f.where(f.eq(x, 0), 0.5, f.sub(i0(x), f.div(i1(safe), safe)))
    return _with_slope("i1", _i1, slope)(input)


def i0e(input):
    """e^-|x| i0(x)"""
    return _with_slope("i0e", _i0e, lambda x: f.sub(i1e(x), f.mul(f.sign(x), i0e(x))))(input)


def i1e(input):
    """e^-|x| i1(x)"""
    def slope(x):
        safe = f.where(f.eq(x, 0), 1.0, x)
        inside = f.sub(i0e(x), f.mul(i1e(x), f.add(f.sign(x), f.reciprocal(safe))))
        return f.where(f.eq(x, 0), 0.5, inside)
    return _with_slope("i1e", _i1e, slope)(input)


def spherical_bessel_j0(input):
    """sin(x) / x"""
    x = _double(input)
    small = f.lt(f.abs(x), 0.5)
    z = f.square(f.where(small, x, 0.0))
    series = _polynomial(z, (1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0))
    safe = f.where(small, 1.0, x)
    y = f.where(f.isinf(x), 0.0, f.where(small, series, f.div(f.sin(safe), safe)))
    return y.to(_real(input).dtype)


# ---- Polynomials by their recurrences ----

def _recurrent(name, first, step, doc):
    """p(0) = 1, p(1) = first(x), p(n + 1) = step(n, x, p(n), p(n - 1)); n is a number or a tensor of them."""
    def function(input, n, *, out=None):
        input, n = _tensors(input, n)
        kind = f.result_type(_real(input), n)
        x, n = f.broadcast_tensors(_double(input), n)
        order = n.to(int64)
        before, now = f.add(f.mul(x, 0), 1), first(x)
        y = f.where(f.eq(order, 0), before, f.where(f.eq(order, 1), now, 0.0))
        for k in range(1, int(f.max(order).item()) if order.numel() else 1):
            before, now = now, step(k, x, now, before)
            y = f.where(f.eq(order, k + 1), now, y)
        y = y.to(kind)
        return y if out is None else f._into(out, y)
    function.__name__, function.__doc__ = name, doc
    return function


def _chebyshev(name, slope, shift, shifted):
    def at(x):
        return f.sub(f.mul(x, 2), 1) if shifted else x
    return _recurrent(name, lambda x: f.add(f.mul(at(x), slope), shift),
                      lambda k, x, now, before: f.sub(f.mul(f.mul(at(x), 2), now), before),
                      "A Chebyshev polynomial" + (" of 2 x - 1." if shifted else "."))


for _letter, _slope, _shift in (("t", 1, 0), ("u", 2, 0), ("v", 2, -1), ("w", 2, 1)):
    for _prefix in ("", "shifted_"):
        _name = f"{_prefix}chebyshev_polynomial_{_letter}"
        globals()[_name] = _chebyshev(_name, _slope, _shift, bool(_prefix))
hermite_polynomial_h = _recurrent("hermite_polynomial_h", lambda x: f.mul(x, 2),
                                  lambda k, x, now, before: f.sub(f.mul(f.mul(x, 2), now), f.mul(before, 2 * k)),
                                  "Hermite's polynomial of physics.")
hermite_polynomial_he = _recurrent("hermite_polynomial_he", lambda x: x,
                                   lambda k, x, now, before: f.sub(f.mul(x, now), f.mul(before, k)),
                                   "Hermite's polynomial of probability.")
laguerre_polynomial_l = _recurrent(
    "laguerre_polynomial_l", lambda x: lib.tl_rsub_scalar(x, 1),
    lambda k, x, now, before: f.mul(f.sub(f.mul(lib.tl_rsub_scalar(x, 2 * k + 1), now), f.mul(before, k)), 1 / (k + 1)),
    "Laguerre's polynomial.")
legendre_polynomial_p = _recurrent(
    "legendre_polynomial_p", lambda x: x,
    lambda k, x, now, before: f.mul(f.sub(f.mul(f.mul(x, 2 * k + 1), now), f.mul(before, k)), 1 / (k + 1)),
    "Legendre's polynomial.")

arccos, arcsin, arcsinh, arccosh, arctanh, arctan, arctan2 = acos, asin, asinh, acosh, atanh, f.atan, f.atan2
