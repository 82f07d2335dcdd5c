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
    r"result type (Float|Double|Half|Long|Int|Bool) can't be cast to the desired output type (Float|Half|Long|Int|Short|Char|Byte|Bool)",
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
            places = sum((np.arange(n).reshape((n,) + (1,) * i) * s for i, (n, s) in enumerate(zip(x.shape[::-1], x.stride()[::-1]))), np.zeros((), int))
            if x.numel() and not x.is_meta and np.unique(places).size == x.numel():  # no two elements in one place
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
            if x.size and [s for n, s in zip(x.shape, x.strides) if n > 1] != [s for n, s in zip(y.shape, y.strides) if n > 1]:
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
        kinds = {v.dtype.name for v, _ in self.case.leaves if is_real(v)} | {x.dtype.name} | {name_of(r.dtype) for r in self.theirs.tensors()}
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
KNOWN = [
    # Waits for what is being built
    (lambda c, code, wrong: re.search(r"(exp|log|sqrt|tanh|sigmoid|relu|log10): not implemented for (u?int\d+|bool)", wrong), "exp, log, sqrt, tanh, sigmoid and relu take floats only"),
    (lambda c, code, wrong: "matmul: not implemented for int" in wrong, "products of matrices are of floats"),
    # By intention
    (lambda c, code, wrong: "ours: accepted" in wrong and re.search(r"torch: .*(derivative for .* is not implemented|INTERNAL ASSERT|Autograd not support dtype|returned an invalid gradient)", wrong),
     "torch has no derivative, or fails in its own code; ours is 0 or right"),
    (lambda c, code, wrong: "returns multiple views" in wrong and "ours: accepted" in wrong, "torch forbids to change a part that split, chunk or unbind gave; we record it"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search(r"index_put|scatter|index_copy|\by\[.*\] ?[-+*/]?=", code), "several values for one place: the gradient of the ones that lost is 0 here, torch gives it to all"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search(r"\.(logical_\w+|bitwise_\w+|isnan)_\(", code), "torch passes gradients through a change that has none"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "trace" in code, "torch's gradient of the trace of a tall matrix is wrong"),
    (lambda c, code, wrong: wrong.startswith("gradient") and re.search("median|kthvalue", code), "of equal elements another one gets the gradient"),
    (lambda c, code, wrong: "correction=2" in code and "nan or inf" in wrong, "a variance without degrees of freedom has no gradient here"),
    (lambda c, code, wrong: "special" in c.notes and re.search("_mean|prod", code) and "nan or inf" in wrong, "a mean with infinities, and a product's gradient at them, is NaN in torch"),
    (lambda c, code, wrong: "as_strided: its gradient is known only" in wrong, "as_strided of what is not contiguous has no gradient here"),
    (lambda c, code, wrong: re.search("ours: .*refers? to a single memory location", wrong), "we refuse to write to an expanded tensor, and to copy a tensor to itself"),
    (lambda c, code, wrong: "refers to a single memory location" in wrong and "the message lacks" in wrong, "both refuse; we name the expanded memory first"),
    (lambda c, code, wrong: "full(" in code and "uint8" in code and "without overflow" in wrong, "torch wraps what does not fit; we refuse it"),
    (lambda c, code, wrong: "no remainder by 0" in wrong, "we refuse a remainder of integers by the number 0 also where there are no elements"),
    (lambda c, code, wrong: "expected m1 and m2 to have the same dtype" in wrong and any(0 in v.shape for v, _ in c.leaves), "torch takes two dtypes where there is nothing to multiply"),
    (lambda c, code, wrong: "v.mul_(v)" in code and "ours: accepted" in wrong, "torch loses what a tensor times itself needs when it changes in place"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "block_diag" in code and any(0 in v.shape for v, _ in c.leaves), "torch's gradient of block_diag is wrong beside an empty block"),
    (lambda c, code, wrong: re.search(r"t\.tensor\(\[?(np\.float|t\.tensor\(1\.5)", code), "torch reads no NumPy float or float tensor as an integer; we truncate it"),
    (lambda c, code, wrong: "median" in code and "expand" in code, "torch's median of an expanded tensor is wrong"),
    (lambda c, code, wrong: any(v.dtype == np.uint8 for v, _ in c.leaves) and re.search(r"[<>=]=?|\b[lgne][te]_?\(|less|greater|equal", code) and re.search(r"-\d", code), "torch wraps a number that does not fit; we compare the numbers"),
    (lambda c, code, wrong: any(v.dtype == np.bool_ for v, _ in c.leaves) and re.search(r"\*\*|pow", code), "powers of bool, and with bool exponents, which torch takes in part and without gradients"),
    (lambda c, code, wrong: "requires_grad False is_leaf True, torch True False" in wrong and re.search(r"\b(eq|ne|lt|le|gt|ge|less|greater|not_equal|less_equal|greater_equal|median)_?\(", code),
     "a comparison requires no grad here, also in place"),
    (lambda c, code, wrong: 0 in c.leaves[0][0].shape and re.search("index_|roll", code) if c.leaves else False, "torch checks no index where there are no elements"),
    (lambda c, code, wrong: "does not support bool input" in wrong, "both refuse; torch looks at the dtype before the axis"),
    (lambda c, code, wrong: wrong.startswith("gradient") and "topk" in code, "of equal elements another one gets the gradient"),
    (lambda c, code, wrong: "modified by an inplace operation" in wrong and "ours: accepted" in wrong, "what was overwritten is not needed any more; torch refuses all the same"),
    (lambda c, code, wrong: "special" in c.notes and re.search("//|floor", code), "the quotient of an infinity"),
    (lambda c, code, wrong: any(v.dtype == np.uint8 for v, _ in c.leaves) and any(v.ndim == 0 for v, _ in c.leaves) and re.search(r"[<>=!]=?|\b[lgne][te]_?\(|less|greater|equal", code.replace(" = ", " ")),
     "torch brings a scalar to the other's dtype, where it may wrap; we compare the numbers"),
    (lambda c, code, wrong: "special" in c.notes and "relu" in code and wrong.startswith("gradient"), "relu has the gradient 0 at NaN"),
    (lambda c, code, wrong: "index_add" in code and "out of bounds" in wrong, "index_add: an IndexError here always, in torch sometimes"),
    (lambda c, code, wrong: "INDICES element is out of DATA bounds" in wrong, "index_select: an IndexError here always, in torch sometimes"),
    (lambda c, code, wrong: "must be a 3D tensor" in wrong, "both refuse; two things are wrong, and torch names the other one"),
    (lambda c, code, wrong: c.leaves and all(v.dtype == np.bool_ for v, _ in c.leaves) and "alpha" in code, "alpha times bool is an integer here"),
    (lambda c, code, wrong: "tensordot" in code, "torch's tensordot broadcasts sizes of 1"),
    (lambda c, code, wrong: "addr" in code and "expected scalar type" in wrong, "addr promotes dtypes here"),
    (lambda c, code, wrong: c.name.startswith("set ") and re.search("dtypes must match|without overflow", wrong), "a value of another dtype where nothing is written, or that does not fit"),
    (lambda c, code, wrong: "y = x " in code.replace("\n", " ") and "0" in str([v.shape for v, _ in c.leaves]) and "leaf Variable" in wrong, "torch lets a leaf without elements change"),
    (lambda c, code, wrong: "view size is not compatible" in wrong and "ours: accepted" in wrong, "results are dense here; torch keeps the order of axes in memory"),
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
    print(f"{sum(cases.values())} cases of {len(names)} kinds, {sum(refused.values())} refused, torch {torch.__version__}, {n_failures} failures")
    show = int(os.environ.get("TALLY_SHOW", "3"))
    assert not failures, f"{n_failures} cases differ: { {k: len(v) for k, v in failures.items()} }\n" + "\n\n".join(x for v in failures.values() for x in v[:show])
    if not only and "TALLY_CASES" not in os.environ:
        assert sum(cases.values()) >= 20000 and all(cases[name] for name in names)


# ---- The surface itself ----

# Read by no program of the driver: what has other tests, or no answer that two libraries share.
NOT_DRAWN = {
    "other files": "Tensor autograd from_dlpack Size OutOfMemoryError einsum save load autocast get_autocast_dtype is_autocast_enabled dropout layer_norm rms_norm",
    "ours alone, in test_ledger_python.py": "Ledger ledger price profile get_default_device set_default_device",
    "devices that are not here": "cuda pin_memory",
    "randomness, by its own tests": "manual_seed randperm",
    "classes, read by the programs' results": "dtype device layout memory_format strided contiguous_format preserve_format",
    "the other spelling of what is drawn": "T_ unsafe_split unsafe_chunk unsafe_split_with_sizes real conj resolve_conj resolve_neg is_mkldnn is_mps is_xla is_xpu is_nested name names",
    "counts threads": "set_num_threads",
}


def public_names():
    functions = {n for n in dir(tally) if not n.startswith("_") and n not in ("autograd", "tally") and not isinstance(getattr(tally, n), (tally.dtype, type(math)))}
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
    assert ours <= {"exponential_", "sum_to_size", "float4_e2m1fn", "einops", "Ledger", "ledger", "price", "profile"}
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
    "t.ones(2, 3).t().view(6)", "bool(t.ones(2))", "bool(t.ones(0))", "t.ones(2, 3) + t.ones(2, 4)", "t.ones(2, 3) @ t.ones(2, 3)", "t.ones(2, 3).sum(5)", "t.ones(2)[5]", "t.ones(2, requires_grad=True).add_(1)",
    "x = t.ones(2, requires_grad=True); y = x.exp(); y.add_(1); y.sum().backward()", "x = t.ones(2, requires_grad=True); y = x.exp().sum(); y.backward(); y.backward()", "t.ones(2).sum().backward()",
    "t.ones(2, requires_grad=True).mul(2).backward()", "t.ones(6).view(4)", "t.ones(2, dtype=t.int64).add_(t.ones(2))", "t.ones(2, 2).mv(t.ones(2).double())",
    "t.ones(2, requires_grad=True).numpy()", "t.ones(2, dtype=t.int64).requires_grad_()", "t.ones(1).add_(t.ones(2))", "t.cat([t.ones(2, 2), t.ones(3, 3)])", "t.ones(2)[0, 0]", "t.ones(2).item()", "t.ones(6).view(-1, -1)",
    "t.ones(2, 3).expand(2, 4)", "__import__('copy').deepcopy(t.ones(2, requires_grad=True) * 1)", "t.cat([t.ones(()), t.ones(2)])", "t.ones(2, dtype=t.int64) ** -1", "len(t.ones(()))", "iter(t.ones(()))",
    "t.ones(2, 2).double() @ t.ones(2, 2)",
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
    environment = {**os.environ, "TALLY_BINDING": "ctypes", "TALLY_CASES": "1500", "PYTHONPATH": os.path.join(os.path.dirname(__file__), "../../python")}
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__, "-k", "test_programs"], check=True, env=environment)
