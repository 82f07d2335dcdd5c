"""One random driver over the public ops, against PyTorch.

Each call draws shapes (rank 0 to 4, sizes 0 to 7), layouts (dense, permuted, sliced with a step, expanded, flipped), dtypes and
attributes, runs both libraries, and compares dtypes, shapes, values, gradients, and whether both accept. A call depends on (SEED,
its number) alone: TALLY_CALL=n replays one. TALLY_SOAK=n makes n times as many calls. `pytest -s` prints the calls of each op.

Tolerances: f64 1e-10 and f32 1e-5 of the largest element; 16 bits: the error against the f64 result is at most twice torch's, plus
2 ulp (ULPS says where more, and why). KNOWN lists the differences that are meant.
"""
import collections
import ctypes
import math
import os
import random
import warnings

import numpy as np
import torch
import torch.nn.functional as F

from tally_c import Tensor, tl
from test_torch_index import parts, results
from test_torch_ops import attention, rope
from torch_peer import NUMPY, RELATIVE, TORCH, from_torch, outcome, same_specials, to_torch, ulp

SEED = 20260
N_CALLS = 24000
FLOATS = ["float64", "float32", "float16", "bfloat16"]
WIDE = ["float64", "float32"]
INTEGERS = ["int64", "int32", "uint8", "bool"]
ALL = FLOATS + INTEGERS
IS_OLD = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) < (2, 15)
END = 2**63 - 1
POOL = np.random.default_rng(SEED).standard_normal(1 << 16)


# ---- One call: what it draws ----

class Input:
    """Values, and how they lie in memory: leaf(tensor) is the memory, view(x) the tensor that the op sees."""

    def __init__(self, values, layout, leaf, ours, theirs, is_target=False):
        self.values, self.layout, self.leaf, self.ours, self.theirs, self.is_target = values, layout, leaf, ours, theirs, is_target
        self.has_grad = is_real(values)

    def __repr__(self):
        return f"{self.values.dtype.name}{list(self.values.shape)} {self.layout}{' changed in place' if self.is_target else ''} {self.values.tolist()}"


class Call:
    def __init__(self, number, name):
        self.r = random.Random(SEED * 1000003 + number)
        self.id, self.name, self.inputs, self.notes, self.wants_grad = number, name, [], {}, True

    def __repr__(self):
        return f"call {self.id} (seed {SEED}): {self.name} {self.notes}\n  " + "\n  ".join(map(repr, self.inputs))

    def note(self, **attributes):
        self.notes.update(attributes)
        return next(iter(attributes.values()))

    def chance(self, p):
        return self.r.random() < p

    def size(self, low=0):
        n = self.r.choice((0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7))
        return n if n >= low else low

    def shape(self, low=0, rank=None, least=0):
        rank = self.r.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        shape = [self.size(low) for _ in range(max(rank, least))]
        while math.prod(shape) > 300:
            shape[self.r.randrange(len(shape))] = 1
        return tuple(shape)

    def part(self, shape):
        """A shape that broadcasts to another one; seldom one that does not."""
        own = [1 if self.chance(0.2) else n for n in shape]
        if self.chance(0.25):
            own = own[self.r.randrange(len(own) + 1):]
        if own and self.chance(0.03):
            own[self.r.randrange(len(own))] += 2
        return tuple(own)

    def pair(self):
        common = self.shape()
        return (common, self.part(common)) if self.chance(0.5) else (self.part(common), common) if self.chance(0.5) else (common, common)

    def axis(self, rank, wrong=0.02):
        rank = max(rank, 1)
        return self.note(axis=rank if self.chance(wrong) else self.r.randrange(-rank, rank))

    def axes(self, rank):
        """A list for a reduction; [] is all."""
        if rank == 0 or self.chance(0.2):
            return self.note(axes=[])
        axes = self.r.sample(range(rank), self.r.randint(1, rank))
        return self.note(axes=[a - rank if self.chance(0.3) else a for a in axes] + ([rank] if self.chance(0.02) else []))

    def dtype(self, names=ALL):
        return self.r.choice(names)

    def values(self, dtype, shape, kind="normal"):
        n = math.prod(shape)
        at = self.r.randrange(len(POOL) - n)
        x = POOL[at:at + n].reshape(shape)
        if dtype == "bool":
            return np.asarray(x > 0)
        if dtype in INTEGERS:
            x = np.round(x * 3)
            return np.asarray(np.abs(x) + (kind == "positive") if dtype == "uint8" or kind == "positive" else x).astype(dtype)
        if kind == "positive":
            x = 0.5 + np.abs(x)
        elif self.chance(0.3):
            x = np.round(x * 4) / 4  # ties and zeros
        return np.asarray(x).astype(NUMPY[dtype])

    def distinct(self, dtype, shape):
        n = math.prod(shape)
        return np.asarray(self.r.sample(range(n), n), np.float64).reshape(shape).astype(NUMPY[dtype]) / NUMPY[dtype].type(8)

    def add(self, values, is_target=False, layouts=("dense", "permuted", "sliced", "expanded", "flipped")):
        """Chooses a layout for values."""
        shape, layout = values.shape, self.r.choice(layouts) if self.chance(0.65) else "dense"
        if is_target and (layout == "flipped" or layout == "expanded" and self.chance(0.8)):
            layout = "sliced"  # torch's flip is a copy
        leaf, ours, theirs = values, None, None
        axis = self.r.randrange(len(shape)) if shape else 0
        if layout == "permuted" and len(shape) > 1:
            order = self.r.sample(range(len(shape)), len(shape))
            back = [order.index(i) for i in range(len(shape))]
            leaf, ours, theirs = np.transpose(values, order), lambda x: tl.permute(x, back), lambda x: x.permute(back)
        elif layout == "sliced" and shape:
            step, start, n = self.r.randint(1, 3), self.r.randint(0, 2), shape[axis]
            wide = list(shape)
            wide[axis] = start + n * step
            leaf = np.zeros(wide, values.dtype)
            at = tuple(slice(start, start + n * step, step) if i == axis else slice(None) for i in range(len(shape)))
            leaf[at] = values
            ours, theirs = lambda x: tl.slice(x, axis, start, start + n * step, step), lambda x: x[at]
        elif layout == "expanded" and shape and shape[axis] > 1:
            leaf = np.take(values, [0], axis)
            values = np.broadcast_to(leaf, shape)
            ours, theirs = lambda x: tl.expand(x, len(shape), shape), lambda x: x.expand(shape)
        elif layout == "flipped" and shape:
            leaf, ours, theirs = np.flip(values, axis), lambda x: tl.flip(x, [axis], 1), lambda x: x.flip(axis)
        else:
            layout = "dense"
        self.inputs.append(Input(values, layout, np.ascontiguousarray(leaf).reshape(leaf.shape), ours, theirs, is_target))
        return values

    def input(self, names, shape, kind="normal", **options):
        dtype = names if isinstance(names, str) else self.dtype(names)
        self.add(self.values(dtype, shape, kind), **options)
        return dtype

    def index(self, limit, shape, wrong=0.02, low=0):
        """Numbers in [low, limit), seldom one outside."""
        values = np.array([self.r.randrange(low, max(limit, low + 1)) for _ in range(math.prod(shape))], np.int64).reshape(shape)
        if values.size and self.chance(wrong):
            values.flat[self.r.randrange(values.size)] = limit
            self.note(out_of_range=True)
        return values

    def number(self):
        return self.note(number=self.r.choice((True, False, 2, -1, 0, 3, 300, 2.5, -0.5, 0.1, 0.0, 1.0)))

    def dtypes(self):
        return [x.values.dtype.name for x in self.inputs]


# ---- The table: name -> a function of a Call that adds inputs and gives (ours, theirs) ----

OPS = {}


def op(*names):
    def enter(make):
        for name in names:
            OPS[name] = (lambda make, name: lambda c: make(c, name))(make, name)
        return make
    return enter


def number(s):
    return tl.scalar_bool(s) if isinstance(s, bool) else tl.scalar_int(s) if isinstance(s, int) else tl.scalar_float(s)


def gelu(x):
    return F.gelu(x, approximate="tanh")


UNARY = {"gelu": gelu, "silu": F.silu, "gelu_erf": F.gelu}
POSITIVE = {"log", "sqrt", "log1p", "log2", "rsqrt", "reciprocal"}
ANY = ("neg exp log sqrt tanh sigmoid relu exp2 expm1 log1p log2 rsqrt sin cos erf abs sign floor ceil round trunc").split()
ACTIVATIONS = ["gelu", "silu", "gelu_erf"]


@op(*ANY, *ACTIVATIONS, "square", "reciprocal", "logical_not", "isnan", "isfinite", "clone", "contiguous")
def unary(c, name):
    c.input(ALL, c.shape(), "positive" if name in POSITIVE else "normal")
    return getattr(tl, name), torch.Tensor.contiguous if name == "contiguous" else UNARY.get(name) or getattr(torch, name)


@op(*(name + "_" for name in ANY + ACTIVATIONS))
def unary_in_place(c, name):
    f = UNARY.get(name[:-1])
    c.input(FLOATS if f else ALL, c.shape(), "positive" if name[:-1] in POSITIVE else "normal", is_target=True)
    return getattr(tl, name), (lambda x: x.copy_(f(x.clone()))) if f else getattr(torch.Tensor, name)


@op("leaky_relu", "leaky_relu_", "softplus", "affine", "scale", "affine_")
def unary_with_attributes(c, name):
    c.input(FLOATS, c.shape(), is_target=name.endswith("_"))
    a, b = c.note(numbers=(c.r.choice((0.01, 0.5, 2.0)), c.r.choice((1.0, 20.0, -0.5))))
    return {"leaky_relu": (lambda x: tl.leaky_relu(x, a), lambda x: F.leaky_relu(x, a)),
            "leaky_relu_": (lambda x: tl.leaky_relu_(x, a), lambda x: F.leaky_relu_(x, a)),
            "softplus": (lambda x: tl.softplus(x, a + 0.5, abs(b)), lambda x: F.softplus(x, a + 0.5, abs(b))),
            "affine": (lambda x: tl.affine(x, a, b), lambda x: x * a + b), "scale": (lambda x: tl.scale(x, b), lambda x: x * b),
            "affine_": (lambda x: tl.affine_(x, a, b), lambda x: x.mul_(a).add_(b))}[name]


BINARY = ["add", "sub", "mul", "div", "pow", "remainder", "minimum", "maximum", "logical_and", "logical_or", "logical_xor"]
IN_PLACE = ["add_", "sub_", "mul_", "div_", "pow_", "remainder_", "copy_"]


def two(c, name, first, second, is_target=False):
    names = WIDE + INTEGERS if name.startswith("remainder") else ALL  # a quotient near an integer may round to either side of it in 16 bits
    a = c.input(names, first, "positive" if name in ("pow", "pow_") else "normal", is_target=is_target)
    b = a if c.chance(0.6) else c.dtype(names)
    c.input(b, second, "positive" if name.rstrip("_") in ("div", "remainder") and not c.chance(0.02) or
            name.startswith("copy") or name == "pow_" else "normal")


@op(*BINARY)
def binary(c, name):
    two(c, name, *c.pair())
    return getattr(tl, name), getattr(torch, name)


@op(*IN_PLACE)
def binary_in_place(c, name):
    shape = c.shape()
    two(c, name, *((shape, c.part(shape)) if not c.chance(0.03) else (c.part(shape), shape)), is_target=True)
    return getattr(tl, name), getattr(torch.Tensor, name)


@op("cmp")
def compare(c, name):
    two(c, name, *c.pair())
    relation = c.note(relation=c.r.choice(("EQ", "NE", "LT", "LE", "GT", "GE")))
    return lambda a, b: tl.cmp(a, getattr(tl, relation), b), getattr(torch, relation.lower())


@op("where")
def where(c, name):
    shape = c.shape()
    c.input("bool", c.part(shape))
    two(c, name, shape, c.part(shape))
    return tl.where, torch.where


SCALARS = {"add": lambda x, s: x + s, "sub": lambda x, s: x - s, "rsub": lambda x, s: s - x, "mul": lambda x, s: x * s, "div": lambda x, s: x / s,
           "rdiv": lambda x, s: s / x, "pow": lambda x, s: x ** s, "rpow": lambda x, s: torch.pow(s, x), "remainder": torch.remainder,
           "maximum": lambda x, s: torch.clamp(x, min=s), "minimum": lambda x, s: torch.clamp(x, max=s)}


@op(*(name + "_scalar" for name in SCALARS), *(name + "_scalar_" for name in ("add", "sub", "mul", "div", "pow", "remainder")))
def scalar(c, name):
    base = name.split("_")[0]
    c.input(WIDE + INTEGERS if base == "remainder" else ALL, c.shape(), "positive" if base in ("rdiv", "pow", "rpow") else "normal", is_target=name.endswith("_"))
    s = c.number()
    return lambda x: getattr(tl, name)(x, number(s)), (lambda x: getattr(x, base + "_")(s)) if name.endswith("_") else lambda x: SCALARS[base](x, s)


@op("cmp_scalar", "where_scalar", "fill_scalar_", "fill_", "clamp", "clamp_", "masked_fill", "masked_fill_")
def with_numbers(c, name):
    shape, s = c.shape(), c.number()
    if name in ("where_scalar", "masked_fill", "masked_fill_"):
        mask = c.values("bool", c.part(shape))
        c.input(ALL, shape, is_target=name.endswith("_"))
        c.add(mask)
        if name == "where_scalar":
            return lambda x, m: tl.where_scalar(m, x, number(s)), lambda x, m: torch.where(m, x, s)
        c.note(number=0.5 if c.dtypes()[0] in FLOATS else 1)
        s = c.notes["number"]
        return lambda x, m: getattr(tl, name)(x, m, s), lambda x, m: getattr(x, name)(m, s)
    c.input(ALL, shape, is_target=name.endswith("_"))
    if name == "cmp_scalar":
        relation = c.note(relation=c.r.choice(("EQ", "NE", "LT", "LE", "GT", "GE")))
        return lambda x: tl.cmp_scalar(x, getattr(tl, relation), number(s)), lambda x: getattr(torch, relation.lower())(x, s)
    if name == "fill_scalar_":
        return lambda x: tl.fill_scalar_(x, number(s)), lambda x: x.fill_(s)
    if name == "fill_":
        return lambda x: tl.fill_(x, 3), lambda x: x.fill_(3)
    low, high = c.note(bounds=c.r.choice(((-0.6, 1.1), (None, 0.3), (0, None), (1.1, -1.1), (0, 2), (-1.6, 2), (True, None))))
    ours = [None if v is None else number(v) for v in (low, high)]
    return lambda x: getattr(tl, name)(x, *ours), lambda x: getattr(x, name)(low, high)


@op("lerp", "lerp_scalar", "addcmul", "addcdiv", "swiglu")
def composites(c, name):
    shape, dtype = c.shape(), c.dtype(FLOATS if name == "swiglu" or c.chance(0.95) else ALL)
    for i in range(2 if name in ("lerp_scalar", "swiglu") else 3):
        c.input(dtype, c.part(shape), "positive" if i == 2 else "normal")
    s = c.note(number=c.r.choice((0.2, 0.7, 1.0, -0.5) if dtype in FLOATS else (1, 2)))
    return {"lerp": (tl.lerp, torch.lerp), "lerp_scalar": (lambda a, b: tl.lerp_scalar(a, b, s), lambda a, b: torch.lerp(a, b, s)),
            "addcmul": (lambda x, a, b: tl.addcmul(x, a, b, s), lambda x, a, b: torch.addcmul(x, a, b, value=s)),
            "addcdiv": (lambda x, a, b: tl.addcdiv(x, a, b, s), lambda x, a, b: torch.addcdiv(x, a, b, value=s)),
            "swiglu": (tl.swiglu, lambda a, b: F.silu(a) * b)}[name]


# ---- Reductions, scans, rows ----

def over(x, axes):
    return tuple(axes) if axes else tuple(range(x.ndim))


def torch_prod(x, axes, keep):
    if not axes:
        return torch.prod(x).reshape([1] * x.ndim) if keep else torch.prod(x)
    if any(a >= x.ndim for a in axes):
        raise IndexError
    for a in sorted((a % x.ndim for a in axes), reverse=True):
        x = torch.prod(x, a, keepdim=keep)
    return x


def plain(f):
    return lambda x, axes, keep: f(x, over(x, axes), keepdim=keep)


def one_or_all(f):
    return lambda x, axes, keep: f(x, axes[0] if axes else None, keep)


REDUCTIONS = {"sum": plain(torch.sum), "mean": plain(torch.mean), "max": plain(torch.amax), "min": plain(torch.amin), "nansum": plain(torch.nansum),
              "prod": torch_prod, "argmax": one_or_all(torch.argmax), "argmin": one_or_all(torch.argmin), "any": plain(torch.any),
              "all": plain(torch.all), "count_nonzero": lambda x, axes, keep: torch.count_nonzero(x, over(x, axes) or None),
              "logsumexp": plain(torch.logsumexp)}


@op(*REDUCTIONS)
def reduction(c, name):
    shape = c.shape()
    c.input(ALL, shape, "positive" if name == "prod" and c.chance(0.7) else "normal")
    axes, keep = c.axes(len(shape)), c.note(keep=c.chance(0.5) and name != "count_nonzero")
    if name.startswith("arg"):
        axes = c.note(axes=axes[:1])
    return lambda x: getattr(tl, name)(x, axes, len(axes), keep), lambda x: REDUCTIONS[name](x, axes, keep)


@op("var", "std", "norm", "sum_dtype", "sum_all", "mean_all", "prod_all")
def reduction_with_attributes(c, name):
    shape = c.shape()
    c.input(ALL if name[0] in "smp" and name != "std" else FLOATS if c.chance(0.95) else ALL, shape, "positive" if name == "prod_all" else "normal")
    if name.endswith("_all"):
        return getattr(tl, name), getattr(torch, name[:-4])
    axes, keep = c.axes(len(shape)), c.note(keep=c.chance(0.5))
    if name == "sum_dtype":
        to = c.note(to=c.dtype(WIDE + ["int64", "int32"]))
        c.wants_grad = to in WIDE
        return lambda x: tl.sum_dtype(x, axes, len(axes), keep, NUMPY[to]), lambda x: torch.sum(x, over(x, axes), keep, dtype=TORCH[to])
    if name == "norm":
        p = c.note(p=c.r.choice((0, 1, 2, 3, 1.5, math.inf, -math.inf)))
        c.wants_grad = p != 0 and all(x.values.dtype.name in WIDE or p in (1, 2) for x in c.inputs)
        return lambda x: tl.norm(x, p, axes, len(axes), keep), lambda x: torch.linalg.vector_norm(x, p, over(x, axes), keep)
    correction = c.note(correction=c.r.randint(0, 1))
    n = math.prod(shape[a] for a in axes if a < len(shape)) if axes else math.prod(shape)
    c.wants_grad = n > correction
    return lambda x: getattr(tl, name)(x, axes, len(axes), correction, keep), \
        lambda x: getattr(torch, name)(x, over(x, axes), correction=correction, keepdim=keep)


@op("cumsum", "cumprod", "cumsum_", "cumprod_", "softmax_axis", "log_softmax", "softmax")
def along(c, name):
    shape = c.shape(least=1 if name == "softmax" else 0)
    c.input(FLOATS if "soft" in name and c.chance(0.95) else ALL, shape, "positive" if "prod" in name else "normal", is_target=name.endswith("_"))
    if name == "softmax":
        return tl.softmax, lambda x: torch.softmax(x, -1)
    axis = c.axis(len(shape))
    theirs = {"softmax_axis": torch.softmax}.get(name) or getattr(torch.Tensor, name)
    return lambda x: getattr(tl, name)(x, axis), lambda x: theirs(x, axis)


@op("layer_norm", "rms_norm", "add_rms_norm", "add_layer_norm")
def norms(c, name):
    shape, dtype = c.shape(least=1, low=1 if c.chance(0.9) else 0), c.dtype(FLOATS)
    C, is_weighted = shape[-1:], c.chance(0.7)
    layouts = ("dense", "permuted", "sliced", "flipped")  # in a row of equal numbers there is nothing but rounding errors
    c.input(dtype, shape, layouts=layouts)
    if name.startswith("add"):
        c.input(dtype, shape, layouts=layouts)
    n_weights = is_weighted * (2 if "layer" in name else 1)
    for _ in range(n_weights):
        c.input(dtype, C)
    none = [None] * ((2 if "layer" in name else 1) - n_weights)

    def norm(x, *rest):
        return F.layer_norm(x, C, *rest, 1e-5) if "layer" in name else F.rms_norm(x, C, *rest, 1e-5)
    if not name.startswith("add"):
        return lambda *x: getattr(tl, name)(*x, *none, 1e-5), lambda x, *rest: norm(x, *rest, *none)

    def ours(*x):
        slot = (ctypes.c_void_p * 1)()
        with tl.scope():
            pointer = getattr(tl.library, "tl_" + name)(*[v and v._as_parameter_ for v in (*x, *none)], 1e-5, slot)
            made = [Tensor(pointer), Tensor(slot[0])] if pointer else []
        tl.check()
        return made
    return ours, lambda x, y, *rest: [norm(x + y, *rest, *none), x + y]


# ---- Losses ----

REDUCE = ["none", "mean", "sum"]


@op("mse_loss", "mse_loss_with", "l1_loss", "smooth_l1_loss", "bce_with_logits")
def losses(c, name):
    dtype, shape = c.dtype(FLOATS), c.shape()
    c.input(dtype, shape)
    c.input(dtype, shape if name in ("bce_with_logits", "mse_loss") else c.part(shape))
    how = c.note(reduction=c.r.randrange(3))
    text, beta = REDUCE[how], c.note(beta=c.r.choice((1.0, 0.3, 0)))
    if name == "bce_with_logits":
        has = [c.chance(0.4), c.chance(0.4)]
        for wanted in has:
            if wanted:
                c.input(dtype, c.part(shape), "positive")
                c.inputs[-1].has_grad = False  # torch has no gradients of weights

        def split(rest):
            rest = list(rest)
            return [rest.pop(0) if wanted else None for wanted in has]
        return lambda x, t, *rest: tl.bce_with_logits(x, t, *split(rest), how), \
            lambda x, t, *rest: F.binary_cross_entropy_with_logits(x, t, split(rest)[0], pos_weight=split(rest)[1], reduction=text)
    return {"mse_loss": (tl.mse_loss, F.mse_loss),
            "mse_loss_with": (lambda a, b: tl.mse_loss_with(a, b, how), lambda a, b: F.mse_loss(a, b, reduction=text)),
            "l1_loss": (lambda a, b: tl.l1_loss(a, b, how), lambda a, b: F.l1_loss(a, b, reduction=text)),
            "smooth_l1_loss": (lambda a, b: tl.smooth_l1_loss(a, b, beta, how), lambda a, b: F.smooth_l1_loss(a, b, beta=beta, reduction=text))}[name]


@op("cross_entropy", "cross_entropy_with", "nll_loss", "linear_cross_entropy")
def entropies(c, name):
    n, v, dtype = c.size(1 if c.chance(0.9) else 0), c.size(1), c.dtype(FLOATS)
    ids = c.index(v, (n,)).astype(c.r.choice(("int64", "int32")))
    if name == "linear_cross_entropy":
        k = c.size(1)
        c.input(dtype, (n, k))
        c.input(dtype, (v, k))
        c.add(ids)
        return lambda x, w, t: tl.linear_cross_entropy(x, w, t, tl.linear_cross_entropy_defaults()), \
            lambda x, w, t: F.cross_entropy((x if x.dtype == torch.float64 else x.float()) @ (w if w.dtype == torch.float64 else w.float()).T, t.long())
    c.input(dtype, (n, v))
    if name == "cross_entropy":  # the loss of 16-bit logits is f32, as documented
        c.add(ids)
        return tl.cross_entropy, lambda x, t: F.cross_entropy(x if x.dtype == torch.float64 else x.float(), t.long())
    how, is_weighted = c.note(reduction=c.r.randrange(3)), c.chance(0.4)
    ignored = c.note(ignored=c.r.choice((-100, -100, c.r.randrange(v))))
    smoothing = c.note(smoothing=c.r.choice((0, 0, 0.1)) if name != "nll_loss" else 0)
    c.add(ids)
    weight = np.abs(c.values("float64", (v,), "positive")).astype(NUMPY[dtype]) if is_weighted else None

    def ours(x, t):
        o = tl.cross_entropy_default()
        held = tl.tensor(weight) if is_weighted else None
        if is_weighted:
            o.weight = held._as_parameter_
        o.ignore_index, o.label_smoothing, o.reduction = ignored, smoothing, how
        return (tl.cross_entropy_with if name == "cross_entropy_with" else tl.nll_loss)(x, t, o)

    def theirs(x, t):
        x = x.float() if x.dtype != torch.float64 and name == "cross_entropy_with" else x
        w = to_torch(weight).to(x.dtype) if is_weighted else None
        more = {"label_smoothing": smoothing} if name == "cross_entropy_with" else {}
        return (F.cross_entropy if more else F.nll_loss)(x, t.long(), w, ignore_index=ignored, reduction=REDUCE[how], **more)
    return ours, theirs


# ---- Products, tokens ----

@op("matmul")
def matmul(c, name):
    dtype, m, k, n = c.dtype(FLOATS), c.size(), c.size(), c.size()
    batch = c.shape(rank=c.r.choice((0, 0, 1, 2)))
    a = (k,) if c.chance(0.2) else c.part(batch) + (m, k)
    b = (k,) if c.chance(0.2) else c.part(batch) + (k + (2 if c.chance(0.02) else 0), n)
    c.input(dtype, a)
    c.input(dtype if c.chance(0.97) else c.dtype(FLOATS), b)
    return tl.matmul, torch.matmul


@op("linear")
def linear(c, name):
    dtype, shape, n = c.dtype(FLOATS), c.shape(least=1), c.size()
    c.input(dtype, shape)
    c.input(dtype, (n, shape[-1] + (2 if c.chance(0.02) else 0)))
    if c.chance(0.5):
        c.input(dtype, (n,))
    return lambda x, w, b=None: tl.linear(x, w, b), F.linear


@op("embedding")
def embedding(c, name):
    v, k = c.size(1), c.size()
    c.input(FLOATS, (v, k))
    c.add(c.index(v, c.shape(rank=c.r.randint(0, 2))).astype(c.r.choice(("int64", "int32"))))
    return tl.embedding, lambda w, i: F.embedding(i, w)


@op("rope")
def rotary(c, name):
    c.input(FLOATS, (c.size(1), c.size(1), c.r.randint(1, 3), 2 * c.r.randint(1, 3)))
    first = c.note(first=c.r.randrange(9))
    return lambda x: tl.rope(x, 10000.0, first), lambda x: rope(x, 10000.0, first)


@op("attention")
def attend(c, name):
    B, T, G, D, dtype = c.r.randint(1, 2), c.r.randint(1, 5), c.r.randint(1, 2), c.r.randint(1, 6), c.dtype(FLOATS)
    S, H, causal = T + c.r.randint(0, 3), G * c.r.randint(1, 2), c.note(causal=c.chance(0.5))
    for shape in ((B, T, H, D), (B, S, G, D), (B, S, G, D)):
        c.input(dtype, shape, layouts=("dense",))
    return lambda q, k, v: tl.attention(q, k, v, causal, 0), lambda q, k, v: attention(q, k, v, causal, 0)


# ---- Indexing ----

def gathering(c, distinct=False):
    shape = c.shape(least=1, low=1)
    axis = c.axis(len(shape), 0)
    i = axis % len(shape)
    if distinct:
        index = np.argsort(c.distinct("float64", shape), i)
        return shape, axis, index[tuple(slice(0, c.r.randint(1, n)) for n in shape)]
    return shape, axis, c.index(shape[i], tuple(c.size() if j == i else c.r.randint(1, n) for j, n in enumerate(shape)))


@op("gather")
def gather(c, name):
    shape, axis, index = gathering(c)
    c.input(ALL, shape)
    c.add(index)
    return lambda x, i: tl.gather(x, axis, i), lambda x, i: torch.gather(x, axis, i)


@op("take_along")
def take_along(c, name):
    shape = c.shape(least=1, low=1)
    axis = c.r.randrange(len(shape))
    c.note(axis=axis)
    a = tuple(1 if i != axis and c.chance(0.3) else n for i, n in enumerate(shape))
    b = tuple(c.size() if i == axis else 1 if c.chance(0.3) else n for i, n in enumerate(shape))
    c.input(ALL, a)
    c.add(c.index(a[axis], b))
    return lambda x, i: tl.take_along(x, axis, i), lambda x, i: torch.take_along_dim(x, i, axis)


@op("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_value", "scatter_value_")
def scatter(c, name):
    shape, axis, index = gathering(c, distinct="add" not in name)
    dtype = c.input(ALL, shape, is_target=name.endswith("_"))
    c.add(index, layouts=("dense", "permuted", "sliced", "flipped"))  # distinct ones
    if "value" in name:
        return lambda x, i: getattr(tl, name)(x, axis, i, 1.0), lambda x, i: (x.scatter_ if name.endswith("_") else x.scatter)(axis, i, 1.0 if dtype in FLOATS else 1)
    c.input(dtype, index.shape)
    return lambda x, i, s: getattr(tl, name)(x, axis, i, s), lambda x, i, s: getattr(x, name)(axis, i, s)


@op("index_select", "index_add", "index_add_")
def index_one(c, name):
    shape = c.shape(least=1, low=1)
    axis = c.axis(len(shape), 0)
    index = c.index(shape[axis], (c.size(),))
    dtype = c.input(ALL, shape, is_target=name.endswith("_"))
    c.add(index)
    if name == "index_select":
        return lambda x, i: tl.index_select(x, axis, i), lambda x, i: torch.index_select(x, axis, i)
    c.input(dtype, tuple(len(index) if j == axis % len(shape) else n for j, n in enumerate(shape)))
    alpha = c.note(alpha=c.r.choice((1.0, -0.5)) if dtype in FLOATS else 1)
    return lambda x, i, s: getattr(tl, name)(x, axis, i, s, alpha), lambda x, i, s: getattr(x, name)(axis, i, s, alpha=alpha)


@op("index", "index_put")
def index_many(c, name):
    shape = c.shape(least=1, low=1)
    axes = c.note(axes=c.r.sample(range(len(shape)), c.r.randint(1, min(3, len(shape)))))
    common = c.shape(rank=c.r.randint(1, 2))
    indices = [c.index(shape[a], common, 0.01, -shape[a]) for a in axes]
    at = [slice(None)] * len(shape)
    for a, index in zip(axes, indices):
        at[a] = to_torch(index)
    at = tuple(at)
    dtype = c.input(ALL if name == "index" else FLOATS, shape)
    for index in indices:
        c.add(index, layouts=("dense", "permuted", "sliced", "flipped"))
    n = len(axes)
    if name == "index":
        return lambda x, *i: tl.index(x, axes, list(i), n), lambda x, *i: x[at]
    got = outcome(lambda: torch.zeros(shape)[at].shape)[0]
    c.input(dtype, got if got is not None else ())

    def theirs(x, *rest):  # torch's index_put takes no slices: elements are numbered, and put by number
        numbers = torch.arange(x.numel()).reshape(x.shape)[at].flatten()
        return x.flatten().index_put((numbers,), rest[-1].flatten(), accumulate=True).reshape(x.shape)
    return lambda x, *rest: tl.index_put(x, axes, list(rest[:-1]), n, rest[-1], True), theirs


@op("masked_select", "nonzero", "one_hot", "bincount")
def by_data(c, name):
    shape = c.shape()
    if name in ("one_hot", "bincount"):
        n = c.size(1)
        c.add(c.index(n, shape if name == "one_hot" else (c.size(),), 0))
        return {"one_hot": (lambda i: tl.one_hot(i, n), lambda i: F.one_hot(i, n)),
                "bincount": (lambda i: tl.bincount(i, n, None), lambda i: torch.bincount(i, minlength=n))}[name]
    c.input(ALL, shape)
    if name == "nonzero":
        return tl.nonzero, torch.nonzero
    c.input("bool", c.part(shape))
    return tl.masked_select, torch.masked_select


@op("concat", "stack")
def joining(c, name):
    shape = c.shape(least=1 if name == "concat" else 0)
    axis = c.axis(len(shape))
    dtype = c.dtype()
    for _ in range(c.r.randint(1, 4)):
        own = tuple(c.size() if name == "concat" and i == axis % len(shape) else n for i, n in enumerate(shape))
        c.input(dtype if name == "stack" or c.chance(0.8) else c.dtype(), own)
    n = len(c.inputs)
    return lambda *x: getattr(tl, name)(list(x), n, axis), lambda *x: (torch.cat if name == "concat" else torch.stack)(x, axis)


@op("split", "chunk")
def splitting(c, name):
    shape = c.shape(least=1)
    axis = c.axis(len(shape), 0)
    c.input(ALL, shape)
    if name == "chunk":
        n = c.note(n=c.r.randint(1, 5))
        return lambda x: parts(tl.chunk, x, axis, n, n=n), lambda x: list(torch.chunk(x, n, axis))
    first = c.r.randint(0, shape[axis])
    sizes = c.note(sizes=[first, shape[axis] - first])
    return lambda x: parts(tl.split, x, axis, sizes, 2, n=2), lambda x: list(torch.split(x, sizes, axis))


@op("pad")
def pad(c, name):
    shape = c.shape(rank=3)
    c.input(FLOATS, shape)
    mode = c.note(mode=c.r.choice(("constant", "reflect", "replicate", "circular")))
    low = -1 if mode == "constant" else 0
    before, after = ([c.r.randint(low, 3) if mode == "constant" or i == 2 else 0 for i in range(3)] for _ in range(2))
    c.note(before=before, after=after)
    order = [n for pair in zip(before[::-1], after[::-1]) for n in pair]
    return lambda x: tl.pad(x, before, after, getattr(tl, "PAD_" + mode.upper()), 0.5), \
        lambda x: F.pad(x, order, value=0.5) if mode == "constant" else F.pad(x, order[:2], mode=mode)


@op("flip", "roll", "repeat", "tile", "repeat_interleave", "repeat_interleave_by", "triu", "tril")
def reordering(c, name):
    shape = c.shape(least=2 if name.startswith("tri") else 1)
    rank = len(shape)
    c.input(ALL, shape)
    axes = c.note(axes=c.r.sample(range(rank), c.r.randint(1, rank)))
    shifts, k = c.note(shifts=[c.r.randint(-9, 9) for _ in axes]), c.note(k=c.r.randint(-3, 3))
    counts = c.note(counts=[c.r.choice((1, 1, 1, 2, 2, 0)) for _ in range(rank + c.r.randint(0, 1))])
    few = c.note(few=counts[:c.r.randint(1, len(counts))])
    if name == "repeat_interleave_by":
        c.add(np.array([c.r.randint(0, 3) for _ in range(shape[axes[0]])], np.int64))
    return {"flip": (lambda x: tl.flip(x, axes, len(axes)), lambda x: torch.flip(x, axes)),
            "roll": (lambda x: tl.roll(x, shifts, axes, len(axes)), lambda x: torch.roll(x, shifts, axes)),
            "repeat": (lambda x: tl.tile(x, len(counts), counts), lambda x: x.repeat(counts)),  # tl_tile is both
            "tile": (lambda x: tl.tile(x, len(few), few), lambda x: torch.tile(x, few)),
            "repeat_interleave": (lambda x: tl.repeat_interleave(x, axes[0], abs(k)), lambda x: torch.repeat_interleave(x, abs(k), axes[0])),
            "repeat_interleave_by": (lambda x, n: tl.repeat_interleave_by(x, axes[0], n), lambda x, n: torch.repeat_interleave(x, n, axes[0])),
            "triu": (lambda x: tl.triu(x, k), lambda x: torch.triu(x, k)), "tril": (lambda x: tl.tril(x, k), lambda x: torch.tril(x, k))}[name]


@op("sort", "argsort", "topk", "unique", "searchsorted")
def order(c, name):
    shape = c.shape()
    down = c.note(down=c.chance(0.5))
    if name == "searchsorted":
        dtype = c.dtype(FLOATS + ["int64", "int32", "uint8"])
        c.add(np.sort(c.values(dtype, (c.size(),))), layouts=("dense", "sliced"))
        c.input(dtype, shape)
        return lambda a, b: tl.searchsorted(a, b, down), lambda a, b: torch.searchsorted(a.contiguous(), b.contiguous(), right=down)
    if name == "topk":  # torch leaves the order of equal elements open
        c.add(c.distinct(c.dtype(FLOATS), shape), layouts=("dense", "permuted", "sliced", "flipped"))
    else:
        c.input(ALL, shape)
    if name == "unique":
        c.wants_grad = False  # torch has none
        return lambda x: results(tl.unique, x, n=3), lambda x: list(torch.unique(x, sorted=True, return_inverse=True, return_counts=True))
    axis = c.axis(len(shape))
    if name == "topk":
        k = c.note(k=c.r.randint(0, shape[axis] + (1 if c.chance(0.05) else 0)) if shape and axis < len(shape) else 1)
        return lambda x: results(tl.topk, x, k, axis, down), lambda x: list(torch.topk(x, k, axis, down))
    if name == "argsort":
        return lambda x: tl.argsort(x, axis, down), lambda x: torch.sort(x, dim=axis, descending=down, stable=True)[1]
    return lambda x: results(tl.sort, x, axis, down), lambda x: list(torch.sort(x, dim=axis, descending=down, stable=True))


# ---- Views, casts ----

@op("select", "slice", "view", "reshape", "transpose", "permute", "expand", "broadcast_to", "squeeze", "unsqueeze", "flatten", "unflatten", "diagonal",
    "as_strided")
def views(c, name):
    shape = c.shape(least=2 if name == "diagonal" else 1 if name in ("select", "slice", "unflatten") else 0)
    rank = len(shape)
    if name == "as_strided":
        c.input(ALL, shape := (c.size(1) * 4,), layouts=("dense",))
        m, n, offset = c.r.randint(0, 3), c.r.randint(0, 3), c.r.randint(0, 4)
        strides = c.note(strides=[c.r.randint(0, 2), c.r.randint(0, 2)])
        c.note(shape=(m, n), offset=offset)
        return lambda x: tl.as_strided(x, 2, [m, n], strides, offset), lambda x: x.as_strided((m, n), strides, offset)
    c.input(ALL, shape, **({"layouts": ("dense", "permuted", "sliced", "expanded")} if name == "view" else {}))
    if name in ("view", "reshape"):
        n, new = math.prod(shape), []
        left = n
        for _ in range(c.r.randint(0, 3)):
            d = c.r.choice([d for d in range(1, left + 1) if left % d == 0]) if left else c.size()
            new.append(d)
            left //= max(d, 1)
        new = c.note(shape=new + [left] if not c.chance(0.03) else new + [left + 1])
        if n and c.chance(0.3):
            new[c.r.randrange(len(new))] = -1
        return lambda x: getattr(tl, name)(x, len(new), new), lambda x: getattr(x, name)(new)
    if name in ("expand", "broadcast_to"):
        new = [c.size() if n == 1 else n if c.chance(0.97) else n + 1 for n in shape]
        extra = [c.r.randint(1, 3) for _ in range(c.r.randint(0, 2))]
        new = c.note(shape=extra + [-1 if name == "expand" and c.chance(0.2) else n for n in new])
        return lambda x: getattr(tl, name)(x, len(new), new), lambda x: getattr(x, name)(new)
    if name == "permute":
        axes = c.note(axes=[a - rank if c.chance(0.2) else a for a in c.r.sample(range(rank), rank)])
        return lambda x: tl.permute(x, axes), lambda x: x.permute(axes)
    if name == "unsqueeze":
        axis = c.note(axis=c.r.randint(-rank - 1, rank))
        return lambda x: tl.unsqueeze(x, axis), lambda x: x.unsqueeze(axis)
    axis = c.axis(rank)
    if name == "select":
        n = shape[axis] if axis < rank else 1
        index = c.note(index=c.r.randint(-n - 1, n))
        return lambda x: tl.select(x, axis, index), lambda x: x.select(axis, index)
    if name == "slice":
        if axis >= rank:
            axis = c.note(axis=0)
        start, stop, step = c.note(slice=(c.r.randint(-9, 9), c.r.randint(-9, 9), c.r.randint(1, 3)))
        at = (slice(None),) * (axis % rank) + (slice(start, stop, step),)
        return lambda x: tl.slice(x, axis, start, stop, step), lambda x: x[at]
    if name == "squeeze":
        return lambda x: tl.squeeze(x, axis), lambda x: x.squeeze(axis)
    other = c.note(other=c.r.randrange(-max(rank, 1), max(rank, 1)))
    if name == "transpose":
        return lambda x: tl.transpose(x, axis, other), lambda x: x.transpose(axis, other)
    if name == "flatten":
        return lambda x: tl.flatten(x, axis, other), lambda x: x.flatten(axis, other)
    if name == "unflatten":
        n = shape[axis] if axis < rank else 1
        d = c.r.choice([d for d in range(1, n + 1) if n % d == 0]) if n else 1
        new = c.note(shape=[d, n // d if c.chance(0.7) or not n else -1])
        return lambda x: tl.unflatten(x, axis, 2, new), lambda x: x.unflatten(axis, new)
    k = c.note(k=c.r.randint(-3, 3))
    return lambda x: tl.diagonal(x, k, axis, other), lambda x: x.diagonal(k, axis, other)


@op("cast")
def cast(c, name):
    to = c.note(to=c.dtype())
    c.input(ALL, c.shape(), "positive" if to == "uint8" else "normal")
    return lambda x: tl.cast(x, NUMPY[to]), lambda x: x.to(TORCH[to])


# ---- What differs, and why ----

def beside_scalar(c):
    return any(x.values.ndim == 0 for x in c.inputs) and len(set(c.dtypes())) > 1


def at_bound(c):
    values = c.inputs[0].values
    return is_real(values) and any((values == np.asarray(n).astype(values.dtype)).any() for n in c.notes.get("bounds", (c.notes["number"],)) if n is not None)


# (ops, whether a call is such a case, reason); it holds for values and gradients as for refusals.
KNOWN = [
    (("cmp",), beside_scalar, "torch brings a scalar to the other's dtype, where it may wrap; we compare the numbers"),
    (("cmp_scalar",), lambda c: c.dtypes() == ["uint8"] and c.notes["number"] in (-1, 300), "torch wraps the number; we compare the numbers"),
    (("pow_scalar", "rpow_scalar", "pow_scalar_"), lambda c: c.dtypes() == ["bool"] and isinstance(c.notes["number"], bool),
     "torch takes the powers False and True of bool, and no other way to them"),
    (("rpow_scalar",), lambda c: isinstance(c.notes["number"], bool), "an internal error of PyTorch before 2.15, NaN gradients of False^x since"),
    (("exp", "log", "sqrt", "tanh", "sigmoid", "relu", "relu_", "logsumexp"), lambda c: c.dtypes()[0] in INTEGERS, "we take floats only"),
    (("cumsum_", "cumprod_"), lambda c: c.dtypes() == ["bool"], "torch has no scan of bool in place"),
    (("squeeze", "transpose"), lambda c: c.inputs[0].values.ndim == 0, "torch lets a scalar have an axis 0; we say that it has none"),
    (("fill_", "fill_scalar_", "masked_fill_"), lambda c: c.inputs[0].layout == "expanded", "we refuse to write to any expanded tensor"),
    (("pad",), lambda c: c.notes["mode"] != "constant" and 0 in c.inputs[0].values.shape, "torch pads no empty tensors except with a constant"),
    (("take_along",), lambda c: "out_of_range" in c.notes, "torch wraps indices here; we refuse those out of range"),
    (("remainder", "remainder_", "remainder_scalar", "remainder_scalar_"), lambda c: any(0 in x.values.shape for x in c.inputs),
     "we refuse a remainder of integers by the number 0 also where there are no elements"),
    (("addcmul",), lambda c: c.dtypes()[0] == "bool", "torch has none of bool"),
    (("softmax", "softmax_axis", "log_softmax"), lambda c: c.dtypes()[0] in INTEGERS, "torch refuses integers only where there are elements"),
    (("fill_scalar_",), lambda c: c.dtypes() == ["uint8"] and c.notes["number"] in (-1, -0.5),
     "torch wraps -1 to u8 and refuses -0.5; we refuse integers that do not fit, as tally.h says, and truncate floats"),
    (("bce_with_logits",), lambda c: len(c.inputs) == 4, "torch lets pos_weight enlarge x only where there is no weight; we always do"),
    (("softplus",), lambda c: c.dtypes()[0] in ("float16", "bfloat16"),
     "BUG: backward compares beta x, rounded to 16 bits, with the threshold, and may take another branch than forward"),
    (("norm",), lambda c: abs(c.notes["p"]) == math.inf and 0 in c.inputs[0].values.shape,
     "BUG: the largest of an axis of size 0 is accepted where the result is empty"),
    (("matmul",), lambda c: len(set(c.dtypes())) > 1 and any(0 in x.values.shape for x in c.inputs),
     "PyTorch before 2.15 takes two dtypes where there is nothing to multiply"),
    (("argmax", "argmin", "max", "min"), lambda c: 0 in c.inputs[0].values.shape, "BUG: the extreme of an axis of size 0 is accepted where the result is empty"),
    (("where_scalar",), lambda c: c.dtypes()[0] == "uint8" and c.notes["number"] in (-1, 300),
     "BUG: tally.h says that integers wrap to the tensor's dtype, as in torch; here they are refused"),
    (("pow", "pow_"), lambda c: c.dtypes()[1] == "bool", "torch has no gradient of powers with bool exponents"),
    (("minimum_scalar", "maximum_scalar"), lambda c: IS_OLD and c.dtypes() == ["uint8"] and c.notes["number"] in (-1, 300),
     "PyTorch before 2.15 wraps or refuses bounds out of range"),
    (("minimum_scalar", "maximum_scalar", "clamp", "clamp_"),
     lambda c: IS_OLD and at_bound(c), "the gradient at a bound is 1 in PyTorch before 2.15, and 0 since"),
]
# (ulps, of at least this number) where 2 ulp of the largest element are too few: differences of numbers near 1, whose result may be 0.
ULPS = {name: (8, 1.0) for name in ("layer_norm", "add_layer_norm", "rms_norm", "add_rms_norm", "cross_entropy", "cross_entropy_with",
                                    "linear_cross_entropy", "softmax", "softmax_axis", "log_softmax", "var", "std")}
# Gradients of several steps, each rounded, here as there, in another order; broadcast operands sum them.
ULPS.update({name: (4, 1.0) for name in ("div", "div_", "rdiv_scalar", "pow", "pow_", "rpow_scalar", "addcmul", "addcdiv", "prod", "cumprod", "cumprod_", "prod_all")})
ULPS.update(swiglu=(2, 1.0), smooth_l1_loss=(4, 1.0), l1_loss=(4, 1.0), mse_loss_with=(4, 1.0), bce_with_logits=(4, 1.0))
# BUG: lerp rounds each of its steps to 16 bits, where torch rounds once: an error of an ulp of the operands, not of the result.
ULPS.update(lerp=(4, 2.0), lerp_scalar=(4, 2.0))


# ---- Both libraries ----

def is_real(values):
    return values.dtype.kind not in "iub"


def seed_of(shape, dtype):
    return POOL[:math.prod(shape)].reshape(shape).astype(dtype)


def many(y):
    return y if isinstance(y, list) else [y]


def ours_of(c, f):
    leaves, views, changed = [], [], []
    for x in c.inputs:
        leaf = tl.tensor(x.leaf)
        if c.wants_grad and x.has_grad:
            tl.requires_grad(leaf, True)
        leaves.append(leaf)
        if x.is_target:
            leaf = tl.clone(leaf)
            changed.append(leaf)
        views.append(x.ours(leaf) if x.ours else leaf)
    return leaves, changed + many(f(*views))


def theirs_of(c, f, is_wide=False):
    leaves, views, changed = [], [], []
    for x in c.inputs:
        leaf = to_torch(x.leaf.astype(np.float64) if is_wide and is_real(x.leaf) else x.leaf)
        if c.wants_grad and x.has_grad:
            leaf.requires_grad_()
        leaves.append(leaf)
        if x.is_target:
            leaf = leaf.clone()
            changed.append(leaf)
        views.append(x.theirs(leaf) if x.theirs else leaf)
    return leaves, changed + many(f(*views))


def theirs_with_gradients(c, f, is_wide=False, seed=None):
    """Arrays: results, then the gradients of all float leaves, where the first result has any."""
    leaves, outputs = theirs_of(c, f, is_wide)
    arrays, z = [from_torch(y) for y in outputs], outputs[0]
    if not z.requires_grad:
        return arrays, False
    real = [x for x in leaves if x.requires_grad]
    seed = seed_of(tuple(z.shape), arrays[0].dtype) if seed is None else seed.astype(np.float64)
    grads = torch.autograd.grad(z, real, to_torch(seed), allow_unused=True)
    return arrays + [from_torch(torch.zeros_like(x) if g is None else g) for x, g in zip(real, grads)], True


def ours_with_gradients(c, f, wants):
    leaves, outputs = ours_of(c, f)
    arrays = [y.numpy() for y in outputs]
    if wants:
        tl.backward(outputs[0], tl.tensor(seed_of(arrays[0].shape, arrays[0].dtype)), 0)
        for x, leaf in zip(c.inputs, leaves):
            if x.has_grad:
                grad = leaf.grad
                arrays.append(grad.numpy() if grad else np.zeros_like(x.leaf))
    return arrays


def difference(c, theirs, a, b):
    """What differs between the arrays of both, or None."""
    narrowest = min((x.values.dtype for x in c.inputs if is_real(x.values)), key=lambda d: (d.itemsize, d.name == "float16"), default=np.dtype("float64"))
    exact, (n_ulps, least) = None, ULPS.get(c.name, (2, 1e-3))
    if len(a) != len(b):
        return f"{len(a)} results, torch {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"array {i}: {x.dtype}{x.shape}, torch {y.dtype}{y.shape}"
        if not x.size:
            continue
        if x.dtype.kind in "iub":
            if not np.array_equal(x, y):
                return f"array {i}\n{x}\ntorch\n{y}"
            continue
        if x.tobytes() == y.tobytes():
            continue
        p, q = x.astype(np.float64), y.astype(np.float64)
        if not same_specials(p, q):
            return f"array {i}, nan or inf\n{x}\ntorch\n{y}"
        finite = np.isfinite(q)
        if not finite.any():
            continue
        p, q = p[finite], q[finite]
        kind = x.dtype if x.dtype.itemsize < narrowest.itemsize else narrowest  # of mixed operands the narrowest counts
        if kind.name in RELATIVE and np.abs(p - q).max() <= RELATIVE[kind.name] * max(least, np.abs(q).max()):
            continue
        if kind.name != "float64":  # also where f32 results cancel
            if exact is None:
                exact = theirs_with_gradients(c, theirs, True, seed_of(b[0].shape, b[0].dtype))[0]
            e = exact[i].astype(np.float64)[finite]
            n, low = (max(n_ulps, 8), max(least, 1.0)) if kind.name == "float32" else (n_ulps, least)  # operands are near 1: 1e-6 where they cancel
            ulps = n * ulp(np.full_like(e, max(np.abs(e).max(), low)), kind.name)
            if (np.abs(p - e) <= 2 * np.abs(q - e).max() + ulps).all():
                continue
        return f"array {i}: off by {np.abs(p - q).max():g}\n{x}\ntorch\n{y}" + (f"\nexact\n{exact[i]}" if exact else "")
    return None


def perform(number, name):
    """(call, difference or None, whether both refused)"""
    c = Call(number, name)
    ours, theirs = OPS[name](c)
    b, their_error = outcome(lambda: theirs_with_gradients(c, theirs))
    a, error = outcome(lambda: ours_with_gradients(c, ours, b[1] if b else False))
    if (error is None) != (their_error is None):
        return c, f"ours: {error or 'accepted'}\ntorch: {their_error or 'accepted'}", False
    return (c, None, True) if error else (c, difference(c, theirs, a, b[0]), False)


def known(c):
    return next((reason for names, holds, reason in KNOWN if c.name in names and holds(c)), None)


def test_differential():
    warnings.simplefilter("ignore")
    names, n_calls = list(OPS), N_CALLS * int(os.environ.get("TALLY_SOAK", "1"))
    only = os.environ.get("TALLY_CALL")
    calls, refused, differing, failures = collections.Counter(), collections.Counter(), collections.Counter(), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    our_threads = tl.set_threads(1)
    try:
        for i in [int(only)] if only else range(n_calls):
            name = names[i % len(names)]
            c, wrong, both_refused = perform(i, name)
            calls[name] += 1
            refused[name] += both_refused
            reason = wrong and known(c)
            if reason:
                differing[reason] += 1
            elif wrong:
                failures.append(f"TALLY_CALL={i} replays {c}\n{wrong}")
    finally:
        torch.set_num_threads(threads)
        tl.set_threads(our_threads)
    print("\n" + "\n".join(f"{name:22} {calls[name]:6} calls, {refused[name]:4} refused by both" for name in names))
    print("\n".join(f"known: {n:5} times: {reason}" for reason, n in differing.items()))
    print(f"{sum(calls.values())} calls of {len(names)} ops, torch {torch.__version__}, {len(failures)} failures")
    per_op = collections.Counter(f.split(": ", 1)[1].split()[0] for f in failures)
    assert not failures, f"{len(failures)} calls differ: {dict(per_op)}\n" + "\n\n".join(failures[:int(os.environ.get('TALLY_SHOW', '5'))])
    if not only:
        assert sum(calls.values()) >= 20000 and all(calls[name] for name in names)
