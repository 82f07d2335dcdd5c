"""Predicted against measured step times, on configurations that the calibration has not seen.

    python3 bench/bench_predict.py [--device cpu|cuda] [--calibrate] [--random N] [--seed 1] [--under "CMD"]
                                   [--turns 2] [--part 1/1] [--json FILE]

Each configuration is priced on meta (`tally train --price --json`), predicted from the machine's profile
(`tally calibrate --price`), and then trained for some steps, in each of the turns, which take all configurations one
after the other. The measured time is the median of the step times in the log of the better turn; on a CPU, whose cores
others may share for seconds at a time, the least of ten, as in a calibration. Both train with so small a learning
rate that no model diverges: logits that overflow are computed again, and fp16 skips steps. The bars: median error at
most 5 %, largest at most 15 % (12 on a GPU), and no step faster than its lower bound. --calibrate makes the profile
first (the default is to use the existing one); --under puts a command before every timed one.

--random draws N configurations instead: every recipe, 0.2M to 50M parameters on a CPU and 1M to 3B on a GPU, batches of
1 to 64, any length. Then the bars are a median of 5 % and 95 % of all within 15 % (on a CPU 8 and 25), and rows are
printed worst first at the end.
"""
import argparse
import json
import math
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TALLY = ROOT / "build" / "tally"
# model, recipe, layers, channels, heads, vocabulary, batch, seq, more settings
CASES = [
    ("tiny", "fp32", 4, 128, 4, 256, 8, 128, ""),
    ("tiny", "fp32", 3, 160, 5, 256, 4, 128, ""),
    ("tiny", "fp32", 4, 320, 5, 256, 4, 128, ""),
    ("tiny", "fp32", 3, 448, 7, 256, 4, 96, ""),
    ("tiny", "fp32", 2, 640, 10, 256, 2, 128, ""),
    ("tiny", "fp32", 2, 128, 4, 1024, 8, 256, ""),
    ("tiny", "fp32", 2, 384, 6, 256, 2, 512, ""),
    ("tiny", "fp32", 6, 256, 4, 256, 2, 128, "--checkpointing full"),
    ("tiny", "fp32", 3, 224, 7, 512, 3, 160, "--accum 2"),
    ("tiny-gpt2", "fp32", 4, 128, 4, 256, 8, 128, ""),
    ("tiny-gpt2", "fp32", 3, 192, 6, 256, 4, 192, ""),
    ("tiny-gpt2", "fp32", 4, 320, 5, 256, 4, 128, ""),
    ("tiny-gpt2", "fp32", 2, 640, 10, 256, 2, 128, ""),
    ("tiny-gpt2", "fp32", 2, 384, 12, 1024, 4, 256, ""),
    ("tiny-gpt2", "fp32", 4, 288, 9, 256, 4, 96, "--checkpointing sqrt"),
    ("tiny-gpt2", "fp32", 2, 448, 7, 4096, 2, 192, ""),
    ("tiny", "bf16", 4, 128, 4, 256, 8, 128, ""),
    ("tiny", "bf16", 3, 192, 6, 256, 8, 128, ""),
    ("tiny", "bf16", 4, 320, 5, 256, 4, 128, ""),
    ("tiny", "bf16", 2, 640, 10, 256, 2, 128, ""),
    ("tiny", "bf16", 2, 384, 6, 256, 2, 512, ""),
    ("tiny", "bf16", 2, 448, 7, 1024, 4, 128, ""),
    ("tiny-gpt2", "bf16", 3, 320, 10, 256, 4, 160, ""),
    ("tiny", "amp", 3, 320, 5, 256, 4, 128, ""),
    # heads of 16, 20, 24, 36, 48, 72, 96, 112, 128 and 256; other optimizers, shared keys, odd sizes
    ("tiny", "fp32", 3, 192, 12, 300, 4, 200, ""),
    ("tiny", "bf16", 2, 240, 12, 1000, 6, 100, ""),
    ("tiny", "bf16", 4, 192, 8, 256, 4, 256, "--kv-heads 4"),
    ("tiny-gpt2", "fp32", 2, 288, 8, 700, 3, 150, "--optimizer rmsprop"),
    ("tiny", "bf16", 2, 192, 4, 256, 4, 384, "--optimizer adagrad"),
    ("tiny", "fp32", 2, 216, 3, 1500, 8, 48, ""),
    ("tiny-gpt2", "bf16", 4, 192, 2, 256, 4, 256, ""),
    ("tiny", "fp32", 3, 336, 3, 256, 2, 192, "--checkpointing selective"),
    ("tiny", "amp", 2, 384, 3, 2048, 2, 256, "--optimizer sgd"),
    ("tiny", "bf16-lean", 2, 512, 2, 256, 4, 128, ""),
    ("tiny", "fp32", 2, 256, 1, 500, 2, 300, "--accum 2"),
    ("tiny-gpt2", "bf16", 3, 96, 6, 5000, 8, 128, ""),
]


# the same for a GPU, whose steps are of the size that people train there
CASES_CUDA = [
    ("tiny-gpt2", "bf16", layers, channels, channels // 64, vocabulary, batch, seq, more)
    for layers, channels, vocabulary, batch, seq, more in [
        (12, 768, 50257, 8, 1024, ""), (12, 768, 50257, 16, 512, ""), (6, 768, 50304, 32, 512, ""),
        (12, 512, 50257, 32, 256, ""), (8, 1024, 50257, 8, 1024, ""), (24, 1024, 50257, 4, 1024, ""),
        (4, 1600, 50257, 8, 1024, ""), (8, 640, 8192, 32, 512, ""), (12, 768, 1024, 16, 1024, ""),
        (6, 1280, 32000, 8, 1024, "--checkpointing full"), (6, 896, 32000, 16, 512, "--accum 2")]
] + [
    ("tiny", recipe, layers, channels, channels // 64, vocabulary, batch, seq, more)
    for recipe, layers, channels, vocabulary, batch, seq, more in [
        ("bf16", 8, 1024, 32000, 16, 1024, ""), ("bf16", 12, 768, 32000, 8, 2048, ""),
        ("bf16", 4, 2048, 32000, 8, 1024, ""), ("bf16", 16, 512, 8192, 32, 512, ""),
        ("bf16", 6, 1536, 50304, 8, 1024, ""), ("bf16", 8, 896, 16384, 16, 1024, "--checkpointing sqrt"),
        ("amp", 8, 768, 32000, 16, 512, ""), ("amp", 4, 1024, 32000, 16, 1024, ""), ("fp32", 6, 512, 8192, 16, 512, ""),
        ("fp32", 4, 768, 8192, 8, 512, ""), ("bf16-lean", 8, 768, 32000, 16, 1024, "")]
]


RECIPES = ["fp32", "amp", "bf16", "bf16", "bf16", "bf16-lean", "fp16", "fp8", "fp4"]
RANGES = {  # parameters, heads, layers, length, vocabulary, FLOPs of a step
    "cpu": ((2e5, 5e7), (1, 12), (1, 8), (8, 1024), (256, 20000), 6e11),
    "cuda": ((1e6, 3e9), (2, 40), (1, 32), (8, 4096), (256, 130000), 1.5e14)}


def log_uniform(draw, low, high):
    return int(round(low * (high / low) ** draw.random()))


def case_draw(draw, device):
    """One configuration in the range, by rejection: 12 C^2 weights in a layer, 6 FLOPs for each and token."""
    sizes, heads, layers, lengths, vocabularies, most = RANGES[device]
    while True:
        n_heads, n_layers = log_uniform(draw, *heads), log_uniform(draw, *layers)
        channels = n_heads * draw.choice([16, 24, 32, 48, 64, 64, 64, 80, 96, 128, 128])
        vocabulary, seq, batch = (log_uniform(draw, *vocabularies), log_uniform(draw, *lengths),
                                  log_uniform(draw, 1, 64))
        model, recipe = draw.choice(["tiny", "tiny-gpt2"]), draw.choice(RECIPES)
        more = draw.choice([""] * 6 + ["--checkpointing full", "--checkpointing selective", "--accum 2",
                                       "--optimizer sgd", "--optimizer lion", "--dropout 0.1"])
        if model == "tiny" and "dropout" in more:
            more = ""
        weights = 12 * n_layers * channels ** 2 + vocabulary * channels * (1 if model == "tiny-gpt2" else 2)
        flops = 6 * weights * batch * seq * (2 if "accum" in more else 1) * (4 if recipe == "fp32" else 1)
        if sizes[0] <= weights <= sizes[1] and flops <= most:
            return model, recipe, n_layers, channels, n_heads, vocabulary, batch, seq, more


def settings(case, device):
    model, recipe, layers, channels, heads, vocabulary, batch, seq, more = case
    return ["--model", model, "--recipe", recipe, "--layers", layers, "--channels", channels, "--heads", heads,
            "--vocabulary", vocabulary, "--batch", batch, "--seq", seq, "--context", max(seq, 256), "--eval-every", 0,
            "--eval-batches", 1, "--sample-tokens", 0, "--val-share", 0, "--save-every", 0, "--warmup", 1, "--lr", 1e-5,
            "--device", device] + shlex.split(more)


class Refused(Exception):
    """A command failed; at random, that may be a width that blocks of fp4 do not divide."""


def run(*command, under=()):
    done = subprocess.run([*under, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def predict(case, folder, device, profile):
    price = Path(folder) / "price.json"
    price.write_text(run(TALLY, "train", *settings(case, device), "--steps", 4, "--out", folder + "/priced", "--price",
                         "--json"))
    return json.loads(run(TALLY, "calibrate", "--price", price, *profile, "--json"))


WARM = {"cpu": 2, "cuda": 8}  # steps that do not count: a GPU's are not yet queued as graphs


def steps_of(log):
    """Seconds of the steps that a run has logged so far."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line)["time"]["step_s"] for line in lines if line.endswith("}") and '"step_s"' in line]


def measure(case, folder, device, n_steps, under):
    """The typical step. The run is killed after so many steps: saving a model takes longer than training it here."""
    out, warm = Path(tempfile.mkdtemp(dir=folder)), WARM[device]
    command = [*under, TALLY, "train", *settings(case, device), "--steps", 100000, "--out", out / "run", "--quiet"]
    with open(out / "said", "w") as said:
        process = subprocess.Popen([str(c) for c in command], stdout=said, stderr=said)
    times, began = [], time.time()
    while process.poll() is None and len(times) < warm + n_steps and time.time() - began < 200:
        time.sleep(0.05)
        times = steps_of(out / "run" / "log.jsonl")
    process.kill()
    process.wait()
    if len(times) <= warm:
        raise Refused(f"{shlex.join(map(str, command))}: {(out / 'said').read_text()[-400:]}")
    steady = sorted(times[warm:])
    return steady[len(steady) // 10] if device == "cpu" else statistics.median(steady)


def said_of(case, device, profile):
    """The prediction, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return predict(case, folder, device, profile)
        except Refused as why:
            return why


def turn_out(case, device, said, under):
    """A step's seconds, or why there are none."""
    if isinstance(said, Refused):
        return said
    with tempfile.TemporaryDirectory() as folder:
        try:
            return measure(case, folder, device, int(min(max(6, 1.5 / said["step_s"]), 60)), under)
        except Refused as why:
            return why


def row_of(case, said, measured):
    return {"case": " ".join(map(str, case)).strip(), "settings": list(case), "predicted_s": said["step_s"],
            "measured_s": measured, "bound_s": said["bound_s"], "error": said["step_s"] / measured - 1}


def row_print(row):
    print(f"{row['case']:58} predicted {1e3 * row['predicted_s']:8.2f} ms  measured {1e3 * row['measured_s']:8.2f} ms  "
          f"{100 * row['error']:+6.1f} %   bound {1e3 * row['bound_s']:7.2f} "
          f"ms{'' if row['bound_s'] < row['measured_s'] else '  ABOVE'}", flush=True)


def verdict(rows, device, is_random):
    """The bars of the median and of one quantile of the errors: the largest, or, at random, the 95th of a hundred."""
    errors = sorted(abs(row["error"]) for row in rows)
    share = 0.95 if is_random else 1
    middle, most = {(False, "cpu"): (0.05, 0.15), (False, "cuda"): (0.05, 0.12), (True, "cpu"): (0.08, 0.25),
                    (True, "cuda"): (0.05, 0.15)}[is_random, device]
    high = errors[min(int(share * len(errors)), len(errors) - 1)]
    above = sum(r["bound_s"] >= r["measured_s"] for r in rows)
    print(f"{len(rows)} configurations: median error {100 * statistics.median(errors):.1f} % (bar {100 * middle:.0f}), "
          f"{100 * share:.0f} % within {100 * high:.1f} % (bar {100 * most:.0f}), largest {100 * errors[-1]:.1f} %, "
          f"lower bound above measured {above} times (bar 0)")
    return statistics.median(errors) <= middle and high <= most and not above


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--random", type=int, default=0, help="draw this many configurations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--under", default="")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--part", default="1/1", help="I/N: only the I-th of N parts of the configurations")
    parser.add_argument("--json", help="write the rows to this file too")
    options = parser.parse_args()
    under, rows, draw = shlex.split(options.under), [], random.Random(options.seed)
    kept = ROOT / "build" / f"machine-{options.device}.json"
    profile = ["--profile", kept] if options.device != "cpu" else []  # a cpu's profile is where `tally` keeps it
    if options.calibrate:
        run(TALLY, "calibrate", "--device", options.device, *(["--out", kept] if profile else []), under=under)
    cases = ([case_draw(draw, options.device) for _ in range(options.random)] if options.random else
             CASES if options.device == "cpu" else CASES_CUDA)
    part, n_parts = map(int, options.part.split("/"))
    cases = cases[part - 1::n_parts]
    with ThreadPoolExecutor() as pool:
        predictions = list(pool.map(lambda case: said_of(case, options.device, profile), cases))
    measured = [math.inf] * len(cases)
    for turn in range(options.turns):
        for i, (case, said) in enumerate(zip(cases, predictions)):
            took = turn_out(case, options.device, said, under)
            if isinstance(took, Refused):
                if not options.random:
                    sys.exit(str(took))
                predictions[i] = took
                continue
            measured[i] = min(measured[i], took)
            if turn == options.turns - 1:
                rows.append(row_of(case, said, measured[i]))
                row_print(rows[-1])
                if options.json:
                    Path(options.json).write_text(json.dumps(rows))
    for said in predictions:
        if isinstance(said, Refused):
            print(f"left out: {said}")
    if options.random:
        print()
        for row in sorted(rows, key=lambda r: -abs(r["error"]))[:20]:
            row_print(row)
    return 0 if verdict(rows, options.device, options.random > 0) else 1


if __name__ == "__main__":
    sys.exit(main())
