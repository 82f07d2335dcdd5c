"""BPE training beside Hugging Face's BpeTrainer: vocabulary, merges and ids, and what it reads of our files."""

import json
import random

import pytest
import tally
import vocabularies

tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers could not be installed")
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
PATTERNS = {"gpt2": None, "llama3": LLAMA3, "qwen": LLAMA3.replace("{1,3}", "")}


def theirs(texts, vocab_size, encoding, special, min_count):
    tokenizer = Tokenizer(models.BPE())
    pattern = PATTERNS[encoding]
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), "isolated")]
    split.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        min_frequency=min_count,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def mixed():
    return vocabularies.mixed(200_000)


def letters():
    draw = random.Random(3)
    return ["".join(draw.choice("aaab c") for _ in range(40_000))]


@pytest.mark.parametrize("encoding", PATTERNS)
@pytest.mark.parametrize("corpus, vocab_size, min_count", [(mixed, 3000, 1), (letters, 2000, 2)])
def test_merges_are_those_of_hugging_face(corpus, vocab_size, min_count, encoding, tmp_path):
    special = ["<|endoftext|>", "<pad>"]
    texts = [text for text in corpus() if not any(token in text for token in special)]
    assert sum(map(len, texts)) > 30_000
    want = theirs(texts, vocab_size, encoding, special, min_count)
    tokenizer = tally.Tokenizer.train_from_texts(
        texts, vocab_size, encoding=encoding, special_tokens=special, ties="huggingface", min_count=min_count
    )
    tokenizer.save(tmp_path)
    got = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    assert got["merges"] == want["merges"]
    assert got["vocab"] == want["vocab"]


@pytest.mark.parametrize("encoding", tally.Tokenizer.encodings())
def test_hugging_face_reads_our_file(encoding, tmp_path):
    ties = "huggingface" if encoding in ("gpt2", "o200k_base") else "greater"
    texts = mixed()[:20]
    tokenizer = tally.Tokenizer.train_from_texts(
        texts, 1000, encoding=encoding, special_tokens=["<|endoftext|>", '<"\\>'], ties=ties
    )
    tokenizer.save(tmp_path)
    hf = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert hf.get_vocab_size() == len(tokenizer) == 1000
    for text in [*texts, 'a<|endoftext|> b<"\\>c', " \n  x  \n\n ", "1234567 'LL we'll\t\t "]:
        ids = tokenizer.encode(text, allowed_special="all")
        assert hf.encode(text).ids == ids
        assert hf.decode(ids, skip_special_tokens=False) == text


def test_files_formats_and_errors(tmp_path):
    (tmp_path / "a.txt").write_text("low lower lowest\n" * 20)
    (tmp_path / "b.txt").write_text("new newer newest <|endoftext|> low\n" * 20)
    tokenizer = tally.Tokenizer.train([tmp_path / "a.txt", str(tmp_path / "b.txt")], 270)
    assert len(tokenizer) == 270 and tokenizer.token_id("<|endoftext|>") == 269
    assert tokenizer.encode("a<|endoftext|>", allowed_special=["<|endoftext|>"]) == [97, 269]
    for format, path in (("json", "tokenizer.json"), ("gpt2", "vocab.json"), ("ranks", "tokenizer.tiktoken")):
        tokenizer.save(tmp_path / format, format)
        back = tally.Tokenizer(tmp_path / format / path, "gpt2")
        assert back.encode("lowest newer") == tokenizer.encode("lowest newer")
    with pytest.raises(ValueError, match="vocabulary 256 .need 257"):
        tally.Tokenizer.train([tmp_path / "a.txt"], 256)
    with pytest.raises(ValueError, match="need 'greater' or 'huggingface'"):
        tally.Tokenizer.train([tmp_path / "a.txt"], 300, ties="least")
    with pytest.raises(OSError, match="missing.txt"):
        tally.Tokenizer.train(tmp_path / "missing.txt")
    with pytest.raises(ValueError, match="no word to learn from"):
        tally.Tokenizer.train_from_texts([])
