"""torch.types: names for annotations."""
import builtins
from typing import Any, List, Sequence, Tuple, Union

from ._tensor import Tensor
from ._types import device, dtype

Number = Union[builtins.int, builtins.float, builtins.bool]
_int, _float, _bool, _size, _dtype, _device = int, float, bool, Union[List[int], Tuple[int, ...]], dtype, device
Device = Union[device, str, builtins.int, None]
FileLike = Any
TensorOrTensors = Union[Tensor, Sequence[Tensor]]
