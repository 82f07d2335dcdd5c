"""Layers: linear maps, embeddings, norms, activations, losses, attention."""
import math

from .. import _creation, _functions
from .._library import lib
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


def _empty(shape, device, dtype):
    return Parameter(_creation.empty(shape, device=device, dtype=dtype))


class Identity(Module):
    """Its argument, unchanged."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """x weight^T + bias"""
    __constants__ = ["in_features", "out_features"]

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = _empty((out_features, in_features), device, dtype)
        if bias:
            self.bias = _empty((out_features,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input):
        return lib.tl_linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of a table by index."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0,
                 scale_grad_by_freq=False, sparse=False, _weight=None, _freeze=False, device=None, dtype=None):
        super().__init__()
        if scale_grad_by_freq or sparse:
            raise NotImplementedError("Embedding: scale_grad_by_freq and sparse are not there")
        self.max_norm, self.norm_type = max_norm, norm_type
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("Padding_idx must be within num_embeddings")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        if _weight is None:
            self.weight = _empty((num_embeddings, embedding_dim), device, dtype).requires_grad_(not _freeze)
            self.reset_parameters()
        else:
            if tuple(_weight.shape) != (num_embeddings, embedding_dim):
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            lib.tl_fill_(lib.tl_select(lib.tl_detach(self.weight), 0, self.padding_idx), 0.0)

    def forward(self, input):
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None):
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        return cls(*embeddings.shape, padding_idx=padding_idx, _weight=embeddings, _freeze=freeze)

    def extra_repr(self):
        padding = f", padding_idx={self.padding_idx}" if self.padding_idx is not None else ""
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) weight + bias over the last axes."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        for name, there in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            self.register_parameter(name, _empty(self.normalized_shape, device, dtype) if there else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input):
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) weight over the last axes."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", _empty(self.normalized_shape, device, dtype) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


# ---- Activations ----

class GELU(Module):
    """x Phi(x), or its form with tanh."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class _InPlace(Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """max(x, 0)"""

    def forward(self, input):
        return lib.tl_relu_(input) if self.inplace else lib.tl_relu(input)


class SiLU(_InPlace):
    """x sigmoid(x)"""

    def forward(self, input):
        return F.silu(input, self.inplace)


class Mish(_InPlace):
    """x tanh(log(1 + e^x))"""

    def forward(self, input):
        return F.mish(input, self.inplace)


class LeakyReLU(Module):
    """x, and negative_slope x below 0."""

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """x, and alpha (e^x - 1) below 0."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self):
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class Softplus(Module):
    """log(1 + e^(beta x)) / beta"""

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class Tanh(Module):
    """tanh x"""

    def forward(self, input):
        return lib.tl_tanh(input)


class Sigmoid(Module):
    """1 / (1 + e^-x)"""

    def forward(self, input):
        return lib.tl_sigmoid(input)


class LogSigmoid(Module):
    """log sigmoid(x)"""

    def forward(self, input):
        return F.logsigmoid(input)


class _AlongDim(Module):
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """e^x / sum e^x along an axis."""

    def forward(self, input):
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongDim):
    """x - log sum e^x along an axis."""

    def forward(self, input):
        return F.log_softmax(input, self.dim)


class GLU(Module):
    """a sigmoid(b) of the halves of an axis."""

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Dropout(Module):
    """In training, each element 0 with probability p, the rest scaled by 1 / (1 - p)."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Flatten(Module):
    """Several axes as one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return _functions.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis as several."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input):
        return _functions.unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


# ---- Losses ----

class _Loss(Module):
    def __init__(self, size_average=None, reduce=None, reduction="mean"):
        super().__init__()
        F._reduction(reduction) if size_average is None and reduce is None else None
        self.reduction = reduction if size_average is None and reduce is None else (
            "none" if reduce is False else "sum" if size_average is False else "mean")


class _WeightedLoss(_Loss):
    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(_WeightedLoss):
    """-log softmax(input)[target]"""

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                 label_smoothing=0.0):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input, target):
        return F.cross_entropy(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
                               label_smoothing=self.label_smoothing)


class NLLLoss(_WeightedLoss):
    """-input[target], of log probabilities."""

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input, target):
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(_Loss):
    """(input - target)^2"""

    def forward(self, input, target):
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """|input - target|"""

    def forward(self, input, target):
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """d^2 / 2 beta where |d| < beta, else |d| - beta/2"""

    def __init__(self, size_average=None, reduce=None, reduction="mean", beta=1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input, target):
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """delta times the smooth L1 loss of beta = delta."""

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input, target):
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class BCELoss(_WeightedLoss):
    """-t log x - (1 - t) log(1 - x)"""

    def forward(self, input, target):
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """-t log sigmoid(x) - (1 - t) log(1 - sigmoid(x))"""

    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input, target):
        return F.binary_cross_entropy_with_logits(input, target, self.weight, reduction=self.reduction,
                                                  pos_weight=self.pos_weight)


class KLDivLoss(_Loss):
    """target (log target - input), of log probabilities."""

    def __init__(self, size_average=None, reduce=None, reduction="mean", log_target=False):
        Module.__init__(self)
        self.reduction, self.log_target = reduction, log_target

    def forward(self, input, target):
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


# ---- Attention ----

class _OutProjection(Linear):
    """torch keeps the two parameters of this map in a module of its own, without a bias at the start."""

    def _get_name(self):
        return "NonDynamicallyQuantizableLinear"


class MultiheadAttention(Module):
    """Attention with its projections: (T, N, E), or (N, T, E) with batch_first. Unless the weights
    are returned too, no (T, S) tensor is made."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
                 vdim=None, batch_first=False, device=None, dtype=None):
        super().__init__()
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        widths = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        for name, width in widths.items():
            self.register_parameter(name, None if self._qkv_same_embed_dim
                                    else _empty((embed_dim, width), device, dtype))
        self.register_parameter("in_proj_weight", _empty((3 * embed_dim, embed_dim), device, dtype)
                                if self._qkv_same_embed_dim else None)
        self.register_parameter("in_proj_bias", _empty((3 * embed_dim,), device, dtype) if bias else None)
        self.out_proj = _OutProjection(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, _empty((1, 1, embed_dim), device, dtype) if add_bias_kv else None)
        for name in ("in_proj_weight", *widths):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        if bias:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if add_bias_kv:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def _projected(self, x, part):
        """(N, T, E), by one third of the projection."""
        a, b = part * self.embed_dim, (part + 1) * self.embed_dim
        bias = None if self.in_proj_bias is None else self.in_proj_bias[a:b]
        weight = (self.in_proj_weight[a:b] if self._qkv_same_embed_dim
                  else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[part])
        return F.linear(x, weight, bias)

    def _heads(self, y):
        """(N, T, E) -> (N, H, T, D)"""
        return y.view(*y.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)

    def _more_keys(self, k, v, masks):
        """One more key and value, learned (bias_k, bias_v) or zero, which no mask hides."""
        n, parts = k.shape[0], []
        if self.bias_k is not None:
            parts.append((self.bias_k.expand(n, 1, -1), self.bias_v.expand(n, 1, -1)))
        if self.add_zero_attn:
            zero = _creation.zeros(n, 1, self.embed_dim, dtype=k.dtype, device=k.device)
            parts.append((zero, zero))
        for more_k, more_v in parts:
            k, v = _functions.cat([k, more_k], 1), _functions.cat([v, more_v], 1)
            masks = [None if m is None else F.pad(m, (0, 1)) if m.is_floating_point()
                     else _functions.cat([m, _creation.zeros(*m.shape[:-1], 1, dtype=m.dtype, device=m.device)], -1)
                     for m in masks]
        return k, v, masks

    def _mask(self, attn_mask, key_padding_mask, query):
        """Both masks as one that is added; in torch's masks True hides."""
        total = None
        for mask, is_padding in ((attn_mask, False), (key_padding_mask, True)):
            if mask is None:
                continue
            if not mask.is_floating_point():
                mask = _creation.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(mask, -math.inf)
            if is_padding:
                mask = mask.view(mask.size(0), 1, 1, mask.size(1))
            elif mask.ndim == 3:
                mask = mask.view(-1, self.num_heads, *mask.shape[1:])
            total = mask if total is None else total + mask
        return total

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        is_single = query.ndim == 2
        if is_single:
            query, key, value = (x.unsqueeze(0 if self.batch_first else 1) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (self._projected(x, i) for i, x in enumerate((query, key, value)))
        k, v, (attn_mask, key_padding_mask) = self._more_keys(k, v, [attn_mask, key_padding_mask])
        q, k, v = (self._heads(x) for x in (q, k, v))
        mask = self._mask(attn_mask, key_padding_mask, q)
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * (1 / math.sqrt(self.head_dim))) @ k.transpose(-2, -1)
            weights = F.dropout(F.softmax(scores if mask is None else scores + mask, dim=-1), p)
            y = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, p)
        y = self.out_proj(y.transpose(1, 2).flatten(2))
        y = y if self.batch_first else y.transpose(0, 1)
        if is_single:
            y = y.squeeze(0 if self.batch_first else 1)
            weights = None if weights is None else weights.squeeze(0)
        return y, weights
