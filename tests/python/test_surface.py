"""The Python package against PyTorch: random programs of a few lines, run by both.

Each case (surface_cases.py) is source text in which `t` is the library. Compared are values, dtypes, shapes, strides,
which results share memory with which inputs and where, whether they require grad, the gradients of all inputs, what a
write to a result does to the inputs, and the class of the exception where torch raises one; a message that has one of
the PHRASES in torch has it here too.

TALLY_CALL=n replays one case, TALLY_SOAK=n runs n times as many, TALLY_SHOW=n shows that many failures. Tolerances are
those of test_differential.py: f64 1e-10 and f32 1e-5 of the largest element, 16 bits twice torch's own error plus 2
ulp. KNOWN lists what differs by intention or waits.
"""
import collections
import math
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import torch

import tally
from surface_cases import OPS, POOL, Case
from torch_peer import RELATIVE, from_torch, same_specials, to_torch, ulp

N_CASES = 21000

# Words that people search for: where torch says them, we do, numbers included.
PHRASES = [re.compile(p) for p in (
    r"view size is not compatible with input tensor's size and stride",
    r"Boolean value of Tensor with (more than one value|no values) is ambiguous",
    r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) at non-singleton dimension \d+",
    r"mat1 and mat2 shapes cannot be multiplied \(\d+x\d+ and \d+x\d+\)",
    r"Dimension out of range \(expected to be in range of \[-?\d+, -?\d+\], but got -?\d+\)",
    r"index -?\d+ is out of bounds for dimension \d+ with size \d+",
    r"a leaf Variable that requires grad is being used in an in-place operation",
    r"one of the variables needed for gradient computation has been modified by an inplace operation",
    r"Trying to backward through the graph a second time",
    r"element 0 of tensors does not require grad and does not have a grad_fn",
    r"grad can be implicitly created only for scalar outputs",
    r"shape '\[[-\d, ]*\]' is invalid for input of size \d+",
    r"Expected all tensors to be on the same device",
    r"result type (Float|Double|Half|Long|Int|Bool) can't be cast to the desired output type "
    r"(Float|Half|Long|Int|Short|Char|Byte|Bool)",
    r"expected (m1 and m2 to have the same dtype|scalar type)",
    r"Can't call numpy\(\) on Tensor that requires grad",
    r"only Tensors of floating point",
    r"output with shape \[[-\d, ]*\] doesn't match the broadcast shape \[[-\d, ]*\]",
    r"Sizes of tensors must match except in dimension \d+",
    r"too many indices for tensor of dimension \d+",
    r"a Tensor with \d+ elements cannot be converted to Scalar",
    r"only one dimension can be inferred",
    r"The expanded size of the tensor \(\d+\) must match the existing size \(\d+\) at non-singleton dimension \d+",
    r"Only Tensors created explicitly by the user",
    r"zero-dimensional tensor \(at position \d+\) cannot be concatenated",
    r"Integers to negative integer powers are not allowed",
    r"len\(\) of a 0-d tensor",
    r"iteration over a 0-d tensor",
)]


# ---- Both libraries ----

def is_real(values):
    return values.dtype.kind not in "iub"


def make(t, values):
    if t is torch:
        return to_torch(values)
    if values.dtype.name == "bfloat16":
        return tally.from_numpy(values).clone()
    return tally.tensor(values)


class Run:
    """What one library makes of a case: .results (flat), .leaves, or .error."""

    def __init__(self, case, t, is_wide=False):
        self.t, self.error, self.results, self.leaves, self.grads = t, None, [], [], []
        scope = {"t": t, "np": np, "math": math}
        for i, (values, wants_grad) in enumerate(case.leaves):
            leaf = make(t, values.astype("float64") if is_wide and is_real(values) else values)
            if wants_grad:
                leaf.requires_grad_()
            scope[f"leaf{i}"] = leaf
            self.leaves.append(leaf)
        try:
            exec(case.code(), scope)
            flatten(scope["results"], self.results, "")
            self.find_grads()
        except Exception as error:  # noqa: BLE001 (the class is compared)
            self.error = error

    def tensors(self):
        return [r for _, r in self.results if isinstance(r, self.t.Tensor)]

    def find_grads(self):
        outputs = [r for r in self.tensors() if r.requires_grad]
        self.n_outputs = len(outputs)
        wanted = [x for x in self.leaves if x.requires_grad]
        if outputs and wanted:
            values = [np.resize(POOL, math.prod(r.shape)).reshape(tuple(r.shape)).astype("float64") for r in outputs]
            seeds = [make(self.t, v).to(r.dtype) for v, r in zip(values, outputs)]
            self.grads = self.t.autograd.grad(outputs, wanted, seeds, allow_unused=True)
            self.grads = [self.t.zeros_like(x) if g is None else self.t.zeros_like(x) + g
                          for x, g in zip(wanted, self.grads)]

    def shares(self, x):
        """Which leaves a tensor shares memory with, and the offset there."""
        key = lambda y: y.untyped_storage().data_ptr() if y.numel() and not y.is_meta else None  # noqa: E731
        k = key(x)
        return [(i, x.storage_offset()) for i, leaf in enumerate(self.leaves) if k is not None and key(leaf) == k]

    def write(self):
        """Writes to every result that is not empty, and gives what the leaves hold then."""
        for x in self.tensors():
            places = sum((np.arange(n).reshape((n,) + (1,) * i) * s
                          for i, (n, s) in enumerate(zip(x.shape[::-1], x.stride()[::-1]))), np.zeros((), int))
            if x.numel() and not x.is_meta and np.unique(places).size == x.numel():  # no two elements in one place
                x.detach().fill_(1)
        return [array(x) for x in self.leaves]


def flatten(value, into, path):
    if isinstance(value, (tuple, list)) and not isinstance(value, (torch.Size, tally.Size)):
        into.append((path, (type(value).__name__.split(".")[-1] if hasattr(value, "_fields") else type(value).__name__,
                            len(value))))
        for i, item in enumerate(value):
            flatten(item, into, f"{path}[{i}]")
    elif isinstance(value, dict):
        flatten(sorted(value.items()), into, path)
    else:
        into.append((path, value))


def array(x):
    x = x.detach()
    return from_torch(x) if isinstance(x, torch.Tensor) else x.numpy().copy()


# ---- Comparing ----

def name_of(kind):
    return str(kind).split(".")[-1]


def plain(value):
    """What both libraries' values of the same meaning have in common."""
    if isinstance(value, (torch.Size, tally.Size)):
        return ("Size", tuple(value))
    if isinstance(value, (torch.dtype, tally.dtype)):
        return ("dtype", name_of(value))
    if isinstance(value, (torch.device, tally.device)):
        return ("device", str(value))
    if isinstance(value, str):
        return value.replace("torch.", "tally.")
    return value


class Compare:
    def __init__(self, case, ours, theirs):
        self.case, self.ours, self.theirs, self.exact = case, ours, theirs, None

    def difference(self):
        a, b = self.ours.results, self.theirs.results
        if [p for p, _ in a] != [p for p, _ in b]:
            return f"results {[p for p, _ in a]}, torch {[p for p, _ in b]}"
        for i, ((path, x), (_, y)) in enumerate(zip(a, b)):
            wrong = self.one(x, y, lambda: self.wide().results[i][1])
            if wrong:
                return f"result{path}: {wrong}"
        if self.ours.n_outputs != self.theirs.n_outputs:
            return f"{self.ours.n_outputs} results require grad, torch {self.theirs.n_outputs}"
        for i, (x, y) in enumerate(zip(self.ours.grads, self.theirs.grads)):
            wrong = self.values(array(x), array(y), lambda: self.wide().grads[i])
            if wrong:
                return f"gradient {i}: {wrong}"
        for i, (x, y) in enumerate(zip(self.ours.write(), self.theirs.write())):
            if x.tobytes() != y.tobytes() and (not is_real(x) or self.values(x, y, lambda: y)):
                return f"writing to the results leaves leaf{i} as\n{x}\ntorch\n{y}"
        return None

    def wide(self):
        if self.exact is None:
            self.exact = Run(self.case, torch, True)
        return self.exact

    def one(self, x, y, wide):
        if isinstance(y, torch.Tensor):
            return self.tensor(x, y, wide) if isinstance(x, tally.Tensor) else f"{x!r} is no tensor, torch {y}"
        if isinstance(x, tally.Tensor):
            return f"{x} is a tensor, torch {y!r}"
        if isinstance(y, np.ndarray):
            if not isinstance(x, np.ndarray) or x.dtype != y.dtype or x.shape != y.shape:
                return f"{x!r}, torch {y!r}"
            if (x.size and [s for n, s in zip(x.shape, x.strides) if n > 1]
                    != [s for n, s in zip(y.shape, y.strides) if n > 1]):
                return f"strides {x.strides}, torch {y.strides}"
            return self.values(x, y, wide)
        x, y = plain(x), plain(y)
        if type(x) is not type(y):
            return f"{x!r} ({type(x).__name__}), torch {y!r} ({type(y).__name__})"
        if isinstance(y, float):
            return (None if x == y or math.isnan(x) and math.isnan(y)
                    or math.isclose(x, y, rel_tol=2e-3 if self.has_narrow() else 1e-5, abs_tol=1e-6)
                    else f"{x!r}, torch {y!r}")
        return (None if x == y or x is y or isinstance(y, complex) and np.array_equal(x, y, equal_nan=True)
                else f"{x!r}, torch {y!r}")

    def has_narrow(self):
        return any(is_real(v) and v.dtype.itemsize == 2 for v, _ in self.case.leaves)

    def tensor(self, x, y, wide):
        if name_of(x.dtype) != name_of(y.dtype) or tuple(x.shape) != tuple(y.shape):
            return f"{name_of(x.dtype)}{list(x.shape)}, torch {name_of(y.dtype)}{list(y.shape)}"
        if x.is_meta or y.is_meta:
            return None if x.is_meta == y.is_meta else "on meta, or not"
        # Strides of a view are its meaning; a fresh result is dense here, torch may keep the operands' order of axes.
        shares = self.ours.shares(x), self.theirs.shares(y)
        if shares[0] != shares[1]:
            return f"shares memory with (leaf, offset) {shares[0]}, torch {shares[1]}"
        if (shares[0] and x.numel() and [s for n, s in zip(x.shape, x.stride()) if n > 1]
                != [s for n, s in zip(y.shape, y.stride()) if n > 1]):
            return f"strides {x.stride()}, torch {y.stride()}"
        if x.requires_grad != y.requires_grad or x.is_leaf != y.is_leaf:
            return f"requires_grad {x.requires_grad} is_leaf {x.is_leaf}, torch {y.requires_grad} {y.is_leaf}"
        return self.values(array(x), array(y), wide)

    def values(self, x, y, wide):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{x.dtype}{x.shape}, torch {y.dtype}{y.shape}"
        if not x.size or x.tobytes() == y.tobytes():
            return None
        if not is_real(x):
            return None if np.array_equal(x, y) else f"\n{x}\ntorch\n{y}"
        p, q = x.astype("float64"), y.astype("float64")
        if not same_specials(p, q):
            return f"nan or inf\n{x}\ntorch\n{y}"
        finite = np.isfinite(q)
        if not finite.any():
            return None
        kinds = ({v.dtype.name for v, _ in self.case.leaves if is_real(v)} | {x.dtype.name}
                 | {name_of(r.dtype) for r in self.theirs.tensors()})
        # With mixed operands, the narrowest dtype sets the tolerance.
        kind = next(k for k in ("bfloat16", "float16", "float32", "float64") if k in kinds)
        if near(x, y, kind):
            return None
        if kind != "float64":
            e = wide()
            e = (e if isinstance(e, np.ndarray) else array(e)).astype("float64")[finite]
            n, least = (8, 1.0) if kind == "float32" else (2, 1e-3)
            allowed = 2 * np.abs(q[finite] - e).max() + n * ulp(np.full_like(e, max(np.abs(e).max(), least)), kind)
            if np.isfinite(e).all() and (np.abs(p[finite] - e) <= allowed).all():
                return None
        return f"off by {np.abs(p[finite] - q[finite]).max():g}\n{x}\ntorch\n{y}"


def near(x, y, kind=None):
    """Within the dtype's tolerance, of the largest element."""
    p, q, kind = x.astype("float64"), y.astype("float64"), kind or x.dtype.name
    finite = np.isfinite(q)
    return (kind in RELATIVE and same_specials(p, q)
            and (not finite.any() or np.abs(p[finite] - q[finite]).max() <= RELATIVE[kind]
                 * max(1e-3, np.abs(q[finite]).max())))


CLASSES = (IndexError, TypeError, ValueError, KeyError, AttributeError, OverflowError, ZeroDivisionError, BufferError,
           SyntaxError, RuntimeError)


def class_of(error):
    """The class that an except clause would name; NotImplementedError is a RuntimeError."""
    return next((k for k in CLASSES if isinstance(error, k)), type(error))


def perform(number, name):
    """(case, difference or None, torch's error or None)"""
    c = Case(number, name)
    theirs, ours = Run(c, torch), Run(c, tally)
    if theirs.error is None and ours.error is None:
        return c, Compare(c, ours, theirs).difference(), None
    a, b = (f"{type(e).__name__}: {str(e)[:300]}" if e else "accepted" for e in (ours.error, theirs.error))
    if theirs.error is None or ours.error is None or class_of(ours.error) is not class_of(theirs.error):
        return c, f"ours: {a}\ntorch: {b}", theirs.error
    for phrase in PHRASES:
        words = phrase.search(str(theirs.error))
        if words and words.group(0) not in str(ours.error):
            return c, f"the message lacks {words.group(0)!r}\nours: {a}\ntorch: {b}", theirs.error
    return c, None, theirs.error


# ---- What differs, and why ----

def has_repeats(c, code):
    """Is an index of the case there twice? A negative one may be another's other name."""
    lists = [v.reshape(-1).tolist() for v, _ in c.leaves if v.dtype in (np.int64, np.int32)]
    lists += [[int(n) for n in found.split(",")] for found in re.findall(r"\[(-?\d+(?:, -?\d+)+)\]", code)]
    return any(len(set(x)) < len(x) or min(x, default=0) < 0 for x in lists)


def has_ties(c, code):
    return "expand" in code or any(np.unique(v).size < v.size for v, _ in c.leaves)


def of(c, *dtypes):
    return any(v.dtype.name in dtypes for v, _ in c.leaves)


def has_empty(c):
    return any(0 in v.shape for v, _ in c.leaves)


def has_scalar(c):
    return any(v.ndim == 0 for v, _ in c.leaves)


def holds(c, test):
    return any(is_real(v) and test(v.astype("float64")).any() for v, _ in c.leaves)


def refused(wrong):
    """We refuse, torch does not."""
    return "torch: accepted" in wrong


def accepted(wrong):
    """Torch refuses, we do not."""
    return "ours: accepted" in wrong


COMPARE = r"[<>]=?|[!=]=|\b(eq|ne|lt|le|gt|ge|less|greater|not_equal|less_equal|greater_equal)_?\("
# (whether a case is such, with its text and the difference; reason)
KNOWN = [
    # What is not there, and says so
    (lambda c, code, wrong: re.search(r"ours: \w+: matmul: not implemented for (u?int|bool)", wrong),
     "products of matrices are of floats"),
    (lambda c, code, wrong: "as_strided: its gradient is known only" in wrong and refused(wrong),
     "as_strided of what is not contiguous has no gradient here"),
    # More than torch takes
    (lambda c, code, wrong: accepted(wrong)
     and re.search(r"torch: .*(derivative for .* is not implemented|INTERNAL ASSERT|Autograd not support "
                   r"dtype|returned an invalid gradient)", wrong),
     "torch has no derivative, or fails in its own code; ours is 0 or right"),
    (lambda c, code, wrong: accepted(wrong) and "returns multiple views" in wrong,
     "torch forbids to change a part that split, chunk or unbind gave; we record it"),
    (lambda c, code, wrong: accepted(wrong) and "a second time" in wrong and "y = (x * 2).sum()" in code,
     "torch saves the number of a product, and so refuses to walk it again"),
    (lambda c, code, wrong: accepted(wrong) and "modified by an inplace operation" in wrong
     and re.search(r"copy_|fill_|zero_|v\[\.\.\.\] = |y\[0\] = |v\.mul_\(v\)", code),
     "what was overwritten is not needed any more, or was kept; torch refuses all the same"),
    (lambda c, code, wrong: accepted(wrong) and "view size is not compatible" in wrong
     and re.search(r"isin|\.view\(", code), "results are dense here; torch keeps the order of axes in memory"),
    (lambda c, code, wrong: accepted(wrong) and re.search(r"t\.tensor\(\[?(np\.float|t\.tensor\(1\.5)", code),
     "torch reads no NumPy float or float tensor as an integer; we truncate it"),
    (lambda c, code, wrong: accepted(wrong) and re.search(r"addr_?\(", code) and "expected scalar type" in wrong,
     "addr promotes dtypes here"),
    (lambda c, code, wrong: accepted(wrong) and of(c, "bool") and re.search(r"\*\*|pow", code)
     and "Subtraction" in wrong, "torch has no gradient of powers with bool exponents"),
    (lambda c, code, wrong: accepted(wrong) and "allclose" in code and "doesn't match the broadcast shape" in wrong,
     "torch's allclose broadcasts the second operand only"),
    (lambda c, code, wrong: accepted(wrong) and c.name.startswith("set ") and "type uint8_t without overflow" in wrong
     and of(c, "uint8") and has_scalar(c),
     "torch refuses to make a negative fraction an unsigned integer, where one scalar goes to what a mask names; we "
     "truncate it as elsewhere"),
    # Less
    (lambda c, code, wrong: refused(wrong) and "pow_scalar: not implemented for bool" in wrong
     and re.search(r"(True|False)\)?$", code.splitlines()[-2]),
     "torch takes the powers False and True of bool, and no other way to them"),
    (lambda c, code, wrong: refused(wrong) and "refers to a single memory location" in wrong and "expand" in code,
     "we refuse to write to an expanded tensor"),
    (lambda c, code, wrong: refused(wrong) and "= x" in code.splitlines()[-2]
     and "some elements of the input tensor and the written-to tensor refer to a single" in wrong,
     "we refuse to copy a tensor to a part of itself"),
    (lambda c, code, wrong: refused(wrong) and re.search(r"t\.(tensor|full)\(.*uint8", code)
     and "without overflow" in wrong, "torch wraps what does not fit; we refuse it"),
    (lambda c, code, wrong: refused(wrong) and "expected m1 and m2 to have the same dtype" in wrong and has_empty(c),
     "torch takes two dtypes where there is nothing to multiply"),
    (lambda c, code, wrong: re.search(r"ours: IndexError: .*index -?\d+ is out of bounds for dimension \d+ with size "
                                      r"\d+: \w+\[(\d+,)*0(,\d+)*\]", wrong),
     "torch checks no index where there are no elements"),
    (lambda c, code, wrong: refused(wrong) and "leaf Variable" in wrong
     and (has_empty(c) or re.search(r"\.logical_\w+_\(", code)),
     "torch lets a leaf without elements change, and logical_xor_ and the like change any"),
    (lambda c, code, wrong: refused(wrong) and re.search(r"addbmm_\(", code)
     and "doesn't match the broadcast shape" in wrong, "torch's addbmm_ gives its tensor another shape"),
    # Both refuse
    (lambda c, code, wrong: "the message lacks" in wrong and "refers to a single memory location" in wrong,
     "both refuse; we name the expanded memory first"),
    (lambda c, code, wrong: "the message lacks 'a leaf Variable" in wrong
     and re.search("ours: RuntimeError: .*(must match|doesn't match the broadcast shape)", wrong),
     "both refuse; we name shapes and dtypes first"),
    (lambda c, code, wrong: "the message lacks 'The expanded size" in wrong and "must be a 3D tensor" in wrong,
     "both refuse; two things are wrong, and torch names the other one"),
    (lambda c, code, wrong: re.search(r"the message lacks 'mat1 and mat2 shapes.*\n.*ours: RuntimeError: matmul: mat1 "
                                      r"and mat2 shapes", wrong),
     "both refuse; torch has made one matrix of a stack of them, and names that"),
    (lambda c, code, wrong: "torch: RuntimeError: INDICES element is out of DATA bounds" in wrong
     and "ours: IndexError" in wrong, "index_select: an IndexError here always, in torch sometimes"),
    (lambda c, code, wrong: "index_add" in code
     and re.search(r"ours: IndexError: .*out of bounds.*\ntorch: RuntimeError: index .*out of bounds", wrong),
     "index_add: an IndexError here always, in torch sometimes"),
    (lambda c, code, wrong: "torch: IndexError: index is out of bounds for dimension with size 0" in wrong
     and "dtypes must match" in wrong, "both refuse; we name the dtypes first"),
    (lambda c, code, wrong: re.search(r"the message lacks 'index (-?\d+) is out of bounds for dimension \d+ with size "
                                      r"(\d+)'\nours: IndexError: index\w*: index \1 is out of bounds for dimension "
                                      r"\d+ with size \2", wrong),
     "both refuse; torch has moved the axis before it names it"),
    # Another result
    (lambda c, code, wrong: wrong.startswith("gradient")
     and re.search(r"index_put|scatter|index_copy|\by\[.*\] ?[-+*/]?=", code) and has_repeats(c, code),
     "several values for one place: the gradient of the ones that lost is 0 here, torch gives it to all"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search(r"\.(logical_\w+|bitwise_\w+)_\(", code),
     "torch passes gradients through a change that has none"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search(r"z = (x\.trace\(\)|t\.trace\(x\))", code),
     "torch's gradient of the trace of a tall matrix is wrong"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search("median|kthvalue|topk", code)
     and has_ties(c, code), "of equal elements another one gets the gradient"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "nan or inf" in wrong and "correction=2" in code,
     "a variance without degrees of freedom has no gradient here"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "nan or inf" in wrong and re.search(r"\b(max|min)\(", code)
     and holds(c, np.isnan), "where the largest is NaN, so are all gradients"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "nan or inf" in wrong and re.search(r"norm\(.*inf", code)
     and holds(c, np.isnan), "the gradient of the largest magnitude is 0 in torch where that is NaN"),
    (lambda c, code, wrong: wrong.startswith("result") and "nan or inf" in wrong and re.search("(var|std)_mean", code)
     and holds(c, np.isinf), "the mean that var_mean gives is NaN in torch where it is infinite"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "nan or inf" in wrong and "nanmean" in code
     and holds(c, np.isnan), "where all are NaN, nanmean has the gradient NaN in torch, 0 here"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "nan or inf" in wrong and "prod(" in code
     and holds(c, lambda v: ~np.isfinite(v)),
     "torch's gradient of a product divides by the number itself; ours is the product of the others"),
    (lambda c, code, wrong: wrong.startswith("result") and c.name.startswith("set ")
     and of(c, "int8", "int16", "int32", "int64", "uint8", "bool") and holds(c, lambda v: ~np.isfinite(v)),
     "what infinities and NaN are as integers is left open by C, and by torch"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search(r"cl(amp|ip)_?\(.*\bo\)", code)
     and np.isin(c.leaves[0][0], c.leaves[-1][0]).any(),
     "a bound that is a tensor shares the gradient with what is equal to it; torch gives it to both"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "block_diag" in code and has_empty(c),
     "torch's gradient of block_diag is wrong beside an empty block"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "nan or inf" in wrong and "logaddexp" in code
     and holds(c, np.isinf), "the gradient of logaddexp at an infinity is NaN"),
    (lambda c, code, wrong: wrong.startswith("result") and "median" in code and "expand" in code
     and "requires_grad" not in wrong, "torch's median of an expanded tensor is wrong"),
    (lambda c, code, wrong: wrong.startswith("result") and "x.median()" in code
     and of(c, "int8", "int16", "int32", "int64", "uint8") and has_empty(c),
     "torch casts NaN to an integer, which each chip does in its own way"),
    (lambda c, code, wrong: "requires_grad False is_leaf True, torch True False" in wrong
     and re.search(COMPARE.split("|", 2)[2], code), "a comparison requires no grad here, also in place"),
    (lambda c, code, wrong: of(c, "uint8") and re.search(COMPARE + "|clamp|clip|fmax|fmin|maximum|minimum", code)
     and (re.search(r"-\d", code) or has_scalar(c)),
     "torch brings a number or a scalar to the other's dtype, where it may wrap; we compare the numbers"),
]


def known(c, wrong):
    return next((reason for holds, reason in KNOWN if holds(c, c.code(), wrong)), None)


def test_programs():
    warnings.simplefilter("ignore")
    names, n_cases = list(OPS), int(os.environ.get("TALLY_CASES", N_CASES)) * int(os.environ.get("TALLY_SOAK", "1"))
    only = os.environ.get("TALLY_CALL")
    cases, refused, differing, failures = collections.Counter(), collections.Counter(), collections.Counter(), {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for i in [int(only)] if only else range(n_cases):
            name = names[i % len(names)]
            c, wrong, error = perform(i, name)
            cases[name] += 1
            refused[name] += error is not None
            reason = wrong and known(c, wrong)
            if reason:
                differing[reason] += 1
            elif wrong:
                failures.setdefault(name, []).append(f"TALLY_CALL={i} replays {c}\n{wrong}")
    finally:
        torch.set_num_threads(threads)
    print("\n" + "\n".join(f"known: {n:5} times: {reason}" for reason, n in differing.items()))
    n_failures = sum(map(len, failures.values()))
    print(f"{sum(cases.values())} cases of {len(names)} kinds, {sum(refused.values())} refused, torch "
          f"{torch.__version__}, {n_failures} failures")
    show = int(os.environ.get("TALLY_SHOW", "3"))
    assert not failures, (f"{n_failures} cases differ: { {k: len(v) for k, v in failures.items()} }\n"
                          + "\n\n".join(x for v in failures.values() for x in v[:show]))
    if not only and "TALLY_CASES" not in os.environ:
        assert sum(cases.values()) >= 20000 and all(cases[name] for name in names)


# ---- The surface itself ----

# Read by no program of the driver: what has other tests, or no answer that two libraries share.
NOT_DRAWN = {
    "other files": "Tensor autograd from_dlpack Size OutOfMemoryError einsum save load autocast get_autocast_dtype "
                   "is_autocast_enabled dropout layer_norm rms_norm",
    "ours alone, in test_ledger_python.py": "Ledger ledger price profile get_default_device set_default_device",
    "ours alone, in test_train_python.py": "Model train train_price train_settings",
    "ours alone, in test_notebook.py": "report",
    "ours alone, in test_tokenizer.py": "Tokenizer",
    "devices that are not here": "cuda pin_memory",
    "randomness, by its own tests": "manual_seed randperm Generator",
    "classes, read by the programs' results": "dtype device layout memory_format strided contiguous_format "
                                              "preserve_format",
    "the other spelling of what is drawn": "T_ unsafe_split unsafe_chunk unsafe_split_with_sizes "
                                           "resolve_conj resolve_neg is_mkldnn is_mps is_xla is_xpu is_nested name "
    "names",
    "counts threads": "set_num_threads",
    "in test_complex.py": " ".join(tally._complex.__all__) + " cfloat cdouble",
    "a form of what is drawn": "bitwise_and_ bitwise_left_shift",
    "by PyTorch's own samples, in test_opinfo.py": " ".join(f"{n} {n}_" for n in (
        *tally._late.FUNCTIONS["_special"].split(), *tally._late.FUNCTIONS["_ordered"].split(),
        *tally._late.FUNCTIONS["_factors"].split(), "scatter_reduce",
        "cauchy", "log_normal", "geometric")),
    "ours alone, in test_torch_scripts.py": "plan fit napkin eval generate priced assert_price",
    "in test_torch_scripts.py": tally._late.FUNCTIONS["_runtime"] + " vmap GradScaler is_anomaly_enabled "
                                                                    "UntypedStorage "
                                "channels_last channels_last_3d share_memory_",
}


def public_names():
    functions = {n for n in dir(tally) if not n.startswith("_") and n not in ("autograd", "tally")
                 and not isinstance(getattr(tally, n), (tally.dtype, type(math)))}
    return functions | {n for n in dir(tally.Tensor) if not n.startswith("_")}


def test_every_public_name_is_drawn():
    names, drawn = list(OPS), set()
    for i in range(N_CASES):
        drawn |= set(re.findall(r"\.(\w+)", Case(i, names[i % len(names)]).code()))
    excused = {n for group in NOT_DRAWN.values() for n in group.split()}
    assert not public_names() - drawn - excused


def test_names_are_torchs():
    """A name that torch has not is a typing error, or a feature that docs/python-and-torch.md names."""
    ours = {n for n in dir(tally) if not n.startswith("_")} - set(dir(torch))
    assert ours <= {"exponential_", "sum_to_size", "float4_e2m1fn", "einops", "Ledger", "ledger", "price", "profile",
                    "Model", "Tokenizer", "report", "train", "train_price", "train_settings", "plan", "fit", "napkin",
                    "eval", "generate", "priced", "assert_price"}
    assert {n for n in dir(tally.Tensor) if not n.startswith("_")} <= set(dir(torch.Tensor))


def test_the_table_of_what_is_missing_is_current():
    import pytest
    page = open(os.path.join(os.path.dirname(__file__), "../../docs/python-and-torch.md")).read()
    if f"Of PyTorch {'.'.join(torch.__version__.split('.')[:2])}:" not in page:
        pytest.skip("the table is of another PyTorch")
    tool = os.path.join(os.path.dirname(__file__), "../../tools/compare_torch")
    environment = {**os.environ, "PYTHONPATH": os.path.join(os.path.dirname(__file__), "../../python")}
    subprocess.run([sys.executable, tool, "--check"], check=True, env=environment)


# Each phrase provoked once by hand, so that none of them is only there by luck of the draw.
PROVOKED = [
    "t.ones(2, 3).t().view(6)", "bool(t.ones(2))", "bool(t.ones(0))", "t.ones(2, 3) + t.ones(2, 4)",
    "t.ones(2, 3) @ t.ones(2, 3)", "t.ones(2, 3).sum(5)", "t.ones(2)[5]", "t.ones(2, requires_grad=True).add_(1)",
    "x = t.ones(2, requires_grad=True); y = x.exp(); y.add_(1); y.sum().backward()",
    "x = t.ones(2, requires_grad=True); y = x.exp().sum(); y.backward(); y.backward()", "t.ones(2).sum().backward()",
    "t.ones(2, requires_grad=True).mul(2).backward()", "t.ones(6).view(4)", "t.ones(2, dtype=t.int64).add_(t.ones(2))",
    "t.ones(2, 2).mv(t.ones(2).double())", "t.ones(2, requires_grad=True).numpy()",
    "t.ones(2, dtype=t.int64).requires_grad_()", "t.ones(1).add_(t.ones(2))", "t.cat([t.ones(2, 2), t.ones(3, 3)])",
    "t.ones(2)[0, 0]", "t.ones(2).item()", "t.ones(6).view(-1, -1)", "t.ones(2, 3).expand(2, 4)",
    "__import__('copy').deepcopy(t.ones(2, requires_grad=True) * 1)", "t.cat([t.ones(()), t.ones(2)])",
    "t.ones(2, dtype=t.int64) ** -1", "len(t.ones(()))", "iter(t.ones(()))", "t.ones(2, 2).double() @ t.ones(2, 2)",
]


def raised(code, t):
    try:
        exec(code, {"t": t})
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError(f"{t.__name__} accepts {code}")


def test_known_phrases():
    seen = set()
    for code in PROVOKED:
        ours, theirs = raised(code, tally), raised(code, torch)
        assert class_of(ours) is class_of(theirs), (code, ours, theirs)
        phrases = [p for p in PHRASES if p.search(str(theirs))]
        assert phrases, f"{code}: torch says {theirs}"
        for p in phrases:
            assert p.search(str(theirs)).group(0) in str(ours), f"{code}\nours: {ours}\ntorch: {theirs}"
        seen |= set(phrases)
    here = raised("t.ones(2) + t.ones(2, device='meta')", tally)  # torch says it of a GPU, and other words of meta
    seen |= {p for p in PHRASES if p.search(str(here))}
    assert not set(PHRASES) - seen


# The other spelling of dim=, where torch's functions have it, and of the functions that do not.
AXES = """
sum(x, axis=0, keepdims=True) sort(x, axis=0) argsort(x, axis=0) topk(x, 2, axis=0) kthvalue(x, 1, axis=0)
median(x, axis=0) gather(x, axis=0, index=i) index_select(x, axis=0, index=i[0]) take_along_dim(x, i, axis=0)
unbind(x, axis=0) chunk(x, 2, axis=1) tensor_split(x, 2, axis=1) narrow(x, axis=0, start=0, length=1)
select(x, axis=0, index=0) diff(x, axis=0) nanmean(x, axis=0) var_mean(x, axis=0) std_mean(x, axis=0)
aminmax(x, axis=0) repeat_interleave(x, 2, axis=0) scatter(x, axis=0, index=i, src=x)
scatter_add(x, axis=0, index=i, src=x) index_add(x, axis=0, index=i[0], source=x) cumsum(x, axis=0)
softmax(x, axis=0) log_softmax(x, axis=0) squeeze(x, axis=0) unsqueeze(x, axis=0) cat([x], axis=0)
stack([x], axis=1) swapaxes(x, axis0=0, axis1=1) flip(x, axis=0) split(x, 1, axis=0) unique(x, axis=0)
Tensor.scatter_(x, axis=0, index=i, src=x) Tensor.index_fill_(x, axis=0, index=i[0], value=2) Tensor.sort(x, axis=0)
"""


def test_numbers_do_not_promote_scalars_of_their_kind():
    for name in ("uint8", "int32", "float16"):
        for number in (4, True, 2.5, np.int64(4), np.float64(1.5)):
            for shape in ((), (1,)):
                kinds = []
                for t in (tally, torch):
                    x = t.full(shape, 3, dtype=getattr(t, name))
                    results = [number * x, number + x]
                    if not isinstance(number, bool):
                        results += [number // x, number % x, number - x, x // number, x % number, t.rsub(x, number),
                                    t.remainder(number, x)]
                    kinds.append([name_of(y.dtype) for y in results])
                assert kinds[0] == kinds[1], (name, number, shape)


def spelled(t, call):
    """What a call gives, as lists; or the class of its error."""
    values, found = np.random.default_rng(2).standard_normal((2, 3)).astype("float32"), []
    try:
        flatten(eval(f"t.{call}", {"t": t, "x": make(t, values), "i": t.tensor([[0, 1, 0], [1, 0, 1]])}), found, "")
    except (TypeError, RuntimeError) as error:
        return type(error)
    return [array(y).tolist() if isinstance(y, t.Tensor) else y[1] for _, y in found]


def test_axis_is_taken_where_torch_takes_it():
    calls = re.findall(r"[\w.]+\(.*?\)(?=\s|$)", AXES)
    assert len(calls) == 37
    for call in calls:
        ours, theirs = spelled(tally, call), spelled(torch, call)
        if isinstance(theirs, type):
            assert ours is theirs, f"{call}: ours {ours}, torch {theirs}"
        else:
            by_torch = call.replace("swapaxes", "transpose").replace("axis", "dim").replace("keepdims", "keepdim")
            assert ours == spelled(tally, by_torch), call


def test_a_graph_may_outlive_the_package():
    """At exit Python frees modules before what is left of a graph: what the library calls then must still be there."""
    program = """
import sys, tally as t
class Double(t.autograd.Function):
    forward = staticmethod(lambda ctx, x: x * 2)
    backward = staticmethod(lambda ctx, g: g * 2)
class Loop: pass
for _ in range(50):
    loop = Loop()
    loop.me, loop.y = loop, Double.apply(t.ones(3, requires_grad=True))
sys.kept = loop
"""
    environment = {**os.environ, "PYTHONPATH": os.path.join(os.path.dirname(__file__), "../../python")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_both_bindings_agree():
    """A part of the cases again, by ctypes."""
    if os.environ.get("TALLY_BINDING") == "ctypes":
        return
    environment = {**os.environ, "TALLY_BINDING": "ctypes", "TALLY_CASES": "1500",
                   "PYTHONPATH": os.path.join(os.path.dirname(__file__), "../../python")}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k",
                    "test_programs"], check=True, env=environment)


def test_numpy_is_imported_when_it_is_needed():
    program = """
import sys, tally
x = (tally.arange(3, dtype=tally.float32) + 1.5) * 2
assert x[1].item() == 5 and "numpy" not in sys.modules
assert x.numpy().tolist() == [3, 5, 7] and "numpy" in sys.modules
import numpy
assert (x + numpy.float32(1))[numpy.array([0, 2])].tolist() == [4, 8]
"""
    environment = {**os.environ, "PYTHONPATH": os.path.join(os.path.dirname(__file__), "../../python")}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
