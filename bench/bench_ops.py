"""Ours against PyTorch on the CPU: every op that has a kernel, at three sizes: about 1e3, 1e5 and 4e6 elements.

    build/venv/bin/python bench/bench_ops.py [--json] [--threads 2] [--only softmax,sort] [--sizes small,medium,large]

or `make bench BENCH=ops BENCH_ARGS="--only sort"`. The ratio is ours / torch: below 1 we are faster. '!' marks a ratio
above 3, which makes the exit status 1.

Both sides run in one process and alternate. Each turn follows a pause, in which idle threads of the other side stop
spinning, and an untimed call. A row is the median of its turns. A row above 3 is measured twice more, and the middle
one of the three counts: on a shared machine, handing work to a second thread may wait for a time slice. 'of least' is
the ratio of the shortest turns.

What the numbers include:
- Ours is called through ctypes with converted arguments, in one scope per call; calls shorter than 50 us share a scope
  by sixteens. Nothing is subtracted. 'binding' is the time of the same calls to a function that does nothing; '*' marks
  rows that are mostly that. torch's times include its own binding as well.
- 'bwd' is the gradient with respect to all float inputs, of a graph that is kept; the forward pass is not timed.
- If torch has no such op (rope, swiglu, the fused ones, block formats), it does the same in several calls.
- glibc is told to keep large blocks (mallopt); otherwise torch would pay for fresh pages where our pool does not.
- 'of memory' (large rows) is the share of the memory bandwidth that the row reaches: the bytes that the ledger counts
  over the time, relative to a plain loop in the same run with the same mix of reads and writes (bench/stream.c, arrays
  of the same size, shortest turns on both sides). Ops that compute much per byte are exempt: see REASONS, which is
  printed for every row above 1x or below 85 %.
- 'computing' (large rows that miss either) is the share of the row's time that the same op takes on one thread and on
  arrays of 64 KB, which fit in the caches, scaled by the bytes. Near 100 %, memory does not matter, and only less
  computation would help.
- Before it is timed, each op's first result is compared with torch's at the small and the medium size (except random
  numbers), and the kernels that ran are recorded. A kernel of op_list.h that no row runs is named at the end, and the
  benchmark fails.
"""
import argparse
import ctypes
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.optim.rmsprop import rmsprop as torch_rmsprop  # noqa: E402

import elementwise_rows  # noqa: E402
from tally_c import Tensor, convert, tl  # noqa: E402

SIZES = ["small", "medium", "large"]
CACHED = "cached"       # a size of its own, not in the table: see cached_s
# In f32: 4 KB, 64 KB, 512 KB, 16 MB.
SHAPES = {"small": (8, 128), CACHED: (16, 1024), "medium": (256, 512), "large": (4096, 1024)}
SQUARES = {"small": 32, CACHED: 64, "medium": 256, "large": 2048}
# (B, T, H, D)
HEADS = {"small": (1, 16, 2, 32), CACHED: (1, 32, 8, 64), "medium": (1, 256, 8, 64), "large": (4, 1024, 8, 64)}
LOGITS = {"small": (4, 256), CACHED: (8, 2048), "medium": (64, 2048), "large": (128, 32768)}
# (N, C, V)
HEAD = {"small": (16, 32, 64), CACHED: (16, 64, 256), "medium": (128, 128, 1024), "large": (512, 256, 8192)}
SLOWER = 3.0            # more than this times torch's time is too slow
ELSEWHERE = {"transfer", "clip_scale", "fake_quantize",  # needs two devices; is of one number; torch has none
             "narrow", "matmul_f8", "matmul_f8_acc", "rope_put",  # a GPU's
             "grouped_matmul", "grouped_matmul_acc", "grouped_outer", "grouped_outer_acc",
             "gelu_mlp", "gelu_mlp_grad", "swiglu_mlp", "swiglu_mlp_grad",  # bench_experts.c
             "matmul_blocks"}  # bench_blocks.c
TURNS, MIN_TURNS = 15, 3
TURN_S = 0.006          # a turn repeats the op this long
ROW_S = 0.4             # no more turns after this long
PAUSE_S = 0.002
BATCH, SHORT_S = 16, 5e-5  # calls in one scope, of ops that take less than this

f32, bf16 = torch.float32, torch.bfloat16


# ---- Cases: name -> function(size, dtype) giving a Case ----

class Case:
    """`ours` and `theirs` are called with their arguments. first(result, arguments) and torch_first(result, arguments)
    return what is compared, or None if there is nothing to compare (random numbers)."""

    def __init__(self, ours, arguments, theirs, theirs_arguments, first=None, torch_first=None, compares=True):
        self.ours, self.arguments, self.theirs, self.theirs_arguments = ours, arguments, theirs, theirs_arguments
        self.first = first or (lambda result, arguments: Tensor(result))
        self.torch_first = torch_first or (lambda result, arguments: result[0] if isinstance(result, (tuple, list))
                                           else result)
        self.compares = compares


CASES = {}
pool = np.random.default_rng(1).standard_normal((1 << 22) + 128, dtype=np.float32)


def case(name, narrow=False):
    """Registers under the name in f32, and where `narrow` under 'name bf16' too."""
    def register(make):
        CASES[name] = functools.partial(make, dtype=f32)
        if narrow:
            CASES[name + " bf16"] = functools.partial(make, dtype=bf16)
        return make
    return register


def normal(shape, offset=0):
    n = int(np.prod(shape))
    return pool[offset:offset + n].reshape(shape).copy()


def positive(shape, offset=0):
    return np.abs(normal(shape, offset)) + np.float32(0.25)


def both(values, dtype=f32):
    """The same values for us and for torch, in memory of their own; floats in dtype."""
    x, y = tl.tensor(values), torch.from_numpy(values.copy())
    return (tl.cast(x, tl.BF16), y.bfloat16()) if dtype == bf16 and y.is_floating_point() else (x, y)


def integers(shape, high):
    return np.random.default_rng(2).integers(0, high, shape)


def slots(n):
    return [(ctypes.c_void_p * 1)() for _ in range(n)]


def unary(name, ours, theirs, values=normal, narrow=False, gradient=False, compares=True):
    """ours: the function's name and what follows x."""
    def forward(size, dtype):
        x, y = both(values(SHAPES[size]), dtype)
        return Case(ours[0], [x, *ours[1:]], theirs, [y], compares=compares)
    case(name, narrow)(forward)
    if gradient:
        case(name + " bwd", narrow)(lambda size, dtype: backward(forward(size, dtype)))


def binary(name, theirs, ours=None, values=normal, narrow=False, gradient=False):
    def forward(size, dtype):
        shape = SHAPES[size]
        (a, at), (b, bt) = both(values(shape), dtype), both(values(shape, 64), dtype)
        return Case((ours or [name])[0], [a, *(ours or [name])[1:], b], theirs, [at, bt])
    case(name, narrow)(forward)
    if gradient:
        case(name + " bwd", narrow)(lambda size, dtype: backward(forward(size, dtype)))


def flat(items):
    for x in items:
        yield from flat(x) if isinstance(x, (list, tuple)) else [x]


def backward(forward):
    """The gradient of a case with respect to the float tensors among its arguments."""
    inputs = [x for x in flat(forward.arguments) if isinstance(x, Tensor) and x.dtype.kind not in "iub"]
    inputs_t = [x for x in flat(forward.theirs_arguments) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    for x, xt in zip(inputs, inputs_t, strict=True):
        tl.requires_grad(x, True)
        xt.requires_grad_()
    tl.library.tl_set_grad_mode(True)
    types = [tl.header._type(a.type) for a in tl.header.functions["tl_" + forward.ours].arguments]
    with tl.scope():
        arguments = [convert(a, t) for a, t in zip(forward.arguments, types, strict=True)]
        out = forward.first(getattr(tl.library, "tl_" + forward.ours)(*arguments), arguments)
    tl.check()
    tl.library.tl_set_grad_mode(False)
    with torch.enable_grad():
        out_t = forward.torch_first(forward.theirs(*forward.theirs_arguments), forward.theirs_arguments)
    return gradient_case(out, out_t, inputs, inputs_t)


def gradient_case(out, out_t, inputs, inputs_t):
    """The gradient of out with respect to inputs."""
    seed, seed_t = both(normal(out_t.shape, 77), out_t.dtype)
    theirs = functools.partial(torch.autograd.grad, grad_outputs=(seed_t,), retain_graph=True)
    n = len(inputs)
    return Case("gradients", [out, seed, inputs, n, tl.RETAIN_GRAPH, (ctypes.c_void_p * n)()], theirs,
                [(out_t,), tuple(inputs_t)], first=lambda result, arguments: Tensor(arguments[-1][0]))


# create.c, random.c

def creation(name, ours, theirs, compares=True):
    """ours(size) and theirs(size) give the function's name and arguments, and a function without any."""
    def make(size, dtype):
        function, *arguments = ours(size)
        return Case(function, arguments, theirs(size), [], compares=compares)
    case(name)(make)


def numel(size):
    return int(np.prod(SHAPES[size]))


creation("full", lambda s: ["full", 2, SHAPES[s], 1.5, tl.F32, None], lambda s: lambda: torch.full(SHAPES[s], 1.5))
creation("arange", lambda s: ["arange", 0.0, 1.0, numel(s), tl.F32, None],
         lambda s: lambda: torch.arange(0.0, float(numel(s)), 1.0))
creation("uniform", lambda s: ["uniform", 2, SHAPES[s], 0.0, 1.0, tl.F32, None],
         lambda s: lambda: torch.rand(SHAPES[s]), compares=False)
creation("normal", lambda s: ["normal", 2, SHAPES[s], 0.0, 1.0, tl.F32, None], lambda s: lambda: torch.randn(SHAPES[s]),
         compares=False)
creation("integers", lambda s: ["integers", 2, SHAPES[s], 0, 1000, tl.I64, None],
         lambda s: lambda: torch.randint(0, 1000, SHAPES[s]), compares=False)
creation("permutation", lambda s: ["permutation", numel(s) // 8, None], lambda s: lambda: torch.randperm(numel(s) // 8),
         compares=False)


def filling(name, ours, theirs, compares=False):
    def make(size, dtype):
        x, xt = both(normal(SHAPES[size]))
        return Case(ours[0], [x, *ours[1:]], theirs, [xt], first=lambda r, a: x, compares=compares)
    case(name)(make)


filling("fill_", ["fill_", 2.5], lambda x: x.fill_(2.5), compares=True)
filling("uniform_", ["uniform_", 0.0, 1.0], lambda x: x.uniform_(0, 1))
filling("normal_", ["normal_", 0.0, 1.0], lambda x: x.normal_(0, 1))
filling("bernoulli_", ["bernoulli_", 0.3], lambda x: x.bernoulli_(0.3))
filling("trunc_normal_", ["trunc_normal_", 0.0, 1.0, -2.0, 2.0], lambda x: torch.nn.init.trunc_normal_(x, 0, 1, -2, 2))


def multinomial(size, dtype, replacement):
    n, v = LOGITS[size]
    x, xt = both(positive((n, v)))
    return Case("multinomial", [x, 8, replacement], torch.multinomial, [xt, 8, replacement], compares=False)


case("multinomial")(functools.partial(multinomial, replacement=False))
case("multinomial again")(functools.partial(multinomial, replacement=True))
unary("dropout", ["dropout", 0.1], functools.partial(F.dropout, p=0.1), compares=False)

# copy.c, view.c

unary("clone", ["clone"], torch.clone, narrow=True)
unary("cast f32->bf16", ["cast", tl.BF16], torch.Tensor.bfloat16)
unary("cast f32->f8", ["cast", tl.F8E4M3], lambda x: x.to(torch.float8_e4m3fn))
unary("cast saturating", ["round_to", tl.F8E4M3, tl.SATURATE], lambda x: x.clamp(-448, 448).to(torch.float8_e4m3fn))


@case("cast bf16->f32")
def widen(size, dtype):
    x, xt = both(normal(SHAPES[size]), bf16)
    return Case("cast", [x, tl.F32], torch.Tensor.float, [xt])


@case("transpose copy", narrow=True)
def transpose_copy(size, dtype):
    x, xt = both(normal(SHAPES[size]), dtype)
    return Case("contiguous", [tl.transpose(x, 0, 1)], torch.Tensor.contiguous, [xt.t()])


@case("copy_")
def copy_into(size, dtype):
    (x, xt), (y, yt) = both(normal(SHAPES[size])), both(normal(SHAPES[size], 64))
    return Case("copy_", [x, y], torch.Tensor.copy_, [xt, yt], first=lambda r, a: x)


@case("slice bwd")
def slice_backward(size, dtype):
    half = SHAPES[size][0] // 2
    x, xt = both(normal(SHAPES[size]))
    return backward(Case("slice", [x, 0, 0, half, 1], lambda y: y[:half], [xt]))


# elementwise.c, scalar.c: a row each for the ops of elementwise_list.h

ALSO_NARROW = {"add", "mul", "div", "exp", "tanh", "sigmoid", "relu", "gelu", "silu", "swiglu"}
WITH_GRADIENT = {"gelu", "gelu_erf", "silu", "swiglu"}  # a kernel of their own on the way back
for name in elementwise_rows.BINARY:
    binary(name, elementwise_rows.theirs(name), values=positive if name == "pow" else normal,
           narrow=name in ALSO_NARROW, gradient=name in WITH_GRADIENT)
for name in elementwise_rows.UNARY:
    unary(name, [name], elementwise_rows.theirs(name), values=positive if name in elementwise_rows.POSITIVE else normal,
          narrow=name in ALSO_NARROW, gradient=name in WITH_GRADIENT)
ELSEWHERE |= set(elementwise_rows.UNKNOWN)
binary("compare", torch.lt, ours=["cmp", tl.LT])


@case("add row")
def add_row(size, dtype):
    (x, xt), (b, bt) = both(normal(SHAPES[size])), both(normal(SHAPES[size][1:], 7))
    return Case("add", [x, b], torch.add, [xt, bt])


@case("where", narrow=True)
def where(size, dtype):
    (a, at), (b, bt) = both(normal(SHAPES[size]), dtype), both(normal(SHAPES[size], 64), dtype)
    c, ct = both(normal(SHAPES[size], 32) > 0)
    return Case("where", [c, a, b], torch.where, [ct, at, bt])


unary("affine", ["affine", 2.0, 1.0], lambda x: x * 2 + 1)
unary("leaky_relu", ["leaky_relu", 0.1], functools.partial(F.leaky_relu, negative_slope=0.1))
unary("softplus", ["softplus", 1.0, 20.0], F.softplus)
two = tl.scalar_float(2.0)
for name in "add", "sub", "mul", "div", "remainder":
    unary(name + "_scalar", [name + "_scalar", two], functools.partial(getattr(torch, name), other=2.0))
unary("pow_scalar 2", ["pow_scalar", two], functools.partial(torch.pow, exponent=2.0))
unary("pow_scalar 1.7", ["pow_scalar", tl.scalar_float(1.7)], functools.partial(torch.pow, exponent=1.7),
      values=positive)
unary("compare_scalar", ["cmp_scalar", tl.LT, two], functools.partial(torch.lt, other=2.0))
unary("clamp", ["clamp", tl.scalar_float(-0.5), two], functools.partial(torch.clamp, min=-0.5, max=2.0))

# reduce.c, fold.c


def reduction(name, theirs, extra=(), narrow=False, columns=True, **more):
    """Over rows (the last axis), columns (the first), everything."""
    for what, axes in ("rows", [1]), ("columns", [0]), ("all", []):
        if what != "columns" or columns:
            call = functools.partial(theirs, dim=axes[0] if axes else None, **more)
            unary(f"{name} {what}", [name, *extra, axes, len(axes), False], call, narrow=narrow and what != "all")


def over(function, everything):
    """torch's functions of one axis, and what to call for all."""
    return lambda x, dim, **more: everything(x) if dim is None else function(x, dim=dim, **more)


reduction("sum", torch.sum, narrow=True)
reduction("max", over(torch.amax, torch.amax), narrow=True)
reduction("min", over(torch.amin, torch.amin))
reduction("prod", over(torch.prod, torch.prod))
reduction("argmax", torch.argmax, narrow=True)
reduction("argmin", torch.argmin)


def several_axes(name, ours, theirs, narrow=False):
    for what, axes in ("rows", [1]), ("columns", [0]), ("all", [0, 1]):
        unary(f"{name} {what}", [*ours, axes, len(axes)] + ([1.0] if name == "var" else []) + [False],
              functools.partial(theirs, dim=axes), narrow=narrow)


several_axes("var", ["var"], torch.var)
several_axes("norm", ["norm", 2.0], lambda x, dim: torch.linalg.vector_norm(x, 2, dim))
several_axes("logsumexp", ["logsumexp"], torch.logsumexp)
unary("cumsum", ["cumsum", 1], functools.partial(torch.cumsum, dim=1), narrow=True)
unary("cumsum columns", ["cumsum", 0], functools.partial(torch.cumsum, dim=0))
unary("cumprod", ["cumprod", 1], functools.partial(torch.cumprod, dim=1), gradient=True)
unary("softmax", ["softmax", -1], functools.partial(torch.softmax, dim=-1), narrow=True, gradient=True)
unary("log_softmax", ["log_softmax", 1], functools.partial(torch.log_softmax, dim=-1), narrow=True, gradient=True)

# norm.c, and the fused ones


def layer_norm(size, dtype):
    (n, c), weight, bias = SHAPES[size], normal(SHAPES[size][1:], 7), normal(SHAPES[size][1:], 9)
    (x, xt), (w, wt), (b, bt) = both(normal((n, c)), dtype), both(weight, dtype), both(bias, dtype)
    return Case("layer_norm", [x, w, b, 1e-5], lambda x, w, b: F.layer_norm(x, (c,), w, b, 1e-5), [xt, wt, bt])


def rms_norm(size, dtype):
    (n, c) = SHAPES[size]
    (x, xt), (w, wt) = both(normal((n, c)), dtype), both(normal((c,), 7), dtype)
    return Case("rms_norm", [x, w, 1e-5], lambda x, w: F.rms_norm(x, (c,), w, 1e-5), [xt, wt])


def sum_of_both(norm, arguments):
    """So that both results of a fused norm have a gradient."""
    return tl.add(Tensor(norm), Tensor(arguments[-1][0]))


def torch_sum_of_both(result, arguments):
    return result[0] + result[1]


def add_layer_norm(size, dtype):
    plain = layer_norm(size, dtype)
    y, yt = both(normal(SHAPES[size], 64), dtype)
    x, w, b, eps = plain.arguments
    xt, wt, bt = plain.theirs_arguments

    def theirs(x, y, w, b):
        both_added = x + y
        return plain.theirs(both_added, w, b), both_added
    return Case("add_layer_norm", [x, y, w, b, eps, *slots(1)], theirs, [xt, yt, wt, bt], first=sum_of_both,
                torch_first=torch_sum_of_both)


def add_rms_norm(size, dtype):
    plain = rms_norm(size, dtype)
    y, yt = both(normal(SHAPES[size], 64), dtype)
    x, w, eps = plain.arguments
    xt, wt = plain.theirs_arguments

    def theirs(x, y, w):
        both_added = x + y
        return plain.theirs(both_added, w), both_added
    return Case("add_rms_norm", [x, y, w, eps, *slots(1)], theirs, [xt, yt, wt], first=sum_of_both,
                torch_first=torch_sum_of_both)


# matmul.c, attention.c


def square(size, dtype):
    n = SQUARES[size]
    (a, at), (b, bt) = both(normal((n, n)), dtype), both(normal((n, n), 11), dtype)
    return Case("matmul", [a, b], torch.matmul, [at, bt])


@case("matmul batch")
def matmul_batch(size, dtype):
    _, t, h, d = HEADS[size]
    (a, at), (b, bt) = both(normal((h, t, d))), both(normal((h, d, t), 11))
    return Case("matmul", [a, b], torch.matmul, [at, bt])


def linear(size, dtype):
    n, c, v = HEAD[size]
    (x, xt), (w, wt), (b, bt) = (both(normal((n, c)), dtype), both(normal((v, c), 11), dtype),
                                 both(normal((v,), 5), dtype))
    return Case("linear", [x, w, b], F.linear, [xt, wt, bt])


def accumulating(forward):
    """backward into gradients that are there."""
    made = backward(forward)
    (out_t,), inputs_t = made.theirs_arguments
    out, seed, inputs = made.arguments[:3]
    seed_t = both(normal(out_t.shape, 77))[1]
    for x, xt in zip(inputs, inputs_t):
        tl.set_grad(x, tl.zeros_like(x))
        xt.grad = torch.zeros_like(xt)
    return Case("backward", [out, seed, tl.RETAIN_GRAPH], lambda y: y.backward(seed_t, retain_graph=True), [out_t],
                first=lambda r, a: inputs[0].grad, torch_first=lambda r, a: inputs_t[0].grad)


case("linear to .grad")(lambda size, dtype: accumulating(linear(size, dtype)))


def heads(size, dtype, offset):
    """(B,T,H,D) for us, and the view (B,H,T,D) of the same layout for torch, as models make it."""
    return both(normal(HEADS[size], offset), dtype)


def attention(size, dtype):
    pairs = [heads(size, dtype, 13 * i) for i in range(3)]

    def theirs(*qkv):
        return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in qkv), is_causal=True).transpose(1, 2)
    return Case("attention", [*(p[0] for p in pairs), tl.attention_options(causal=True), None], theirs,
                [p[1] for p in pairs])


def rope(size, dtype):
    """torch: with cos and sin tables made before, as models have them."""
    b, t, h, d = HEADS[size]
    x, xt = heads(size, dtype, 0)
    angle = torch.arange(t).double()[:, None] * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
    cos, sin = (torch.cat([f(angle)] * 2, -1)[None, :, None, :].to(xt.dtype) for f in (torch.cos, torch.sin))

    def theirs(x):
        return x * cos + torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * sin
    return Case("rope", [x, 10000.0, 0, None], theirs, [xt])


# token.c, loss.c, head.c


def cross_entropy(size, dtype):
    n, v = LOGITS[size]
    (x, xt), (t, tt) = both(normal((n, v)), dtype), both(integers(n, v))
    return Case("cross_entropy", [x, t, None], F.cross_entropy if dtype == f32
                else lambda x, t: F.cross_entropy(x, t).float(), [xt, tt])


def embedding(size, dtype):
    rows, c = SHAPES[size]
    (w, wt), (i, it) = both(normal((rows, c)), dtype), both(integers(rows, rows))
    return Case("embedding", [w, i], lambda w, i: F.embedding(i, w), [wt, it])


case("embedding to .grad")(lambda size, dtype: accumulating(embedding(size, dtype)))


def nll(size, dtype):
    n, v = LOGITS[size]
    (x, xt), (t, tt) = both(normal((n, v))), both(integers(n, v))
    return Case("nll_loss", [x, t, None], F.nll_loss, [xt, tt])


def bce(size, dtype):
    (x, xt), (t, tt) = both(normal(SHAPES[size])), both((normal(SHAPES[size], 64) > 0).astype(np.float32))
    return Case("bce_with_logits", [x, t, None, None, tl.REDUCE_MEAN], F.binary_cross_entropy_with_logits, [xt, tt])


def linear_cross_entropy(size, dtype):
    n, c, v = HEAD[size]
    (x, xt), (w, wt), (t, tt) = both(normal((n, c)), dtype), both(normal((v, c), 11), dtype), both(integers(n, v))
    return Case("linear_cross_entropy", [x, w, t, None], lambda x, w, t: F.cross_entropy(F.linear(x, w), t).float(),
                [xt, wt, tt])


for make, narrow, gradient in ((layer_norm, True, True), (rms_norm, True, True), (add_layer_norm, False, True),
                               (add_rms_norm, False, True), (square, True, False), (linear, True, True),
                               (attention, True, True), (rope, True, True), (cross_entropy, True, True),
                               (embedding, True, True), (nll, False, True), (bce, False, True),
                               (linear_cross_entropy, False, False)):
    name = {"square": "matmul"}.get(make.__name__, make.__name__)
    case(name, narrow)(make)
    if gradient:
        case(name + " bwd", narrow)(lambda size, dtype, make=make: backward(make(size, dtype)))

# index.c, join.c, sort.c, dynamic.c


def gather(size, dtype):
    (x, xt), (i, it) = both(normal(SHAPES[size]), dtype), both(integers(SHAPES[size], SHAPES[size][1]))
    return Case("gather", [x, 1, i], lambda x, i: torch.gather(x, 1, i), [xt, it])


case("gather", narrow=True)(gather)
case("gather bwd")(lambda size, dtype: backward(gather(size, dtype)))


@case("gather columns")
def gather_columns(size, dtype):
    (x, xt), (i, it) = both(normal(SHAPES[size])), both(integers(SHAPES[size], SHAPES[size][0]))
    return Case("gather", [x, 0, i], torch.gather, [xt, 0, it])


def scatter(size, dtype, ours, theirs):
    """Each index of a row once: the result does not depend on the order."""
    n, c = SHAPES[size]
    (x, xt), (s, st) = both(normal((n, c)), dtype), both(normal((n, c), 64), dtype)
    i, it = both(np.random.default_rng(3).permuted(np.tile(np.arange(c), (n, 1)), axis=1))
    return Case(ours, [x, 1, i, s], theirs, [xt, 1, it, st])


case("scatter")(functools.partial(scatter, ours="scatter", theirs=torch.scatter))
case("scatter_add", narrow=True)(functools.partial(scatter, ours="scatter_add", theirs=torch.scatter_add))


def index_select(size, dtype, axis=0):
    n = SHAPES[size][axis]
    (x, xt), (i, it) = both(normal(SHAPES[size]), dtype), both(integers(n, n))
    return Case("index_select", [x, axis, i], torch.index_select, [xt, axis, it])


case("index_select", narrow=True)(index_select)
case("index_select 1")(functools.partial(index_select, axis=1))


@case("index_add")
def index_add(size, dtype):
    n = SHAPES[size][0]
    (x, xt), (s, st), (i, it) = both(normal(SHAPES[size])), both(normal(SHAPES[size], 64)), both(integers(n, n))
    return Case("index_add", [x, 0, i, s, 1.0], torch.index_add, [xt, 0, it, st])


@case("index pairs")
def index_pairs(size, dtype):
    n, c = SHAPES[size]
    (x, xt), (i, it), (j, jt) = (both(normal((n, c))), both(integers(n * c // 4, n)),
                                 both(integers(n * c // 4 + 1, c)[1:].copy()))
    return Case("index", [x, [0, 1], [i, j], 2], lambda x, i, j: x[i, j], [xt, it, jt])


def index_put(size, dtype, accumulate):
    n, c = SHAPES[size]
    (x, xt), (i, it) = both(normal((n, c))), both(np.random.default_rng(3).permutation(n))
    v, vt = both(normal((n, c), 64))
    return Case("index_put", [x, [0], [i], 1, v, accumulate], lambda x, i, v: torch.index_put(x, (i,), v, accumulate),
                [xt, it, vt])


case("index_put")(functools.partial(index_put, accumulate=False))
case("index_put add")(functools.partial(index_put, accumulate=True))


@case("repeat_interleave")
def repeat_interleave(size, dtype):
    n, c = SHAPES[size]
    (x, xt), (i, it) = both(normal((n // 2, c))), both(integers(n // 2, 5))
    return Case("repeat_counts", [x, 0, i], lambda x, i: torch.repeat_interleave(x, i, 0), [xt, it])


@case("concat", narrow=True)
def concat(size, dtype):
    n, c = SHAPES[size]
    (a, at), (b, bt) = both(normal((n, c // 2)), dtype), both(normal((n, c // 2), 5), dtype)
    return Case("concat", [[a, b], 2, 1], torch.cat, [(at, bt), 1])


unary("pad", ["pad", [0, 3], [0, 5], tl.PAD_CONSTANT, 1.0], lambda x: F.pad(x, (3, 5), value=1.0))
unary("pad reflect", ["pad", [0, 3], [0, 5], tl.PAD_REFLECT, 0.0], lambda x: F.pad(x, (3, 5), mode="reflect"))


def ordered(name, ours, theirs, shapes=SHAPES, narrow=False):
    def make(size, dtype):
        x, xt = both(normal(shapes[size]), dtype)
        return Case(ours[0], [x, *ours[1:], *slots(2)], theirs, [xt], first=lambda r, a: Tensor(a[-2][0]))
    case(name, narrow)(make)


ordered("sort", ["sort", 1, False], lambda x: torch.sort(x, 1), narrow=True)
ordered("sort columns", ["sort", 0, False], lambda x: torch.sort(x, 0))
ordered("sort vector", ["sort", 0, False], lambda x: torch.sort(x, 0),
        shapes={s: (int(np.prod(SHAPES[s])),) for s in SHAPES})
ordered("topk 16", ["topk", 16, 1, True], lambda x: torch.topk(x, 16, 1), narrow=True)
ordered("topk 16 smallest", ["topk", 16, 1, False], lambda x: torch.topk(x, 16, 1, False))
ordered("topk 1", ["topk", 1, 1, True], lambda x: torch.topk(x, 1, 1))
ordered("topk 50 logits", ["topk", 50, 1, True], lambda x: torch.topk(x, 50, 1), shapes=LOGITS)
ordered("topk half", ["topk", 64, 1, True], lambda x: torch.topk(x, 64, 1))


@case("searchsorted")
def searchsorted(size, dtype):
    (x, xt), (v, vt) = both(np.sort(normal((1024,)))), both(normal(SHAPES[size]))
    return Case("searchsorted", [x, v, False], torch.searchsorted, [xt, vt])


@case("unique")
def unique(size, dtype):
    x, xt = both(integers(SHAPES[size], 1000))
    return Case("unique", [x, *slots(3)], lambda x: torch.unique(x, return_inverse=True, return_counts=True), [xt],
                first=lambda r, a: Tensor(a[-3][0]))


@case("nonzero")
def nonzero(size, dtype):
    x, xt = both(normal(SHAPES[size]) > 0)
    return Case("nonzero", [x], torch.nonzero, [xt])


@case("item")
def item(size, dtype):
    """Of one element, whatever the size."""
    x, xt = both(normal((1,)))
    return Case("item", [x], torch.Tensor.item, [xt], compares=False)


# quantize.c: torch has no block formats; the same by the OCP rule


def mxfp8_of(x):
    blocks = x.unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1, keepdim=True))) - 8
    return (blocks * torch.exp2(-exponent)).clamp(-448, 448).to(torch.float8_e4m3fn), exponent


@case("quantize mxfp8")
def quantize(size, dtype):
    x, xt = both(normal(SHAPES[size]))
    q = tl.quantized()
    return Case("quantize", [x, tl.MXFP8_E4M3, tl.NEAREST, q], mxfp8_of, [xt], first=lambda r, a: Tensor(q.values),
                torch_first=lambda r, a: r[0].flatten(-2))


@case("dequantize mxfp8")
def dequantize(size, dtype):
    x, xt = both(normal(SHAPES[size]))
    q, (values, exponent) = tl.quantized(), mxfp8_of(xt)
    with tl.scope():
        tl.quantize(x, tl.MXFP8_E4M3, tl.NEAREST, q)
        q.kept = Tensor(q.values), Tensor(q.scales)
    return Case("dequantize", [q, tl.F32], lambda v, e: (v.float() * torch.exp2(e)).flatten(-2), [values, exponent])


# optimizer.c, clip.c: torch's fused kernels; the step stays 1 on both sides


def optimizer(name, ours, n_state, options, theirs):
    """ours(p, g, *state, options); theirs(p, g, *state, step), all lists."""
    def make(size, dtype):
        shape = SHAPES[size]
        (p, pt), (g, gt) = both(normal(shape)), both(normal(shape, 64))
        state = [both(np.zeros(shape, np.float32)) for _ in range(n_state)]
        arguments = ours(p, g, [s[0] for s in state]) if callable(ours) else [ours, p, g, *(s[0] for s in state)]
        return Case(arguments[0], [*arguments[1:], options()], theirs,
                    [[pt], [gt], *([s[1]] for s in state), [torch.ones(())]], first=lambda r, a: p,
                    torch_first=lambda r, a: pt)
    case(name)(make)


def adam_options(lr=1e-3, decoupled=False, weight_decay=0.0):
    o = tl.adam_options()
    o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.decoupled, o.step = (lr, 0.9, 0.999, 1e-8, weight_decay, decoupled,
                                                                          1)
    return o


ADAM = dict(amsgrad=False, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, maximize=False)
optimizer("adamw", lambda p, g, s: ["adam_", p, g, *s, None], 2,
          lambda: adam_options(decoupled=True, weight_decay=0.01),
          lambda p, g, m, v, step: torch._fused_adamw_(p, g, m, v, [], step, weight_decay=0.01, **ADAM))
optimizer("adam", lambda p, g, s: ["adam_", p, g, *s, None], 2, adam_options,
          lambda p, g, m, v, step: torch._fused_adam_(p, g, m, v, [], step, weight_decay=0.0, **ADAM))
SGD = dict(weight_decay=0.0, lr=1e-3, dampening=0.0, nesterov=False, maximize=False)
optimizer("sgd", lambda p, g, s: ["sgd_", p, g, None], 0, lambda: tl.sgd_options(lr=1e-3),
          lambda p, g, step: torch._fused_sgd_(p, g, [], momentum=0.0, is_first_step=False, **SGD))
optimizer("sgd momentum", "sgd_", 1, lambda: tl.sgd_options(lr=1e-3, momentum=0.9, step=2),
          lambda p, g, b, step: torch._fused_sgd_(p, g, b, momentum=0.9, is_first_step=False, **SGD))
optimizer("adagrad", "adagrad_", 1, lambda: tl.adagrad_options(lr=1e-2, eps=1e-10, step=1),
          lambda p, g, s, step: torch._fused_adagrad_(p, g, s, step, lr=1e-2, lr_decay=0.0, weight_decay=0.0, eps=1e-10,
                                                      maximize=False))
optimizer("rmsprop", lambda p, g, s: ["rmsprop_", p, g, *s, None, None], 1,
          lambda: tl.rmsprop_options(lr=1e-2, alpha=0.99, eps=1e-8),
          lambda p, g, s, step: torch_rmsprop(p, g, s, [], [], step, foreach=False, lr=1e-2, alpha=0.99, eps=1e-8,
                                              weight_decay=0.0, momentum=0.0, centered=False))


@case("sum_squares", narrow=True)
def sum_squares(size, dtype):
    x, xt = both(normal(SHAPES[size]), dtype)
    return Case("sum_squares", [[x], 1], lambda x: torch.linalg.vector_norm(x, dtype=f32).square(), [xt])


# ---- Why ----

# Ops whose 'computing' column stays empty.
NOT_BY_BYTES = r"matmul.*|linear.*|attention.*|sort.*|topk.*|unique|searchsorted|multinomial.*|permutation"

# Pattern of the op's name, and the reason; the first match counts. The figures are for one Neoverse V1 core at 2.6 GHz;
# 'computing' is measured in the run.
REASONS = [
    (r"matmul.*|linear.*|attention.*", "computes more than it moves; see bench_gemm and bench_step"),
    (r"permutation", "sorts its draws, so that every device has the same bits: of 138 us for 16,384 places about 100 "
     "are two passes by digits and one of insertion, 33 the draws"),
    (r"searchsorted", "ten steps that wait for each other, 62 ns for a value"),
    (r"sort.*|topk.*|unique|multinomial.*",
     "moves each element many times; small: 1.8 us for a line of 128, which is sorted by four digits"),
    (r"uniform_?|normal_?|integers|bernoulli_|trunc_normal_|dropout",
     "makes its random numbers by ten rounds of Philox, dropout by seven, the same on every device"),
    (r"scatter.*|gather bwd",
     "goes where its indices say, after a copy of the table (16 MB) or a look at all indices (32 MB)"),
    (r"index pairs", "finds the places of all pairs first, on one thread: two thirds of the time of the medium one"),
    (r"gather.*|index.*|embedding.*|repeat_interleave", "goes where its indices say, an element or a row at a time"),
    (r"nonzero", "small: five ops, of which two count; large: one thread"),
    (r"div|sqrt|rsqrt|div_scalar",
     "the division unit: 2.9 cycles for a vector of four quotients, 3.4 for roots (0.29 and 0.34 ns an element)"),
    (r"(add|mul|relu|where|div) bf16", "passes through blocks of f32: widening takes 0.06 ns an element "
     "and operand from the L1 cache, narrowing 0.16 (one bfcvtn a cycle)"),
    (r"cast f32->bf16", "narrowing takes 0.16 ns an element from the L1 cache: one bfcvtn a cycle"),
    (r"arange", "computes in f64: converting to f32 takes most of 0.35 ns an element"),
    (r"exp.*|tanh.*|sigmoid.*|silu.*|gelu.*|swiglu.*|erf|log.?|log1p|sin|cos|pow.*|softplus|remainder.*|rope.*|bce.*|"
     r"div.*", "computes: polynomials or divisions for each element, in vectors"),
    (r"softmax.*|log_softmax.*|logsumexp.*|cross_entropy.*|nll bwd",
     "computes an exponential for each element, and reads a row twice"),
    (r"transpose copy.*", "reads and writes in pieces of a few hundred bytes; see docs/einops.md"),
    (r"cast.*f8|cast saturating|quantize.*|dequantize.*",
     "rounds to formats that the chip does not have: 0.6 ns an element"),
    (r"cum.*", "each element waits for the one before it, in a fixed order: an addition takes 2 cycles, a product 3; "
     "columns are brought to rows and back by two copies"),
    (r"minimum|maximum|clamp", "two comparisons for each vector, since a NaN on either side wins"),
    (r"prod.*|norm.*", "computes in f64, for digits and for range: from the L1 cache 0.15 ns an element (prod), "
     "0.20 (norm), where a sum in f32 takes 0.09; converting f32 to f64 is what takes it, more sums side by side do "
     "not help"),
    (r"logical.*|is.*|compare.*|sign|where", "bools pass through blocks of f32"),
    (r"nll", "eleven ops on 128 numbers at the most, 0.4 us each: masks, weights and their sum, for ids that are not "
     "counted"),
    (r"pad.*|slice bwd|concat.*", "rows are short, or written twice: first zeros, then what is there"),
    (r"argm.*|max.*|min.*|sum.*|var.*|layer_norm.*|rms_norm.*|add_layer_norm.*|add_rms_norm.*",
     "sums in a fixed order, in eight or sixteen lanes, the same for any number of threads: a sum in f32 takes 0.09 ns "
     "an element from the L1 cache, memory 0.10; norms and var go over a row two or three times"),
    (r"adam.*|adagrad|rmsprop", "a root and a division for each element: 6.3 of the 8.5 cycles that AdamW takes for "
     "four elements from the L1 cache"),
    (r"item", "the call itself, through ctypes"),
    (r".*", "as fast as memory within a fifth; small: the call itself, through ctypes"),
]

# ---- Timing ----

def nothing_like(function):
    """A function of the same signature that does nothing: tl_version, which looks at none of its arguments."""
    address = ctypes.cast(tl.library.tl_version, ctypes.c_void_p).value
    return ctypes.CFUNCTYPE(function.restype, *function.argtypes)(address)


def ours_loop(begin, function, end, arguments, batch, n):
    """Seconds a call, of n batches; a batch shares a scope."""
    start = time.perf_counter()
    for _ in range(n):
        scope = begin()
        for _ in range(batch):
            function(*arguments)
        end(scope)
    return (time.perf_counter() - start) / (n * batch)


def torch_loop(function, arguments, n):
    start = time.perf_counter()
    for _ in range(n):
        function(*arguments)
    return (time.perf_counter() - start) / n


def compare(name, case, function, arguments):
    """One call of each; the first results must agree."""
    with tl.scope():
        result = function(*arguments)
        tl.check()
        ours = case.first(result, arguments).numpy().astype(np.float32)
    want = case.theirs(*case.theirs_arguments)
    want = case.torch_first(want, case.theirs_arguments).detach().float().numpy()
    tolerance = 5e-2 if "bf16" in name else 2e-4
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    if ours.shape != want.shape or not np.allclose(ours, want, rtol=tolerance, atol=tolerance * scale):
        raise SystemExit(f"{name}: ours and torch's results differ")


def ledger_of(function, arguments):
    """The ops that one call runs, and the bytes that it reads and writes, by its ledger."""
    ledger = tl.library.tl_ledger_begin(b"row")
    with tl.scope():
        function(*arguments)
    tl.library.tl_ledger_end(ledger)
    names = {op for op in op_list() if tl.library.tl_ledger_total(ledger, -1, op.encode()).calls}
    total = tl.library.tl_ledger_total(ledger, -1, None)
    read, written = (tl.library.tl_count_value(n) for n in (total.bytes_read, total.bytes_written))
    tl.library.tl_ledger_free(ledger)
    tl.check()
    return names, read, written


# ---- The ceiling ----

MIXES = [0.0, 1.0, 1 / 2, 1 / 3, 3 / 7]  # the share of writing in stream.c's mixes
ENOUGH = 0.85                            # of the memory's speed


@functools.cache
def stream_library():
    """bench/stream.c, compiled; None where there is no compiler."""
    folder = tempfile.mkdtemp(prefix="tally-stream-")
    path = os.path.join(folder, "stream.so")
    command = ["cc", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(ROOT / "bench" / "stream.c"), "-o",
               path]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    library = ctypes.CDLL(path)
    library.stream.restype = ctypes.c_double
    library.stream.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_int, ctypes.c_int]
    return library


@functools.cache
def stream_rate(mix, megabytes, threads):
    """Bytes a second of a mix, with about so many megabytes moved in all."""
    time.sleep(PAUSE_S)
    seconds = stream_library().stream(mix, megabytes * 1e6, threads, 12)
    return megabytes * 1e6 / seconds if seconds > 0 else None


def floor_s(read, written, threads):
    """Seconds that memory needs for these bytes; None for few of them, or without a compiler."""
    if read + written < 4e6 or stream_library() is None:
        return None
    mix = min(range(len(MIXES)), key=lambda m: abs(MIXES[m] - written / (read + written)))
    rate = stream_rate(mix, max(4, round((read + written) / 4e6) * 4), threads)
    return (read + written) / rate if rate else None


@functools.cache
def op_list():
    return re.findall(r"^OP\((?:KERNEL|DYNAMIC|TRANSFER), (\w+)\)", (ROOT / "src" / "spec" / "op_list.h").read_text(),
                      re.M)


def turns_of(ours, torchs, binding):
    """[ours, torch, binding] in seconds a call, one row a turn. A loop of n repetitions gives the seconds of one."""
    def repeats(loop, calls):
        loop(1)
        return max(1, min(5000, int(TURN_S / max(loop(1) * calls, 1e-7))))

    began, turns = time.perf_counter(), []
    n_ours, n_torch = repeats(*ours), repeats(*torchs)
    while len(turns) < TURNS and (len(turns) < MIN_TURNS or time.perf_counter() - began < ROW_S):
        if len(turns) >= 1 and time.perf_counter() - began > 4 * ROW_S:
            break
        times = []
        for (loop, _), n in (ours, n_ours), (torchs, n_torch):
            time.sleep(PAUSE_S)
            if n > 1:
                loop(1)
            times.append(loop(n))
        turns.append([*times, binding(50)])
    return turns


def cached_s(name, read, written, threads):
    """Seconds of pure computation in a row: the time of the same op on one thread and on arrays that fit in the caches,
    without the ctypes call, times the ratio of the bytes, divided by the number of threads."""
    case = CASES[name](CACHED)
    begin, function, end = (getattr(tl.library, "tl_" + f) for f in ("scope_begin", case.ours, "scope_end"))
    arguments = [convert(a, t) for a, t in zip(case.arguments, function.argtypes, strict=True)]
    _, own_read, own_written = ledger_of(function, arguments)
    tl.set_threads(1)
    once = min(ours_loop(begin, function, end, arguments, BATCH, 4) for _ in range(8))
    tl.set_threads(threads)
    call = min(ours_loop(*(nothing_like(f) for f in (begin, function, end)), arguments, BATCH, 4) for _ in range(8))
    return (once - call) * (read + written) / max(own_read + own_written, 1) / threads


def measure(name, size, seen, threads=2):
    case = CASES[name](size)
    begin, function, end = (getattr(tl.library, "tl_" + f) for f in ("scope_begin", case.ours, "scope_end"))
    arguments = [convert(a, t) for a, t in zip(case.arguments, function.argtypes, strict=True)]
    if size != "large" and case.compares:
        compare(name, case, function, arguments)
    names, read, written = ledger_of(function, arguments)
    seen |= names
    floor = floor_s(read, written, threads) if size == "large" else None
    batch = BATCH if ours_loop(begin, function, end, arguments, 1, 1) < SHORT_S else 1
    ours = functools.partial(ours_loop, begin, function, end, arguments, batch)
    torchs = functools.partial(torch_loop, case.theirs, case.theirs_arguments)
    binding = functools.partial(ours_loop, *(nothing_like(f) for f in (begin, function, end)), arguments, batch)

    def once():
        turns = turns_of((ours, batch), (torchs, 1), binding)
        tl.check()
        ours_s, torch_s = (statistics.median(t[i] for t in turns) for i in range(2))
        least_ours, least_torch, binding_s = (min(t[i] for t in turns) for i in range(3))
        return {"op": name, "size": size, "ours_s": ours_s, "torch_s": torch_s, "ratio": ours_s / torch_s,
                "ratio_of_least": least_ours / least_torch, "least_s": least_ours, "binding_s": binding_s,
                "mostly_binding": 2 * binding_s > ours_s, "turns": len(turns), "bytes_read": read,
                "bytes_written": written, "of_memory": floor / least_ours if floor else None}
    row = once()
    if row["ratio"] > SLOWER:
        row = sorted([row, once(), once()], key=lambda r: r["ratio"])[1]
    row["computing"] = cached_s(name, read, written, threads) / row["least_s"] if (
        size == "large" and misses(row) and not re.fullmatch(NOT_BY_BYTES, name)) else None
    return row


# ---- Report ----

def time_text(s):
    return f"{s * 1e6:.2f} us" if s < 1e-4 else f"{s * 1e6:.0f} us" if s < 1e-2 else f"{s * 1e3:.1f} ms"


def row_text(row):
    return (f"{row['op']:<20}{row['size']:<8}{time_text(row['ours_s']):>11}{time_text(row['torch_s']):>11}"
            f"{row['ratio']:>8.2f} {'!' if row['ratio'] > SLOWER else ' '} {row['ratio_of_least']:>8.2f}  "
            f"{time_text(row['binding_s']) if row['size'] == 'small' else '':>8}{'*' if row['mostly_binding'] else ' '}"
            f"{format(row['of_memory'], '>9.0%') if row['of_memory'] else ''}".rstrip())


def reason_of(row):
    """Why a row is slower than torch or than memory, as far as it is known."""
    for pattern, reason in REASONS:
        if re.fullmatch(pattern, row["op"]):
            return reason


def misses(row):
    return row["ratio_of_least"] > 1 or (row["of_memory"] is not None and row["of_memory"] < ENOUGH)


def reasons_text(rows):
    """One line a reason, with its rows."""
    lines = {}
    for row in filter(misses, rows):
        share = f", {row['of_memory']:.0%}" if row["of_memory"] else ""
        share += f", computing {row['computing']:.0%}" if row["computing"] else ""
        lines.setdefault(reason_of(row), []).append(f"{row['op']} {row['size']} ({row['ratio_of_least']:.2f}x{share})")
    return "\n".join(f"- {reason}: {'; '.join(which)}" for reason, which in sorted(lines.items()))


def summary(rows, missing):
    worst = max(rows, key=lambda r: r["ratio"])
    return {"rows": len(rows), "above_3x": sum(r["ratio"] > SLOWER for r in rows),
            "above_1x": sum(r["ratio"] > 1 for r in rows), "worst_ratio": worst["ratio"],
            "worst": f"{worst['op']}, {worst['size']}", "kernels_without_a_row": missing}


def prepare(threads):
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)            # M_MMAP_MAX: no block is a mapping of its own
        libc.mallopt(-1, 2**31 - 1)    # M_TRIM_THRESHOLD
    except AttributeError:
        pass
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tl.set_threads(threads)
    tl.library.tl_set_grad_mode(False)


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
    prepare(options.threads)

    began, rows, seen = time.perf_counter(), [], set()
    if not options.json:
        print(f"tally {tl.version().decode()}, torch {torch.__version__}, {options.threads} threads each, "
              f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'op':<20}{'size':<8}{'ours':>11}{'torch':>11}{'ratio':>8}   {'of least':>8}  {'binding':>8} "
              f"{'of memory':>9}", flush=True)
    for name in names:
        for size in sizes:
            rows.append(measure(name, size, seen, options.threads))
            if not options.json:
                print(row_text(rows[-1]), flush=True)
    total = summary(rows, sorted(set(op_list()) - seen - ELSEWHERE) if not options.only else [])
    seconds = time.perf_counter() - began
    if options.json:
        print(json.dumps({"tally": tl.version().decode(), "torch": torch.__version__, "threads": options.threads,
                          "seconds": seconds, "summary": total, "rows": rows}, indent=1))
    else:
        print(f"\n{total['rows']} rows in {seconds:.0f} s. Worst ratio {total['worst_ratio']:.2f} ({total['worst']}); "
              f"{total['above_3x']} above {SLOWER:.0f}x, {total['above_1x']} above 1x.")
        for row in rows:
            if row["ratio"] > SLOWER:
                print(f"  ! {row['op']}, {row['size']}: {row['ratio']:.1f}x torch's time ({row['ratio_of_least']:.1f}x "
                      "by the least times)")
        print(f"\nAbove 1x by the shortest turns, or below {ENOUGH:.0%} of memory, and why:\n{reasons_text(rows)}")
        if total["kernels_without_a_row"]:
            print(f"Kernels without a row: {', '.join(total['kernels_without_a_row'])}.")
        if os.getloadavg()[0] > options.threads + 0.5:
            print(f"Load is {os.getloadavg()[0]:.1f}: other programs were running. Rows with threads are the least "
                  "certain, torch's small ones above all.")
    return 1 if total["above_3x"] or total["kernels_without_a_row"] else 0


if __name__ == "__main__":
    sys.exit(main())
