"""Convolutions, pooling, norms over channels and changes of size, as functions of torch.nn.functional. Each is made of
views, products and reductions of the library: a convolution is a view of all windows, a copy of it as columns, and one
matrix product, so its FLOPs are those of the product."""
import itertools
import math

from .. import _creation
from .. import _functions as f
from .._library import lib
from .._numpy import np
from .._types import bool_, float32, int64


def _tuple(x, n):
    if isinstance(x, int):
        return (x,) * n
    x = tuple(int(v) for v in x)
    return x * n if len(x) == 1 else x


def _batched(x, n, call):
    """call(x) with a batch axis: one is added and taken away again where there is none."""
    if x.ndim == n + 1:
        y = call(lib.tl_unsqueeze(x, 0))
        return tuple(lib.tl_squeeze(z, 0) for z in y) if isinstance(y, tuple) else lib.tl_squeeze(y, 0)
    return call(x)


def _pad(x, before, after, value=0.0):
    from .functional import _PAD_MODES
    if not any(before) and not any(after):
        return x
    k = x.ndim - len(before)
    return lib.tl_pad(x, [0] * k + list(before), [0] * k + list(after), _PAD_MODES["constant"], value)


def _windows(x, kernel, stride, dilation):
    """(..., L1, L2, .., K1, K2, ..): a view of every window of the last axes."""
    n = len(kernel)
    x = lib.tl_contiguous(x)
    shape, step = list(lib.shape_of(x)), list(lib.stride_of(x))
    out = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(shape[-n:], kernel, stride, dilation)]
    if min(out) <= 0 and 0 not in shape[:-n]:
        raise RuntimeError(f"Calculated padded input size per channel: ({' x '.join(map(str, shape[-n:]))}). Kernel "
                           f"size: "
                           f"({' x '.join(map(str, kernel))}). Kernel size can't be greater than actual input size")
    return lib.tl_as_strided(x, shape[:-n] + out + list(kernel),
                             step[:-n] + [a * b for a, b in zip(step[-n:], stride)]
                             + [a * b for a, b in zip(step[-n:], dilation)], lib.tl_offset(x)), out


# ---- Convolutions ----

def _check_conv(name, x, weight, n, groups, channels):
    if x.ndim not in (n + 1, n + 2):
        raise RuntimeError(f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {name}, but got input of "
                           f"size: "
                           f"{list(x.shape)}")
    if weight.ndim != n + 2:
        raise RuntimeError(f"expected a weight of {n + 2} dimensions for {name}, but got one of size "
                           f"{list(weight.shape)}")
    if groups < 1 or x.shape[-n - 1] != channels:
        raise RuntimeError(f"Given groups={groups}, weight of size {list(weight.shape)}, expected input"
                           f"{list(x.shape)} to have {channels} channels, but got {x.shape[-n - 1]} channels instead")


def conv(name, n, x, weight, bias, stride, padding, dilation, groups):
    stride, dilation, kernel = _tuple(stride, n), _tuple(dilation, n), tuple(weight.shape[2:])
    _check_conv(name, x, weight, n, groups, weight.shape[1] * groups)
    if min(stride) < 1:
        raise RuntimeError("non-positive stride is not supported")
    if weight.shape[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but "
                           f"got "
                           f"weight of size {list(weight.shape)} instead")
    if padding == "valid":
        before = after = (0,) * n
    elif padding == "same":
        if any(s != 1 for s in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for k, d in zip(kernel, dilation)]
        before, after = [t // 2 for t in total], [t - t // 2 for t in total]
    elif isinstance(padding, str):
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    else:
        before = after = _tuple(padding, n)
        if min(before) < 0:
            raise RuntimeError("negative padding is not supported")

    def call(x):
        x = _pad(x, before, after)
        b, c, o = x.shape[0], x.shape[1], weight.shape[0]
        view, out = _windows(x, kernel, stride, dilation)  # (B, C, L.., K..)
        order = [0, 1, *range(2 + n, 2 + 2 * n), *range(2, 2 + n)]
        columns = lib.tl_reshape(lib.tl_permute(view, order), (b, groups, c //
                                 groups * math.prod(kernel), math.prod(out)))
        matrix = lib.tl_reshape(weight, (1, groups, o // groups, c // groups * math.prod(kernel)))
        y = lib.tl_reshape(lib.tl_matmul(matrix, columns), (b, o, *out))
        return y if bias is None else lib.tl_add(y, lib.tl_reshape(bias, (o, *[1] * n)))
    return _batched(x, n, call)


def _spread(x, stride):
    """Zeros between the elements of the last axes."""
    n = len(stride)
    for i, s in enumerate(stride):
        axis = x.ndim - n + i
        size = x.shape[axis]
        if s == 1 or not size:
            continue
        x = lib.tl_unsqueeze(x, axis + 1)
        after = [0] * x.ndim
        after[axis + 1] = s - 1
        x = _pad(x, [0] * x.ndim, after)
        shape = list(lib.shape_of(x))
        x = lib.tl_reshape(x, (*shape[:axis], size * s, *shape[axis + 2:]))
        x = lib.tl_slice(x, axis, 0, (size - 1) * s + 1, 1)
    return x


def conv_transpose(name, n, x, weight, bias, stride, padding, output_padding, groups, dilation):
    """The gradient of a convolution by its input: a convolution, with the kernel turned around, of x with stride - 1
    zeros between its elements."""
    stride, padding, more, dilation = (_tuple(v, n) for v in (stride, padding, output_padding, dilation))
    kernel = tuple(weight.shape[2:])
    _check_conv(name, x, weight, n, groups, weight.shape[0])
    if any(m >= max(s, d) for m, s, d in zip(more, stride, dilation)):
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got output_padding "
                           f"{more}, stride {stride}, dilation {dilation}")
    c, o = weight.shape[0], weight.shape[1] * groups
    w = f.flip(weight, tuple(range(2, 2 + n)))
    w = lib.tl_reshape(lib.tl_transpose(lib.tl_reshape(w, (groups, c // groups, o // groups, *kernel)), 1, 2),
                       (o, c // groups, *kernel))
    edge = [d * (k - 1) - p for k, d, p in zip(kernel, dilation, padding)]

    def call(x):
        x = _pad(_spread(x, stride), edge, [e + m for e, m in zip(edge, more)])
        return conv(name, n, x, w, bias, (1,) * n, (0,) * n, dilation, groups)
    return _batched(x, n, call)


def _convs(n):
    def convolve(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
        return conv(f"conv{n}d", n, input, weight, bias, stride, padding, dilation, groups)

    def transposed(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        return conv_transpose(f"conv_transpose{n}d", n, input, weight, bias, stride, padding, output_padding, groups,
                              dilation)
    convolve.__name__, transposed.__name__ = f"conv{n}d", f"conv_transpose{n}d"
    convolve.__doc__ = f"A convolution over {n} axes: sums of products of a kernel with every window."
    transposed.__doc__ = f"The transpose of a convolution over {n} axes."
    return convolve, transposed


conv1d, conv_transpose1d = _convs(1)
conv2d, conv_transpose2d = _convs(2)
conv3d, conv_transpose3d = _convs(3)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """(B, C, H, W) -> (B, C K, L): every window as a column."""
    kernel, dilation, padding, stride = (_tuple(v, 2) for v in (kernel_size, dilation, padding, stride))

    def call(x):
        view, out = _windows(_pad(x, padding, padding), kernel, stride, dilation)
        return lib.tl_reshape(lib.tl_permute(view, (0, 1, 4, 5, 2, 3)),
                              (x.shape[0], x.shape[1] * math.prod(kernel), math.prod(out)))
    return _batched(input, 2, call)


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """(B, C K, L) -> (B, C, H, W): columns added where their windows are."""
    size, kernel, dilation, padding, stride = (_tuple(v, 2)
                                               for v in (output_size, kernel_size, dilation, padding, stride))
    whole = [s + 2 * p for s, p in zip(size, padding)]
    out = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(whole, kernel, stride, dilation)]
    if input.shape[-1] != math.prod(out):
        raise RuntimeError(f"Given output_size={tuple(size)}, kernel_size={kernel}, dilation={dilation}, padding="
                           f"{padding}, stride={stride}, expected size of input's dimension 2 to match the calculated "
                           f"number of sliding blocks {out[0]} * {out[1]} = {math.prod(out)}, but got "
                           f"input.size(2)={input.shape[-1]}.")
    axes = [np.arange(k)[:, None] * d + np.arange(o)[None, :] * s for k, d, o, s in zip(kernel, dilation, out, stride)]
    places = axes[0][:, None, :, None] * whole[1] + axes[1][None, :, None, :]
    index = _creation.tensor(places.reshape(-1), dtype=int64, device=input.device)

    def call(x):
        b, c = x.shape[0], x.shape[1] // math.prod(kernel)
        flat = lib.tl_zeros((b * c, math.prod(whole)), lib.tl_dtype_of(x), lib.tl_device_of(x))
        y = f.index_add(flat, 1, index, lib.tl_reshape(x, (b * c, -1)))
        y = lib.tl_reshape(y, (b, c, *whole))
        return y[:, :, padding[0]:whole[0] - padding[0], padding[1]:whole[1] - padding[1]]
    if input.ndim == 2:
        return lib.tl_squeeze(call(lib.tl_unsqueeze(input, 0)), 0)
    return call(input)


# ---- Pooling ----

def _pool_size(size, kernel, stride, padding, dilation, ceil_mode):
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    n = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (n - 1) * stride >= size + padding:  # the last window must begin inside
        n -= 1
    return n


def _pool_windows(x, n, kernel, stride, padding, dilation, ceil_mode, value):
    """(B, C, L.., K) of the padded input, the sizes, and the padded sizes."""
    kernel, padding, dilation = (_tuple(v, n) for v in (kernel, padding, dilation))
    stride = kernel if stride is None or stride == [] else _tuple(stride, n)
    if min(stride) < 1:
        raise RuntimeError("stride should not be zero")
    if any(2 * p > k for p, k in zip(padding, kernel)):
        raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={padding}, "
                           f"kernel_size={kernel}")
    sizes = x.shape[-n:]
    out = [_pool_size(*v, ceil_mode) for v in zip(sizes, kernel, stride, padding, dilation)]
    if min(out) < 1:
        raise RuntimeError(f"Given input size: {tuple(x.shape[1:])}. Calculated output size: {tuple(out)}. Output "
                           f"size is "
                           "too small")
    need = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(out, stride, dilation, kernel)]
    after = [m - s - p for m, s, p in zip(need, sizes, padding)]
    padded = _pad(x, padding, after, value)
    view, _ = _windows(padded, kernel, stride, dilation)
    view = view[(..., *[slice(0, o) for o in out], *[slice(None)] * n)]
    return lib.tl_reshape(view, (*x.shape[:-n], *out, math.prod(kernel))), out, (kernel, stride, padding, dilation)


def _lowest(kind):
    from .._types import iinfo
    return -math.inf if kind.is_floating_point else iinfo(kind).min


def _max_pool(n, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
    def call(x):
        sizes = x.shape[-n:]
        windows, out, (kernel, step, pad, dil) = _pool_windows(x, n, kernel_size, stride, padding, dilation, ceil_mode,
                                                               _lowest(x.dtype))
        at = lib.tl_argmax(windows, (-1,), True)
        values = lib.tl_squeeze(lib.tl_gather(windows, -1, at), -1)
        if not return_indices:
            return values
        flat = np.zeros([*out, *kernel], dtype="int64")
        for i in range(n):
            place = (np.arange(out[i])[:, None] * step[i] - pad[i] + np.arange(kernel[i])[None, :] * dil[i])
            shape = [1] * (2 * n)
            shape[i], shape[n + i] = out[i], kernel[i]
            flat = flat * sizes[i] + place.reshape(shape)
        places = _creation.tensor(flat.reshape(*out, -1), device=x.device)
        index = lib.tl_gather(lib.tl_expand(places, (*x.shape[:2], *places.shape)), -1, at)
        return values, lib.tl_squeeze(index, -1)
    return _batched(input, n, call)


def _max_pools(n):
    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return _max_pool(n, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return _max_pool(n, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    pool.__name__, with_indices.__name__ = f"max_pool{n}d", f"max_pool{n}d_with_indices"
    pool.__doc__ = "The largest of each window; with return_indices, where it was too."
    return pool, with_indices


max_pool1d, max_pool1d_with_indices = _max_pools(1)
max_pool2d, max_pool2d_with_indices = _max_pools(2)
max_pool3d, max_pool3d_with_indices = _max_pools(3)


def _avg_pool(n, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    f._refuse_complex(f"avg_pool{n}d", input)
    def call(x):
        sizes = x.shape[-n:]
        windows, out, (kernel, step, pad, _) = _pool_windows(x, n, kernel_size, stride, padding, 1, ceil_mode, 0.0)
        total = lib.tl_sum(windows, (-1,), False)
        if divisor_override is not None:
            if not divisor_override:
                raise RuntimeError("divisor must be not zero")
            return lib.tl_div_scalar(total, divisor_override)
        counts = np.ones([1] * n)
        for i in range(n):
            start = np.arange(out[i]) * step[i] - pad[i]
            end = np.minimum(start + kernel[i], sizes[i] + pad[i])
            if not count_include_pad:
                start, end = np.maximum(start, 0), np.minimum(end, sizes[i])
            shape = [1] * n
            shape[i] = out[i]
            counts = counts * (end - start).reshape(shape)
        return lib.tl_div(total, _creation.tensor(counts, dtype=x.dtype, device=x.device))
    return _batched(input, n, call)


def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The mean of each window."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
               divisor_override=None):
    """The mean of each window."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
               divisor_override=None):
    """The mean of each window."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _ends(size, out):
    """The parts of an axis that adaptive pooling makes: floor(i size / out) to ceil((i + 1) size / out)."""
    return [(i * size // out, -(-((i + 1) * size) // out)) for i in range(out)]


def _adaptive_size(output_size, x, n):
    sizes = (output_size,) * n if isinstance(output_size, int) or output_size is None else tuple(output_size)
    return [s if o is None else o for o, s in zip(sizes, x.shape[-n:])]


def _adaptive_avg(n, input, output_size):
    def call(x):
        for i, out in enumerate(_adaptive_size(output_size, x, n)):
            axis = x.ndim - n + i
            size = x.shape[axis]
            if out == size:
                continue
            if out and size % out == 0:
                shape = list(lib.shape_of(x))
                shape[axis:axis + 1] = [out, size // out]
                x = lib.tl_mean(lib.tl_reshape(x, shape), (axis + 1,), False)
                continue
            weights = np.zeros((size, out))
            for j, (a, b) in enumerate(_ends(size, out)):
                weights[a:b, j] = 1 / (b - a)
            matrix = _creation.tensor(weights, dtype=x.dtype, device=x.device)
            x = f.movedim(lib.tl_matmul(f.movedim(x, axis, -1), matrix), -1, axis)
        return x
    return _batched(input, n, call)


def _adaptive_max(n, input, output_size, return_indices):
    def call(x):
        sizes, outs, x_in = x.shape[-n:], _adaptive_size(output_size, x, n), x
        lengths, tables = [], []
        for size, out in zip(sizes, outs):
            ends = _ends(size, out)
            longest = max((b - a for a, b in ends), default=1)
            tables.append(np.array([[min(a + k, b - 1) for k in range(longest)]
                          for a, b in ends]).reshape(out, longest))
            lengths.append(longest)
        flat = np.zeros([1] * (2 * n), dtype="int64")
        for i, (size, table) in enumerate(zip(sizes, tables)):
            shape = [1] * (2 * n)
            shape[i], shape[n + i] = table.shape
            flat = flat * size + table.reshape(shape)
        places = _creation.tensor(np.broadcast_to(
            flat, [*outs, *lengths]).reshape(-1).copy(), dtype=int64, device=x.device)
        line = lib.tl_reshape(x, (*x.shape[:-n], math.prod(sizes)))
        windows = lib.tl_reshape(f.index_select(line, -1, places), (*x.shape[:-n], *outs, math.prod(lengths)))
        at = lib.tl_argmax(windows, (-1,), True)
        values = lib.tl_squeeze(lib.tl_gather(windows, -1, at), -1)
        if not return_indices:
            return values
        table = lib.tl_reshape(places, (*outs, math.prod(lengths)))
        index = lib.tl_gather(lib.tl_expand(table, (*x_in.shape[:-n], *table.shape)), -1, at)
        return values, lib.tl_squeeze(index, -1)
    return _batched(input, n, call)


def _adaptives(n):
    def mean(input, output_size):
        f._refuse_complex(f"adaptive_avg_pool{n}d", input)
        return _adaptive_avg(n, input, output_size)

    def largest(input, output_size, return_indices=False):
        return _adaptive_max(n, input, output_size, return_indices)
    mean.__name__, largest.__name__ = f"adaptive_avg_pool{n}d", f"adaptive_max_pool{n}d"
    mean.__doc__ = "The mean of each of so many parts."
    largest.__doc__ = "The largest of each of so many parts; with return_indices, where it was too."
    return mean, largest


adaptive_avg_pool1d, adaptive_max_pool1d = _adaptives(1)
adaptive_avg_pool2d, adaptive_max_pool2d = _adaptives(2)
adaptive_avg_pool3d, adaptive_max_pool3d = _adaptives(3)


def _lp_pool(n, input, norm_type, kernel_size, stride, ceil_mode):
    kernel = _tuple(kernel_size, n)
    pool = (avg_pool1d, avg_pool2d, avg_pool3d)[n - 1]
    y = pool(f.pow(input, norm_type), kernel, stride, 0, ceil_mode)
    return f.pow(lib.tl_mul_scalar(lib.tl_mul(f.sign(y), f.relu(f.abs(y))), math.prod(kernel)), 1.0 / norm_type)


def lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False):
    """The p-norm of each window."""
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)


def _max_unpool(n, input, indices, kernel_size, stride, padding, output_size):
    f._refuse_complex(f"max_unpool{n}d", input)
    kernel = _tuple(kernel_size, n)
    step, pad = kernel if stride is None else _tuple(stride, n), _tuple(padding, n)
    sizes = input.shape[-n:]
    plain = [(s - 1) * t + k - 2 * p for s, t, k, p in zip(sizes, step, kernel, pad)]
    size = plain if output_size is None else list(output_size)[-n:]

    lead = tuple(input.shape[:-n])
    flat = lib.tl_zeros((*lead, math.prod(size)), lib.tl_dtype_of(input), lib.tl_device_of(input))
    index, x = lib.tl_reshape(indices, (*lead, -1)), lib.tl_reshape(input, (*lead, -1))
    y = lib.tl_scatter(flat, -1, index, lib.tl_detach(x))
    if lib.tl_needs_grad(x):  # of several for one place the last is there, and each has the gradient of the place
        y = lib.tl_add(y, lib.tl_scatter_add(flat, -1, index, lib.tl_sub(x, lib.tl_detach(x))))
    return lib.tl_reshape(y, (*lead, *size))


def max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """The inverse of max_pool1d: zeros where no largest element was."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """The inverse of max_pool2d: zeros where no largest element was."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None):
    """The inverse of max_pool3d: zeros where no largest element was."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)


# ---- Norms over channels ----

def _per_channel(w, x):
    return lib.tl_reshape(w, (1, -1, *[1] * (x.ndim - 2)))


def _affine(y, weight, bias, x):
    y = y if weight is None else lib.tl_mul(y, _per_channel(weight, x))
    return y if bias is None else lib.tl_add(y, _per_channel(bias, x))


def _check_batch(x):
    if x.numel() and x.numel() // x.shape[1] == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")


def batch_norm(input, running_mean=None, running_var=None, weight=None,
               bias=None, training=False, momentum=0.1, eps=1e-5):
    """(x - mean) / sqrt(var + eps) weight + bias per channel, over batch and space; in evaluation with the running mean
    and variance."""
    f._refuse_complex("batch_norm", input)
    x = input.to(float32) if input.dtype.bits == 16 else input
    if not x.numel() and x.ndim < 2:
        return lib.tl_clone(input)
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
    if training:
        _check_batch(x)
        axes = (0, *range(2, x.ndim))
        mean, var = lib.tl_mean(x, axes, True), lib.tl_var(x, axes, 0, True)
        _follow(running_mean, mean, momentum)
        n = x.numel() // max(x.shape[1], 1)
        _follow(running_var, lib.tl_mul_scalar(lib.tl_detach(var), n / max(n - 1, 1)), momentum)
    else:
        mean, var = _per_channel(running_mean.to(x.dtype), x), _per_channel(running_var.to(x.dtype), x)
    y = lib.tl_mul(lib.tl_sub(x, mean), lib.tl_rsqrt(lib.tl_add_scalar(var, float(eps))))
    y = _affine(y, weight, bias, x)
    return y.to(input.dtype)


def _follow(running, now, momentum):
    if running is not None:
        from .._grad import no_grad
        with no_grad():
            running.lerp_(lib.tl_reshape(lib.tl_detach(now), (-1,)).to(running.dtype), momentum)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """The norm of each of num_groups groups of channels of each sample."""
    if input.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    b, c = input.shape[:2]
    if c % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of "
                           f"shape "
                           f"{list(input.shape)} and num_groups={num_groups}")
    flat = lib.tl_reshape(input, (b, num_groups, math.prod(input.shape[1:]) // num_groups))
    y = lib.tl_reshape(lib.tl_layer_norm(flat, None, None, float(eps)), lib.shape_of(input))
    return _affine(y, weight, bias, input)


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True,
                  momentum=0.1,
                  eps=1e-5):
    """The norm of each channel of each sample."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    n = math.prod(input.shape[2:])
    if n == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    axes = tuple(range(2, input.ndim))
    if running_mean is not None:
        _follow(running_mean, lib.tl_mean(lib.tl_mean(input, axes, False), (0,), False), momentum)
    if running_var is not None:
        _follow(running_var, lib.tl_mean(lib.tl_var(input, axes, 1, False), (0,), False), momentum)
    return group_norm(input, input.shape[1], weight, bias, eps)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha mean of the squares of neighbouring channels)^beta"""
    f._refuse_complex("local_response_norm", input)
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    square = f.movedim(lib.tl_square(input), 1, -1)
    square = _pad(square, (size // 2,), ((size - 1) // 2,))
    mean = lib.tl_mean(_windows(square, (size,), (1,), (1,))[0], (-1,), False)
    scale = f.pow(lib.tl_add_scalar(lib.tl_mul_scalar(f.movedim(mean, -1, 1), alpha), k), beta)
    return lib.tl_div(input, scale)


# ---- Changes of size ----

def _source(out, size, scale, align_corners, is_cubic=False):
    """The place in the input of each element of the output."""
    at = np.arange(out, dtype="float64")
    if align_corners:
        return at * ((size - 1) / (out - 1) if out > 1 else 0.0)
    place = (at + 0.5) * scale - 0.5
    return place if is_cubic else np.maximum(place, 0.0)


def _resize_linear(x, axis, out, scale, align_corners):
    size = x.shape[axis]
    place = _source(out, size, scale, align_corners)
    low = np.minimum(place.astype("int64"), size - 1)
    high = np.minimum(low + 1, size - 1)
    shape = [1] * x.ndim
    shape[axis] = out
    share = _creation.tensor((place - low).reshape(shape), dtype=x.dtype, device=x.device)
    pick = [f.index_select(x, axis, _creation.tensor(i, dtype=int64, device=x.device)) for i in (low, high)]
    return lib.tl_add(lib.tl_mul(pick[0], lib.tl_rsub_scalar(share, 1)), lib.tl_mul(pick[1], share))


def _resize_cubic(x, axis, out, scale, align_corners):
    size, a = x.shape[axis], -0.75
    place = _source(out, size, scale, align_corners, True)
    low = np.floor(place)
    t = place - low
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (t + 1, 2 - t)]
    shape = [1] * x.ndim
    shape[axis] = out
    total = None
    for k, w in zip((-1, 0, 1, 2), (far[0], near[0], near[1], far[1])):
        index = _creation.tensor(np.clip(low + k, 0, size - 1).astype("int64"), device=x.device)
        part = lib.tl_mul(f.index_select(x, axis, index), _creation.tensor(w.reshape(shape), dtype=x.dtype,
                                                                           device=x.device))
        total = part if total is None else lib.tl_add(total, part)
    return total


def _resize_nearest(x, axis, out, scale, is_exact):
    size = x.shape[axis]
    at = np.arange(out, dtype="float32")
    place = np.floor((at + np.float32(0.5)) * np.float32(scale)) if is_exact else np.floor(at * np.float32(scale))
    index = np.minimum(place.astype("int64"), size - 1)
    return f.index_select(x, axis, _creation.tensor(index, device=x.device))


_MODES = {
    "nearest": None,
    "nearest-exact": None,
    "area": None,
    "linear": 1,
    "bilinear": 2,
    "trilinear": 3,
     "bicubic": 2}


def interpolate(input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
                antialias=False):
    """Another size of the axes after the second: by the nearest element, linear, bicubic or by area."""
    f._refuse_complex("interpolate", input)
    n = input.ndim - 2
    if mode not in _MODES or _MODES[mode] not in (None, n):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for "
                                  f"the "
                                  f"modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact "
                                  f"(got "
                                  f"{mode})")
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not there")
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | "
                         "bicubic "
                         "| trilinear")
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined" if size is not None
                         else "either size or scale_factor should be defined")
    sizes = list(input.shape[2:])
    factors = None
    if scale_factor is not None:
        factors = [float(scale_factor)] * n if isinstance(scale_factor, (int, float)) else [float(v)
                         for v in scale_factor]
        out = [int(math.floor(s * k)) for s, k in zip(sizes, factors)]
        if recompute_scale_factor:
            factors = None
    else:
        out = [size] * n if isinstance(size, int) else [int(s) for s in size]
        if len(out) != n:
            raise ValueError(f"Input and output must have the same number of spatial dimensions, but got input with "
                             f"spatial dimensions of {sizes} and output size of {out}.")
    if mode == "area":
        return _adaptive_avg(n, input, tuple(out))
    scales = [1.0 / factors[i] if factors is not None and factors[i] else sizes[i] / out[i] for i in range(n)]
    wide = input.dtype.is_floating_point and input.dtype.bits == 16 and not mode.startswith("nearest")
    x = input.to(float32) if wide else input
    for i in range(n):
        if mode.startswith("nearest"):
            x = _resize_nearest(x, 2 + i, out[i], scales[i], mode == "nearest-exact")
        elif mode == "bicubic":
            x = _resize_cubic(x, 2 + i, out[i], scales[i], bool(align_corners))
        else:
            x = _resize_linear(x, 2 + i, out[i], scales[i], bool(align_corners))
    return x.to(input.dtype)


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """The older name of interpolate."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    return interpolate(input, size, scale_factor, "bilinear", True)


def pixel_shuffle(input, upscale_factor):
    """(.., C r r, H, W) -> (.., C, H r, W r)"""
    r = upscale_factor
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
    k = len(lead)
    x = lib.tl_reshape(input, (*lead, c // (r * r), r, r, h, w))
    x = lib.tl_permute(x, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return lib.tl_reshape(x, (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input, downscale_factor):
    """The inverse of pixel_shuffle."""
    r = downscale_factor
    *lead, c, h, w = input.shape
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
                           f"input.size(-2)={h}, input.size(-1)={w}, downscale_factor={r}")
    k = len(lead)
    x = lib.tl_reshape(input, (*lead, c, h // r, r, w // r, r))
    x = lib.tl_permute(x, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return lib.tl_reshape(x, (*lead, c * r * r, h // r, w // r))


def channel_shuffle(input, groups):
    """The channels of groups, in turns."""
    b, c = input.shape[:2]
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    x = lib.tl_transpose(lib.tl_reshape(input, (b, groups, c // groups, *input.shape[2:])), 1, 2)
    return lib.tl_reshape(x, lib.shape_of(input))


# ---- Sampling at places ----

def _unnormalize(x, size, align_corners):
    return (lib.tl_mul_scalar(lib.tl_add_scalar(x, 1), (size - 1) / 2) if align_corners
            else lib.tl_mul_scalar(lib.tl_sub_scalar(lib.tl_mul_scalar(lib.tl_add_scalar(x, 1), size), 1), 0.5))


def _reflect(x, size, align_corners):
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    if span <= 0:
        return lib.tl_mul_scalar(x, 0)
    d = f.abs(lib.tl_sub_scalar(x, low))
    extra = f.remainder(d, span)
    even = f.eq(f.remainder(f.floor(lib.tl_div_scalar(d, span)), 2), 0)
    return lib.tl_add_scalar(f.where(even, extra, lib.tl_rsub_scalar(extra, span)), low)


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Values of input at the places of grid, from -1 to 1 along each axis, the last axis first."""
    if mode not in ("bilinear", "nearest"):
        raise NotImplementedError(f"grid_sample: mode {mode!r} is not there; bilinear and nearest are")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError("nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', "
                         f"but got: '{padding_mode}'")
    n, align = input.ndim - 2, bool(align_corners)
    b, c, sizes, outs = input.shape[0], input.shape[1], input.shape[2:], grid.shape[1:-1]
    places = []
    for i in range(n):  # grid's last axis names x first
        size = sizes[n - 1 - i]
        p = _unnormalize(lib.tl_select(grid, -1, i), size, align)
        if padding_mode == "reflection":
            p = _reflect(p, size, align)
        if padding_mode != "zeros":
            p = f.clamp(p, 0, size - 1)
        places.insert(0, p)
    flat, total = lib.tl_reshape(input, (b, c, math.prod(sizes))), None
    lows = [f.round(p) if mode == "nearest" else f.floor(p) for p in places]
    corners = itertools.product((0, 1), repeat=n) if mode == "bilinear" else [(0,) * n]
    for corner in corners:
        index, weight, inside = None, None, None
        for p, low, d, size in zip(places, lows, corner, sizes):
            at = lib.tl_add_scalar(lib.tl_detach(low), d)
            ok = f.logical_and(f.ge(at, 0), f.lt(at, size))
            if mode == "bilinear":
                share = lib.tl_sub(p, lib.tl_detach(low))
                share = share if d else lib.tl_rsub_scalar(share, 1)
                weight = share if weight is None else lib.tl_mul(weight, share)
            whole = f.clamp(f.where(ok, at, 0.0), 0, size - 1).to(int64)
            index = whole if index is None else lib.tl_add(lib.tl_mul_scalar(index, size), whole)
            inside = ok if inside is None else f.logical_and(inside, ok)
        index = lib.tl_expand(lib.tl_reshape(index, (b, 1, -1)), (b, c, math.prod(outs)))
        part = lib.tl_reshape(lib.tl_gather(flat, -1, index), (b, c, *outs))
        part = f.where(lib.tl_unsqueeze(inside, 1), part, 0.0)
        part = part if weight is None else lib.tl_mul(part, lib.tl_unsqueeze(weight, 1))
        total = part if total is None else lib.tl_add(total, part)
    return total


def affine_grid(theta, size, align_corners=None):
    """The places of grid_sample that an affine map of each sample names."""
    n = len(size) - 2
    axes = []
    for i in range(n):
        m = size[2 + i]
        line = np.linspace(-1, 1, m) if align_corners or m == 1 else np.linspace(-1, 1, m) * (m - 1) / m
        axes.append(line if m > 1 else np.zeros(1))
    mesh = np.meshgrid(*axes, indexing="ij")
    base = np.stack([*reversed(mesh), np.ones_like(mesh[0])], -1).reshape(-1, n + 1)
    points = _creation.tensor(base, dtype=theta.dtype, device=theta.device)
    y = lib.tl_matmul(lib.tl_unsqueeze(points, 0), lib.tl_transpose(theta, 1, 2))
    return lib.tl_reshape(y, (size[0], *size[2:], n))


NAMES = [n for n, v in list(globals().items()) if callable(v) and getattr(v, "__module__", None) == __name__
         and not n.startswith("_") and n not in ("conv", "conv_transpose")]
