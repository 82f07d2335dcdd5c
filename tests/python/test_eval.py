"""`tally eval` beside PyTorch on a small random GPT-2: sliding windows, documents and multiple choice."""

import gzip
import json
import math
import random
import re
import subprocess

import numpy as np
import pytest
import tally
import vocabularies
from conftest import PATIENCE

torch = pytest.importorskip("torch", reason="PyTorch is not there")
transformers = pytest.importorskip("transformers", reason="the package transformers is not there")
tokenizers = pytest.importorskip("tokenizers", reason="Hugging Face's tokenizers could not be installed")

CONTEXT, VOCABULARY, END = 48, 400, "<|endoftext|>"
WORDS = "the man walks his dog and then he runs home while it rains on a small town near the sea".split()


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A model with its tokenizer in a folder, the model in PyTorch, and the tokenizer in Hugging Face's library."""
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(folder)
    words = [" ".join(WORDS[i % len(WORDS) :] + WORDS[: i % 7]) for i in range(30)]
    tally.Tokenizer.train_from_texts([*words, *vocabularies.mixed(20_000)[:5]], VOCABULARY).save(folder)
    return folder, model, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture
def evaluate(library_path):
    program = library_path.parent / "tally"
    if not program.exists():
        pytest.skip(f"{program} is not there: run make")

    def run(*arguments, status=0):
        done = subprocess.run([program, "eval", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == status, done.stderr
        return done.stderr if status else [json.loads(line) for line in done.stdout.splitlines()]

    return run


def log_probabilities(model, ids):
    """Of ids[1], ids[2], ..., in one window."""
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0].double()
    return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def nats(model, ids, seq, stride):
    """The Hugging Face guide's loop over windows: a window scores what the ones before it have not."""
    total, scored = 0.0, 1
    for begin in range(0, len(ids), stride):
        end = min(begin + seq + 1, len(ids))
        total -= log_probabilities(model, ids[begin:end])[scored - end :].sum().item()
        scored = end
        if end == len(ids):
            return total


@pytest.mark.parametrize("seq, stride", [(CONTEXT, CONTEXT), (CONTEXT, 7), (20, 1), (33, 32)])
def test_windows_are_those_of_the_perplexity_guide(gpt2, evaluate, tmp_path, seq, stride):
    folder, model, hf = gpt2
    text = " ".join(WORDS * 6)
    (tmp_path / "text").write_text(text)
    ids = hf.encode(text).ids
    [got] = evaluate("--model", folder, "--data", tmp_path / "text", "--seq", seq, "--stride", stride, "--json")
    want = nats(model, ids, seq, stride) / (len(ids) - 1)
    assert got["tokens"] == len(ids) - 1
    assert got["loss"] == pytest.approx(want, rel=2e-6)
    assert got["perplexity"] == pytest.approx(math.exp(want), rel=1e-4)
    assert got["bytes"] == len(hf.decode(ids[1:]).encode())
    assert got["bits_per_byte"] == pytest.approx(want * (len(ids) - 1) / got["bytes"] / math.log(2), rel=2e-6)
    assert got["byte_perplexity"] == pytest.approx(2 ** got["bits_per_byte"], rel=1e-12)


def test_more_context_is_another_loss(gpt2, evaluate, tmp_path):
    (tmp_path / "text").write_text(" ".join(WORDS * 6))
    losses = {
        stride: evaluate("--model", gpt2[0], "--data", tmp_path / "text", "--stride", stride, "--json")[0]["loss"]
        for stride in (CONTEXT, 12, 1)
    }
    assert len({round(loss, 4) for loss in losses.values()}) == 3


def test_documents_are_scored_alone(gpt2, evaluate, tmp_path):
    folder, model, hf = gpt2
    texts = [" ".join(WORDS * k) for k in (1, 5, 2)] + ["x", "日本語 é\n\t\"quoted\"", " ".join(WORDS[::-1] * 3)]
    lines = [json.dumps({"id": i, "body": text}, ensure_ascii=i % 2 == 0) for i, text in enumerate(texts)]
    (tmp_path / "texts.jsonl").write_text("\n\n".join(lines))
    common = ("--model", folder, "--data", tmp_path / "texts.jsonl", "--field", "body", "--stride", 9, "--batch", 3)
    *documents, whole = evaluate(*common, "--per-document", "--json")
    ids, tokenizer = [hf.encode(text).ids for text in texts], tally.Tokenizer(folder)
    want = [nats(model, i, CONTEXT, 9) if len(i) > 1 else 0 for i in ids]
    assert [(d["document"], d["line"]) for d in documents] == [(i, 2 * i + 1) for i in range(6)]
    for d, i, loss in zip(documents, ids, want):
        assert d["tokens"] == len(i) - 1
        assert d["loss"] == (pytest.approx(loss / (len(i) - 1), rel=2e-6) if len(i) > 1 else None)
        assert d["bytes"] == sum(len(tokenizer.token_bytes(id)) for id in i[1:])
    assert whole["documents"] == 6 and whole["tokens"] == sum(len(i) - 1 for i in ids)
    assert whole["loss"] == pytest.approx(sum(want) / whole["tokens"], rel=2e-6)
    [again] = evaluate(*common, "--json")  # without the lines
    assert again == {**whole, "seconds": again["seconds"]}
    (tmp_path / "texts.jsonl.gz").write_bytes(gzip.compress((tmp_path / "texts.jsonl").read_bytes()))
    [packed] = evaluate(*common, "--data", tmp_path / "texts.jsonl.gz", "--json")
    assert packed == {**whole, "seconds": packed["seconds"]}


def test_documents_that_a_file_records(gpt2, evaluate, tmp_path, library_path):
    folder, model, hf = gpt2
    texts = [" ".join(WORDS * k) for k in (1, 4, 2)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    subprocess.run(
        [library_path.parent / "tally", "tokenize", tmp_path / "texts.jsonl", "--tokenizer", folder, "--out",
         tmp_path / "texts.tok"], check=True, capture_output=True,
    )  # fmt: skip
    *documents, whole = evaluate("--model", folder, "--data", tmp_path / "texts.tok", "--per-document", "--json")
    ids = [[*hf.encode(text).ids, hf.token_to_id(END)] for text in texts]
    assert [d["tokens"] for d in documents] == [len(i) - 1 for i in ids]
    for d, i, text in zip(documents, ids, texts):
        assert d["loss"] == pytest.approx(nats(model, i, CONTEXT, CONTEXT) / (len(i) - 1), rel=2e-6)
        assert d["bytes"] == len(text) - len(hf.decode(i[:1]))
    assert whole["documents"] == 3 and whole["tokens"] == sum(len(i) - 1 for i in ids)


@pytest.mark.parametrize("comes_first", [True, False])
def test_documents_of_tokens_are_cut_at_the_separator(gpt2, evaluate, tmp_path, comes_first):
    folder, model, hf = gpt2
    end = hf.token_to_id(END)
    ids = [hf.encode(" ".join(WORDS[k:] * 2)).ids for k in (0, 3, 5)]
    tokens = sum(([end, *i] if comes_first else [*i, end] for i in ids), [])
    np.save(tmp_path / "tokens.npy", np.array(tokens, dtype=np.uint16))
    *documents, whole = evaluate(
        "--model", folder, "--data", tmp_path / "tokens.npy", "--document-token", end, "--per-document", "--json"
    )
    parts = [i if k == 0 and not comes_first else [end, *i] for k, i in enumerate(ids)]
    assert [d["tokens"] for d in documents] == [len(p) - 1 for p in parts]
    for d, part in zip(documents, parts):
        assert d["loss"] == pytest.approx(nats(model, part, CONTEXT, CONTEXT) / (len(part) - 1), rel=2e-6)
    assert whole["tokens"] == sum(len(p) - 1 for p in parts)


# ---- Multiple choice


def prepared(text):
    """HellaSwag's texts as lm-evaluation-harness prepares them."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def endings_of(model, hf, context, endings):
    """For each ending: the log probability, and its length in characters, bytes and tokens."""
    result = []
    for ending in endings:
        whole, n = hf.encode(context + " " + ending).ids, len(hf.encode(context.rstrip()).ids)
        scored = len(whole) - n
        window = whole[-(CONTEXT + 1) :]
        log = log_probabilities(model, window)[-scored:].sum().item()
        result.append((log, 1, len(ending), len(ending.encode()), scored))
    return result


RULES = {"acc": 1, "acc_norm": 2, "acc_bytes": 3, "acc_token": 4}


def items():
    draw = random.Random(7)
    for i in range(40):
        words = lambda n: " ".join(draw.choice(WORDS) for _ in range(n))  # noqa: E731
        yield {
            "ind": i,
            "activity_label": "Walking a dog",
            "ctx_a": words(draw.choice((3, 9, 60))) + ". [header] how [title] to  go",
            "ctx_b": "a Man" if i % 3 else "",
            "ctx": words(draw.choice((2, 8, 70))) + draw.choice(("", ".", "  ")),
            "endings": [words(draw.randint(1, 8)) + " [step] é"[: draw.choice((0, 9))] for _ in range(4)],
            "source_id": {"x": [1, None]},
        }


@pytest.mark.parametrize("is_harness", [False, True])
def test_choices_are_those_of_the_harness(gpt2, evaluate, tmp_path, is_harness):
    folder, model, hf = gpt2
    lines, want, right = [], [], dict.fromkeys(RULES, 0)
    for i, item in enumerate(items()):
        context, endings = item["ctx"], item["endings"]
        if is_harness:
            context = prepared(f"{item['activity_label']}: {item['ctx_a']} {item['ctx_b'].capitalize()}")
            endings = [prepared(ending) for ending in endings]
        scores = endings_of(model, hf, context, endings)
        best = {name: max(range(4), key=lambda k: scores[k][0] / scores[k][at]) for name, at in RULES.items()}
        label = best["acc"] if i % 4 else (best["acc"] + 1) % 4  # the accuracy is known: 30 of 40
        item["label"] = str(label) if i % 2 else label
        for name in RULES:
            right[name] += best[name] == label
        want.append((label, best, scores))
        lines.append(json.dumps(item))
    (tmp_path / "items.jsonl").write_text("\n".join(lines) + "\n")
    flags = ["--harness"] if is_harness else []
    *each, whole = evaluate(
        "--model", folder, "--choices", tmp_path / "items.jsonl", "--batch", 6, "--per-item", "--json", *flags
    )
    for got, (label, best, scores) in zip(each, want):
        assert got["label"] == label and got["tokens"] == [s[4] for s in scores]
        assert got["log_probabilities"] == pytest.approx([s[0] for s in scores], rel=2e-6)
        assert got["chosen"] == best
    assert whole["items"] == 40 and whole["acc"] == 30 / 40
    assert whole["acc_stderr"] == pytest.approx(math.sqrt(0.75 * 0.25 / 39))
    for name in RULES:
        assert whole[name] == right[name] / 40
    assert len({right[name] for name in RULES}) > 1  # the rules differ here
    [limited] = evaluate("--model", folder, "--choices", tmp_path / "items.jsonl", "--limit", 4, "--json", *flags)
    assert limited["items"] == 4 and limited["acc"] == 0.75


def test_items_in_other_forms(gpt2, evaluate, tmp_path):
    item = {"context": "the man walks his", "choices": ["dog and then", "sea"], "answer": 1}
    plain = {"ctx": item["context"], "endings": item["choices"], "label": "1"}
    parts = {"ctx_a": "the man", "ctx_b": "walks his", "endings": item["choices"], "label": 1}
    (tmp_path / "items.jsonl").write_text("\ufeff" + "\r\n".join(json.dumps(i) for i in (item, plain, parts)))
    *each, _ = evaluate("--model", gpt2[0], "--choices", tmp_path / "items.jsonl", "--per-item", "--json")
    assert each[0]["log_probabilities"] == each[1]["log_probabilities"] == each[2]["log_probabilities"]


GOOD = '{"ctx": "the man", "endings": ["walks", "runs"], "label": 0}'


@pytest.mark.parametrize(
    "line, problem",
    [
        ("{", "no \" (need a string)"),
        ("[]", "no { (need an object)"),
        (GOOD + "x", "after"),
        (GOOD.replace("0}", "2}"), "the label is 2, and there are 2 endings"),
        (GOOD.replace("0}", "-1}"), "not a whole number"),
        (GOOD.replace("0}", '"x"}'), 'the label is "x"'),
        (GOOD.replace("0}", '""}'), 'the label is ""'),
        (GOOD.replace("0}", "0.5}"), "fraction"),
        (GOOD.replace("0}", "99999999999999999999}"), "beyond"),
        (GOOD.replace('"label": 0', '"label": 0, "label": 1'), 'a second "label"'),
        (GOOD.replace('"ctx"', '"x"'), 'no "ctx"'),
        (GOOD.replace('"endings"', '"ends"'), 'no "endings"'),
        (GOOD.replace('"label"', '"x"'), 'no "label"'),
        (GOOD.replace('"walks", ', ""), "1 endings (need at least two)"),
        (GOOD.replace('"walks"', "7"), "need a string"),
        (GOOD.replace("the man", ""), "the context is empty"),
        (GOOD.replace("walks", "\\ud800"), "half a surrogate pair"),
        (GOOD.replace("walks", "\\u0000"), "U+0000"),
        (GOOD.replace("walks", "dog " * 3000), "and the model a context of 48"),
        (GOOD.replace("walks", "w" * (1 << 20)), "need at most 1048576"),
        (GOOD.replace('"walks"', ",".join(['"x"'] * 65)), "more than 64 endings"),
        ("[" * 100_000, "need an object"),
        ('{"a": ' + "[" * 100_000, "deep"),
    ],
)
def test_bad_items_are_refused_with_file_and_line(gpt2, evaluate, tmp_path, line, problem):
    path = tmp_path / "items.jsonl"
    path.write_text(GOOD + "\n\n" + line + "\n")
    said = evaluate("--model", gpt2[0], "--choices", path, status=2)
    assert f"tally eval: {path}:3: " in said and problem in said, said


def test_bad_documents_are_refused_with_file_and_line(gpt2, evaluate, tmp_path):
    path = tmp_path / "texts.jsonl"
    good = '{"text": "the man walks his dog"}'
    for line, problem in [
        ('{"text": 7}', "the field is not a string"),
        ('{"texts": "a"}', 'no such field; the text is in the field "text"'),
        ('{"text": "a"', "neither , nor }"),
        ("text", "need an object"),
        ('{"text": "\x01"}', "a control character"),
    ]:
        path.write_text(good + "\n" + line)
        said = evaluate("--model", gpt2[0], "--data", path, status=2)
        assert f"tally eval: {path}:2: " in said and problem in said, said
    path.write_bytes(b'{"text": "\xff"}')
    assert f"{path}:1: " in evaluate("--model", gpt2[0], "--data", path, status=2)
    path.write_text("\n \n")
    assert "no token to score" in evaluate("--model", gpt2[0], "--data", path, status=2)
    path.write_text("\n")
    assert "has no items" in evaluate("--model", gpt2[0], "--choices", path, status=2)


@pytest.mark.parametrize("kind", ["recorded", "token", "stories"])
def test_a_run_with_a_document_mask_is_measured_with_it(evaluate, tmp_path, library_path, kind):
    rng = random.Random(5)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(300)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "x.txt").write_text("\n".join(texts))
    command = [library_path.parent / "tally", "tokenize", tmp_path / "x.jsonl", "--tokenizer", "bytes", "--out",
               tmp_path / "x.tok"]
    subprocess.run(command, check=True, capture_output=True)
    data = {"recorded": dict(data=str(tmp_path / "x.tok"), document_token=-1),
            "token": dict(data=str(tmp_path / "x.txt"), document_token=10),
            "stories": dict(data="builtin", stories=20000)}[kind]
    run = tmp_path / "run"
    summary = tally.train(out=str(run), layers=2, channels=32, heads=2, steps=30, lr=0.01, warmup=1, batch=4, seq=48,
                          val_share=0.3, eval_every=30, eval_batches=3, sample_tokens=0, document_mask=True, **data)
    common = ("--checkpoint", run, "--batches", 3, "--json")
    [masked], [again], [plain] = (evaluate(*common, *more) for more in
                                  ((), ("--document-mask", "true"), ("--document-mask", "false")))
    assert masked["document_mask"] and masked["loss"] == pytest.approx(summary["held_out"], rel=2e-6)
    assert again["loss"] == masked["loss"] and "document_mask" not in plain
    assert abs(plain["loss"] - masked["loss"]) > 1e-3
    if kind == "recorded":  # rows of other lengths, and overlapping windows
        [strided] = evaluate("--checkpoint", run, "--stride", 17, "--batch", 3, "--json")
        assert strided["document_mask"] and strided["tokens"] > masked["tokens"]
        np.arange(5000, dtype=np.uint16).__mod__(256).astype(np.uint16).tofile(tmp_path / "raw.bin")
        refused = evaluate("--checkpoint", run, "--data", tmp_path / "raw.bin", status=2)
        assert "does not record where documents begin" in refused and "--document-mask false" in refused
        evaluate("--checkpoint", run, "--data", tmp_path / "raw.bin", "--document-mask", "false", "--json")
        assert "document_mask" not in evaluate("--checkpoint", run, "--data", tmp_path / "x.txt", "--json")[0]
        assert "true or false" in evaluate("--checkpoint", run, "--document-mask", "yes", status=2)
        assert "scored alone" in evaluate("--checkpoint", run, "--document-mask", "true", "--per-document", status=1)


def test_every_held_out_set_of_a_run_is_measured(evaluate, tmp_path):
    """Each as if it were given as --data, whose figures are compared with PyTorch's above."""
    texts = {"train": vocabularies.mixed(6_000), "one": vocabularies.mixed(1_500), "two": [" ".join(WORDS) * 20]}
    for name, parts in texts.items():
        (tmp_path / name).write_text("\n".join(parts), encoding="utf-8")
    run, sets = tmp_path / "run", [f"{name}={tmp_path / name}" for name in ("one", "two")]
    tally.train(data=tmp_path / "train", val_data=",".join(sets), model="tiny-gpt2", layers=1, channels=16, heads=1,
                batch=2, seq=16, steps=2, eval_batches=1, sample_tokens=0, out=run)
    (all_sets,) = evaluate("--model", run, "--json")
    measured = all_sets.pop("held_out_sets")
    assert list(measured) == ["one", "two"] and measured["one"] == all_sets
    for name, figures in measured.items():
        (alone,) = evaluate("--model", run, "--data", tmp_path / name, "--json")
        figures.pop("seconds"), alone.pop("seconds")
        assert figures == alone
    documents = evaluate("--model", run, "--per-document", "--json")[:-1]
    assert [line["set"] for line in documents] == ["one", "two"]
    assert "this run has 2 held-out sets" in evaluate("--model", run, "--bytes", 5, status=2)
