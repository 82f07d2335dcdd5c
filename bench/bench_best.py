"""The winner of `tally plan --best` against random rivals, measured on this machine.

    python3 bench/bench_best.py [--device cuda] [--models gpt2-124m gpt2-350m] [--rivals 10] [--limit 140] [--json]

For each model the fastest plan of a step of --sequences sequences is trained for some steps, and so are random
configurations of the same step: recipe, checkpointing, micro-batches. The time of a step is the median in the log,
without the first steps. The bar: no rival is faster than the winner by more than 5 %. A rival that does not fit counts
as tried. Measurements end after --limit seconds; the table says how many rivals there were.
"""
import argparse
import json
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TALLY = ROOT / "build" / "tally"
RECIPES = "bf16 bf16-lean fp8 amp fp16".split()
POLICIES = "none selective sqrt full".split()
QUIET = ["--eval-every", 0, "--eval-batches", 1, "--sample-tokens", 0, "--val-share", 0, "--save-every", 0,
         "--warmup", 1, "--quiet"]
EXIT_NO_FIT = 6


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def measure(flags, n_steps):
    """Seconds of a step; None: it does not fit, or the device does not compute it."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(TALLY, "train", *flags, *QUIET, "--steps", n_steps, "--out", Path(folder) / "run")
        if done.returncode in (2, EXIT_NO_FIT):
            return None
        if done.returncode:
            sys.exit(f"tally train {' '.join(map(str, flags))}: {done.stderr}")
        lines = [json.loads(line) for line in (Path(folder) / "run" / "log.jsonl").read_text().splitlines()]
    times = [line["time"]["step_s"] for line in lines if "time" in line]
    return statistics.median(times[len(times) // 3:])


def rival(r, sequences):
    accum = r.choice([a for a in (1, 2, 4, 8, 16) if sequences % a == 0])
    return ["--recipe", r.choice(RECIPES), "--checkpointing", r.choice(POLICIES), "--batch", sequences // accum,
            "--accum", accum]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", default=["gpt2-124m", "gpt2-350m"])
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--rivals", type=int, default=10)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--limit", type=float, default=140, help="seconds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    began, answers = time.monotonic(), []
    for i, model in enumerate(options.models):
        base = ["--model", model, "--device", options.device, "--seq", options.seq]
        done = run(TALLY, "plan", "--best", *base, "--batch", options.sequences, "--json")
        if done.returncode:
            sys.exit(f"tally plan --best: {done.stderr}")
        best = json.loads(done.stdout)["fastest"]
        won = measure(shlex.split(best["train"])[2:], options.steps)
        if won is None:
            sys.exit(f"the winner does not fit: {best['train']}")
        r, rows, tried = random.Random(model), [], 0
        until = began + options.limit * (i + 1) / len(options.models)
        while tried < options.rivals and time.monotonic() < until:
            flags = rival(r, options.sequences)
            tried += 1
            seconds = measure([*base, *flags], options.steps)
            rows.append({"flags": " ".join(map(str, flags)), "step_s": seconds})
            if not options.json:
                print(f"  {model} {rows[-1]['flags']:64} " +
                      (f"{1e3 * seconds:8.1f} ms" if seconds else "does not fit"), flush=True)
        times = [row["step_s"] for row in rows if row["step_s"]]
        answer = {"model": model, "winner": best["train"], "predicted_s": best["step_s"], "measured_s": won,
                  "rivals": tried, "best_rival_s": min(times, default=None), "rows": rows,
                  "speed_of_winner": min(times) / won if times else None}
        answers.append(answer)
        if not options.json:
            print(f"{model}: winner {1e3 * won:.1f} ms a step, planned {1e3 * best['step_s']:.1f} ms: {best['train']}\n"
                  f"    best of {tried} rivals {1e3 * min(times, default=float('nan')):.1f} ms; speed of winner / best "
                  f"rival {answer['speed_of_winner'] or float('nan'):.3f} (bar 0.95)", flush=True)
    if options.json:
        json.dump(answers, sys.stdout)
    else:
        print(f"{time.monotonic() - began:.0f} s in all")
    slow = [a for a in answers if (a["speed_of_winner"] or 1) < 0.95]
    for a in slow:
        print(f"bench_best: {a['model']}: speed of winner / best rival {a['speed_of_winner']:.3f} (bar 0.95)",
              file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
