"""Tokenizers beside tiktoken and Hugging Face's tokenizers, on mixed text: many scripts, code, emoji, noise, spaces.

TALLY_SOAK=1 encodes 20 MB with each tokenizer instead of half a megabyte.
"""

import functools
import itertools
import json
import os
import unicodedata

import numpy as np
import pytest
import tally
import vocabularies
from vocabularies import added, from_gpt2, from_llama2, from_ranks

tiktoken = pytest.importorskip("tiktoken", reason="tiktoken could not be installed")
tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers could not be installed")
SOAK = os.environ.get("TALLY_SOAK")
BYTES = 20_000_000 if SOAK else 500_000
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")


@functools.lru_cache
def texts():
    return vocabularies.mixed(BYTES)


def expect_same(tokenizer, ours, theirs, text):
    """Ids, with the place of the first difference."""
    if list(ours) == list(theirs):
        return
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    show = lambda ids: [tokenizer.token_bytes(i) for i in ids[max(0, at - 3) : at + 4]]  # noqa: E731
    raise AssertionError(
        f"token {at}: {show(ours)}, and the reference {show(theirs)}, in a text of {len(text)} characters"
    )


# ---- tiktoken


def openai(name, monkeypatch):
    """An encoding of tiktoken with its own pattern and special tokens, and ranks from here."""
    import tiktoken_ext.openai_public as public

    if name == "gpt2":
        gym = tiktoken.load.data_gym_to_mergeable_bpe_ranks(
            str(vocabularies.get("vocab.bpe")), str(vocabularies.get("encoder.json"))
        )
        monkeypatch.setattr(public, "data_gym_to_mergeable_bpe_ranks", lambda **_: gym)
    else:
        found = vocabularies.ranks(name + ".tiktoken")
        monkeypatch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: found)
    return tiktoken.Encoding(**getattr(public, name)())


def made(name, pattern):
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=vocabularies.ranks(name), special_tokens={})


def pair(name, monkeypatch):
    """(ours, tiktoken's)"""
    if name == "gpt2":
        vocabularies.get("encoder.json")
        return tally.Tokenizer(vocabularies.get("vocab.bpe")), openai(name, monkeypatch)
    if name == "llama3":
        return tally.Tokenizer(vocabularies.get("llama3.model")), made("llama3.model", LLAMA3)
    if name == "qwen":
        return tally.Tokenizer(vocabularies.get("qwen.tiktoken")), made("qwen.tiktoken", QWEN)
    if name == "tekken":
        data = json.loads(vocabularies.get("tekken.json").read_text(encoding="utf-8"))
        size = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
        import base64

        ranks = {base64.b64decode(v["token_bytes"]): v["rank"] for v in data["vocab"][:size]}
        return tally.Tokenizer(vocabularies.get("tekken.json")), tiktoken.Encoding(
            name, pat_str=data["config"]["pattern"], mergeable_ranks=ranks, special_tokens={}
        )
    return tally.Tokenizer(vocabularies.get(name + ".tiktoken")), openai(name, monkeypatch)


@pytest.mark.parametrize("name", ["gpt2", "p50k_base", "cl100k_base", "o200k_base", "qwen", "llama3", "tekken"])
def test_ids_are_those_of_tiktoken(name, monkeypatch):
    ours, theirs = pair(name, monkeypatch)
    documents = texts()
    if name == "qwen":  # normalizes first, as Qwen's own tokenizer does with what Python has
        documents = [unicodedata.normalize("NFC", text) for text in documents]
    shift = 1000 if name == "tekken" else 0
    batch = ours.encode_batch(documents, disallowed_special=())
    for text, ids in zip(documents, batch):
        expect_same(ours, ids, [i + shift for i in theirs.encode_ordinary(text)], text)
        if name != "qwen":
            assert ours.decode_bytes(ids) == text.encode()
    if theirs.special_tokens_set:
        text = "a<|endoftext|> b <|endoftext|>"
        assert ours.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")
        assert {k: v for k, v in ours.special_tokens.items()} == theirs._special_tokens
        with pytest.raises(ValueError, match="special token"):
            ours.encode(text)
        with pytest.raises(ValueError, match="special token"):
            ours.encode(text, disallowed_special={"<|endoftext|>"})


def test_any_bytes_come_back(monkeypatch):
    ours, _ = pair("cl100k_base", monkeypatch)
    for seed in range(200):
        data = np.random.default_rng(seed).integers(0, 256, 500, dtype=np.uint8).tobytes()
        assert ours.decode_bytes(ours.encode(data)) == data
    assert ours.decode(ours.encode(b"a\xff\xe4\xb8")) == "a��"


def test_special_tokens_are_allowed_and_disallowed_as_in_tiktoken(monkeypatch):
    ours, theirs = pair("cl100k_base", monkeypatch)
    kinds = (set(), {"<|endoftext|>"}, {"<|fim_prefix|>", "<|fim_suffix|>"}, "all")
    texts = ("plain", "a<|endoftext|>b", "<|fim_prefix|><|endoftext|>", "<|fim_middle|> x")
    for text, allowed, disallowed in itertools.product(texts, kinds, kinds):
        special = {"allowed_special": allowed, "disallowed_special": disallowed}
        try:
            expected = theirs.encode(text, **special)
        except ValueError:
            with pytest.raises(ValueError, match="special token"):
                ours.encode(text, **special)
        else:
            assert ours.encode(text, **special) == expected, special


# ---- Hugging Face

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
SPACES_BACK = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def split(pattern, behavior="Isolated", invert=False):
    kind = "String" if len(pattern) == 1 else "Regex"
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(kind, *items):
    return {"type": "Sequence", kind: list(items)}


def gemma():
    model = from_llama2()["model"]
    return vocabularies.whole(
        model,
        added_tokens=[added("<pad>", 32000), added("<bos>", 32001), added("\n\n", 32002, False)],
        normalizer=REPLACE,
        pre_tokenizer=split(" ", "MergedWithPrevious"),
        decoder=sequence("decoders", SPACES_BACK, {"type": "ByteFallback"}, {"type": "Fuse"}),
    )


def metaspace(scheme, is_split, **rest):
    step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": is_split}
    return from_llama2(normalizer=None, pre_tokenizer=step, decoder=step, **rest)


def unknown(fuse):
    """A vocabulary of a few letters, with an unknown token and without byte tokens."""
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "fuse_unk": fuse,
        "byte_fallback": False,
        "dropout": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "vocab": {"<unk>": 0, "a": 1, "e": 2, "t": 3, " ": 4, "at": 5, " a": 6, "eat": 7},
        "merges": ["a t", "e at"],
    }
    model["merges"] = [["a", "t"], ["e", "at"], [" ", "a"]]
    return vocabularies.whole(model)


FILES = {
    "gpt2": lambda: from_gpt2(
        pre_tokenizer={**BYTE_LEVEL, "use_regex": True}, added_tokens=[added("<|endoftext|>", 50256)]
    ),
    "gpt2 with a space": lambda: from_gpt2(pre_tokenizer={**BYTE_LEVEL, "use_regex": True, "add_prefix_space": True}),
    "smollm": lambda: from_gpt2(
        pre_tokenizer=sequence(
            "pretokenizers", {"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}
        )
    ),
    "digits together": lambda: from_gpt2(
        pre_tokenizer=sequence("pretokenizers", {"type": "Digits", "individual_digits": False}, BYTE_LEVEL)
    ),
    "anthropic": lambda: json.loads(vocabularies.get("anthropic.json").read_text(encoding="utf-8")),
    "llama2": from_llama2,
    "llama2, strip and nfkc": lambda: from_llama2(
        normalizer=sequence(
            "normalizers",
            {"type": "NFKC"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            REPLACE,
        )
    ),
    "llama2, added": lambda: from_llama2(
        added_tokens=[
            added("<unk>", 0),
            added("<s>", 1, normalized=True),
            added("</s>", 2, lstrip=True, rstrip=True),
            added("jumps over", 32000, False, single_word=True),
            added("wasn't,", 32001, False, normalized=True),
            added(") {", 32002, False, lstrip=True),
        ]
    ),
    "gemma": gemma,
    "mistral": lambda: metaspace("always", False),
    "metaspace, first": lambda: metaspace("first", True),
    "metaspace, first, strip": lambda: {
        **metaspace("first", True),
        "normalizer": {"type": "Strip", "strip_left": True, "strip_right": False},
    },
    "metaspace, never": lambda: metaspace("never", True),
    "llama3": lambda: from_ranks(
        "llama3.model",
        20000,
        pre_tokenizer=sequence("pretokenizers", split(LLAMA3), BYTE_LEVEL),
        added_tokens=[added("<|begin_of_text|>", 20000)],
        post_processor=sequence(
            "processors",
            {**BYTE_LEVEL, "trim_offsets": True},
            {
                "type": "TemplateProcessing",
                "single": [
                    {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}},
                    {"Sequence": {"id": "A", "type_id": 0}},
                ],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {
                    "<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [20000], "tokens": ["<|begin_of_text|>"]}
                },
            },
        ),
    ),
    "qwen": lambda: from_ranks(
        "qwen.tiktoken",
        20000,
        normalizer={"type": "NFC"},
        pre_tokenizer=sequence("pretokenizers", split(QWEN), BYTE_LEVEL),
    ),
    "deepseek": lambda: from_ranks(
        "llama3.model",
        20000,
        pre_tokenizer=sequence(
            "pretokenizers",
            split(r"\p{N}{1,3}"),
            split("[一-龥぀-ゟ゠-ヿ]+"),
            split(
                r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            ),
            BYTE_LEVEL,
        ),
    ),
    "contiguous": lambda: from_gpt2(
        pre_tokenizer=sequence(
            "pretokenizers", split(r"\p{Lu}|\d", "Contiguous"), split(" ", "MergedWithNext"), BYTE_LEVEL
        )
    ),
    "removed": lambda: from_gpt2(
        pre_tokenizer=sequence("pretokenizers", split(r"\s+|\W", "Removed", True), split("e", "Removed"), BYTE_LEVEL)
    ),
    "empty matches": lambda: from_gpt2(pre_tokenizer=sequence("pretokenizers", split(r"(?=[A-Z])|x*"), BYTE_LEVEL)),
    "unknown": lambda: unknown(False),
    "unknown, fused": lambda: unknown(True),
}


@functools.lru_cache(2)
def hugging_face(name):
    text = json.dumps(FILES[name](), ensure_ascii=False)
    return text, tokenizers.Tokenizer.from_str(text)


@pytest.mark.parametrize("name", FILES)
def test_ids_and_texts_are_those_of_hugging_face(name, tmp_path):
    text, theirs = hugging_face(name)
    path = tmp_path / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    ours = tally.Tokenizer(tmp_path)
    documents = texts()[: len(texts()) // (1 if SOAK else 4)] + [vocabularies.noise(seed, 60) for seed in range(150)]
    documents += [
        "",
        " ",
        "a",
        " a",
        "a ",
        "<s>",
        "<s>a</s> b",
        "\n\n",
        "the cat <s> the",
        "\u0301",
        "▁",
        "x<|endoftext|>y",
    ]
    batch = ours.encode_batch(documents, allowed_special="all")
    for document, ids in zip(documents, batch):
        expect = theirs.encode(document, add_special_tokens=False)
        expect_same(ours, ids, expect.ids, document)
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)
        if name == "llama2, added":
            continue  # Hugging Face does not skip a special token whose text a normalizer has changed
        assert ours.decode(ids, skip_special=True) == theirs.decode(ids, skip_special_tokens=True)
    for document in documents[-60:]:
        assert ours.encode(document, allowed_special="all", template=True) == theirs.encode(document).ids
        ids, offsets = ours.encode_with_offsets(document, unit="chars", allowed_special="all")
        reference = theirs.encode(document, add_special_tokens=False)
        assert ids == reference.ids
        if name in OFFSETS:
            assert offsets == reference.offsets
        encoder = ours.encoder(allowed_special="all")
        assert encoder.add(document) + encoder.end() == ids


# Offsets of others differ: Hugging Face's post-processor trims them, or normalization moves them by its own rules.
OFFSETS = {"gpt2", "smollm", "llama2", "mistral", "metaspace, first", "deepseek", "contiguous", "removed", "gemma"}


def test_streams_give_the_same(tmp_path):
    for name in ("gpt2", "llama2", "qwen", "llama2, added", "metaspace, first"):
        (tmp_path / "tokenizer.json").write_text(hugging_face(name)[0], encoding="utf-8")
        ours = tally.Tokenizer(tmp_path / "tokenizer.json")
        text = "".join(texts())[:150_000].encode()
        encoder, ids, first = ours.encoder(allowed_special="all"), [], None
        for at in range(0, len(text), 10_007):
            ids += encoder.add(text[at : at + 10_007])
            first = at if first is None and ids else first
        assert first < len(text) // 2, "it waited for the end"
        ids += encoder.end()
        assert ids == ours.encode(text, allowed_special="all"), name
        ids, decoder = ours.encode(text[:20_000].decode(errors="ignore"), allowed_special="all"), ours.decoder()
        pieces = [decoder.add(i) for i in ids] + [decoder.end()]
        assert "".join(pieces) == ours.decode(ids) and len(pieces) > 5_000, name


REFUSED = {
    'the model "Unigram"': lambda f: f["model"].update(type="Unigram"),
    'the model\'s option "end_of_word_suffix"': lambda f: f["model"].update(end_of_word_suffix="</w>"),
    'the model\'s option "dropout"': lambda f: f["model"].update(dropout=0.1),
    'the normalizer "Lowercase"': lambda f: f.update(normalizer={"type": "Lowercase"}),
    'the pre-tokenizer "Whitespace"': lambda f: f.update(
        pre_tokenizer=sequence("pretokenizers", {"type": "Whitespace"})
    ),
    'the decoder "WordPiece"': lambda f: f.update(decoder={"type": "WordPiece"}),
    'the post-processor "RobertaProcessing"': lambda f: f.update(post_processor={"type": "RobertaProcessing"}),
    'the behavior of a Split "Torn"': lambda f: f.update(pre_tokenizer=split(" ", "Torn")),
    "cannot be used: missing closing parenthesis": lambda f: f.update(pre_tokenizer=split("(a")),
    "merge 2: its first part is not in the vocabulary": lambda f: f["model"].update(merges=["a t", "q at"]),
    "two tokens have the id 1": lambda f: f["model"]["vocab"].update(z=1),
    'the unknown token "<u>"': lambda f: f["model"].update(unk_token="<u>"),
    "has the id 9, and 5 in the vocabulary": lambda f: f.update(added_tokens=[added("at", 9)]),
    "there is no model": lambda f: f.pop("model"),
    'without "id" or "content"': lambda f: f.update(added_tokens=[{"id": 9}]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_known_is_refused_by_name(message, tmp_path):
    file = unknown(False)
    REFUSED[message](file)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file))
    with pytest.raises((ValueError, OSError)) as error:
        tally.Tokenizer(path)
    assert message in str(error.value) and str(path) in str(error.value)


def test_questions():
    t = tally.Tokenizer.chars("hello\n")
    assert (len(t), t.encode("hello"), t.decode([3, 0])) == (5, [2, 1, 3, 3, 4], "l\n")
    assert t.token_id("h") == 2 and t.token_id("z") is None and t.token_bytes(0) == b"\n"
    with pytest.raises(KeyError):
        t.token_bytes(7)
    with pytest.raises(ValueError, match='the character "z"'):
        t.encode("z")
    assert tally.Tokenizer.bytes().encode_batch(["ab", b"\xff", ""]) == [[97, 98], [255], []]
    assert "cl100k_base" in tally.Tokenizer.encodings()
    with pytest.raises(OSError):
        tally.Tokenizer("/nowhere/tokenizer.json")
