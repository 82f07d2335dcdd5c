"""Exceptions of failing calls: the class that torch would raise, with Tally's message.

The library distinguishes wrong use, memory, I/O, device and system errors. For wrong use, the message determines
Python's class: torch raises IndexError for a missing axis or index, TypeError for something that is not a tensor, and
RuntimeError for nearly everything else.
"""
import re
import threading

from ._library import constants

_MEMORY, _IO, _SYSTEM = (constants["TL_ERROR_" + name] for name in ("MEMORY", "IO", "SYSTEM"))
_INDEX = ("out of range", "out of bounds", "too many indices", "has no dimensions")
_PLAIN = re.compile(r"\b(gather|scatter\w*|take_along\w*): index|selected index k out of range")  # torch: RuntimeError
state = threading.local()  # .raised: what a callback raised while the library was running


class OutOfMemoryError(RuntimeError):
    """A device's pool ran out of memory; the message has the bytes requested and the bytes in use."""


class LinAlgError(RuntimeError):
    """A matrix that cannot be factored: singular, not positive-definite, or not finite."""


_LINALG = re.compile(r"not positive-definite|is singular|failed to converge")


def from_status(status, message):
    """The exception for an error of the library."""
    raised = getattr(state, "raised", None)
    if raised is not None:  # a callback's own exception is the true cause
        state.raised = None
        return raised
    if status == _MEMORY:
        return OutOfMemoryError(message)
    if status in (_IO, _SYSTEM):
        return OSError(message)
    if "got NULL instead of a tensor" in message:
        return TypeError(message)
    if _LINALG.search(message):
        return LinAlgError(message)
    if _PLAIN.search(message):
        return RuntimeError(message)
    if any(phrase in message for phrase in _INDEX):
        return IndexError(message)
    return RuntimeError(message)
