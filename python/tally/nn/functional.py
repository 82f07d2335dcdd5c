"""torch.nn.functional: activations, losses, norms and attention as functions."""
import ctypes
import math
import warnings

from .. import _functions
from .._composed import cosine_similarity, threshold  # noqa: F401
from .._functions import sigmoid, tanh  # noqa: F401
from .._grad import is_grad_enabled
from .._library import constants, lib, structs
from .._types import bool_, finfo, float32, int64

_REDUCTIONS = {"none": constants["TL_REDUCE_NONE"], "mean": constants["TL_REDUCE_MEAN"],
               "sum": constants["TL_REDUCE_SUM"]}
_PAD_MODES = {m: constants["TL_PAD_" + m.upper()] for m in ("constant", "reflect", "replicate", "circular")}


# ---- Arguments ----

def _reduction(name, size_average=None, reduce=None):
    """The library's enum; size_average and reduce are torch's older arguments for the same."""
    if size_average is not None or reduce is not None:
        warnings.warn("size_average and reduce args will be deprecated, please use reduction instead.", UserWarning, 3)
        name = "none" if reduce is False else "sum" if size_average is False else "mean"
    if name not in _REDUCTIONS:
        raise ValueError(f"{name} is not a valid value for reduction")
    return _REDUCTIONS[name]


def _implicit_dim(input, dim, name):
    if dim is not None:
        return dim
    warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an "
                  "argument.", UserWarning, 3)
    return 0 if input.ndim in (0, 1, 3) else 1


def _result(input, result, inplace):
    return input.copy_(result) if inplace else result


# ---- Products ----

def linear(input, weight, bias=None):
    """input weight^T + bias"""
    return lib.tl_linear(input, weight, bias)


# ---- Activations ----

def gelu(input, approximate="none"):
    """x Phi(x); approximate="tanh" is the form with tanh."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return lib.tl_gelu(input) if approximate == "tanh" else lib.tl_gelu_erf(input)


def silu(input, inplace=False):
    """x sigmoid(x)"""
    return lib.tl_silu_(input) if inplace else lib.tl_silu(input)


def softplus(input, beta=1, threshold=20):
    """log(1 + e^(beta x)) / beta"""
    return lib.tl_softplus(input, float(beta), float(threshold))


def logsigmoid(input):
    """log sigmoid(x)"""
    return lib.tl_neg(lib.tl_softplus(lib.tl_neg(input), 1.0, 1e300))


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """x, and negative_slope x below 0"""
    return lib.tl_leaky_relu_(input, negative_slope) if inplace else lib.tl_leaky_relu(input, negative_slope)


def elu(input, alpha=1.0, inplace=False):
    """x, and alpha (e^x - 1) below 0"""
    below = lib.tl_mul_scalar(lib.tl_expm1(lib.tl_clamp(input, None, 0)), alpha)
    return _result(input, lib.tl_where(lib.tl_cmp_scalar(input, constants["TL_GT"], 0), input, below), inplace)


def relu6(input, inplace=False):
    """min(max(x, 0), 6)"""
    return hardtanh(input, 0, 6, inplace)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """x clamped between two numbers"""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return lib.tl_clamp_(input, min_val, max_val) if inplace else lib.tl_clamp(input, min_val, max_val)


def mish(input, inplace=False):
    """x tanh(log(1 + e^x))"""
    return _result(input, lib.tl_mul(input, lib.tl_tanh(lib.tl_softplus(input, 1.0, 20.0))), inplace)


def relu(input, inplace=False):
    """max(x, 0)"""
    return lib.tl_relu_(input) if inplace else lib.tl_relu(input)


def softsign(input):
    """x / (1 + |x|)"""
    return lib.tl_div(input, lib.tl_add_scalar(lib.tl_abs(input), 1))


def glu(input, dim=-1):
    """a sigmoid(b) of the halves of an axis"""
    _functions._refuse_complex("glu", input)
    if input.size(dim) % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {input.size(dim)}")
    a, b = _functions.chunk(input, 2, dim)
    return lib.tl_mul(a, lib.tl_sigmoid(b))


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """e^x / sum e^x along an axis"""
    return _functions.softmax(input, _implicit_dim(input, dim, "softmax"), dtype=dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax of -x"""
    return _functions.softmax(lib.tl_neg(input), _implicit_dim(input, dim, "softmin"), dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """x - log sum e^x along an axis"""
    return _functions.log_softmax(input, _implicit_dim(input, dim, "log_softmax"), dtype=dtype)


def dropout(input, p=0.5, training=True, inplace=False):
    """Each element 0 with probability p, the rest scaled by 1 / (1 - p)."""
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return input
    result = lib.tl_mul_scalar(input, 0) if p == 1.0 else lib.tl_dropout(input, p)
    return _result(input, result, inplace)


# ---- Norms ----

def _check_normalized(input, normalized_shape):
    shape, n = tuple(normalized_shape), len(normalized_shape)
    if n < 1:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
                           "element, but got normalized_shape = []")
    if lib.shape_of(input)[-n:] != shape:
        sizes = ", ".join(map(str, shape))
        raise RuntimeError(f"Given normalized_shape=[{sizes}], expected input with shape [*, {sizes}], but got input "
                           f"of size{list(input.shape)}")


def _over_last(normalize, input, n, weights):
    """Several axes are normalized as one."""
    if n == 1:
        return normalize(input, *weights)
    flat = lib.tl_flatten(input, -n, -1)
    weights = [w if w is None else lib.tl_reshape(w, (-1,)) for w in weights]
    return lib.tl_view(normalize(flat, *weights), lib.shape_of(input))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """(x - mean) / sqrt(var + eps) weight + bias over the last axes."""
    _check_normalized(input, normalized_shape)

    def normalize(x, weight, bias):
        if (weight is None) == (bias is None):
            return lib.tl_layer_norm(x, weight, bias, eps)
        y = lib.tl_layer_norm(x, None, None, eps)
        return lib.tl_add(y, bias) if weight is None else lib.tl_mul(y, weight)
    return _over_last(normalize, input, len(normalized_shape), [weight, bias])


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) weight over the last axes."""
    _check_normalized(input, normalized_shape)
    if eps is None:
        eps = finfo(input.dtype if input.dtype.bits == 64 else float32).eps  # of the dtype it is computed in
    return _over_last(lambda x, w: lib.tl_rms_norm(x, w, eps), input, len(normalized_shape), [weight])


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """x / max(norm, eps)"""
    return lib.tl_div(input, lib.tl_clamp(_functions.norm(input, p, dim, keepdim=True), eps, None))


# ---- Tokens and shapes ----

def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of weight by index; the row padding_idx gets no gradient."""
    if scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding: scale_grad_by_freq and sparse are not there")
    if max_norm is not None:
        _renorm_rows(weight, input, max_norm, norm_type)
    rows = lib.tl_embedding(weight, input)
    if padding_idx is None or not lib.tl_needs_grad(rows):
        return rows
    is_padding = lib.tl_cmp_scalar(input, constants["TL_EQ"], padding_idx % weight.size(0))
    return lib.tl_where(lib.tl_unsqueeze(is_padding, -1), lib.tl_detach(rows), rows)


def _renorm_rows(weight, index, max_norm, norm_type):
    """Scales the rows that are used down to a norm of max_norm, in place."""
    from .._grad import no_grad
    with no_grad():
        used = lib.tl_unique(lib.tl_cast(index, int64.code))[0]
        rows = _functions.index_select(weight.detach(), 0, used)
        norms = lib.tl_norm(rows, float(norm_type), (1,), True)
        factor = lib.tl_mul_scalar(lib.tl_reciprocal(lib.tl_add_scalar(norms, 1e-7)), float(max_norm))
        scaled = _functions.where(_functions.gt(norms, max_norm), lib.tl_mul(rows, factor), rows)
        weight.detach().index_copy_(0, used, scaled)


def one_hot(tensor, num_classes=-1):
    """1 at each number, 0 elsewhere, along a new last axis."""
    if tensor.dtype is not int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1:
        if not tensor.numel():
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = _functions.max(tensor).item() + 1
    if tensor.numel() and not tensor.is_meta:
        if _functions.min(tensor).item() < 0:
            raise RuntimeError("Class values must be non-negative.")
        if _functions.max(tensor).item() >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
    return lib.tl_one_hot(tensor, num_classes)


def pad(input, pad, mode="constant", value=None):
    """More elements (fewer where negative) at both ends of axes; pairs, from the last axis on."""
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) // 2 > input.ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got "
                           f"padding length {len(pad)} and input of dimension {input.ndim}")
    if mode not in _PAD_MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    before, after = [0] * input.ndim, [0] * input.ndim
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return lib.tl_pad(input, before, after, _PAD_MODES[mode], float(value or 0.0))


# ---- Losses ----

def _entropy_options(weight, ignore_index, label_smoothing, reduction, is_narrow=False):
    return structs["tl_cross_entropy_options"](None if weight is None else lib.address_of(weight), ignore_index,
                                               label_smoothing, reduction, is_narrow)


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    """-log softmax(input)[target]; classes are the second axis. Targets are ids, or probabilities."""
    is_narrow = input.dtype.bits < 32 and not _in_autocast()  # then torch's loss has the input's dtype, too
    options = _entropy_options(weight, ignore_index, label_smoothing, _reduction(reduction, size_average, reduce),
                               is_narrow)
    _check_classes(input, target)
    return lib.tl_cross_entropy(input, target, ctypes.addressof(options))


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input[target], of log probabilities; classes are the second axis."""
    options = _entropy_options(weight, ignore_index, 0.0, _reduction(reduction, size_average, reduce))
    _check_classes(input, target)
    return lib.tl_nll_loss(input, target, ctypes.addressof(options))


def _in_autocast():
    from ..amp import is_autocast_enabled
    return is_autocast_enabled()


def _check_classes(input, target):
    """What torch says in ValueError about the number of rows."""
    if input.ndim > 1 and not target.is_floating_point() and target.ndim and input.size(0) != target.size(0):
        raise ValueError(f"Expected input batch_size ({input.size(0)}) to match target batch_size ({target.size(0)}).")


def _warn_sizes(input, target):
    if input.shape != target.shape:
        warnings.warn(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This "
                      "will likely lead to incorrect results due to broadcasting. Please ensure they have the same "
                      "size.", UserWarning, 3)


def _weighted(loss_of, weight, reduction):
    """torch's mean of a weighted loss is over the sum of the weights."""
    loss = loss_of(_REDUCTIONS["none"])
    weighted = lib.tl_mul(loss, weight)
    if reduction == _REDUCTIONS["none"]:
        return weighted
    total = lib.tl_sum_all(weighted)
    return (total if reduction == _REDUCTIONS["sum"]
            else lib.tl_div(total, lib.tl_sum_all(lib.tl_expand(weight, lib.shape_of(loss)))))


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target)^2"""
    _functions._refuse_complex("mse_loss", input, target)
    _warn_sizes(input, target)
    reduction = _reduction(reduction, size_average, reduce)
    if weight is not None:
        return _weighted(lambda r: lib.tl_mse_loss(input, target, r), weight, reduction)
    return lib.tl_mse_loss(input, target, reduction)


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|"""
    _warn_sizes(input, target)
    reduction = _reduction(reduction, size_average, reduce)
    if weight is not None:
        return _weighted(lambda r: lib.tl_l1_loss(input, target, r), weight, reduction)
    return lib.tl_l1_loss(input, target, reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """d^2 / 2 beta where |d| < beta, else |d| - beta/2"""
    _warn_sizes(input, target)
    return lib.tl_smooth_l1_loss(input, target, beta, _reduction(reduction, size_average, reduce))


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """delta times smooth_l1_loss of beta = delta"""
    _warn_sizes(input, target)
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")

    def loss_of(r):
        return lib.tl_mul_scalar(lib.tl_smooth_l1_loss(input, target, delta, r), float(delta))
    return loss_of(_reduction(reduction)) if weight is None else _weighted(loss_of, weight, _reduction(reduction))


def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean",
                                     pos_weight=None):
    """-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))"""
    if target.shape != input.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    return lib.tl_bce_with_logits(input, target, weight, pos_weight, _reduction(reduction, size_average, reduce))


def _reduced(loss, reduction):
    return (loss if reduction == _REDUCTIONS["none"] else lib.tl_sum_all(loss) if reduction == _REDUCTIONS["sum"]
            else lib.tl_mean_all(loss))


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-t log x - (1 - t) log(1 - x); logarithms are clamped at -100."""
    if target.shape != input.shape:
        raise ValueError(f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is "
                         "deprecated. Please ensure they have the same size.")
    positive = lib.tl_clamp(lib.tl_log(input), -100, None)
    negative = lib.tl_clamp(lib.tl_log1p(lib.tl_neg(input)), -100, None)
    loss = lib.tl_sub(lib.tl_mul(lib.tl_sub_scalar(target, 1), negative), lib.tl_mul(target, positive))
    return _reduced(loss if weight is None else lib.tl_mul(loss, weight), _reduction(reduction, size_average, reduce))


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target (log target - input), of log probabilities."""
    _functions._refuse_complex("kl_div", input, target)
    if log_target:
        loss = lib.tl_mul(lib.tl_exp(target), lib.tl_sub(target, input))
    else:  # 0 log 0 is 0
        logarithm = lib.tl_log(lib.tl_where_scalar(lib.tl_cmp_scalar(target, constants["TL_NE"], 0), target, 1.0))
        loss = lib.tl_mul(target, lib.tl_sub(logarithm, input))
    if reduction == "batchmean":
        return lib.tl_div_scalar(lib.tl_sum_all(loss), input.size(0) if input.ndim else 1)
    return _reduced(loss, _reduction(reduction, size_average, reduce))


# ---- Attention ----

def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """softmax(scale q k^T + mask) v of (..., H, T, D) on (..., Hkv, S, D). Causal: query t sees keys 0 .. t.

    Dropout zeroes each weight with probability dropout_p after the softmax and divides the others by 1 - dropout_p. As
    in PyTorch, it applies whenever dropout_p > 0: pass 0 in evaluation. No (T, S) tensor is made: backward computes the
    dropout mask again. A head size of the values that differs from that of the keys, masks with a gradient, and
    dropout_p = 1 fall back to plain ops.
    """
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError("scaled_dot_product_attention: Expected query, key, and value to all be  at least 2 "
                           "dimensional")
    if not enable_gqa and query.ndim > 2 and query.size(-3) == 1 < key.size(-3):  # one head is broadcast
        query = lib.tl_expand(query, lib.shape_of(query)[:-3] + (key.size(-3),) + lib.shape_of(query)[-2:])
    if not enable_gqa and query.ndim > 2 and key.size(-3) not in (1, query.size(-3)):
        raise RuntimeError(f"scaled_dot_product_attention: the heads differ: {query.size(-3)} of the query, "
                           f"{key.size(-3)} of the key (need enable_gqa=True)")
    if not 0.0 <= dropout_p <= 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if attn_mask is not None and is_causal:  # both: what is later is hidden, beside what the mask hides
        attn_mask, is_causal = _with_causal(attn_mask, query.size(-2), key.size(-2)), False
    is_plain = (dropout_p < 1.0 and key.shape == value.shape and query.ndim == key.ndim <= 4
                and query.shape[:-3] == key.shape[:-3] and query.size(-1) == key.size(-1))
    if attn_mask is not None:
        is_plain = is_plain and attn_mask.ndim <= 4 and not (is_grad_enabled() and lib.tl_needs_grad(attn_mask))
    run = _flash if is_plain else _spelled_out
    return run(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _causal_mask(n_queries, n_keys, like):
    """(T, S), true where query t sees key s: s <= t."""
    return lib.tl_tril(lib.tl_ones((n_queries, n_keys), bool_.code, lib.tl_device_of(like)), 0)


def _with_causal(mask, n_queries, n_keys):
    seen = _causal_mask(n_queries, n_keys, mask)
    return lib.tl_logical_and(mask, seen) if mask.dtype is bool_ else lib.tl_where_scalar(seen, mask, -math.inf)


def _flash(query, key, value, mask, dropout_p, is_causal, scale):
    """The library's attention, which has time before heads: views with the axes swapped."""
    n_new = 4 - query.ndim
    q, k, v = (x if not n_new else lib.tl_view(x, (1,) * n_new + lib.shape_of(x)) if x.is_contiguous()
               else _lead(x, n_new)
               for x in (query, key, value))
    n_queries, n_keys = q.size(2), k.size(2)
    if is_causal and n_keys > n_queries:  # counted from the first key, no query sees the keys beyond
        k, v, n_keys = lib.tl_slice(k, 2, 0, n_queries, 1), lib.tl_slice(v, 2, 0, n_queries, 1), n_queries
    if is_causal and n_keys < n_queries:
        mask, is_causal = _causal_mask(n_queries, n_keys, q), False
    q, k, v = (lib.tl_transpose(x, 1, 2) for x in (q, k, v))
    scale = 0.0 if scale is None else float(scale)
    options = structs["tl_attention_options"](scale, is_causal, 0, None if mask is None else lib.address_of(mask),
                                              float(dropout_p))
    y = lib.tl_attention(q, k, v, ctypes.addressof(options))[0]
    y = lib.tl_transpose(y, 1, 2)
    for _ in range(n_new):
        y = lib.tl_select(y, 0, 0)
    return y


def _lead(x, n):
    for _ in range(n):
        x = lib.tl_unsqueeze(x, 0)
    return x


def _spelled_out(query, key, value, mask, dropout_p, is_causal, scale):
    if query.dtype.bits == 16:  # scores and weights are not rounded
        wide = [lib.tl_cast(x, float32.code) for x in (query, key, value)]
        mask = lib.tl_cast(mask, float32.code) if mask is not None and mask.dtype is not bool_ else mask
        return lib.tl_cast(_spelled_out(*wide, mask, dropout_p, is_causal, scale), query.dtype.code)
    if query.ndim > 2 and query.size(-3) != key.size(-3) > 1:
        times = query.size(-3) // key.size(-3)
        key, value = (lib.tl_repeat_interleave(x, -3, times) for x in (key, value))
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = lib.tl_matmul(lib.tl_mul_scalar(query, float(scale)), lib.tl_transpose(key, -2, -1))
    if is_causal:
        mask = _causal_mask(scores.size(-2), scores.size(-1), scores)
    if mask is not None and mask.dtype is bool_:
        scores = lib.tl_where_scalar(mask, scores, -math.inf)
    elif mask is not None:
        scores = lib.tl_add(scores, mask)
    weights = lib.tl_softmax(scores, -1)
    if mask is not None:  # a query that sees nothing has the result 0
        weights = lib.tl_where_scalar(lib.tl_cmp_scalar(lib.tl_max(scores, (-1,), True), constants["TL_GT"], -math.inf),
                                      weights, 0.0)
    return lib.tl_matmul(dropout(weights, dropout_p), value)


_LATE = {
    "_spatial": """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d unfold fold max_pool1d
    max_pool2d
        max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d
        avg_pool3d
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d lp_pool1d lp_pool2d lp_pool3d max_unpool1d max_unpool2d max_unpool3d batch_norm group_norm
        instance_norm local_response_norm interpolate upsample upsample_nearest upsample_bilinear pixel_shuffle
        pixel_unshuffle channel_shuffle grid_sample affine_grid""",
    "_rarer": """selu celu prelu rrelu hardshrink softshrink tanhshrink hardsigmoid hardswish gumbel_softmax dropout1d
        dropout2d dropout3d alpha_dropout feature_alpha_dropout bilinear pairwise_distance pdist soft_margin_loss
        margin_ranking_loss hinge_embedding_loss cosine_embedding_loss poisson_nll_loss gaussian_nll_loss
        multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss triplet_margin_loss
        triplet_margin_with_distance_loss ctc_loss embedding_bag""",
}
_PLACE = {name: module for module, names in _LATE.items() for name in names.split()}  # imported when asked for


def __getattr__(name):
    if name.rstrip("_") in _PLACE or name in ("relu_", "elu_", "leaky_relu_", "hardtanh_", "threshold_"):
        import importlib
        plain = name.rstrip("_")
        if plain != name:  # relu_ and the like
            whole = globals().get(plain) or __getattr__(plain)
            value = lambda input, *args, **kwargs: input.copy_(whole(input, *args, **kwargs))  # noqa: E731
        else:
            value = getattr(importlib.import_module("." + _PLACE[name], __package__), name)
        globals()[name] = value
        return value
    from .._missing import message
    raise AttributeError(message("nn.functional." + name, name), name=name)


def __dir__():
    return sorted({*globals(), *_PLACE})


__all__ = [n for n, x in list(globals().items()) if callable(x) and not n.startswith("_")
           and n not in ("finfo", "is_grad_enabled")] + sorted(_PLACE)
