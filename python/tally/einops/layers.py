"""Patterns as modules: Rearrange, Reduce, and EinMix, a linear layer with named axes."""
import math

from .. import nn
from . import EinopsError, einsum, rearrange, reduce
from .._creation import empty


class _Pattern(nn.Module):
    def __init__(self, pattern, axes_lengths):
        super().__init__()
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def extra_repr(self):
        return ", ".join([repr(self.pattern)] + [f"{k}={v}" for k, v in self.axes_lengths.items()])


class Rearrange(_Pattern):
    """rearrange as a module."""

    def __init__(self, pattern, **axes_lengths):
        super().__init__(pattern, axes_lengths)

    def forward(self, x):
        return rearrange(x, self.pattern, **self.axes_lengths)


class Reduce(_Pattern):
    """reduce as a module."""

    def __init__(self, pattern, reduction, **axes_lengths):
        super().__init__(pattern, axes_lengths)
        self.reduction = reduction

    def forward(self, x):
        return reduce(x, self.pattern, self.reduction, **self.axes_lengths)

    def extra_repr(self):
        return f"{self.pattern!r}, {self.reduction!r}" + "".join(f", {k}={v}" for k, v in self.axes_lengths.items())


def _names(side, what):
    """The names of one side, without brackets; "..." counts as one."""
    names = side.replace("(", " ").replace(")", " ").split()
    for n in names:
        if n != "..." and not n.isidentifier():
            raise EinopsError(f"EinMix: {what} has axis {n!r} (need names, and no numbers)")
    if len(set(names)) != len(names):
        raise EinopsError(f"EinMix: {what} names an axis twice: {side.strip()!r}")
    return names


class EinMix(_Pattern):
    """A linear layer with named axes:

        EinMix("b t c -> b t (h d)", weight_shape="c h d", bias_shape="h d", c=64, h=8, d=16)

    Weights are uniform with standard deviation 1/sqrt(fan_in), where fan_in is the product of the sizes of those weight
    axes that the result lacks."""

    def __init__(self, pattern, weight_shape, bias_shape=None, **axes_lengths):
        super().__init__(pattern, axes_lengths)
        self.weight_shape, self.bias_shape = weight_shape, bias_shape
        if pattern.count("->") != 1:
            raise EinopsError(f"EinMix: pattern {pattern!r} needs exactly one arrow")
        left, right = pattern.split("->")
        self._left, self._right = left, right
        inputs, outputs = _names(left, "the left side"), _names(right, "the right side")
        weight = _names(weight_shape, "the weight")
        self._check(left, right, weight_shape, inputs, outputs, weight)
        bias = self._bias_names(bias_shape, outputs)
        unused = [k for k in axes_lengths if k not in inputs + outputs + weight + bias]
        if unused:
            raise EinopsError(f"EinMix: axis {unused[0]!r} has a length and is not in {pattern!r}")
        fan_in = math.prod(axes_lengths[n] for n in weight if n not in outputs)
        bound = math.sqrt(3 / fan_in)
        self.weight = nn.Parameter(empty([axes_lengths[n] for n in weight]).uniform_(-bound, bound))
        self.bias = None
        if bias_shape:
            sizes = [axes_lengths[n] if n in bias else 1 for n in self._after_ellipsis(outputs)]
            self.bias = nn.Parameter(empty(sizes).uniform_(-math.sqrt(1 / fan_in), math.sqrt(1 / fan_in)))
        flat = " ".join(n for n in outputs)
        self._product = f"{' '.join(inputs)}, {' '.join(weight)} -> {flat}"
        self._inputs, self._outputs = " ".join(inputs), flat

    def _check(self, left, right, weight_shape, inputs, outputs, weight):
        if ("..." in inputs) != ("..." in outputs):
            raise EinopsError("EinMix: an ellipsis must be on both sides of the pattern")
        if "..." in weight or "(" in weight_shape:
            raise EinopsError("EinMix: the weight's shape is a list of names, without brackets and ellipsis")
        if "..." in left and any("..." in part.split(")")[0] for part in left.split("(")[1:]):
            raise EinopsError("EinMix: an ellipsis in brackets is for the right side only")
        for n in outputs:
            if n not in inputs and n not in weight:
                raise EinopsError(f"EinMix: axis {n!r} is on the right side, and neither on the left nor in the weight")
        for n in weight:
            if n not in self.axes_lengths:
                raise EinopsError(f"EinMix: axis {n!r} of the weight needs a length")
            if n not in inputs and n not in outputs:
                raise EinopsError(f"EinMix: axis {n!r} of the weight is in neither side of the pattern")

    def _bias_names(self, bias_shape, outputs):
        if bias_shape is None or bias_shape == "":
            return []
        if not isinstance(bias_shape, str):
            raise EinopsError(f"EinMix: the bias's shape is text, not {type(bias_shape).__name__}")
        bias = _names(bias_shape, "the bias")
        for n in bias:
            if n not in outputs:
                raise EinopsError(f"EinMix: axis {n!r} of the bias is not in the result")
            if n not in self.axes_lengths:
                raise EinopsError(f"EinMix: axis {n!r} of the bias needs a length")
            if n not in self._after_ellipsis(outputs):
                raise EinopsError(f"EinMix: axis {n!r} of the bias stands before the ellipsis")
        return bias

    @staticmethod
    def _after_ellipsis(outputs):
        return outputs[outputs.index("...") + 1:] if "..." in outputs else outputs

    def forward(self, x):
        given = {k: v for k, v in self.axes_lengths.items() if k in self._inputs.split()}
        x = rearrange(x, f"{self._left} -> {self._inputs}", **given)
        y = einsum(x, self.weight, self._product)
        if self.bias is not None:
            y = y + self.bias
        return y if "(" not in self._right else rearrange(y, f"{self._outputs} -> {self._right}")

    def extra_repr(self):
        return (f"{self.pattern!r}, {self.weight_shape!r}, bias={self.bias_shape!r}"
                + "".join(f", {k}={v}" for k, v in self.axes_lengths.items()))
