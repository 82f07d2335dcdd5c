"""Two ranks with one thread each against one process with two threads, on the same cores: every way to shard.

    python3 bench/bench_ranks.py [--turns 3] [--modes none,zero3] [--steps 8] [--tally build/tally] [-- more flags]

The model has 6 layers and 384 channels, with 8 sequences of 256 tokens. Contenders take turns, so that a machine that
is not quiet is so for all of them. Columns: tokens/s of the fastest step and of the median one, the ratio of each to
one process's (goal: 0.9), and the shares of the steps' time in which messages were under way and in which steps waited
for them, on rank 0; and the processor's seconds of whole runs, to one process's. On a machine that is not quiet the
fastest steps say more than the median ones, and the processor's seconds more than both.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ("--layers 6 --channels 384 --heads 6 --batch 8 --seq 256 --context 256 --sample-tokens 0 --eval-every 0 "
         "--eval-batches 1 --save-every 0 --save-best false --quiet").split()
TOKENS = 8 * 256
GOAL = 0.9


def processor_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def steps_of(tally, n, steps, folder, flags):
    """The times of a run's steps, except for the first two."""
    start = ["mpirun", "--bind-to", "none", "-n", str(n)] if n > 1 else []
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMP_WAIT_POLICY="passive")
    environment.pop("OMP_NUM_THREADS", None)
    subprocess.run([*start, tally, "train", *MODEL, "--steps", str(steps), "--threads", str(2 // n), "--out", folder,
                    *flags], env=environment, check=True, timeout=600, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in open(Path(folder) / "log.jsonl", encoding="utf-8")]
    return [line["time"] for line in lines if "loss" in line][2:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--modes", default="none,zero1,zero2,zero3")
    parser.add_argument("--tally", default=str(ROOT / "build" / "tally"))
    parser.add_argument("more", nargs="*")
    options = parser.parse_args()
    contenders = {"one process": (1, [])}
    contenders.update({mode: (2, ["--shard", mode]) for mode in options.modes.split(",")})
    times = {name: [] for name in contenders}
    processor = dict.fromkeys(contenders, 0.0)
    with tempfile.TemporaryDirectory() as base:
        for turn in range(options.turns):
            for name, (n, flags) in contenders.items():
                before = processor_s()
                folder = f"{base}/{turn}-{name.replace(' ', '-')}"
                times[name] += steps_of(options.tally, n, options.steps, folder, [*flags, *options.more])
                processor[name] += processor_s() - before
    print(f"{'':12} {'fastest':>10} {'median':>10} {'ratio':>7} {'median':>7} {'messages':>9} {'waiting':>8} "
          f"{'processor':>10}")
    first = {}
    for name, rows in times.items():
        seconds = [row["step_s"] for row in rows]
        speed = {"fastest": TOKENS / min(seconds), "median": TOKENS / statistics.median(seconds)}
        first = first or speed
        total = sum(seconds)
        shares = [100 * sum(row.get(key, 0) for row in rows) / total for key in ("communication_s", "exposed_s")]
        ratio = speed["fastest"] / first["fastest"]
        print(f"{name:12} {speed['fastest']:10.0f} {speed['median']:10.0f} {ratio:7.3f} "
              f"{speed['median'] / first['median']:7.3f} {shares[0]:7.1f} % {shares[1]:6.1f} % "
              f"{processor[name] / processor['one process']:10.3f}"
              f"{'' if ratio >= GOAL else '   below ' + str(GOAL)}")


if __name__ == "__main__":
    main()
