"""What a failing call raises: the class torch would raise, with our message.

The library tells wrong use, memory, I/O, device and system apart; which of Python's classes a wrong use is, the message tells: torch raises
IndexError for an axis or index that is not there, TypeError for what is no tensor, and RuntimeError for nearly all else.
"""
import re
import threading

from ._library import constants

_MEMORY, _IO, _SYSTEM = (constants["TL_ERROR_" + name] for name in ("MEMORY", "IO", "SYSTEM"))
_INDEX = ("out of range", "out of bounds", "too many indices", "has no dimensions")
_PLAIN = re.compile(r"\b(gather|scatter\w*|take_along\w*): index|selected index k out of range")  # torch: RuntimeError
state = threading.local()  # .raised: what a callback raised while the library was running


class OutOfMemoryError(RuntimeError):
    """The pool of a device could not give what was asked; the message has the amount asked and the amount live."""


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
    if _PLAIN.search(message):
        return RuntimeError(message)
    if any(phrase in message for phrase in _INDEX):
        return IndexError(message)
    return RuntimeError(message)
