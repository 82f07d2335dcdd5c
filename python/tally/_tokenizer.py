"""Tokenizers: text to tokens and back.

    tokenizer = tally.Tokenizer("gpt2-folder")                 # or tokenizer.json, tekken.json, cl100k_base.tiktoken
    tokenizer = tally.Tokenizer.bytes()                        # or .chars(text)
    ids = tokenizer.encode("Hello world")
    tokenizer.decode(ids)
    tokenizer = tally.Tokenizer.train(["book.txt"], 8192)      # or .train_from_texts(texts)
    tokenizer.save("folder")

Special tokens are treated as in tiktoken: a text that contains one is refused, unless `allowed_special` has it or
`disallowed_special` is empty.
"""
import ctypes
import os

from . import _errors
from ._library import c, constants, structs
from ._numpy import np
from ._train import _Deferred

_Options, _Encoding = structs["tl_encode_options"], structs["tl_encoding"]
# The generated prototypes have texts as char *, which would stop at a zero byte: here, texts are addresses and lengths.
_voidp, _size, _long = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64


def _function(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)((name, c))


_chars = _function("tl_tokenizer_chars", _voidp, ctypes.c_char_p, _size)
_encode = _function("tl_tokenizer_encode", ctypes.c_bool, _voidp, _voidp, _voidp, _long, _voidp, _voidp)
_decode = _function("tl_tokenizer_decode", _voidp, _voidp, _voidp, _long, ctypes.c_bool, _voidp)
_token = _function("tl_tokenizer_token", _voidp, _voidp, _long, _voidp)
_find = _function("tl_tokenizer_find", _long, _voidp, ctypes.c_char_p, _size)
_encoder_add = _function("tl_encoder_add", ctypes.c_bool, _voidp, ctypes.c_char_p, _size, _voidp)
_decoder_add = _function("tl_decoder_add", _voidp, _voidp, _voidp, _long, _voidp)
_decoder_end = _function("tl_decoder_end", _voidp, _voidp, _voidp)
_bpe_add = _function("tl_bpe_add", ctypes.c_bool, _voidp, ctypes.c_char_p, _size)
_bpe_train = _function("tl_bpe_train", _voidp, _voidp)
_free = ctypes.CDLL(None).free
_free.argtypes = [_voidp]
_TIES = {"greater": constants["TL_TIES_GREATER"], "huggingface": constants["TL_TIES_HUGGING_FACE"]}
_POLICY = {name: constants["TL_SPECIAL_" + name.upper()] for name in ("refuse", "allow", "text")}


def _raise():
    status, message = c.tl_error(), c.tl_error_message().decode(errors="replace")
    c.tl_error_clear()
    error = _errors.from_status(status, message)
    raise ValueError(message) if type(error) is RuntimeError else error


def _bytes_of(text):
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)


def _array(address, type, count):
    """A copy of C's array; an empty one may be at NULL."""
    if not count:
        return np.empty(0, type)
    return np.frombuffer((ctypes.c_char * (count * np.dtype(type).itemsize)).from_address(address), type).copy()


class _Result:
    """A tl_encoding that is freed, and the arrays in it."""

    def __init__(self):
        self.c = _Encoding()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        c.tl_encoding_free(ctypes.byref(self.c))

    def _pointer(self, name):
        return ctypes.cast(getattr(self.c, name), _voidp).value

    def ids(self):
        return _array(self._pointer("ids"), np.int32, self.c.count)

    def offsets(self):
        return _array(self._pointer("offsets"), np.int64, 2 * self.c.count).reshape(-1, 2)

    def starts(self):
        return _array(self._pointer("starts"), np.int64, self.c.n_texts + 1)


class _Bpe:
    """A tl_bpe that is freed."""

    def __init__(self, vocab_size, *, encoding="gpt2", special_tokens=("<|endoftext|>",), ties="greater", min_count=1):
        if ties not in _TIES:
            raise ValueError(f"ties is {ties!r} (need 'greater' or 'huggingface')")
        special = [_bytes_of(token) for token in special_tokens]
        options = c.tl_bpe_defaults()
        options.vocabulary, options.encoding, options.ties = vocab_size, encoding.encode(), _TIES[ties]
        keep = (ctypes.c_char_p * len(special))(*special)
        options.special, options.n_special = ctypes.cast(keep, _voidp), len(special)
        options.min_count = min_count
        self.address = c.tl_bpe_new(ctypes.byref(options))
        if not self.address:
            _raise()

    def __enter__(self):
        return self.address

    def __exit__(self, *_):
        c.tl_bpe_free(self.address)


def _figures(f):
    """Of a tl_tokenize_figures."""
    tokens = f.tokens[0] + f.tokens[1]
    return {"tokens": f.tokens[0], "documents": f.recorded[0], "val_tokens": f.tokens[1],
            "val_documents": f.recorded[1], "longest_document": f.longest, "text_bytes": f.text_bytes,
            "bytes_per_token": f.text_bytes / tokens if tokens else 0.0, "input_files": f.files,
            "ignored_files": f.ignored, "skipped_lines": f.bad, "used_bytes": f.used, "total_bytes": f.total,
            "resumed": f.is_resumed, "seconds": f.seconds}


class Tokenizer:
    """A tokenizer from a file or a folder: Hugging Face's tokenizer.json, Mistral's tekken.json, GPT-2's vocab.json
    and merges.txt, or tiktoken's ranks, for which `encoding` names pattern and special tokens (`encodings()`)."""

    def __init__(self, path, encoding=None):
        name = None if encoding is None else encoding.encode()
        self._own(c.tl_tokenizer_read(os.fsencode(path), name))

    def _own(self, address):
        self._address = address
        if not address:
            _raise()
        return self

    @classmethod
    def bytes(cls):
        """Each byte is a token."""
        return cls.__new__(cls)._own(c.tl_tokenizer_bytes())

    @classmethod
    def chars(cls, text):
        """The distinct characters of a text are the tokens, as in nanoGPT."""
        data = _bytes_of(text)
        return cls.__new__(cls)._own(_chars(data, len(data)))

    @classmethod
    def train(cls, files, vocab_size=8192, **options):
        """Byte-level BPE learned from files, each of which is one text. Memory is proportional to the distinct words.

        `encoding`: whose pattern cuts words ("gpt2"). `special_tokens` (["<|endoftext|>"]): text is cut at them, and
        they are not counted. `ties`: of equally frequent pairs, "greater" merges the one of the greater bytes,
        "huggingface" the one of the smaller ids, as Hugging Face's BpeTrainer does; ids are then also as there.
        `min_count`: pairs that occur less often are not merged. The vocabulary is smaller than asked if no pair is
        left."""
        paths = [os.fsencode(path) for path in ([files] if isinstance(files, (str, os.PathLike)) else files)]
        with _Bpe(vocab_size, **options) as bpe:
            array = (ctypes.c_char_p * len(paths))(*paths)
            return cls._learn(lambda: c.tl_bpe_add_files(bpe, array, len(paths)) and _bpe_train(bpe))

    @classmethod
    def train_from_texts(cls, texts, vocab_size=8192, **options):
        """The same from an iterable of texts, str or bytes."""
        with _Bpe(vocab_size, **options) as bpe:
            for text in texts:
                data = _bytes_of(text)
                if not _bpe_add(bpe, data, len(data)):
                    _raise()
            return cls._learn(lambda: _bpe_train(bpe))

    @classmethod
    def _learn(cls, call):
        """What a signal's handler raises, such as KeyboardInterrupt on Ctrl-C, ends the call."""
        with _Deferred() as deferred:
            address = call()
        if deferred.raised and address:
            c.tl_tokenizer_free(address)
        deferred.reraise()
        return cls.__new__(cls)._own(address)

    def save(self, folder, format="json"):
        """Writes tokenizer.json ("json"), vocab.json and merges.txt ("gpt2") or tokenizer.tiktoken ("ranks") into a
        folder. For bytes, characters and byte-level BPE with a well-known pattern, whatever file it was read from."""
        if not c.tl_tokenizer_save(self._address, os.fsencode(folder), format.encode()):
            _raise()

    def encode_files(self, files, out, *, val_out=None, val_share=0.01, seed=1, field="text", format=None,
                     separator=None, end_token="default", special="text", skip_bad=False, restart=False, threads=0,
                     save_every=15.0, progress=None):
        """Writes the tokens of files to the token file `out`, as `tally tokenize` does, and returns the figures.

        `files`: a path or several, of texts, JSON lines (the text is in `field`), either of them with gzip or zstd,
        and folders of such files. `format`: "text" or "jsonl", if the names do not say it. `separator` cuts texts into
        documents: "blank-line" or any text. `end_token`, an id, follows each document; the default is the tokenizer's
        end of text, None is no token. Special tokens inside documents are ordinary text (`special`="text"), tokens
        ("allow"), or an error ("refuse"). With `val_out`, the share `val_share` of the documents goes to that file.

        `progress(figures)` is called after each batch. If it returns False or raises, or a signal's handler raises,
        such as KeyboardInterrupt on Ctrl-C, the work so far is saved, and the same call continues it, unless
        restart=True; the final file is the same."""
        paths = [os.fsencode(path) for path in ([files] if isinstance(files, (str, os.PathLike)) else files)]
        o = c.tl_tokenize_defaults(self._address)
        o.val_out = None if val_out is None else os.fsencode(val_out)
        o.val_share, o.seed, o.field, o.threads, o.save_every_s = val_share, seed, field.encode(), threads, save_every
        o.format, o.separator = (None if text is None else text.encode() for text in (format, separator))
        if end_token != "default":
            o.end_token = -1 if end_token is None else end_token
        o.special, o.skips_bad, o.restarts = _POLICY[special], skip_bad, restart
        figures = structs["tl_tokenize_figures"]()

        @ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(structs["tl_tokenize_figures"]), ctypes.c_void_p)
        def tell(now, _):
            try:
                if not deferred.raised and progress is not None and progress(_figures(now.contents)) is False:
                    return False
            except BaseException as error:
                deferred.raised.append(error)
            return not deferred.raised

        o.progress = ctypes.cast(tell, ctypes.c_void_p)
        with _Deferred() as deferred:
            array = (ctypes.c_char_p * len(paths))(*paths)
            ok = c.tl_tokenize_files(self._address, array, len(paths), os.fsencode(out), ctypes.byref(o),
                                     ctypes.byref(figures))
        deferred.reraise()
        if not ok:
            _raise()
        return _figures(figures)

    @staticmethod
    def encodings():
        """The names of encodings that ranks may belong to."""
        names = []
        while (name := c.tl_tokenizer_encoding(len(names))) is not None:
            names.append(name.decode())
        return names

    def __del__(self):
        if getattr(self, "_address", None):
            c.tl_tokenizer_free(self._address)

    # ---- the vocabulary

    def __len__(self):
        return c.tl_tokenizer_size(self._address)

    @property
    def n_vocab(self):
        """Ids are smaller than this."""
        return len(self)

    @property
    def hash(self):
        """Identifies the vocabulary in token files."""
        return c.tl_tokenizer_hash(self._address)

    def token_bytes(self, id):
        """The bytes of a token; KeyError if no token has the id."""
        n = _size()
        address = _token(self._address, int(id), ctypes.byref(n))
        if not address:
            raise KeyError(id)
        return ctypes.string_at(address, n.value)

    def token_id(self, token):
        """The id of a token by its text or bytes; None if there is none."""
        data = _bytes_of(token)
        id = _find(self._address, data, len(data))
        return None if id < 0 else id

    def is_special(self, id):
        return c.tl_tokenizer_is_special(self._address, int(id))

    @property
    def end_of_text(self):
        """The id of the token that ends a text, such as <|endoftext|>; None if there is none."""
        id = c.tl_tokenizer_end_of_text(self._address)
        return None if id < 0 else id

    @property
    def special_tokens(self):
        """The special tokens and their ids."""
        return {self.token_bytes(i).decode(errors="replace"): i for i in range(len(self)) if self.is_special(i)}

    # ---- encoding

    def _options(self, texts, allowed, disallowed, template, offsets):
        o = c.tl_encode_defaults()
        o.has_template, o.has_offsets = template, offsets
        names = [] if allowed == "all" else [_bytes_of(name) for name in allowed]
        for name in () if disallowed == "all" else map(_bytes_of, disallowed):  # as in tiktoken, also if it is allowed
            for data in texts:
                if name in data:
                    raise ValueError(f"the text contains the special token {name.decode(errors='replace')!r} at byte "
                                     f"{data.index(name)}, which disallowed_special has")
        if allowed == "all":
            o.special = _POLICY["allow"]
        elif disallowed != "all":
            o.special = _POLICY["text"]
        keep = (ctypes.c_char_p * len(names))(*names)
        o.allowed, o.n_allowed = ctypes.cast(keep, _voidp), len(names)
        return o, keep

    def _run(self, texts, result, allowed, disallowed, template, offsets):
        data = [_bytes_of(text) for text in texts]
        options, keep = self._options(data, allowed, disallowed, template, offsets)
        pointers = (ctypes.c_char_p * len(data))(*data)
        sizes = (_size * len(data))(*map(len, data))
        if not _encode(self._address, pointers, sizes, len(data), ctypes.byref(options), ctypes.byref(result.c)):
            _raise()
        del keep

    def encode_to_numpy(self, text, *, allowed_special=(), disallowed_special="all", template=False):
        """The ids of a text (str, or any bytes) as an int32 array."""
        with _Result() as result:
            self._run([text], result, allowed_special, disallowed_special, template, False)
            return result.ids()

    def encode(self, text, **options):
        """The ids of a text (str, or any bytes). allowed_special: special tokens that become their ids, or "all".
        disallowed_special: those that are refused, "all" others by default; () encodes them as text. template=True adds
        the tokens that the file prescribes around a text, such as <s>."""
        return self.encode_to_numpy(text, **options).tolist()

    def encode_batch_to_numpy(self, texts, *, allowed_special=(), disallowed_special="all", template=False):
        """(ids, starts) of several texts, on all threads: text i has ids[starts[i]:starts[i + 1]]."""
        with _Result() as result:
            self._run(texts, result, allowed_special, disallowed_special, template, False)
            return result.ids(), result.starts()

    def encode_batch(self, texts, **options):
        """The ids of several texts, on all threads, in their order."""
        ids, starts = self.encode_batch_to_numpy(texts, **options)
        return [ids[a:b].tolist() for a, b in zip(starts[:-1], starts[1:])]

    def encode_with_offsets(self, text, *, unit="bytes", allowed_special=(), disallowed_special="all", template=False):
        """(ids, offsets): what each token covers, [begin, end), in bytes of UTF-8; unit="chars": in characters."""
        if unit not in ("bytes", "chars"):
            raise ValueError(f'unit is {unit!r} (need "bytes" or "chars")')
        with _Result() as result:
            self._run([text], result, allowed_special, disallowed_special, template, True)
            ids, offsets = result.ids(), result.offsets()
        if unit == "chars":
            begins = (np.frombuffer(_bytes_of(text), np.uint8) & 0xC0) != 0x80
            before = np.concatenate([[0], np.cumsum(begins)])  # characters that begin before a byte
            inside = np.concatenate([~begins, [False]])
            offsets = np.stack([before[offsets[:, 0]] - inside[offsets[:, 0]], before[offsets[:, 1]]], axis=1)
        return ids.tolist(), [tuple(pair) for pair in offsets.tolist()]

    def encoder(self, *, allowed_special=(), disallowed_special="all", template=False):
        """For a text that comes in parts: `add(part)` and `end()` return the ids that are certain by then."""
        if disallowed_special not in ("all", (), []):
            raise ValueError('encoder: disallowed_special is "all" or ()')
        return TextEncoder(self, self._options([], allowed_special, disallowed_special, template, False))

    # ---- decoding

    def decode_bytes(self, ids, *, skip_special=False):
        """The bytes of ids."""
        array, n = np.ascontiguousarray(ids, dtype=np.int32), _size()
        address = _decode(self._address, array.ctypes.data, array.size, skip_special, ctypes.byref(n))
        if not address:
            _raise()
        try:
            return ctypes.string_at(address, n.value)
        finally:
            _free(address)

    def decode(self, ids, *, skip_special=False, errors="replace"):
        """The text of ids. What is not UTF-8 is treated as bytes.decode(errors=...) does."""
        return self.decode_bytes(ids, skip_special=skip_special).decode("utf-8", errors)

    def decoder(self, *, skip_special=False):
        """For tokens that come one by one: `add(id)` returns the text that is complete by then, `end()` the rest."""
        return TextDecoder(self, skip_special)


class TextEncoder:
    """Made by Tokenizer.encoder."""

    def __init__(self, tokenizer, options):
        self._address = c.tl_encoder_new(tokenizer._address, ctypes.byref(options[0]))
        if not self._address:
            _raise()

    def __del__(self):
        if getattr(self, "_address", None):
            c.tl_encoder_free(self._address)

    def add(self, text):
        data = _bytes_of(text)
        with _Result() as result:
            if not _encoder_add(self._address, data, len(data), ctypes.byref(result.c)):
                _raise()
            return result.ids().tolist()

    def end(self):
        with _Result() as result:
            if not c.tl_encoder_end(self._address, ctypes.byref(result.c)):
                _raise()
            return result.ids().tolist()


class TextDecoder:
    """Made by Tokenizer.decoder."""

    def __init__(self, tokenizer, skip_special):
        self._address = c.tl_decoder_new(tokenizer._address, skip_special)
        if not self._address:
            _raise()

    def __del__(self):
        if getattr(self, "_address", None):
            c.tl_decoder_free(self._address)

    def _text(self, address, n):
        if not address:
            _raise()
        return ctypes.string_at(address, n.value).decode("utf-8", "replace")

    def add(self, ids):
        array, n = np.ascontiguousarray(np.atleast_1d(ids), dtype=np.int32), _size()
        return self._text(_decoder_add(self._address, array.ctypes.data, array.size, ctypes.byref(n)), n)

    def end(self):
        n = _size()
        return self._text(_decoder_end(self._address, ctypes.byref(n)), n)
