"""torch.distributions: the common ones, with sample, rsample, log_prob, entropy, mean and variance."""
import math

from . import _creation
from . import _functions as f
from ._grad import no_grad
from ._tensor import Tensor


def _tensors(*values):
    """Numbers and tensors, at their common shape."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    kind, device = (like.dtype, like.device) if like is not None else (None, None)
    made = [v if isinstance(v, Tensor) else _creation.tensor(float(v), dtype=kind, device=device) for v in values]
    return f.broadcast_tensors(*made)


class Distribution:
    """batch_shape: one distribution each; event_shape: that of one draw."""
    has_rsample = False

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self.batch_shape, self.event_shape = tuple(batch_shape), tuple(event_shape)

    def _extended(self, sample_shape):
        return tuple(sample_shape) + self.batch_shape + self.event_shape

    def rsample(self, sample_shape=()):
        raise NotImplementedError(f"{type(self).__name__} has no draws with a gradient")

    def sample(self, sample_shape=()):
        with no_grad():
            return self.rsample(sample_shape).detach()

    def log_prob(self, value):
        raise NotImplementedError

    @property
    def stddev(self):
        return self.variance.sqrt()

    def __repr__(self):
        return f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"


class Normal(Distribution):
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = _tensors(loc, scale)
        super().__init__(self.loc.shape)

    mean = mode = property(lambda self: self.loc)
    variance = property(lambda self: self.scale ** 2)
    stddev = property(lambda self: self.scale)

    def rsample(self, sample_shape=()):
        noise = _creation.randn(*self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + noise * self.scale

    def log_prob(self, value):
        return -((value - self.loc) ** 2) / (2 * self.variance) - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def entropy(self):
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    def cdf(self, value):
        return 0.5 * (1 + f.erf((value - self.loc) / self.scale / math.sqrt(2)))


class Uniform(Distribution):
    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = _tensors(low, high)
        super().__init__(self.low.shape)

    mean = property(lambda self: (self.low + self.high) / 2)
    variance = property(lambda self: (self.high - self.low) ** 2 / 12)

    def rsample(self, sample_shape=()):
        u = _creation.rand(*self._extended(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value):
        inside = f.logical_and(f.ge(value, self.low), f.lt(value, self.high))
        return f.where(inside, -(self.high - self.low).log(), -math.inf)

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(Distribution):
    has_rsample = True

    def __init__(self, rate, validate_args=None):
        self.rate, = _tensors(rate)
        super().__init__(self.rate.shape)

    mean = property(lambda self: 1 / self.rate)
    variance = property(lambda self: self.rate ** -2)

    def rsample(self, sample_shape=()):
        draw = _creation.empty(*self._extended(sample_shape), dtype=self.rate.dtype, device=self.rate.device)
        return draw.exponential_() / self.rate

    def log_prob(self, value):
        return self.rate.log() - self.rate * value

    def entropy(self):
        return 1 - self.rate.log()


class _ByLogits(Distribution):
    """Given by probabilities or by logits."""

    def _given(self, probs, logits):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._probs, self._logits = probs, logits


class Bernoulli(_ByLogits):
    def __init__(self, probs=None, logits=None, validate_args=None):
        self._given(probs, logits)
        value, = _tensors(probs if logits is None else logits)
        self.logits = value if probs is None else value.log() - (1 - value).log()
        self.probs = f.sigmoid(value) if probs is None else value
        super().__init__(value.shape)

    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=()):
        with no_grad():
            return _creation.bernoulli(self.probs.detach().expand(*self._extended(sample_shape))) \
                if self._extended(sample_shape) else _creation.bernoulli(self.probs.detach())

    def log_prob(self, value):
        from .nn.functional import binary_cross_entropy_with_logits
        logits, value = f.broadcast_tensors(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self):
        from .nn.functional import binary_cross_entropy_with_logits
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")


class Categorical(_ByLogits):
    def __init__(self, probs=None, logits=None, validate_args=None):
        self._given(probs, logits)
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
            self.logits = self.probs.clamp(min=1e-7 if probs.dtype.bits == 32 else 1e-15).log()
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
            self.probs = f.softmax(self.logits, -1)
        self._num_events = self.logits.shape[-1]
        super().__init__(self.logits.shape[:-1])

    def sample(self, sample_shape=()):
        with no_grad():
            n = math.prod(sample_shape)
            rows = self.probs.detach().reshape(-1, self._num_events)
            drawn = _creation.multinomial(rows, n, True)
            return drawn.transpose(0, 1).reshape(self._extended(sample_shape))

    def log_prob(self, value):
        value, logits = f.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self):
        return -(self.logits.clamp(min=-1e30) * self.probs).sum(-1)


def kl_divergence(p, q):
    """Of two of the same kind."""
    if isinstance(p, Normal) and isinstance(q, Normal):
        ratio = (p.scale / q.scale) ** 2
        return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())
    if isinstance(p, Categorical) and isinstance(q, Categorical):
        return (p.probs * (p.logits - q.logits)).sum(-1)
    raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
                              f"{type(q).__name__}")
