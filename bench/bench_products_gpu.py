"""Products of training steps against PyTorch's on one GPU: the forward pass of every linear layer of four models and of
two drawn at random, and both gradients, in 16 bits.

    python3 bench/bench_products_gpu.py [--dtype bfloat16] [--seconds 0.1] [--seed 1] [--json FILE]

Both sides take turns of --seconds each, so that both run at the clock that the card's power limit leaves; a turn of a
few milliseconds would run at a higher one. The median of four turns counts. The ratio is ours / torch. Bits must not
depend on the turn: each product is computed twice and compared.
"""
import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("TALLY_LIB", str(ROOT / "build" / "libtally.so"))

import torch  # noqa: E402

import tally  # noqa: E402

TURNS = 4
# tokens of a step, and (out, in) of its layers
MODELS = {
    "gpt2-124m": (65536, [(2304, 768), (768, 768), (3072, 768), (768, 3072)]),
    "gpt2-350m": (32768, [(3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)]),
    "gpt2-1558m": (16384, [(4800, 1600), (1600, 1600), (6400, 1600), (1600, 6400)]),
    "llama-1b": (32768, [(2048, 2048), (512, 2048), (8192, 2048), (2048, 8192)]),
}
FORMS = {  # x (M,in), w (out,in), g (M,out)
    "forward": lambda x, w, g: x @ w.t(),
    "dx": lambda x, w, g: g @ w,
    "dw": lambda x, w, g: g.t() @ x,
}


def drawn_models(draw):
    for i in range(2):
        width, inner = 64 * draw.randint(4, 48), 64 * draw.randint(8, 160)
        yield f"random {i + 1}", (256 * draw.randint(8, 160), [(width, width), (inner, width), (width, inner)])


def turn(f, operands, sync, seconds):
    """Seconds of one product."""
    f(*operands)
    sync()
    n, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            f(*operands)
        n += 10
        sync()
    return (time.perf_counter() - start) / n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    args = parser.parse_args()
    rows = []
    print(f"{'ratio':>6} {'ours TF/s':>10} {'torch TF/s':>10}  product")
    for name, (tokens, layers) in {**MODELS, **dict(drawn_models(random.Random(args.seed)))}.items():
        total = [0, 0]
        for out, inner in layers:
            theirs = [torch.randn(shape, device="cuda").to(getattr(torch, args.dtype))
                      for shape in ((tokens, inner), (out, inner), (tokens, out))]
            ours = [tally.from_dlpack(x) for x in theirs]
            for form, f in FORMS.items():
                assert bool((f(*ours) == f(*ours)).all()), (name, out, inner, form)
                sides = [(ours, tally.cuda.synchronize), (theirs, torch.cuda.synchronize)]
                times = [[], []]
                for _ in range(TURNS):
                    for i, (operands, sync) in enumerate(sides):
                        times[i].append(turn(f, operands, sync, args.seconds))
                seconds = [statistics.median(x) for x in times]
                flops = 2 * tokens * out * inner
                total = [x + y for x, y in zip(total, seconds)]
                rows.append({"model": name, "form": form, "tokens": tokens, "out": out, "in": inner,
                             "ours_s": seconds[0], "torch_s": seconds[1]})
                print(f"{seconds[0] / seconds[1]:6.3f} {flops / seconds[0] / 1e12:10.1f} "
                      f"{flops / seconds[1] / 1e12:10.1f}  {name}, {form}: {tokens} x {inner} -> {out}", flush=True)
        print(f"{total[0] / total[1]:6.3f} of PyTorch's time for {name}", flush=True)
    ratios = sorted(row["ours_s"] / row["torch_s"] for row in rows)
    print(f"median {statistics.median(ratios):.3f}, worst {ratios[-1]:.3f} of {len(ratios)}")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
