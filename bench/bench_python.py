"""What a small op costs through Python: ours, torch's, and the ratio, in microseconds per call.

    PYTHONPATH=python python bench/bench_python.py [--json] [--rounds 15] [--limit 1.5]

Both libraries alternate in one process and one thread for many rounds, measured in CPU time of that thread; the medians
are printed. With --limit, the exit status is 1 if a row is above it.
"""
import argparse
import json
import statistics
import sys
import time

import torch

import tally

ROWS = {"a + a": "a + a", "a + 1": "a + 1", "a * 2.0": "a * 2.0", "a @ b, 8 x 8": "a @ b", "a.view(64)": "a.view(64)",
        "a.view(-1, 4)": "a.view(-1, 4)", "a[0]": "a[0]", "a[0:2]": "a[0:2]", "a[:, 0]": "a[:, 0]",
        "a[..., None]": "a[..., None]", "a.sum()": "a.sum()", "a.sum(-1)": "a.sum(-1)", "a.shape": "a.shape",
        "a.t()": "a.t()", "a.transpose(0, 1)": "a.transpose(0, 1)", "a.exp()": "a.exp()", "a.dtype": "a.dtype",
        "a > 0": "a > 0", "a += 1": "a += 1", "a[0] = 1": "a[0] = 1"}


def loop(text, library):
    """A function that runs the text n times and gives the seconds."""
    scope = {"a": library.ones(8, 8), "b": library.ones(8, 8), "clock": time.thread_time}
    exec("def run(n, a=a, b=b):\n    start = clock()\n    for _ in range(n):\n"
         f"        {text}\n    return clock() - start", scope)
    return scope["run"]


def measure(text, rounds, seconds=0.004):
    """Medians of both, in microseconds."""
    loops = [loop(text, library) for library in (tally, torch)]
    counts = [max(10, int(seconds / (f(200) / 200))) for f in loops]
    times = [[], []]
    for _ in range(rounds):
        for k in (0, 1):
            times[k].append(loops[k](counts[k]) / counts[k] * 1e6)
    return [statistics.median(t) for t in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tally.set_num_threads(1)
    rows = []
    for name, text in ROWS.items():
        ours, theirs = measure(text, options.rounds)
        rows.append({"op": name, "ours_us": round(ours, 3), "torch_us": round(theirs, 3),
                     "ratio": round(ours / theirs, 2)})
    if options.json:
        print(json.dumps({"torch": torch.__version__, "tally": tally.__version__, "rows": rows}))
    else:
        print(f"{'op':20} {'ours':>8} {'torch':>8} {'ratio':>6}   microseconds a call, torch {torch.__version__}")
        for r in rows:
            print(f"{r['op']:20} {r['ours_us']:8.3f} {r['torch_us']:8.3f} {r['ratio']:6.2f}")
    if options.limit and any(r["ratio"] > options.limit for r in rows):
        sys.exit(f"above {options.limit}: " + ", ".join(r["op"] for r in rows if r["ratio"] > options.limit))


if __name__ == "__main__":
    main()
