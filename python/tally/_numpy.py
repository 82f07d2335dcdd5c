"""NumPy, imported when it is first needed: its import takes longer than the rest of Tally's."""
import functools
import sys


class _Numpy:
    """`np.zeros` imports NumPy and is its zeros from then on."""

    def __getattr__(self, name):
        import numpy
        value = getattr(numpy, name)
        setattr(self, name, value)
        return value


class _Known:
    """NumPy's types, for isinstance: before NumPy is imported nothing is an instance of them, and `known.ndarray` is an
    empty tuple of types."""

    def __getattr__(self, name):
        value = getattr(sys.modules.get("numpy"), name, None)
        if value is None:
            return ()
        setattr(self, name, value)
        return value


np = _Numpy()
known = _Known()


@functools.lru_cache(None)
def narrow_dtypes():
    """The package that gives NumPy the narrow floats, or None: it is not required."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return ml_dtypes
