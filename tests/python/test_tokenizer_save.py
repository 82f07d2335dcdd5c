"""Tokenizers of every kind as tokenizer.json: Hugging Face's library reads them and gives the same ids."""

import base64
import json
import shutil

import pytest
import tally
import vocabularies

tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers could not be installed")

SPACES = [" \n  x  \n\n ", "1234567 'LL we'll\t\t ", "", " ", "\u00a0x\u2003y\r\n\r\n", "e\u0301 \u212b \ufb01"]


def same(ours, theirs, texts, special=()):
    """The same ids, with special tokens as such, and the same text back."""
    for text in texts:
        ids = ours.encode(text, allowed_special="all")
        assert theirs(text) == ids, text[:80]
    if special:
        text = "a" + " b".join(special) + "c"
        ids = ours.encode(text, allowed_special="all")
        assert theirs(text) == ids and set(special) <= {ours.token_bytes(i).decode(errors="replace") for i in ids}


RANKS = ["p50k_base", "cl100k_base", "o200k_base", "qwen", "llama3"]


@pytest.mark.parametrize("name", [*RANKS, "tekken", "gpt2"])
def test_hugging_face_gives_the_same_ids(name, tmp_path):
    file = {"llama3": "llama3.model", "tekken": "tekken.json", "gpt2": "vocab.bpe"}.get(name, name + ".tiktoken")
    if name == "gpt2":
        vocabularies.get("encoder.json")
    ours = tally.Tokenizer(vocabularies.get(file))
    ours.save(tmp_path)
    hf = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    special = list(ours.special_tokens)[:4]
    same(ours, lambda text: hf.encode(text).ids, [*vocabularies.mixed(150_000, seed=5), *SPACES], special)
    again = tally.Tokenizer(tmp_path)
    assert again.hash == ours.hash and len(again) == len(ours)
    for data in [b"a\xff\xe4\xb8 \x80", *(text.encode() for text in vocabularies.mixed(50_000, seed=6))]:
        assert again.encode(data, disallowed_special=()) == ours.encode(data, disallowed_special=())
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (tmp_path / "tokenizer.json").read_bytes()


def tekken(pattern=None):
    """A small file of tekken's form: special tokens, the 256 bytes, and some merges."""
    tokens = [bytes([b]) for b in range(256)] + [b"th", b"the", b" the", b"an", b"and", b"he", b"ab", b"ba", b"aba"]
    usual = json.loads(vocabularies.get("tekken.json").read_text(encoding="utf-8"))["config"]["pattern"]
    return {
        "config": {
            "pattern": pattern or usual,
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) + 30,
            "default_num_special_tokens": 30,
            "version": "v3",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(tokens)
        ],
    }


def test_what_cannot_be_written_is_refused_by_name(tmp_path):
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(tekken(r"\w+|\W+")))
    with pytest.raises(ValueError, match="its pattern is not one of gpt2, cl100k, o200k, llama3, qwen2 and tekken"):
        tally.Tokenizer(path).save(tmp_path / "out")
    chars = tally.Tokenizer.chars("abc")
    for format, problem in (("gpt2", "write tokenizer.json instead"), ("ranks", "write tokenizer.json instead")):
        with pytest.raises(ValueError, match=problem):
            chars.save(tmp_path / "out", format)
    with pytest.raises(ValueError, match="without a normalizer"):
        tally.Tokenizer(vocabularies.get("qwen.tiktoken")).save(tmp_path / "out", "gpt2")
    model = {"type": "BPE", "vocab": {"<unk>": 0, "a": 1}, "merges": [], "unk_token": "<unk>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(vocabularies.whole(model)))
    with pytest.raises(ValueError, match="neither byte-level nor made of characters"):
        tally.Tokenizer(tmp_path / "tokenizer.json").save(tmp_path / "out")


@pytest.mark.parametrize("kind", ["", "bytes", "chars", "train:300", "ranks", "tekken", "gpt2", "gpt2-folder"])
def test_transformers_reads_the_tokenizer_of_a_run(kind, tmp_path):
    """`final/` loads with AutoTokenizer, whatever the run's tokenizer was."""
    transformers = pytest.importorskip("transformers", reason="the package transformers is not there")
    text = "the man and the band: aaba 'and' 12345\n\n  \"the ünïcödé\" the end. " * 40
    (tmp_path / "text").write_text(text, encoding="utf-8")
    tokenizer = kind
    if kind == "ranks":
        tokenizer = str(vocabularies.get("p50k_base.tiktoken"))
    elif kind == "tekken":
        tokenizer = str(tmp_path / "tekken.json")
        (tmp_path / "tekken.json").write_text(json.dumps(tekken()))
    elif kind.startswith("gpt2"):
        names = ("vocab.json", "merges.txt") if kind == "gpt2-folder" else ("encoder.json", "vocab.bpe")
        (tmp_path / "words").mkdir()
        for name, source in zip(names, ("encoder.json", "vocab.bpe")):
            shutil.copy(vocabularies.get(source), tmp_path / "words" / name)
        tokenizer = str(tmp_path / "words" / (names[0] if kind == "gpt2" else ""))
    tally.train(
        data=str(tmp_path / "text"), tokenizer=tokenizer, out=str(tmp_path / "run"), model="tiny", layers=1, channels=8,
        heads=2, kv_heads=2, ff=8, steps=1, warmup=0, batch=1, seq=8, val_share=0.0, eval_every=0, sample_tokens=0,
    )
    final = tmp_path / "run" / "final"
    hf = transformers.AutoTokenizer.from_pretrained(final)
    ours = tally.Tokenizer(final)
    texts = [text, "the band", *([] if kind == "chars" else [*vocabularies.mixed(20_000), *SPACES])]
    same(ours, lambda text: hf(text, add_special_tokens=False)["input_ids"], texts, list(ours.special_tokens)[:3])
    assert hf.decode(ours.encode(text)) == text
    named = {"bytes": tally.Tokenizer.bytes, "": tally.Tokenizer.bytes, "chars": lambda: tally.Tokenizer.chars(text)}
    if not kind.startswith("train"):
        assert ours.hash == (named[kind]() if kind in named else tally.Tokenizer(tokenizer)).hash
