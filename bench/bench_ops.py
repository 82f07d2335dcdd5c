"""Ours against PyTorch on the CPU, op by op, at three sizes: a few KB, 512 KB, 32 MB a tensor.

    build/venv/bin/python bench/bench_ops.py [--json] [--threads 2] [--only softmax,sort] [--sizes small,l2,dram]

Both run in one process, in turns, each turn after a pause (idle threads of the other side stop spinning) and an
untimed call; a row is the median of the turns. torch/ours is the ratio: above 1 we are faster, '!' is below 1/3. 'of least'
is the ratio of the shortest turns, for machines that others use too: there a hand-over to a second thread waits for a slice.

What the numbers hold:
- Ours is called through ctypes, with a scope around each call. The cost of ctypes and the loop is measured in the same turns,
  with calls of the same signatures that do nothing, and its least is subtracted; 'ctypes' is what was. torch's own binding is
  not subtracted: it is part of the small sizes. --json has the times and ratios before subtraction too.
- glibc is told to keep large blocks (mallopt), or torch would pay for fresh pages where our pool does not.
- Before it is timed, each op's first result is compared with torch's, at the small and the L2 size.
"""
import argparse
import ctypes
import functools
import json
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "python"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from tally_c import Tensor, convert, tl  # noqa: E402

SIZES = ["small", "l2", "dram"]
SHAPES = {"small": (8, 128), "l2": (256, 512), "dram": (8192, 1024)}  # of f32: 4 KB, 512 KB, 32 MB
SQUARES = {"small": 32, "l2": 256, "dram": 2048}                      # matmul: 4 KB, 256 KB, 16 MB an operand
HEADS = {"small": (1, 16, 2, 32), "l2": (1, 256, 8, 64), "dram": (4, 1024, 8, 64)}  # (B,T,H,D): 4 KB, 512 KB, 8 MB each
LOGITS = {"small": (4, 256), "l2": (64, 2048), "dram": (256, 32768)}
SLOWER = 3.0            # marked where ours takes more than this times torch's time
TURNS, MIN_TURNS = 15, 3
TURN_S = 0.008          # a turn repeats the op this long
ROW_S = 0.6             # no more turns after this long
PAUSE_S = 0.002


# ---- Cases: name -> function(size) giving (our function, our arguments, torch's function, its arguments) ----

CASES = {}
pool = np.random.default_rng(1).standard_normal((1 << 23) + 128, dtype=np.float32)


def case(name):
    def register(make):
        CASES[name] = make
        return make
    return register


def normal(shape, offset=0):
    n = int(np.prod(shape))
    return pool[offset:offset + n].reshape(shape).copy()


def both(values):
    """The same values for us and for torch, in memory of their own."""
    return tl.tensor(values), torch.from_numpy(values.copy())


def integers(shape, high):
    return np.random.default_rng(2).integers(0, high, shape)


def slots(n):
    return [(ctypes.c_void_p * 1)() for _ in range(n)]


def unary(name, ours, theirs):
    @case(name)
    def make(size):
        x, y = both(normal(SHAPES[size]))
        return ours[0], [x, *ours[1:]], theirs, [y]


def binary(name, ours, theirs):
    @case(name)
    def make(size):
        shape = SHAPES[size]
        (a, at), (b, bt) = both(normal(shape)), both(normal(shape)[::-1].copy())
        return ours, [a, b], theirs, [at, bt]


binary("add", "add", torch.add)
binary("mul", "mul", torch.mul)
unary("exp", ["exp"], torch.exp)
unary("gelu", ["gelu"], functools.partial(F.gelu, approximate="tanh"))
unary("silu", ["silu"], F.silu)
unary("tanh", ["tanh"], torch.tanh)
unary("sum all", ["sum_all"], torch.sum)
unary("sum rows", ["sum", [1], 1, False], functools.partial(torch.sum, dim=1))
unary("sum columns", ["sum", [0], 1, False], functools.partial(torch.sum, dim=0))
unary("max rows", ["max", [1], 1, False], functools.partial(torch.amax, dim=1))
unary("softmax", ["softmax"], functools.partial(torch.softmax, dim=-1))
unary("log_softmax", ["log_softmax", 1], functools.partial(torch.log_softmax, dim=-1))


@case("layer_norm")
def layer_norm(size):
    (n, c), weight, bias = SHAPES[size], normal(SHAPES[size][1:], 7), normal(SHAPES[size][1:], 9)
    (x, xt), (w, wt), (b, bt) = both(normal((n, c))), both(weight), both(bias)
    return "layer_norm", [x, w, b, 1e-5], F.layer_norm, [xt, (c,), wt, bt, 1e-5]


@case("rms_norm")
def rms_norm(size):
    (n, c) = SHAPES[size]
    (x, xt), (w, wt) = both(normal((n, c))), both(normal((c,), 7))
    return "rms_norm", [x, w, 1e-5], F.rms_norm, [xt, (c,), wt, 1e-5]


unary("copy", ["clone"], torch.clone)


@case("transpose copy")
def transpose_copy(size):
    x, xt = both(normal(SHAPES[size]))
    return "contiguous", [tl.transpose(x, 0, 1)], torch.Tensor.contiguous, [xt.t()]


unary("cast f32->bf16", ["cast", tl.BF16], torch.Tensor.bfloat16)


@case("matmul f32")
def matmul(size, narrow=False):
    n = SQUARES[size]
    (a, at), (b, bt) = both(normal((n, n))), both(normal((n, n), 11))
    if narrow:
        a, b, at, bt = tl.cast(a, tl.BF16), tl.cast(b, tl.BF16), at.bfloat16(), bt.bfloat16()
    return "matmul", [a, b], torch.matmul, [at, bt]


CASES["matmul bf16"] = functools.partial(matmul, narrow=True)


def heads(size, offset):
    """(B,T,H,D) for us, and the view (B,H,T,D) of the same layout for torch, as models make it."""
    x, xt = both(normal(HEADS[size], offset))
    return x, xt.transpose(1, 2)


@case("attention fwd")
def attention(size):
    pairs = [heads(size, 13 * i) for i in range(3)]
    theirs = functools.partial(F.scaled_dot_product_attention, is_causal=True)
    return "attention", [*(p[0] for p in pairs), True, 0.0], theirs, [p[1] for p in pairs]


@case("attention bwd")
def attention_backward(size):
    """Of a graph that is kept; the forward pass is not in the time."""
    pairs = [heads(size, 13 * i) for i in range(3)]
    seed, seed_t = heads(size, 77)
    inputs, inputs_t = [p[0] for p in pairs], [p[1] for p in pairs]
    tl.library.tl_grad_mode(True)
    for x, xt in zip(inputs, inputs_t):
        tl.requires_grad(x, True)
        xt.requires_grad_()
    out = tl.attention(*inputs, True, 0.0)
    tl.library.tl_grad_mode(False)
    with torch.enable_grad():
        out_t = F.scaled_dot_product_attention(*inputs_t, is_causal=True)
    theirs = functools.partial(torch.autograd.grad, grad_outputs=(seed_t,), retain_graph=True)
    return "gradients", [out, seed, inputs, 3, tl.RETAIN_GRAPH, (ctypes.c_void_p * 3)()], theirs, [(out_t,), tuple(inputs_t)]


@case("cross_entropy")
def cross_entropy(size):
    n, v = LOGITS[size]
    (x, xt), (t, tt) = both(normal((n, v))), both(integers(n, v))
    return "cross_entropy", [x, t], F.cross_entropy, [xt, tt]


@case("embedding")
def embedding(size):
    rows, c = SHAPES[size]
    (w, wt), (i, it) = both(normal((rows, c))), both(integers(rows, rows))
    return "embedding", [w, i], F.embedding, [it, wt]


@case("gather")
def gather(size):
    (x, xt), (i, it) = both(normal(SHAPES[size])), both(integers(SHAPES[size], SHAPES[size][1]))
    return "gather", [x, 1, i], torch.gather, [xt, 1, it]


@case("index_select")
def index_select(size):
    (x, xt), (i, it) = both(normal(SHAPES[size])), both(integers(SHAPES[size][0], SHAPES[size][0]))
    return "index_select", [x, 0, i], torch.index_select, [xt, 0, it]


@case("concat")
def concat(size):
    n, c = SHAPES[size]
    (a, at), (b, bt) = both(normal((n, c // 2))), both(normal((n, c // 2), 5))
    return "concat", [[a, b], 2, 1], torch.cat, [(at, bt), 1]


@case("sort")
def sort(size):
    x, xt = both(normal(SHAPES[size]))
    return "sort", [x, 1, False, *slots(2)], torch.sort, [xt, 1, False]


@case("topk 16")
def topk(size):
    x, xt = both(normal(SHAPES[size]))
    return "topk", [x, 16, 1, True, *slots(2)], torch.topk, [xt, 16, 1, True]


unary("cumsum", ["cumsum", 1], functools.partial(torch.cumsum, dim=1))


@case("adamw")
def adamw(size):
    """Against torch's fused kernel; step stays 1 on both sides."""
    shape = SHAPES[size]
    (p, pt), (g, gt) = both(normal(shape)), both(normal(shape)[::-1].copy())
    (m, mt), (v, vt) = both(np.zeros(shape, np.float32)), both(np.zeros(shape, np.float32))
    options = tl.adamw_options(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, step=1)
    theirs = functools.partial(torch._fused_adamw_, amsgrad=False, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, maximize=False)
    return "adamw_", [p, g, m, v, options], theirs, [[pt], [gt], [mt], [vt], [], [torch.ones(())]]


# ---- Timing ----

def nothing_like(function):
    """A function of the same signature that does nothing: tl_version, which looks at none of its arguments."""
    address = ctypes.cast(tl.library.tl_version, ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(function.restype, *function.argtypes)(address)


def ours_loop(begin, function, end, arguments, n):
    start = time.perf_counter()
    for _ in range(n):
        scope = begin()
        function(*arguments)
        end(scope)
    return (time.perf_counter() - start) / n


def torch_loop(function, arguments, n):
    start = time.perf_counter()
    for _ in range(n):
        function(*arguments)
    return (time.perf_counter() - start) / n


def compare(name, function, arguments, kept, theirs, theirs_arguments):
    """One call of each; the first results must agree."""
    with tl.scope():
        result = function(*arguments)
        tl.check()
        if name in ("sort", "topk 16", "attention bwd"):
            result = arguments[-1][0] if name == "attention bwd" else arguments[-2][0]
        ours = (kept[0] if name == "adamw" else Tensor(result)).numpy().astype(np.float32)
    want = theirs(*theirs_arguments)
    want = theirs_arguments[0][0] if name == "adamw" else want[0] if isinstance(want, tuple) else want
    want = (want.transpose(1, 2) if "attention" in name else want).detach().float().numpy()
    tolerance = 2e-2 if "bf16" in name else 2e-4
    if ours.shape != want.shape or not np.allclose(ours, want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max()))):
        raise SystemExit(f"{name}: ours and torch's results differ")


def measure(name, size):
    our_name, kept, theirs, theirs_arguments = CASES[name](size)
    begin, function, end = (getattr(tl.library, "tl_" + f) for f in ("scope_begin", our_name, "scope_end"))
    empty = [nothing_like(f) for f in (begin, function, end)]
    arguments = [convert(a, t) for a, t in zip(kept, function.argtypes, strict=True)]
    if size != "dram":
        compare(name, function, arguments, kept, theirs, theirs_arguments)

    def repeats(loop):
        loop(1)
        return max(1, min(5000, int(TURN_S / max(loop(1), 1e-7))))

    def ours(n):
        return ours_loop(begin, function, end, arguments, n)

    def torchs(n):
        return torch_loop(theirs, theirs_arguments, n)

    began = time.perf_counter()
    n_ours, n_torch, turns = repeats(ours), repeats(torchs), []
    tl.check()
    while len(turns) < TURNS and (len(turns) < MIN_TURNS or time.perf_counter() - began < ROW_S):
        if len(turns) >= 1 and time.perf_counter() - began > 3 * ROW_S:
            break
        times = []
        for loop, n in (ours, n_ours), (torchs, n_torch):
            time.sleep(PAUSE_S)
            if n > 1:
                loop(1)
            times.append(loop(n))
        times.append(ours_loop(*empty, arguments, 1000))
        turns.append(times)
    tl.check()
    raw, torch_s = (statistics.median(t[i] for t in turns) for i in range(2))
    ctypes_s = min(t[2] for t in turns)  # the least: what an interruption added must not be subtracted
    if ctypes_s >= 0.95 * raw:           # nothing would be left but noise
        ctypes_s = 0.0
    ours_s = raw - ctypes_s
    least_ours, least_torch = max(min(t[0] for t in turns) - ctypes_s, 1e-8), min(t[1] for t in turns)
    return {"op": name, "size": size, "ours_s": ours_s, "torch_s": torch_s, "ratio": torch_s / ours_s, "slower": ours_s > SLOWER * torch_s,
            "least_ours_s": least_ours, "least_torch_s": least_torch, "ratio_of_least": least_torch / least_ours,
            "ctypes_s": ctypes_s, "ours_with_ctypes_s": raw, "ratio_with_ctypes": torch_s / raw, "turns": len(turns)}


# ---- Report ----

def time_text(s):
    return f"{s * 1e6:.2f} us" if s < 1e-4 else f"{s * 1e6:.0f} us" if s < 1e-2 else f"{s * 1e3:.1f} ms"


def summary(rows):
    worst = min(rows, key=lambda r: r["ratio"])
    return {"rows": len(rows), "faster": sum(r["ratio"] >= 1 for r in rows),
            "slower_up_to_3x": sum(r["ratio"] < 1 and not r["slower"] for r in rows), "slower_than_3x": sum(r["slower"] for r in rows),
            "worst_ratio": worst["ratio"], "worst": f"{worst['op']}, {worst['size']}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="ops, separated by commas")
    parser.add_argument("--sizes", default=",".join(SIZES))
    options = parser.parse_args()
    names = [n.strip() for n in options.only.split(",")] if options.only else list(CASES)
    sizes = options.sizes.split(",")
    for wrong in [n for n in names if n not in CASES] + [s for s in sizes if s not in SIZES]:
        parser.error(f"no op or size '{wrong}'; ops: {', '.join(CASES)}; sizes: {', '.join(SIZES)}")

    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)            # M_MMAP_MAX: no block is a mapping of its own
        libc.mallopt(-1, 2**31 - 1)    # M_TRIM_THRESHOLD
    except AttributeError:
        pass
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    tl.set_threads(options.threads)
    tl.library.tl_grad_mode(False)

    began, rows = time.perf_counter(), []
    if not options.json:
        print(f"tally {tl.version().decode()}, torch {torch.__version__}, {options.threads} threads each, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'op':<16}{'size':<7}{'ours':>11}{'torch':>11}{'torch/ours':>12}   {'of least':>8}  {'ctypes':>8}", flush=True)
    for name in names:
        for size in sizes:
            row = measure(name, size)
            rows.append(row)
            if not options.json:
                print(f"{name:<16}{size:<7}{time_text(row['ours_s']):>11}{time_text(row['torch_s']):>11}{row['ratio']:>12.2f} {'!' if row['slower'] else ' '} "
                      f"{row['ratio_of_least']:>8.2f}  {time_text(row['ctypes_s']) if size == 'small' else '':>8}", flush=True)
    total = summary(rows)
    seconds = time.perf_counter() - began
    if options.json:
        print(json.dumps({"tally": tl.version().decode(), "torch": torch.__version__, "threads": options.threads, "seconds": seconds, "summary": total, "rows": rows}, indent=1))
        return
    print(f"\n{total['rows']} rows in {seconds:.0f} s: {total['faster']} as fast as torch or faster, {total['slower_up_to_3x']} slower up to 3x, "
          f"{total['slower_than_3x']} slower than 3x (!). Worst: {total['worst_ratio']:.2f} ({total['worst']}).")
    for row in rows:
        if row["slower"]:
            print(f"  ! {row['op']}, {row['size']}: {1 / row['ratio']:.1f}x torch's time ({1 / row['ratio_of_least']:.1f}x by the least times)")
    if os.getloadavg()[0] > options.threads + 0.5:
        print(f"Load is {os.getloadavg()[0]:.1f}: other programs were running. Rows with threads are the least certain, torch's small ones above all.")
    print("Ours is without the cost of ctypes (its column), which the small size would be mostly made of; torch's binding is included.")


if __name__ == "__main__":
    main()
