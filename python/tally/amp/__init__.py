"""Mixed precision: autocast, and the scale that keeps small float16 gradients from vanishing."""
import collections
import functools

from .. import _functions
from .._grad import no_grad
from .._library import constants, lib
from .._tensor import Tensor
from .._types import DTYPES, bfloat16, float16, float32

_OFF = constants["TL_DTYPE_COUNT"]
_DEFAULTS = {"cpu": bfloat16, "cuda": float16, "meta": bfloat16}


class autocast:
    """Products run in a narrow dtype; softmax, norms, sums and losses run in float32. tl_set_autocast in tally.h has
    the list.

    A context manager and a decorator. The library's autocast holds for every device; device_type only
    chooses the default dtype.
    """

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _DEFAULTS:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device, self.fast_dtype = device_type, _DEFAULTS[device_type] if dtype is None else dtype
        if self.fast_dtype not in (bfloat16, float16, float32):
            raise RuntimeError(f"autocast takes bfloat16, float16 or float32, not {dtype}")
        self._enabled, self._before = enabled, []

    def __enter__(self):
        self._before.append(lib.tl_set_autocast(self.fast_dtype.code if self._enabled else _OFF))
        return self

    def __exit__(self, *_):
        lib.tl_set_autocast(self._before.pop())
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with autocast(self.device, self.fast_dtype, self._enabled):
                return function(*args, **kwargs)
        return wrapped


def _state():
    code = lib.tl_set_autocast(_OFF)
    lib.tl_set_autocast(code)
    return code


def is_autocast_enabled(device_type=None):
    """Is it on in this thread?"""
    return _state() != _OFF


def get_autocast_dtype(device_type="cpu"):
    """The dtype of products; where autocast is off, the one it would have."""
    code = _state()
    return _DEFAULTS[device_type] if code == _OFF else DTYPES[code]


class GradScaler:
    """Multiplies the loss by a scale that grows while gradients stay finite, and shrinks when they do not."""

    def __init__(self, device="cuda", init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000,
                 enabled=True):
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._device, self._enabled, self._scale = device, enabled, float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0
        self._optimizers = collections.defaultdict(dict)  # by id: "found_inf", "is_unscaled", "has_stepped"

    def scale(self, outputs):
        """The loss, or every tensor of a list, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return lib.tl_mul_scalar(outputs, self._scale)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(x) for x in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def unscale_(self, optimizer):
        """Divides the gradients by the scale, and notes whether all are finite."""
        if not self._enabled:
            return
        state = self._optimizers[id(optimizer)]
        if state.get("has_stepped"):
            raise RuntimeError("unscale_() is being called after step().")
        if state.get("is_unscaled"):
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        largest = []
        with no_grad():
            for group in optimizer.param_groups:
                for grad in (p.grad for p in group["params"]):
                    if grad is not None:
                        lib.tl_mul_scalar_(grad, 1.0 / self._scale)
                        largest.append(lib.tl_norm(grad, float("inf"), (), False).to("cpu", float32))
            state["found_inf"] = bool(largest) and not bool(_functions.all(lib.tl_isfinite(_functions.stack(largest))))
        state["is_unscaled"], state["has_grads"] = True, bool(largest)

    def step(self, optimizer, *args, **kwargs):
        """optimizer.step(), unless a gradient is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        state = self._optimizers[id(optimizer)]
        if state.get("has_stepped"):
            raise RuntimeError("step() has already been called since the last update().")
        if not state.get("is_unscaled"):
            self.unscale_(optimizer)
        if not state["has_grads"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        state["has_stepped"] = True
        return None if state["found_inf"] else optimizer.step(*args, **kwargs)

    def update(self, new_scale=None):
        """The scale for the next step."""
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        else:
            if not any("found_inf" in s for s in self._optimizers.values()):
                raise AssertionError("No inf checks were recorded prior to update.")
            self._adapt(any(s.get("found_inf") for s in self._optimizers.values()))
        self._optimizers.clear()

    def _adapt(self, found_inf):
        self._growth_tracker = 0 if found_inf else self._growth_tracker + 1
        if found_inf:
            self._scale *= self._backoff_factor
        elif self._growth_tracker == self._growth_interval:
            self._scale, self._growth_tracker = self._scale * self._growth_factor, 0

    def get_scale(self):
        return self._scale if self._enabled else 1.0

    def is_enabled(self):
        return self._enabled

    def get_growth_factor(self):
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        self._growth_interval = new_interval

    def state_dict(self):
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
                "growth_interval": self._growth_interval, "_growth_tracker": self._growth_tracker}

    def load_state_dict(self, state_dict):
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance "
                               "of GradScaler.")
        self._scale, self._growth_tracker = float(state_dict["scale"]), state_dict["_growth_tracker"]
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]


def is_autocast_available(device_type):
    return device_type in _DEFAULTS


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """forward of an autograd.Function: with cast_inputs, outside autocast and on inputs of that dtype."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def wrapped(ctx, *args, **kwargs):
        code = _state()
        ctx._autocast = _OFF if cast_inputs is not None else code
        if cast_inputs is None or code == _OFF:
            return fwd(ctx, *args, **kwargs)
        args = [a.to(cast_inputs) if isinstance(a, Tensor) and a.dtype.is_floating_point else a for a in args]
        with autocast(device_type, enabled=False):
            return fwd(ctx, *args, **kwargs)
    return wrapped


def custom_bwd(bwd=None, *, device_type):
    """backward of an autograd.Function, under the autocast that forward ran under."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def wrapped(ctx, *grads):
        before = lib.tl_set_autocast(getattr(ctx, "_autocast", _OFF))
        try:
            return bwd(ctx, *grads)
        finally:
            lib.tl_set_autocast(before)
    return wrapped
