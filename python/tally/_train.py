"""Whole runs, and trained models.

    summary = tally.train(model="tiny", steps=200, out="runs/first",
                          on_step=lambda news: print(news["step"], news["loss"]))
    model = tally.Model("runs/first")
    model.generate("Once upon a time")

`tally.train` does the same as the command `tally train`: it prices the run before the start, keeps it in its own folder
and resumes it if it was stopped. `tally train --settings` lists the settings.
"""
import ctypes
import json
import signal
import threading

from . import autograd
from ._creation import tensor, zeros
from ._library import c, header, lib, structs
from ._ledger import _taken
from ._tensor import Tensor
from ._types import as_device, int64

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
    ledger of one."""
    return json.loads(_taken(lib.tl_train_price(_json(settings))))


class _Deferred:
    """Signal handlers written in Python run during the run, but their exceptions wait until the run is saved.

    The interpreter runs a handler when it next runs Python code: here, at the entry of the callback, where nothing
    could catch an exception and ctypes would drop it. Handlers can be set only in the main thread, which is also the
    only one they run in."""

    def __init__(self):
        self.raised = []

    def __enter__(self):
        self._before = {}
        if threading.current_thread() is threading.main_thread():
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
        for number, handler in reversed(self._before.items()):  # Ctrl-C among the last: what it raises skips the rest
            if signal.getsignal(number) == self._handle:  # else on_step has set one of its own
                signal.signal(number, handler)


def train(on_step=None, **settings):
    """Trains, or resumes the run in `out`, and returns the summary: "end" is "done", "stopped" or "not finite".

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
    return summary


class Model:
    """A trained model of language: from a run's folder, a checkpoint's, or one of Hugging Face's."""

    def __init__(self, path, device=None):
        self._address = None
        self.device = as_device(device or "cpu")
        self._address = lib.tl_model_open(getattr(path, "__fspath__", lambda: path)(), self.device.address)
        if not self._address:
            autograd._raise()
        config = c.tl_model_config_of(self._address)
        config = ctypes.cast(config, ctypes.POINTER(structs["tl_model_config"])).contents
        self.config = {name: getattr(config, name) for name, _ in config._fields_ if name != "rope_scaling"}

    def __del__(self):
        if self._address:
            c.tl_module_free(self._address)

    def __repr__(self):
        family = c.tl_family_name(self.config["family"]).decode()
        return f"Model({family}, {self.num_parameters()} parameters)"

    def num_parameters(self):
        return c.tl_module_parameters(self._address)

    def logits(self, tokens):
        """tokens (B,T) -> (B,T,V)"""
        return lib.tl_model_logits(self._address, self._tokens(tokens))

    def generate(self, prompt, tokens=200, temperature=0.8, top_k=0, top_p=1.0, seed=None):
        """Continues the prompt. A str (for models whose tokens are bytes) returns a str that begins with the prompt;
        token ids, one row or several, return a tensor of ids. seed None uses the thread's generator
        (tally.manual_seed)."""
        is_text = isinstance(prompt, str)
        if is_text and self.config["vocabulary"] != 256:
            raise ValueError(f"this model has {self.config['vocabulary']} tokens, not bytes: give the prompt as "
                             "numbers of tokens")
        before = self._tokens(list(prompt.encode() or b"\n") if is_text else prompt)
        text = _room(before, tokens)
        generator = c.tl_generator_get()
        if seed is not None:
            c.tl_seed(seed)
        options = structs["tl_generate_options"](temperature, top_k, top_p)
        ok = c.tl_generate(self._address, lib.address_of(text), before.shape[1], ctypes.byref(options))
        if seed is not None:
            c.tl_generator_set(generator)
        if not ok:
            autograd._raise()
        return bytes(text[0].tolist()).decode(errors="replace") if is_text else text

    def _tokens(self, tokens):
        x = tokens if isinstance(tokens, Tensor) else tensor(tokens, dtype=int64)
        return (x if x.ndim == 2 else x.view(1, -1)).to(self.device)


def _room(prompt, n):
    """The prompt (B,P) with n places behind it."""
    text = zeros(prompt.shape[0], prompt.shape[1] + n, dtype=int64, device=prompt.device)
    text[:, :prompt.shape[1]] = prompt
    return text
