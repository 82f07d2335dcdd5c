"""Rarer layers: activations, dropouts, losses, distances, bags of embeddings, lists of parameters."""
import collections
import math

from .. import _functions
from . import functional as F
from . import init
from .layers import _AlongDim, _empty, _InPlace, _Loss, _WeightedLoss, Dropout
from .module import Module
from .parameter import Parameter


# ---- Activations ----

class ReLU6(_InPlace):
    """min(max(x, 0), 6)"""

    def forward(self, input):
        return F.relu6(input, self.inplace)


class SELU(_InPlace):
    """scale (x, and alpha (e^x - 1) below 0)"""

    def forward(self, input):
        return F.selu(input, self.inplace)


class Hardswish(_InPlace):
    """x hardsigmoid(x)"""

    def forward(self, input):
        return F.hardswish(input, self.inplace)


class Hardsigmoid(_InPlace):
    """min(max(x / 6 + 1/2, 0), 1)"""

    def forward(self, input):
        return F.hardsigmoid(input, self.inplace)


class CELU(Module):
    """x, and alpha (e^(x / alpha) - 1) below 0"""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Hardtanh(Module):
    """x clamped between two numbers"""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        if max_val <= min_val:
            raise AssertionError("max_val must be larger than min_val")

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """x, and weight x below 0, the weight learned"""

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = _empty((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self):
        init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x, and below 0 times a random slope"""

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class _Lambda(Module):
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def extra_repr(self):
        return str(self.lambd)


class Hardshrink(_Lambda):
    """x, and 0 between -lambd and lambd"""

    def forward(self, input):
        return F.hardshrink(input, self.lambd)


class Softshrink(_Lambda):
    """x moved towards 0 by lambd"""

    def forward(self, input):
        return F.softshrink(input, self.lambd)


class Tanhshrink(Module):
    """x - tanh x"""

    def forward(self, input):
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|)"""

    def forward(self, input):
        return F.softsign(input)


class Softmin(_AlongDim):
    """softmax of -x"""

    def forward(self, input):
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W)"""

    def forward(self, input):
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return F.softmax(input, -3)


class Threshold(Module):
    """value where x <= threshold, else x"""

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input):
        y = F.threshold(input, self.threshold, self.value)
        return input.copy_(y) if self.inplace else y

    def extra_repr(self):
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


# ---- Dropouts ----

class Dropout1d(Dropout):
    """Whole channels 0 with probability p."""

    def forward(self, input):
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Whole channels 0 with probability p."""

    def forward(self, input):
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """Whole channels 0 with probability p."""

    def forward(self, input):
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(Dropout):
    """Dropout that keeps the mean and variance of what SELU gives."""

    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(Dropout):
    """AlphaDropout of whole channels."""

    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training)


# ---- Products, distances ----

class Bilinear(Module):
    """x1 W x2 + bias"""

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = _empty((out_features, in1_features, in2_features), device, dtype)
        self.register_parameter("bias", _empty((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.in1_features)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input1, input2):
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self):
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class CosineSimilarity(Module):
    """The cosine of the angle along an axis."""

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of the difference."""

    def __init__(self, p=2.0, eps=1e-6, keepdim=False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1, x2):
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class EmbeddingBag(Module):
    """The sum, mean or largest of bags of embeddings."""

    def __init__(self, num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                 mode="mean",
                 sparse=False, _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None):
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.max_norm, self.norm_type, self.include_last_offset = max_norm, norm_type, include_last_offset
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if sparse or scale_grad_by_freq:
            raise NotImplementedError("EmbeddingBag: sparse and scale_grad_by_freq are not there")
        self.weight = _empty((num_embeddings, embedding_dim), device, dtype) if _weight is None else Parameter(_weight)
        if _weight is None:
            self.reset_parameters()

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx].fill_(0)

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, False, self.mode, False,
                               per_sample_weights, self.include_last_offset, self.padding_idx)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
                        mode="mean",
                        sparse=False, include_last_offset=False, padding_idx=None):
        bag = cls(*embeddings.shape, max_norm=max_norm, norm_type=norm_type, mode=mode, _weight=embeddings,
                  include_last_offset=include_last_offset, padding_idx=padding_idx)
        bag.weight.requires_grad_(not freeze)
        return bag

    def extra_repr(self):
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"


# ---- Losses ----

def _loss(name, function, arguments, doc, base=_Loss, n_inputs=2):
    """A loss whose arguments are those of its function."""
    class Loss(base):
        def __init__(self, *args, **kwargs):
            values = dict(arguments)
            own = list(arguments)
            for key, value in zip(own, args):
                values[key] = value
            kept = {k: kwargs.pop(k) for k in list(kwargs) if k in values}
            values.update(kept)
            if base is _WeightedLoss:
                super().__init__(kwargs.pop("weight", None), **kwargs)
            else:
                super().__init__(**kwargs)
            for key, value in values.items():
                setattr(self, key, value)

        def forward(self, *inputs):
            options = {key: getattr(self, key) for key in arguments}
            if base is _WeightedLoss:
                options["weight"] = self.weight
            return getattr(F, function)(*inputs, reduction=self.reduction, **options)
    Loss.__name__ = Loss.__qualname__ = name
    Loss.__doc__ = doc
    return Loss


SoftMarginLoss = _loss("SoftMarginLoss", "soft_margin_loss", {}, "log(1 + e^(-target input))")
MarginRankingLoss = _loss("MarginRankingLoss", "margin_ranking_loss", {"margin": 0.0},
                          "max(0, -target (input1 - input2) + margin)")
HingeEmbeddingLoss = _loss("HingeEmbeddingLoss", "hinge_embedding_loss", {"margin": 1.0},
                           "input where target is 1, max(0, margin - input) where it is -1")
CosineEmbeddingLoss = _loss("CosineEmbeddingLoss", "cosine_embedding_loss", {"margin": 0.0},
                            "1 - cos where target is 1, max(0, cos - margin) where it is -1")
PoissonNLLLoss = _loss("PoissonNLLLoss", "poisson_nll_loss", {"log_input": True, "full": False, "eps": 1e-8},
                       "e^x - target x, or x - target log(x + eps)")
MultiLabelMarginLoss = _loss("MultiLabelMarginLoss", "multilabel_margin_loss", {},
                             "The mean over classes of max(0, 1 - x[label] + x[i])")
TripletMarginLoss = _loss("TripletMarginLoss", "triplet_margin_loss",
                          {"margin": 1.0, "p": 2.0, "eps": 1e-6, "swap": False},
                          "max(0, distance to the positive - distance to the negative + margin)")
TripletMarginWithDistanceLoss = _loss("TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss",
                                      {"distance_function": None, "margin": 1.0, "swap": False},
                                      "TripletMarginLoss with a distance of one's own")
GaussianNLLLoss = _loss("GaussianNLLLoss", "gaussian_nll_loss", {"full": False, "eps": 1e-6},
                        "(log var + (input - target)^2 / var) / 2")
CTCLoss = _loss("CTCLoss", "ctc_loss", {"blank": 0, "zero_infinity": False},
                "-log of the sum over all alignments of the targets")
MultiMarginLoss = _loss("MultiMarginLoss", "multi_margin_loss", {"p": 1, "margin": 1.0},
                        "The mean over the other classes of max(0, margin - x[target] + x[i])^p", _WeightedLoss)
MultiLabelSoftMarginLoss = _loss("MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", {},
                                 "The mean over classes of binary cross entropies of logits", _WeightedLoss)


# ---- Lists of parameters ----

class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, index):
        index = index.__index__()
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, self._key(index))

    def __setitem__(self, index, value):
        setattr(self, self._key(index), _as_parameter(value))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values):
        return self.extend(values)

    def append(self, value):
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        for value in values:
            self.append(value)
        return self

    def extra_repr(self):
        return "\n".join(f"({i}): Parameter containing: [{p.dtype} of size {'x'.join(map(str, p.shape))}]"
                         for i, p in enumerate(self))


def _as_parameter(value):
    return value if isinstance(value, Parameter) or not _functions.is_tensor(value) else Parameter(value)


class ParameterDict(Module):
    """Parameters by name."""

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key):
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, str(key))

    def __setitem__(self, key, value):
        self._keys[key] = None
        setattr(self, str(key), _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, str(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __contains__(self, key):
        return key in self._keys

    def keys(self):
        return self._keys.keys()

    def values(self):
        return (self[k] for k in self._keys)

    def items(self):
        return ((k, self[k]) for k in self._keys)

    def get(self, key, default=None):
        return self[key] if key in self._keys else default

    def pop(self, key):
        value = self[key]
        del self[key]
        return value

    def setdefault(self, key, default=None):
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self):
        for key in list(self._keys):
            del self[key]

    def update(self, parameters):
        for key, value in (parameters.items() if isinstance(parameters, (collections.abc.Mapping, ParameterDict))
                           else parameters):
            self[key] = value
