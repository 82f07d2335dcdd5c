"""Preferences: tokens, loss and gradients of DPO against transformers and PyTorch."""
import json
import subprocess

import numpy as np
import pytest

transformers = pytest.importorskip("transformers")
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from tally_c import ROOT  # noqa: E402

SEQ, BETA = 48, 0.3
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
TEXTS = [{"prompt": "A spider has ", "chosen": "eight legs.", "rejected": "six legs, as ants have."},
         {"prompt": "The sky is", "chosen": " blue", "rejected": " a kind of cheese, and so is the moon"},
         {"prompt": "", "chosen": "Grüße, 蜘蛛", "rejected": "no"},
         {"prompt": "Two and two: ", "chosen": "", "rejected": "five " * 40}]


def user(text):
    return [{"role": "user", "content": text}]


def says(text):
    return [{"role": "assistant", "content": text}]


MESSAGES = [{"prompt": user(r["prompt"] or "?"), "chosen": says(r["chosen"]), "rejected": says(r["rejected"])}
            for r in TEXTS]
# the same without a prompt of its own, and with one of another kind, as some published data have it
WHOLE = [{"chosen": r["prompt"] + r["chosen"], "rejected": r["prompt"] + r["rejected"]} for r in MESSAGES]
BOTH = [{**whole, "prompt": row["prompt"]} for whole, row in zip(WHOLE, TEXTS)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A small Llama with a tokenizer that puts <s> before a text, as transformers saves both."""
    import tokenizers as rust
    folder = tmp_path_factory.mktemp("base")
    tok = rust.Tokenizer(rust.models.BPE())
    tok.pre_tokenizer = rust.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = rust.decoders.ByteLevel()
    tok.train_from_iterator([(ROOT / "README.md").read_text()], rust.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=rust.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tok.post_processor = rust.processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tok, chat_template=CHATML, bos_token="<s>",
                                                  eos_token="</s>")
    theirs.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                                      num_key_value_heads=1, vocab_size=len(theirs), max_position_embeddings=128,
                                      initializer_range=0.2)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder)
    return folder, theirs, model


def train(base, out, rows, *flags):
    data = out.parent / f"{out.name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" if not isinstance(row, str) else row + "\n" for row in rows))
    command = [ROOT / "build" / "tally", "train", "--model", base, "--data", data, "--preference", "auto", "--dpo-beta",
               BETA, "--seq", SEQ, "--batch", 2, "--steps", 1, "--warmup", 0, "--sample-tokens", 0, "--val-share", 0,
               "--out", out, "--json", *flags]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def ids_of(tokenizer, row):
    """Prompt, and prompt with each answer, tokenized as in TRL; and where the answers begin."""
    if isinstance(row["chosen"], list):
        def encode(messages, asked):
            return tokenizer.apply_chat_template(messages, add_generation_prompt=asked, return_dict=False)
        both = [encode(row["prompt"] + row[key], False) for key in ("chosen", "rejected")]
        prompt = encode(row["prompt"], True)
    else:
        both = [tokenizer(row["prompt"] + row[key] + "</s>")["input_ids"] for key in ("chosen", "rejected")]
        prompt = tokenizer(row["prompt"])["input_ids"]
    same = [next((i for i, (a, b) in enumerate(zip(prompt, ids)) if a != b), min(len(prompt), len(ids)))
            for ids in both]
    return [ids[:SEQ] for ids in both], min(same)


def packed(path):
    raw = path.read_bytes()
    marked = np.frombuffer(raw, "<u2", int.from_bytes(raw[16:24], "little"), 64).astype(int)
    return (marked >> 1)[:-1].reshape(-1, 2, SEQ), (marked & 1)[:-1].reshape(-1, 2, SEQ)


def log_of(out):
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def dpo(model, reference, tokenizer, rows):
    """The mean loss of pairs, their margins; every pair by itself, without padding."""
    def log_p(model, ids, start):
        logits = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        return logits[torch.arange(len(ids) - 1), ids[1:]][max(start - 1, 0):].sum()
    margins = []
    for row in rows:
        both, start = ids_of(tokenizer, row)
        chosen, rejected = (log_p(model, ids, start) for ids in both)
        with torch.no_grad():
            chosen_ref, rejected_ref = (log_p(reference, ids, start) for ids in both)
        margins.append(BETA * ((chosen - rejected) - (chosen_ref - rejected_ref)))
    margins = torch.stack(margins)
    return -torch.nn.functional.logsigmoid(margins).mean(), margins.detach()


@pytest.mark.parametrize("rows, name", [(TEXTS, "texts"), (MESSAGES, "messages"), (WHOLE, "whole"), (BOTH, "both")])
def test_tokens_are_those_of_transformers(base, tmp_path, rows, name):
    folder, tokenizer, _ = base
    done = train(folder, tmp_path / "run", rows)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["differences"] == 0
    ids, learned = packed(tmp_path / "run" / "data.tok")
    for pair, marks, row in zip(ids, learned, TEXTS if name == "texts" else MESSAGES, strict=True):
        both, start = ids_of(tokenizer, row)
        for got, mark, want in zip(pair, marks, both):
            assert list(got[:len(want)]) == list(want) and not got[len(want):].any()
            assert list(np.flatnonzero(mark)) == list(range(max(start, 1), len(want)))
    assert "4 pairs of answers" in done.stderr and "(1 pairs were cut, 0 have" in done.stderr


@pytest.mark.parametrize("accum", [1, 2])
def test_loss_and_gradients_are_those_of_torch(base, tmp_path, accum):
    """Two steps of SGD with a rate of 1: the difference of the weights is the gradient. In the second step the model is
    no longer its reference."""
    folder, tokenizer, first = base
    flags = ["--optimizer", "sgd", "--lr", 1, "--schedule", "constant", "--weight-decay", 0, "--clip", 0, "--batch",
             4 // accum, "--accum", accum, "--save-every", 1, "--steps", 2]
    done = train(folder, tmp_path / "run", TEXTS, *flags)
    assert done.returncode == 0, done.stderr
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    lines = log_of(tmp_path / "run")
    for step in range(2):
        loss, margins = dpo(model, first, tokenizer, TEXTS)
        model.zero_grad()
        loss.backward()
        assert lines[step]["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert lines[step]["reward_margin"] == pytest.approx(margins.mean().item(), rel=1e-4, abs=1e-6)
        assert lines[step]["reward_accuracy"] == (margins > 0).float().mean().item()
        found = load_file(tmp_path / "run" / "checkpoints" / f"step-{step + 1:012}" / "model.safetensors")
        for name, p in model.named_parameters():
            error, rounding = p.detach() - found[name] - p.grad, torch.finfo(p.dtype).eps / 2 * found[name].abs()
            assert ((error.abs() - rounding) <= 1e-5 * p.grad.abs().max()).all(), name
        model.load_state_dict(found, strict=False)
    assert lines[0]["loss"] == pytest.approx(np.log(2), abs=1e-6) and lines[1]["reward_margin"] > 0


def test_adapters_off_are_the_reference(base, tmp_path):
    """With LoRA no second model is held; the loss is that of peft with its adapter, and without."""
    peft = pytest.importorskip("peft")
    folder, tokenizer, first = base
    flags = ["--lora", 4, "--lr", 0.02, "--batch", 4, "--schedule", "constant"]
    done = train(folder, tmp_path / "run", MESSAGES, *flags, "--steps", 5)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["differences"] == 0
    held = json.loads((tmp_path / "run" / "receipt.json").read_text())["kinds"]["step"]["ledger"]["memory"]
    assert int(held["peak_by_purpose"]["parameter"]) == 4 * (summary["parameters"] + summary["trained_parameters"])
    adapted = peft.PeftModel.from_pretrained(transformers.LlamaForCausalLM.from_pretrained(folder),
                                             tmp_path / "run" / "final")
    loss, _ = dpo(adapted, first, tokenizer, MESSAGES)
    more = train(folder, tmp_path / "run", MESSAGES, *flags, "--steps", 6)
    assert more.returncode == 0, more.stderr
    losses = [line["loss"] for line in log_of(tmp_path / "run") if "loss" in line]
    assert losses[5] == pytest.approx(loss.item(), rel=1e-5)
    assert losses[5] < losses[0] == pytest.approx(np.log(2), abs=1e-6)


def test_a_copy_has_no_gradient_and_no_moments(base, tmp_path):
    folder = base[0]
    done = train(folder, tmp_path / "run", TEXTS, "--steps", 4, "--save-every", 2, "--val-share", 0.25,
                 "--eval-batches", 1)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["differences"] == 0 and 0 <= summary["held_out_reward_accuracy"] <= 1
    by = json.loads((tmp_path / "run" / "receipt.json").read_text())["kinds"]["step"]["ledger"]["memory"]
    by = {k: int(v) for k, v in by["peak_by_purpose"].items()}
    n = 4 * summary["parameters"]
    assert by["parameter"] == 2 * n and by["optimizer"] == 2 * n and by["gradient"] <= n


@pytest.mark.parametrize("row, words", [
    ("{", "line 2: is not JSON"), ("[]", 'line 2: has no "chosen"'), ('{"prompt": "x"}', 'has no "chosen"'),
    ('{"prompt": "x", "chosen": "y"}', 'has no "rejected"'), ('{"chosen": "x", "rejected": "y"}', 'has no "prompt"'),
    ('{"prompt": "x", "chosen": "y", "rejected": [{"role": "user", "content": "z"}]}', "two of a kind"),
    ('{"prompt": "x", "chosen": [], "rejected": []}', 'has no "chosen"'),
    ('{"prompt": [{"role": "tool", "content": "z"}], "chosen": [{}], "rejected": [{}]}', 'has no role "tool"'),
    ('{"prompt": 1, "chosen": "x", "rejected": "y"}', 'has no "prompt"'),
    ('{"prompt": [], "chosen": ["x"], "rejected": ["y"]}', 'has no "role"')])
def test_wrong_rows_are_refused_by_number(base, tmp_path, row, words):
    done = train(base[0], tmp_path / "run", [TEXTS[0], row])
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_wrong_settings_and_files_are_refused(base, tmp_path):
    folder = base[0]
    for flags, words in [(["--chat", "auto"], "not both"), (["--document-mask", "true"], "a sequence of its own"),
                         (["--sampling", "random"], "cut pairs"), (["--tp", 2, "--price"], "a whole model"),
                         (["--z-loss", 0.1], "not of tokens"), (["--mup-channels", 8], "reference"),
                         (["--data", "builtin"], "no pairs of answers"), (["--dpo-beta", 0], "dpo_beta"),
                         (["--preference", "none"], "no use without"), (["--val-share", 0.1], "is none")]:
        done = train(folder, tmp_path / "run", TEXTS[:2], *flags)
        assert done.returncode == 2 and words in done.stderr, (flags, done.stderr)
    for rows, words in [([], "is empty"), ([""], "no pair has two answers"),
                        ([{"prompt": "x " * 99, "chosen": "y", "rejected": "z"}], "no pair has two answers")]:
        done = train(folder, tmp_path / "run", rows)
        assert done.returncode == 2 and words in done.stderr, done.stderr
