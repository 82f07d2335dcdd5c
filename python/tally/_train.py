"""Whole runs.

    summary = tally.train(model="tiny", steps=200, out="runs/first",
                          on_step=lambda news: print(news["step"], news["loss"]))

`tally.train` does the same as the command `tally train`: it prices the run before the start, keeps it in its own folder
and resumes it if it was stopped. `tally train --settings` lists the settings.
"""
import ctypes
import json
import signal
import threading

from ._library import c, header, lib
from ._ledger import _taken
from ._pages import Price, Summary

_StopHook = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_set_stop_hook = ctypes.CFUNCTYPE(None, _StopHook, ctypes.c_void_p)(("tl_set_stop_hook", c))

_train = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, header.callbacks["tl_train_fn"],
                          ctypes.c_void_p)(("tl_train", c))


def _json(settings):
    for name, value in settings.items():
        if hasattr(value, "__fspath__"):
            settings[name] = value.__fspath__()
    return json.dumps(settings)


def train_settings():
    """Every setting of a run with its default."""
    return json.loads(_taken(lib.tl_train_settings()))


def train_price(**settings):
    """The price of a run, a dictionary of schema tally.run/1: for each kind of step, the number of such steps and the
    ledger of one. A notebook shows it as a page."""
    with _Deferred() as deferred:
        try:
            price = _taken(lib.tl_train_price(_json(settings)))
        except BaseException:
            if not deferred.raised:
                raise
    deferred.reraise()
    return Price(json.loads(price))


class _Deferred:
    """Signal handlers written in Python run during a long call of the library, but their exceptions wait until it has
    ended, which they make it do soon: a run is saved first.

    The interpreter runs a handler when it next runs Python code: here, at the entry of a callback, where nothing could
    catch an exception and ctypes would drop it. The stop hook is such a callback where the call has no other. Handlers
    can be set only in the main thread, which is also the only one they run in."""
    _open = []  # of the main thread: a callback may begin another call, whose handlers are those of the first

    def __init__(self):
        self.raised = []

    def __enter__(self):
        self._before = {}
        self._hook = None
        if threading.current_thread() is threading.main_thread():
            self._hook = _StopHook(lambda _: any(each.raised for each in self._open))
            self._open.append(self)
            _set_stop_hook(self._hook, None)
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._handle)
        return self

    def _handle(self, number, frame):
        try:
            self._before[number](number, frame)
        except BaseException as error:
            self.raised.append(error)

    def __exit__(self, *_):
        if self._hook:
            self._open.pop()
            _set_stop_hook(self._open[-1]._hook if self._open else _StopHook(), None)
        for number, handler in reversed(self._before.items()):  # Ctrl-C among the last: what it raises skips the rest
            if signal.getsignal(number) == self._handle:  # else on_step has set one of its own
                signal.signal(number, handler)

    def reraise(self):
        """After the call: raises what a handler raised, instead of the error that the stopped call has recorded."""
        if self.raised:
            c.tl_error_clear()
            raise self.raised[0]


def train(on_step=None, **settings):
    """Trains, or resumes the run in `out`, and returns the summary: "end" is "done", "stopped" or "not finite". A
    notebook shows it as the run's page.

    on_step(news) is called for every step, evaluation (with "held_out") and sample (with "text"). If it returns False,
    the run finishes the step, saves and ends as "stopped". If it raises, the run does the same and the exception is
    raised again; so is one from a signal handler, such as KeyboardInterrupt on Ctrl-C in the main thread. The same call
    resumes the run. A process trains one run at a time."""
    said_stop = []

    @header.callbacks["tl_train_fn"]
    def tell(news, _):
        try:
            if not deferred.raised and on_step is not None and on_step(json.loads(news)) is False:
                said_stop.append(True)
        except BaseException as error:
            deferred.raised.append(error)
        return not deferred.raised and not said_stop

    text = _json(settings).encode()
    with _Deferred() as deferred:
        address = _train(text, tell, None)
    raised = deferred.raised[0] if deferred.raised else None
    try:
        summary = json.loads(_taken(address))
    except BaseException as error:  # the run was not saved: that is worse than what stopped it
        raise error from raised
    if raised is not None:
        raise raised
    if summary["end"] == "stopped" and not said_stop:
        raise RuntimeError("the run was stopped, and saved, by an exception that Python has dropped")
    return Summary(summary)
