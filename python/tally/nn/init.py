"""Initial values of parameters: torch.nn.init. All functions change their tensor in place, without
recording for autograd, and return it."""
import math
import warnings

from .. import _creation
from .._grad import no_grad
from .._library import lib


def calculate_gain(nonlinearity, param=None):
    """The factor by which a nonlinearity reduces the standard deviation, inverted."""
    if nonlinearity in ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                        "conv_transpose3d", "sigmoid"):
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ValueError(f"negative_slope {param} not a valid number")
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = 1
    for n in tensor.shape[2:]:
        field *= n
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Uniform in [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Normal."""
    with no_grad():
        return tensor.normal_(mean, std)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal, conditioned on [a, b] (values, not deviations)."""
    with no_grad():
        return lib.tl_trunc_normal_(tensor, mean, std, a, b)


def constant_(tensor, val):
    """All one number."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    """All 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """All 0."""
    return constant_(tensor, 0.0)


def eye_(tensor):
    """1 on the diagonal of a matrix."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        return tensor.copy_(lib.tl_eye(tensor.size(0), tensor.size(1), lib.tl_dtype_of(tensor),
                                       lib.tl_device_of(tensor)))


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Uniform with variance gain^2 2 / (fan_in + fan_out)."""
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal with variance gain^2 2 / (fan_in + fan_out)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))))


def _kaiming_std(tensor, a, mode, nonlinearity):
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Uniform with variance gain^2 / fan."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", UserWarning, 2)
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal with variance gain^2 / fan."""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", UserWarning, 2)
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))


def orthogonal_(tensor, gain=1, generator=None):
    """A random matrix with orthogonal rows or columns; the QR decomposition is NumPy's."""
    import numpy as np
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return tensor
    rows, columns = tensor.size(0), tensor.numel() // tensor.size(0)
    with no_grad():
        flat = lib.tl_normal((rows, columns), 0.0, 1.0, 0, None).numpy()
        q, r = np.linalg.qr(flat.T if rows < columns else flat)
        q = q * np.sign(np.diag(r))
        from .._creation import tensor as make
        values = make(np.ascontiguousarray(q.T if rows < columns else q) * gain).reshape(tensor.shape)
        return tensor.copy_(values.to(tensor.device))


def dirac_(tensor, groups=1):
    """A kernel of convolutions that leaves its input as it is."""
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = tensor.shape[0] // groups
    with no_grad():
        tensor.zero_()
        for g in range(groups):
            for i in range(min(per_group, tensor.shape[1])):
                tensor[(g * per_group + i, i, *[n // 2 for n in tensor.shape[2:]])] = 1
    return tensor


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal numbers, and zeros for a share of each column."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for j in range(columns):
            zero = _creation.randperm(rows, generator=generator)[:math.ceil(sparsity * rows)]
            tensor[zero, j] = 0
    return tensor
