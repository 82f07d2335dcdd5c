"""Tally: a tensor engine whose price and receipt tally, shaped like PyTorch.

    import tally
    x = tally.randn(4, 8, requires_grad=True)
    (x @ x.T).sum().backward()
    with tally.ledger() as l: ...
"""
from ._library import header as _header

__version__ = _header.version

from . import _types  # noqa: E402
from ._types import Size, device, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype  # noqa: E402, F401

for _d in _types.DTYPES:
    globals()[_d.name] = _d
for _alias, _name in _types.ALIASES.items():
    globals()[_alias] = _types.BY_NAME[_name]

from ._tensor import Tensor  # noqa: E402, F401
from ._errors import OutOfMemoryError  # noqa: E402, F401
from ._creation import *  # noqa: E402, F401, F403
from ._functions import *  # noqa: E402, F401, F403
from ._grad import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled  # noqa: E402, F401
from ._memory import from_dlpack  # noqa: E402, F401
from . import autograd  # noqa: E402, F401
from . import cuda  # noqa: E402, F401
from ._ledger import Ledger, get_default_device, ledger, price, profile, set_default_device  # noqa: E402, F401
from . import _einops  # noqa: E402, F401
