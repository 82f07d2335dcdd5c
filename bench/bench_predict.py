"""Predicted against measured step times, on configurations that the calibration has not seen.

    python3 bench/bench_predict.py [--device cpu|cuda] [--calibrate] [--under "CMD"] [--turns 2] [--part 1/1] [--json]

Each configuration is priced on meta (`tally train --price --json`), predicted from the machine's profile
(`tally calibrate --price`), and then trained for some steps. The measured time is the median of the step times in the
log, in the better of the turns. The bars: median error at most 5 %, largest at most 15 % (12 on a GPU), and no step
faster than its lower bound. --calibrate makes the profile first (the default is to use the existing one); --under
puts a command before every timed one.
"""
import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
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


def settings(case, device):
    model, recipe, layers, channels, heads, vocabulary, batch, seq, more = case
    return ["--model", model, "--recipe", recipe, "--layers", layers, "--channels", channels, "--heads", heads,
            "--vocabulary", vocabulary, "--batch", batch, "--seq", seq, "--context", max(seq, 256), "--eval-every", 0,
            "--eval-batches", 1, "--sample-tokens", 0, "--val-share", 0, "--save-every", 0, "--warmup", 1, "--device",
            device] + shlex.split(more)


def run(*command, under=()):
    done = subprocess.run([*under, *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def predict(case, folder, device, profile):
    price = Path(folder) / "price.json"
    price.write_text(run(TALLY, "train", *settings(case, device), "--steps", 4, "--out", folder + "/priced", "--price",
                         "--json"))
    return json.loads(run(TALLY, "calibrate", "--price", price, *profile, "--json"))


def measure(case, folder, device, n_steps, under):
    out = Path(tempfile.mkdtemp(dir=folder))
    run(TALLY, "train", *settings(case, device), "--steps", n_steps, "--out", out / "run", "--quiet", under=under)
    lines = [json.loads(line) for line in (out / "run" / "log.jsonl").read_text().splitlines()]
    return statistics.median(line["time"]["step_s"] for line in lines
                             if "time" in line and line["step"] > (8 if device == "cuda" else 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--under", default="")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--part", default="1/1", help="I/N: only the I-th of N parts of the configurations")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    under, rows = shlex.split(options.under), []
    kept = ROOT / "build" / f"machine-{options.device}.json"
    profile = ["--profile", kept] if options.device != "cpu" else []  # a cpu's profile is where `tally` keeps it
    if options.calibrate:
        run(TALLY, "calibrate", "--device", options.device, *(["--out", kept] if profile else []), under=under)
    part, n_parts = map(int, options.part.split("/"))
    for case in (CASES if options.device == "cpu" else CASES_CUDA)[part - 1::n_parts]:
        with tempfile.TemporaryDirectory() as folder:
            said = predict(case, folder, options.device, profile)
            n_steps = int(min(max(8 if options.device == "cpu" else 28, 1.5 / said["step_s"]), 60))
            measured = min(measure(case, folder, options.device, n_steps, under) for _ in range(options.turns))
        row = {"case": " ".join(map(str, case)).strip(), "predicted_s": said["step_s"], "measured_s": measured,
               "bound_s": said["bound_s"], "error": said["step_s"] / measured - 1}
        rows.append(row)
        if not options.json:
            print(f"{row['case']:58} predicted {1e3 * row['predicted_s']:8.2f} ms  measured {1e3 * measured:8.2f} ms  "
                  f"{100 * row['error']:+6.1f} %   bound {1e3 * row['bound_s']:7.2f} "
                  f"ms{'' if row['bound_s'] < measured else '  ABOVE'}", flush=True)
    most = 0.12 if options.device == "cuda" else 0.15
    errors = [abs(row["error"]) for row in rows]
    summary = {"cases": len(rows), "median": statistics.median(errors), "max": max(errors),
               "above": sum(r["bound_s"] >= r["measured_s"] for r in rows)}
    if options.json:
        json.dump({"rows": rows, **summary}, sys.stdout)
    else:
        print(f"{len(rows)} configurations: median error {100 * summary['median']:.1f} % (bar 5), largest "
              f"{100 * summary['max']:.1f} % (bar {100 * most:.0f}), lower bound above measured {summary['above']} "
              "times (bar 0)")
    return 0 if summary["median"] <= 0.05 and summary["max"] <= most and not summary["above"] else 1


if __name__ == "__main__":
    sys.exit(main())
