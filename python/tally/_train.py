"""Whole runs, and the models they leave.

    summary = tally.train(model="tiny", steps=200, out="runs/first", on_step=lambda news: print(news["step"], news["loss"]))
    model = tally.Model("runs/first")
    model.generate("Once upon a time")

A run is what `tally train` makes: priced before it starts, resumed where it stopped, with a folder of its own. Its settings are those that
`tally train --settings` lists.
"""
import ctypes
import json

from . import autograd
from ._creation import tensor, zeros
from ._library import c, header, lib, structs
from ._ledger import _taken
from ._tensor import Tensor
from ._types import as_device, int64

_train = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, header.callbacks["tl_train_fn"], ctypes.c_void_p)(("tl_train", c))


def _json(settings):
    for name, value in settings.items():
        if hasattr(value, "__fspath__"):
            settings[name] = value.__fspath__()
    return json.dumps(settings)


def train_settings():
    """Every setting of a run with its default."""
    return json.loads(_taken(lib.tl_train_settings()))


def train_price(**settings):
    """What a run would cost, as a dictionary of schema tally.run/1: for each kind of step how often it comes, and the ledger of one."""
    return json.loads(_taken(lib.tl_train_price(_json(settings))))


def train(on_step=None, **settings):
    """Trains, or goes on where the run in `out` stopped, and returns the summary: "end" is "done", "stopped" or "not finite".

    on_step(news) hears of every step, evaluation ("held_out" is there) and sample ("text" is there). If it returns False, the step is finished,
    the run is saved and ends as "stopped". What it raises does the same, and is raised again. The same call goes on."""
    raised = []

    @header.callbacks["tl_train_fn"]
    def tell(news, _):
        try:
            return not raised and (on_step is None or on_step(json.loads(news)) is not False)
        except BaseException as error:  # Ctrl-C too: the run is saved first
            raised.append(error)
            return False

    address = _train(_json(settings).encode(), tell, None)
    if raised:
        c.tl_error_clear()
        if address:
            _taken(address)
        raise raised[0]
    return json.loads(_taken(address))


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
        """What follows the prompt. A str (for models whose tokens are bytes) gives a str with the prompt in front; numbers of tokens, one row or
        several, give a tensor of them. seed: None takes the thread's generator (tally.manual_seed)."""
        is_text = isinstance(prompt, str)
        if is_text and self.config["vocabulary"] != 256:
            raise ValueError(f"this model has {self.config['vocabulary']} tokens, not bytes: give the prompt as numbers of tokens")
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
