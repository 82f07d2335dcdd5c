"""Layers over space: convolutions, pooling, norms over channels, padding, changes of size."""
import math

from .. import _creation
from . import functional as F
from . import init
from ._spatial import _tuple
from .layers import _empty
from .module import Module


# ---- Convolutions ----

class _Conv(Module):
    """Weights (out, in / groups, kernel...), or for the transposed form (in, out / groups, kernel...)."""
    _is_transposed = False

    def __init__(self, n, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                 device, dtype, output_padding=0):
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"padding_mode must be one of zeros, reflect, replicate or circular, but got "
                             f"padding_mode='{padding_mode}'")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string '{padding}', should be one of 'valid', 'same'")
        if padding == "same" and any(s != 1 for s in _tuple(stride, n)):
            raise ValueError("padding='same' is not supported for strided convolutions")
        self._n, self.in_channels, self.out_channels, self.groups = n, in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = (_tuple(v, n) for v in (kernel_size, stride, dilation))
        self.padding = padding if isinstance(padding, str) else _tuple(padding, n)
        self.padding_mode, self.output_padding = padding_mode, _tuple(output_padding, n)
        first, second = (in_channels, out_channels) if self._is_transposed else (out_channels, in_channels)
        self.weight = _empty((first, second // groups, *self.kernel_size), device, dtype)
        self.register_parameter("bias", _empty((out_channels,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1] * math.prod(self.kernel_size)
            if fan_in:
                init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _around(self):
        """The padding as F.pad wants it."""
        if self.padding == "same":
            total = [d * (k - 1) for k, d in zip(self.kernel_size, self.dilation)]
            pairs = [(t // 2, t - t // 2) for t in total]
        else:
            pairs = [(p, p) for p in ((0,) * self._n if self.padding == "valid" else self.padding)]
        return [v for pair in reversed(pairs) for v in pair]

    def forward(self, input):
        convolve = getattr(F, f"conv{self._n}d")
        if self.padding_mode != "zeros":
            input = F.pad(input, self._around(), mode=self.padding_mode)
            return convolve(input, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        return convolve(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self._n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self._n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * self._n:
            text += f", output_padding={self.output_padding}"
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += ", bias=False" if self.bias is None else ""
        return text + (f", padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "")


def _conv(n):
    class Conv(_Conv):
        def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                     padding_mode="zeros", device=None, dtype=None):
            super().__init__(n, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                             padding_mode, device, dtype)

    class ConvTranspose(_Conv):
        _is_transposed = True

        def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, output_padding=0, groups=1,
                     bias=True, dilation=1, padding_mode="zeros", device=None, dtype=None):
            if padding_mode != "zeros":
                raise ValueError(f'Only "zeros" padding mode is supported for ConvTranspose{n}d')
            super().__init__(n, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                             padding_mode, device, dtype, output_padding)

        def forward(self, input, output_size=None):
            more = self.output_padding
            if output_size is not None:
                sizes = tuple(output_size)[-n:]
                plain = [(s - 1) * t - 2 * p + d * (k - 1) + 1 for s, t, p, d, k in zip(
                    input.shape[-n:], self.stride, self.padding, self.dilation, self.kernel_size)]
                more = tuple(want - got for want, got in zip(sizes, plain))
                if any(not 0 <= m < s for m, s in zip(more, self.stride)):
                    raise ValueError(f"requested an output size of {list(sizes)}, but valid sizes range from {plain}")
            return getattr(F, f"conv_transpose{n}d")(input, self.weight, self.bias, self.stride, self.padding, more,
                                                     self.groups, self.dilation)
    Conv.__name__ = Conv.__qualname__ = f"Conv{n}d"
    ConvTranspose.__name__ = ConvTranspose.__qualname__ = f"ConvTranspose{n}d"
    Conv.__doc__ = f"A convolution over {n} axes."
    ConvTranspose.__doc__ = f"The transpose of a convolution over {n} axes."
    return Conv, ConvTranspose


Conv1d, ConvTranspose1d = _conv(1)
Conv2d, ConvTranspose2d = _conv(2)
Conv3d, ConvTranspose3d = _conv(3)


def _lazy(cls, position):
    """cls whose number of input channels (the first argument) is that of the first input."""
    class Lazy(Module):
        def __init__(self, *args, **kwargs):
            super().__init__()
            self._arguments = (args, kwargs)

        def __call__(self, input, *args, **kwargs):
            given, options = self._arguments
            made = cls(input.shape[position(input, made_n)], *given, **options)
            self.__class__ = cls
            for k, v in made.__dict__.items():
                self.__dict__[k] = v
            return self(input, *args, **kwargs)
    made_n = {"1": 1, "2": 2, "3": 3}.get(cls.__name__[-2:-1], 0)
    Lazy.__name__ = Lazy.__qualname__ = "Lazy" + cls.__name__
    Lazy.__doc__ = cls.__doc__ + " The number of input channels is that of the first input."
    return Lazy


def _channels(input, n):
    return input.ndim - n - 1 if n else -1


LazyConv1d, LazyConv2d, LazyConv3d = (_lazy(k, _channels) for k in (Conv1d, Conv2d, Conv3d))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(k, _channels) for k in (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))


def _lazy_linear():
    from .layers import Linear
    return _lazy(Linear, _channels)


LazyLinear = _lazy_linear()


# ---- Pooling ----

def _pools(n):
    class MaxPool(Module):
        def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
            super().__init__()
            self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
            self.padding, self.dilation = padding, dilation
            self.return_indices, self.ceil_mode = return_indices, ceil_mode

        def forward(self, input):
            return getattr(F, f"max_pool{n}d")(input, self.kernel_size, self.stride, self.padding, self.dilation,
                                               self.ceil_mode, self.return_indices)

        def extra_repr(self):
            return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                    f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")

    class AvgPool(Module):
        def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                     divisor_override=None):
            super().__init__()
            self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
            self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
            self.divisor_override = divisor_override

        def forward(self, input):
            more = () if n == 1 else (self.divisor_override,)
            return getattr(F, f"avg_pool{n}d")(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                                               self.count_include_pad, *more)

        def extra_repr(self):
            return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    class LPPool(Module):
        def __init__(self, norm_type, kernel_size, stride=None, ceil_mode=False):
            super().__init__()
            self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

        def forward(self, input):
            return getattr(F, f"lp_pool{n}d")(input, float(self.norm_type),
                           self.kernel_size, self.stride, self.ceil_mode)

        def extra_repr(self):
            return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, " \
                   f"ceil_mode={self.ceil_mode}"

    class AdaptiveAvgPool(Module):
        def __init__(self, output_size):
            super().__init__()
            self.output_size = output_size

        def forward(self, input):
            return getattr(F, f"adaptive_avg_pool{n}d")(input, self.output_size)

        def extra_repr(self):
            return f"output_size={self.output_size}"

    class AdaptiveMaxPool(Module):
        def __init__(self, output_size, return_indices=False):
            super().__init__()
            self.output_size, self.return_indices = output_size, return_indices

        def forward(self, input):
            return getattr(F, f"adaptive_max_pool{n}d")(input, self.output_size, self.return_indices)

        def extra_repr(self):
            return f"output_size={self.output_size}"

    class MaxUnpool(Module):
        def __init__(self, kernel_size, stride=None, padding=0):
            super().__init__()
            self.kernel_size, self.padding = _tuple(kernel_size, n), _tuple(padding, n)
            self.stride = self.kernel_size if stride is None else _tuple(stride, n)

        def forward(self, input, indices, output_size=None):
            return getattr(F, f"max_unpool{n}d")(input, indices, self.kernel_size,
                           self.stride, self.padding, output_size)
    docs = {MaxPool: "The largest of each window.", AvgPool: "The mean of each window.",
            LPPool: "The p-norm of each window.", AdaptiveAvgPool: "The mean of each of so many parts.",
            AdaptiveMaxPool: "The largest of each of so many parts.", MaxUnpool: "The inverse of MaxPool."}
    for cls, doc in docs.items():
        cls.__name__ = cls.__qualname__ = f"{cls.__name__}{n}d"
        cls.__doc__ = doc
    return docs.keys()


MaxPool1d, AvgPool1d, LPPool1d, AdaptiveAvgPool1d, AdaptiveMaxPool1d, MaxUnpool1d = _pools(1)
MaxPool2d, AvgPool2d, LPPool2d, AdaptiveAvgPool2d, AdaptiveMaxPool2d, MaxUnpool2d = _pools(2)
MaxPool3d, AvgPool3d, LPPool3d, AdaptiveAvgPool3d, AdaptiveMaxPool3d, MaxUnpool3d = _pools(3)


# ---- Norms ----

class _RunningNorm(Module):
    def __init__(self, num_features, eps, momentum, affine, track_running_stats, device, dtype):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name in ("weight", "bias"):
            self.register_parameter(name, _empty((num_features,), device, dtype) if affine else None)
        made = {"device": device, "dtype": dtype}
        for name, x in (("running_mean", _creation.zeros), ("running_var", _creation.ones)):
            self.register_buffer(name, x(num_features, **made) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", _creation.tensor(0, device=device) if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self):
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def _check(self, input):
        n = self._axes
        if input.ndim not in n:
            raise ValueError(f"expected {' or '.join(f'{k}D' for k in n)} input (got {input.ndim}D input)")

    def extra_repr(self):
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"track_running_stats={self.track_running_stats}")


class _BatchNorm(_RunningNorm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None,
                 dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input):
        self._check(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or self.running_mean is None
        keeps = not self.training or self.track_running_stats
        return F.batch_norm(input, self.running_mean if keeps else None, self.running_var if keeps else None,
                            self.weight,
                            self.bias, by_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """The norm of each channel over the batch: (N, C) or (N, C, L)."""
    _axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """The norm of each channel over the batch and space: (N, C, H, W)."""
    _axes = (4,)


class BatchNorm3d(_BatchNorm):
    """The norm of each channel over the batch and space: (N, C, D, H, W)."""
    _axes = (5,)


class SyncBatchNorm(_BatchNorm):
    """The norm over the batch of this process."""
    _axes = (2, 3, 4, 5)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        return module


class _InstanceNorm(_RunningNorm):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=False, track_running_stats=False, device=None,
                 dtype=None):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def forward(self, input):
        self._check(input)
        is_single = input.ndim == min(self._axes)
        x = input.unsqueeze(0) if is_single else input
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats,
                            0.0 if self.momentum is None else self.momentum, self.eps)
        return y.squeeze(0) if is_single else y


class InstanceNorm1d(_InstanceNorm):
    """The norm of each channel of each sample: (N, C, L)."""
    _axes = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """The norm of each channel of each sample: (N, C, H, W)."""
    _axes = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """The norm of each channel of each sample: (N, C, D, H, W)."""
    _axes = (4, 5)


class GroupNorm(Module):
    """The norm of groups of channels of each sample."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        for name in ("weight", "bias"):
            self.register_parameter(name, _empty((num_channels,), device, dtype) if affine else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """x over a power of the mean of the squares of neighbouring channels."""

    def __init__(self, size, alpha=1e-4, beta=0.75, k=1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input):
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self):
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


# ---- Padding, changes of size ----

class _Pad(Module):
    def __init__(self, n, padding):
        super().__init__()
        self.padding = (padding,) * (2 * n) if isinstance(padding, int) else tuple(padding)

    def extra_repr(self):
        return f"{self.padding}"


def _pads(n):
    class ConstantPad(_Pad):
        def __init__(self, padding, value):
            super().__init__(n, padding)
            self.value = value

        def forward(self, input):
            return F.pad(input, self.padding, "constant", self.value)

        def extra_repr(self):
            return f"padding={self.padding}, value={self.value}"

    class ZeroPad(_Pad):
        def __init__(self, padding):
            super().__init__(n, padding)

        def forward(self, input):
            return F.pad(input, self.padding, "constant", 0.0)

    def by(mode):
        class Pad(_Pad):
            def __init__(self, padding):
                super().__init__(n, padding)

            def forward(self, input):
                return F.pad(input, self.padding, mode)
        return Pad
    Reflection, Replication, Circular = by("reflect"), by("replicate"), by("circular")
    found = {"ConstantPad": ConstantPad, "ZeroPad": ZeroPad, "ReflectionPad": Reflection, "ReplicationPad": Replication,
             "CircularPad": Circular}
    for name, cls in found.items():
        cls.__name__ = cls.__qualname__ = f"{name}{n}d"
        cls.__doc__ = f"More elements at both ends of {n} axes."
    return found.values()


ConstantPad1d, ZeroPad1d, ReflectionPad1d, ReplicationPad1d, CircularPad1d = _pads(1)
ConstantPad2d, ZeroPad2d, ReflectionPad2d, ReplicationPad2d, CircularPad2d = _pads(2)
ConstantPad3d, ZeroPad3d, ReflectionPad3d, ReplicationPad3d, CircularPad3d = _pads(3)


class Upsample(Module):
    """Another size, by interpolation."""

    def __init__(self, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None):
        super().__init__()
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input):
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners,
                             self.recompute_scale_factor)

    def extra_repr(self):
        first = f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None else f"size={self.size!r}"
        return f"{first}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Another size, by the nearest element."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Another size, by linear interpolation, the corners kept."""

    def __init__(self, size=None, scale_factor=None):
        super().__init__(size, scale_factor, "bilinear", True)


class Unfold(Module):
    """Every window as a column."""

    def __init__(self, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input):
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(Module):
    """Columns added where their windows are."""

    def __init__(self, output_size, kernel_size, dilation=1, padding=0, stride=1):
        super().__init__()
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input):
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


class PixelShuffle(Module):
    """Channels as pixels."""

    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input):
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self):
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels as channels."""

    def __init__(self, downscale_factor):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input):
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self):
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels of groups, in turns."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, input):
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self):
        return f"groups={self.groups}"
