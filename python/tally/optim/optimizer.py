"""Optimizer: torch.optim.Optimizer. To write your own, derive a class with its own step()."""
import collections
import copy
import functools
import itertools

from .._grad import no_grad, set_grad_enabled
from .._library import constants, lib
from .._tensor import Tensor
from .._types import float32
from ..autograd import RemovableHandle

_UPDATE, _OPTIMIZER = constants["TL_UPDATE"], constants["TL_OPTIMIZER"]
_numbers = itertools.count()


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


def _billed(step):
    """step, billed to the update phase; a closure inside is billed to the phase around it."""
    @functools.wraps(step)
    def wrapped(self, *args, **kwargs):
        for hook in list(self._pre_hooks.values()):
            hook(self, args, kwargs)
        self._opt_called = True  # schedulers ask
        before = lib.tl_set_phase(_UPDATE)

        def outside(closure):
            def run():
                phase = lib.tl_set_phase(before)
                try:
                    return closure()
                finally:
                    lib.tl_set_phase(phase)
            return run
        try:
            if args and callable(args[0]):
                args = (outside(args[0]), *args[1:])
            elif callable(kwargs.get("closure")):
                kwargs["closure"] = outside(kwargs["closure"])
            result = step(self, *args, **kwargs)
        finally:
            lib.tl_set_phase(before)
        for hook in list(self._post_hooks.values()):
            hook(self, args, kwargs)
        return result
    wrapped.is_billed = True
    return wrapped


class Optimizer:
    """Parameters in groups, each group with its options; and a state per parameter."""

    def __init__(self, params, defaults):
        self.defaults = defaults
        self._pre_hooks, self._post_hooks = {}, {}
        self._wrap_step()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but "
                            "got " + params.type())
        self.state = collections.defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    @classmethod
    def _wrap_step(cls):
        if not getattr(cls.step, "is_billed", False):
            cls.step = _billed(cls.step)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls._wrap_step()

    def step(self, closure=None):
        raise NotImplementedError("an optimizer needs a step() of its own")

    def add_param_group(self, param_group):
        """Adds parameters with their own options."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of "
                            "tensors in sets will change between runs. Please use a list instead.")
        params, names = _named(list(params))
        if names:
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + type(p).__name__)
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        param_group["params"] = params
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        taken = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in taken for p in params) or len({id(p) for p in params}) != len(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none=True):
        """Frees the gradients, or fills them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                lib.tl_zero_grad(p, not set_to_none)

    def register_step_pre_hook(self, hook):
        """hook(optimizer, args, kwargs) before each step."""
        number = next(_numbers)
        self._pre_hooks[number] = hook
        return RemovableHandle(self._pre_hooks, number)

    def register_step_post_hook(self, hook):
        """hook(optimizer, args, kwargs) after each step."""
        number = next(_numbers)
        self._post_hooks[number] = hook
        return RemovableHandle(self._post_hooks, number)

    # ---- State ----

    def _numbered(self):
        return {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def state_dict(self):
        """The state by parameter index, and the groups with indices instead of parameters."""
        number = self._numbered()
        state = {number.get(id(p), p): self._state_out(s) for p, s in self.state.items()}
        groups = [dict({k: v for k, v in group.items() if k != "params"},
                       params=[number[id(p)] for p in group["params"]])
                  for group in self.param_groups]
        return {"state": state, "param_groups": groups}

    def _state_out(self, state):
        return state

    def _state_in(self, state, p):
        return {k: _like_parameter(k, v, p) for k, v in state.items()}

    def load_state_dict(self, state_dict):
        """Restores a state from state_dict."""
        saved = copy.copy(state_dict["param_groups"])
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(saved, self.param_groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                             "group")
        parameter = {n: p for a, b in zip(saved, self.param_groups) for n, p in zip(a["params"], b["params"])}
        self.state = collections.defaultdict(dict)
        for key, state in state_dict["state"].items():
            key = int(key) if isinstance(key, str) and key.isdecimal() else key  # keys of JSON are texts
            p = parameter.get(key)
            self.state[key if p is None else p] = state if p is None else self._state_in(state, p)
        self.param_groups = [dict(copy.deepcopy({k: v for k, v in a.items() if k != "params"}), params=b["params"])
                             for a, b in zip(saved, self.param_groups)]

    def __repr__(self):
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {key}: {group[key]}\n" for key in sorted(group) if key != "params")
        return text + ")"

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._pre_hooks, self._post_hooks = {}, {}


def _named(params):
    """The parameters, and their names if they came as pairs."""
    if params and all(isinstance(p, tuple) for p in params):
        return [p for _, p in params], [n for n, _ in params]
    if any(isinstance(p, tuple) for p in params):
        raise TypeError("all optimizer params should be with/without names. Some param names are missing")
    return params, None


def _like_parameter(key, value, p):
    """State of floats has the parameter's dtype (float32 for narrower ones) and device."""
    if isinstance(value, dict):
        return {k: _like_parameter(k, v, p) for k, v in value.items()}
    if not isinstance(value, Tensor):
        return value
    if key == "step" or not p.dtype.is_floating_point or not value.dtype.is_floating_point:
        return value
    return lib.tl_set_purpose(value.to(p.device, p.dtype if p.dtype.bits >= 32 else float32), _OPTIMIZER)


class Fused(Optimizer):
    """An optimizer whose update of one parameter is one op of the library."""

    def _update(self, p, grad, state, group):
        raise NotImplementedError

    def _begin(self, group):
        """Called before a group's parameters are updated."""

    def step(self, closure=None):
        """One update of every parameter that has a gradient. closure recomputes the loss."""
        loss = None
        if closure is not None:
            with set_grad_enabled(True):
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self._begin(group)
                for p in group["params"]:
                    grad = lib.tl_grad_of(p)
                    if grad is not None:
                        self._update(p, lib.tl_neg(grad) if group["maximize"] else grad, self.state, group)
        return loss

    # Steps are Python numbers here and scalar tensors in torch: a state_dict has tensors, as torch's.

    def _state_out(self, state):
        from .._creation import tensor
        return {k: tensor(float(v)) if k == "step" else v for k, v in state.items()}

    def _state_in(self, state, p):
        found = super()._state_in(state, p)
        if "step" in found:
            found["step"] = int(found["step"])
        return found


def zeros_for(p, value=0.0):
    """State of a parameter: float32, or float64 for float64."""
    code = p.dtype.code if p.dtype.bits >= 32 else float32.code
    return lib.tl_set_purpose(lib.tl_full(lib.shape_of(p), float(value), code, lib.tl_device_of(p)), _OPTIMIZER)


def check(condition, message):
    if not condition:
        raise ValueError(message)


def refuse_differentiable(differentiable):
    if differentiable:
        raise NotImplementedError("differentiable=True is not there: write the update with tensors")
