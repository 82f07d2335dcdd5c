"""Gradient recording: on, off, and queries."""
import functools
import inspect

from ._library import c


class _Mode:
    """A context manager, and a decorator."""

    def __init__(self, on):
        self._on, self._before = on, []

    def __enter__(self):
        self._before.append(c.tl_set_grad_mode(self._on))

    def __exit__(self, *_):
        c.tl_set_grad_mode(self._before.pop())

    def _again(self):
        """A manager like this one, for one call."""
        return type(self)() if type(self) is not set_grad_enabled else set_grad_enabled(self._on)

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            return self._around_generator(function)

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)
        return wrapped

    def _around_generator(self, function):
        """The mode holds while the generator runs, and not where its values are used."""
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            generator = function(*args, **kwargs)
            step = functools.partial(next, generator)
            try:
                while True:
                    try:
                        with self._again():
                            value = step()
                    except StopIteration as end:
                        return end.value
                    try:
                        sent = yield value
                        step = functools.partial(generator.send, sent)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = functools.partial(generator.throw, error)
            finally:
                with self._again():
                    generator.close()
        return wrapped


class no_grad(_Mode):
    """Nothing is recorded inside."""

    def __init__(self):
        super().__init__(False)

    def __new__(cls, function=None):
        self = super().__new__(cls)
        if function is not None:  # @no_grad without brackets
            self.__init__()
            return self(function)
        return self


class inference_mode(no_grad):
    """As no_grad."""


class enable_grad(_Mode):
    """Recording is on inside."""

    def __init__(self):
        super().__init__(True)


class set_grad_enabled(_Mode):
    """Switches recording on or off, at once; as a context manager, puts it back at the end."""

    def __init__(self, mode):
        super().__init__(bool(mode))
        self._outer = c.tl_set_grad_mode(bool(mode))

    def __enter__(self):
        c.tl_set_grad_mode(self._on)
        self._before.append(self._outer)


def is_inference_mode_enabled():
    """False: inference_mode is no_grad here."""
    return False


def is_grad_enabled():
    """Is recording on in this thread?"""
    on = c.tl_set_grad_mode(True)
    c.tl_set_grad_mode(on)
    return on
