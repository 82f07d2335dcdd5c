"""Generated text: token for token what transformers generates, batched, streamed and stopped."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tally
from tally._library import c, constants

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
CONTEXT = 48
CLOSE = 1e-4  # of the two best logits: which of them is the likeliest is then a matter of rounding


def gpt2(rng, **more):
    heads = int(rng.choice([1, 2, 4]))
    return transformers.GPT2Config(n_layer=int(rng.integers(1, 4)), n_head=heads,
                                   n_embd=heads * int(rng.choice([8, 16])), vocab_size=97,
                                   n_positions=CONTEXT, n_inner=int(rng.choice([40, 64])),
                                   initializer_range=0.3, **more)


def llama(rng, kind=None, **more):
    kv, head = int(rng.choice([1, 2])), int(rng.choice([8, 16]))
    heads = kv * int(rng.choice([1, 3]))
    return (kind or transformers.LlamaConfig)(
        num_hidden_layers=int(rng.integers(1, 4)), num_attention_heads=heads, num_key_value_heads=kv, head_dim=head,
        hidden_size=heads * head, intermediate_size=int(rng.choice([40, 72])), vocab_size=97,
        max_position_embeddings=CONTEXT, initializer_range=0.3, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        **more)


ROPE3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=16, rope_theta=1000.0)
KINDS = {
    "gpt2": gpt2,
    "gpt2, untied": lambda rng: gpt2(rng, tie_word_embeddings=False),
    "llama": llama,
    "llama, tied": lambda rng: llama(rng, tie_word_embeddings=True),
    "llama, another base": lambda rng: llama(rng, rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    "llama, linear positions": lambda rng: llama(rng, rope_parameters=dict(rope_type="linear", factor=4.0,
                                                                           rope_theta=10000.0)),
    "llama 3's positions": lambda rng: llama(rng, rope_parameters=ROPE3),
    "qwen2": lambda rng: llama(rng, transformers.Qwen2Config, use_sliding_window=False),
    "qwen2, tied": lambda rng: llama(rng, transformers.Qwen2Config, use_sliding_window=False, tie_word_embeddings=True),
}


@pytest.fixture(scope="module", params=[(kind, seed) for kind in KINDS for seed in range(2)],
                ids=lambda p: f"{p[0]}-{p[1]}")
def both(request, tmp_path_factory):
    kind, seed = request.param
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    theirs = transformers.AutoModelForCausalLM.from_config(KINDS[kind](rng)).float().eval()
    for name, parameter in theirs.named_parameters():  # biases and norms are constants at first
        if parameter.ndim == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return theirs, tally.Model(folder), rng


def greedy(theirs, ids, n):
    """Tokens that transformers adds, and how far ahead of the second each was."""
    ids = torch.tensor([ids])  # it would take the id of padding, wherever it is, for padding
    out = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, do_sample=False, pad_token_id=0,
                          eos_token_id=None, output_logits=True, return_dict_in_generate=True)
    top = torch.stack(out.logits)[:, 0].topk(2).values
    return out.sequences[0, ids.shape[1]:].tolist(), (top[:, 0] - top[:, 1]).tolist()


def assert_same(got, want, ahead):
    for n, (a, b) in enumerate(zip(got, want)):
        if a != b:
            assert ahead[n] < CLOSE, f"token {n}: {a}, not {b}, which is ahead by {ahead[n]}"
            return  # after it the texts differ
    assert len(got) == len(want)


def test_greedy_tokens_are_transformers(both):
    theirs, ours, rng = both
    prompts = [rng.integers(0, 97, n).tolist() for n in (1, 2, 7, 20, CONTEXT - 3)]
    n = [CONTEXT - len(p) for p in prompts]  # up to the full context
    want = [greedy(theirs, p, m) for p, m in zip(prompts, n)]
    for p, m, (ids, ahead) in zip(prompts, n, want):
        assert_same(ours.generate(p, tokens=m, temperature=0).tolist()[0][len(p):], ids, ahead)
    together = ours.generate(prompts, tokens=CONTEXT, temperature=0)
    for got, p, m, (ids, ahead) in zip(together, prompts, n, want):
        assert_same(got[len(p):len(p) + m], ids, ahead)


def test_texts_are_the_same_alone_and_together(both):
    _, ours, rng = both
    prompts = [rng.integers(0, 97, n).tolist() for n in (3, 9, 1, 30, 9, 2, 40, 17, 5, 6)]
    options = dict(tokens=25, temperature=0.9, top_k=40, top_p=0.9, min_p=0.01, repetition_penalty=1.1)
    together = ours.generate(prompts, seed=7, batch=4, **options)
    for i, (p, text) in enumerate(zip(prompts, together)):
        alone = ours.generate([p, p + [1]], seed=7 + i, batch=1, **options)[0]
        assert text == alone, f"prompt {i}"
    assert together == ours.generate(prompts, seed=7, batch=8, **options)
    assert [x[len(p)] for x, p in zip(ours.generate(prompts, seed=8, **options), prompts)] != \
        [x[len(p)] for x, p in zip(together, prompts)]


# ---- The end of a text

TALLY = os.environ.get("TALLY", Path(__file__).parents[2] / "build" / "tally")


def with_eos(theirs, folder, **files):
    """The folder of a model whose generation_config.json and config.json say where texts end."""
    theirs.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for name, eos in files.items():
        path = folder / f"{name}.json"
        about = json.loads(path.read_text()) if path.exists() else {}
        about["eos_token_id"] = eos
        path.write_text(json.dumps(about))
    return folder


def rows_of(out, prompt, eos):
    """The rows of a tensor up to their ends."""
    rows = [row[len(prompt):] for row in out]
    return [row[:next((i + 1 for i, id in enumerate(row) if id in eos), len(row))] for row in rows]


def test_rows_end_where_transformers_ends_them(both, tmp_path):
    theirs, ours, rng = both
    prompts = rng.integers(0, 97, (3, 5)).tolist()
    free = ours.generate(prompts, tokens=16, temperature=0, ignore_eos=True).tolist()
    ahead = [greedy(theirs, prompt, 16)[1] for prompt in prompts]
    ends = [free[0][5 + 3], free[1][5 + 9]]
    both_files = dict(generation_config=ends, config=[free[0][5]])  # the first of the two counts
    for n, (files, eos) in enumerate(((both_files, ends), (dict(config=ends[1]), ends[1:]), (dict(config=None), []))):
        folder = with_eos(theirs, tmp_path / str(n), **files)
        model = tally.Model(folder)
        assert model.eos == eos
        x = torch.tensor(prompts)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
        want = loaded.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=16, do_sample=False,
                               pad_token_id=eos[0] if eos else 0).tolist()
        got = model.generate(prompts, tokens=16, temperature=0)
        rows, their_rows = rows_of(got.tolist(), prompts[0], eos), rows_of(want, prompts[0], eos)
        for row, their_row, a in zip(rows, their_rows, ahead):
            assert_same(row, their_row, a)
        if rows == their_rows:  # otherwise a tie was rounded differently
            assert got.shape[1] == len(want[0])
        assert got.shape[1] == 5 + max(map(len, rows))
        ragged = model.generate([*prompts, [1]], tokens=16, temperature=0, batch=2)[:3]
        assert [row[5:] for row in ragged] == rows
        assert model.generate(prompts, tokens=16, temperature=0, ignore_eos=True).tolist() == free
        assert model.generate(prompts[0], tokens=16, temperature=0, eos=free[0][5]).tolist() == [free[0][:6]]


def test_the_program_ends_texts_at_the_same_token(both, tmp_path):
    theirs, ours, rng = both
    prompt = rng.integers(0, 97, 5).tolist()
    free = ours.generate(prompt, tokens=20, temperature=0, ignore_eos=True).tolist()[0][5:]
    folder = with_eos(theirs, tmp_path / "x", generation_config=[96, free[4]])
    command = [TALLY, "generate", "--model", folder, "--ids", ",".join(map(str, prompt)), "--tokens", "20",
               "--temperature", "0", "--json", "--threads", "1"]
    ended = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert ended["tokens"] == free[:min(free.index(id) for id in (96, free[4]) if id in free) + 1]
    assert ended["stopped"] and ended["finish_reason"] == "eos"
    whole = json.loads(subprocess.run([*command, "--ignore-eos"], check=True, capture_output=True).stdout)
    assert whole["tokens"] == free and not whole["stopped"] and whole["finish_reason"] == "length"


# ---- Texts

@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    """A run with a tokenizer that was trained on its text."""
    folder = tmp_path_factory.mktemp("speaker")
    text = folder / "text.txt"
    text.write_text("Ein Bär läuft über die Brücke. Größe und Süße – 日本語 für alle! 🙂\n" * 200)
    tally.train(out=str(folder / "run"), data=str(text), tokenizer="train:300", layers=1, channels=32, heads=2, steps=4,
                warmup=1, batch=2, seq=32, sample_tokens=0)
    return folder / "run"


def test_a_prompt_of_text_uses_the_models_tokenizer(speaker):
    model = tally.Model(speaker)
    assert len(model.tokenizer) == 300
    text = model.generate("Ein Bär", tokens=20, seed=3)
    assert text.startswith("Ein Bär") and isinstance(text, str)
    ids = model.generate([model.tokenizer.encode("Ein Bär"), [1]], tokens=20, seed=3)[0]
    assert model.tokenizer.decode(ids) == text
    final = tally.Model(speaker / "final")
    assert final.generate("Ein Bär", tokens=20, seed=3) == text
    with pytest.raises(ValueError, match="no tokenizer"):
        tally.Model(speaker, tokenizer=False).generate("Ein Bär")


def test_texts_stream_in_whole_characters(speaker):
    model = tally.Model(speaker)
    options = dict(tokens=60, temperature=1.5, seed=5)
    pieces = list(model.generate("Ein", stream=True, **options))
    assert len(pieces) > 5 and "Ein" + "".join(pieces) == model.generate("Ein", **options)
    texts = ["", "", ""]
    prompts = ["Ein Bär", "日", "Größe und"]
    for index, piece in model.generate(prompts, stream=True, **options):
        texts[index] += piece
    want = model.generate(prompts, **options)
    assert [p + t for p, t in zip(prompts, texts)] == want
    assert want[1] == model.generate("日", **{**options, "seed": 6})
    ids = [p for p in model.generate([[1, 2], [3]], stream=True, tokens=4, seed=1)]
    assert sorted(i for i, _ in ids) == [0] * 4 + [1] * 4


def test_texts_end_before_a_stop_string(speaker):
    model = tally.Model(speaker)
    options = dict(tokens=80, temperature=1.0, seed=5)
    text = model.generate("Ein Bär", **options)
    made = text[len("Ein Bär"):]
    for at in (1, 7, 20):
        for length in (1, 2, 5):
            stop = made[at:at + length]
            want = "Ein Bär" + made[:made.index(stop)]
            assert model.generate("Ein Bär", stop=stop, **options) == want
            assert model.generate("Ein Bär", stop=["\x00", stop, ""], **options) == want
            assert "Ein Bär" + "".join(model.generate("Ein Bär", stop=stop, stream=True, **options)) == want
    with pytest.raises(ValueError, match="stop"):
        model.generate([1, 2], stop="x")


def program(*arguments, **more):
    command = [TALLY, "generate", "--temperature", "0", "--threads", "1", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def test_texts_end_before_the_tokenizers_end_of_text(speaker, tmp_path):
    model = tally.Model(speaker)
    end = model.tokenizer.end_of_text
    assert model.eos == [end] and model.tokenizer.token_bytes(end) == b"<|endoftext|>"
    assert transformers.GenerationConfig.from_pretrained(speaker / "final").eos_token_id == end
    options = dict(tokens=100, temperature=2.0)
    for seed in range(100):  # until one draws it
        text = model.generate("Ein Bär", seed=seed, ignore_eos=True, **options)
        if 0 < text[7:].find("<|endoftext|>"):
            break
    want = text[:text.index("<|endoftext|>")]
    prompt = model.tokenizer.encode("Ein Bär")
    ids = model.generate([prompt, [1]], seed=seed, **options)[0][len(prompt):]
    assert ids[-1] == end
    assert c.tl_model_export_gguf(model._address, str(tmp_path / "x.gguf").encode(), constants["TL_GGUF_F32"],
                                  model.tokenizer._address, None)
    for path in (speaker, speaker / "final", tmp_path / "x.gguf"):
        one = tally.Model(path)
        assert one.eos == [end] and one.generate("Ein Bär", seed=seed, **options) == want
        assert "Ein Bär" + "".join(one.generate("Ein Bär", seed=seed, stream=True, **options)) == want
        said = json.loads(program("--model", path, "--prompt", "Ein Bär", "--tokens", 100, "--temperature", 2, "--seed",
                                  seed, "--json"))
        assert said["tokens"] == ids and "<|endoftext|>" not in said["text"]
    assert tally.Model(speaker, tokenizer=False).eos == [end]


def test_an_interactive_text_goes_on_before_its_end(speaker, tmp_path):
    final = tmp_path / "final"
    shutil.copytree(speaker / "final", final)
    model = tally.Model(final)
    ids = model.tokenizer.encode("Ein Bär")
    after = model.generate(ids, tokens=1, temperature=0).tolist()[0][len(ids):]
    (final / "generation_config.json").write_text(json.dumps(dict(eos_token_id=after)))
    first, second = program("--model", final, "--interactive", "--tokens", 9, input="Ein Bär\nund\n").split("\n", 1)
    assert first == "" and program("--model", final, "--tokens", 9, "--prompt", "Ein Bär\nund") == \
        "Ein Bär\nund" + second


def test_an_end_of_text_that_is_no_id_is_refused(speaker, tmp_path):
    final = tmp_path / "final"
    shutil.copytree(speaker / "final", final)
    for wrong in ("two", [1, -1], 1.5, {}, [None], list(range(65))):
        (final / "generation_config.json").write_text(json.dumps(dict(eos_token_id=wrong)))
        with pytest.raises(RuntimeError, match='"eos_token_id"'):
            tally.Model(final)


def test_wrong_options_are_refused(speaker):
    model = tally.Model(speaker)
    for wrong in (dict(min_p=1.0), dict(repetition_penalty=-1.0), dict(top_k=-1), dict(temperature=-1.0)):
        with pytest.raises(RuntimeError, match=list(wrong)[0]):
            model.generate("Ein", **wrong)
    with pytest.raises(ValueError, match="batch is 0"):
        model.generate(["Ein"], batch=0)


def test_seeds(speaker):
    model = tally.Model(speaker)
    tally.manual_seed(1)
    a, b = model.generate("Ein", tokens=30), model.generate("Ein", tokens=30)
    tally.manual_seed(1)
    assert a != b and model.generate("Ein", tokens=30) == a


def test_a_gguf_file_brings_its_tokenizer(speaker, tmp_path):
    source = tally.Model(speaker / "final")
    assert c.tl_model_export_gguf(source._address, str(tmp_path / "x.gguf").encode(), constants["TL_GGUF_F32"],
                                  source.tokenizer._address, None)
    model = tally.Model(tmp_path / "x.gguf")
    assert model.tokenizer.hash == source.tokenizer.hash
    for text in ("Ein Bär läuft", "日本語 🙂\n\n  x", "<|endoftext|>Größe"):
        ids = [x.tokenizer.encode(text, allowed_special="all") for x in (model, source)]
        assert ids[0] == ids[1]
        assert model.generate(text, tokens=30, temperature=0) == source.generate(text, tokens=30, temperature=0)


def test_a_gguf_tokenizer_of_another_kind_is_refused_by_name(tmp_path):
    gguf = pytest.importorskip("gguf")
    for model, pre, message in (("llama", None, 'tokenizer.ggml.model is "llama"'),
                                ("gpt2", "jina-v2-de", "jina-v2-de"), (None, None, "has no tokenizer")):
        writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), "gpt2")
        if model:
            writer.add_tokenizer_model(model)
        if pre:
            writer.add_tokenizer_pre(pre)
        writer.add_token_list(["a", "b"])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        with pytest.raises(ValueError, match=message):
            tally.Tokenizer(tmp_path / "x.gguf")
