"""Trained models, and the texts that they write.

    model = tally.Model("runs/first")                                    # or a Hugging Face folder, or a GGUF file
    model.generate("Once upon a time", tokens=100, temperature=0.8, seed=1)
    model.generate(["A cat", "A dog"], stop="\\n")                       # together; a list of texts
    for piece in model.generate("Once", stream=True): print(piece, end="", flush=True)
"""
import ctypes
import os

from . import autograd
from ._creation import tensor, zeros
from ._library import c, lib, structs
from ._numpy import known, np
from ._tensor import Tensor
from ._tokenizer import Tokenizer
from ._types import as_device, int64

_MOST_ROWS = 256
_MOST_ENDS = 64


class Model:
    """A trained model of language: from a run's folder, one of its checkpoints, a Hugging Face folder, or a GGUF file.

    `tokenizer` is the model's own; give a Tokenizer, or the path of one, to use another, or False for none. `eos` has
    the ids of the tokens that end a text: "eos_token_id" of the folder's generation_config.json or config.json, of a
    GGUF file its metadata, and otherwise the tokenizer's end of text."""

    def __init__(self, path, device=None, tokenizer=None):
        self._address = None
        self.device = as_device(device or "cpu")
        name = os.fsencode(getattr(path, "__fspath__", lambda: path)())
        own, template = ctypes.c_void_p(), ctypes.c_bool()
        wanted = ctypes.byref(own) if tokenizer is None else None
        self._address = c.tl_model_open_text(name, self.device.address, wanted, ctypes.byref(template))
        if not self._address:
            autograd._raise()
        self._template = template.value
        if own:
            tokenizer = Tokenizer.__new__(Tokenizer)._own(own.value)
        elif tokenizer is not None and tokenizer is not False and not isinstance(tokenizer, Tokenizer):
            tokenizer = Tokenizer(tokenizer)
        self.tokenizer = tokenizer or None
        ends = (ctypes.c_int64 * _MOST_ENDS)()
        n = c.tl_model_ends(name, self.tokenizer._address if self.tokenizer else None, ends, _MOST_ENDS)
        if n < 0:
            autograd._raise()
        self.eos = list(ends[:n])
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

    def generate(self, prompt, tokens=200, temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0,
                 stop=(), seed=None, batch=8, stream=False, eos=None, ignore_eos=False):
        """Continues the prompt by up to `tokens` tokens.

            prompt                                    result                                 with stream=True
            a str                                     a str that begins with the prompt      an iterator of str
            a list of str                             a list of str, in the same order       ... of (index, str)
            token ids of one length: (P,) or (B,P)    a tensor (B, P + up to tokens)
            a list of rows of different lengths       a list of lists of ids                 ... of (index, id)

        A text needs the model's tokenizer. `stop`: a str, or several: a text ends before the first of them that
        appears in what is generated. Streamed pieces are whole characters, without the prompt.

        A row ends with the first of the ids `eos` (an id or several; None: the model's, Model.eos) that it draws,
        unless ignore_eos is true. The id is the last of a row, and no part of a text. In a tensor, rows that end before
        others are filled up with it.

        Texts of a list, and rows of different lengths, are continued together, `batch` at a time, each as it would be
        alone: text i draws from seed + i. seed None takes the next numbers of the thread's generator
        (tally.manual_seed) as the seed; a tensor of ids is drawn row by row with that generator itself, or with one
        that begins at `seed`. temperature 0 takes the likeliest token. top_k, top_p, min_p and repetition_penalty are
        those of `tally generate`."""
        ends = [] if ignore_eos else self.eos if eos is None else [eos] if isinstance(eos, int) else list(eos)
        ids = (ctypes.c_int64 * len(ends))(*ends)
        options = structs["tl_generate_options"](temperature, top_k, top_p, min_p, repetition_penalty,
                                                 ctypes.cast(ids, ctypes.c_void_p), len(ends))
        options.ids = ids  # which it points to
        stops = [stop] if isinstance(stop, str) else list(stop)
        if isinstance(prompt, str) or _is_list_of(prompt, str):
            texts = self._texts([prompt] if isinstance(prompt, str) else prompt, tokens, options, stops, seed, batch,
                                ends)
            if stream:
                return (piece for _, piece in texts.pieces()) if isinstance(prompt, str) else texts.pieces()
            all_texts = texts.whole()
            return all_texts[0] if isinstance(prompt, str) else all_texts
        if stops:
            raise ValueError("stop: texts end at a stop string, and this prompt is token ids")
        rows = None if isinstance(prompt, (Tensor, known.ndarray)) else _ragged(prompt)
        if rows is None and stream:
            rows = self._tokens(prompt).tolist()
        if rows is None:
            return self._fill(self._tokens(prompt), tokens, options, seed, ends)
        steps = self._steps(rows, tokens, options, seed, batch, set(), ends)
        if stream:
            return steps
        for index, id in steps:
            rows[index].append(id)
        return rows

    def _fill(self, before, tokens, options, seed, ends):
        """(B,P) of ids with tokens behind them, all rows drawn with one generator."""
        text = _room(before, tokens)
        generator = c.tl_generator_get()
        if seed is not None:
            c.tl_seed(seed)
        ok = c.tl_generate(self._address, lib.address_of(text), before.shape[1], ctypes.byref(options))
        if seed is not None:
            c.tl_generator_set(generator)
        if not ok:
            autograd._raise()
        if not ends or tokens < 1:
            return text
        has_ended = np.isin(text.numpy()[:, before.shape[1]:], ends).all(0)  # of token n: all rows have ended by then
        return text[:, :before.shape[1] + int(np.argmax(has_ended)) + 1] if has_ended.any() else text

    def _texts(self, prompts, tokens, options, stops, seed, batch, ends):
        if self.tokenizer is None:
            raise ValueError(f"this model has {self.config['vocabulary']} tokens and no tokenizer: give the prompt as "
                             "token ids, or tally.Model(path, tokenizer=...)")
        rows = [self.tokenizer.encode(text or "\n", allowed_special="all", template=self._template) or [0]
                for text in prompts]
        ended = set()
        steps = self._steps(rows, tokens, options, seed, batch, ended, ends)
        return _Texts(self.tokenizer, rows, stops, ended, steps, set(ends))

    def _steps(self, rows, tokens, options, seed, batch, ended, ends):
        """Yields (index, id), token by token, until every row has as many as it should, or one of the ids `ends`; the
        caller puts the index of a row that has ended for another reason into `ended`."""
        if not 1 <= batch <= _MOST_ROWS:
            raise ValueError(f"batch is {batch} (need 1 to {_MOST_ROWS})")
        if tokens < 1 or not rows:
            return iter(())
        if seed is None:
            seed = int(np.uint64(np.frombuffer(_bits(), np.uint64)[0]) >> np.uint64(1))
        return self._run(rows, tokens, options, seed, min(batch, len(rows)), ended, ends)

    def _run(self, rows, tokens, options, seed, n_rows, ended, ends):
        capacity = min(max(map(len, rows)) + tokens - 1, self.config["context"])
        session = c.tl_session_new(self._address, n_rows, max(capacity, 1))
        if not session:
            autograd._raise()
        try:
            waiting, active, made, drawn = iter(enumerate(rows)), {}, [0] * len(rows), (ctypes.c_int64 * n_rows)()
            while True:
                while len(active) < n_rows and (item := next(waiting, None)):
                    ids = (ctypes.c_int64 * len(item[1]))(*item[1])
                    row = c.tl_session_open(session, ids, len(item[1]), ctypes.byref(options), seed + item[0])
                    if row < 0:
                        autograd._raise()
                    active[row] = item[0]
                if not active:
                    return
                if not c.tl_session_step(session, drawn):
                    autograd._raise()
                for row, index in list(active.items()):
                    made[index] += 1
                    yield index, drawn[row]
                    if index in ended or made[index] == tokens or drawn[row] in ends:
                        c.tl_session_close(session, row)
                        del active[row]
        finally:
            c.tl_session_free(session)

    def _tokens(self, tokens):
        x = tokens if isinstance(tokens, Tensor) else tensor(tokens, dtype=int64)
        return (x if x.ndim == 2 else x.view(1, -1)).to(self.device)


class _Text:
    """One text: tokens in, whole characters out, up to a stop string."""

    def __init__(self, tokenizer, ids, stops):
        self._tokenizer, self._decoder, self._stops = tokenizer, tokenizer.decoder(), [s for s in stops if s]
        self.prompt = "".join(self._decode(id) for id in ids)
        self._text, self._given, self.is_ended = "", 0, False  # what was generated, and how much of it is out

    def _decode(self, id):
        try:
            return self._decoder.add(id)
        except ValueError:  # models may have more ids than their tokenizer
            return self._decoder.end() + "?"

    def _take(self, more):
        longest = max(map(len, self._stops), default=0)
        begin = max(len(self._text) - longest, 0)
        self._text += more
        found = [at for at in (self._text.find(stop, begin) for stop in self._stops) if at >= 0]
        self.is_ended = bool(found)
        if found:
            self._text = self._text[:min(found)]

    def _out(self, held=0):
        end = len(self._text) - held
        piece = self._text[self._given:end]
        self._given = max(self._given, end)
        return piece

    def add(self, id):
        self._take(self._decode(id))
        if self.is_ended:
            return self._out()
        held = 0  # what may be the beginning of a stop string
        for stop in self._stops:
            held = max([held] + [n for n in range(1, len(stop)) if self._text.endswith(stop[:n])])
        return self._out(held)

    def end(self):
        if not self.is_ended:
            self._take(self._decoder.end())
        return self._out()


class _Texts:
    def __init__(self, tokenizer, rows, stops, ended, steps, ends):
        self._texts, self._ended, self._steps = [_Text(tokenizer, ids, stops) for ids in rows], ended, steps
        self._ends = ends

    def pieces(self):
        """(index, piece) as they come."""
        for index, id in self._steps:
            text = self._texts[index]
            piece = "" if id in self._ends else text.add(id)
            if text.is_ended:
                self._ended.add(index)
            if piece:
                yield index, piece
        for index, text in enumerate(self._texts):
            if rest := text.end():
                yield index, rest

    def whole(self):
        parts = [[text.prompt] for text in self._texts]
        for index, piece in self.pieces():
            parts[index].append(piece)
        return ["".join(part) for part in parts]


def _is_list_of(x, kind):
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(isinstance(item, kind) for item in x)


def _ragged(prompt):
    """The rows of a list of rows with different lengths; None: it is something else."""
    if not isinstance(prompt, (list, tuple)) or not all(hasattr(row, "__len__") for row in prompt):
        return None
    return [list(map(int, row)) for row in prompt] if len({len(row) for row in prompt}) > 1 else None


def _bits():
    """Eight bytes of the thread's generator."""
    from ._creation import randint
    return randint(0, 256, (8,), dtype=int64).numpy().astype(np.uint8).tobytes()


def _room(prompt, n):
    """The prompt (B,P) with n places behind it."""
    text = zeros(prompt.shape[0], prompt.shape[1] + n, dtype=int64, device=prompt.device)
    text[:, :prompt.shape[1]] = prompt
    return text
