"""torch.special: special functions, some under other names than in the package itself."""
from ._composed import logit, xlogy  # noqa: F401
from ._functions import erf, erfc, exp2, expm1, log1p, log_softmax, logsumexp, round, softmax  # noqa: F401
from ._functions import sigmoid as expit  # noqa: F401
from ._special import (  # noqa: F401
    digamma as psi, digamma, entr, erfcx, erfinv, gammaln, i0, i0e, i1, i1e, log_ndtr, multigammaln, ndtr, ndtri,
    polygamma, sinc, spherical_bessel_j0, xlog1py, zeta)
from ._special import (chebyshev_polynomial_t, chebyshev_polynomial_u, chebyshev_polynomial_v,  # noqa: F401
                       chebyshev_polynomial_w, hermite_polynomial_h, hermite_polynomial_he, laguerre_polynomial_l,
                       legendre_polynomial_p, shifted_chebyshev_polynomial_t, shifted_chebyshev_polynomial_u,
                       shifted_chebyshev_polynomial_v, shifted_chebyshev_polynomial_w)


def __getattr__(name):
    from ._missing import message
    raise AttributeError(message("special." + name, "special"), name=name)
