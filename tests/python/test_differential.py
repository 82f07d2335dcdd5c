"""One random driver over the public ops, against PyTorch.

Each call draws shapes (rank 0 to 4, sizes 0 to 7), layouts (dense, permuted, sliced with a step, expanded, flipped),
dtypes and attributes, runs both libraries, and compares dtypes, shapes, values, gradients, which results are views and
with which strides, and whether both accept the call. In one call of eight, some floats are NaN, infinite, zeros of
either sign, subnormal or huge. A call depends only on (SEED, its number): TALLY_CALL=n replays one. TALLY_SOAK=n makes
n times as many calls, TALLY_FIRST=m starts with call m. `pytest -s` prints the number of calls of each op.

Tolerances. A result that is not bitwise identical to torch's is compared with the exact one, which is torch's in f64
(in f64, with torch's):
  f64      1e-10 relative
  f32      1e-5 relative, or torch's own error
  16 bits  twice torch's own error and one unit in the last place (ulp), since torch's error may happen to be 0
Errors are relative to the element itself. Where elements are sums, they are relative to the largest element of the
tensor (and to torch's largest error), since terms that cancel leave their errors behind; in f32 and f64 at least to 1,
the size of the terms. That holds for the results of SUMS and for gradients, which are sums where something was
broadcast or collected (in 16 bits for all gradients, which are chains of rounded steps). SLACK lists the ops that need
more, and why; KNOWN lists intended differences; ELSEWHERE lists functions of tally.h that are tested in other files.
"""
import collections
import ctypes
import math
import os
import random
import re
import warnings

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F

import elementwise_rows
from elementwise_rows import IN_PLACE
from tally_c import HEADER, ROOT, Tensor, tl
from test_torch_fused import OPTIMIZERS, PEERS, Ours, attention_options, plain_attention, visible, with_second
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
SPECIAL = ["nan", "inf", "zero", "subnormal", "huge"]
POOL = np.random.default_rng(SEED).standard_normal(1 << 16)


# ---- One call: what it draws ----

class Input:
    """Values, and how they lie in memory: leaf(tensor) is the memory, view(x) the tensor that the op sees."""

    def __init__(self, values, layout, leaf, ours, theirs, is_target=False):
        self.values, self.layout, self.leaf, self.ours, self.theirs, self.is_target = (values, layout, leaf, ours,
                                                                                       theirs, is_target)
        self.has_grad = is_real(values)

    def __repr__(self):
        return (f"{self.values.dtype.name}{list(self.values.shape)} {self.layout}"
                f"{' changed in place' if self.is_target else ''} {self.values.tolist()}")


class Call:
    def __init__(self, number, name):
        self.r = random.Random(SEED * 1000003 + number)
        self.id, self.name, self.inputs, self.notes, self.wants_grad = number, name, [], {}, True
        self.is_special = self.chance(0.125)
        self.specials = [v for v in SPECIAL if v not in PLAIN.get(name, ((),))[0]
                         and not (name in SUMS and v == "huge")]
        # Gradients are products with factors that may be 0 or infinite; each library multiplies in its own order.
        if self.is_special and self.chance(0.5):
            self.wants_grad = False
        else:
            self.specials = [v for v in self.specials if v not in ("inf", "huge")]

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
        return ((common, self.part(common)) if self.chance(0.5) else (self.part(common), common) if self.chance(0.5)
                else (common, common))

    def axis(self, rank, wrong=0.02):
        rank = max(rank, 1)
        return self.note(axis=rank if self.chance(wrong) else self.r.randrange(-rank, rank))

    def axes(self, rank):
        """A list for a reduction; [] is all."""
        if self.chance(0.2):
            return self.note(axes=[])
        if rank == 0:
            return self.note(axes=self.r.choice(([], [0], [-1], [1])))
        axes = self.r.sample(range(rank), self.r.randint(1, rank))
        return self.note(axes=[a - rank if self.chance(0.3) else a for a in axes]
                         + ([rank] if self.chance(0.02) else []))

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
            return np.asarray(np.abs(x) + (kind == "positive") if dtype == "uint8" or kind == "positive"
                              else x).astype(dtype)
        if kind == "positive":
            x = 0.5 + np.abs(x)
        elif self.chance(0.3):
            x = np.round(x * 4) / 4  # ties and zeros
        x = np.array(x).astype(NUMPY[dtype])
        return self.with_specials(x, kind) if self.is_special else x

    def with_specials(self, x, kind):
        """Some of the numbers replaced."""
        info = ml_dtypes.finfo(x.dtype)
        for i in range(x.size):
            if self.chance(0.4):
                v = self.r.choice(self.specials)
                v = {"nan": math.nan, "inf": math.inf, "zero": 0.0,
                     "subnormal": float(info.smallest_subnormal) * self.r.randint(1, 9),
                     "huge": float(info.max) / 2.0 ** self.r.choice((0, 1, 4))}[v]
                x.flat[i] = -v if kind == "normal" and self.chance(0.5) else v
        return x

    def distinct(self, dtype, shape):
        n = math.prod(shape)
        return np.asarray(self.r.sample(range(n), n),
                          np.float64).reshape(shape).astype(NUMPY[dtype]) / NUMPY[dtype].type(8)

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
        self.inputs.append(Input(values, layout, np.ascontiguousarray(leaf).reshape(leaf.shape), ours, theirs,
                                 is_target))
        return values

    def input(self, names, shape, kind="normal", **options):
        dtype = names if isinstance(names, str) else self.dtype(names)
        self.add(self.values(dtype, shape, kind), **options)
        return dtype

    def index(self, limit, shape, wrong=0.02, low=0):
        """Numbers in [low, limit), seldom one outside."""
        values = np.array([self.r.randrange(low, max(limit, low + 1)) for _ in range(math.prod(shape))],
                          np.int64).reshape(shape)
        if values.size and self.chance(wrong):
            values.flat[self.r.randrange(values.size)] = limit
            self.note(out_of_range=True)
        return values

    def number(self):
        return self.note(number=self.r.choice((True, False, 2, -1, 0, 3, 300, 2.5, -0.5, 0.1, 0.0, 1.0)))

    def has_flips(self):
        """torch's flip is a copy: views of it are no views of ours."""
        return any(x.layout == "flipped" for x in self.inputs)

    def is_mixed(self):
        return len({x.values.dtype for x in self.inputs if is_real(x.values)}) > 1

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


# The elementwise ops follow from src/spec/elementwise_list.h.
POSITIVE = elementwise_rows.POSITIVE | {"reciprocal"}


@op(*elementwise_rows.UNARY, "square", "reciprocal", "clone", "contiguous")
def unary(c, name):
    c.input(ALL, c.shape(), "positive" if name in POSITIVE else "normal")
    return getattr(tl, name), torch.Tensor.contiguous if name == "contiguous" else elementwise_rows.theirs(name)


@op(*(name + "_" for name in elementwise_rows.UNARY if name in IN_PLACE))
def unary_in_place(c, name):
    theirs = getattr(torch.Tensor, name, None)
    c.input(ALL if theirs else FLOATS, c.shape(), "positive" if name[:-1] in POSITIVE else "normal", is_target=True)
    return getattr(tl, name), theirs or (lambda x: x.copy_(elementwise_rows.theirs(name[:-1])(x.clone())))


@op("leaky_relu", "leaky_relu_", "softplus", "affine", "scale", "affine_")
def unary_with_attributes(c, name):
    c.input(FLOATS, c.shape(), is_target=name.endswith("_"))
    a, b = c.note(numbers=(c.r.choice((0.01, 0.5, 2.0)), c.r.choice((1.0, 20.0, -0.5))))
    return {"leaky_relu": (lambda x: tl.leaky_relu(x, a), lambda x: F.leaky_relu(x, a)),
            "leaky_relu_": (lambda x: tl.leaky_relu_(x, a), lambda x: F.leaky_relu_(x, a)),
            "softplus": (lambda x: tl.softplus(x, a + 0.5, abs(b)), lambda x: F.softplus(x, a + 0.5, abs(b))),
            "affine": (lambda x: tl.affine(x, a, b), lambda x: x * a + b),
            "scale": (lambda x: tl.scale(x, b), lambda x: x * b),
            "affine_": (lambda x: tl.affine_(x, a, b), lambda x: x.mul_(a).add_(b))}[name]


BINARY = [name for name in elementwise_rows.BINARY if name != "swiglu"]  # which has its own case below
CHANGING = [name + "_" for name in BINARY if name in IN_PLACE] + ["copy_"]


def two(c, name, first, second, is_target=False):
    # In 16 bits, a quotient near an integer may round to either side of it.
    names = WIDE + INTEGERS if name.startswith("remainder") else ALL
    a = c.input(names, first, "positive" if name in ("pow", "pow_") else "normal", is_target=is_target)
    b = a if c.chance(0.6) else c.dtype(names)
    c.is_special = c.is_special and not (name == "copy_" and a in INTEGERS)  # no integer is NaN or infinite
    c.input(b, second, "positive" if name.rstrip("_") in ("div", "remainder") and not c.chance(0.02) or
            name.startswith("copy") or name == "pow_" else "normal")


@op(*BINARY)
def binary(c, name):
    two(c, name, *c.pair())
    return getattr(tl, name), elementwise_rows.theirs(name)


@op(*CHANGING)
def binary_in_place(c, name):
    shape = c.shape()
    two(c, name, *((shape, c.part(shape)) if not c.chance(0.03) else (c.part(shape), shape)), is_target=True)
    theirs = getattr(torch.Tensor, name, None)
    return getattr(tl, name), theirs or (lambda a, b: a.copy_(elementwise_rows.theirs(name[:-1])(a.clone(), b)))


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


SCALARS = {"add": lambda x, s: x + s, "sub": lambda x, s: x - s, "rsub": lambda x, s: s - x, "mul": lambda x, s: x * s,
           "div": lambda x, s: x / s, "rdiv": lambda x, s: s / x, "pow": lambda x, s: x ** s,
           "rpow": lambda x, s: torch.pow(s, x), "remainder": torch.remainder,
           "maximum": lambda x, s: torch.clamp(x, min=s), "minimum": lambda x, s: torch.clamp(x, max=s)}


@op(*(name + "_scalar" for name in SCALARS),
    *(name + "_scalar_" for name in ("add", "sub", "mul", "div", "pow", "remainder")))
def scalar(c, name):
    base = name.split("_")[0]
    c.input(WIDE + INTEGERS if base == "remainder" else ALL, c.shape(),
            "positive" if base in ("rdiv", "pow", "rpow") else "normal", is_target=name.endswith("_"))
    s = c.number()
    return (lambda x: getattr(tl, name)(x, number(s)),
            (lambda x: getattr(x, base + "_")(s)) if name.endswith("_") else lambda x: SCALARS[base](x, s))


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
        return (lambda x: tl.cmp_scalar(x, getattr(tl, relation), number(s)),
                lambda x: getattr(torch, relation.lower())(x, s))
    if name == "fill_scalar_":
        return lambda x: tl.fill_scalar_(x, number(s)), lambda x: x.fill_(s)
    if name == "fill_":
        return lambda x: tl.fill_(x, 3), lambda x: x.fill_(3)
    low, high = c.note(
        bounds=c.r.choice(((-0.6, 1.1), (None, 0.3), (0, None), (1.1, -1.1), (0, 2), (-1.6, 2), (True, None))))
    ours = [None if v is None else number(v) for v in (low, high)]
    return lambda x: getattr(tl, name)(x, *ours), lambda x: getattr(x, name)(low, high)


@op("lerp", "lerp_scalar", "addcmul", "addcdiv", "swiglu")
def composites(c, name):
    shape, dtype = c.shape(), c.dtype(FLOATS if name == "swiglu" or c.chance(0.95) else ALL)
    for i in range(2 if name in ("lerp_scalar", "swiglu") else 3):
        c.input(dtype, c.part(shape), "positive" if i == 2 else "normal")
    s = c.note(number=c.r.choice((0.2, 0.7, 1.0, -0.5) if dtype in FLOATS else (1, 2)))
    return {"lerp": (tl.lerp, torch.lerp),
            "lerp_scalar": (lambda a, b: tl.lerp_scalar(a, b, s), lambda a, b: torch.lerp(a, b, s)),
            "addcmul": (lambda x, a, b: tl.addcmul(x, a, b, s), lambda x, a, b: torch.addcmul(x, a, b, value=s)),
            "addcdiv": (lambda x, a, b: tl.addcdiv(x, a, b, s), lambda x, a, b: torch.addcdiv(x, a, b, value=s)),
            "swiglu": (tl.swiglu, lambda a, b: F.silu(a) * b)}[name]


# ---- Reductions, scans, rows ----

def over(x, axes):
    return tuple(axes) if axes else tuple(range(x.ndim))  # a scalar has axis 0


def torch_prod(x, axes, keep):
    if not axes:
        return torch.prod(x).reshape([1] * x.ndim) if keep else torch.prod(x)
    if any(a >= max(x.ndim, 1) for a in axes):
        raise IndexError
    for a in sorted((a % max(x.ndim, 1) for a in axes), reverse=True):
        x = torch.prod(x, a, keepdim=keep)
    return x


def plain(f):
    return lambda x, axes, keep: f(x, over(x, axes), keepdim=keep)


def one_or_all(f):
    return lambda x, axes, keep: f(x, axes[0] if axes else None, keep)


REDUCTIONS = {"sum": plain(torch.sum), "mean": plain(torch.mean), "max": plain(torch.amax), "min": plain(torch.amin),
              "nansum": plain(torch.nansum), "prod": torch_prod, "argmax": one_or_all(torch.argmax),
              "argmin": one_or_all(torch.argmin), "any": plain(torch.any), "all": plain(torch.all),
              "count_nonzero": lambda x, axes, keep: torch.count_nonzero(x, over(x, axes) or None),
              "logsumexp": plain(torch.logsumexp)}


@op(*REDUCTIONS)
def reduction(c, name):
    shape = c.shape()
    c.input(ALL, shape, "positive" if name == "prod" and c.chance(0.7) else "normal")
    axes, keep = c.axes(len(shape)), c.note(keep=c.chance(0.5) and name != "count_nonzero")
    if name.startswith("arg"):
        axes = c.note(axes=axes[:1])
    return lambda x: getattr(tl, name)(x, axes, len(axes), keep), lambda x: REDUCTIONS[name](x, axes, keep)


@op("var", "std", "norm", "sum_all", "mean_all", "prod_all")
def reduction_with_attributes(c, name):
    shape = c.shape()
    c.input(ALL if name[0] in "smp" and name != "std" else FLOATS if c.chance(0.95) else ALL, shape,
            "positive" if name == "prod_all" else "normal")
    if name.endswith("_all"):
        return getattr(tl, name), getattr(torch, name[:-4])
    axes, keep = c.axes(len(shape)), c.note(keep=c.chance(0.5))
    if name == "norm":
        p = c.note(p=c.r.choice((0, 1, 2, 3, 1.5, math.inf, -math.inf)))
        c.wants_grad = p != 0 and all(x.values.dtype.name in WIDE or p in (1, 2) for x in c.inputs)
        return (lambda x: tl.norm(x, p, axes, len(axes), keep),
                lambda x: torch.linalg.vector_norm(x, p, over(x, axes), keep))
    correction = c.note(correction=c.r.randint(0, 1))
    n = math.prod(shape[a] for a in axes if a < len(shape)) if axes and shape else math.prod(shape)
    c.wants_grad = n > correction
    return lambda x: getattr(tl, name)(x, axes, len(axes), correction, keep), \
        lambda x: getattr(torch, name)(x, over(x, axes), correction=correction, keepdim=keep)


@op("cumsum", "cumprod", "cumsum_", "cumprod_", "softmax", "log_softmax")
def along(c, name):
    shape = c.shape()
    c.input(FLOATS if "soft" in name and c.chance(0.95) else ALL, shape, "positive" if "prod" in name else "normal",
            is_target=name.endswith("_"))
    axis = c.axis(len(shape))
    theirs = getattr(torch.Tensor, name)
    return lambda x: getattr(tl, name)(x, axis), lambda x: theirs(x, axis)


@op("layer_norm", "rms_norm", "add_rms_norm", "add_layer_norm")
def norms(c, name):
    shape, dtype = c.shape(least=1, low=1 if c.chance(0.9) else 0), c.dtype(FLOATS)
    C, is_weighted = shape[-1:], c.chance(0.7)
    # In a row of equal numbers, only rounding errors are left.
    layouts = ("dense", "permuted", "sliced", "flipped")
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


@op("mse_loss", "l1_loss", "smooth_l1_loss", "bce_with_logits")
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
            lambda x, t, *rest: F.binary_cross_entropy_with_logits(x, t, split(rest)[0], pos_weight=split(rest)[1],
                                                                   reduction=text)
    return {"mse_loss": (lambda a, b: tl.mse_loss(a, b, how), lambda a, b: F.mse_loss(a, b, reduction=text)),
            "l1_loss": (lambda a, b: tl.l1_loss(a, b, how), lambda a, b: F.l1_loss(a, b, reduction=text)),
            "smooth_l1_loss": (lambda a, b: tl.smooth_l1_loss(a, b, beta, how),
                               lambda a, b: F.smooth_l1_loss(a, b, beta=beta, reduction=text))}[name]


@op("cross_entropy", "nll_loss", "linear_cross_entropy")
def entropies(c, name):
    n, v, dtype = c.size(1 if c.chance(0.9) else 0), c.size(1), c.dtype(FLOATS)
    ids = c.index(v, (n,)).astype(c.r.choice(("int64", "int32")))
    if name == "linear_cross_entropy":
        k = c.size(1)
        c.input(dtype, (n, k))
        c.input(dtype, (v, k))
        c.add(ids)
        def widened(x):
            return x if x.dtype == torch.float64 else x.float()

        return lambda x, w, t: tl.linear_cross_entropy(x, w, t, tl.linear_cross_entropy_defaults()), \
            lambda x, w, t: F.cross_entropy(widened(x) @ widened(w).T, t.long())
    rest = tuple(c.size(1) for _ in range(c.r.randrange(3))) if c.chance(0.4) else ()
    rows = () if c.chance(0.1) else (n, *rest)
    c.input(dtype, (n, v, *rest) if rows else (v,))
    ids = np.asarray(c.index(v, rows)).astype(ids.dtype)
    if name == "cross_entropy" and c.chance(0.5):  # the loss of 16-bit logits is f32, as documented
        c.add(ids)
        return (lambda x, t: tl.cross_entropy(x, t, None),
                lambda x, t: F.cross_entropy(x if x.dtype == torch.float64 else x.float(), t.long()))
    how, is_weighted = c.note(reduction=c.r.randrange(3)), c.chance(0.4)
    ignored = c.note(ignored=c.r.choice((-100, -100, c.r.randrange(v))))
    smoothing = c.note(smoothing=c.r.choice((0, 0, 0.1)) if name != "nll_loss" else 0)
    c.add(ids)
    weight = np.abs(c.values("float64", (v,), "positive")).astype(NUMPY[dtype]) if is_weighted else None

    def ours(x, t):
        o = tl.cross_entropy_defaults()
        held = tl.tensor(weight) if is_weighted else None
        if is_weighted:
            o.weight = held._as_parameter_
        o.ignore_index, o.label_smoothing, o.reduction = ignored, smoothing, how
        return (tl.cross_entropy if name == "cross_entropy" else tl.nll_loss)(x, t, o)

    def theirs(x, t):
        x = x.float() if x.dtype != torch.float64 and name == "cross_entropy" else x
        w = to_torch(weight).to(x.dtype) if is_weighted else None
        more = {"label_smoothing": smoothing} if name == "cross_entropy" else {}
        x = x.contiguous()  # its gradient of four axes refuses other strides
        return (F.cross_entropy if more else F.nll_loss)(x, t.long(), w, ignore_index=ignored, reduction=REDUCE[how],
                                                         **more)
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
    if c.chance(0.5):
        first = c.note(first=c.r.randrange(9))
        return lambda x: tl.rope(x, 10000.0, first, None), lambda x: rope(x, 10000.0, first)
    B, T = c.inputs[0].values.shape[:2]
    at = c.index(60, (c.r.choice((1, B)), T), wrong=0).astype(c.note(positions=c.r.choice(("int64", "int32"))))
    return lambda x: tl.rope_at(x, 10000.0, tl.tensor(at), None), lambda x: rope(x, 10000.0, torch.from_numpy(at))


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


@op("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_scalar", "scatter_scalar_")
def scatter(c, name):
    shape, axis, index = gathering(c, distinct="add" not in name)
    dtype = c.input(ALL, shape, is_target=name.endswith("_"))
    c.add(index, layouts=("dense", "permuted", "sliced", "flipped"))  # distinct ones
    if "scalar" in name:
        return (lambda x, i: getattr(tl, name)(x, axis, i, 1.0),
                lambda x, i: (x.scatter_ if name.endswith("_") else x.scatter)(axis, i, 1.0 if dtype in FLOATS else 1))
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
    return (lambda x, i, s: getattr(tl, name)(x, axis, i, s, alpha),
            lambda x, i, s: getattr(x, name)(axis, i, s, alpha=alpha))


@op("index", "index_put", "index_put_")
def index_many(c, name):
    shape = c.shape(least=1, low=1)
    axes = c.note(axes=c.r.sample(range(len(shape)), c.r.randint(1, min(3, len(shape)))))
    common = c.shape(rank=c.r.randint(1, 2))
    indices = [c.index(shape[a], common, 0.01, -shape[a]) for a in axes]
    if c.chance(0.3):  # a mask for the first, all others meet its number or have one element
        first = axes[0]
        mask = np.array([c.chance(0.5) for _ in range(shape[first] + c.chance(0.05))], bool)
        n = int(mask.sum())
        indices = [mask] + [c.index(shape[a], (c.r.choice((1, n)),), 0.01, -shape[a]) for a in axes[1:]]
    at = [slice(None)] * len(shape)
    for a, index in zip(axes, indices):
        at[a] = to_torch(index)
    at = tuple(at)
    places = outcome(lambda: torch.arange(math.prod(shape)).reshape(shape)[at])[0]
    # what stays of several is torch's secret: then sums, which bool has not
    is_distinct = places is not None and places.unique().numel() == places.numel()
    dtype = c.input(ALL if is_distinct or name == "index" else ALL[:-1], shape, is_target=name.endswith("_"))
    is_sum = c.note(is_sum=dtype != "bool" and (not is_distinct or c.chance(0.5)))
    for index in indices:
        c.add(index, layouts=("dense", "permuted", "sliced", "flipped"))
    n = len(axes)
    if name == "index":
        return lambda x, *i: tl.index(x, axes, list(i), n), lambda x, *i: x[at]
    c.input(dtype, c.part(tuple(places.shape)) if places is not None else ())

    def theirs(x, *rest):  # torch's index_put takes no slices: each element by all its indices
        where = torch.arange(x.numel()).reshape(x.shape)[at]
        return getattr(x, name)(torch.unravel_index(where, x.shape), rest[-1], accumulate=is_sum)
    return lambda x, *rest: getattr(tl, name)(x, axes, list(rest[:-1]), n, rest[-1], is_sum), theirs


@op("masked_select", "nonzero", "one_hot", "bincount")
def by_data(c, name):
    shape = c.shape()
    if name in ("one_hot", "bincount"):
        n = c.size(1)
        ids = c.add(c.index(n, shape if name == "one_hot" else (c.size(),), 0))
        if name == "bincount" and c.chance(0.5):
            c.input(WIDE, ids.shape)
            c.wants_grad = False  # torch has none
            return lambda i, w: tl.bincount(i, n, w), lambda i, w: torch.bincount(i, w, minlength=n)
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
    return (lambda *x: getattr(tl, name)(list(x), n, axis),
            lambda *x: (torch.cat if name == "concat" else torch.stack)(x, axis))


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


@op("flip", "roll", "repeat", "tile", "repeat_interleave", "repeat_counts", "triu", "tril")
def reordering(c, name):
    shape = c.shape(least=2 if name.startswith("tri") else 1)
    rank = len(shape)
    c.input(ALL, shape)
    axes = c.note(axes=c.r.sample(range(rank), c.r.randint(1, rank)))
    shifts, k = c.note(shifts=[c.r.randint(-9, 9) for _ in axes]), c.note(k=c.r.randint(-3, 3))
    counts = c.note(counts=[c.r.choice((1, 1, 1, 2, 2, 0)) for _ in range(rank + c.r.randint(0, 1))])
    few = c.note(few=counts[:c.r.randint(1, len(counts))])
    if name == "repeat_counts":
        c.add(np.array([c.r.randint(0, 3) for _ in range(shape[axes[0]])], np.int64))
    return {"flip": (lambda x: tl.flip(x, axes, len(axes)), lambda x: torch.flip(x, axes)),
            "roll": (lambda x: tl.roll(x, shifts, axes, len(axes)), lambda x: torch.roll(x, shifts, axes)),
            "repeat": (lambda x: tl.tile(x, len(counts), counts), lambda x: x.repeat(counts)),  # tl_tile is both
            "tile": (lambda x: tl.tile(x, len(few), few), lambda x: torch.tile(x, few)),
            "repeat_interleave": (lambda x: tl.repeat_interleave(x, axes[0], abs(k)),
                                  lambda x: torch.repeat_interleave(x, abs(k), axes[0])),
            "repeat_counts": (lambda x, n: tl.repeat_counts(x, axes[0], n),
                              lambda x, n: torch.repeat_interleave(x, n, axes[0])),
            "triu": (lambda x: tl.triu(x, k), lambda x: torch.triu(x, k)),
            "tril": (lambda x: tl.tril(x, k), lambda x: torch.tril(x, k))}[name]


@op("sort", "argsort", "topk", "unique", "searchsorted")
def order(c, name):
    shape = c.shape()
    down = c.note(down=c.chance(0.5))
    if name == "searchsorted":
        dtype = c.dtype(FLOATS + ["int64", "int32", "uint8"])
        c.add(np.sort(c.values(dtype, (c.size(),))), layouts=("dense", "sliced"))
        c.input(dtype, shape)
        return (lambda a, b: tl.searchsorted(a, b, down),
                lambda a, b: torch.searchsorted(a.contiguous(), b.contiguous(), right=down))
    if name == "topk":  # torch leaves the order of equal elements open
        c.add(c.distinct(c.dtype(FLOATS), shape), layouts=("dense", "permuted", "sliced", "flipped"))
    else:
        c.input(ALL, shape)
    if name == "unique":
        c.wants_grad = False  # torch has none
        return (lambda x: results(tl.unique, x, n=3),
                lambda x: list(torch.unique(x, sorted=True, return_inverse=True, return_counts=True)))
    axis = c.axis(len(shape))
    if name == "topk":
        k = c.note(k=c.r.randint(0, shape[axis] + (1 if c.chance(0.05) else 0)) if shape and axis < len(shape) else 1)
        return lambda x: results(tl.topk, x, k, axis, down), lambda x: list(torch.topk(x, k, axis, down))
    if name == "argsort":
        return lambda x: tl.argsort(x, axis, down), lambda x: torch.sort(x, dim=axis, descending=down, stable=True)[1]
    return (lambda x: results(tl.sort, x, axis, down),
            lambda x: list(torch.sort(x, dim=axis, descending=down, stable=True)))


# ---- Views, casts ----

@op("select", "slice", "view", "reshape", "transpose", "permute", "expand", "broadcast_to", "squeeze", "unsqueeze",
    "flatten", "unflatten", "diagonal", "as_strided")
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


CASTS = FLOATS + INTEGERS + ["int16", "int8", "float8_e4m3fn", "float8_e5m2"]


@op("cast", "round_to")
def cast(c, name):
    source, to = (c.dtype(CASTS),
                  c.note(to=c.dtype(CASTS if name == "cast" else FLOATS + ["float8_e4m3fn", "float8_e5m2"])))
    c.is_special = c.is_special and to in FLOATS + ["float8_e4m3fn", "float8_e5m2"]  # no integer is NaN or infinite
    if source in FLOATS + INTEGERS:
        c.input(source, c.shape(), "positive" if to == "uint8" else "normal")
    else:
        c.add(c.values("float32", c.shape(), "positive" if to == "uint8" else "normal").astype(NUMPY[source]),
              layouts=("dense", "permuted", "sliced"))
    c.wants_grad = source in FLOATS and to in FLOATS
    mode = c.note(mode=c.r.choice(("NEAREST", "SATURATE")))
    limit = (math.inf if to == "float64" else float(ml_dtypes.finfo(NUMPY[to]).max)
             if to not in INTEGERS + ["int16", "int8"] else 0)

    def saturated(x):  # through f64, which has all these numbers, unless it has the dtype already
        return x if x.dtype == TORCH[to] else x.double().clamp(-limit, limit).to(TORCH[to])
    if name == "cast" or mode == "NEAREST":
        return (lambda x: tl.cast(x, NUMPY[to]) if name == "cast" else tl.round_to(x, NUMPY[to], tl.NEAREST),
                lambda x: x.to(TORCH[to]))
    c.wants_grad = False  # ours passes straight through, that of a clamp does not
    return lambda x: tl.round_to(x, NUMPY[to], tl.SATURATE), saturated


# ---- Creation, grids ----

@op("zeros", "ones", "full", "arange", "linspace", "eye")
def creation(c, name):
    shape, dtype = c.note(shape=c.shape()), c.note(dtype=c.dtype())
    kind, t, n = NUMPY[dtype], TORCH[dtype], c.note(n=c.size())
    value = c.note(value=c.r.choice((0, 1, 3, 7)) if dtype in INTEGERS
                   else c.r.choice((0.1, -0.0, 1e30 if dtype in WIDE else 3e4, math.inf, math.nan, -2.5)))
    start, step = c.note(numbers=(c.r.randint(0, 9), c.r.randint(1, 4)) if dtype in INTEGERS
                         else (c.r.choice((0.1, -3.0, 2)), c.r.choice((0.3, 1.0, -0.7))))
    columns = c.note(columns=c.size())
    if name in ("arange", "linspace") and dtype == "bool":
        dtype = c.note(dtype="int64")
        kind, t = NUMPY[dtype], TORCH[dtype]
    wide = torch.float64 if dtype in FLOATS else t
    # torch computes n from the end, which rounds.
    values = start + step * torch.arange(n, dtype=torch.float64 if dtype in FLOATS else torch.int64)
    return {"zeros": (lambda: tl.zeros(len(shape), list(shape), kind, None), lambda: torch.zeros(shape, dtype=t)),
            "ones": (lambda: tl.ones(len(shape), list(shape), kind, None), lambda: torch.ones(shape, dtype=t)),
            "full": (lambda: tl.full(len(shape), list(shape), value, kind, None),
                     lambda: torch.full(shape, value, dtype=t)),
            "arange": (lambda: tl.arange(start, step, n, kind, None), lambda: values.to(t)),
            "linspace": (lambda: tl.linspace(start, start + 3 * step, n, kind, None),
                         lambda: torch.linspace(start, start + 3 * step, n, dtype=wide).to(t)),
            "eye": (lambda: tl.eye(n, columns, kind, None), lambda: torch.eye(n, columns, dtype=t))}[name]


@op("zeros_like", "ones_like", "full_like", "empty_like", "detach", "meshgrid")
def creation_like(c, name):
    if name == "meshgrid":
        dtype, n, is_xy = c.dtype(), c.r.randint(1, 3), c.note(is_xy=c.chance(0.5))
        for _ in range(n):
            c.input(dtype, (c.size(),))
        return lambda *x: grids(x, is_xy), lambda *x: list(torch.meshgrid(*x, indexing="xy" if is_xy else "ij"))
    dtype = c.input(ALL, c.shape())
    value = c.note(value=c.r.choice((0, 1, 3)) if dtype in INTEGERS else c.r.choice((0.1, -2.5, math.nan)))
    own = {"full_like": (lambda x: tl.full_like(x, value), lambda x: torch.full_like(x, value)),
           "detach": (tl.detach, torch.detach),
           "empty_like": (lambda x: tl.fill_(tl.empty_like(x), 1), lambda x: torch.empty_like(x).fill_(1))}
    return own.get(name) or (getattr(tl, name), getattr(torch, name))


def grids(inputs, is_xy):
    n = len(inputs)
    slots = (ctypes.c_void_p * n)()
    with tl.scope():
        tl.library.tl_meshgrid((ctypes.c_void_p * n)(*[x._as_parameter_ for x in inputs]), n, is_xy, slots)
        made = [Tensor(p) for p in slots if p]
    tl.check()
    return made


# ---- Attention with options, optimizers ----

@op("attention")
def attend_with_options(c, name):
    B, T, G, D, dtype = c.r.randint(1, 2), c.r.randint(1, 5), c.r.randint(1, 2), c.r.randint(1, 6), c.dtype(FLOATS)
    S, H, causal = T + c.r.randint(0, 3), G * c.r.randint(1, 2), c.note(causal=c.chance(0.6))
    c.is_special = False  # torch takes NaN for a key that nobody sees
    window, scale = c.note(window=c.r.choice((0, 0, 1, 2, 3)) if causal else 0), c.note(scale=c.r.choice((0.0, 0.7)))
    for shape in ((B, T, H, D), (B, S, G, D), (B, S, G, D)):
        c.input(dtype, shape, layouts=("dense",))
    seen, mask, first = visible(T, S, causal, window), None, None
    if c.chance(0.4):
        first = np.cumsum(c.index(2, (B, T), wrong=0), 1).astype(c.note(first_key=c.r.choice(("int64", "int32"))))
        seen = (seen & (torch.arange(S) >= torch.from_numpy(first)[:, :, None]))[:, None]
    added = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -torch.inf)
    if c.chance(0.6):
        kind, shape = c.note(mask=c.r.choice(("bool", dtype))), c.part((B, H, T, S))
        mask = c.values(kind, shape)
        theirs = to_torch(mask)
        if outcome(lambda: theirs.expand(B, H, T, S))[0] is None:
            added = None
        elif kind == "bool":
            added = torch.zeros(shape, dtype=torch.float64).masked_fill(~theirs, -torch.inf) + added
        else:
            added = theirs.double() + added
    if added is None or not torch.isfinite(added.expand(B, H, T, S).amax(-1)).all():
        c.wants_grad = False  # a query without keys: torch's formula has NaN on the way back

    def ours(*x):
        return list(with_second(tl.library.tl_attention, *x,
                                attention_options(tl.tensor(mask) if mask is not None else None, causal, window,
                                                  scale, tl.tensor(first) if first is not None else None)))

    def theirs(q, k, v):  # lse is f32 at least
        if added is None:
            raise RuntimeError("the mask does not broadcast")
        out, lse = plain_attention(q, k, v, added, scale)
        return [out, lse if lse.dtype == torch.float64 else lse.float()]
    return ours, theirs


@op("sgd_", "adagrad_", "rmsprop_", "adam_")
def optimizer(c, name):
    kind = {"adam_": c.r.choice(("adam", "adamw"))}.get(name, name[:-1])
    options = c.note(options=dict(c.r.choice([o for k, o in OPTIMIZERS if k == kind])))
    dtype = c.dtype(FLOATS if kind == "sgd" else WIDE + ["bfloat16"])  # torch's eps is 0 in f16
    shape, n_steps = (c.size(1), c.size(1)), c.note(n_steps=c.r.randint(1, 4))
    c.wants_grad = False
    c.input(dtype, shape, is_target=True, layouts=("dense", "permuted", "sliced"))
    for _ in range(n_steps):
        c.input(dtype, shape)
    state = NUMPY["float64" if dtype == "float64" else "float32"]

    def ours(p, *grads):
        peer = Ours(kind, p, state, options)
        for i, g in enumerate(grads):
            peer.step(i + 1, g)
        return p

    def theirs(p, *grads):
        peer = PEERS[kind]([p], foreach=False, **options)
        for g in grads:
            p.grad = (g.clone(memory_format=torch.preserve_format) if g.stride() == p.stride()
                      else torch.empty_like(p).copy_(g))
            peer.step()
        p.grad = None
        return p
    return ours, theirs


# ---- What differs, and why ----

def beside_scalar(c):
    return any(x.values.ndim == 0 for x in c.inputs) and len(set(c.dtypes())) > 1


def broadcast_shape(c):
    return np.broadcast_shapes(*(x.values.shape for x in c.inputs))


def at_bound(c):
    values = c.inputs[0].values
    return is_real(values) and any((values == np.asarray(n).astype(values.dtype)).any()
                                   for n in c.notes.get("bounds", (c.notes["number"],)) if n is not None)


# (ops, whether a call is such a case, reason); it holds for values and gradients as for refusals.
KNOWN = [
    (("bitwise_left_shift", "bitwise_right_shift"), lambda c: set(c.dtypes()) == {"bool"},
     "torch shifts no bool; Python's functions refuse it too"),
    (("atan2", "atan2_"), lambda c: "bool" in c.dtypes(), "torch has no gradient of atan2 beside bool"),
    (("fill_", "fill_scalar_"), lambda c: c.inputs[0].layout == "expanded",
     "torch fills expanded tensors, and refuses the gradient"),
    (tuple(CHANGING), lambda c: c.is_special and c.dtypes()[1] == "float64" != c.dtypes()[0],
     "in place, torch computes in the wider dtype; we in f32 for what becomes f32 or less"),
    (("pow_scalar", "pow_scalar_"), lambda c: c.notes["number"] is False and c.is_special,
     "the power False has NaN gradients at 0 and NaN in torch, the power 0 has not"),
    (("norm",), lambda c: c.is_special and abs(c.notes["p"]) == math.inf,
     "the gradient of the largest magnitude is 0 in torch where that is NaN"),
    (("prod", "prod_all", "cumprod", "cumprod_"), lambda c: c.dtypes()[0] == "float16"
     and np.prod(np.maximum(np.abs(c.inputs[0].values.astype(np.float64)), 1)) > 6e4,
     "torch multiplies in f16 and may overflow on the way, in gradients too; ours is rounded once "
     "(test_torch_reduce.py)"),
    (("addcmul", "addcdiv", "swiglu"), lambda c: c.is_special and 0 in broadcast_shape(c),
     "nothing flows back from an empty result; where a step before the last one has elements, torch or we have 0 times "
     "NaN"),
    (("std",), lambda c: c.dtypes()[0] == "float64" and c.inputs[0].layout == "expanded",
     "torch's deviation of equal numbers may be the rounding error of their mean, by which its gradient divides; ours "
     "is 0 (test_torch_reduce.py)"),
    (("bincount",), lambda c: c.inputs[0].values.size == 0,
     "torch counts in i64 where there is nothing to count, whatever the weights are"),
    (("cmp",), beside_scalar, "torch brings a scalar to the other's dtype, where it may wrap; we compare the numbers"),
    (("cmp_scalar",), lambda c: c.dtypes() == ["uint8"] and c.notes["number"] in (-1, 300),
     "torch wraps the number; we compare the numbers"),
    (("pow_scalar", "rpow_scalar", "pow_scalar_"),
     lambda c: c.dtypes() == ["bool"] and isinstance(c.notes["number"], bool),
     "torch takes the powers False and True of bool, and no other way to them"),
    (("rpow_scalar",), lambda c: isinstance(c.notes["number"], bool),
     "an internal error of PyTorch before 2.15, NaN gradients of False^x since"),
    (("cumsum_", "cumprod_"), lambda c: c.dtypes() == ["bool"],
     "torch refuses scans of bool in place only where there are elements"),
    (("masked_fill_", "index_put_"), lambda c: c.inputs[0].layout == "expanded",
     "torch has deprecated these changes of expanded tensors; we refuse them"),
    (("pad",), lambda c: c.notes["mode"] != "constant" and 0 in c.inputs[0].values.shape,
     "torch pads no empty tensors except with a constant"),
    (("take_along",), lambda c: "out_of_range" in c.notes, "torch wraps indices here; we refuse those out of range"),
    (("softmax", "log_softmax"), lambda c: c.dtypes()[0] in INTEGERS,
     "torch refuses integers only where there are elements"),
    (("matmul",), lambda c: len(set(c.dtypes())) > 1 and any(0 in x.values.shape for x in c.inputs),
     "PyTorch before 2.15 takes two dtypes where there is nothing to multiply"),
    (("pow", "pow_"), lambda c: c.dtypes()[1] == "bool", "torch has no gradient of powers with bool exponents"),
    (("minimum_scalar", "maximum_scalar"), lambda c: IS_OLD and c.dtypes() == ["uint8"]
     and c.notes["number"] in (-1, 300),
     "PyTorch before 2.15 wraps or refuses bounds out of range"),
    (("minimum_scalar", "maximum_scalar", "clamp", "clamp_"),
     lambda c: IS_OLD and at_bound(c), "the gradient at a bound is 1 in PyTorch before 2.15, and 0 since"),
]
# Results that are sums, or differences of numbers of some size.
SUMS = set(("sum mean nansum prod logsumexp var std norm sum_all mean_all prod_all cumsum cumprod cumsum_ cumprod_ "
            "log_softmax softmax layer_norm rms_norm add_rms_norm add_layer_norm mse_loss l1_loss smooth_l1_loss "
            "bce_with_logits cross_entropy nll_loss linear_cross_entropy matmul linear rope attention scatter_add "
            "scatter_add_ index_add index_add_ index_put index_put_ bincount sgd_ adagrad_ rmsprop_ adam_").split())
# Ops whose gradients are sums even where shapes are equal.
COLLECT = set("gather take_along index index_select embedding as_strided pad repeat tile expand broadcast_to".split())
# Where torch gives zeros of either sign, by the place of an element or by fma.
UNSIGNED = set("addcmul addcdiv unique relu relu_ maximum minimum clamp clamp_ maximum_scalar minimum_scalar lerp "
               "lerp_scalar max min".split())
if not torch.nn.functional.gelu(torch.full((8,), -0.0)).signbit().all():  # oneDNN's on some processors; -0 elsewhere
    UNSIGNED |= {"gelu_erf", "gelu_erf_"}
# Where views and copies are meant to differ.
COPIES = {"flip": "a view of ours, as tally.h says"}
# Losses that are one term per element: a gradient is a sum only where its operand was broadcast.
TERMS = set("mse_loss l1_loss smooth_l1_loss bce_with_logits".split())
# op: (ulps in 16 bits, or those of results and of gradients; least magnitude assumed for results; for gradients; how
# many times torch's own error is allowed in f32, and in 16 bits if it is more than 2)
# Differences of numbers near 1 (deviations from a mean, probabilities and their targets) may be 0: errors are those
# of 1.
SLACK = {name: (1, 1.0, 1.0) for name in ("layer_norm", "add_layer_norm", "rms_norm", "add_rms_norm", "cross_entropy",
                                          "linear_cross_entropy", "softmax", "log_softmax", "logsumexp", "var", "std",
                                          "attention")}
# Rows of nearly equal numbers: rounding errors grow by 1 / their deviation, here as there.
SLACK.update({name: (1, 1.0, 1.0, 4) for name in ("layer_norm", "add_layer_norm", "rms_norm", "add_rms_norm")})
# The sum over g y in the gradient, times factors near 3, takes the y that was rounded.
SLACK.update({name: ((1, 4), 1.0, 1.0) for name in ("attention",)})
# A difference that is rounded before it is squared; three factors y that were rounded, and their products.
SLACK.update(smooth_l1_loss=(2, 0.0, 0.0), rsqrt=(2, 0.0, 0.0), rsqrt_=(2, 0.0, 0.0))
# The product, which is of some size, is rounded before the bias is added.
SLACK.update(linear=(1, 2.0, 0.0))
# Losses of either sign, near 1, may cancel in their sum; with weights each is rounded in several steps.
SLACK.update(bce_with_logits=(4, 1.0, 1.0))
# What is left when a multiple near the number is taken away.
SLACK.update({name: (1, 0.1, 0.0) for name in ("remainder", "remainder_", "remainder_scalar", "remainder_scalar_")})
# 1 - y has no more digits than 1 where y is near 1: in f32 6e-8, times a seed of at most 4.
SLACK.update({name: (1, 0.0, 0.02) for name in ("tanh", "tanh_", "sigmoid", "sigmoid_")})
# Two terms near 1 that may cancel; torch does not round the product before it is added (fma).
SLACK.update({name: (1, 0.1, 0.0) for name in ("lerp", "lerp_scalar", "addcmul", "addcdiv")})
# The slope is a sum that is 0 somewhere between -0.8 and -1.3.
SLACK.update({name: (1, 0.0, 0.1) for name in ("gelu", "gelu_", "gelu_erf", "gelu_erf_", "silu", "silu_", "swiglu")})


# op: (special numbers that it does not get, reason)
PLAIN = {name: (("inf", "huge"), "torch has NaN where a factor is 0 and the other infinite; ours is the limit "
                "(test_torch_ops.py has its values)")
         for name in ("gelu", "gelu_", "gelu_erf", "gelu_erf_", "silu", "silu_", "swiglu")}
PLAIN.update({name: (("inf", "huge", "subnormal"),
                     "torch's products flush subnormal 16-bit numbers to 0 where the machine has instructions for them")
              for name in ("matmul", "linear", "attention", "linear_cross_entropy")})
PLAIN.update({name: (("subnormal",), "g/b overflows before it meets a/b")
              for name in ("div", "div_", "rdiv_scalar", "reciprocal")})
PLAIN.update(addcdiv=(("subnormal", "zero"), "the same"),
             addcmul=(("huge",), "torch's product is not rounded (fma), and overflows later"))
PLAIN.update({name: (("inf", "huge", "subnormal"), "squares and their roots")
              for name in ("adagrad_", "rmsprop_", "adam_")})
PLAIN.update({name: (("nan", "inf", "huge", "subnormal"),
                     "torch's gradient divides by the number itself; ours is the product of the others")
              for name in ("prod", "prod_all", "cumprod", "cumprod_")})
PLAIN.update({name: (("inf",), "a row may be constant: 0 times infinity")
              for name in ("layer_norm", "add_layer_norm", "rms_norm", "add_rms_norm")})
PLAIN.update(bce_with_logits=(("inf",), "ours is made of two losses, one of them 0 times infinity"))
PLAIN.update({name: (("subnormal", "huge"), "torch's quotient overflows, ours is not needed")
              for name in ("remainder", "remainder_", "remainder_scalar", "remainder_scalar_")})
PLAIN.update(norm=(("subnormal",), "powers of subnormal numbers are 0"))
PLAIN.update(lerp=(("huge",), "torch's product is not rounded (fma), and overflows later"),
             lerp_scalar=(("huge",), "the same"),
             unique=(("nan", "zero"), "NaNs are distinct, and zeros equal, in an order that torch leaves open"))


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
    return leaves, views, changed + many(f(*views))


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
    return leaves, views, changed + many(f(*views))


def geometry(shape, stride, shared):
    """What must agree of a result: the inputs whose memory it shows, and how."""
    if not math.prod(shape):
        return None  # there is no memory to share
    return shared, [s for n, s in zip(shape, stride) if n > 1] if any(shared) else None


def our_geometry(y, views):
    shared = [tl.shares_storage(y, x) for x in views]
    return (geometry(y.shape, y.stride, shared) if any(shared) or not math.prod(y.shape)
            else (shared, None if tl.is_contiguous(y) else "not dense"))


def their_geometry(y, views):
    return geometry(y.shape, y.stride(), [y.untyped_storage()._cdata == x.untyped_storage()._cdata for x in views])


def theirs_with_gradients(c, f, is_wide=False, seed=None):
    """Results, the gradients of all float leaves if the first result has any, both as arrays, and the geometry of the
    results."""
    leaves, views, outputs = theirs_of(c, f, is_wide)
    arrays, z = [from_torch(y) for y in outputs], outputs[0]
    places = None if is_wide or c.has_flips() else [their_geometry(y, views) for y in outputs]
    if not z.requires_grad:
        return arrays, [], places
    real = [x for x in leaves if x.requires_grad]
    seed = seed_of(tuple(z.shape), arrays[0].dtype) if seed is None else seed.astype(np.float64)
    grads = torch.autograd.grad(z, real, to_torch(seed), allow_unused=True)
    return arrays, [from_torch(torch.zeros_like(x) if g is None else g) for x, g in zip(real, grads)], places


def ours_with_gradients(c, f, wants):
    leaves, views, outputs = ours_of(c, f)
    arrays, grads = [y.numpy() for y in outputs], []
    places = None if c.has_flips() else [our_geometry(y, views) for y in outputs]
    if wants:
        tl.backward(outputs[0], tl.tensor(seed_of(arrays[0].shape, arrays[0].dtype)), 0)
        for x, leaf in zip(c.inputs, leaves):
            if x.has_grad:
                grad = leaf.grad
                grads.append(grad.numpy() if grad else np.zeros_like(x.leaf))
    return arrays, grads, places


def is_far(c, x, y, e, is_sum, is_gradient, n_repeats, kind):
    """Whether x, ours, is farther from e, the exact result, than is allowed; y is torch's. All are arrays of f64; e is
    None if there is no exact result."""
    n_ulps, *floors, times = (SLACK.get(c.name, (1, 0.0, 0.0)) + (1,))[:4]
    n_ulps = n_ulps[is_gradient] if isinstance(n_ulps, tuple) else n_ulps
    least = floors[is_gradient] if kind in WIDE or is_sum else 0.0
    if is_sum and kind in WIDE:
        least = max(least, 1.0)  # terms are near 1, and may cancel
    # A sum of terms near 1 that may cancel. Both libraries round them one by one.
    if is_gradient and n_repeats > 1:
        n_ulps += max(3, math.sqrt(n_repeats))
        least = max(least, 0.25 if c.name in SUMS else 0.1)
    scale = np.maximum(np.abs(e if e is not None else y), least)
    if is_sum:
        scale = np.full_like(scale, scale.max())
    if e is None:
        return np.abs(x - y) > np.maximum(RELATIVE[kind] * scale, 2.0 ** -1074)
    own = np.abs(y - e)
    own = np.full_like(own, own.max()) if is_sum else own
    if kind in WIDE:
        return np.abs(x - e) > np.maximum(np.maximum(RELATIVE[kind] * scale, times * own), 2.0 ** -149)
    return np.abs(x - e) > max(2, times) * own + n_ulps * ulp(scale, kind)


def array_difference(c, x, y, exact, is_sum, is_gradient, n_repeats, kind):
    """What differs between two arrays, or None. exact() is the result in f64."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{x.dtype}{x.shape}, torch {y.dtype}{y.shape}"
    if not x.size or x.tobytes() == y.tobytes():
        return None
    if x.dtype.kind in "iub":
        return None if np.array_equal(x, y) else f"\n{x}\ntorch\n{y}"
    p, q = x.astype(np.float64), y.astype(np.float64)
    if not same_specials(p, q):
        return f"nan or inf\n{x}\ntorch\n{y}"
    if (not is_gradient and not is_sum and c.name not in UNSIGNED
            and not np.array_equal(np.signbit(p[q == 0]), np.signbit(q[q == 0])) and not p[q == 0].any()):
        return f"sign of zero\n{x}\ntorch\n{y}"
    e = None if kind == "float64" and not c.is_mixed() else exact().astype(np.float64)
    finite = np.isfinite(q) if e is None else np.isfinite(q) & np.isfinite(e)
    far = (is_far(c, p[finite], q[finite], None if e is None else e[finite], is_sum, is_gradient, n_repeats, kind)
           if finite.any() else np.zeros(0, bool))
    if not far.any():
        return None
    return f"off by {np.abs(p - q)[finite][far].max():g}, {far.sum()} elements\n{x}\ntorch\n{y}\nexact\n{e}"


def n_repeats(c, x, shape):
    """How many terms each element of the gradient of x sums, because x was expanded or broadcast to the result's
    shape."""
    n = x.values.size // max(x.leaf.size, 1) if x.layout == "expanded" else 1
    if c.name in TERMS:
        shape = broadcast_shape(c)
    elif c.name in SUMS | COLLECT:
        return n
    return n * max(1, math.prod(shape) // max(x.values.size, 1))


def difference(c, theirs, a, b):
    """What differs between the results of both, or None."""
    wide = []

    def exact(k, i):
        if not wide:
            wide.extend(theirs_with_gradients(c, theirs, True,
                                              seed_of(b[0][0].shape, b[0][0].dtype) if b[1] else None)[:2])
        return wide[k][i]
    if len(a[0]) != len(b[0]):
        return f"{len(a[0])} results, torch {len(b[0])}"
    narrow = b[0][0].dtype  # the gradient comes in the first result's
    real = [x for x in c.inputs if x.has_grad]
    for k, what in enumerate(("result", "gradient")):
        for i, (x, y) in enumerate(zip(a[k], b[k])):
            kind = (y.dtype.name if k == 0 or y.dtype.kind in "iub"
                    else min(y.dtype, narrow, key=lambda d: ml_dtypes.finfo(d).nmant).name)
            is_sum = c.name in SUMS
            if k == 1:
                is_sum = (is_sum or kind not in WIDE or c.name in COLLECT or real[i].layout == "expanded"
                          or real[i].values.shape != b[0][0].shape)
            wrong = array_difference(c, x, y, lambda: exact(k, i), is_sum, k == 1,
                                     n_repeats(c, real[i], b[0][0].shape) if k == 1 else 1, kind)
            if wrong:
                return f"{what} {i}: {wrong}"
    if a[2] != b[2] and c.name not in COPIES:
        return f"views (inputs whose memory is shared, strides): {a[2]}, torch {b[2]}"
    return None


def perform(number, name):
    """(call, difference or None, whether both refused)"""
    c = Call(number, name)
    ours, theirs = OPS[name](c)
    b, their_error = outcome(lambda: theirs_with_gradients(c, theirs))
    a, error = outcome(lambda: ours_with_gradients(c, ours, bool(b and b[1])))
    if (error is None) != (their_error is None):
        return c, f"ours: {error or 'accepted'}\ntorch: {their_error or 'accepted'}", False
    return (c, None, True) if error else (c, difference(c, theirs, a, b), False)


# ---- What is not here ----

# The functions of tally.h that take or give tensors and have no row in OPS: the file that tests them.
ELSEWHERE = {
    "tests/test_scope.c": "scope_return keep drop",
    "tests/test_tensor.c": "empty from_data from_external rank size stride offset numel bytes dtype_of device_of "
                           "purpose_of is_contiguous shares_storage storage_bytes version_of data at item item_int "
                           "to_data describe set_purpose to",
    "tests/test_samples.c": "shape",
    "tests/support/samples.c": "adam_8bit_ cholesky_ex lu_ex lu_solve solve_ex inv_ex slogdet qr_r eigvalsh "
                               "eigvals svdvals "
                               "is_complex real imag conj complex polar angle ifft rfft irfft",
    "tests/test_random.c": "uniform normal bernoulli integers uniform_like normal_like integers_like uniform_ normal_ "
                           "bernoulli_ trunc_normal_",
    "tests/python/test_torch_random.py": "trunc_normal permutation multinomial",
    "tests/python/test_print.py": "print",
    "tests/python/test_quantize.py": "quantize dequantize fake_quantize",
    "tests/python/test_torch_ops.py": "dropout rope_at",
    "tests/test_autograd.c": "requires_grad needs_grad is_leaf retain_grad grad_of set_grad zero_grad backward "
                             "gradients set_grad_hook graph_step graph_leaf",
    "tests/test_checkpoint.c": "checkpoint checkpoint_layers",
    "tests/python/test_optim_c.py": "sum_squares grad_norm clip_scale optimizer_add optimizer_step",
    "tests/python/test_optimizers.py": "lion_ muon_ ema_ schedule_free_ adafactor_",
    "tests/python/test_einops_c.py": "einsum einsum_letters einsum_plan pack unpack parse_shape",
    "tests/test_einops.c": "rearrange reduce expect",
    "tests/test_module.c": "init_kaiming_normal_ init_kaiming_uniform_ init_xavier_normal_ init_xavier_uniform_ "
                           "module_add_buffer module_add_parameter module_find_tensor module_forward module_tensor",
    "tests/python/test_models.py": "model_logits model_loss model_document_logits model_document_loss",
    "tests/test_cache.c": "generate model_extend model_next",
    "tests/python/test_data.py": "loader_next",
    "tests/test_loader.c": "loader_next_documents",
    "tests/python/test_safetensors.py": "safetensors_get safetensors_save",
    "tests/test_parallel.c": "model_pipeline",
    "tests/test_comm.c": "all_reduce all_reduce_ reduce_scatter all_gather all_to_all broadcast",
    "tests/python/test_gguf.py": "gguf_get gguf_writer_tensor",
    "tests/test_custom_op.c": "function scope_give gradient_of_output gradient_input gradient_output gradient_result "
                              "gradient_set call_input op_call",
}


def test_every_tensor_function_is_here_or_elsewhere():
    text = re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)
    declared = re.findall(r"TL_API\b([^;]*?)\btl_(\w+)\(([^;]*)\)[^;]*;", text)
    public = {name for before, name, after in declared if re.search(r"\btl_(tensor|quantized)\b", before + after)}
    elsewhere = [name for names in ELSEWHERE.values() for name in names.split()] + elementwise_rows.UNKNOWN
    samples = set(re.findall(r"\btl_(\w+)", (ROOT / "tests/support/samples.c").read_text()))
    here = list(OPS) + elsewhere
    assert len(public) > 280 and len(set(here)) == len(here) and not set(here) - public
    ops = set(re.findall(r"^OP\(\w+, (\w+)\)", (ROOT / "src/spec/op_list.h").read_text(), flags=re.M))
    unknown = sorted(public - set(here) - (ops & samples))  # a new op may have its samples alone
    assert not unknown, f"no test calls {', '.join('tl_' + name for name in unknown)}"
    for file, names in ELSEWHERE.items():
        test = (ROOT / file).read_text()
        for name in names.split():
            assert re.search(rf"\btl[_.](?:library\.tl_)?{name}\b", test), f"{file} does not call tl_{name}"


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
        first = int(os.environ.get("TALLY_FIRST", "0"))
        for i in [int(only)] if only else range(first, first + n_calls):
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
    show = int(os.environ.get("TALLY_SHOW", "5"))
    assert not failures, f"{len(failures)} calls differ: {dict(per_op)}\n" + "\n\n".join(failures[:show])
    if not only:
        assert sum(calls.values()) >= 20000 and all(calls[name] for name in names)
