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
from conftest import PATIENCE

SMALL = dict(layers=2, channels=32, heads=2, steps=6, warmup=1, batch=2, seq=16, sample_tokens=5, eval_every=2,
             eval_batches=2, prompt="A")


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


def test_attention_is_kept_inside_documents(tmp_path):
    plain = tally.train(out=tmp_path / "plain", **SMALL)
    summary = train(tmp_path, document_mask=True, document_token=32)
    assert summary["differences"] == 0 and summary["loss"] != plain["loss"] and "causal_pairs" not in plain
    assert summary["causal_pairs"] == 6 * 2 * 16 * 17 // 2 > summary["attention_pairs"] >= 6 * 2 * 16
    log = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert sum(x["attention_pairs"] for x in log if "loss" in x) == summary["attention_pairs"]


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
    want = theirs.generate(torch.from_numpy(ids), max_new_tokens=20, do_sample=False, pad_token_id=0,
                           eos_token_id=None).numpy()
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
    with pytest.raises(OSError, match="absent: there is no run and no model"):
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
    assert tag_of(found, "held_out/loss") == [(x["step"], pytest.approx(x["held_out"], rel=1e-6))
                                              for x in log if "held_out" in x]
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
    assert (len(steps_of(tmp_path / "run")) == len(set(steps_of(tmp_path / "run")))
            and before < len(raw_events(tmp_path / "run")))
    versions = [e.file_version for e in raw_events(tmp_path / "run") if e.file_version]
    assert len(versions) == 1


# ---- Signals ----

def child(program, *arguments, **options):
    """Runs a Python program in a process that receives SIGINT; processes that a shell starts in the background ignore
    it."""
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], text=True, timeout=PATIENCE,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                          **{"capture_output": True, **options})


INTERRUPTED = f"""
import json, os, random, signal, sys, threading, time
import tally
small = {SMALL!r} | dict(steps=10**9, save_every=0, eval_every=0, stories=300000)
random.seed(11)

def interrupt(after):
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGINT)

def interrupt_thrice(news):
    for _ in range(3 if news["step"] == 3 else 0):
        os.kill(os.getpid(), signal.SIGINT)

def signalled(number, frame):
    raise InterruptedError("by a handler of our own")

signal.signal(signal.SIGUSR2, signalled)
before = signal.getsignal(signal.SIGINT)
found = []
for i in range(14):
    run = sys.argv[1] + f"/run-{{i}}"
    thread = threading.Thread(target=interrupt, args=(0.02 + random.random() * 0.3,))
    listener = None if i % 2 else (lambda news: None)
    try:
        if i < 13:
            thread.start()
        end = tally.train(listener if i < 13 else interrupt_thrice, out=run, **small)["end"]
    except KeyboardInterrupt:
        end = "KeyboardInterrupt"
    found.append([end, len(os.listdir(run + "/checkpoints")), signal.getsignal(signal.SIGINT) is before])
done = json.load(open(f"{{run}}/checkpoints/{{os.listdir(run + '/checkpoints')[-1]}}/state.json"))["step"]
try:
    tally.train(lambda news: os.kill(os.getpid(), signal.SIGUSR2), out=run, **small)
    found.append("nothing was raised")
except InterruptedError as error:
    found.append(str(error))
last = tally.train(out=run, **small | dict(steps=done + 10))
found.append([last["end"], last["differences"], last["steps"] - done])
print(json.dumps(found))
"""


def test_ctrl_c_at_any_moment_saves_and_raises(tmp_path):
    result = child(INTERRUPTED, tmp_path)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    *interrupted, by_handler, last = json.loads(result.stdout)
    assert interrupted == [["KeyboardInterrupt", 1, True]] * 14
    assert by_handler == "by a handler of our own" and last == ["done", 0, 10]


def test_ctrl_c_ends_a_program(tmp_path):
    settings = {**SMALL, "steps": 10**9, "save_every": 0, "stories": 300000}
    program = "import os, signal, sys, tally; " \
              "tally.train(lambda n: n['step'] == 5 and os.kill(os.getpid(), signal.SIGINT) or None, " \
              f"out=sys.argv[1], **{settings!r}); print('trained')"
    result = child(program, tmp_path / "run")
    assert ("KeyboardInterrupt" in result.stderr and result.stdout == ""
            and list((tmp_path / "run/checkpoints").iterdir()))


LEARNING = f"""
import json, os, random, signal, sys, threading, time
import tally
folder = sys.argv[1]
text, run = folder + "/words.txt", folder + "/run"
random.seed(5)
with open(text, "w") as out:
    for _ in range(400000):
        out.write("".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=12)) + " ")
settings = dict({SMALL!r}, data=text, tokenizer="train:300000", out=run)

def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

before = signal.getsignal(signal.SIGINT)
found = []
for call in (lambda: tally.train(**settings), lambda: tally.train(lambda news: found.append(news), **settings),
             lambda: tally.train_price(**settings), lambda: tally.Tokenizer.train(text, 300000)):
    threading.Thread(target=interrupt).start()
    try:
        call()
        found.append("nothing was raised")
    except KeyboardInterrupt:
        found.append([os.listdir(folder), signal.getsignal(signal.SIGINT) is before])
print(json.dumps(found + [(tally.ones(2) + 1).tolist()]))
"""


def test_ctrl_c_while_a_tokenizer_is_learned_leaves_nothing(tmp_path):
    result = child(LEARNING, tmp_path)  # which takes seconds: 300,000 merges of random words
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert json.loads(result.stdout) == [[["words.txt"], True]] * 4 + [[2, 2]]


def test_a_save_that_fails_after_ctrl_c_is_what_is_raised(tmp_path):
    def listen(news):
        if news["step"] == 3:
            for step in range(3, 6):
                (tmp_path / f"run/checkpoints/step-{step:012}").write_text("no folder")
            raise KeyboardInterrupt
    with pytest.raises(OSError, match="checkpoints/step-") as caught:
        train(tmp_path, on_step=listen, eval_every=0)
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    assert (tally.ones(2) + 1).tolist() == [2, 2]


# ---- Threads ----

def test_a_thread_trains_and_leaves_signals_to_the_main_one(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(train(tmp_path)["end"]))
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    assert signal.getsignal(signal.SIGINT) is before
    thread.join()
    assert found == ["done"]


def test_two_runs_at_once_are_refused_by_name(tmp_path):
    whole = tally.train(out=tmp_path / "whole", **SMALL)
    refused, summaries = [], []

    def second():
        for call in tally.train, tally.train_price:
            try:
                call(out=tmp_path / "second", **SMALL)
            except RuntimeError as error:
                refused.append(str(error))

    def listen(news):
        if news["step"] == 3 and not refused:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    summaries.append(train(tmp_path, on_step=listen))
    assert [f"{tmp_path}/run: this process is training that run already" in words for words in refused] == [True, True]
    assert ((summaries[0]["loss"], summaries[0]["differences"]) == (whole["loss"], 0)
            and not (tmp_path / "second").exists())
    assert tally.train(out=tmp_path / "second", **SMALL)["loss"] == whole["loss"]


# ---- What a run was made from ----

def test_changed_data_is_refused_or_accepted(tmp_path):
    data = tmp_path / "text"
    data.write_text("Once upon a time there was a run. " * 100)
    assert train(tmp_path, data=data, on_step=lambda news: news["step"] < 3)["end"] == "stopped"
    data.write_text("Once upon a time there was a pun. " * 100)
    with pytest.raises(RuntimeError,
                       match=r"data: other contents of the same size: CRC32C \(all\) was [0-9a-f]{8}, is"):
        train(tmp_path, data=data)
    assert train(tmp_path, data=data, accept_changes=True)["differences"] == 0
    changes = [x["changed"] for x in map(json.loads, (tmp_path / "run/log.jsonl").read_text().splitlines())
               if "changed" in x]
    assert len(changes) == 1 and changes[0].startswith("data: other contents")
    assert train(tmp_path, data=data)["end"] == "done"


# ---- Closed descriptors ----

def test_closed_descriptors_take_no_file(tmp_path):
    program = "import os, sys; [os.close(i) for i in range(3)]; import tally; " \
              "tally.train(lambda n: [os.write(i, b'not JSON') for i in (1, 2) if is_open(i)], out=sys.argv[1], " \
              f"**{SMALL!r})"
    program = "def is_open(i):\n    try: os.fstat(i); return True\n    except OSError: return False\n" + program
    child(program, tmp_path / "run")
    lines = (tmp_path / "run/log.jsonl").read_text().splitlines()
    assert len(lines) == 10 and all(json.loads(line)["step"] for line in lines)
    assert (tmp_path / "run/lock").read_bytes() == b""
