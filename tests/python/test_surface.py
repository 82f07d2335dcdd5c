"""The Python package against PyTorch: random programs of a few lines, run by both.

Each case (surface_cases.py) is source text in which `t` is the library. Compared are values, dtypes, shapes, strides, which results share
memory with which inputs and where, whether they require grad, the gradients of all inputs, what a write to a result does to the
inputs, and the class of the exception where torch raises one; a message that has one of the PHRASES in torch has it here too.

TALLY_CALL=n replays one case, TALLY_SOAK=n runs n times as many, TALLY_SHOW=n shows that many failures. Tolerances are those of
test_differential.py: f64 1e-10 and f32 1e-5 of the largest element, 16 bits twice torch's own error plus 2 ulp. KNOWN lists what
differs by intention or waits.
"""
import collections
import math
import os
import re
import warnings

import numpy as np
import torch

import tally
from surface_cases import OPS, POOL, Case
from torch_peer import RELATIVE, from_torch, same_specials, to_torch, ulp

N_CASES = 24000

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
    r"result type \w+ can't be cast to the desired output type \w+",
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
            seeds = [make(self.t, np.resize(POOL, math.prod(r.shape)).reshape(tuple(r.shape)).astype("float64")).to(r.dtype) for r in outputs]
            self.grads = self.t.autograd.grad(outputs, wanted, seeds, allow_unused=True)
            self.grads = [self.t.zeros_like(x) if g is None else self.t.zeros_like(x) + g for x, g in zip(wanted, self.grads)]

    def shares(self, x):
        """Which leaves a tensor shares memory with, and the offset there."""
        key = lambda y: y.untyped_storage().data_ptr() if y.numel() and not y.is_meta else None  # noqa: E731
        k = key(x)
        return [(i, x.storage_offset()) for i, leaf in enumerate(self.leaves) if k is not None and key(leaf) == k]

    def write(self):
        """Writes to every result that is not empty, and gives what the leaves hold then."""
        for x in self.tensors():
            if x.numel() and not x.is_meta and all(s or n == 1 for n, s in zip(x.shape, x.stride())):
                x.detach().fill_(1)
        return [array(x) for x in self.leaves]


def flatten(value, into, path):
    if isinstance(value, (tuple, list)) and not isinstance(value, (torch.Size, tally.Size)):
        into.append((path, (type(value).__name__.split(".")[-1] if hasattr(value, "_fields") else type(value).__name__, len(value))))
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
            if not np.array_equal(x, y, equal_nan=is_real(x) and x.dtype.kind == "f"):
                if x.dtype.kind in "iub" or not near(x, y):
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
            if x.size and x.strides != y.strides:
                return f"strides {x.strides}, torch {y.strides}"
            return self.values(x, y, wide)
        x, y = plain(x), plain(y)
        if type(x) is not type(y):
            return f"{x!r} ({type(x).__name__}), torch {y!r} ({type(y).__name__})"
        if isinstance(y, float):
            return None if x == y or math.isnan(x) and math.isnan(y) or math.isclose(x, y, rel_tol=2e-3 if self.has_narrow() else 1e-5, abs_tol=1e-6) else f"{x!r}, torch {y!r}"
        return None if x == y or x is y else f"{x!r}, torch {y!r}"

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
        if shares[0] and x.numel() and [s for n, s in zip(x.shape, x.stride()) if n > 1] != [s for n, s in zip(y.shape, y.stride()) if n > 1]:
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
        kinds = {v.dtype.name for v, _ in self.case.leaves if is_real(v)} | {x.dtype.name}
        kind = next(k for k in ("bfloat16", "float16", "float32", "float64") if k in kinds)  # of mixed operands the narrowest counts
        if near(x, y, kind):
            return None
        if kind != "float64":
            e = wide()
            e = (e if isinstance(e, np.ndarray) else array(e)).astype("float64")[finite]
            n, least = (8, 1.0) if kind == "float32" else (4, 1.0)
            allowed = 2 * np.abs(q[finite] - e).max() + n * ulp(np.full_like(e, max(np.abs(e).max(), least)), kind)
            if np.isfinite(e).all() and (np.abs(p[finite] - e) <= allowed).all():
                return None
        return f"off by {np.abs(p[finite] - q[finite]).max():g}\n{x}\ntorch\n{y}"


def near(x, y, kind=None):
    """Within the dtype's tolerance, of the largest element."""
    p, q, kind = x.astype("float64"), y.astype("float64"), kind or x.dtype.name
    finite = np.isfinite(q)
    return kind in RELATIVE and same_specials(p, q) and (not finite.any() or np.abs(p[finite] - q[finite]).max() <= RELATIVE[kind] * max(1e-3, np.abs(q[finite]).max()))


CLASSES = (IndexError, TypeError, ValueError, KeyError, AttributeError, OverflowError, ZeroDivisionError, BufferError, SyntaxError, RuntimeError)


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


# (whether a case is such, with its text and the difference; reason)
KNOWN = []


def known(c, wrong):
    return next((reason for holds, reason in KNOWN if holds(c, c.code(), wrong)), None)


def test_surface():
    warnings.simplefilter("ignore")
    names, n_cases = list(OPS), N_CASES * int(os.environ.get("TALLY_SOAK", "1"))
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
    print(f"{sum(cases.values())} cases of {len(names)} kinds, {sum(refused.values())} refused, torch {torch.__version__}, {n_failures} failures")
    show = int(os.environ.get("TALLY_SHOW", "3"))
    assert not failures, f"{n_failures} cases differ: { {k: len(v) for k, v in failures.items()} }\n" + "\n\n".join(x for v in failures.values() for x in v[:show])
    if not only:
        assert sum(cases.values()) >= 20000 and all(cases[name] for name in names)
