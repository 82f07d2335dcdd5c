"""What test_surface.py draws: programs of a few lines that mean the same with `t` as tally and as torch.

A generator gets a Case, adds inputs (c.tensor) and lines (c.run), and says which expressions are results (c.gives).
All randomness comes from c, so a case depends only on (SEED, its number).
"""
import math
import random

import numpy as np

SEED = 51
FLOATS = ["float32", "float32", "float32", "float64", "float64", "float16", "bfloat16"]
WIDE = ["float32", "float32", "float64"]
INTEGERS = ["int64", "int64", "int32", "uint8", "int16", "int8"]
ANY = FLOATS + ["float32", "float32"] + INTEGERS + ["bool"]
NUMBERS = WIDE + ["int64", "int32"]
POOL = np.random.default_rng(SEED).standard_normal(1 << 12)
OPS = {}  # name -> generator


def case(*names):
    def add(generator):
        for name in names:
            assert name not in OPS, name
            OPS[name] = generator
        return generator
    return add


class Case:
    def __init__(self, number, name):
        self.id, self.name, self.r = number, name, random.Random(SEED * 1000003 + number)
        self.leaves, self.lines, self.results, self.notes = [], [], "z", set()
        OPS[name](self, name)

    def __repr__(self):
        leaves = "\n  ".join(f"leaf{i} = {v.dtype.name}{list(v.shape)}{' requires grad' if g else ''} {v.tolist()}"
                             for i, (v, g) in enumerate(self.leaves))
        return f"case {self.id} ({self.name})\n  {leaves}\n  " + "\n  ".join(self.code().splitlines())

    def code(self):
        return "\n".join(self.lines + [f"results = ({self.results},)"])

    # ---- Draws ----

    def chance(self, p):
        return self.r.random() < p

    def pick(self, *of):
        return self.r.choice(of)

    def size(self):
        return self.r.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5))

    def shape(self, rank=None, least=0, low=0):
        rank = self.r.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        return [max(self.size(), low) for _ in range(max(rank, least))]

    def axis(self, rank, wrong=0.03):
        if self.chance(wrong):
            return self.pick(rank, -rank - 1, rank + 3)
        return self.r.randint(-max(rank, 1), max(rank, 1) - 1)

    def axes(self, rank):
        """None, one or several axes, as text."""
        kind = self.r.random()
        if kind < 0.25:
            return "None"
        if kind < 0.6 or not rank:
            return str(self.axis(rank))
        some = [a - rank if self.chance(0.3) else a for a in self.r.sample(range(rank), self.r.randint(1, rank))]
        return self.pick(str(some), str(tuple(some)))

    def dtype(self, of=ANY):
        return "t." + self.r.choice(of)

    def beside(self, shape):
        """A shape that broadcasts with this one, mostly."""
        other = [n if self.chance(0.75) else 1 for n in shape][self.r.choice((0, 0, 0, 0, 1, 2)):]
        if other and self.chance(0.04):
            other[self.r.randrange(len(other))] += 2
        return other

    def number(self, whole=False, positive=False):
        """A number, as text: Python's kinds and NumPy's."""
        i = self.r.randint(1 if positive else -3, 4)
        f = self.pick(0.5, 1.5, 2.0, 0.1) if positive else self.pick(-1.5, 0.5, 2.0, 0.1, -0.25, 0.0)
        if whole:
            return self.pick(str(i), str(i), f"np.int64({i})")
        return self.pick(str(i), str(i), str(f), str(f), self.pick("True", "False"), f"np.float32({f})",
                         f"np.float64({f})", f"np.int64({i})")

    def values(self, shape, dtype, kind):
        return np.asarray(self.draw(shape, dtype, kind))

    def draw(self, shape, dtype, kind):
        at = self.r.randrange(1 << 11)
        x = np.resize(POOL[at:at + 997], math.prod(shape)).reshape(shape)
        if kind == "positive":
            x = np.abs(x) + 0.25
        if kind == "unit":
            x = np.tanh(x) * 0.9
        if dtype == "bool":
            return np.asarray(x > 0)
        if dtype.startswith(("int", "uint")):
            x = np.trunc(x * 3)
            return (np.abs(x) + (kind == "positive") if dtype.startswith("u") or kind == "positive"
                    else x).astype(dtype)
        if kind == "few":
            x = np.trunc(x * 2)
        if kind == "normal" and x.size and self.chance(0.04):
            x = x.copy()
            x.reshape(-1)[self.r.randrange(x.size)] = self.pick(np.nan, np.inf, -np.inf, 0.0)
            self.notes.add("special")
        if dtype == "bfloat16":
            import ml_dtypes
            return x.astype(ml_dtypes.bfloat16)
        return x.astype(dtype)

    # ---- Lines ----

    def tensor(self, name="x", shape=None, of=ANY, kind="normal", grad=None,
               layouts=("dense", "dense", "dense", "permuted", "sliced", "expanded", "offset")):
        """Adds an input; gives its shape."""
        shape = self.shape() if shape is None else list(shape)
        dtype, rank = self.r.choice(of), len(shape)
        layout = self.r.choice(layouts) if rank else "dense"
        leaf = f"leaf{len(self.leaves)}"
        if layout == "permuted":
            order = self.r.sample(range(rank), rank)
            source, text = [shape[order.index(i)] for i in range(rank)], f"{leaf}.permute({order})"
        elif layout == "sliced":
            axis = self.r.randrange(rank)
            source = shape[:axis] + [2 * shape[axis]] + shape[axis + 1:]
            text = f"{leaf}[{':, ' * axis}{self.pick('1::2', '::2')}]"
        elif layout == "offset":
            source, text = [2] + shape, f"{leaf}[1]"
        elif layout == "expanded" and any(n > 1 for n in shape):
            axis = self.r.choice([i for i, n in enumerate(shape) if n > 1])
            source, text = shape[:axis] + [1] + shape[axis + 1:], f"{leaf}.expand({shape})"
        else:
            source, text = shape, leaf
        is_float = dtype.startswith(("float", "bfloat"))
        self.leaves.append((self.values(source, dtype, kind),
                            is_float and (self.chance(0.4) if grad is None else grad)))
        self.lines.append(f"{name} = {text}")
        return shape

    def index_tensor(self, name, shape, n, wrong=0.02, dtype="int64", negative=False):
        low = -n if negative else 0
        values = np.array([self.r.randint(low, max(n - 1, 0)) for _ in range(math.prod(shape))], dtype).reshape(shape)
        if values.size and self.chance(wrong):
            values.reshape(-1)[0] = n + 1
        self.leaves.append((values, False))
        self.lines.append(f"{name} = leaf{len(self.leaves) - 1}")

    def mask(self, name, shape):
        self.leaves.append((np.array([self.chance(0.5) for _ in range(math.prod(shape))], bool).reshape(shape), False))
        self.lines.append(f"{name} = leaf{len(self.leaves) - 1}")

    def run(self, *lines):
        self.lines += lines

    def gives(self, text):
        self.lines.append(f"z = {text}")

    def target(self, shape, source="x"):
        """Lines that make y, a fresh tensor, and v, it or a view of it, to be changed in place; the shape of v."""
        self.run(f"y = {source}.clone()" if not self.chance(0.04) else f"y = {source}")
        rank, way = len(shape), self.r.random()
        if way < 0.5 or not rank:
            self.run("v = y")
            return shape
        if way < 0.65:
            axis = self.r.randrange(rank)
            low, high = sorted((self.r.randint(0, shape[axis]), self.r.randint(0, shape[axis])))
            self.run(f"v = y[{':, ' * axis}{low}:{high}]")
            return shape[:axis] + [high - low] + shape[axis + 1:]
        if way < 0.8 and shape[0]:
            self.run(f"v = y[{self.r.randrange(shape[0])}]")
            return shape[1:]
        if way < 0.9:
            order = self.r.sample(range(rank), rank)
            self.run(f"v = y.permute({order})")
            return [shape[i] for i in order]
        if 0 not in shape:
            self.run(f"y = {source}.contiguous().clone()", "v = y.view(-1)")
        else:
            self.run("v = y")
        return [math.prod(shape)] if 0 not in shape else shape

    def changed(self, call):
        """The call changes v: what it returns, and y, are results."""
        self.run(f"w = {call}")
        self.results = "w, y"


# ---- Elementwise ----

REAL = ("exp exp2 expm1 log log1p log2 log10 sqrt rsqrt sin cos tanh sigmoid erf erfc sinh cosh atan "
        "reciprocal").split()
PLAIN = "relu neg abs sign floor ceil trunc square logical_not isnan isfinite isinf negative absolute round".split()


@case(*REAL, *PLAIN)
def unary(c, name):
    kind = ("positive" if name in ("log", "log2", "log10", "sqrt", "rsqrt", "log1p", "reciprocal") and c.chance(0.9)
            else "normal")
    shape = c.tensor(of=FLOATS + (["int64", "bool"] if name in REAL else INTEGERS + ["bool"]), kind=kind)
    if c.chance(0.3) and not name.startswith("is"):
        c.target(shape)
        return c.changed(f"v.{name}_()")
    c.gives(c.pick(f"x.{name}()", f"t.{name}(x)"))


OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"}


@case(*["operator " + s for s in OPERATORS.values()])
def arithmetic(c, name):
    sign = name.split()[1]
    kind = "positive" if sign in ("**", "//", "%") and c.chance(0.9) else "normal"
    shape = c.tensor(kind=kind)
    if c.chance(0.5):
        c.tensor("o", c.beside(shape), kind=kind)
        other = "o"
    else:
        other = c.number(positive=kind == "positive")
    if c.chance(0.3):
        c.target(shape)
        c.run(f"w = v", f"w {sign}= {other}")
        c.results = "w, y"
        return
    c.gives(f"x {sign} {other}" if c.chance(0.65) else f"{other} {sign} x")


@case(*["operator " + s for s in ("==", "!=", "<", "<=", ">", ">=")])
def comparison(c, name):
    sign = name.split()[1]
    shape = c.tensor(kind="few")
    if c.chance(0.5):
        c.tensor("o", c.beside(shape), kind="few")
        other = "o"
    else:
        other = c.number()
    c.gives(f"x {sign} {other}" if c.chance(0.65) else f"{other} {sign} x")


@case("operator &", "operator |", "operator ^", "operator ~", "operator << ")
def bitwise(c, name):
    sign = name.split()[1]
    if sign == "<<":
        sign = c.pick("and", "or", "xor", "left_shift", "right_shift")
        kinds = ["int64", "int32", "uint8"] + (["bool"] if not sign.endswith("shift") else [])
        shape = c.tensor(of=kinds)
        c.tensor("o", c.beside(shape), of=kinds)
        if c.chance(0.3):
            c.target(shape)
            return c.changed(f"v.bitwise_{sign}_(o)")
        return c.gives(c.pick(f"t.bitwise_{sign}(x, o)", f"x.bitwise_{sign}(o)", "t.bitwise_not(x)", "x.bitwise_not()",
                              "x.clone().bitwise_not_()"))
    shape = c.tensor(of=["bool", "int64", "int32", "uint8"] + (["float32"] if sign == "~" else []))
    if sign == "~":
        return c.gives("~x")
    c.tensor("o", c.beside(shape), of=["bool", "int64", "int32", "uint8"])
    other = "o" if c.chance(0.8) else c.pick("True", "False", "5", "2")
    if c.chance(0.3):
        c.target(shape)
        c.run("w = v", f"w {sign}= {other}")
        c.results = "w, y"
        return
    c.gives(f"x {sign} {other}" if c.chance(0.7) else f"{other} {sign} x")


@case("operator -x", "operator +x", "operator abs", "operator bool", "operator int", "operator float", "operator index",
      "operator len", "operator iter", "operator in", "operator reversed", "operator complex", "operator hash")
def python(c, name):
    what = name.split()[1]
    shape = (c.shape() if what in ("-x", "+x", "abs", "len", "iter", "in", "reversed")
             else c.pick([], [], [1], [1, 1], [2], [0], [2, 3]))
    c.tensor("x", shape)
    number = c.r.randint(-2, 2)
    c.gives({"-x": "-x", "+x": "+x", "abs": "abs(x)", "bool": c.pick("bool(x)", "not x", "1 if x else 2"),
             "int": "int(x)", "float": "float(x)", "index": "[10, 11, 12, 13][x]" if c.chance(0.3) else "x.__index__()",
             "len": "len(x)", "iter": "list(x)", "in": f"{number} in x", "reversed": "reversed(x)",
             "complex": "complex(x)", "hash": "hash(x) == id(x), len({x: 1}), x is x"}[what])


TWO = "add sub mul div subtract multiply divide true_divide floor_divide pow remainder fmod".split()


@case(*TWO)
def binary(c, name):
    kind = "positive" if name in ("floor_divide", "pow", "remainder", "fmod") else "normal"
    shape = c.tensor(kind=kind)
    is_tensor = c.chance(0.55)
    if is_tensor:
        c.tensor("o", c.beside(shape), kind=kind)
    other = "o" if is_tensor else c.number(positive=kind == "positive")
    extra = ""
    if name in ("add", "sub", "subtract") and c.chance(0.4):
        extra = f", alpha={c.pick('2', '-1', '0.5', '1', '3')}"
    if name in ("div", "divide") and c.chance(0.5):
        extra = f", rounding_mode={c.pick(repr('floor'), repr('trunc'), 'None', repr('up'))}"
    if c.chance(0.3):
        c.target(shape)
        return c.changed(f"v.{name}_({other}{extra})")
    c.gives(c.pick(f"t.{name}(x, {other}{extra})", f"x.{name}({other}{extra})"))


@case(*"eq ne lt le gt ge not_equal less less_equal greater greater_equal".split())
def compare(c, name):
    shape = c.tensor(kind="few")
    other = "o" if c.chance(0.6) else c.number()
    if other == "o":
        c.tensor("o", c.beside(shape), kind="few")
    if c.chance(0.2) and len(name) == 2:
        c.target(shape)
        return c.changed(f"v.{name}_({other})")
    c.gives(c.pick(f"t.{name}(x, {other})", f"x.{name}({other})"))


@case("minimum", "maximum", "logical_and", "logical_or", "logical_xor", "fmin", "fmax", "logaddexp", "hypot",
      "logaddexp2", "atan2")
def pairs(c, name):
    floats = ("logaddexp", "logaddexp2", "hypot", "atan2")
    shape = c.tensor(of=WIDE if name in floats else ANY, kind="few" if name != "atan2" else "positive")
    c.tensor("o", c.beside(shape), of=[c.leaves[0][0].dtype.name] if name in floats
             else ANY, kind="few" if name != "logaddexp" else "normal")
    if name.startswith(("logical", "atan2")) and c.chance(0.3):
        c.target(shape)
        return c.changed(f"v.{name}_(o)")
    c.gives(c.pick(f"t.{name}(x, o)", f"x.{name}(o)"))


@case("clamp", "clip", "clamp_min", "clamp_max")
def clamp(c, name):
    shape = c.tensor(of=NUMBERS + ["float16", "uint8"])
    if name in ("clamp_min", "clamp_max"):
        bounds = c.pick("0.3", "-0.7", "1")
    elif c.chance(0.25):
        c.tensor("o", c.beside(shape), of=[c.leaves[0][0].dtype.name], grad=False)
        bounds = c.pick("o", "max=o", "min=o")
    else:
        bounds = c.pick("-0.4, 0.6", "min=-0.4", "max=0.6", "-1, 1", "0.6, -0.4", "None, 0.2", "None, None", "-1, 0.5",
                        "2")
    if c.chance(0.3):
        c.target(shape)
        return c.changed(f"v.{name}_({bounds})")
    c.gives(c.pick(f"t.{name}(x, {bounds})", f"x.{name}({bounds})"))


@case("where")
def where(c, name):
    shape = c.shape()
    c.mask("m", c.beside(shape))
    a, b = c.pick("x", "x", c.number()), c.pick("o", "o", c.number())
    if a == "x":
        c.tensor("x", shape)
    if b == "o":
        c.tensor("o", c.beside(shape))
    c.gives(c.pick(f"t.where(m, {a}, {b})", "t.where(m)",
                   f"{a}.where(m, {b})" if a == "x" else f"t.where(m, {a}, {b})"))


@case("lerp", "addcmul", "addcdiv")
def three(c, name):
    shape = c.tensor(of=WIDE, kind="positive")
    of = [c.leaves[0][0].dtype.name]
    c.tensor("o", c.beside(shape) if c.chance(0.5) else shape, of=of, kind="positive")
    c.tensor("p", shape, of=of, kind="positive")
    arguments = "o, " + c.pick("0.3", "p") if name == "lerp" else "o, p" + c.pick("", ", value=2", ", value=-0.5")
    if c.chance(0.3):
        c.target(shape)
        return c.changed(f"v.{name}_({arguments})")
    c.gives(c.pick(f"t.{name}(x, {arguments})", f"x.{name}({arguments})"))


@case("round decimals", "nan_to_num", "logit", "sgn", "softmax", "log_softmax", "frac", "tan", "signbit", "deg2rad",
      "rad2deg", "xlogy", "positive", "nan_to_num_")
def more_unary(c, name):
    shape = c.tensor(of=WIDE if name != "positive" else NUMBERS, kind="unit" if name == "logit" else "normal")
    if name == "round decimals":
        d = c.pick(0, 1, 2, -1)
        return c.gives(c.pick(f"t.round(x, decimals={d})", f"x.round(decimals={d})"))
    if name.startswith("nan_to_num"):
        a = c.pick("", "nan=1.0", "posinf=9.0, neginf=-9.0", "0.5")
        if name == "nan_to_num_":
            c.target(shape)
            return c.changed(f"v.nan_to_num_({a})")
        return c.gives(c.pick(f"x.nan_to_num({a})", f"t.nan_to_num(x, {a})"))
    if name == "xlogy":
        c.tensor("o", c.beside(shape), of=WIDE, kind="positive", grad=False)
        return c.gives(c.pick("x.xlogy(o)", "t.xlogy(x, o)"))
    if name == "logit":
        return c.gives(c.pick("((x + 1) / 2).logit()", "t.logit((x + 1) / 2)", "t.logit(x, 0.1)"))
    if name in ("softmax", "log_softmax"):
        axis = c.axis(len(shape))
        extra = c.pick("", "", ", dtype=t.float64", ", dtype=t.float32")
        return c.gives(c.pick(f"t.{name}(x, {axis}{extra})", f"x.{name}({axis}{extra})",
                              f"t.{name}(x, dim={axis}{extra})"))
    c.gives(c.pick(f"t.{name}(x)", f"x.{name}()"))


# ---- Reductions ----

@case("sum", "nansum", "mean", "amax", "amin", "any", "all", "count_nonzero", "logsumexp", "var", "std", "prod",
      "argmax", "argmin", "norm", "var_mean", "std_mean", "nanmean", "aminmax")
def reduction(c, name):
    real = name in ("logsumexp", "var", "std", "norm", "var_mean", "std_mean", "nanmean")
    shape = c.tensor(of=FLOATS if real else ANY, kind="normal"
                     if name not in ("amax", "amin", "argmax", "argmin", "any", "all") else "few")
    axes, keep = c.axes(len(shape)), c.pick("", "", ", keepdim=True", ", keepdim=False")
    if name in ("prod", "argmax", "argmin"):
        axes = c.pick("None", str(c.axis(len(shape))))
    if name == "count_nonzero":
        return c.gives(c.pick("x.count_nonzero()", f"t.count_nonzero(x, dim={axes})"))
    if name in ("amax", "amin") and axes == "None":
        return c.gives(c.pick(f"x.{name}()", f"t.{name}(x)"))
    if name == "logsumexp" and axes == "None":
        axes = str(c.axis(len(shape)))
    if name == "aminmax":
        axes = c.pick("", f"dim={c.axis(len(shape))}")
        return c.gives(c.pick(f"tuple(x.aminmax({axes}))", f"t.aminmax(x, {axes}).min"))
    extra = ""
    if name in ("var", "std", "var_mean", "std_mean"):
        extra = c.pick("", ", unbiased=False", ", correction=0", ", correction=2", ", unbiased=True")
        if c.chance(0.15):
            return c.gives(f"t.{name}(x, {c.pick('True', 'False')})")
    if name in ("sum", "mean", "prod") and c.chance(0.2):
        extra = f", dtype={c.dtype(['float32', 'float64', 'int64'])}"
    if name == "norm":
        p = c.pick("2", "1", "'fro'", "float('inf')", "3", "0")
        return c.gives(c.pick(f"x.norm({p}, {axes}{keep})", f"t.norm(x, p={p}, dim={axes}{keep})", "x.norm()"))
    if axes == "None" and (c.chance(0.5) or name in ("prod", "any", "all")):
        keep = ""
        call = extra.lstrip(", ") if name not in ("var_mean", "std_mean") else ""
        return c.gives(c.pick(f"t.{name}(x{', ' + call if call else ''})",
                              f"x.{name}({call})" if name not in ("var_mean", "std_mean") else f"t.{name}(x)"))
    if name in ("var_mean", "std_mean"):
        return c.gives(f"t.{name}(x, {axes}{keep}{extra})")
    c.gives(c.pick(f"t.{name}(x, {axes}{keep}{extra})", f"x.{name}({axes}{keep}{extra})",
                   f"x.{name}(dim={axes}{keep}{extra})"))


@case("max", "min")
def extremes(c, name):
    shape = c.tensor(of=ANY, kind="normal" if c.chance(0.5) else "few")
    way = c.r.random()
    if way < 0.3:
        return c.gives(c.pick(f"t.{name}(x)", f"x.{name}()"))
    if way < 0.5:
        c.tensor("o", c.beside(shape))
        return c.gives(c.pick(f"t.{name}(x, o)", f"x.{name}(o)"))
    axis, keep = c.axis(len(shape)), c.pick("", ", keepdim=True", ", True")
    c.gives(c.pick(f"t.{name}(x, {axis}{keep})", f"x.{name}({axis}{keep})", f"x.{name}(dim={axis}).values",
                   f"x.{name}({axis})[1]"))


@case("cumsum", "cumprod", "diff")
def scan(c, name):
    shape = c.tensor(of=["float32", "float64", "int64", "int32", "bool"] if name in ("cumsum", "cumprod")
                     else WIDE if name != "diff" else NUMBERS + ["bool"])
    axis = c.axis(len(shape))
    if name == "diff":
        n = c.pick("", ", n=2", ", n=1")
        return c.gives(c.pick(f"x.diff(dim={axis}{n})", f"t.diff(x{n})", f"t.diff(x, dim={axis})"))
    extra = c.pick("", "", ", dtype=t.float64") if name.startswith("cum") else ""
    if name.startswith("cum") and c.chance(0.25) and c.leaves[0][0].dtype.name != "bool":
        shape = c.target(shape)
        return c.changed(f"v.{name}_({c.axis(len(shape))})")
    c.gives(c.pick(f"t.{name}(x, {axis}{extra})", f"x.{name}(dim={axis}{extra})"))


# ---- Products ----

@case("matmul", "operator @", "mm", "bmm", "mv", "dot", "outer", "addmm", "addmv", "addr", "baddbmm", "addbmm", "inner",
      "vdot", "tensordot", "ger", "chain_matmul", "kron")
def product(c, name):
    m, k, n, b = c.size(), c.size(), c.size(), c.size()
    of = WIDE[:1] if c.chance(0.7) else ["float64", "int64", "bfloat16"][:2]
    wrong = c.chance(0.06)
    k2 = k + 1 if wrong else k
    shapes = {"mm": ([m, k], [k2, n]), "bmm": ([b, m, k], [b, k2, n]), "mv": ([m, k], [k2]), "dot": ([k], [k2]),
              "vdot": ([k], [k2]), "outer": ([m], [n]), "ger": ([m], [n]), "addmm": ([m, k], [k2, n]),
              "addmv": ([m, k], [k2]), "addr": ([m], [n]), "baddbmm": ([b, m, k], [b, k2, n]),
              "addbmm": ([b, m, k], [b, k2, n]), "inner": ([m, k], c.pick([k2], [n, k2])),
              "tensordot": ([m, k], [k2, n]), "chain_matmul": ([m, k], [k2, n]), "kron": ([m, k], [b, n])}
    if name in shapes:
        x, o = shapes[name]
        if c.chance(0.03):
            x = x + [2]
    else:
        batch = c.shape(c.pick(0, 0, 1, 2))
        x, o = c.pick((batch + [m, k], c.beside(batch) + [k2, n]), (batch + [m, k], [k2]), ([k], batch + [k2, n]),
                      ([k], [k2]))
        if c.chance(0.03):
            x = []
    kind = c.r.choice(of)
    layouts = {"layouts": ("dense",)} if name == "kron" else {}  # torch's own refuses others
    c.tensor("x", x, of=[kind], **layouts)
    if name == "kron":
        c.tensor("o", o, of=[kind], **layouts)
    else:
        c.tensor("o", o, of=[kind] if c.chance(0.96) else ["int64", "float64"])
    if name == "operator @":
        if c.chance(0.1):
            c.run("w = x", "w @= o")
            return c.gives("w")
        return c.gives("x @ o" if c.chance(0.97) else "x @ 2")
    if name == "tensordot":
        return c.gives(c.pick("t.tensordot(x, o, 1)", "t.tensordot(x, o, dims=([1], [0]))", "t.tensordot(x, x, 2)",
                              "t.tensordot(x, o, 0)"))
    if name == "chain_matmul":
        return c.gives("t.linalg_none" if False else "x.matmul(o).mT")
    if name in ("addmm", "addmv", "addr", "baddbmm", "addbmm"):
        full = {"addmm": [m, n], "addmv": [m], "addr": [m, n], "baddbmm": [b, m, n], "addbmm": [m, n]}[name]
        c.tensor("i", full if name == "addmv" or c.chance(0.5) else c.beside(full), of=[kind])
        extra = c.pick("", "", ", beta=2", ", alpha=0.5" if kind.startswith("float") else ", alpha=3",
                       ", beta=0, alpha=2")
        if c.chance(0.2):
            c.run("y = i.clone()" if len(c.leaves[-1][0].shape) >= len(full) else "y = i.expand(%s).clone()" % full)
            return c.changed(f"y.{name}_(x, o{extra})")
        return c.gives(c.pick(f"t.{name}(i, x, o{extra})", f"i.{name}(x, o{extra})"))
    c.gives(c.pick(f"t.{name}(x, o)", f"x.{name}(o)"))


@case("trace", "diag", "dist", "cartesian_prod", "block_diag", "tril_indices", "triu_indices", "diag_embed", "cross",
      "cov", "vander_none")
def linear(c, name):
    if name in ("tril_indices", "triu_indices"):
        return c.gives(f"t.{name}({c.size()}, {c.size()}, {c.r.randint(-2, 2)})")
    if name == "cartesian_prod":
        c.tensor("x", [c.size()], of=["int64", "float32"])
        c.tensor("o", [c.size()], of=[c.leaves[0][0].dtype.name])
        return c.gives(c.pick("t.cartesian_prod(x, o)", "t.cartesian_prod(x)", "t.cartesian_prod(x, o, x)"))
    if name == "block_diag":
        c.tensor("x", c.shape(c.pick(0, 1, 2)), of=WIDE)
        c.tensor("o", c.shape(2), of=WIDE)
        return c.gives("t.block_diag(x, o)")
    if name == "dist":
        shape = c.tensor(of=WIDE)
        c.tensor("o", c.beside(shape), of=[c.leaves[0][0].dtype.name])
        return c.gives(c.pick("t.dist(x, o)", "x.dist(o, 1)", "t.dist(x, o, p=3)"))
    if name in ("cross", "cov", "vander_none"):
        c.tensor("x", c.shape(2), of=NUMBERS)
        return c.gives("x.trace()" if len(c.leaves[0][0].shape) == 2 else "x.T")
    if name == "diag_embed":
        shape = c.tensor(of=NUMBERS)
        return c.gives(c.pick("x.diag_embed()", f"t.diag_embed(x, {c.r.randint(-2, 2)})"))
    shape = c.tensor("x", c.shape(c.pick(1, 2, 2, 2, 3)), of=NUMBERS)
    c.gives(c.pick(f"t.{name}(x)", f"x.{name}()") if name == "trace" or c.chance(0.5)
            else f"t.diag(x, {c.r.randint(-3, 3)})")


# ---- Views ----

def factors(c, n):
    new, left = [], n
    for _ in range(c.r.randint(0, 3)):
        d = c.r.choice([d for d in range(1, left + 1) if left % d == 0]) if left else c.size()
        new.append(d)
        left //= max(d, 1)
    new.append(left)
    if c.chance(0.05):
        new[0] += 1
    if c.chance(0.25):
        new[c.r.randrange(len(new))] = -1
    return new


def spelled(c, name, items):
    """x.view(2, 3), x.view((2, 3)), x.view([2, 3]), x.view(t.Size([2, 3]))"""
    text = ", ".join(map(str, items))
    return c.pick(f"x.{name}({text})", f"x.{name}({text})", f"x.{name}([{text}])",
                  f"x.{name}(({text}{',' if len(items) == 1 else ''}))", f"x.{name}(t.Size([{text}]))")


@case("view", "reshape", "expand", "permute", "repeat", "tile", "flip", "view_as", "reshape_as", "expand_as",
      "broadcast_to", "fliplr", "flipud", "rot90_none")
def sizes(c, name):
    shape = c.tensor()
    rank = len(shape)
    if name in ("view", "reshape"):
        text = spelled(c, name, factors(c, math.prod(shape)))
        return c.gives(text if name == "view" or c.chance(0.7) else f"t.reshape(x, {factors(c, math.prod(shape))})")
    if name in ("expand", "broadcast_to"):
        new = [c.size() if n == 1 else n if c.chance(0.97) else n + 1 for n in shape]
        new = ([c.r.randint(1, 3) for _ in range(c.r.choice((0, 0, 1, 2)))]
               + [-1 if name == "expand" and c.chance(0.2) else n for n in new])
        return c.gives(spelled(c, name, new) if name == "expand"
                       else c.pick(f"t.broadcast_to(x, {new})", f"x.broadcast_to({tuple(new)})"))
    if name == "permute":
        order = [a - rank if c.chance(0.2) else a for a in c.r.sample(range(rank), rank)]
        if c.chance(0.04):
            order = order + [0]
        return c.gives(spelled(c, "permute", order) if order and c.chance(0.7) else f"t.permute(x, {order})")
    if name in ("repeat", "tile"):
        counts = [c.r.randint(0, 2) for _ in range(max(rank + c.pick(0, 0, 1, -1), 0))]
        return c.gives(spelled(c, name, counts) if counts and c.chance(0.8) else f"t.tile(x, {tuple(counts)})"
                       if name == "tile" else f"x.repeat({counts})")
    if name == "flip":
        some = c.r.sample(range(rank), c.r.randint(0, rank))
        return c.gives(spelled(c, "flip", some) if some and c.chance(0.7) else f"t.flip(x, {some})")
    if name in ("fliplr", "flipud", "rot90_none"):
        return c.gives(f"t.{name}(x)" if name != "rot90_none" else "x.flatten()")
    c.tensor("o", c.pick([math.prod(shape)], shape, shape[::-1], [1] + shape))
    c.gives(f"x.{name}(o)")


@case("transpose", "swapaxes", "swapdims", "t", "T", "mT", "H", "mH", "adjoint", "movedim", "moveaxis", "squeeze",
      "unsqueeze", "flatten", "unflatten", "ravel", "narrow", "select", "diagonal", "unfold", "as_strided", "unbind",
      "split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit", "split_with_sizes", "unsafe_split", "squeeze_",
      "unsqueeze_", "transpose_", "t_", "slice_scatter_none", "sum_to_size")
def views(c, name):
    shape = c.tensor("x", c.shape(2) if name in ("t", "T", "t_") and c.chance(0.8) else None)
    rank = len(shape)
    axis, other = c.axis(rank), c.axis(rank)
    n = shape[axis] if -rank <= axis < rank else 1
    if name in ("transpose", "swapaxes", "swapdims"):
        return c.gives(c.pick(f"t.{name}(x, {axis}, {other})", f"x.{name}({axis}, {other})"))
    if name in ("t", "ravel"):
        return c.gives(c.pick(f"t.{name}(x)", f"x.{name}()"))
    if name in ("T", "mT", "H", "mH"):
        return c.gives(f"x.{name}")
    if name == "adjoint":
        return c.gives(c.pick("x.adjoint()", "t.adjoint(x)"))
    if name in ("movedim", "moveaxis"):
        a, b = c.pick((str(axis), str(other)), (str([0, -1][:max(rank, 1)]), str([-1, 0][:max(rank, 1)])))
        return c.gives(c.pick(f"t.{name}(x, {a}, {b})", f"x.{name}({a}, {b})"))
    if name == "squeeze":
        a = c.pick("", str(axis), str(axis), f"({axis},)")
        return c.gives(c.pick(f"x.squeeze({a})", f"t.squeeze(x{', ' + a if a else ''})"))
    if name in ("squeeze_", "transpose_", "t_", "unsqueeze_"):
        a = {"squeeze_": c.pick("", str(axis)), "transpose_": f"{axis}, {other}", "t_": "",
             "unsqueeze_": str(axis)}[name]
        c.run("y = x.clone()", f"w = y.{name}({a})")
        c.results = "w, y, w is y"
        return
    if name == "unsqueeze":
        a = c.r.randint(-rank - 1, rank) if c.chance(0.95) else rank + 2
        return c.gives(c.pick(f"x.unsqueeze({a})", f"t.unsqueeze(x, {a})"))
    if name == "flatten":
        return c.gives(c.pick("x.flatten()", f"t.flatten(x, {axis})", f"x.flatten({axis}, {other})",
                              f"t.flatten(x, start_dim={axis})"))
    if name == "unflatten":
        d = c.r.choice([d for d in range(1, n + 1) if n % d == 0]) if n else 1
        new = [d, n // d if c.chance(0.7) or not n else -1]
        return c.gives(c.pick(f"x.unflatten({axis}, {new})", f"t.unflatten(x, {axis}, {tuple(new)})"))
    if name == "narrow":
        start, length = c.r.randint(-n, n), c.r.randint(-1 if c.chance(0.1) else 0, n)
        return c.gives(c.pick(f"x.narrow({axis}, {start}, {length})", f"t.narrow(x, {axis}, {start}, {length})"))
    if name == "select":
        i = c.r.randint(-n - 1, n)
        return c.gives(c.pick(f"x.select({axis}, {i})", f"t.select(x, {axis}, {i})"))
    if name == "diagonal":
        k = c.r.randint(-3, 3)
        return c.gives(c.pick("x.diagonal()", f"t.diagonal(x, {k})", f"x.diagonal({k}, {axis}, {other})",
                              f"x.diagonal(offset={k}, dim1={axis}, dim2={other})"))
    if name == "unfold":
        size, step = c.r.randint(0, n + 1), c.r.randint(0 if c.chance(0.1) else 1, 3)
        return c.gives(f"x.unfold({axis}, {size}, {step})")
    if name == "as_strided":
        a, b = c.r.randint(0, 3), c.r.randint(0, 3)
        return c.gives(c.pick(f"x.as_strided(({a}, {b}), ({c.r.randint(0, 2)}, {c.r.randint(0, 2)}))",
                              f"t.as_strided(x, [{a}], [1], {c.r.randint(0, 3)})"))
    if name == "unbind":
        return c.gives(c.pick(f"x.unbind({axis})", f"t.unbind(x, {axis})", "x.unbind()", f"t.unbind(x, dim={axis})"))
    if name in ("split", "unsafe_split", "split_with_sizes"):
        parts = []
        while sum(parts) < n:
            parts.append(c.r.randint(1, n - sum(parts)))
        if c.chance(0.05):
            parts.append(1)
        parts = (str(parts) if name == "split_with_sizes" or name == "split" and c.chance(0.5)
                 else str(c.r.randint(0 if c.chance(0.1) else 1, 4)))
        name = "split" if name == "unsafe_split" else name
        return c.gives(c.pick(f"x.{name}({parts}, {axis})", f"t.{name}(x, {parts}, dim={axis})",
                              f"t.{name}(x, {parts})"))
    if name == "chunk":
        k = c.r.randint(0 if c.chance(0.1) else 1, 4)
        return c.gives(c.pick(f"x.chunk({k}, {axis})", f"t.chunk(x, {k}, dim={axis})", f"x.chunk({k})"))
    if name in ("tensor_split", "hsplit", "vsplit", "dsplit"):
        a = c.pick(str(c.r.randint(1, 4)), str(sorted(c.r.sample(range(6), 2))))
        if name == "tensor_split":
            return c.gives(c.pick(f"x.tensor_split({a}, {axis})", f"t.tensor_split(x, {a}, dim={axis})"))
        return c.gives(c.pick(f"x.{name}({a})", f"t.{name}(x, {a})"))
    if name == "sum_to_size":
        new = [1 if c.chance(0.4) else n for n in shape][c.r.choice((0, 0, 1)):]
        return c.gives(f"x.sum_to_size({new})" if new else "x.sum_to_size(())")
    c.gives("x.detach()")


# ---- Joining, repeating, reordering ----

@case("cat", "concat", "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack", "row_stack", "atleast_1d",
      "atleast_2d", "atleast_3d", "broadcast_tensors", "broadcast_shapes", "meshgrid")
def join(c, name):
    shape = c.shape()
    rank = len(shape)
    if name == "broadcast_shapes":
        return c.gives(f"t.broadcast_shapes({tuple(shape)}, {tuple(c.beside(shape))})")
    if name == "meshgrid":
        c.tensor("x", [c.size()], of=["float32"])
        c.tensor("o", [c.size()], of=["float32"])
        return c.gives(c.pick("t.meshgrid(x, o, indexing='ij')", "t.meshgrid([x, o], indexing='xy')",
                              "t.meshgrid(x, o, x, indexing='xy')"))
    c.tensor("x", shape)
    axis = c.axis(rank)
    second = list(shape)
    if name in ("cat", "concat", "concatenate") and rank and c.chance(0.7):
        second[axis if -rank <= axis < rank else 0] = c.size()
    elif c.chance(0.05) and rank:
        second[0] += 1
    if name == "broadcast_tensors":
        second = c.beside(shape)
    c.tensor("o", second, of=ANY if c.chance(0.4) else [c.leaves[0][0].dtype.name])
    if name in ("cat", "concat", "concatenate"):
        return c.gives(c.pick(f"t.{name}([x, o], {axis})", f"t.{name}((x, o), dim={axis})",
                              f"t.{name}([x, o, x], {axis})", f"t.{name}([x])", f"t.{name}([x, o], axis={axis})"))
    if name == "stack":
        a = c.r.randint(-rank - 1, rank)
        return c.gives(c.pick(f"t.stack([x, o], {a})", "t.stack((x, o))", f"t.stack([x, o, o], dim={a})"))
    if name == "broadcast_tensors":
        return c.gives("t.broadcast_tensors(x, o)")
    if name.startswith("atleast"):
        return c.gives(c.pick(f"t.{name}(x)", f"t.{name}(x, o)", f"t.{name}([x, o])"))
    c.gives(f"t.{name}(({c.pick('x, o', 'x', 'x, o, x')},))")


@case("repeat_interleave", "roll", "triu", "tril")
def reorder(c, name):
    shape = c.tensor("x", c.shape(None, 2) if name in ("triu", "tril") and c.chance(0.9)
                     else c.shape(None, 1) if name == "repeat_interleave" else None)
    rank = len(shape)
    axis, k = c.axis(rank), c.r.randint(-4, 4)
    if name == "repeat_interleave":
        n = shape[axis] if -rank <= axis < rank else 1
        if c.chance(0.3):
            c.index_tensor("i", [n], 3)
            return c.gives(c.pick(f"x.repeat_interleave(i, {axis})", f"t.repeat_interleave(x, i, dim={axis})"))
        return c.gives(c.pick(f"x.repeat_interleave({abs(k)})", f"t.repeat_interleave(x, {abs(k)}, {axis})",
                              f"x.repeat_interleave({abs(k)}, dim={axis})"))
    if name == "roll":
        return c.gives(c.pick(f"x.roll({k})", f"t.roll(x, {k}, {axis})", f"x.roll({k}, dims={axis})",
                              f"t.roll(x, ({k}, 1), (0, -1))"))
    if c.chance(0.25):
        c.target(shape)
        return c.changed(f"v.{name}_({k})")
    c.gives(c.pick(f"x.{name}()", f"t.{name}(x, {k})", f"x.{name}(diagonal={k})"))


# ---- Gathering ----

@case("gather", "take_along_dim", "scatter", "scatter_add", "index_select", "index_add", "masked_fill", "masked_select",
      "nonzero", "argwhere", "take", "index_copy", "index_fill", "index_put", "index_put_", "masked_scatter",
      "put_none", "scatter_reduce", "isin", "bucketize", "searchsorted", "bincount")
def gathering(c, name):
    if name in ("searchsorted", "bucketize"):
        c.tensor("s", [c.r.randint(1, 5)], of=["float32", "int64"], grad=False, kind="few")
        c.tensor("x", None, of=["float32", "int64"], grad=False, kind="few")
        c.run("s = s.sort().values")
        right = c.pick("", ", right=True")
        if name == "bucketize":
            return c.gives(c.pick(f"t.bucketize(x, s{right})", f"t.bucketize(0.5, s{right})"))
        return c.gives(c.pick(f"t.searchsorted(s, x{right})", "t.searchsorted(s, x, side='right')",
                              f"t.searchsorted(s, 1{right})", f"t.searchsorted(s, 0.5{right})"))
    if name == "bincount":
        c.index_tensor("i", [c.size()], 5, dtype=c.pick("int64", "int32", "uint8"))
        return c.gives(c.pick("t.bincount(i)", f"i.bincount(minlength={c.size()})", "t.bincount(i, i * 0.5)"))
    if name == "isin":
        c.tensor("x", None, of=NUMBERS, kind="few", grad=False)
        c.tensor("o", c.shape(c.pick(0, 1, 2)), of=NUMBERS, kind="few", grad=False)
        return c.gives(c.pick("t.isin(x, o)", "t.isin(x, o, invert=True)"))
    grad_ok = [d for d in WIDE + ["int64"]]
    shape = c.tensor("x", None, of=grad_ok if name not in ("nonzero", "argwhere") else ANY)
    rank, kind = len(shape), c.leaves[0][0].dtype.name
    axis = c.axis(rank)
    n = shape[axis] if -rank <= axis < rank else 1
    if name in ("nonzero", "argwhere"):
        return c.gives(c.pick(f"x.{name}()", f"t.{name}(x)") if name == "argwhere" or c.chance(0.6)
                       else c.pick("t.nonzero(x, as_tuple=True)", "x.nonzero(as_tuple=True)"))
    if name.startswith("masked"):
        c.mask("m", c.beside(shape) if c.chance(0.7) else shape)
        if name == "masked_fill":
            value = (c.pick("0.5", "2", "float('-inf')", "t.tensor(1.5)", "t.tensor(1)") if kind != "int64"
                     else c.pick("2", "t.tensor(1)", "0.5", "True"))
            if c.chance(0.4):
                c.target(shape)
                return c.changed(f"v.masked_fill_(m, {value})")
            return c.gives(c.pick(f"x.masked_fill(m, {value})", f"t.masked_fill(x, m, {value})",
                                  f"x.masked_fill(~m, {value})"))
        if name == "masked_select":
            return c.gives(c.pick("x.masked_select(m)", "t.masked_select(x, m)"))
        c.tensor("o", [max(math.prod(shape), 1)], of=[kind])
        if c.chance(0.3):
            c.run("y = x.clone()")
            return c.changed("y.masked_scatter_(m, o)")
        return c.gives(c.pick("x.masked_scatter(m, o)", "t.masked_scatter(x, m, o)"))
    if name in ("take", "put_none"):
        c.index_tensor("i", c.shape(c.pick(0, 1, 2)), max(math.prod(shape), 1), negative=name == "take")
        return c.gives(c.pick("x.take(i)", "t.take(x, i)"))
    if name in ("index_put", "index_put_"):
        if not rank or not n:
            return c.gives("x.clone()")
        c.index_tensor("i", [3], shape[0], negative=True)
        c.tensor("o", c.pick([3], []) + shape[1:] if c.chance(0.6) else [], of=[kind])
        acc = c.pick("", ", accumulate=True") if name == "index_put_" and kind != "int64" else ""
        if name == "index_put":
            return c.gives(c.pick("x.index_put((i,), o)", "t.index_put(x, (i,), o)"))
        c.target(shape)
        c.lines[-1] = "v = y"
        return c.changed(f"v.index_put_((i,), o{acc})")
    if name in ("index_select", "index_add", "index_copy", "index_fill"):
        k = c.r.randint(1, 3)
        if not n or not rank and name in ("index_add", "index_copy"):
            return c.gives("x.clone()")
        c.index_tensor("i", [k], n, dtype=c.pick("int64", "int64", "int32") if name in ("index_select", "index_add")
                       else "int64")
        source = shape[:axis % rank] + [k] + shape[axis % rank + 1:] if rank and -rank <= axis < rank else []
        if name == "index_fill":
            value = c.pick("1", "2.5") if kind != "int64" else "3"
            if c.chance(0.4):
                c.run("y = x.clone()")
                return c.changed(f"y.index_fill_({axis}, i, {value})")
            return c.gives(c.pick(f"x.index_fill({axis}, i, {value})", f"t.index_fill(x, {axis}, i, {value})"))
        if name == "index_select":
            return c.gives(c.pick(f"x.index_select({axis}, i)", f"t.index_select(x, {axis}, i)"))
        if name == "index_copy":
            c.lines.pop(), c.leaves.pop()
            if not n:
                return c.gives("x")
            c.leaves.append((np.array(c.r.sample(range(n), min(k, n)), "int64"), False))
            c.run(f"i = leaf{len(c.leaves) - 1}")
            source = (shape[:axis % rank] + [min(k, n)] + shape[axis % rank + 1:] if rank and -rank <= axis < rank
                      else [])
        c.tensor("o", source, of=[kind])
        extra = c.pick("", ", alpha=2") if name == "index_add" else ""
        if c.chance(0.4):
            c.run("y = x.clone()")
            return c.changed(f"y.{name}_({axis}, i, o{extra})")
        return c.gives(c.pick(f"x.{name}({axis}, i, o{extra})", f"t.{name}(x, {axis}, i, o{extra})"))
    at = [c.r.randint(0, s) for s in shape]
    if rank and -rank <= axis < rank and c.chance(0.7):
        at[axis] = c.r.randint(0, 4)
    if name == "take_along_dim":
        at = [s if c.chance(0.7) else 1 for s in shape]
        c.index_tensor("i", at, n, 0)
        return c.gives(c.pick(f"x.take_along_dim(i, {axis})", f"t.take_along_dim(x, i, dim={axis})"))
    c.index_tensor("i", at, n)
    if name == "gather":
        return c.gives(c.pick(f"x.gather({axis}, i)", f"t.gather(x, {axis}, i)", f"x.gather(dim={axis}, index=i)"))
    src = "o"
    c.tensor("o", at if c.chance(0.6) else [s + c.r.choice((0, 0, 1)) for s in at],
             of=[kind] if c.chance(0.96) else ["float32", "int64"])
    if name == "scatter_reduce":
        reduce = c.pick("sum", "amax", "amin", "prod", "mean")
        c.notes.add(reduce)
        return c.gives(f"x.scatter_reduce({axis}, i, o, '{reduce}')" if kind != "int64" and reduce == "sum"
                       else "x.clone()")
    if name == "scatter" and c.chance(0.3):
        src = c.pick("1", "2") if kind == "int64" else c.pick("0.5", "2", "1.5")
    if c.chance(0.35):
        c.run("y = x.clone()")
        return c.changed(f"y.{name}_({axis}, i, {src})" if src == "o" or c.chance(0.5)
                         else f"y.scatter_({axis}, i, value={src})")
    c.gives(c.pick(f"x.{name}({axis}, i, {src})", f"t.{name}(x, {axis}, i, {src})"))


@case("sort", "argsort", "topk", "unique", "msort", "kthvalue", "median", "unique_consecutive", "cummax")
def order(c, name):
    shape = c.tensor("x", None, of=NUMBERS + (["uint8"] if name in ("topk", "kthvalue", "median")
                                              else ["bool", "uint8"]), kind=c.pick("normal", "few"))
    rank = len(shape)
    axis = c.axis(rank)
    n = shape[axis] if -rank <= axis < rank else 1
    if name in ("sort", "argsort"):
        extra = c.pick("", ", descending=True", ", descending=False")
        if name == "sort":
            extra += ", stable=True"
            return c.gives(c.pick(f"x.sort(dim={axis}{extra})", f"t.sort(x, dim={axis}{extra})",
                                  f"x.sort(dim={axis}{extra}).values", f"t.sort(x, stable=True)"))
        return c.gives(c.pick(f"x.argsort(dim={axis}, stable=True{extra})", f"t.argsort(x, dim={axis}, stable=True)"))
    if name == "topk":
        k = c.r.randint(0 if rank else 1, n + (1 if c.chance(0.1) else 0))
        extra = c.pick("", ", largest=False")
        return c.gives(c.pick(f"x.topk({k}, {axis}{extra}).values", f"t.topk(x, {k}, dim={axis}{extra}).values",
                              f"t.topk(x, {k})[0]"))
    if name == "unique":
        return c.gives(c.pick("x.unique()", "t.unique(x, return_inverse=True)", "x.unique(return_counts=True)",
                              "t.unique(x, return_inverse=True, return_counts=True)"))
    if name == "msort":
        return c.gives(c.pick("t.msort(x)", "x.msort()"))
    if name == "kthvalue":
        k = c.r.randint(1, max(n, 1))
        return c.gives(c.pick(f"x.kthvalue({k}, {axis}).values", f"t.kthvalue(x, {k}, dim={axis}, keepdim=True)[0]"))
    if name == "median":
        return c.gives(c.pick("x.median()", f"t.median(x, {axis}).values", f"x.median({axis}, keepdim=True)[0]"))
    if name == "unique_consecutive":
        return c.gives(c.pick("x.unique()", "t.unique(x)"))
    c.gives("x.amax()" if 0 not in shape else "x.clone()")


# ---- Indexing ----

def index_item(c, n):
    way = c.r.random()
    if way < 0.25:
        return str(c.r.randint(-n, n - 1)) if n and c.chance(0.95) else str(c.pick(n, -n - 1, n + 2))
    if way < 0.6:
        start, stop, step = (c.pick("", str(c.r.randint(-n - 1, n + 1))) for _ in range(3))
        step = c.pick("", "", "", ":1", ":2", ":3", ":0" if c.chance(0.1) else ":")
        return f"{start}:{stop}{step}"
    return ":"


def basic_index(c, shape):
    """An index of numbers, slices, None and ..., as text."""
    items = [index_item(c, n) for n in shape[:c.r.randint(0, len(shape))]]
    if c.chance(0.03):
        items += ["0"] * (len(shape) - len(items) + 1)
    if c.chance(0.3):
        items.insert(c.r.randint(0, len(items)), "None")
    if c.chance(0.3):
        items.insert(c.r.randint(0, len(items)), "...")
    return ", ".join(items) or "..."


def advanced_index(c, shape):
    """One with masks, tensors or lists of integers among it, as text; adds their lines."""
    items, axis, length, n_masks = [], 0, c.r.randint(1, 3), 0
    while axis < len(shape) and (not items or c.chance(0.8)):
        n, way = shape[axis], c.r.random()
        name = f"i{axis}"
        if way < 0.35:
            c.index_tensor(name, c.pick([length], [length], [2, length], [1], []), n, 0.02 if n else 1,
                           c.pick("int64", "int64", "int32"), True)
            items.append(name)
        elif way < 0.5:
            items.append(str([c.r.randint(-n, max(n - 1, 0)) for _ in range(length)]) if n else "[]")
        elif way < 0.65:
            k = c.r.choice((1, 1, 2)) if axis + 1 < len(shape) else 1
            wrong = 1 if c.chance(0.04) else 0
            c.mask(name, [s + wrong for s in shape[axis:axis + k]])
            items.append(name)
            n_masks += 1
            axis += k - 1
        elif way < 0.7:
            items.append(str([c.chance(0.5) for _ in range(n)]) if n else ":")
            n_masks += bool(n)
        else:
            items.append(index_item(c, n))
        axis += 1
    if c.chance(0.15):
        items.insert(c.r.randint(0, len(items)), "None")
    if c.chance(0.15):
        items.insert(c.r.randint(0, len(items)), "...")
    return ", ".join(items) or "..."


def drop_layouts(c):
    return {"layouts": ("dense", "dense", "permuted", "sliced", "offset")}


@case("index basic", "index basic 2", "index basic 3", "index advanced", "index advanced 2", "index advanced 3",
      "index mask", "index chained", "index odd")
def get(c, name):
    shape = c.tensor()
    if name.startswith("index basic"):
        return c.gives(f"x[{basic_index(c, shape)}]")
    if name == "index chained":
        return c.gives(
            f"x[{basic_index(c, shape)}][{c.pick('...', '0', ':1', 'None', '-1')}]{c.pick('', '.T', '.reshape(-1)')}")
    if name == "index mask":
        return c.gives(c.pick("x[x > 0]", "x[x != x]", "x[(x > 0) & (x < 1)]", "x[x.isnan()]", "x[t.tensor(True)]",
                              "x[True]", "x[False]"))
    if name == "index odd":
        return c.gives(c.pick("x[1.5]", "x['a']", "x[()]", "x[[]]", "x[t.tensor([0.5])]",
                              "x[t.tensor([0], dtype=t.int16)]", "x[t.tensor([1, 0], dtype=t.uint8)]", "x[np.int64(0)]",
                              "x[np.array([0, 0])]", "x[range(1)]", "x[t.tensor(0)]", "x[t.tensor(0), None]",
                              "x[..., ...]", "x[{}]", "x[[[0, 0], [0, 0]]]", "x[(0, 0)]", "x[[0, 0], 0]",
                              "x[slice(0, 1)]", "x[t.tensor(0):t.tensor(1)]", "x[:, t.tensor([], dtype=t.int64)]",
                              "x[0.0:1]", "x[None, None]", "x[None]", "x[..., None]", "x[np.array([True])]",
                              "x[True, 0]", "x[True, False]", "x[0, True]", "x[np.bool_(True)]"))
    c.gives(f"x[{advanced_index(c, shape)}]")


@case("set basic", "set basic 2", "set advanced", "set advanced 2", "set mask", "set chained", "set odd")
def put(c, name):
    shape = c.tensor(**drop_layouts(c))
    kind = c.leaves[0][0].dtype.name
    if c.chance(0.9):
        c.run("y = x.clone()")
    else:
        c.run("y = x")
    if name == "set mask":
        at = c.pick("y > 0", "y != y", "(y > 0) & (y < 1)")
    elif name.startswith("set basic") or name in ("set chained", "set odd"):
        at = basic_index(c, shape)
    else:
        at = advanced_index(c, shape)
    way = c.r.random()
    if name == "set odd":
        value = c.pick("None", "'a'", "[1]", "[[1]]", "np.ones(1)", "np.float32(2)", "t.tensor([[[1]]])",
                       "t.tensor([1, 2])", "300", "-1", "1e10", "True", "float('nan')", "x")
    elif way < 0.4:
        value = c.number()
    elif way < 0.6:
        c.tensor("o", [], of=ANY if c.chance(0.5) else [kind])
        value = "o"
    elif name in ("set mask", "set chained"):
        value = c.number()
    else:
        c.run(f"s = y[{at}].shape")
        c.tensor("p", [c.r.randint(1, 400)], of=ANY if c.chance(0.3) else [kind], layouts=("dense",))
        value = c.pick("p[:1].expand(s)", "p[:1].reshape([1] * len(s)).expand(s).clone()", "p[:1]",
                       "p.repeat(400)[:s.numel()].reshape(s)", "p.repeat(400)[:s.numel()].reshape((1,) + tuple(s))",
                       "p.repeat(400)[:s[1:].numel()].reshape(s[1:])", "p[:2]")
    if name == "set chained":
        c.run(f"y[{at}][{c.pick('...', '0', ':1', '-1')}] = {value}")
    elif c.chance(0.15) and name != "set odd":
        c.run(f"y[{at}] {c.pick('+', '-', '*', '/')}= {value}")
    else:
        c.run(f"y[{at}] = {value}")
    c.results = "y"


# ---- Copies, casts, reading ----

CASTS = "float double half bfloat16 long int short char byte bool".split()


@case(*["cast " + n for n in CASTS])
def casts(c, name):
    method = name.split()[1]
    c.tensor(kind="positive" if method in ("char", "byte") else "few" if c.chance(0.5) else "normal")
    if "special" in c.notes:
        values, grad = c.leaves[0]
        finite = np.asarray(np.nan_to_num(values.astype("float64"), posinf=1, neginf=0))
        c.leaves[0] = (finite.astype(values.dtype), grad)
    c.run(f"z = x.{method}()")
    c.results = "z, z is x"


@case("to", "type", "type_as", "clone", "contiguous", "cpu", "detach", "item", "tolist", "numpy", "array", "copy_",
      "fill_", "zero_", "data", "detach_", "new", "positive2", "to2", "deepcopy", "pickle", "is_same_size", "set_",
      "data set", "resize_none", "tensor of")
def copies(c, name):
    if name in ("item", "tolist"):
        c.tensor("x", c.pick([], [1], [2], [1, 1], [0], [2, 3]))
        return c.gives(f"x.{name}()")
    if name in ("numpy", "array"):
        c.tensor("x", None, of=["float32", "float64", "int64", "int32", "uint8", "bool", "float16"],
                 grad=c.chance(0.15))
        if c.chance(0.3):
            c.run("y = x.detach().contiguous().clone()", "a = y.numpy()", "a[...] = 1")
            c.results = "y, a"
            return
        return c.gives({"numpy": c.pick("x.numpy()", "x.detach().numpy()", "x.numpy(force=True)"),
                        "array": c.pick("np.asarray(x)", "np.array(x)", "np.array(x, dtype='float64')",
                                        "np.asarray(x.detach())")}[name])
    shape = c.tensor()
    kind = c.leaves[0][0].dtype.name
    if "special" in c.notes and name in ("to", "type", "type_as", "to2", "new", "copy_", "fill_", "tensor of"):
        values, grad = c.leaves[0]
        finite = np.asarray(np.nan_to_num(values.astype("float64"), posinf=1, neginf=0))
        c.leaves[0] = (finite.astype(values.dtype), grad)
    if name in ("to", "to2"):
        d = c.dtype(WIDE + ["int64", "int32", "bool", "float16", "bfloat16", "int16"])
        c.run("z = " + c.pick(f"x.to({d})", f"x.to(dtype={d})", "x.to('cpu')", f"x.to('cpu', {d})",
                              f"x.to({d}, copy=True)", "x.to(x)", f"x.to(device='cpu', dtype={d})",
                              "x.to(t.device('cpu'))", f"x.to({d}, non_blocking=True)", "x.to()", "x.to('nowhere')",
                              "x.to(t.zeros(1, dtype=t.float64))", f"x.to(copy=True, dtype=x.dtype)",
                              f"x.to(None, {d})" if False else "x.to('cpu', copy=True)"))
        c.results = "z, z is x"
        return
    if name == "type":
        d = c.dtype(WIDE + ["int64"])
        return c.gives(c.pick(f"x.type({d})", "x.type().replace('torch', 'tally')"))
    if name == "type_as":
        c.tensor("o", [1], of=["float32", "float64", "int64"])
        return c.gives("x.type_as(o)")
    if name in ("clone", "contiguous", "cpu", "detach"):
        if name == "clone" and c.chance(0.3):
            return c.gives("t.clone(x)")
        if name == "detach" and c.chance(0.3):
            return c.gives("t.detach(x)")
        c.run(f"z = x.{name}()")
        c.results = "z, z is x"
        return
    if name == "copy_":
        at = c.target(shape)
        c.tensor("o", c.beside(at), kind="positive" if kind.startswith("uint") else "few")
        return c.changed("v.copy_(o)")
    if name == "fill_":
        c.target(shape)
        value = c.pick("1", "0.5", "True", "2.0", "t.tensor(2)", "t.tensor(1.5)", "t.tensor([1.0])",
                       "t.tensor([1., 2.])", "'a'")
        return (c.changed(f"v.fill_({value})") if c.chance(0.8)
                else c.gives("t.fill(x, 2)" if False else "t.full_like(x, 1)"))
    if name == "zero_":
        c.target(shape)
        return c.changed("v.zero_()")
    if name == "data":
        return c.gives("x.data")
    if name == "data set":
        c.run("y = x.detach().clone()", "y.data = y * 1")
        return c.gives("y")
    if name == "set_":
        c.run("y = x.detach().clone()", "w = y.set_(t.ones(3, dtype=y.dtype))")
        c.results = "w, y"
        return
    if name == "detach_":
        c.run("y = x * 1", "w = y.detach_()")
        c.results = "w, y"
        return
    if name == "new":
        d = c.dtype(WIDE + ["int64"])
        return c.gives(c.pick("x.new_zeros(2, 3)", "x.new_ones((2, 2))", "x.new_full((2,), 1)", "x.new_empty(3).shape",
                              f"x.new_zeros([2], dtype={d})", "x.new_tensor([1, 0])",
                              "x.new_full((2, 1), 1, requires_grad=False)", "t.zeros_like(x)", "t.ones_like(x)",
                              "t.full_like(x, 1)", f"t.zeros_like(x, dtype={d})", "t.empty_like(x).shape",
                              f"t.full_like(x, 2, dtype={d})", f"x.new_ones(2, dtype={d}, requires_grad=False)"))
    if name == "deepcopy":
        return c.gives("__import__('copy').deepcopy(x)")
    if name == "pickle":
        c.run("import pickle")
        return c.gives("pickle.loads(pickle.dumps(x.detach()))")
    if name == "is_same_size":
        c.tensor("o", c.pick(shape, shape[::-1]))
        return c.gives("x.is_same_size(o)")
    if name == "tensor of":
        return c.gives(c.pick("t.tensor(x.detach().tolist())", "t.as_tensor(x.detach())", "t.asarray(x.detach())",
                              "t.tensor(np.ones((2, 2), 'float32'))"))
    c.gives("x")


@case("shape", "size", "stride", "ndim", "dtype", "numel", "flags", "len", "equal", "isclose", "allclose", "storage",
      "grad flags")
def describing(c, name):
    if name in ("equal", "isclose", "allclose"):
        shape = c.tensor(of=NUMBERS, kind="few", grad=False)
        c.tensor("o", c.beside(shape), of=[c.leaves[0][0].dtype.name] if c.chance(0.95) else NUMBERS, kind="few",
                 grad=False)
        if c.chance(0.5) and name != "equal":
            c.run("o = x + x * 1e-6" if c.leaves[0][0].dtype.kind == "f" else "o = x")
        extra = c.pick("", ", rtol=0.1", ", atol=0.5", ", equal_nan=True") if name != "equal" else ""
        return c.gives(c.pick(f"t.{name}(x, o{extra})", f"x.{name}(o{extra})"))
    shape = c.tensor("x", c.shape(low=1) if name == "stride" else None)
    axis = c.axis(len(shape))
    c.gives({"shape": c.pick("x.shape", "x.shape[0:1]", "x.shape.numel()", "tuple(x.shape)", "list(x.shape)",
                             "x.shape == tuple(x.shape)", "repr(x.shape).replace('torch', 'tally')", "x.shape + (1,)",
                             "(1,) + x.shape", "x.shape * 2"),
             "size": c.pick("x.size()", f"x.size({axis})", f"x.size(dim={axis})", f"x.shape[{axis}]"),
             "stride": c.pick("[s for n, s in zip(x.shape, x.stride()) if n > 1]",
                              f"x.stride({axis}) if x.size({axis}) > 1 else 0",
                              f"x.stride(dim={axis}) if x.size({axis}) > 1 else 0"),
             "ndim": "x.ndim, x.dim(), x.ndimension()",
             "dtype": "x.dtype, x.dtype.is_floating_point, x.dtype.itemsize, x.device, x.dtype.is_signed, "
                      "x.dtype.is_complex, str(x.dtype).replace('torch', 'tally')",
             "numel": "x.numel(), x.nelement(), t.numel(x), x.element_size(), x.itemsize, x.nbytes, "
                      "x.storage_offset() if x.numel() else 0",
             "flags": "x.is_contiguous(), x.is_floating_point(), x.is_complex(), x.is_signed(), x.is_cuda, x.is_cpu, "
                      "x.is_meta, x.get_device(), t.is_tensor(x), t.is_floating_point(x), x.is_sparse, x.is_quantized, "
                      "x.is_pinned(), x.is_shared(), t.is_complex(x), t.is_tensor(1), x._version, x.is_inference(), "
                      "x.layout == t.strided",
             "len": "x.__len__()",
             "storage": "x.untyped_storage().nbytes(), "
                        "x.untyped_storage().data_ptr() == x.data_ptr() - x.storage_offset() * x.element_size(), "
                        "x.data_ptr() == x.view_as(x).data_ptr()" if 0 not in shape else "x.numel()",
             "grad flags": "x.requires_grad, x.is_leaf, x.grad_fn is None, x.grad, (x * 1.0).requires_grad, "
                           "(x * 1.0).is_leaf, (x > 0).requires_grad, x.detach().requires_grad"}[name])


@case("repr", "repr 2", "str", "format")
def text(c, name):
    c.tensor("x", None if c.chance(0.9) else [40, 30], of=ANY, grad=c.chance(0.2), layouts=("dense", "permuted"))
    if name == "format":
        return c.gives(c.pick("f'{x}'", "f'{x:.3f}'", "'{}'.format(x)", "f'{x!r}'"))
    c.gives({"repr": "repr(x)", "repr 2": c.pick("repr(x * 1000)", "repr(x / 1000)", "repr([x])", "repr(x.shape)"),
             "str": "str(x)"}[name])


# ---- Creation ----

@case("tensor", "tensor 2", "as_tensor", "asarray", "scalar_tensor", "zeros", "ones", "empty", "full", "arange",
      "arange 2", "linspace", "eye", "from_numpy", "random", "dtypes", "finfo", "promote_types", "result_type",
      "can_cast", "logspace", "default dtype", "like", "vander", "device")
def creation(c, name):
    size, d = c.shape(), c.dtype(["float32", "float64", "int64", "int32", "bool", "float16", "uint8"])
    n, m = c.size(), c.size()
    if name.startswith("tensor"):
        data = c.pick("3", "2.5", "True", "[]", "[1, 2]", "[1, 2.5]", "[True, False]", "[True, 2]", "[[1, 2], [3, 4]]",
                      "[[1.5], [2]]", "[[1], [2, 3]]", "[[]]", "[[], []]", "(1, 2)", "[(1, 2), [3, 4]]",
                      "np.ones((2, 3))", "np.float32(2)", "np.arange(4)", "[np.float32(1), 2]",
                      "[t.tensor(1), t.tensor(2)]", "[t.tensor(1.5), 2]", "'abc'", "None", "[None]", "[1, 'a']",
                      "range(3)", "np.array([True, False])", "2**40", "[2**62]", "2**70", "float('nan')",
                      "[float('inf'), 1]", "np.ones((2, 2), 'int32').T", "np.ones(3, 'float16')",
                      "[np.ones(2), np.zeros(2)]", "np.int64(3)", "[[1, 2], 3]", "{}", "1e40",
                      "np.ones(2, 'complex64')" if False else "np.float64(0.1)", "-1", "300")
        extra = c.pick("", "", f", dtype={d}", ", requires_grad=True", ", device='cpu'")
        return c.gives(f"t.tensor({data}{extra})")
    if name in ("as_tensor", "asarray"):
        data = c.pick("3", "[1, 2]", "np.ones(2)", "np.ones((2, 2), 'float32')", "t.ones(2)", "True", "[1.5]", "(1, 2)")
        return c.gives(f"t.{name}({data}{c.pick('', f', dtype={d}')})")
    if name == "scalar_tensor":
        return c.gives(f"t.scalar_tensor({c.pick('3', '2.5', 'True')}{c.pick('', f', dtype={d}')})")
    if name in ("zeros", "ones", "empty"):
        spelled_size = c.pick(", ".join(map(str, size)) or "()", str(size), str(tuple(size)), f"t.Size({size})",
                              f"size={size}")
        extra = c.pick("", f", dtype={d}", ", requires_grad=True", ", device='cpu'", ", device=None",
                       ", pin_memory=False" if name == "empty" else "", ", dtype=None")
        return c.gives(f"t.{name}({spelled_size}{extra})" + (".shape" if name == "empty" else ""))
    if name == "full":
        value = c.pick("1", "2.5", "True", "-3", "t.tensor(2)", "float('inf')")
        return c.gives(f"t.full({size}, {value}{c.pick('', f', dtype={d}')})")
    if name.startswith("arange"):
        a, b, s = c.r.randint(-3, 5), c.r.randint(-3, 6), c.pick("1", "2", "0.5", "-1", "0.3", "1.0", "-0.7", "3", "0")
        arguments = c.pick(str(b), f"{a}, {b}", f"{a}, {b}, {s}", f"{a}, {b}, {s}", f"{float(b)}", f"{a}.5, {b}",
                           f"end={abs(b)}", f"start={a}, end={b + 9}", f"{a}, {b + 9}, step={s}")
        return c.gives(
            f"t.arange({arguments}{c.pick('', '', ', dtype=t.float64', ', dtype=t.int32', ', dtype=t.float32')})")
    if name in ("linspace", "logspace"):
        return c.gives(f"t.{name}({c.pick('0', '-1.5', '1')}, {c.pick('2', '1', '3.5')}, "
                       f"{c.pick('5', '1', '0', '7', 'steps=4', '-1')}{c.pick('', ', dtype=t.float64')})")
    if name == "eye":
        return c.gives(f"t.eye({n}{c.pick('', f', {m}')}{c.pick('', f', dtype={d}')})")
    if name == "from_numpy":
        c.run(f"a = np.arange({n * m}, dtype='{c.pick('float32', 'int64', 'uint8', 'float64', 'int32')}').reshape({n}, "
              f"{m}){c.pick('', '.T', '[:, ::2]', '[::2]')}", "x = t.from_numpy(a)")
        if n and m and c.chance(0.5):
            c.run("x[...] = 7" if c.chance(0.5) else "a[...] = 7")
        c.results = "x, a"
        return
    if name == "random":
        s = ", ".join(map(str, size)) or "()"
        return c.gives(c.pick(f"t.rand({s}).shape", f"t.randn({s}).dtype", f"t.randint(0, 5, {size}).dtype",
                              f"t.randint(5, {tuple(size)}).shape", f"t.randperm({n}).sort().values",
                              f"t.rand({size}, dtype=t.float64).dtype",
                              f"t.randn({size}, requires_grad=True).requires_grad",
                              f"t.rand_like(t.zeros({size})).shape",
                              f"t.randn_like(t.zeros({size}, dtype=t.float64)).dtype",
                              f"t.randint_like(t.zeros({size}), 3).dtype", f"t.randint(3, 3, {size})",
                              f"t.bernoulli(t.ones({size}))", f"t.normal(0.0, 1.0, {tuple(size)}).shape",
                              f"t.zeros({size}).uniform_(1, 2).ge(1).all()", f"t.zeros({size}).normal_().shape",
                              f"t.ones({size}).bernoulli_(0.0)", f"t.ones({size}).bernoulli_(1)",
                              "t.multinomial(t.tensor([0.0, 1.0]), 1)",
                              "t.tensor([[0.0, 1.0]]).multinomial(3, replacement=True)",
                              f"t.zeros({size}, dtype=t.int64).random_(0, 1)", f"t.ones({size}).bernoulli()",
                              f"t.randint(low=2, high=3, size={tuple(size)})", "t.initial_seed() >= 0",
                              "t.get_rng_state().dtype.is_floating_point", f"t.zeros({size}).exponential_().shape",
                              f"t.zeros({size}).trunc_none" if False else "t.set_rng_state(t.get_rng_state())",
                              f"t.normal(t.zeros({size}), 1.0).shape",
                              f"t.normal(t.zeros({size}), t.ones({size})).shape"))
    if name == "dtypes":
        a = c.pick("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
                   "float", "double", "half", "long", "int", "short")
        return c.gives(f"t.{a}, t.{a}.itemsize, t.{a}.is_floating_point, t.{a}.is_signed, repr(t.{a}).replace('torch', "
                       f"'tally'), t.{a}.to_complex() if False else 0")
    if name == "finfo":
        a = c.pick("float32", "float64", "float16", "bfloat16")
        b = c.pick("int64", "int32", "int16", "int8", "uint8")
        return c.gives(c.pick(f"t.finfo(t.{a}).eps, t.finfo(t.{a}).max, t.finfo(t.{a}).min, t.finfo(t.{a}).tiny, "
                              f"t.finfo(t.{a}).bits, t.finfo(t.{a}).resolution, t.finfo(t.{a}).smallest_normal, "
                              f"t.finfo(t.{a}).dtype",
                              f"t.iinfo(t.{b}).max, t.iinfo(t.{b}).min, t.iinfo(t.{b}).bits, t.iinfo(t.{b}).dtype",
                              f"t.finfo(t.{b})", f"t.iinfo(t.{a})", "t.finfo().eps"))
    if name in ("promote_types", "can_cast"):
        a, b = c.dtype(), c.dtype()
        return c.gives(f"t.{name}({a}, {b})")
    if name == "result_type":
        c.tensor("x", c.pick([], [2]))
        c.tensor("o", c.pick([], [2]))
        return c.gives(f"t.result_type(x, {c.pick('o', 'o', c.number())})")
    if name == "default dtype":
        return c.gives(c.pick("t.get_default_dtype()", "t.is_grad_enabled()",
                              "t.set_default_dtype(t.get_default_dtype())", "t.set_default_dtype(t.int64)",
                              "t.is_inference_mode_enabled()", "t.get_num_threads() >= 1",
                              "t.set_grad_enabled(True) and 1", "t.get_float32_matmul_precision()",
                              "t.set_float32_matmul_precision('highest')"))
    if name == "like":
        c.tensor("x", c.shape(), layouts=("dense", "permuted", "sliced", "expanded"))
        return c.gives(c.pick("t.zeros_like(x)", "t.ones_like(x)", "t.full_like(x, 1)",
                              "t.zeros_like(x, requires_grad=False)", "t.ones_like(x, dtype=t.float64)",
                              "t.zeros_like(x, device='cpu')"))
    if name == "vander":
        return c.gives("t.zeros(2), t.ones(2)")
    c.gives(c.pick("t.device('cpu')", "t.device('meta')", "str(t.device('cuda:1'))", "t.device('cuda', 0).index",
                   "repr(t.device('cpu'))", "t.device('cpu') == t.device('cpu')", "t.device('nothing')",
                   "t.device('cuda:0').type", "t.device(t.device('cpu'))", "t.zeros(2, device='meta').shape",
                   "t.zeros(2, device='meta').device.type", "t.zeros(2, device='meta') + t.ones(2)",
                   "t.ones(2, device='meta').item()", "t.device('cpu:0')", "t.device(3.5)",
                   "(t.zeros(2, 3, device='meta') @ t.zeros(3, 4, device='meta')).shape"))


# ---- Gradients ----

@case("backward", "grad", "grad in place", "grad in place 2", "grad view chain", "grad errors", "grad twice",
      "grad second", "grad retain", "grad accumulate", "grad modes", "grad hooks", "grad function", "grad setter",
      "requires_grad_")
def gradients(c, name):
    shape = c.tensor("x", c.shape(None, 1, 1), of=WIDE, grad=True, layouts=("dense",), kind="positive")
    rank = len(shape)
    if name == "backward":
        first = "y = (x * 2).sum()" if c.chance(0.5) else "y = (x ** 2 / 3).mean()"
        arguments = c.pick("", "retain_graph=True", "t.tensor(2.0, dtype=x.dtype)", "gradient=None", "inputs=[x]")
        c.run(first, f"w = y.backward({arguments})")
        c.results = "w, x.grad, y.is_leaf"
    elif name == "grad":
        c.tensor("o", shape, of=[c.leaves[0][0].dtype.name], grad=True, layouts=("dense",))
        c.gives(c.pick("t.autograd.grad((x * o).sum(), [x, o])", "t.autograd.grad((x * 2).sum(), x)",
                       "t.autograd.grad(x * o, [x], t.ones_like(x))", "t.autograd.grad((x * 2).sum(), [o])",
                       "t.autograd.grad((x * 2).sum(), [x, o], allow_unused=True)",
                       "t.autograd.grad([x.sum(), (o * x).sum()], [x, o])", "t.autograd.grad(x * 2, x)",
                       "t.autograd.grad((x * 2).sum(), [x, o], materialize_grads=True)",
                       "t.autograd.grad(x.detach().sum(), x)", "t.autograd.grad(x.sum(), o.detach())",
                       "t.autograd.grad((x * o).sum(), (x, o), grad_outputs=t.tensor(3.0, dtype=x.dtype))"))
    elif name.startswith("grad in place"):
        c.run("y = x * 2")
        for _ in range(c.r.randint(1, 3)):
            c.run("v = y" + c.pick("", "[0]", "[:1]", ".t()" if rank == 2 else "", ".view(-1)", "[..., 0]",
                                   ".transpose(0, -1)", ".unsqueeze(0)", ".detach()" if c.chance(0.1)
                                   else "[..., None]", ".unbind(0)[0]", ".split(1)[0]", "[0:1][0]"))
            c.run(c.pick("v.mul_(3)", "v.add_(x.sum())", "v += 1", "v[...] = 0.5", "v.zero_()", "v.exp_()", "y.mul_(2)",
                         "v.copy_(v.detach() * 2)", "v.clamp_(max=1)", "v.sqrt_()", "v.fill_(x.mean())", "v.relu_()",
                         "y[0] = x[0]", "v *= v.detach()", "v.mul_(v)", "v.div_(x.sum())", "v.pow_(2)",
                         "v.masked_fill_(v > 1, 0.0)", "v.neg_()", "y.add_(1)"))
        c.gives("y * 1")
    elif name == "grad view chain":
        c.run("y = x" + c.pick(".view(-1)", "[0]", ".reshape(-1)[:2]", ".T", ".unsqueeze(1)", ".expand(2, *x.shape)",
                               ".permute(*range(x.ndim))", ".flatten()", "[..., ::2]", ".narrow(0, 0, 1)"))
        c.gives(f"(y * y){c.pick('.sum()', '.mean()', '', '.cumsum(0)', '.max()', '.prod()')}")
    elif name == "grad errors":
        c.run(*c.pick(["x.add_(1)"], ["x[0] = 1"], ["x.view(-1).add_(1)"],
                      ["y = x.exp()", "y.add_(1)", "y.sum().backward()"], ["(x * 2).backward()"],
                      ["x.detach().sum().backward()"], ["x.numpy()"], ["t.ones(2, dtype=t.int64).requires_grad_()"],
                      ["t.ones(2, dtype=t.int64, requires_grad=True)"],
                      ["t.zeros(3, dtype=t.bool, requires_grad=True)"], ["(x * 2).requires_grad_(False)"],
                      ["w = x.clone()", "w.requires_grad = False"], ["x.grad = t.ones(99)"], ["x.backward(t.ones(99))"],
                      ["y = (x * 2).sum()", "y.backward()", "y.backward()"],
                      ["y = x.exp().sum()", "y.backward()", "y.backward()"],
                      ["y = (x ** 2).sum()", "y.backward()", "y.backward()"],
                      ["y = x * 1", "z2 = y * y", "y.zero_()", "z2.sum().backward()"], ["bool(t.stack([x, x]))"],
                      ["x.tolist(), x.item()"], ["np.asarray(x)"], ["t.tensor(1) .backward()"],
                      ["with t.no_grad(): y = x * 2", "y.sum().backward()"], ["x.grad = 3"],
                      ["y = x * 1", "v = y.detach()", "v.zero_()", "(y * x).sum().backward()"],
                      ["x.requires_grad_(False)", "x.add_(1)"], ["y = x.sigmoid()", "y.mul_(2)", "y.sum().backward()"],
                      ["x.retain_grad()", "x.sum().backward()"], ["y = x.detach()", "y.retain_grad()"],
                      ["y = x.clone()", "y[0].add_(y[0])", "y.sum().backward()"],
                      ["y = (x + 1).sum()", "y.backward()", "y.backward()"],
                      ["y = x.view(-1)[:1].sum()", "y.backward()", "y.backward()"],
                      ["y = (-x).mean()", "t.autograd.grad(y, x)", "y.backward()"]))
        c.gives("x.grad, x")
    elif name == "grad twice":
        c.run(f"y = {c.pick('(x * x).sum()', 'x.sum()', 'x.exp().sum()', '(x + 1).sum()')}",
              "y.backward(retain_graph=True)", c.pick("y.backward()", "y.backward(retain_graph=True)"))
        c.gives("x.grad")
    elif name == "grad second":
        output = c.pick("(x ** 3).sum()", "x.exp().sum()", "(x * x * x).mean()", "x.log().sum()", "x.tanh().sum()",
                        "x.softmax(-1)[..., 0].sum()")
        c.run(f"g, = t.autograd.grad({output}, x, create_graph=True)")
        c.gives("g, t.autograd.grad(g.sum(), x)[0]")
    elif name == "grad retain":
        c.run("y = x * 3", "y.retain_grad()", "(y * y).sum().backward()")
        c.results = "y.grad, x.grad, y.requires_grad"
    elif name == "grad accumulate":
        c.run("(x * 2).sum().backward()", c.pick("(x * 3).sum().backward()", "x.grad.zero_()", "x.grad = None",
                                                 "x.grad += 1", "x.grad = t.ones_like(x)", "x.grad.data.mul_(2)"))
        c.gives("x.grad")
    elif name == "grad modes":
        c.run(*c.pick(["with t.no_grad():", "    y = x * 2"], ["with t.enable_grad():", "    y = x * 2"],
                      ["with t.no_grad():", "    with t.enable_grad():", "        y = x * 2"],
                      ["with t.set_grad_enabled(False):", "    y = x * 2"],
                      ["@t.no_grad()", "def f(a):", "    return a * 2", "y = f(x)"],
                      ["@t.no_grad", "def f(a):", "    return a * 2", "y = f(x)"],
                      ["with t.no_grad():", "    x.add_(1)", "y = x * 2"],
                      ["with t.inference_mode():", "    y = (x * 2).sum().item()"],
                      ["with t.no_grad():", "    y = t.is_grad_enabled()"],
                      ["with t.no_grad():", "    x.copy_(x * 3)", "y = x * 2"], ["x.data.mul_(2)", "y = x * 3"],
                      ["x.detach().mul_(2)", "y = x * 3"]))
        c.gives("y")
    elif name == "grad hooks":
        c.run("seen = []",
              *c.pick(["x.register_hook(lambda g: seen.append(g.sum().item()))"],
                      ["h = x.register_hook(lambda g: g * 2)"], ["h = x.register_hook(lambda g: g * 2)", "h.remove()"],
                      ["x.register_hook(lambda g: None)"],
                      ["x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item()))"],
                      ["x.detach().register_hook(print)"]), "(x * 3).sum().backward()")
        c.gives("x.grad, seen")
    elif name == "grad function":
        c.run("class Square(t.autograd.Function):", "    @staticmethod", "    def forward(ctx, a, k):",
              "        ctx.save_for_backward(a)", "        ctx.k = k", "        return a * a * k", "    @staticmethod",
              "    def backward(ctx, g):", "        a, = ctx.saved_tensors",
              f"        return {c.pick('2 * a * g * ctx.k, None', '2 * a * g * ctx.k, None', 'g')}",
              "y = Square.apply(x, 3)", "y.sum().backward()")
        c.gives("y, x.grad, y.requires_grad")
    elif name == "grad setter":
        c.run(c.pick("x.grad = t.ones_like(x)", "x.grad = None", "x.requires_grad = False", "x.requires_grad = True",
                     "x.grad = t.ones_like(x).double()"))
        c.gives("x.grad, x.requires_grad")
    else:
        c.run(c.pick("y = x.detach().requires_grad_()", "y = x.detach()", "y = x.clone().detach().requires_grad_(True)",
                     "y = x.requires_grad_()", "y = x.requires_grad_(False)",
                     "y = t.zeros_like(x, requires_grad=True)"))
        c.gives("y.requires_grad, y.is_leaf, y is x, y.grad")


# ---- The rest of the names ----

@case("rest", "rest 2", "rest 3", "rest 4")
def rest(c, name):
    shape = c.tensor("x", c.shape(None, 2), of=WIDE, kind="unit")
    kind, axis = c.leaves[0][0].dtype.name, c.axis(len(shape))
    n = shape[axis] if -len(shape) <= axis < len(shape) else 1
    c.tensor("o", c.pick(shape, c.beside(shape)), of=[kind], kind="positive")
    if name in ("rest", "rest 2"):
        call = c.pick("deg2rad_()", "rad2deg_()", "fix_()", "frac_()", "sgn_()", "tan_()", "greater_(0)",
                      "greater_equal_(o)", "less_(0.1)", "less_equal_(0)", "not_equal_(0)", "hypot_(o)", "logit_(0.1)",
                      "xlogy_(o)", "fill_diagonal_(2.5)", "swapaxes_(0, 1)", "swapdims_(0, -1)", "uniform_(2, 2)")
        if "(o)" in call or call.startswith("swap"):
            c.run("y = x.clone()", "v = y")
        else:
            c.target(shape)
        return c.changed(f"v.{call}")
    if name == "rest 3":
        i = c.r.randrange(n) if n else 0
        return c.gives(c.pick(f"x.select_scatter(o.sum(), {axis}, {i})",
                              f"t.select_scatter(x, x.select({axis}, {i}) * 2, {axis}, {i})",
                              f"t.slice_scatter(x, x.narrow({axis}, 0, {n // 2}) * 2, {axis}, 0, {n // 2})",
                              f"x.slice_scatter(x[0:1] * 2, 0, 0, 1)", "x.diagonal_scatter(x.diagonal() * 3)",
                              "t.diagonal_scatter(x, x.diagonal(1) * 3, 1)", f"x.narrow_copy({axis}, 0, {n // 2})",
                              f"t.rot90(x, {c.r.randint(-3, 5)})", f"x.rot90({c.r.randint(0, 3)}, [1, 0])",
                              "t.diagflat(x)", "x.diagflat(1)", "t.cosine_similarity(x, o, 0)" if 0 not in shape
                              else "x", "t.fill(x, 2)", "t.rsub(x, o)", "t.rsub(x, 2, alpha=3)", "t.fix(x)", "x.fix()",
                              "t.float_power(x, 2)", "x.float_power(o)", "t.threshold(x, 0.1, 20)", "x[t.newaxis]"))
    c.gives(c.pick("t.isneginf(x)", "x.isposinf()", "t.isreal(x)", "t.is_nonzero(x.sum())", "x.sum().is_nonzero()",
                   "(x * 1).retains_grad", "t.inf, t.pi, t.e, t.nan", "x.new_empty(2, 3).shape",
                   "t.randint_like(x, 3).shape", "t.randn_like(x).shape", "t.bernoulli(x.detach() * 0)",
                   "(x.detach() * 0).bernoulli()", "t.initial_seed() >= 0",
                   "x.detach().clone().exponential_().ge(0).all()", "t.bitwise_and(x > 0, x < 1)",
                   "(x > 0).bitwise_and(x < 1)", "x.isneginf()", "t.isposinf(x)"))
