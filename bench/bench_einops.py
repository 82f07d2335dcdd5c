"""Einops on the CPU: einsum against torch.einsum, and rearrange with a copy against a plain copy.

    build/venv/bin/python bench/bench_einops.py [--json] [--threads 2] [--seconds 1.5] [--only einsum,rearrange]

Both sides of a row run in one process and alternate. Each turn follows a pause, in which idle threads of the other side
stop spinning, and an untimed call. A row has the median and the shortest of the turns: on a shared machine the shortest
shows what the code can do, the median what the machine gave it. The shortest turns decide the verdict ('!' and the exit
status):

- einsum: ours / torch, at most 1. tl_einsum is called through ctypes with converted arguments, in its own scope.
- rearrange: the pattern has one merged axis, "a b -> (b a)", so that the call itself copies. It is compared with
  tl_clone of the same tensor, which is contiguous. The row is the share of the plain copy's bandwidth that the
  permuting copy reaches, at least 80 %. torch's permute().contiguous() is shown for comparison only.

The results of every row are first compared with torch's.
"""
import argparse
import functools
import json
import os
import statistics
import sys
import time

import numpy as np
import torch

from bench_ops import PAUSE_S, both, normal, ours_loop, prepare, time_text, torch_loop
from tally_c import Tensor, convert, tl

EINSUMS = [  # pattern, letters, shapes
    ("b h q d, b h k d -> b h q k", "bhqd,bhkd->bhqk", (4, 12, 256, 64), (4, 12, 256, 64)),
    ("b h q k, b h k d -> b h q d", "bhqk,bhkd->bhqd", (4, 12, 256, 256), (4, 12, 256, 64)),
    ("b t h d, b s h d -> b h t s", "bthd,bshd->bhts", (4, 256, 12, 64), (4, 256, 12, 64)),
    ("b h t s, b s h d -> b t h d", "bhts,bshd->bthd", (4, 12, 256, 256), (4, 256, 12, 64)),
    ("i b k, k b j -> b i j", "ibk,kbj->bij", (256, 16, 128), (128, 16, 256)),
    ("k b i, j k b -> b i j", "kbi,jkb->bij", (128, 16, 256), (256, 128, 16)),
    ("b k i, b j k -> b i j", "bki,bjk->bij", (16, 128, 256), (16, 256, 128)),
    ("b t c, c h d -> b h t d", "btc,chd->bhtd", (4, 256, 512), (512, 8, 64)),
    ("b h t d, c h d -> b t c", "bhtd,chd->btc", (4, 8, 256, 64), (512, 8, 64)),
    ("b i k, b k j -> b i j", "bik,bkj->bij", (256, 32, 32), (256, 32, 32)),
    ("b i, b j -> b i j", "bi,bj->bij", (64, 128), (64, 256)),
    ("b k, b k -> b", "bk,bk->b", (4096, 256), (4096, 256)),
    ("a b, b c, c d -> a d", "ab,bc,cd->ad", (512, 256), (256, 512), (512, 64)),
    ("b t c, c r, r f -> b t f", "btc,cr,rf->btf", (4, 256, 512), (512, 16), (16, 1024)),
]
REARRANGES = [  # pattern, shape: 64 MB of f32, 32 MB of bf16
    ("a b -> (b a)", (4096, 4096)),
    ("a b -> (b a)", (16384, 1024)),
    ("a b -> (b a)", (1000, 16777)),
    ("a b c -> (c a b)", (64, 512, 512)),
    ("a b c -> (b a c)", (512, 512, 64)),
    ("a b c -> (a c b)", (64, 512, 512)),
    ("a b c -> (c b a)", (256, 256, 256)),
    ("a b c d -> (a c b d)", (16, 1024, 16, 64)),
    ("a b c d -> (d c b a)", (64, 64, 64, 64)),
    ("a b c d -> (a d b c)", (16, 1024, 16, 64)),
    ("a b c d -> (c d a b)", (64, 64, 64, 64)),
    ("a b c d -> (b d a c)", (32, 128, 32, 128)),
]


def ours_of(name, *arguments):
    """A loop of calls in a scope each, and the function for one."""
    begin, function, end = (getattr(tl.library, "tl_" + f) for f in ("scope_begin", name, "scope_end"))
    converted = [convert(a, t) for a, t in zip(arguments, function.argtypes, strict=True)]

    def once():
        with tl.scope():
            result = Tensor(function(*converted))
        tl.check()
        return result
    return functools.partial(ours_loop, begin, function, end, converted, 1), once


def turns_of(loops, seconds, turn_s=0.006):
    """Seconds a call of each loop: the median turn and the shortest."""
    repeats = []
    for loop in loops:
        loop(1)
        repeats.append(max(1, int(turn_s / max(loop(1), 1e-7))))
    began, turns = time.perf_counter(), []
    while len(turns) < 5 or time.perf_counter() - began < seconds:
        row = []
        for loop, n in zip(loops, repeats):
            time.sleep(PAUSE_S)
            loop(1)
            row.append(loop(n))
        turns.append(row)
    return [(statistics.median(t), min(t)) for t in zip(*turns)], len(turns)


def compare(what, ours, theirs, tolerance):
    a, b = ours.numpy().astype(np.float32), theirs.float().numpy()
    if a.shape != b.shape or not np.allclose(a, b, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(b).max()))):
        raise SystemExit(f"{what}: ours and torch's results differ")


def einsum_row(pattern, letters, *shapes, seconds):
    pairs = [both(normal(s, 64 * i)) for i, s in enumerate(shapes)]
    ours, once = ours_of("einsum", pattern, [x for x, _ in pairs], len(pairs))
    theirs = functools.partial(torch_loop, torch.einsum, [letters, *(y for _, y in pairs)])
    compare(pattern, once(), torch.einsum(letters, *(y for _, y in pairs)), 2e-4)
    (ours_s, torch_s), n = turns_of([ours, theirs], seconds)
    return {"kind": "einsum", "pattern": pattern, "shapes": shapes, "ours_s": ours_s[0], "torch_s": torch_s[0],
            "ours_least_s": ours_s[1], "torch_least_s": torch_s[1], "ratio": ours_s[0] / torch_s[0],
            "ratio_of_least": ours_s[1] / torch_s[1], "turns": n}


def rearrange_row(pattern, shape, dtype, seconds):
    numel = int(np.prod(shape))
    x, y = both(np.resize(normal((1 << 22,)), numel).reshape(shape), dtype)
    names = pattern.split(" -> ")
    axes = [names[0].split().index(a) for a in names[1].strip("()").split()]
    ours, once = ours_of("rearrange", x, pattern, None)
    clone, _ = ours_of("clone", x)
    theirs = functools.partial(torch_loop, lambda t: t.permute(axes).contiguous(), [y])
    compare(pattern, once(), y.permute(axes).reshape(-1), 0)
    (ours_s, clone_s, torch_s), n = turns_of([ours, clone, theirs], seconds)
    moved = 2 * numel * (2 if dtype == torch.bfloat16 else 4)
    return {"kind": "rearrange", "pattern": pattern, "shape": shape, "dtype": str(dtype)[6:], "ours_s": ours_s[0],
            "clone_s": clone_s[0], "torch_s": torch_s[0], "ours_least_s": ours_s[1], "clone_least_s": clone_s[1],
            "torch_least_s": torch_s[1], "gb_per_s": moved / ours_s[1] / 1e9, "share": clone_s[0] / ours_s[0],
            "share_of_least": clone_s[1] / ours_s[1], "turns": n}


def holds(row):
    return row["ratio_of_least"] <= 1 if row["kind"] == "einsum" else row["share_of_least"] >= 0.8


def row_text(row):
    mark = " " if holds(row) else "!"
    if row["kind"] == "einsum":
        return (f"{row['pattern']:<32}{time_text(row['ours_s']):>10}{time_text(row['torch_s']):>10}{row['ratio']:>7.2f}"
                f"   {time_text(row['ours_least_s']):>10}{time_text(row['torch_least_s']):>10}"
                f"{row['ratio_of_least']:>7.2f} {mark}")
    shape = "x".join(map(str, row["shape"]))
    return (f"{row['pattern']:<22}{shape:<17}{row['dtype']:<9}"
            f"{time_text(row['ours_s']):>8}{time_text(row['clone_s']):>9}{row['share']:>6.0%}   "
            f"{time_text(row['ours_least_s']):>8}{time_text(row['clone_least_s']):>9}{row['share_of_least']:>6.0%} "
            f"{mark} {time_text(row['torch_least_s']):>9}")


def rows_of(kinds, seconds):
    if "einsum" in kinds:
        for case in EINSUMS:
            yield einsum_row(*case, seconds=seconds)
    if "rearrange" in kinds:
        for dtype in torch.float32, torch.bfloat16:
            for case in REARRANGES:
                yield rearrange_row(*case, dtype, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.5, help="for each row")
    parser.add_argument("--only", default="einsum,rearrange")
    options = parser.parse_args()
    prepare(options.threads)
    heads = {"einsum": f"\n{'einsum':<32}{'ours':>10}{'torch':>10}{'ratio':>7}   "
                       f"{'least':>10}{'torch':>10}{'ratio':>7}",
             "rearrange": f"\n{'rearrange':<22}{'shape':<17}{'dtype':<9}{'ours':>8}{'copy':>9}{'share':>6}   "
                          f"{'least':>8}{'copy':>9}{'share':>6} {'torch':>11}"}
    rows = []
    if not options.json:
        print(f"tally {tl.version().decode()}, torch {torch.__version__}, {options.threads} threads each, "
              f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    for row in rows_of(options.only.split(","), options.seconds):
        if not options.json:
            if not rows or rows[-1]["kind"] != row["kind"]:
                print(heads[row["kind"]])
            print(row_text(row), flush=True)
        rows.append(row)
    missed = [r for r in rows if not holds(r)]
    if options.json:
        print(json.dumps({"tally": tl.version().decode(), "torch": torch.__version__, "threads": options.threads,
                          "rows": rows, "missed": len(missed)}, indent=1))
    else:
        print(f"\n{len(rows)} rows, {len(missed)} below the bar ('!': by the shortest turns, einsum above 1, a copy "
              "below 80 %).")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
