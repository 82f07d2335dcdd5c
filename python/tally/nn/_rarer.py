"""Rarer activations, dropouts, losses and embeddings of torch.nn.functional, composed from the library's ops."""
import math
import warnings

from .. import _composed as c
from .. import _creation
from .. import _functions as f
from .._library import lib
from .._types import bool_, float32, int64
from .functional import _REDUCTIONS, _reduced, _reduction, _result

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


# ---- Activations ----

def _elu_like(x, scale, alpha, inner=1.0):
    below = lib.tl_mul_scalar(f.expm1(lib.tl_mul_scalar(lib.tl_clamp(x, None, 0), inner)), alpha)
    return lib.tl_mul_scalar(f.where(f.gt(x, 0), x, below), scale)


def selu(input, inplace=False):
    """scale (x, and alpha (e^x - 1) below 0)"""
    return _result(input, _elu_like(input, _SELU_SCALE, _SELU_ALPHA), inplace)


def celu(input, alpha=1.0, inplace=False):
    """x, and alpha (e^(x / alpha) - 1) below 0"""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _result(input, _elu_like(input, 1.0, alpha, 1.0 / alpha), inplace)


def prelu(input, weight):
    """x, and weight x below 0; a weight per channel, or one"""
    if weight.numel() != 1:
        if input.ndim < 1 or weight.ndim != 1 or weight.shape[0] != (input.shape[1] if input.ndim > 1 else 1):
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                               f"{weight.numel()} and channel size = {input.shape[1] if input.ndim > 1 else 1}.")
        weight = lib.tl_reshape(weight, (-1, *[1] * (input.ndim - 2)))
    else:
        weight = lib.tl_reshape(weight, ())
    return f.where(f.gt(input, 0), input, lib.tl_mul(input, weight))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """x, and below 0 times a random slope (in evaluation their mean)"""
    if training:
        slope = lib.tl_uniform(lib.shape_of(input), lower, upper, lib.tl_dtype_of(input), lib.tl_device_of(input))
        y = f.where(f.ge(input, 0), input, lib.tl_mul(input, slope))
    else:
        y = lib.tl_leaky_relu(input, (lower + upper) / 2)
    return _result(input, y, inplace)


def hardshrink(input, lambd=0.5):
    """x, and 0 between -lambd and lambd"""
    return f.where(f.logical_and(f.ge(input, -lambd), f.le(input, lambd)), 0.0, input)


def softshrink(input, lambd=0.5):
    """x moved towards 0 by lambd"""
    if lambd < 0:
        raise RuntimeError(f"lambda must be greater or equal to 0, but found to be {lambd:g}.")
    middle = f.logical_and(f.ge(input, -lambd), f.le(input, lambd))
    return f.where(middle, 0.0, f.where(f.gt(input, 0), lib.tl_sub_scalar(
        input, lambd), lib.tl_add_scalar(input, lambd)))


def tanhshrink(input):
    """x - tanh x"""
    return lib.tl_sub(input, f.tanh(input))


def hardsigmoid(input, inplace=False):
    """min(max(x / 6 + 1/2, 0), 1)"""
    y = lib.tl_div_scalar(lib.tl_clamp(lib.tl_add_scalar(input, 3.0), 0.0, 6.0), 6.0)
    return _result(input, y, inplace)


def hardswish(input, inplace=False):
    """x hardsigmoid(x)"""
    def compute(x):
        inside = lib.tl_div_scalar(lib.tl_mul(x, lib.tl_add_scalar(x, 3.0)), 6.0)
        return f.where(f.le(x, -3.0), 0.0, f.where(f.lt(x, 3.0), inside, x))
    return _result(input, f._in_f32(compute, input), inplace)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """softmax of logits plus Gumbel noise; hard: one hot, with the gradient of the softmax."""
    noise = lib.tl_neg(f.log(_creation.exponential_(_creation.empty_like(logits))))
    y = f.softmax(lib.tl_div_scalar(lib.tl_add(logits, noise), tau), dim)
    if not hard:
        return y
    index = lib.tl_argmax(y, (dim,), True)
    one = lib.tl_scatter_scalar(lib.tl_mul_scalar(lib.tl_detach(y), 0), dim, index, 1.0)
    return lib.tl_add(lib.tl_sub(one, lib.tl_detach(y)), y)


# ---- Dropouts ----

def _channel_dropout(input, p, training, inplace, shape):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return _result(input, lib.tl_mul_scalar(input, 0), inplace)
    ones = lib.tl_ones(shape, lib.tl_dtype_of(input), lib.tl_device_of(input))
    return _result(input, lib.tl_mul(input, lib.tl_dropout(ones, p)), inplace)


def _whole_channels(input, n):
    lead = 1 if input.ndim == n + 1 else 2
    return (*input.shape[:lead], *[1] * (input.ndim - lead))


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Whole channels 0 with probability p."""
    return _channel_dropout(input, p, training, inplace, _whole_channels(input, 1))


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Whole channels 0 with probability p."""
    return _channel_dropout(input, p, training, inplace, (*input.shape[:2], *[1] * (input.ndim - 2)))


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Whole channels 0 with probability p."""
    return _channel_dropout(input, p, training, inplace, (*input.shape[:2], *[1] * (input.ndim - 2)))


def _alpha(input, p, training, inplace, shape):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    alpha = -_SELU_SCALE * _SELU_ALPHA
    keep = f.ge(lib.tl_uniform(shape, 0.0, 1.0, float32.code, lib.tl_device_of(input)), p)
    a = ((1 - p) * (1 + p * alpha ** 2)) ** -0.5 if p < 1 else 0.0
    y = lib.tl_add_scalar(lib.tl_mul_scalar(f.where(keep, input, alpha), a), -a * alpha * p)
    return _result(input, y.to(input.dtype), inplace)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """dropout that keeps the mean and variance of what selu gives."""
    return _alpha(input, p, training, inplace, lib.shape_of(input))


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels."""
    f._refuse_complex("feature_alpha_dropout", input)
    return _alpha(input, p, training, inplace, (*input.shape[:2], *[1] * (input.ndim - 2)))


# ---- Products, distances ----

def bilinear(input1, input2, weight, bias=None):
    """x1 W_o x2 + bias, for each output o"""
    if input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {list(input1.shape)} and "
                           f"{list(input2.shape)}")
    lead = tuple(input1.shape[:-1])
    a, b = lib.tl_reshape(input1, (-1, input1.shape[-1])), lib.tl_reshape(input2, (-1, input2.shape[-1]))
    o, m, n = weight.shape
    left = lib.tl_matmul(a, lib.tl_reshape(lib.tl_permute(weight, (1, 0, 2)), (m, o * n)))
    left = lib.tl_reshape(left, (-1, o, n))
    y = lib.tl_sum(lib.tl_mul(left, lib.tl_unsqueeze(b, 1)), (-1,), False)
    y = y if bias is None else lib.tl_add(y, bias)
    return lib.tl_reshape(y, (*lead, o))


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last axis."""
    return lib.tl_norm(lib.tl_add_scalar(f.sub(x1, x2), eps), float(p), (-1,), keepdim)


def pdist(input, p=2.0):
    from .._ordered import pdist as distances
    return distances(input, p)


# ---- Losses ----

def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + e^(-target input))"""
    loss = f.log1p(f.exp(lib.tl_neg(lib.tl_mul(target, input))))
    return _reduced(loss, _reduction(reduction, size_average, reduce))


def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target (input1 - input2) + margin)"""
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(f"margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
                           f"{list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)} ")
    loss = lib.tl_clamp(lib.tl_add_scalar(lib.tl_neg(lib.tl_mul(target, lib.tl_sub(input1, input2))), margin), 0, None)
    return _reduced(loss, _reduction(reduction, size_average, reduce))


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1"""
    far = f.where(f.ne(target, 1), lib.tl_clamp(lib.tl_rsub_scalar(input, margin), 0, None), 0.0)
    near = f.where(f.ne(target, -1), input, 0.0)
    return _reduced(lib.tl_add(far, near), _reduction(reduction, size_average, reduce))


def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1"""
    axis = target.ndim
    eps = 1e-12
    product = f.sum(f.mul(input1, input2), axis)
    squares = [lib.tl_add_scalar(f.sum(f.square(x), axis), eps) for x in (input1, input2)]
    cosine = lib.tl_div(product, f.sqrt(lib.tl_mul(*squares)))
    near, far = lib.tl_rsub_scalar(cosine, 1), lib.tl_clamp(lib.tl_sub_scalar(cosine, margin), 0, None)
    loss = lib.tl_add(f.where(f.eq(target, 1), near, 0.0), f.where(f.eq(target, -1), far, 0.0))
    return _reduced(loss, _reduction(reduction, size_average, reduce))


def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None,
                     reduction="mean"):
    """e^x - target x, or x - target log(x + eps)"""
    loss = (lib.tl_sub(f.exp(input), lib.tl_mul(target, input)) if log_input
            else lib.tl_sub(input, lib.tl_mul(target, f.log(lib.tl_add_scalar(input, eps)))))
    if full:
        t = f.where(f.le(target, 1), 1.0, target)
        stirling = f.add(f.sub(f.mul(t, f.log(t)), t), f.mul(f.log(f.mul(t, 2 * math.pi)), 0.5))
        loss = lib.tl_add(loss, f.where(f.le(target, 1), 0.0, stirling))
    return _reduced(loss, _reduction(reduction, size_average, reduce))


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log var + (input - target)^2 / var) / 2"""
    if not f.is_tensor(var):
        var = _creation.full_like(input, var)
    elif lib.shape_of(var) != lib.shape_of(input):
        if tuple(input.shape[:-1]) == tuple(var.shape):
            var = lib.tl_unsqueeze(var, -1)
        elif not (tuple(input.shape[:-1]) == tuple(var.shape[:-1]) and var.shape[-1] == 1):
            raise ValueError("var is of incorrect size")
    if bool(f.any(f.lt(var, 0))):
        raise ValueError("var has negative entry/entries")
    clamped = lib.tl_add(var, lib.tl_detach(lib.tl_sub(lib.tl_clamp(var, eps, None), var)))  # the gradient passes
    loss = lib.tl_mul_scalar(
    lib.tl_add(
        f.log(clamped),
        lib.tl_div(
            lib.tl_square(
                lib.tl_sub(
                    input,
                    target)),
                    clamped)),
                     0.5)
    if full:
        loss = lib.tl_add_scalar(loss, 0.5 * math.log(2 * math.pi))
    return _reduced(loss, _reduction(reduction))


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over the other classes of max(0, margin - x[target] + x[i])^p"""
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    x = lib.tl_reshape(input, (1, -1)) if input.ndim < 2 else input
    y = lib.tl_reshape(target, (-1, 1))
    own = lib.tl_gather(x, 1, y)
    z = lib.tl_clamp(lib.tl_add_scalar(lib.tl_sub(x, own), margin), 0, None)
    z = z if p == 1 else lib.tl_square(z)
    z = z if weight is None else lib.tl_mul(
    z, lib.tl_unsqueeze(
        f.index_select(
            weight, 0, lib.tl_reshape(
                target, (-1,))), 1))
    classes = _creation.arange(x.shape[1], device=x.device)
    loss = lib.tl_div_scalar(f.sum(f.where(f.eq(classes, y), 0.0, z), 1), x.shape[1])
    loss = lib.tl_reshape(loss, ()) if input.ndim < 2 else loss
    return _reduced(loss, _reduction(reduction, size_average, reduce))


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """The mean over classes of the sum of max(0, 1 - x[label] + x[i]), for all labels up to the first -1."""
    x = lib.tl_reshape(input, (-1, input.shape[-1] if input.ndim else 1))
    y = lib.tl_reshape(target, (-1, target.shape[-1] if target.ndim else 1))
    n = x.shape[1]
    valid = f.eq(f.cumsum(f.lt(y, 0).to(int64), 1), 0)
    index = f.where(valid, y, 0)
    hit = lib.tl_scatter_add(lib.tl_zeros(lib.shape_of(x), int64.code, lib.tl_device_of(x)), 1, index, valid.to(int64))
    others = f.eq(hit, 0)
    own = lib.tl_gather(x, 1, index)
    z = lib.tl_clamp(lib.tl_add_scalar(lib.tl_sub(lib.tl_unsqueeze(x, 1), lib.tl_unsqueeze(own, 2)), 1.0), 0, None)
    counts = f.logical_and(lib.tl_unsqueeze(valid, 2), lib.tl_unsqueeze(others, 1))
    loss = lib.tl_div_scalar(f.sum(f.where(counts, z, 0.0), (1, 2)), n)
    loss = lib.tl_reshape(loss, ()) if input.ndim < 2 else loss
    return _reduced(loss, _reduction(reduction, size_average, reduce))


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """The mean over classes of binary cross entropies of logits."""
    from .functional import logsigmoid
    loss = lib.tl_neg(lib.tl_add(lib.tl_mul(target, logsigmoid(input)),
                                 lib.tl_mul(lib.tl_rsub_scalar(target, 1), logsigmoid(lib.tl_neg(input)))))
    loss = loss if weight is None else lib.tl_mul(loss, weight)
    return _reduced(f.mean(loss, -1), _reduction(reduction, size_average, reduce))


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, size_average=None,
                        reduce=None, reduction="mean"):
    """max(0, distance to the positive - distance to the negative + margin)"""
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return _triplet(anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), margin, swap,
                    _reduction(reduction, size_average, reduce))


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    near, far = distance(anchor, positive), distance(anchor, negative)
    far = f.minimum(far, distance(positive, negative)) if swap else far
    return _reduced(lib.tl_clamp(lib.tl_add_scalar(lib.tl_sub(near, far), margin), 0, None), reduction)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean"):
    """triplet_margin_loss with a distance of one's own."""
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin, swap,
                    _reduction(reduction))


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """-log of the sum over all alignments of targets with blanks: (T, N, C) log probabilities."""
    is_single = log_probs.ndim == 2
    x = lib.tl_unsqueeze(log_probs, 1) if is_single else log_probs
    lengths = [v.reshape(-1).tolist() if f.is_tensor(v) else list(v) if not isinstance(v, int) else [v]
               for v in (input_lengths, target_lengths)]
    n_time, n, _ = x.shape
    longest = max(lengths[1], default=0)
    rows, at = [], 0
    for i, length in enumerate(lengths[1]):
        row = (targets[at:at + length] if targets.ndim == 1 and not is_single else
               (targets.reshape(1, -1) if is_single else targets)[i, :length]).tolist()
        at += length
        rows.append([blank if k % 2 == 0 else row[k // 2] for k in range(2 * length + 1)]
                    + [blank] * (2 * (longest - length)))
    labels = _creation.tensor(rows, dtype=int64, device=x.device)  # (N, S): blanks between
    size = labels.shape[1]
    skip = [[k >= 2 and row[k] != blank and row[k] != row[k - 2] for k in range(size)] for row in rows]
    may_skip = _creation.tensor(skip, dtype=bool_, device=x.device)
    low = -1e30
    scores = lib.tl_gather(x, 2, lib.tl_expand(lib.tl_unsqueeze(labels, 0), (n_time, n, size)))
    first = _creation.arange(size, device=x.device)
    alpha = f.where(f.lt(first, 2), f.select(scores, 0, 0), low)
    steps = [alpha]
    for t in range(1, n_time):
        one = f.cat([lib.tl_full((n, 1), low, lib.tl_dtype_of(x), lib.tl_device_of(x)),
                    lib.tl_slice(alpha, 1, 0, size - 1, 1)], 1)
        two = f.cat([lib.tl_full((n, min(2, size)), low, lib.tl_dtype_of(x), lib.tl_device_of(x)),
                     lib.tl_slice(alpha, 1, 0, max(size - 2, 0), 1)], 1)
        two = f.where(may_skip, two, low)
        alpha = lib.tl_add(f.logsumexp(lib.tl_stack([alpha, one, two], 0), 0), f.select(scores, 0, t))
        steps.append(alpha)
    losses = []
    for i, (t, s) in enumerate(zip(*lengths)):
        last = steps[t - 1][i] if t else None
        ends = [last[2 * s]] + ([last[2 * s - 1]] if s else []) if last is not None else []
        total = f.logsumexp(lib.tl_stack(ends, 0), 0) if ends else lib.tl_mul_scalar(f.sum(x), 0)
        losses.append(lib.tl_neg(total))
    loss = lib.tl_stack(losses, 0)
    unreachable = f.gt(loss, 1e29)
    loss = f.where(unreachable, 0.0 if zero_infinity else math.inf, loss)
    if reduction == "mean":
        sizes = _creation.tensor([max(v, 1) for v in lengths[1]], dtype=loss.dtype, device=x.device)
        return f.mean(lib.tl_div(loss, sizes))
    loss = f.select(loss, 0, 0) if is_single and reduction == "none" else loss
    return _reduced(loss, _reduction(reduction))


# ---- Embeddings ----

def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean",
                  sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """The sum, mean or largest of the embeddings of each bag of indices."""
    f._refuse_complex("embedding_bag", weight)
    if sparse or scale_grad_by_freq:
        raise NotImplementedError("embedding_bag: sparse and scale_grad_by_freq are not there")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError("embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                                  "supported "
                                  f"for mode='sum' (got mode='{mode}').")
    if max_norm is not None:
        from .functional import _renorm_rows
        _renorm_rows(weight, input, max_norm, norm_type)
    if input.ndim == 2:
        n, width = input.shape
        ends = [i * width for i in range(n + 1)]
        flat = lib.tl_reshape(input, (-1,))
        per_sample_weights = None if per_sample_weights is None else lib.tl_reshape(per_sample_weights, (-1,))
    else:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        ends = offsets.tolist() + ([] if include_last_offset else [input.numel()])
        n, flat = len(ends) - 1, input
    flat = flat.to(int64)
    bag = [i for i in range(n) for _ in range(ends[i + 1] - ends[i])]
    index = _creation.tensor(bag, dtype=int64, device=weight.device)
    rows = f.index_select(weight, 0, flat) if flat.numel() else lib.tl_zeros((0, weight.shape[1]),
                                                                             lib.tl_dtype_of(weight),
                                                                              lib.tl_device_of(weight))
    counts_for = None
    if padding_idx is not None:
        counts_for = f.ne(flat, padding_idx % weight.shape[0])
        if mode == "max":
            keep = f.select(f.nonzero(counts_for), 1, 0)
            rows, index = f.index_select(rows, 0, keep), f.index_select(index, 0, keep)
        else:
            rows = f.where(lib.tl_unsqueeze(counts_for, 1), rows, 0.0)
    if per_sample_weights is not None:
        rows = lib.tl_mul(rows, lib.tl_unsqueeze(per_sample_weights, 1))
    empty = lib.tl_zeros((n, weight.shape[1]), lib.tl_dtype_of(weight), lib.tl_device_of(weight))
    if mode == "max":
        from .._ordered import scatter_reduced
        whole = lib.tl_expand(lib.tl_unsqueeze(index, 1), lib.shape_of(rows))
        return scatter_reduced(empty, 0, whole, rows, "amax", False)
    y = f.index_add(empty, 0, index, rows)
    if mode == "mean":
        ones = (lib.tl_ones((len(bag),), lib.tl_dtype_of(weight), lib.tl_device_of(weight)) if counts_for is None
                else counts_for.to(weight.dtype))
        n_items = f.index_add(lib.tl_zeros((n,), lib.tl_dtype_of(weight), lib.tl_device_of(weight)), 0, index, ones)
        y = lib.tl_div(y, lib.tl_unsqueeze(lib.tl_clamp(n_items, 1, None), 1))
    return y


NAMES = [n for n, v in list(globals().items()) if callable(v) and getattr(v, "__module__", None) == __name__
         and not n.startswith("_")]
