"""torch.nn: modules, their layers, and functions on tensors."""
from . import functional, init, parameter, utils  # noqa: F401
from .containers import ModuleDict, ModuleList, Sequential  # noqa: F401
from .layers import (BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, Dropout, ELU, Embedding, Flatten,  # noqa: F401
                     GELU, GLU, HuberLoss, Identity, KLDivLoss, L1Loss, LayerNorm, LeakyReLU, Linear, LogSigmoid,
                     LogSoftmax, Mish, MSELoss, MultiheadAttention, NLLLoss, ReLU, RMSNorm, Sigmoid, SiLU,
                     SmoothL1Loss, Softmax, Softplus, Tanh, Unflatten)
from .module import Module  # noqa: F401
from .parameter import Buffer, Parameter  # noqa: F401


def _sizes(*names):
    return [f"{name}{n}d" for name in names for n in (1, 2, 3)]


# Imported when one is first asked for.
_LATE = {
    "spatial_layers": _sizes("Conv", "ConvTranspose", "LazyConv", "LazyConvTranspose", "MaxPool", "AvgPool", "LPPool",
                             "AdaptiveAvgPool", "AdaptiveMaxPool", "MaxUnpool", "BatchNorm", "InstanceNorm",
                             "ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad")
    + """LazyLinear SyncBatchNorm GroupNorm LocalResponseNorm Upsample UpsamplingNearest2d UpsamplingBilinear2d Unfold
        Fold PixelShuffle PixelUnshuffle ChannelShuffle""".split(),
    "recurrent": "RNN LSTM GRU RNNCell LSTMCell GRUCell".split(),
    "transformer": """Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder
        TransformerDecoderLayer""".split(),
    "rarer_layers": """ReLU6 SELU Hardswish Hardsigmoid CELU Hardtanh PReLU RReLU Hardshrink Softshrink Tanhshrink
        Softsign Softmin Softmax2d Threshold Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout Bilinear
        CosineSimilarity PairwiseDistance EmbeddingBag SoftMarginLoss MarginRankingLoss HingeEmbeddingLoss
        CosineEmbeddingLoss PoissonNLLLoss MultiLabelMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss
        GaussianNLLLoss CTCLoss MultiMarginLoss MultiLabelSoftMarginLoss ParameterList ParameterDict""".split(),
}
_PLACE = {name: module for module, names in _LATE.items() for name in names}


def __getattr__(name):
    import importlib
    if name in ("attention", "modules", "parallel"):
        return importlib.import_module("." + name, __name__)
    if name in _PLACE:
        value = getattr(importlib.import_module("." + _PLACE[name], __name__), name)
        globals()[name] = value
        return value
    if name.startswith("__"):
        raise AttributeError(f"module 'tally.nn' has no attribute '{name}'")
    from .._missing import message
    raise AttributeError(message("nn." + name, "nn"), name=name)


def __dir__():
    return sorted({*globals(), *_PLACE, "attention", "modules", "parallel"})
