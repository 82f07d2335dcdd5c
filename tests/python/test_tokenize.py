"""`tally tokenize` beside tiktoken and Hugging Face's tokenizers, document by document, through every kind of input;
and its reader of JSON lines beside Python's json on random documents."""

import gzip
import json
import os
import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tally
import vocabularies
from conftest import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
TALLY = os.environ.get("TALLY", str(ROOT / "build" / "tally"))


def tokenize(*arguments, **options):
    done = subprocess.run(
        [TALLY, "tokenize", *map(str, arguments)], capture_output=True, timeout=PATIENCE, check=False, **options
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def figures(*arguments):
    code, out, err = tokenize(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def documents(path):
    """The ids of each document, read by the format's description in docs/data.md."""
    data = Path(path).read_bytes()
    version, width, count = struct.unpack_from("<IIQ", data, 8)
    n = struct.unpack_from("<Q", data, 48)[0]
    assert data[:8] == b"TALLYTOK" and version == 2
    ids = np.frombuffer(data, {1: "u1", 2: "<u2", 4: "<u4"}[width], count, 64)
    begins = np.frombuffer(data, "<u8", n, 64 + (count * width + 7) // 8 * 8).tolist()
    return [ids[a:b].tolist() for a, b in zip(begins, [*begins[1:], count])]


def corpus():
    """Texts of many scripts, code and noise, some empty, one long. No special tokens: theirs may be found in a text."""
    text = "".join(vocabularies.mixed(150_000))
    for special in ("<|endoftext|>", "<s>", "</s>", "<unk>"):
        text = text.replace(special, "")
    rng, parts, at = random.Random(7), [], 0
    while at < len(text):
        n = rng.choice([0, 1, 5, 300, 3000, 40_000])
        parts.append(text[at : at + n])
        at += max(n, 1)
    return [*parts, text]


def write_jsonl(path, texts, field="text"):
    lines = "".join(json.dumps({"id": i, field: t}, ensure_ascii=i % 2 == 0) + "\n" for i, t in enumerate(texts))
    data = lines.encode()
    path = Path(path)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]))
    elif path.suffix == ".zst":
        subprocess.run(["zstd", "-q", "-o", str(path)], input=data, check=True)
    else:
        path.write_bytes(data)
    return path


def check_inputs(tmp_path, tokenizer, encode, end):
    texts = corpus()
    want = [[*encode(t), end] for t in texts]
    names = ["a.jsonl", "a.jsonl.gz"] + ([] if not _has_zstd() else ["a.jsonl.zst"])
    for name in names:
        out = tmp_path / "out.tok"
        f = figures(write_jsonl(tmp_path / name, texts), "--tokenizer", tokenizer, "--out", out)
        assert documents(out) == want
        assert f["documents"] == len(texts) and f["tokens"] == sum(map(len, want)) and f["end_token"] == end
        assert f["longest_document"] == max(map(len, want))
        assert f["text_bytes"] == sum(len(t.encode()) for t in texts)
    (tmp_path / "text.txt").write_text(texts[-1], newline="")
    figures(tmp_path / "text.txt", "--tokenizer", tokenizer, "--out", tmp_path / "one.tok")
    assert documents(tmp_path / "one.tok") == [want[-1]]


def _has_zstd():
    return subprocess.run(["sh", "-c", "command -v zstd"], capture_output=True, check=False).returncode == 0


def test_documents_are_tiktokens(tmp_path, monkeypatch):
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken could not be installed")
    import tiktoken_ext.openai_public as public

    found = vocabularies.ranks("cl100k_base.tiktoken")
    monkeypatch.setattr(public, "load_tiktoken_bpe", lambda *_, **__: found)
    encoding = tiktoken.Encoding(**public.cl100k_base())
    check_inputs(tmp_path, vocabularies.get("cl100k_base.tiktoken"), encoding.encode_ordinary, 100257)


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}


@pytest.mark.parametrize("name", ["gpt2", "llama2"])
def test_documents_are_hugging_faces(tmp_path, name):
    tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers could not be installed")
    path = tmp_path / "tokenizer.json"
    made = (
        vocabularies.from_llama2()
        if name == "llama2"
        else vocabularies.from_gpt2(
            pre_tokenizer=BYTE_LEVEL, added_tokens=[vocabularies.added("<|endoftext|>", 50256)]
        )
    )
    path.write_text(json.dumps(made))
    theirs = tokenizers.Tokenizer.from_file(str(path))
    end = theirs.token_to_id("</s>" if name == "llama2" else "<|endoftext|>")
    check_inputs(tmp_path, path, lambda t: theirs.encode(t, add_special_tokens=False).ids, end)


# ---- JSON


def random_value(rng, depth=0):
    kind = rng.randrange(8 if depth < 4 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, -1, 10**30, 1.5, -2e-300, float("nan"), float("inf"), -float("inf"), 12345])
    if kind < 6:
        return random_text(rng)
    if kind == 6:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {random_text(rng): random_value(rng, depth + 1) for _ in range(rng.randrange(4))}


def random_text(rng):
    pieces = ["a", "text", " ", "\n", '"', "\\", "/", "\0", "\x1f", "\x7f", "é", "中", "\U0001f600", "\ufeff", "\u2028",
              "x" * rng.randrange(40), "\ue000", "\uffff", "\r", "\t", "<|endoftext|>"]
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(8)))


def random_line(rng):
    """A line as bytes: an object, often with a text, often damaged."""
    value = {random_text(rng): random_value(rng) for _ in range(rng.randrange(4))}
    if rng.random() < 0.9:
        value["text"] = random_text(rng) if rng.random() < 0.9 else random_value(rng)
    separators = rng.choice([None, (",", ":"), (" , ", " :\t")])
    line = json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=separators)
    if rng.random() < 0.2:  # two equal keys: the last counts
        line = line[:-1] + (", " if len(value) else "") + '"text": ' + json.dumps(random_text(rng)) + "}"
    data = bytearray(line.encode())
    while rng.random() < 0.4:
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(4)
        if what == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif what == 1:
            pieces = [b'"', b"\\", b"{", b"}", b"\\ud800", b"\\u00e9", b"\xff", b",", b" ", b"\\q", b"01"]
            data[at:at] = rng.choice(pieces)
        elif what == 2:
            del data[at : at + rng.randrange(1, 4)]
        else:
            data = data[:at]
    return bytes(data).replace(b"\n", b" ")


def python_text(line):
    """What Python's json says: the text, None for a bad line, or "" and False for an empty one."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if not text.strip(" \t\r"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = value.get("text") if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def is_encodable(line):
    """Half surrogates are characters for Python and errors here, also under a key that comes again."""
    try:
        json.dumps(json.loads(line, object_pairs_hook=list), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_lines_are_read_as_by_pythons_json(tmp_path):
    rng = random.Random(int(os.environ.get("TALLY_SEED", "3")))
    lines = [random_line(rng) for _ in range(20_000)]
    if lines[0][:3] == b"\xef\xbb\xbf":
        lines = lines[1:]
    want, bad = [], 0
    for line in lines:
        text = python_text(line)
        if text is False:
            continue
        if text is None or not is_encodable(line):
            bad += 1
        else:
            want.append(list(text.encode()))
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(lines))
    out = tmp_path / "lines.tok"
    f = figures(tmp_path / "lines.jsonl", "--tokenizer", "bytes", "--skip-bad", "--out", out)
    assert f["skipped_lines"] == bad and bad > 3000
    assert f["text_bytes"] == sum(map(len, want))
    assert documents(out) == [ids for ids in want if ids]  # a document without tokens is not recorded
    # the first line that is bad stops without --skip-bad, and is named
    first = next(i for i, line in enumerate(lines) if python_text(line) is None)
    code, _, err = tokenize(tmp_path / "lines.jsonl", "--tokenizer", "bytes", "--out", tmp_path / "no.tok")
    assert code == 2 and f"lines.jsonl: line {first + 1}" in err


def test_python_writes_the_same_files_as_the_program(tmp_path):
    texts = corpus()
    write_jsonl(tmp_path / "a.jsonl", texts[:40])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    (tmp_path / "c.txt").write_text("one\n\ntwo <|endoftext|> three\n\nfour")
    inputs = [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.txt")]
    tokenizer = tally.Tokenizer.train([tmp_path / "c.txt"], 270)
    tokenizer.save(tmp_path / "tok")
    common = ("--tokenizer", tmp_path / "tok", "--document-separator", "blank-line", "--val-share", 0.2, "--seed", 5)
    said = figures(*inputs, *common, "--out", tmp_path / "a.tok")
    options = dict(separator="blank-line", val_out=tmp_path / "b-val.tok", val_share=0.2, seed=5)
    seen = []
    got = tokenizer.encode_files(inputs, tmp_path / "b.tok", progress=lambda f: seen.append(f["used_bytes"]), **options)
    for ours, theirs in (("b.tok", "a.tok"), ("b-val.tok", "a-val.tok")):
        assert (tmp_path / ours).read_bytes() == (tmp_path / theirs).read_bytes()
    assert seen and (got["val_tokens"], got["val_documents"]) == (said["validation"]["tokens"],
                                                                   said["validation"]["documents"])
    same = ("tokens", "documents", "longest_document", "text_bytes", "bytes_per_token", "input_files", "skipped_lines")
    assert [got[name] for name in same] == [said[name] for name in same]


def test_python_stops_and_continues(tmp_path):
    texts = [text * 20 for text in corpus()[:-1]]
    for i in range(3):
        write_jsonl(tmp_path / f"{i}.jsonl", texts)
    inputs, tokenizer = [tmp_path / f"{i}.jsonl" for i in range(3)], tally.Tokenizer.bytes()
    tokenizer.encode_files(inputs, tmp_path / "whole.tok")
    with pytest.raises(ValueError, match="stopped"):
        tokenizer.encode_files(inputs, tmp_path / "x.tok", progress=lambda f: f["documents"] == 0)
    assert not (tmp_path / "x.tok").exists()

    def fail(now):
        if now["documents"] > 30:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tokenizer.encode_files(inputs, tmp_path / "x.tok", progress=fail)
    assert tokenizer.encode_files(inputs, tmp_path / "x.tok")["resumed"]
    assert (tmp_path / "x.tok").read_bytes() == (tmp_path / "whole.tok").read_bytes()


def test_python_refuses_what_the_program_refuses(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.jsonl").write_text('{"text": "a"}\nnot JSON\n{"text": "b"}\n')
    tokenizer = tally.Tokenizer.bytes()
    for wrong, message in ((dict(end_token=256), "end_token 256"), (dict(format="parquet"), "auto, text or jsonl"),
                           (dict(val_out=tmp_path / "x.tok"), "another val_out"),
                           (dict(val_out=tmp_path / "y.tok", val_share=1.0), "val_share 1"),
                           (dict(threads=-1), "threads -1")):
        with pytest.raises(ValueError, match=message):
            tokenizer.encode_files(tmp_path / "a.txt", tmp_path / "x.tok", **wrong)
    with pytest.raises(OSError, match="No such file"):
        tokenizer.encode_files(tmp_path / "absent", tmp_path / "x.tok")
    with pytest.raises(ValueError, match="2"):
        tokenizer.encode_files(tmp_path / "b.jsonl", tmp_path / "x.tok")
    assert tokenizer.encode_files(tmp_path / "b.jsonl", tmp_path / "x.tok", skip_bad=True, restart=True)[
        "skipped_lines"] == 1
    assert [path.name for path in tmp_path.glob("x.tok*")] == ["x.tok"]

