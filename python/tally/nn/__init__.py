"""torch.nn: modules, their layers, and functions on tensors."""
from . import functional, init, parameter, utils  # noqa: F401
from .containers import ModuleDict, ModuleList, Sequential  # noqa: F401
from .layers import (BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, Dropout, ELU, Embedding, Flatten,  # noqa: F401
                     GELU, GLU, HuberLoss, Identity, KLDivLoss, L1Loss, LayerNorm, LeakyReLU, Linear, LogSigmoid,
                     LogSoftmax, Mish, MSELoss, MultiheadAttention, NLLLoss, ReLU, RMSNorm, Sigmoid, SiLU,
                     SmoothL1Loss, Softmax, Softplus, Tanh, Unflatten)
from .module import Module  # noqa: F401
from .parameter import Buffer, Parameter  # noqa: F401
