"""Training steps at sequence lengths that are not multiples of 128, against the next multiple, in the same run.

    python3 bench/bench_lengths.py [--steps 16] [--layers 5] [--device cuda] [--small]

GPT-2 350M with only five layers, bf16, random tokens. Prints tokens/s (median of the steps after the first six), the
time per token relative to that at the next multiple of 128, and the differences between price and receipt. Fails if a
token takes more than 1.3 times as long, or if there is a difference. --small uses a model and lengths for the CPU, to
try the program without a GPU.
"""
import argparse
import statistics
import sys

from bench_gpu import trained

WARM = 6
MOST = 1.3
# batch, time, fast; those of one next multiple have about as many tokens
ROWS = [(32, 1024, False), (32, 960, False), (32, 1152, False), (32, 1025, False), (256, 128, False), (256, 100, False),
        (512, 64, False)]
SMALL = [(2, 128, False), (2, 100, False), (2, 100, True), (2, 128, True)]


def step(case, device, fast, n_steps):
    """(median seconds of a step, differences between price and receipt)"""
    run, log = trained(case, "bf16", device, n_steps, *["--fast"] * fast)
    times = [line["time"]["step_s"] for line in log if "step_s" in line.get("time", {})]
    return statistics.median(times[min(WARM, len(times) - 1):]), run["differences"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    heads, channels, vocabulary = (2, 128, 512) if options.small else (16, 1024, 50257)
    rows = SMALL if options.small else ROWS
    per_token, n_different, slow = {}, 0, []
    print(f"{'batch':>5} {'time':>5} {'mode':7} {'ms a step':>10} {'tokens/s':>10} {'next':>5} {'times its token':>16} "
          f"{'differences':>12}")
    # the multiples of 128 first: the others are compared with them
    for B, T, fast in sorted(rows, key=lambda row: row[1] % 128 != 0):
        case = ("gpt2", options.layers, heads, heads, channels, 4 * channels, vocabulary, B, T)
        seconds, differences = step(case, options.device, fast, options.steps)
        per_token[T, fast] = seconds / (B * T)
        following = (T + 127) // 128 * 128
        ratio = per_token[T, fast] / per_token[following, fast]
        n_different += differences
        if ratio > MOST:
            slow.append((T, fast))
        print(f"{B:5} {T:5} {'fast' if fast else 'default':7} {seconds * 1e3:10.2f} {B * T / seconds:10,.0f} "
              f"{following:5} {ratio:16.2f} {differences:12}", flush=True)
    return 1 if n_different or (slow and not options.small) else 0


if __name__ == "__main__":
    sys.exit(main())
