"""Transformers: encoder and decoder layers, stacks of them, and both together."""
import copy
import math

from .. import _creation
from . import functional as F
from . import init
from .containers import ModuleList
from .layers import Dropout, LayerNorm, Linear, MultiheadAttention
from .module import Module


def _activation(activation):
    if isinstance(activation, str):
        if activation not in ("relu", "gelu"):
            raise RuntimeError(f"activation should be relu/gelu, not {activation}")
        return getattr(F, activation)
    return activation


def _copies(module, n):
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


class TransformerEncoderLayer(Module):
    """Attention and a feed-forward net, each with a residual and a norm."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.linear1, self.dropout = Linear(d_model, dim_feedforward, bias, **made), Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        self.norm_first = norm_first
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps, bias=bias, **made) for _ in range(2))
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def _attend(self, x, mask, padding, is_causal):
        y, _ = self.self_attn(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False,
                              is_causal=is_causal and mask is not None)
        return self.dropout1(y)

    def _feed(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask, is_causal))
        return self.norm2(x + self._feed(x))


class TransformerDecoderLayer(Module):
    """An encoder layer that also attends to a memory."""

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **made)
        self.linear1, self.dropout = Linear(d_model, dim_feedforward, bias, **made), Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **made)
        self.norm_first = norm_first
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model, layer_norm_eps, bias=bias, **made) for _ in range(3))
        self.dropout1, self.dropout2, self.dropout3 = (Dropout(dropout) for _ in range(3))
        self.activation = _activation(activation)

    def _attend(self, attention, x, y, mask, padding, dropout):
        return dropout(attention(x, y, y, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0])

    def _feed(self, x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
        own = (self.self_attn, tgt_mask, tgt_key_padding_mask, self.dropout1)
        other = (self.multihead_attn, memory_mask, memory_key_padding_mask, self.dropout2)

        def attend(part, x, y):
            attention, mask, padding, dropout = part
            return self._attend(attention, x, y, mask, padding, dropout)
        x = tgt
        if self.norm_first:
            y = self.norm1(x)
            x = x + attend(own, y, y)
            x = x + attend(other, self.norm2(x), memory)
            return x + self._feed(self.norm3(x))
        x = self.norm1(x + attend(own, x, x))
        x = self.norm2(x + attend(other, x, memory))
        return self.norm3(x + self._feed(x))


class TransformerEncoder(Module):
    """Copies of an encoder layer, one after the other."""

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(encoder_layer, num_layers), num_layers, norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Copies of a decoder layer, one after the other."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers, self.num_layers, self.norm = _copies(decoder_layer, num_layers), num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                      memory_key_padding_mask=memory_key_padding_mask)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder and a decoder."""

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048,
                 dropout=0.1,
                 activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False,
                 norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        common = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*common, **made), num_encoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **made))
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*common, **made), num_decoder_layers,
            LayerNorm(d_model, layer_norm_eps, bias=bias, **made))
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        axis = 0 if self.batch_first else 1
        if src.ndim == 3 and src.size(axis) != tgt.size(axis):
            raise RuntimeError("the batch number of src and tgt must be equal")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                            tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask)

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """0, and -infinity where the key is later than the query."""
        return _creation.full((sz, sz), -math.inf, dtype=dtype, device=device).triu(1)
