"""Tally: tensors, autograd and training with PyTorch's names, and the exact cost of every computation.

    import tally
    x = tally.randn(4, 8, requires_grad=True)
    (x @ x.T).sum().backward()
    with tally.ledger() as l: ...
"""
from ._library import header as _header

__version__ = _header.version

from . import _types  # noqa: E402
from ._types import (Size, device, dtype, finfo, get_default_dtype, iinfo, promote_types,  # noqa: E402, F401
                     set_default_dtype)

for _d in _types.DTYPES:
    globals()[_d.name] = _d
for _alias, _name in _types.ALIASES.items():
    globals()[_alias] = _types.BY_NAME[_name]

from ._tensor import Tensor  # noqa: E402, F401
from ._errors import OutOfMemoryError  # noqa: E402, F401
from . import _functions  # noqa: E402
from ._creation import *  # noqa: E402, F401, F403
from ._functions import *  # noqa: E402, F401, F403
from ._composed import *  # noqa: E402, F401, F403
from ._complex import *  # noqa: E402, F401, F403
from ._tensor import (channels_last, channels_last_3d, contiguous_format, get_float32_matmul_precision,
                      get_num_threads, layout,  # noqa: E402, F401
                      memory_format, preserve_format, set_float32_matmul_precision, set_num_threads, strided)
from ._grad import (enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled,  # noqa: E402, F401
                    no_grad, set_grad_enabled)
from ._memory import from_dlpack  # noqa: E402, F401
from . import cuda  # noqa: E402, F401
from ._ledger import Ledger, get_default_device, ledger, price, profile, set_default_device  # noqa: E402, F401
from . import amp, autograd, nn, optim, utils  # noqa: E402, F401
from .amp import autocast, get_autocast_dtype, is_autocast_enabled  # noqa: E402, F401
from .nn.functional import dropout, layer_norm, rms_norm  # noqa: E402, F401
from ._model import Model  # noqa: E402, F401
from ._pages import report  # noqa: E402, F401
from ._train import train, train_price, train_settings  # noqa: E402, F401
from ._files import load, save  # noqa: E402, F401
from ._tokenizer import Tokenizer  # noqa: E402, F401
from . import _einops, einops  # noqa: E402, F401

from math import e, inf, nan, pi  # noqa: E402, F401

newaxis = None
for _name in ("relu sigmoid tanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos neg negative abs floor ceil "
              "round trunc square reciprocal erf clamp clip clamp_min clamp_max fill zero nan_to_num detach index_put "
              "frac tan logit xlogy deg2rad rad2deg fix addmv").split():
    globals()[_name + "_"] = getattr(Tensor, _name + "_")  # noqa: F405
# out=: arithmetic, comparisons, matmul and functions of one operand have it in their signatures, these by a function
# around them; the others refuse it as an unknown argument.
for _name in """fmod remainder clamp where lerp addcmul addcdiv addmm mm bmm mv dot outer cat concat concatenate stack
sum mean prod cumsum cumprod norm logsumexp softmax sort topk gather index_select masked_select take tril triu diag
diff logical_and logical_or logical_xor kthvalue median arange linspace zeros ones full empty rand randn
randperm""".split():
    globals()[_name] = _functions._takes_out(globals()[_name])
del _name, _d, _alias

# ---- What is imported when it is first asked for ----

from . import _late  # noqa: E402


def __getattr__(name):
    import importlib
    if name in _late.MODULES:
        return importlib.import_module("." + name, __name__)
    if name in _late.PLACE:
        value = _late.find(name)
    elif name.startswith("_foreach_"):
        value = importlib.import_module("._foreach", __name__).find(name)
    else:
        value = None
    if value is None:
        if name.startswith("__"):
            raise AttributeError(f"module 'tally' has no attribute '{name}'")
        from ._missing import message
        raise AttributeError(message("tally." + name, name), name=name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_late.PLACE, *_late.MODULES})
