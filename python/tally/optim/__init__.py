"""torch.optim: optimizers over the library's fused updates, and schedules of the learning rate."""
import ctypes

from .._grad import no_grad
from .._library import lib, structs
from . import lr_scheduler  # noqa: F401
from .optimizer import Fused, Optimizer, check, refuse_differentiable, zeros_for

_NO_UPDATE = structs["tl_update_options"](None, False)


def _options(name, **fields):
    return structs[name](update=_NO_UPDATE, **fields)


class SGD(Fused):
    """g += weight_decay p; buffer = momentum buffer + (1 - dampening) g; p -= lr buffer"""

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check(not nesterov or (momentum > 0 and dampening == 0),
              "Nesterov momentum requires a momentum and zero dampening")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused))

    def _update(self, p, grad, states, group):
        buffer, step = None, 1
        if group["momentum"] != 0:
            buffer = states[p].get("momentum_buffer")
            step = 1 if buffer is None else 2
            if buffer is None:
                buffer = states[p]["momentum_buffer"] = zeros_for(p)
        options = _options("tl_sgd_options", lr=float(group["lr"]), momentum=group["momentum"],
                           dampening=group["dampening"], weight_decay=group["weight_decay"], nesterov=group["nesterov"],
                           step=step)
        lib.tl_sgd_(p, grad, buffer, ctypes.addressof(options))


class Adagrad(Fused):
    """sum += g^2; p -= lr / (1 + (step - 1) lr_decay) g / (sqrt(sum) + eps)"""

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10,
                 foreach=None, *, maximize=False, differentiable=False, fused=None):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(lr_decay >= 0.0, f"Invalid lr_decay value: {lr_decay}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check(initial_accumulator_value >= 0.0, f"Invalid initial_accumulator_value value: {initial_accumulator_value}")
        check(eps >= 0.0, f"Invalid epsilon value: {eps}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay,
                                      initial_accumulator_value=initial_accumulator_value, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, fused=fused))
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p] = {"step": 0, "sum": zeros_for(p, group["initial_accumulator_value"])}

    def _update(self, p, grad, states, group):
        state = states[p]
        state["step"] += 1
        options = _options("tl_adagrad_options", lr=float(group["lr"]), lr_decay=group["lr_decay"],
                           weight_decay=group["weight_decay"], eps=group["eps"], step=state["step"])
        lib.tl_adagrad_(p, grad, state["sum"], ctypes.addressof(options))


class RMSprop(Fused):
    """square = alpha square + (1 - alpha) g^2; p -= lr g / (sqrt(square) + eps)"""

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False,
                 capturable=False, foreach=None, maximize=False, differentiable=False):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check(momentum >= 0.0, f"Invalid momentum value: {momentum}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        check(alpha >= 0.0, f"Invalid alpha value: {alpha}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered,
                                      weight_decay=weight_decay, capturable=capturable, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, square_avg=zeros_for(p))
            if group["momentum"] > 0:
                state["momentum_buffer"] = zeros_for(p)
            if group["centered"]:
                state["grad_avg"] = zeros_for(p)
        state["step"] += 1
        options = _options("tl_rmsprop_options", lr=float(group["lr"]), alpha=group["alpha"], eps=group["eps"],
                           weight_decay=group["weight_decay"], momentum=group["momentum"], centered=group["centered"])
        lib.tl_rmsprop_(p, grad, state["square_avg"], state.get("grad_avg"), state.get("momentum_buffer"),
                        ctypes.addressof(options))


class Adam(Fused):
    """p -= lr m / (sqrt(v) + eps), with running means m of g and v of g^2, corrected for their start"""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(eps >= 0.0, f"Invalid epsilon value: {eps}")
        for i in (0, 1):
            check(0.0 <= betas[i] < 1.0, f"Invalid beta parameter at index {i}: {betas[i]}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable, fused=fused,
                                      decoupled_weight_decay=decoupled_weight_decay))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, exp_avg=zeros_for(p), exp_avg_sq=zeros_for(p))
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = zeros_for(p)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        options = _options("tl_adam_options", lr=float(group["lr"]), beta1=float(beta1), beta2=float(beta2),
                           eps=group["eps"], weight_decay=group["weight_decay"],
                           decoupled=group["decoupled_weight_decay"], step=state["step"])
        lib.tl_adam_(p, grad, state["exp_avg"], state["exp_avg_sq"], state.get("max_exp_avg_sq"),
                     ctypes.addressof(options))


class AdamW(Adam):
    """Adam, with p *= 1 - lr weight_decay in place of g += weight_decay p"""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *,
                 maximize=False, foreach=None, capturable=False, differentiable=False, fused=None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True)


class Lion(Fused):
    """p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g); then m = beta2 m + (1 - beta2) g"""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0, *, maximize=False):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        for i in (0, 1):
            check(0.0 <= betas[i] < 1.0, f"Invalid beta parameter at index {i}: {betas[i]}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay, maximize=maximize))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(exp_avg=zeros_for(p))
        beta1, beta2 = group["betas"]
        options = _options("tl_lion_options", lr=float(group["lr"]), beta1=float(beta1), beta2=float(beta2),
                           weight_decay=group["weight_decay"])
        lib.tl_lion_(p, grad, state["exp_avg"], ctypes.addressof(options))


class AdamWScheduleFree(Fused):
    """d = g / (sqrt(v) + eps) + weight_decay y; z -= lr d; x is the mean of all z, y = beta1 x + (1 - beta1) z

    Schedule-free AdamW of the package schedulefree, with its options and its groups. Between train() and eval()
    parameters are y, at which gradients are taken; after eval() they are x, the model."""

    def __init__(self, params, lr=0.0025, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, warmup_steps=0, r=0.0,
                 weight_lr_power=2.0, foreach=None):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check(0.0 < betas[0] < 1.0, f"Invalid beta parameter at index 0: {betas[0]}")
        check(0.0 <= betas[1] < 1.0, f"Invalid beta parameter at index 1: {betas[1]}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, r=r, k=0, warmup_steps=warmup_steps,
                                      train_mode=False, weight_sum=0.0, lr_max=-1.0, scheduled_lr=0.0,
                                      weight_lr_power=weight_lr_power, weight_decay=weight_decay, foreach=foreach,
                                      maximize=False))

    def _move(self, is_training, share):
        with no_grad():
            for group in self.param_groups:
                for p in group["params"] if group["train_mode"] != is_training else ():
                    z = self.state[p].get("z") if p in self.state else None
                    if z is not None:
                        lib.tl_copy_(p, p.detach().to(z.dtype).lerp(z, share(group["betas"][0])))
                group["train_mode"] = is_training

    def train(self):
        """Parameters become y, with which the next step needs its gradients."""
        self._move(True, lambda beta1: 1 - beta1)

    def eval(self):
        """Parameters become x, the average: evaluate and save these."""
        self._move(False, lambda beta1: 1 - 1 / beta1)

    def _begin(self, group):
        if not group["train_mode"]:
            raise RuntimeError("Optimizer was not in train mode when step is called. Please insert .train() and "
                               ".eval() calls on the optimizer.")
        k = group["k"]
        lr = float(group["lr"]) * ((k + 1) / group["warmup_steps"] if k < group["warmup_steps"] else 1.0)
        group.update(k=k + 1, scheduled_lr=lr, lr_max=max(lr, group["lr_max"]))
        weight = (k + 1) ** group["r"] * group["lr_max"] ** group["weight_lr_power"]
        group["weight_sum"] += weight
        self._share = weight / group["weight_sum"] if group["weight_sum"] else 0.0

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(z=zeros_for(p), exp_avg_sq=zeros_for(p))
            lib.tl_copy_(state["z"], p)
        beta1, beta2 = group["betas"]
        options = _options("tl_schedule_free_options", lr=group["scheduled_lr"], beta1=float(beta1),
                           beta2=float(beta2), eps=group["eps"], weight_decay=group["weight_decay"],
                           share=self._share, step=group["k"])
        lib.tl_schedule_free_(p, grad, state["z"], state["exp_avg_sq"], ctypes.addressof(options))


class Muon(Fused):
    """p = p (1 - lr weight_decay) - lr' NewtonSchulz(momentum), for matrices; torch.optim.Muon"""

    def __init__(self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True,
                 ns_coefficients=(3.4445, -4.7750, 2.0315), eps=1e-7, ns_steps=5, adjust_lr_fn=None):
        check(lr >= 0.0, f"Learning rate should be >= 0 but is: {lr}")
        check(momentum >= 0.0, f"momentum should be >= 0 but is: {momentum}")
        check(weight_decay >= 0.0, f"weight decay should be >= 0 but is: {weight_decay}")
        check(adjust_lr_fn in (None, "original", "match_rms_adamw"),
              f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                                      ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps,
                                      adjust_lr_fn=adjust_lr_fn, maximize=False))
        for group in self.param_groups:
            for p in group["params"]:
                check(p.ndim == 2,
                      f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}")

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(momentum_buffer=zeros_for(p))
        a, b, c = group["ns_coefficients"]
        options = _options("tl_muon_options", lr=float(group["lr"]), momentum=group["momentum"],
                           weight_decay=group["weight_decay"], eps=group["eps"], a=a, b=b, c=c,
                           ns_steps=group["ns_steps"], nesterov=group["nesterov"],
                           matches_adamw=group["adjust_lr_fn"] == "match_rms_adamw")
        lib.tl_muon_(p, grad, state["momentum_buffer"], ctypes.addressof(options))


_COMPOSED = ["ASGD", "Adadelta", "Adafactor", "Adamax", "LBFGS", "NAdam", "RAdam", "Rprop"]  # imported when asked for
__all__ = ["Adagrad", "Adam", "AdamW", "AdamWScheduleFree", "Lion", "Muon", "Optimizer", "RMSprop", "SGD",
           "lr_scheduler", *_COMPOSED]


def __getattr__(name):
    if name in _COMPOSED:
        from . import composed
        return getattr(composed, name)
    if name == "swa_utils":
        import importlib
        return importlib.import_module(".swa_utils", __name__)
    raise AttributeError(f"module 'tally.optim' has no attribute '{name}'")
