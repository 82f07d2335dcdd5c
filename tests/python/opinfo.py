"""Runs PyTorch's own samples of its operators and modules (OpInfo, ModuleInfo) with both libraries.

    python tests/python/opinfo.py [--samples N] [--dtype float32] [--show N] [NAME ...]

A name is there if the package has a function or method of that name that takes at least one of the samples. Values are
wrong if they differ by more than torch.testing allows the dtype, and are further from PyTorch's float64 result than
twice PyTorch's own distance. Gradients are those of the sum of all results times fixed numbers.
"""
import collections
import itertools
import math
import sys
import types
import unittest
import warnings

import numpy as np
import torch

import tally
from torch_peer import from_torch, same_specials, to_torch

# The results of these are random, or have no values: dtypes and shapes are compared.
NO_VALUES = set("""bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal
multinomial new_empty new_empty_strided normal rand_like randint randint_like randn randn_like uniform
nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout
nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.scaled_dot_product_attention_random
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d resize_ resize_as_""".split())
TOLERANCE = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
             "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7)}


def database():
    """torch.testing._internal, without the package of expected texts that it imports and these parts do not use."""
    warnings.simplefilter("ignore")
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    return op_db, module_db


# ---- From torch to ours ----

def ours_of(x, memo):
    if isinstance(x, torch.Tensor):
        if id(x) not in memo:
            if x.is_sparse or x.layout != torch.strided or x.is_quantized:
                raise TypeError("a tensor of another kind")
            values = array(x)
            y = tally.from_numpy(np.ascontiguousarray(values).reshape(values.shape)).clone()
            memo[id(x)] = (x, y.requires_grad_() if x.requires_grad else y)
        return memo[id(x)][1]
    if isinstance(x, torch.Size):
        return tally.Size(x)
    if isinstance(x, (list, tuple)):
        items = [ours_of(v, memo) for v in x]
        return type(x)(items) if not hasattr(x, "_fields") else type(x)(*items)
    if isinstance(x, dict):
        return {k: ours_of(v, memo) for k, v in x.items()}
    if isinstance(x, torch.dtype):
        return getattr(tally, str(x).split(".")[1])
    if isinstance(x, torch.device):
        return tally.device(str(x))
    if isinstance(x, (torch.memory_format, torch.layout)):
        return getattr(tally, str(x).split(".")[1])
    if isinstance(x, torch.Generator):
        return None
    if isinstance(x, types.FunctionType) and (x.__module__ or "").startswith("torch.nn"):
        return getattr(tally.nn.functional, x.__name__)
    if isinstance(x, (types.BuiltinFunctionType, torch.nn.PairwiseDistance)):
        named = getattr(x, "__name__", "pairwise_distance")
        return getattr(tally.nn.functional, named, None) or getattr(tally, named, x)
    return x


SPECIAL = {"T": lambda x: x.T, "H": lambda x: x.H, "mT": lambda x: x.mT, "mH": lambda x: x.mH,
           "cauchy": lambda x, *a, **k: x.cauchy_(*a, **k), "exponential": lambda x, *a, **k: x.exponential_(*a, **k),
           "geometric": lambda x, *a, **k: x.geometric_(*a, **k), "uniform": lambda x, *a, **k: x.uniform_(*a, **k),
           "log_normal": lambda x, *a, **k: x.log_normal_(*a, **k),
           # as the database calls torch's
           "where": lambda x, condition, other: tally.where(condition, x, other),
           "einsum": lambda tensors, equation: tally.einsum(equation, tensors),
           "nn.functional.embedding": lambda weight, index, **k: tally.nn.functional.embedding(index, weight, **k),
           "nn.functional.embedding_bag": lambda weight, index, *a, **k: tally.nn.functional.embedding_bag(index,
                                                                                                           weight, *a,
                                                                                                          **k),
           "zero_": lambda x: x.clone().zero_()}


def ours_function(name):
    """Our function of this name: of a module, of the package, or a method."""
    if name in SPECIAL:
        return SPECIAL[name]
    found = tally
    for part in name.split("."):
        try:
            found = getattr(found, part, None)
        except ImportError:
            found = None
    if callable(found) and not isinstance(found, type(tally.float32)) and not isinstance(found, types.ModuleType):
        return found
    method = getattr(tally.Tensor, name, None)
    return method if callable(method) else None


# ---- Comparing ----

def flat(x):
    if isinstance(x, (torch.Tensor, tally.Tensor)):
        return [x]
    if isinstance(x, (list, tuple)) and not isinstance(x, (torch.Size, tally.Size)):
        return [z for y in x for z in flat(y)]
    if isinstance(x, dict):
        return [z for y in x.values() for z in flat(y)]
    return [x]


def array(x):
    if isinstance(x, torch.Tensor):
        return x.detach().resolve_conj().resolve_neg().numpy() if x.is_complex() else from_torch(x)
    return x.detach().cpu().numpy()


def close(p, q, kind):
    rtol, atol = TOLERANCE.get(kind, (0, 0))
    return np.isclose(p, q, rtol, atol, equal_nan=True)


def wrong_value(x, y, exact, of_gradient=False):
    """What is wrong with our x, where torch's is y; exact() is torch's in float64, or None."""
    if not isinstance(y, torch.Tensor):
        if isinstance(y, (torch.dtype, torch.device, torch.Size)):
            return None
        if isinstance(y, complex) and isinstance(x, complex):
            return None if np.isclose(x, y, 1e-5, 1e-6, equal_nan=True) else f"{x}, torch {y}"
        if isinstance(y, float) and isinstance(x, (int, float)):
            return None if math.isclose(x, y, rel_tol=1e-5, abs_tol=1e-6) or x != x and y != y else f"{x}, torch {y}"
        return None if x == y else f"{x!r}, torch {y!r}"
    if not isinstance(x, tally.Tensor):
        return f"{type(x).__name__}, torch a tensor"
    a, b = str(x.dtype).split(".")[1], str(y.dtype).split(".")[1]
    if a != b or tuple(x.shape) != tuple(y.shape):
        return f"{a}{list(x.shape)}, torch {b}{list(y.shape)}"
    p, q = array(x), array(y)
    if p.dtype.kind in "iub":
        return None if np.array_equal(p, q) else f"\n{p}\ntorch\n{q}"
    wide = "complex128" if p.dtype.kind == "c" else "float64"
    p, q = p.astype(wide), q.astype(wide)
    fits = close(p, q, b)
    if fits.all():
        return None
    e = exact()
    if e is not None and e.shape == q.shape and b not in ("float64", "complex128") and same_specials(p, q):
        ok = np.isfinite(q)
        unit = float(np.finfo("float32").eps) if b in ("float32", "complex64") else \
            {"bfloat16": 2**-7, "float16": 2**-10}.get(b, 0)
        allowed = 2 * np.abs(q - e)[ok].max(initial=0) + 4 * unit * np.maximum(np.abs(e[ok]), 1e-3)
        if (np.abs(p - e)[ok] <= allowed).all():
            return None
    ok = np.isfinite(q)
    if of_gradient and same_specials(p, q) and b in ("float32", "complex64") and \
            np.abs(p - q)[ok].max(initial=0) <= 1e-5 * np.abs(q[ok]).max(initial=0):
        return None
    at = np.argwhere(~np.atleast_1d(fits))[0]
    return (f"off at {tuple(int(i) for i in at)}: {np.atleast_1d(p)[tuple(at)]!r}, torch "
            f"{np.atleast_1d(q)[tuple(at)]!r}")


def tensors_in(x):
    return [t for t in flat([x]) if isinstance(t, torch.Tensor)]


def in_f64(x):
    if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
        wide = x.detach().to(torch.complex128 if x.is_complex() else torch.float64)
        return wide.requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)([in_f64(v) for v in x]) if not hasattr(x, "_fields") else x
    if isinstance(x, dict):
        return {k: in_f64(v) for k, v in x.items()}
    return {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(x, x) if isinstance(x, torch.dtype) \
        else x


def seeds(outputs):
    r = np.random.default_rng(0)
    numbers = [r.standard_normal(tuple(y.shape)) for y in outputs]
    return [v + 1j * np.flip(v) if str(y.dtype).split(".")[1].startswith("complex") else v
            for v, y in zip(numbers, outputs)]


def gradients(t, outputs, inputs):
    """Of the outputs that need one; None if there are none."""
    flowing = [y for y in outputs if isinstance(y, t.Tensor) and y.requires_grad]
    if not flowing or not inputs:
        return None
    weights = [(torch.from_numpy(np.asarray(v)) if t is torch else tally.tensor(np.asarray(v))).to(y.dtype)
               for v, y in zip(seeds(flowing), flowing)]
    return t.autograd.grad(flowing, inputs, weights, allow_unused=True)


# Vectors may have either sign. The database says which part of the results does not depend on it.
FREE_SIGNS = {"linalg.eigh", "linalg.svd", "svd", "linalg.eig"}
# These call another function than their name says, made of torch's.
OF_THEIR_OWN = {("linalg.lstsq", "grad_oriented"), ("linalg.pinv", "singular")}


class Count:
    def __init__(self):
        self.right, self.refused, self.wrong, self.grads, self.wrong_grads = 0, {}, [], 0, []


def run_sample(function, op, given, count, name, has_grad, part=lambda y: y):
    """One sample, called by both; given is (input, args, kwargs), part what is compared of the results."""
    if given[2].get("dropout_p") or given[2].get("p") and "dropout" in name and name not in NO_VALUES:
        return  # random
    memo = {}
    try:
        mine = ours_of(list(given), memo)
    except (TypeError, AttributeError) as error:
        count.refused.setdefault(f"argument: {error}"[:100], 0)
        return
    try:
        theirs = part(op(given[0], *given[1], **given[2]))
    except Exception:  # noqa: BLE001 (the sample is not for this machine)
        return
    try:
        result = part(function(mine[0], *mine[1], **mine[2]))
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"[:160]
        count.refused[text] = count.refused.get(text, 0) + 1
        return
    a, b = flat(result), flat(theirs)
    if len(a) != len(b):
        count.wrong.append(f"{len(a)} results, torch {len(b)}")
        return
    wide = []

    def exact(i, of_gradients=False):
        if not wide:
            try:
                w = in_f64(list(given))
                outputs = flat(part(op(w[0], *w[1], **w[2])))
                leaves = [t for t in tensors_in(w) if t.requires_grad]
                wide.append((outputs, gradients(torch, outputs, leaves)))
            except Exception:  # noqa: BLE001
                wide.append((None, None))
        found = wide[0][1] if of_gradients else wide[0][0]
        return None if found is None or i >= len(found) or not isinstance(found[i], torch.Tensor) or \
            found[i].dtype not in (torch.float64, torch.complex128) else array(found[i])
    for i, (x, y) in enumerate(zip(a, b)):
        if name in NO_VALUES:
            wrong = None if tuple(getattr(x, "shape", ())) == tuple(getattr(y, "shape", ())) else \
                f"shape {x.shape}, torch {y.shape}"
        else:
            wrong = wrong_value(x, y, lambda: exact(i))
        if wrong:
            count.wrong.append(wrong)
            return
    count.right += 1
    if not has_grad or name in NO_VALUES:
        return
    pairs = [p for p in memo.values() if p[0].requires_grad]
    try:
        wanted = gradients(torch, b, [p[0] for p in pairs])
    except Exception:  # noqa: BLE001 (torch has none)
        return
    if wanted is None:
        return
    try:
        found = gradients(tally, a, [p[1] for p in pairs])
        if found is None:
            count.wrong_grads.append("no gradient")
            return
        for i, ((x, _), g, h) in enumerate(zip(pairs, found, wanted)):
            g = tally.zeros(*x.shape, dtype=getattr(tally, str(x.dtype).split(".")[1])) if g is None else g
            h = torch.zeros_like(x) if h is None else torch.zeros_like(x) + h
            wrong = wrong_value(g, h.to(x.dtype), lambda: exact(i, True), True)
            if wrong:
                count.wrong_grads.append(f"gradient {i}: {wrong}")
                return
        count.grads += 1
    except Exception as error:  # noqa: BLE001
        count.wrong_grads.append(f"{type(error).__name__}: {error}"[:160])


def run(names=None, dtypes=("float32",), n_samples=3, grads=True):
    """{name: Count or None}; None: the name is not there."""
    op_db, _ = database()
    found = collections.OrderedDict()
    for op in op_db:
        if names and op.name not in names or (op.name, op.variant_test_name) in OF_THEIR_OWN:
            continue
        function = ours_function(op.name)
        if function is None:
            found.setdefault(op.name, None)
            continue
        count = found.setdefault(op.name, Count())
        for dtype in dtypes:
            kind = getattr(torch, dtype)
            if kind not in op.dtypes:
                kind = next((k for k in (torch.int64, torch.bool) if dtype == "float32" and k in op.dtypes), None)
                if kind is None:
                    continue
            has_grad = grads and op.supports_autograd and (kind.is_floating_point or kind.is_complex)
            torch.manual_seed(0)
            try:
                samples = list(itertools.islice(op.sample_inputs("cpu", kind, requires_grad=has_grad), n_samples))
            except Exception:  # noqa: BLE001 (samples that need another machine)
                continue
            for sample in samples:
                given = sample.input, sample.args, sample.kwargs
                part = sample.output_process_fn_grad if op.name in FREE_SIGNS else lambda y: y
                run_sample(function, op.op, given, count, op.name, has_grad, part)
    return found


def run_modules(names=None, n_samples=2):
    """{name: Count or None} of the modules."""
    _, module_db = database()
    found = collections.OrderedDict()
    for info in module_db:
        if names and info.name not in names:
            continue
        cls = getattr(tally.nn, info.name.split(".")[1], None)
        if cls is None:
            found[info.name] = None
            continue
        count = found.setdefault(info.name, Count())
        torch.manual_seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
        for sample in itertools.islice(inputs, n_samples):
            run_module(info, cls, sample, count)
    return found


def run_module(info, cls, sample, count):
    make, call = sample.constructor_input, sample.forward_input
    if call is None:
        return
    theirs = info.module_cls(*make.args, **make.kwargs)
    try:
        memo = {}
        arguments = ours_of([list(make.args), dict(make.kwargs)], memo)
        module = cls(*arguments[0], **arguments[1])
        fresh = [n for n, p in theirs.named_parameters() if isinstance(p, torch.nn.parameter.UninitializedParameter)]
        if fresh:  # a lazy module makes its parameters when it is first called
            theirs(*call.args, **call.kwargs)
            module(*ours_of(list(call.args), {}), **ours_of(dict(call.kwargs), {}))
        module.load_state_dict({k: ours_of(v.detach(), {}) for k, v in theirs.state_dict().items()})
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}"[:160]
        count.refused[text] = count.refused.get(text, 0) + 1
        return
    parameters = list(zip(theirs.parameters(), module.parameters()))

    def function(x, *args, **kwargs):
        return module(x, *args, **kwargs)
    if getattr(theirs, "dropout", 0) and theirs.training and not isinstance(theirs, torch.nn.Module):
        return
    theirs.eval() if "Transformer" in info.name or "Dropout" in info.name else None
    module.eval() if "Transformer" in info.name or "Dropout" in info.name else None
    if not call.args:
        return
    if not isinstance(call.args[0], torch.Tensor):
        return
    run_sample(function, theirs, (call.args[0], tuple(call.args[1:]), dict(call.kwargs)), count, info.name, True)
    with_parameters(parameters, theirs, module, call, count)


def with_parameters(parameters, theirs, module, call, count):
    """The gradients of the parameters."""
    if not parameters or count.refused or count.wrong:
        return
    theirs.zero_grad()
    module.zero_grad()
    state = {k: ours_of(v.detach(), {}) for k, v in theirs.state_dict().items()}
    module.load_state_dict(state)
    outputs = [y for y in flat(theirs(*call.args, **call.kwargs)) if isinstance(y, torch.Tensor) and y.requires_grad]
    mine = [y for y in flat(module(*ours_of(list(call.args), {}), **ours_of(dict(call.kwargs), {})))
            if isinstance(y, tally.Tensor) and y.requires_grad]
    wanted = gradients(torch, outputs, [p for p, _ in parameters])
    found = gradients(tally, mine, [p for _, p in parameters])
    for (p, _), g, h in zip(parameters, found or (), wanted or ()):
        g = tally.zeros(*p.shape) if g is None else g
        wrong = wrong_value(g, torch.zeros_like(p) if h is None else h, lambda: None)
        if wrong and not np.allclose(array(g), array(h), rtol=1e-4, atol=1e-5 * float(h.abs().max())):
            count.wrong_grads.append(f"parameter {tuple(p.shape)}: {wrong}")
            return


def totals(found):
    there = {n: c for n, c in found.items() if c is not None and c.right}
    return {"names": len(found), "there": len(there), "calls": sum(c.right for c in there.values()),
            "wrong": sorted(n for n, c in found.items() if c and c.wrong),
            "gradients": sum(c.grads for c in there.values()),
            "wrong gradients": sorted(n for n, c in found.items() if c and c.wrong_grads),
            "missing": sorted(n for n, c in found.items() if c is None),
            "refused": sorted(n for n, c in found.items() if c and not c.right and not c.wrong)}


def main(argv):
    options = {"--samples": "3", "--dtype": "float32", "--show": "2"}
    names = []
    while argv:
        a = argv.pop(0)
        if a in options:
            options[a] = argv.pop(0)
        else:
            names.append(a)
    torch.set_num_threads(1)
    if names and names[0].startswith("nn.") and not names[0].startswith("nn.functional") or names == ["modules"]:
        found = run_modules(None if names == ["modules"] else names, int(options["--samples"]))
    else:
        found = run(names, options["--dtype"].split(","), int(options["--samples"]))
    show = int(options["--show"])
    for name, c in found.items():
        if c is None:
            continue
        for text in c.wrong[:show]:
            print(f"{name}: WRONG {text}")
        for text in c.wrong_grads[:show]:
            print(f"{name}: GRADIENT {text}")
        for text, n in list(c.refused.items())[:show]:
            print(f"{name}: refused {n} times ({c.right} right): {text}")
    for key, value in totals(found).items():
        print(f"{key}: {value if isinstance(value, int) else f'{len(value)}: ' + ' '.join(value)}")


if __name__ == "__main__":
    main(sys.argv[1:])
