"""Einops in C against the einops package (on NumPy), torch.einsum, and a brute-force search for the cheapest
contraction.

A case depends only on its number; TALLY_SOAK=n runs n times as many. Patterns come from a grammar. A third of them are
then damaged, so that both sides must also refuse the same patterns.
"""
import ctypes
import functools
import itertools
import os
import random

import einops
import numpy as np
import pytest
import torch

from tally_c import Tensor, TallyError, tl

pytestmark = pytest.mark.filterwarnings("ignore")  # einops warns of names that are keywords, NumPy of empty means
SOAK = int(os.environ.get("TALLY_SOAK", "1"))
N_PATTERNS, N_EINSUM, N_PLANS = 50_000 * SOAK, 5_000 * SOAK, 400 * SOAK

NAMES = ["a", "b", "c", "h", "w", "d1", "seq", "heads", "é", "straße", "Ω2", "x_y", "axis"]
REDUCTIONS = ["min", "max", "sum", "mean", "prod", "any", "all"]
DAMAGE = list("()  ..._->,123 0abh\t*=é²٣") + ["...", "->", " 1 ", " () ", "(a b)", "_", " a_", " _b ", "00", "01",
                                               " 2 "]


# ---- Patterns beside einops ----

def values(r, shape):
    """Small whole numbers: sums and products of them are exact."""
    kind = r.choice([np.float64, np.float64, np.float32, np.int64, np.int32, np.bool_])
    n = int(np.prod(shape, dtype=np.int64))
    numbers = [r.randint(0, 1) if kind is np.bool_ else r.choice((-2, -1, 1, 2, 0, 1)) for _ in range(n)]
    return np.array(numbers).astype(kind).reshape(shape)


def text_of(groups):
    parts = []
    for group in groups:
        if group == "...":
            parts.append("...")
        elif len(group) == 1 and group[0] != "":
            parts.append(group[0])
        else:
            parts.append("(" + " ".join(group) + ")")
    return " ".join(parts)


def damaged(r, pattern):
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        at = r.randint(0, len(pattern))
        how = r.random()
        if how < 0.35:
            pattern = pattern[:at] + pattern[at + 1:]
        elif how < 0.75:
            pattern = pattern[:at] + r.choice(DAMAGE) + pattern[at:]
        else:
            pattern = pattern[:at] + r.choice(DAMAGE) + pattern[at + 1:]
    return pattern


def regrouped(r, axes):
    """The axes in random groups, with a few axes of size 1."""
    groups = []
    while axes:
        n = r.choice((1, 1, 1, 1, 2, 2, 3))
        group, axes = axes[:n], axes[n:]
        if r.random() < 0.1 and group != ["..."]:
            group = group + ["1"]
        groups.append("..." if group == ["..."] else group)
    while r.random() < 0.15:
        groups.insert(r.randint(0, len(groups)), r.choice((["1"], [])))
    return groups


def transform_case(r):
    """(operation, pattern, shape, lengths)"""
    operation = r.choice(["rearrange", "rearrange", "repeat", "reduce"])
    names = r.sample(NAMES, r.randint(0, 4))
    size = {n: r.choice((1, 2, 2, 3, 4, 0) if r.random() < 0.1 else (1, 2, 2, 3, 4)) for n in names}
    left, shape, lengths = [], [], {}
    items = list(names)
    if operation == "reduce":
        items = [str(r.choice((2, 3))) if r.random() < 0.1 else n for n in items]
    size.update({i: int(i) for i in items if i.isdigit()})
    for group in regrouped(r, items):
        left.append(group)
        shape.append(int(np.prod([size.get(n, 1) for n in group], dtype=np.int64)))
        unknown = [n for n in group if n in names and not n.isdigit()]
        keep = r.choice(unknown) if unknown and r.random() < 0.9 else None
        lengths.update({n: size[n] for n in unknown if n != keep})
    right = [n for n in items if not n.isdigit()]
    if r.random() < 0.3:
        at = r.randint(0, len(left))
        left.insert(at, "...")
        shape[at:at] = [r.choice((1, 2, 3)) for _ in range(r.choice((0, 0, 1, 2)))]
        right.append("...")
    r.shuffle(right)
    if operation == "reduce":
        right = [n for n in right if r.random() < 0.6]
    if operation == "repeat":
        for n in r.sample([n for n in NAMES if n not in names], r.randint(0, 2)):
            lengths[n] = r.choice((0, 1, 2, 2, 3))
            right.insert(r.randint(0, len(right)), n)
        if r.random() < 0.2:
            right.insert(r.randint(0, len(right)), str(r.choice((2, 3))))
    pattern = text_of(left) + r.choice((" -> ", "->", " ->")) + text_of(regrouped(r, right))
    if r.random() < 0.33:
        pattern = damaged(r, pattern)
    if r.random() < 0.06:
        shape = [s if r.random() < 0.5 else r.choice((1, 2, 3, 4, 6, 0)) for s in shape]
    if r.random() < 0.06 and lengths:
        lengths[r.choice(list(lengths))] = r.choice((-2, 0, 1, 2, 5, -1))
    if r.random() < 0.04:
        lengths[r.choice(NAMES + ["_", "2", ""])] = r.choice((1, 2, 3))
    return operation, pattern, shape, dict(sorted(lengths.items(), key=lambda _: r.random()))


def lengths_text(lengths):
    return " ".join(f"{name}={size}" for name, size in lengths.items())


def ours_transform(operation, x, pattern, reduction, lengths):
    return getattr(tl, operation)(tl.tensor(x), pattern, *([reduction] if operation == "reduce" else []),
                                  lengths_text(lengths))


def outcome(f):
    try:
        return f(), None
    except Exception as error:  # whatever einops lets through is a refusal
        return None, error


def same(ours, theirs, what):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape, f"{what}: shape {ours.shape}, einops {theirs.shape}"
    assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype}, einops {theirs.dtype}"
    assert np.allclose(ours, theirs, rtol=1e-6 if ours.dtype == np.float32 else 1e-13, atol=0, equal_nan=True), what


def test_patterns_are_accepted_and_refused_as_by_einops():
    n_accepted = n_refused = 0
    for case in range(N_PATTERNS):
        r = random.Random(case)
        operation, pattern, shape, lengths = transform_case(r)
        x, reduction = values(r, shape), r.choice(REDUCTIONS)
        what = (f"case {case}: {operation} {reduction if operation == 'reduce' else ''} {pattern!r} on "
                f"{x.dtype}{shape} with {lengths}")
        arguments = (reduction,) if operation == "reduce" else ()
        theirs, refusal = outcome(lambda: getattr(einops, operation)(x, pattern, *arguments, **lengths))
        try:
            ours, error = ours_transform(operation, x, pattern, reduction, lengths), None
        except TallyError as e:
            ours, error = None, e
        assert (ours is None) == (theirs is None), f"{what}\nours: {error or 'accepted'}\neinops: {refusal!r}"
        if ours is None:
            n_refused += 1
            assert "\n" in str(error) or operation in str(error) or reduction in str(error), f"{what}: {error}"
        else:
            n_accepted += 1
            same(ours.numpy(), theirs, what)
    print(f"{n_accepted} accepted, {n_refused} refused")
    assert n_accepted > N_PATTERNS // 3 and n_refused > N_PATTERNS // 10


def test_lengths_may_be_separated_by_commas():
    for case in range(500):
        r = random.Random(case)
        operation, pattern, shape, lengths = transform_case(r)
        if operation == "reduce" or not lengths:
            continue
        x = values(r, shape)
        text = r.choice((" ", ", ", ",")).join(f"{n}={s}" for n, s in lengths.items())
        a, _ = outcome(lambda: ours_transform(operation, x, pattern, None, lengths).numpy())
        b, _ = outcome(lambda: getattr(tl, operation)(tl.tensor(x), pattern, text).numpy())
        assert (a is None) == (b is None) and (a is None or np.array_equal(a, b)), (case, pattern, text)


def test_parse_shape_is_einops():
    n_accepted = 0
    for case in range(10_000 * SOAK):
        r = random.Random(case)
        shape = [r.choice((1, 1, 2, 3, 4)) for _ in range(r.randint(0, 5))]
        items = [r.choice(NAMES + ["_", "_"]) if s > 1 or r.random() < 0.7 else "1" for s in shape]
        items = [str(s) if r.random() < 0.1 else i for i, s in zip(items, shape)]
        if r.random() < 0.3:
            a, b = sorted((r.randint(0, len(items)), r.randint(0, len(items))))
            items[a:b] = ["..."]
        pattern = " ".join(items)
        if r.random() < 0.3:
            pattern = damaged(r, pattern)
        x = np.zeros(shape, np.float32)
        theirs, refusal = outcome(lambda: einops.parse_shape(x, pattern))
        dims = tl.dims()

        def ours():
            tl.parse_shape(tl.tensor(x), pattern, dims)
            return {tl.dims_name(dims, i).decode(): dims.size[i] for i in range(dims.n)}
        found, error = outcome(ours)
        assert found == theirs, f"case {case}: {pattern!r} on {shape}: {found} {error}, einops {theirs} {refusal!r}"
        n_accepted += theirs is not None
    assert n_accepted > 3000


def packed_of(shapes):
    result = (tl.packed * max(1, len(shapes)))()
    for p, shape in zip(result, shapes):
        p.rank = len(shape)
        p.size[:len(shape)] = shape
    return result


def unpacked(x, shapes, pattern):
    parts = (ctypes.c_void_p * max(1, len(shapes)))()
    with tl.scope():
        tl.unpack(x, packed_of(shapes), len(shapes), pattern, parts)
        return [Tensor(p) for p in parts[:len(shapes)]]


def test_pack_and_unpack_are_einops():
    n_accepted = n_unpacked = 0
    for case in range(10_000 * SOAK):
        r = random.Random(case)
        names = r.sample(NAMES, r.randint(0, 3))
        star = r.randint(0, len(names))
        size = {n: r.choice((1, 2, 3)) for n in names}
        pattern = r.choice((" ", "  ")).join(names[:star] + ["*"] + names[star:])
        if r.random() < 0.2:
            pattern = damaged(r, pattern)
        xs = []
        for _ in range(r.randint(1, 4)):
            middle = [r.choice((1, 2, 3)) for _ in range(r.choice((0, 0, 1, 2)))]
            shape = [size[n] for n in names[:star]] + middle + [size[n] for n in names[star:]]
            if r.random() < 0.05:
                shape = shape[1:]
            if r.random() < 0.04 and shape:
                shape[r.randrange(len(shape))] = 5
            xs.append(np.arange(np.prod(shape, dtype=np.int64), dtype=np.float64).reshape(shape))
        what = f"case {case}: {pattern!r} on {[x.shape for x in xs]}"
        theirs, refusal = outcome(lambda: einops.pack(xs, pattern))
        shapes = (tl.packed * len(xs))()
        ours, error = outcome(lambda: tl.pack([tl.tensor(x) for x in xs], len(xs), pattern, shapes))
        assert (ours is None) == (theirs is None), f"{what}: {error}, einops {refusal!r}"
        if ours is None:
            continue
        n_accepted += 1
        same(ours.numpy(), theirs[0], what)
        packed = [tuple(p.size[:p.rank]) for p in shapes]
        assert packed == [tuple(s) for s in theirs[1]], what
        if r.random() < 0.4:
            i = r.randrange(len(packed))
            packed[i] = tuple(-1 if r.random() < 0.6 else s for s in packed[i])
        elif r.random() < 0.2:
            packed[r.randrange(len(packed))] = tuple(r.choice((0, 1, 2, 3)) for _ in range(r.randint(0, 2)))
        total = sum(int(np.prod([max(s, 1) for s in p], dtype=np.int64)) for p in packed)
        theirs, refusal = outcome(lambda: einops.unpack(theirs[0], packed, pattern))
        parts, error = outcome(lambda: unpacked(ours, packed, pattern))
        if theirs is not None and parts is None and any(-1 in p for p in packed) and total > ours.shape[star]:
            continue  # einops lets pieces overlap beside a -1; we say that sizes do not add up
        assert (parts is None) == (theirs is None), f"{what} into {packed}: {error}, einops {refusal!r}"
        for a, b in zip(parts or [], theirs or []):
            n_unpacked += 1
            same(a.numpy(), b, what)
    assert n_accepted > 5000 and n_unpacked > 5000


def test_permuting_copies_of_every_size_are_numpys():
    """Tiles have edges: sizes around theirs, elements of 1, 2, 4 and 8 bytes, also converted on the way."""
    for case in range(300 * SOAK):
        r = random.Random(case)
        rank = r.randint(2, 4)
        shape = [r.choice((1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 130, 257)) for _ in range(rank)]
        while np.prod(shape) > 400_000:
            shape[r.randrange(rank)] = r.choice((1, 2, 3, 5))
        dtype = r.choice((np.uint8, np.float16, np.int16, np.float32, np.int32, np.float64, np.int64))
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        names, order = "abcd"[:rank], r.sample(range(rank), rank)
        step = r.choice((1, 1, 1, 2))
        t = tl.tensor(x)
        if step == 2:  # gaps in the input
            t, x = tl.slice(t, rank - 1, 0, shape[-1], 2), x[..., ::2]
        turned = tl.rearrange(t, " ".join(names) + " -> " + " ".join(names[i] for i in order), None)
        want = x.transpose(order)
        assert np.array_equal(tl.clone(turned).numpy(), want), (case, shape, order, dtype)
        if np.dtype(dtype).itemsize >= 4:
            other = np.float64 if dtype == np.float32 else np.float32
            got = tl.cast(turned, tl.F64 if other == np.float64 else tl.F32)
            assert np.array_equal(got.numpy(), want.astype(other)), (case, shape, order, dtype)


# ---- Gradients beside torch, through the einops package ----

GRADIENT_REDUCTIONS = ["sum", "mean", "max", "min", "prod", "logsumexp"]
N_GRADIENTS = 3_000 * SOAK


def theirs_transform(operation, x, pattern, reduction, lengths):
    if operation == "reduce" and reduction == "logsumexp":  # not one of the package's own: a function
        return einops.reduce(x, pattern, lambda y, axes: torch.logsumexp(y, tuple(axes)), **lengths)
    return getattr(einops, operation)(x, pattern, *((reduction,) if operation == "reduce" else ()), **lengths)


def distinct(r, shape):
    """All different and away from 0: the largest is one element, and a product has a slope."""
    n = int(np.prod(shape, dtype=np.int64))
    return np.array([r.choice((-1, 1)) * (0.5 + i / max(n, 1)) for i in r.sample(range(n), n)],
                    np.float64).reshape(shape)


def same_gradients(r, ours, ours_in, theirs, theirs_in, what):
    """Of one output with a random seed, with respect to every input."""
    expected = theirs.detach().numpy()
    assert ours.shape == expected.shape and np.allclose(ours.numpy(), expected, rtol=1e-12, atol=1e-12), what
    seed = np.array([r.uniform(-1, 1) for _ in range(expected.size)]).reshape(expected.shape)
    grads = tl.gradients_of(ours, ours_in, tl.tensor(seed))
    wanted = torch.autograd.grad(theirs, theirs_in, torch.tensor(seed), allow_unused=True, retain_graph=True)
    for i, (a, b) in enumerate(zip(grads, wanted, strict=True)):
        shape = tuple(theirs_in[i].shape)
        a, b = np.zeros(shape) if a is None else a.numpy(), np.zeros(shape) if b is None else b.numpy()
        assert a.shape == shape and np.allclose(a, b, rtol=1e-11, atol=1e-11), f"{what}: gradient {i}\n{a}\n{b}"


def test_gradients_of_patterns_are_torchs_through_einops():
    n = dict.fromkeys(["rearrange", "repeat", *GRADIENT_REDUCTIONS], 0)
    for case in range(N_GRADIENTS):
        r = random.Random(case)
        operation, pattern, shape, lengths = transform_case(r)
        x, reduction = distinct(r, shape), r.choice(GRADIENT_REDUCTIONS)
        what = f"case {case}: {operation} {reduction} {pattern!r} on {shape} with {lengths}"
        theirs_in = torch.tensor(x, requires_grad=True)
        theirs, _ = outcome(lambda: theirs_transform(operation, theirs_in, pattern, reduction, lengths))
        if theirs is None or min(lengths.values(), default=0) < 0:
            continue  # what is refused is compared elsewhere; torch takes a length of -1 for "as it is"
        ours_in = tl.requires_grad(tl.tensor(x), True)
        arguments = [ours_in, pattern, *([reduction] if operation == "reduce" else []), lengths_text(lengths)]
        same_gradients(r, getattr(tl, operation)(*arguments), [ours_in], theirs, [theirs_in], what)
        n[reduction if operation == "reduce" else operation] += 1
    assert min(n.values()) > N_GRADIENTS // 60, n


def test_gradients_of_pack_and_unpack_are_torchs_through_einops():
    for case in range(500 * SOAK):
        r = random.Random(case)
        names = r.sample(["a", "b", "c"], r.randint(0, 3))
        size, star = {n: r.choice((1, 2, 3)) for n in names}, r.randint(0, len(names))
        pattern = " ".join(names[:star] + ["*"] + names[star:])
        shapes = [[size[n] for n in names[:star]] + [r.choice((1, 2, 3)) for _ in range(r.randint(0, 2))]
                  + [size[n] for n in names[star:]]
                  for _ in range(r.randint(1, 4))]
        arrays = [distinct(r, s) for s in shapes]
        what = f"case {case}: {pattern!r} on {shapes}"
        theirs_in = [torch.tensor(a, requires_grad=True) for a in arrays]
        ours_in = [tl.requires_grad(tl.tensor(a), True) for a in arrays]
        theirs, their_shapes = einops.pack(theirs_in, pattern)
        same_gradients(r, tl.pack(ours_in, len(arrays), pattern, (tl.packed * len(arrays))()), ours_in, theirs,
                       theirs_in, what)

        whole = theirs.detach().numpy().copy()
        theirs_whole, ours_whole = torch.tensor(whole, requires_grad=True), tl.requires_grad(tl.tensor(whole), True)
        parts = unpacked(ours_whole, their_shapes, pattern)
        for i, (a, b) in enumerate(zip(parts, einops.unpack(theirs_whole, their_shapes, pattern), strict=True)):
            same_gradients(r, a, [ours_whole], b, [theirs_whole], f"{what}, part {i}")


# ---- Einsum beside torch ----

def einsum_case(r, damage=False):
    """(equation in letters, arrays); the equation in names is made from the other."""
    letters = r.sample("abcdefgxyzABZ", r.randint(1, 6))
    size = {c: r.choice((1, 2, 3, 4, 2, 3)) if r.random() < 0.97 else 0 for c in letters}
    dots = [r.choice((1, 2, 3)) for _ in range(r.choice((1, 2)))]
    has_dots = r.random() < 0.3
    terms, arrays = [], []
    for _ in range(r.choice((1, 2, 2, 2, 3, 3, 4, 5))):
        term = [r.choice(letters) for _ in range(r.choice((0, 1, 2, 2, 3, 3, 4)))]
        if r.random() < 0.8:
            term = list(dict.fromkeys(term))
        shape = [1 if r.random() < 0.06 and term.count(c) == 1 else size[c] for c in term]
        if has_dots and r.random() < 0.7:
            at, n = r.randint(0, len(term)), r.randint(0, len(dots))
            term.insert(at, "...")
            shape[at:at] = [1 if r.random() < 0.15 else s for s in dots[len(dots) - n:]]
        terms.append(term)
        arrays.append(np.array([r.uniform(-1, 1) for _ in range(int(np.prod(shape, dtype=np.int64)))]).reshape(shape))
    used = sorted({c for t in terms for c in t if c != "..."})
    output = None
    if r.random() < 0.85:
        output = r.sample(used, r.randint(0, len(used)))
        if any("..." in t for t in terms) and r.random() < 0.85:
            output.insert(r.randint(0, len(output)), "...")
    equation = ",".join("".join(t) for t in terms) + ("" if output is None else "->" + "".join(output))
    if damage:
        at = r.randint(0, len(equation))
        equation = (equation[:at] + r.choice(["", "a", "...", ",", "->", " ", "1", ".", "Z", "é", "-"])
                    + equation[at + r.choice((0, 0, 1)):])
    names = None if output is None else ", ".join(" ".join(t) for t in terms) + " -> " + " ".join(output)
    return equation, names, arrays


def ours_einsum(equation, names, tensors):
    return tl.einsum(names, tensors, len(tensors)) if names else tl.einsum_letters(equation, tensors, len(tensors))


def test_einsum_has_the_values_and_gradients_of_torch():
    n_named = 0
    for case in range(N_EINSUM):
        r = random.Random(case)
        equation, names, arrays = einsum_case(r)
        use_names = names if names and r.random() < 0.5 else None
        n_named += use_names is not None
        what = f"case {case}: {use_names or equation!r} on {[a.shape for a in arrays]}"
        theirs_in = [torch.tensor(a, requires_grad=True) for a in arrays]
        ours_in = [tl.requires_grad(tl.tensor(a), True) for a in arrays]
        theirs = torch.einsum(equation, *theirs_in)
        ours = ours_einsum(equation, use_names, ours_in)
        expected = theirs.detach().numpy()
        assert ours.shape == expected.shape, f"{what}: {ours.shape}, torch {expected.shape}"
        assert np.allclose(ours.numpy(), expected, rtol=1e-12, atol=1e-12), what
        if not theirs.requires_grad:
            continue
        seed = np.array([r.uniform(-1, 1) for _ in range(expected.size)]).reshape(expected.shape)
        grads = tl.gradients_of(ours, ours_in, tl.tensor(seed))
        wanted = torch.autograd.grad(theirs, theirs_in, torch.tensor(seed), allow_unused=True)
        for i, (a, b) in enumerate(zip(grads, wanted)):
            b = torch.zeros_like(theirs_in[i]) if b is None else b
            a = np.zeros(arrays[i].shape) if a is None else a.numpy()
            assert np.allclose(a, b.numpy(), rtol=1e-11, atol=1e-11), f"{what}: gradient {i}\n{a}\n{b}"
    assert n_named > N_EINSUM // 4


def test_damaged_equations_are_refused_as_by_torch():
    n_refused = 0
    for case in range(N_EINSUM):
        r = random.Random(-1 - case)
        equation, _, arrays = einsum_case(r, damage=True)
        theirs, refusal = outcome(lambda: torch.einsum(equation, *[torch.tensor(a) for a in arrays]).numpy())
        ours, error = outcome(lambda: ours_einsum(equation, None, [tl.tensor(a) for a in arrays]).numpy())
        what = f"case {case}: {equation!r} on {[a.shape for a in arrays]}: ours {error}, torch {refusal!r}"
        assert (ours is None) == (theirs is None), what
        n_refused += ours is None
        if ours is not None:
            assert ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-12, atol=1e-12), what
    assert n_refused > N_EINSUM // 5


def test_einsum_of_integers_and_of_mixed_dtypes_is_numpys():
    for case in range(500 * SOAK):
        r = random.Random(case)
        equation, names, arrays = einsum_case(r)
        if "..." in equation or names is None:
            continue
        kinds = [np.int64, np.int32, np.uint8, np.float32, np.float64]
        arrays = [np.array([r.randint(0, 3) for _ in range(a.size)]).reshape(a.shape).astype(r.choice(kinds))
                  for a in arrays]
        theirs, refusal = outcome(lambda: np.einsum(equation, *arrays))
        dtype = functools.reduce(torch.promote_types, [torch.from_numpy(a).dtype for a in arrays])
        if refusal is not None:
            continue  # NumPy broadcasts less
        ours = ours_einsum(equation, names, [tl.tensor(a) for a in arrays])
        expected = theirs.astype(torch.empty(0, dtype=dtype).numpy().dtype)
        assert ours.dtype == expected.dtype, (case, equation, ours.dtype, expected.dtype)
        assert np.array_equal(ours.numpy(), expected), (case, equation, [a.dtype for a in arrays])


# ---- The cheapest order ----

def plan_of(equation, tensors):
    steps, total = (tl.einsum_step * max(1, len(tensors)))(), tl.contraction()
    tl.einsum_plan(equation, True, tensors, len(tensors), steps, total, None)
    return [(s.left, s.right, s.flops.low, s.numel) for s in steps[:total.n_steps]], total


def step_cost(a, b, needed, size):
    joint = int(np.prod([size[c] for c in a | b], dtype=object))
    return joint * (2 if (a | b) - needed else 1)


def cheapest(terms, output, size):
    """The fewest FLOPs over all orders of pairs, by trying each."""
    if len(terms) == 1:
        return 0
    best = None
    for i, j in itertools.combinations(range(len(terms)), 2):
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        needed = set(output).union(*rest)
        cost = (step_cost(terms[i], terms[j], needed, size)
                + cheapest(rest + [(terms[i] | terms[j]) & needed], output, size))
        best = cost if best is None or cost < best else best
    return best


def chain_case(r, n):
    letters = "abcdefghij"[:r.randint(3, 8)]
    size = {c: r.choice((2, 3, 5, 8, 13, 20)) for c in letters}
    terms = [set(r.sample(letters, r.randint(1, 3))) for _ in range(n)]
    used = sorted(set().union(*terms))
    return terms, set(r.sample(used, r.randint(0, min(3, len(used))))), size


def summed_first(terms, output):
    return [t - (t - output - set().union(*(u for k, u in enumerate(terms) if k != i))) for i, t in enumerate(terms)]


def test_the_order_has_the_fewest_flops():
    for case in range(N_PLANS):
        r = random.Random(case)
        terms, output, size = chain_case(r, r.randint(2, 5))
        equation = ",".join("".join(sorted(t)) for t in terms) + "->" + "".join(sorted(output))
        tensors = [tl.empty(len(t), [size[c] for c in sorted(t)] or [1], tl.F32, tl.device_find("meta")) for t in terms]
        steps, total = plan_of(equation, tensors)
        slim = summed_first(terms, output)
        sums = sum(int(np.prod([size[c] for c in t], dtype=object)) for t, s in zip(terms, slim) if t != s)
        assert total.flops.low == cheapest(slim, output, size) + sums, (case, equation, size, steps)
        assert total.flops_in_order.low >= total.flops.low


def test_opt_einsum_finds_nothing_cheaper():
    opt_einsum = pytest.importorskip("opt_einsum")
    for case in range(100 * SOAK):
        r = random.Random(case)
        terms, output, size = chain_case(r, r.randint(3, 8))
        terms = summed_first(terms, output)
        equation = ",".join("".join(sorted(t)) for t in terms) + "->" + "".join(sorted(output))
        shapes = [tuple(size[c] for c in sorted(t)) for t in terms]
        tensors = [tl.empty(len(s), list(s) or [1], tl.F32, tl.device_find("meta")) for s in shapes]
        _, total = plan_of(equation, tensors)
        _, info = opt_einsum.contract_path(equation, *shapes, shapes=True,
                                           optimize="optimal" if len(terms) < 7 else "dp")
        assert total.flops.low <= int(info.opt_cost), (case, equation, size, total.flops.low, int(info.opt_cost))


def test_the_plans_flops_are_the_ledgers():
    for case in range(300):
        r = random.Random(case)
        terms, output, size = chain_case(r, r.randint(1, 10))
        equation = ",".join("".join(sorted(t)) for t in terms) + "->" + "".join(sorted(output))
        with tl.scope():
            tensors = [tl.empty(len(t), [size[c] for c in sorted(t)] or [1], tl.F32, tl.device_find("meta"))
                       for t in terms]
            _, total = plan_of(equation, tensors)
            ledger = tl.ledger_begin("einsum")
            result, error = outcome(lambda: tl.einsum_letters(equation, tensors, len(tensors)))
            tl.ledger_end(ledger)
            flops = tl.ledger_total(ledger, -1, None).flops.low
            tl.ledger_free(ledger)
        assert error is None and flops == total.flops.low, (case, equation, error, flops, total.flops.low)
