"""Ours against PyTorch on one GPU: every op at random shapes and dtypes, each with its peer in the same run.

    python3 bench/bench_ops_gpu.py [--rows 280] [--seed 1] [--only sort,attention] [--seconds 400] [--json FILE]

A row is one op, written once and run by both packages on the same values: its forward pass, or, for "bwd", the
gradient of a kept graph. Shapes are drawn anew for every row: sizes from thousands to tens of millions of elements,
lengths that are no multiples of anything. The ratio is ours / torch: below 1 we are faster. Both sides take turns;
each turn queues the op for at least 2 ms and waits for the GPU, and the shortest turn counts. Rows are printed worst
first. The exit status is 1 if a row takes more than MOST times as long as PyTorch's.

Each op's result is compared with torch's before it is timed, with tolerances of its dtype. The compiled binding (`make
python`) is needed: most of a small op's time is its call.
"""
import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
os.environ.setdefault("TALLY_LIB", str(ROOT / "build" / "libtally.so"))

import torch  # noqa: E402

import tally  # noqa: E402
from tally import _library  # noqa: E402

MOST = 1.3
TURNS, TURN_S = 5, 0.002
EPS = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2, "int64": 0}
FLOATS, NARROW = ["float32", "float16", "bfloat16"], ["float16", "bfloat16"]

CASES = {}


def case(name, dtypes=FLOATS, grads=True):
    """make(draw, dtype) gives (inputs as torch tensors, f(m, *inputs)); m is tally or torch."""
    def add(make):
        CASES[name] = (make, dtypes, grads)
        return make
    return add


# ---- Drawing ----

def log_uniform(draw, low, high):
    return int(round(low * (high / low) ** draw.random()))


def matrix(draw, most=3e7):
    """Two sizes whose product is at most `most`."""
    columns = log_uniform(draw, 3, 40000)
    return max(1, min(log_uniform(draw, 2, 60000), int(most / columns))), columns


def normal(shape, dtype):
    return torch.randn(shape, device="cuda").to(getattr(torch, dtype))


def integers(shape, most):
    return torch.randint(most, shape, device="cuda")


# ---- Cases ----

def elementwise(name, f, n=1):
    @case(name)
    def make(draw, dtype):
        shape = matrix(draw)
        return [normal(shape, dtype) for _ in range(n)], f


elementwise("add", lambda m, x, y: x + y, 2)
elementwise("mul", lambda m, x, y: x * y, 2)
elementwise("exp", lambda m, x: m.exp(x))
elementwise("tanh", lambda m, x: m.tanh(x))
elementwise("gelu", lambda m, x: m.nn.functional.gelu(x, approximate="tanh"))
elementwise("silu", lambda m, x: m.nn.functional.silu(x))
elementwise("where", lambda m, x, y: m.where(x > 0, x, y), 2)
elementwise("softmax", lambda m, x: m.softmax(x, -1))
elementwise("log_softmax columns", lambda m, x: m.log_softmax(x, 0))
elementwise("sum", lambda m, x: x.sum())
elementwise("sum rows", lambda m, x: x.sum(-1))
elementwise("sum columns", lambda m, x: x.sum(0))
elementwise("mean rows", lambda m, x: x.mean(-1))
elementwise("var columns", lambda m, x: x.var(0))
elementwise("amax columns", lambda m, x: x.amax(0))
elementwise("cumsum", lambda m, x: x.cumsum(-1))
elementwise("transpose", lambda m, x: x.t().contiguous())
elementwise("cat", lambda m, x, y: m.cat([x, y], 1), 2)


def counting(name, f, dtypes=FLOATS):
    @case(name, dtypes, grads=False)
    def make(draw, dtype):
        return [normal(matrix(draw), dtype)], f


counting("argmax rows", lambda m, x: x.argmax(-1))
counting("argmax columns", lambda m, x: x.argmax(0))
counting("sort rows", lambda m, x: m.sort(x, -1)[0])
counting("sort columns", lambda m, x: m.sort(x, 0)[0], ["float32"])
counting("sort vector", lambda m, x: m.sort(x.flatten())[0])
counting("to bf16", lambda m, x: x.to(m.bfloat16), ["float32"])
counting("to f32", lambda m, x: x.to(m.float32), NARROW)
counting("to f8", lambda m, x: x.to(m.float8_e4m3fn).to(m.float32))
counting("nonzero", lambda m, x: m.nonzero(x > 1), ["float32"])
counting("masked_select", lambda m, x: m.masked_select(x, x > 1), ["float32"])
counting("flip", lambda m, x: m.flip(x, (0, 1)))


@case("topk", grads=False)
def topk(draw, dtype):
    x = normal(matrix(draw), dtype)
    k = max(1, min(x.shape[1], log_uniform(draw, 1, 200)))
    return [x], lambda m, x: m.topk(x, k, -1)[0]


@case("unique", ["int64"], grads=False)
def unique(draw, dtype):
    return [integers((log_uniform(draw, 1000, 4_000_000),), log_uniform(draw, 2, 1_000_000))], lambda m, x: m.unique(x)


@case("bincount", ["int64"], grads=False)
def bincount(draw, dtype):
    most = log_uniform(draw, 2, 1_000_000)
    x = integers((log_uniform(draw, 1000, 4_000_000),), most)
    return [x], lambda m, x: m.bincount(x, minlength=most)


@case("randperm", ["int64"], grads=False)
def randperm(draw, dtype):
    n = log_uniform(draw, 1000, 4_000_000)
    return [], lambda m: m.sort(m.randperm(n, device="cuda"))[0]


@case("multinomial", ["float32"], grads=False)
def multinomial(draw, dtype):
    rows, columns = draw.randint(1, 64), log_uniform(draw, 100, 150000)
    return [torch.rand(rows, columns, device="cuda")], lambda m, x: m.multinomial(x, 1, replacement=True) * 0


@case("embedding")
def embedding(draw, dtype):
    table = normal((log_uniform(draw, 100, 100000), log_uniform(draw, 8, 2048)), dtype)
    ids = integers((log_uniform(draw, 10, 20000),), table.shape[0])
    return [table, ids], lambda m, w, i: m.nn.functional.embedding(i, w)


@case("gather")
def gather(draw, dtype):
    x = normal(matrix(draw, 1e7), dtype)
    return [x, integers(x.shape, x.shape[1])], lambda m, x, i: m.gather(x, 1, i)


@case("index_select columns")
def index_select(draw, dtype):
    x = normal(matrix(draw, 1e7), dtype)
    return [x, integers((log_uniform(draw, 2, 2 * x.shape[1]),), x.shape[1])], lambda m, x, i: m.index_select(x, 1, i)


@case("scatter_add")
def scatter_add(draw, dtype):
    x = normal(matrix(draw, 4e6), dtype)
    return [x, integers(x.shape, x.shape[1]), x.clone()], lambda m, x, i, y: x.scatter_add(1, i, y)


@case("index_add")
def index_add(draw, dtype):
    x = normal(matrix(draw, 4e6), dtype)
    n = log_uniform(draw, 1, 4 * x.shape[0])
    n = min(n, max(1, int(1e7 / x.shape[1])))
    return [x, integers((n,), x.shape[0]), normal((n, x.shape[1]), dtype)], lambda m, x, i, y: x.index_add(0, i, y)


@case("index_put", grads=False)
def index_put(draw, dtype):
    x = normal(matrix(draw, 4e6), dtype)
    n = log_uniform(draw, 1, x.shape[0])
    return ([x, torch.randperm(x.shape[0], device="cuda")[:n], normal((n, x.shape[1]), dtype)],
            lambda m, x, i, y: x.index_put((i,), y))


@case("repeat_interleave", grads=False)
def repeat_interleave(draw, dtype):
    x = normal(matrix(draw, 4e6), dtype)
    return [x, integers((x.shape[0],), draw.choice([3, 9]))], lambda m, x, n: m.repeat_interleave(x, n, 0)


@case("searchsorted", ["float32"], grads=False)
def searchsorted(draw, dtype):
    return ([normal((log_uniform(draw, 10, 1_000_000),), dtype).sort()[0],
             normal((log_uniform(draw, 10, 1_000_000),), dtype)], lambda m, x, v: m.searchsorted(x, v))


@case("matmul")
def matmul(draw, dtype):
    m_, k, n = (log_uniform(draw, 4, 6000) for _ in range(3))
    return [normal((m_, k), dtype), normal((k, n), dtype) / k**0.5], lambda m, x, y: x @ y


@case("bmm")
def bmm(draw, dtype):
    b, m_, k, n = log_uniform(draw, 1, 256), *(log_uniform(draw, 4, 800) for _ in range(3))
    return [normal((b, m_, k), dtype), normal((b, k, n), dtype) / k**0.5], lambda m, x, y: x @ y


@case("linear")
def linear(draw, dtype):
    t, k, n = log_uniform(draw, 1, 20000), log_uniform(draw, 16, 4000), log_uniform(draw, 16, 4000)
    return ([normal((t, k), dtype), normal((n, k), dtype) / k**0.5, normal((n,), dtype)],
            lambda m, x, w, b: m.nn.functional.linear(x, w, b))


@case("layer_norm")
def layer_norm(draw, dtype):
    x = normal(matrix(draw), dtype)
    n = x.shape[1]
    return [x, normal((n,), dtype), normal((n,), dtype)], lambda m, x, w, b: m.nn.functional.layer_norm(x, (n,), w, b)


@case("rms_norm")
def rms_norm(draw, dtype):
    x = normal(matrix(draw), dtype)
    n = x.shape[1]
    return [x, normal((n,), dtype)], lambda m, x, w: m.nn.functional.rms_norm(x, (n,), w, 1e-6)


@case("cross_entropy")
def cross_entropy(draw, dtype):
    x = normal((log_uniform(draw, 2, 10000), log_uniform(draw, 10, 5000)), dtype)
    return [x, integers((x.shape[0],), x.shape[1])], lambda m, x, i: m.nn.functional.cross_entropy(x, i)


@case("dropout", grads=False)
def dropout(draw, dtype):
    return [normal(matrix(draw), dtype)], lambda m, x: m.nn.functional.dropout(x, 0.2) * 0


def heads(draw, dtype, size=None, least=1):
    b, h, t = draw.randint(1, 16), draw.randint(1, 16), log_uniform(draw, least, 3000)
    d = size or draw.choice([32, 40, 64, 64, 80, 96, 128, 128, 192, 256])
    return [normal((b, h, t, d), dtype) for _ in range(3)]


@case("attention")
def attention(draw, dtype):
    causal = draw.random() < 0.7
    return (heads(draw, dtype),
            lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))


@case("attention mask")
def attention_mask(draw, dtype):
    q, k, v = heads(draw, dtype)
    mask = torch.rand(q.shape[0], 1, q.shape[2], q.shape[2], device="cuda") < 0.8
    mask |= torch.eye(q.shape[2], dtype=torch.bool, device="cuda")
    return ([q, k, v, mask],
            lambda m, q, k, v, mask: m.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))


@case("attention bias")
def attention_bias(draw, dtype):
    q, k, v = heads(draw, dtype)
    bias = normal((1, q.shape[1], q.shape[2], q.shape[2]), dtype)
    return ([q, k, v], lambda m, q, k, v, bias=(bias, tally_of(bias)): m.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias[m is tally]))


@case("attention dropout", grads="only")
def attention_dropout(draw, dtype):
    return (heads(draw, dtype), lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(
        q, k, v, dropout_p=0.1, is_causal=True))


@case("attention one query", grads=False)
def attention_one(draw, dtype):
    q, k, v = heads(draw, dtype, least=100)
    return ([q[:, :, -1:].clone(), k, v],
            lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v))


@case("attention odd head")
def attention_odd(draw, dtype):
    return (heads(draw, dtype, draw.choice([20, 36, 50, 100, 12])),
            lambda m, q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


# ---- Running ----

def tally_of(x):
    return tally.tensor(x.float().cpu().numpy() if x.is_floating_point() else x.cpu().numpy(), device="cuda").to(
        getattr(tally, str(x.dtype).split(".")[1]))


def turn(f, sync, n):
    sync()
    start = time.perf_counter()
    for _ in range(n):
        f()
    sync()
    return (time.perf_counter() - start) / n


def timed(ours, theirs):
    """Shortest seconds of a call: ours, theirs."""
    sides = [(ours, tally.cuda.synchronize), (theirs, torch.cuda.synchronize)]
    n = []
    for f, sync in sides:
        turn(f, sync, 1)
        once = turn(f, sync, 3)
        n.append(max(1, min(200, int(TURN_S / once))))
    least = [float("inf")] * 2
    for _ in range(TURNS):
        for i, (f, sync) in enumerate(sides):
            least[i] = min(least[i], turn(f, sync, n[i]))
            if least[i] * n[i] > 0.3:
                break
    return least


def apart(own, other, least=0):
    """The largest difference over the largest value, or over `least` if that is larger."""
    own = torch.from_numpy(own.to(tally.float32).cpu().numpy())
    other = other.float().cpu()
    assert own.shape == other.shape, (own.shape, other.shape)
    largest = max(other.abs().max().item() if other.numel() else 0, least)
    return (own - other).abs().max().item() / largest if largest else 0


def prepare(make, draw, dtype, backward):
    """(ours, theirs, the largest difference of their results, shapes)"""
    values, f = make(draw, dtype)
    own = [tally_of(x) for x in values]
    shapes = " ".join("x".join(map(str, x.shape)) for x in values)
    if not backward:
        error = apart(f(tally, *own), f(torch, *values))
        return lambda: f(tally, *own), lambda: f(torch, *values), error, shapes
    for side in (own, values):
        for x in side:
            if x.is_floating_point():
                x.requires_grad_(True)
    out, out_t = f(tally, *own), f(torch, *values)
    seed_t = torch.randn_like(out_t)
    seed = tally_of(seed_t)
    leaves, leaves_t = ([x for x in side if x.requires_grad] for side in (own, values))

    def ours():
        return tally.autograd.grad(out, leaves, seed, retain_graph=True)

    def theirs():
        return torch.autograd.grad(out_t, leaves_t, seed_t, retain_graph=True)
    # The weight of one key is 1: the gradients of q and k are 0, and what is there is rounding.
    least = 0.05 if "attention" in make.__name__ and values[0].shape[-2] == 1 else 0
    error = 0 if "dropout" in make.__name__ else max(apart(a, b, least) for a, b in zip(ours(), theirs()))
    return ours, theirs, error, shapes


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=280)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--json")
    options = parser.parse_args()
    if not _library.is_compiled:
        sys.exit("bench_ops_gpu: the compiled binding is missing, and calls through ctypes take several times as long: "
                 "run `make python` first")
    kinds = [(name, make, dtypes, backward) for name, (make, dtypes, grads) in CASES.items()
             for backward in (False, True)
             if (grads or not backward) and not (grads == "only" and not backward)
             and (not options.only or any(part in name for part in options.only.split(",")))]
    start, rows, failed = time.perf_counter(), [], 0
    for i in range(options.rows):
        if time.perf_counter() - start > options.seconds:
            print(f"stopped after {i} rows: --seconds {options.seconds:g}")
            break
        name, make, dtypes, backward = kinds[i % len(kinds)]
        draw = random.Random(options.seed * 100000 + i)
        torch.manual_seed(i)
        dtype = draw.choice(dtypes)
        label = name + (" bwd" if backward else "")
        try:
            ours, theirs, error, shapes = prepare(make, draw, dtype, backward)
            own_s, torch_s = timed(ours, theirs)
        except Exception as problem:  # a row that cannot run is a row that failed
            failed += 1
            print(f"{label}, {dtype}: {type(problem).__name__}: {str(problem)[:300]}")
            continue
        finally:
            ours = theirs = None
            torch.cuda.empty_cache()
        if error > 4 * EPS[dtype]:
            failed += 1
            print(f"{label}, {dtype}, {shapes}: differs by {error:.2g} of the largest value")
        rows.append({"op": label, "dtype": dtype, "shapes": shapes, "ratio": own_s / torch_s, "ours_s": own_s,
                     "torch_s": torch_s})
    rows.sort(key=lambda row: -row["ratio"])
    print(f"{'ratio':>7} {'ours us':>10} {'torch us':>10}  op")
    for row in rows:
        print(f"{row['ratio']:7.2f} {row['ours_s'] * 1e6:10.1f} {row['torch_s'] * 1e6:10.1f}  {row['op']}, "
              f"{row['dtype']}, {row['shapes']}")
    slow = [row for row in rows if row["ratio"] > MOST]
    middle = rows[len(rows) // 2]["ratio"] if rows else float("nan")
    print(f"{len(rows)} rows, {len(slow)} above {MOST}, {failed} failed; median {middle:.2f}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows))
    return bool(slow) or bool(failed)


if __name__ == "__main__":
    sys.exit(main())
