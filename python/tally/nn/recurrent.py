"""Recurrent layers and cells: RNN, LSTM, GRU. The products with the inputs of all steps are one; the steps follow one
after the other."""
import math

from .. import _creation
from .. import _functions as f
from .._library import lib
from . import functional as F
from . import init
from .layers import _empty
from .module import Module


def _rnn_step(gates, hidden, w, b, activation):
    """h' = act(x part + W h + b)"""
    return activation(lib.tl_add(gates, lib.tl_linear(hidden, w, b)))


def _lstm_step(gates, state, w, b, w_hr=None):
    """i, f, g, o; c' = f c + i g; h' = o tanh(c')"""
    h, c = state
    i, forget, g, o = f.chunk(lib.tl_add(gates, lib.tl_linear(h, w, b)), 4, -1)
    c = lib.tl_add(lib.tl_mul(f.sigmoid(forget), c), lib.tl_mul(f.sigmoid(i), f.tanh(g)))
    h = lib.tl_mul(f.sigmoid(o), f.tanh(c))
    return (h if w_hr is None else lib.tl_linear(h, w_hr, None)), c


def _gru_step(gates, hidden, w, b):
    """r, z; n = tanh(x part + r (W h + b)); h' = (1 - z) n + z h"""
    own = lib.tl_linear(hidden, w, b)
    xr, xz, xn = f.chunk(gates, 3, -1)
    hr, hz, hn = f.chunk(own, 3, -1)
    r, z = f.sigmoid(lib.tl_add(xr, hr)), f.sigmoid(lib.tl_add(xz, hz))
    n = f.tanh(lib.tl_add(xn, lib.tl_mul(r, hn)))
    return lib.tl_add(n, lib.tl_mul(z, lib.tl_sub(hidden, n)))


_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class _Recurrent(Module):
    """(T, N, in) -> (T, N, out), several layers, in one or both directions."""

    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__()
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element "
                             "being zeroed")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size, gates = proj_size, _GATES[mode] * hidden_size
        out, n = proj_size or hidden_size, 2 if bidirectional else 1
        for layer in range(num_layers):
            for direction in range(n):
                end = f"_l{layer}" + ("_reverse" if direction else "")
                width = input_size if not layer else out * n
                setattr(self, "weight_ih" + end, _empty((gates, width), device, dtype))
                setattr(self, "weight_hh" + end, _empty((gates, out), device, dtype))
                if bias:
                    setattr(self, "bias_ih" + end, _empty((gates,), device, dtype))
                    setattr(self, "bias_hh" + end, _empty((gates,), device, dtype))
                if proj_size:
                    setattr(self, "weight_hr" + end, _empty((proj_size, hidden_size), device, dtype))
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.hidden_size)
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def flatten_parameters(self):
        """Nothing to do: weights are used as they are."""

    @property
    def all_weights(self):
        names = ("weight_ih", "weight_hh") + (("bias_ih", "bias_hh") if self.bias else ()) + (
            ("weight_hr",) if self.proj_size else ())
        return [[getattr(self, n + f"_l{layer}" + end) for n in names] for layer in range(self.num_layers)
                for end in ("", "_reverse")[:2 if self.bidirectional else 1]]

    def _run(self, x, state, end):
        """One layer in one direction: (T, N, in) -> (T, N, out), and the last state."""
        w, b = getattr(self, "weight_hh" + end), getattr(self, "bias_hh" + end) if self.bias else None
        gates = lib.tl_linear(
    x,
    getattr(
        self,
        "weight_ih" +
        end),
        getattr(
            self,
            "bias_ih" +
             end) if self.bias else None)
        outputs, times = [], range(x.shape[0])
        for t in reversed(times) if end.endswith("_reverse") else times:
            now = lib.tl_select(gates, 0, t)
            if self.mode == "LSTM":
                state = _lstm_step(now, state, w, b, getattr(self, "weight_hr" + end, None) if self.proj_size else None)
                outputs.append(state[0])
            elif self.mode == "GRU":
                state = _gru_step(now, state, w, b)
                outputs.append(state)
            else:
                state = _rnn_step(now, state, w, b, f.relu if self.mode == "RNN_RELU" else f.tanh)
                outputs.append(state)
        outputs = outputs[::-1] if end.endswith("_reverse") else outputs
        return lib.tl_stack(outputs, 0), state

    def forward(self, input, hx=None):
        from .utils import rnn
        packed = isinstance(input, rnn.PackedSequence)
        if packed:
            return self._packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(f"{self._get_name()}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                               f"{input.shape[-1]}")
        is_single = input.ndim == 2
        x = input.unsqueeze(1) if is_single else input.transpose(0, 1) if self.batch_first else input
        states = self._states(x, hx, is_single)
        n, lasts = 2 if self.bidirectional else 1, []
        for layer in range(self.num_layers):
            found = []
            for direction in range(n):
                y, last = self._run(x, states[layer * n + direction], f"_l{layer}" + ("_reverse" if direction else ""))
                found.append(y)
                lasts.append(last)
            x = found[0] if n == 1 else f.cat(found, -1)
            if self.dropout and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout)
        y = x.squeeze(1) if is_single else x.transpose(0, 1) if self.batch_first else x

        def joined(parts):
            z = lib.tl_stack(parts, 0)
            return z.squeeze(1) if is_single else z
        if self.mode == "LSTM":
            return y, (joined([h for h, _ in lasts]), joined([c for _, c in lasts]))
        return y, joined(lasts)

    def _states(self, x, hx, is_single):
        count, batch = self.num_layers * (2 if self.bidirectional else 1), x.shape[1]
        sizes = [self.proj_size or self.hidden_size] + ([self.hidden_size] if self.mode == "LSTM" else [])
        if hx is None:
            given = [_creation.zeros(count, batch, s, dtype=x.dtype, device=x.device) for s in sizes]
        else:
            given = list(hx) if self.mode == "LSTM" else [hx]
            given = [h.unsqueeze(1) if is_single else h for h in given]
        for h, s in zip(given, sizes):
            if tuple(h.shape) != (count, batch, s):
                raise RuntimeError(f"Expected hidden size {(count, batch, s)}, got {list(h.shape)}")
        parts = [f.unbind(h, 0) for h in given]
        return list(zip(*parts)) if self.mode == "LSTM" else list(parts[0])

    def _packed(self, packed, hx):
        """Sequences of several lengths, one by one."""
        from .utils import rnn
        x, lengths = rnn.pad_packed_sequence(packed)
        hs = None if hx is None else (hx if self.mode == "LSTM" else (hx,))
        was, self.batch_first = self.batch_first, False
        outputs, lasts = [], []
        try:
            for i, n in enumerate(lengths.tolist()):
                state = None if hs is None else tuple(h[:, i:i + 1].contiguous() for h in hs)
                state = state if state is None or self.mode == "LSTM" else state[0]
                y, last = self.forward(x[:n, i:i + 1], state)
                outputs.append(y.squeeze(1))
                lasts.append(last if self.mode == "LSTM" else (last,))
        finally:
            self.batch_first = was
        y = rnn.pack_padded_sequence(rnn.pad_sequence(outputs), lengths, enforce_sorted=False)
        ends = tuple(f.cat([each[k] for each in lasts], 1) for k in range(len(lasts[0])))
        return y, ends if self.mode == "LSTM" else ends[0]

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, plain in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
                            ("bidirectional", False)):
            text += f", {name}={getattr(self, name)}" if getattr(self, name) != plain else ""
        return text


class RNN(_Recurrent):
    """h' = tanh(W x + b + U h + c), or relu."""

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
                 dropout=0.0, bidirectional=False, device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + nonlinearity.upper(), input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, 0, device, dtype)
        self.nonlinearity = nonlinearity


class LSTM(_Recurrent):
    """Long short-term memory."""

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         proj_size,
                         device, dtype)


class GRU(_Recurrent):
    """Gated recurrent units."""

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None):
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0,
                         device,
                         dtype)


class _Cell(Module):
    """One step of one layer."""

    def __init__(self, gates, input_size, hidden_size, bias, device, dtype):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.weight_ih = _empty((gates * hidden_size, input_size), device, dtype)
        self.weight_hh = _empty((gates * hidden_size, hidden_size), device, dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, _empty((gates * hidden_size,), device, dtype) if bias else None)
        self.reset_parameters()

    reset_parameters = _Recurrent.reset_parameters

    def _begin(self, input, n):
        if input.ndim not in (1, 2):
            raise ValueError(f"{self._get_name()}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        x = input.unsqueeze(0) if input.ndim == 1 else input
        gates = lib.tl_linear(x, self.weight_ih, self.bias_ih)
        return gates, [_creation.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device) for _ in range(n)]

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """h' = tanh(W x + b + U h + c), or relu."""

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(1, input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        gates, (zero,) = self._begin(input, 1)
        h = zero if hx is None else hx.unsqueeze(0) if hx.ndim == 1 else hx
        h = _rnn_step(gates, h, self.weight_hh, self.bias_hh, f.relu if self.nonlinearity == "relu" else f.tanh)
        return h.squeeze(0) if input.ndim == 1 else h


class LSTMCell(_Cell):
    """Long short-term memory."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(4, input_size, hidden_size, bias, device, dtype)

    def forward(self, input, hx=None):
        gates, zeros = self._begin(input, 2)
        state = zeros if hx is None else [h.unsqueeze(0) if h.ndim == 1 else h for h in hx]
        h, c = _lstm_step(gates, state, self.weight_hh, self.bias_hh)
        return (h.squeeze(0), c.squeeze(0)) if input.ndim == 1 else (h, c)


class GRUCell(_Cell):
    """Gated recurrent units."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(3, input_size, hidden_size, bias, device, dtype)

    def forward(self, input, hx=None):
        gates, (zero,) = self._begin(input, 1)
        h = zero if hx is None else hx.unsqueeze(0) if hx.ndim == 1 else hx
        h = _gru_step(gates, h, self.weight_hh, self.bias_hh)
        return h.squeeze(0) if input.ndim == 1 else h
