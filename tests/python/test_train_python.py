"""Runs from Python: what they tell, what they leave behind, and what others read of it."""
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import tally

SMALL = dict(layers=2, channels=32, heads=2, steps=6, warmup=1, batch=2, seq=16, sample_tokens=5, eval_every=2, eval_batches=2, prompt="A")


def train(folder, **settings):
    return tally.train(out=folder / "run", **{**SMALL, **settings})


def test_a_run_tells_its_steps_and_sums_up(tmp_path):
    news = []
    summary = train(tmp_path, on_step=news.append)
    assert summary["end"] == "done" and summary["steps"] == 6 and summary["differences"] == 0
    assert [n["step"] for n in news if "grad_norm" in n] == [1, 2, 3, 4, 5, 6]
    assert [n["step"] for n in news if "held_out" in n] == [2, 4, 6]
    assert [n["text"] for n in news if "text" in n] == [summary["text"]]
    assert all("mfu_palm" not in n for n in news)
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [x["loss"] for x in log if "loss" in x] == [n["loss"] for n in news if "grad_norm" in n]


def test_tensors_beside_a_run_are_not_the_runs(tmp_path):
    alone = tally.train(out=tmp_path / "alone", **SMALL)
    beside = tally.ones(1000)
    summary = train(tmp_path)
    assert summary["foreign_bytes"] - alone.get("foreign_bytes", 0) == beside.nbytes  # other tests may hold some too
    assert summary["differences"] == alone["differences"] == 0 and summary["loss"] == alone["loss"]


def test_false_stops_and_the_same_call_goes_on(tmp_path):
    whole = tally.train(out=tmp_path / "whole", **SMALL)
    stopped = train(tmp_path, on_step=lambda news: news["step"] < 3)
    assert stopped["end"] == "stopped" and stopped["steps"] < 6
    summary = train(tmp_path)
    assert (summary["end"], summary["loss"], summary["held_out"]) == ("done", whole["loss"], whole["held_out"])


def test_what_a_listener_raises_is_raised_and_the_run_is_saved(tmp_path):
    def listen(news):
        if news["step"] == 3:
            raise KeyError("enough")
    with pytest.raises(KeyError, match="enough"):
        train(tmp_path, on_step=listen)
    assert list((tmp_path / "run/checkpoints").iterdir())
    assert train(tmp_path)["end"] == "done"
    assert (tally.ones(2) + 1).tolist() == [2, 2]  # no error is left behind


def test_wrong_settings_raise(tmp_path):
    with pytest.raises(RuntimeError, match='there is no setting "bacth", did you mean "batch"'):
        tally.train(bacth=3)
    with pytest.raises(RuntimeError, match="wrong type"):
        tally.train(batch="three")
    with pytest.raises(OSError, match="absent"):
        train(tmp_path, data=str(tmp_path / "absent"))
    with pytest.raises(tally.OutOfMemoryError, match=r"it fits with --batch \d+"):
        train(tmp_path, batch=2000, memory_limit="40MiB")


def test_a_price_without_a_run(tmp_path):
    price = tally.train_price(out=tmp_path / "run", **SMALL)
    assert price["schema"] == "tally.run/1" and {k: v["count"] for k, v in price["kinds"].items()} == {
        "step": 6, "eval": 3, "sample": 1, "save": 1}
    assert not (tmp_path / "run").exists()
    assert tally.train_settings()["batch"] > 0


# ---- The models they leave ----

@pytest.mark.parametrize("model", ["tiny", "tiny-gpt2"])
@pytest.mark.parametrize("recipe", ["fp32", "bf16"])
def test_transformers_loads_the_last_weights(tmp_path, model, recipe):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    train(tmp_path, model=model, recipe=recipe)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run/final", dtype=torch.float32).eval()
    ours = tally.Model(tmp_path / "run/final")
    ids = np.random.default_rng(0).integers(0, 256, (2, 13))
    want = theirs(torch.from_numpy(ids)).logits.detach().numpy()
    got = ours.logits(ids).detach().numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())
    if recipe == "fp32":  # the checkpoint has the same
        np.testing.assert_array_equal(tally.Model(tmp_path / "run").logits(ids).detach().numpy(), got)


def test_generated_tokens_are_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    train(tmp_path, steps=30, lr=1e-2)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run/final", dtype=torch.float32).eval()
    ids = np.random.default_rng(1).integers(0, 256, (2, 9))
    want = theirs.generate(torch.from_numpy(ids), max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None).numpy()
    got = tally.Model(tmp_path / "run").generate(ids, tokens=20, temperature=0).numpy()
    np.testing.assert_array_equal(got, want)


def test_a_model_speaks(tmp_path):
    train(tmp_path)
    model = tally.Model(tmp_path / "run")
    assert repr(model).startswith("Model(llama, ") and model.config["n_layers"] == 2
    a, b, other = (model.generate("Once", tokens=20, seed=seed) for seed in (1, 1, 2))
    assert a == b != other and a.startswith("Once")
    before = tally.rand(2)
    tally.manual_seed(5)
    first = tally.rand(2).tolist()
    tally.manual_seed(5)
    model.generate("Once", tokens=3, seed=9)
    assert tally.rand(2).tolist() == first  # a seed of its own leaves the thread's generator alone
    del before
    with pytest.raises(RuntimeError, match="top_p"):
        model.generate("Once", top_p=0)
    with pytest.raises(OSError, match="config.json"):
        tally.Model(tmp_path / "absent")


# ---- TensorBoard ----

def events(folder):
    tensorboard = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = tensorboard.EventAccumulator(str(folder), size_guidance={k: 0 for k in ("scalars", "tensors")})
    accumulator.Reload()
    return accumulator


def raw_events(folder):
    """Every record of the file, with TensorBoard's own check of the checksums."""
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    return list(loader.EventFileLoader(str(folder / "events.out.tfevents.tally")).Load())


def tag_of(accumulator, tag):
    """Steps and values, whether the loader has kept scalars or made them tensors."""
    if tag in accumulator.Tags()["scalars"]:
        return [(e.step, e.value) for e in accumulator.Scalars(tag)]
    from tensorboard.util import tensor_util
    return [(e.step, tensor_util.make_ndarray(e.tensor_proto).item()) for e in accumulator.Tensors(tag)]


def test_tensorboard_reads_the_run(tmp_path):
    summary = train(tmp_path, peak=1e12)
    folder = tmp_path / "run"
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    found = events(folder)
    for tag, key in ("train/loss", "loss"), ("train/lr", "lr"), ("train/grad_norm", "grad_norm"):
        assert tag_of(found, tag) == [(x["step"], pytest.approx(x[key], rel=1e-6)) for x in log if key in x], tag
    assert tag_of(found, "held_out/loss") == [(x["step"], pytest.approx(x["held_out"], rel=1e-6)) for x in log if "held_out" in x]
    assert [s for s, _ in tag_of(found, "speed/tokens_per_s")] == [1, 2, 3, 4, 5, 6]
    assert all(0 < v < 1 for _, v in tag_of(found, "speed/mfu"))
    (step, text), = tag_of(found, "sample")
    assert (step, text.decode()) == (6, summary["text"])


def steps_of(folder):
    values = []
    for event in raw_events(folder):
        values += [(event.step, v.tag) for v in event.summary.value]
    return values


def test_a_run_that_goes_on_repeats_no_event(tmp_path):
    tally.train(out=tmp_path / "whole", **SMALL)
    stopped = train(tmp_path, on_step=lambda news: news["step"] < 3)
    assert stopped["end"] == "stopped"
    before = len(raw_events(tmp_path / "run"))
    with open(tmp_path / "run/events.out.tfevents.tally", "ab") as file:
        file.write(b"what a killed process had written behind its checkpoint")
    train(tmp_path)
    assert steps_of(tmp_path / "run") == steps_of(tmp_path / "whole")
    assert len(steps_of(tmp_path / "run")) == len(set(steps_of(tmp_path / "run"))) and before < len(raw_events(tmp_path / "run"))
    versions = [e.file_version for e in raw_events(tmp_path / "run") if e.file_version]
    assert len(versions) == 1


# ---- Signals ----

def test_ctrl_c_saves_and_raises(tmp_path):
    program = f"import tally; tally.train(out={str(tmp_path / 'run')!r}, on_step=lambda n: print(n['step'], flush=True), " \
              f"**{ {**SMALL, 'steps': 100000, 'save_every': 0}!r})"
    # What a shell starts in the background ignores SIGINT, and so would the child, were it not told otherwise.
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    killer = threading.Timer(60, child.kill)
    killer.start()
    child.stdout.readline()
    os.kill(child.pid, signal.SIGINT)
    _, err = child.communicate()
    killer.cancel()
    assert "KeyboardInterrupt" in err and list((tmp_path / "run/checkpoints").iterdir())
