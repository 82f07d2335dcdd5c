"""Learning-rate schedules. Each step() computes the next rates from the current ones, as torch does, so schedules can
be chained."""
import bisect
import collections
import math
import types
import warnings

from .optimizer import Optimizer


class LRScheduler:
    """The base class: get_lr() returns one rate per group, from last_epoch, base_lrs and the groups' current rates."""

    def __init__(self, optimizer, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                               "last_epoch >= 0.\n"
                               "This typically happens when:\n1. You're trying to resume training from a checkpoint "
                               "but haven't properly loaded the optimizer state\n2. You're using last_epoch >= 0 for a "
                               "fresh training run (not recommended)")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        self._step_count, self._is_initial = 0, True
        self.step()
        self._is_initial = False

    def state_dict(self):
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)

    def get_last_lr(self):
        return self._last_lr

    def get_lr(self):
        raise NotImplementedError

    def _rates(self):
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch=None):
        if self._step_count == 1 and not getattr(self.optimizer, "_opt_called", False):
            warnings.warn("Detected call of `lr_scheduler.step()` before `optimizer.step()`: the first value of the "
                          "schedule is skipped.",
                          UserWarning, 2)
        self._step_count += 1
        if epoch is not None:
            warnings.warn("The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
                          "possible.", UserWarning, 2)
        self._update_lr(epoch)

    def _update_lr(self, epoch=None):
        self._get_lr_called_within_step = True
        if epoch is None:
            self.last_epoch += 1
            rates = self.get_lr()
        else:
            self.last_epoch = epoch
            rates = self._get_closed_form_lr() if hasattr(self, "_get_closed_form_lr") else self.get_lr()
        self._get_lr_called_within_step = False
        self._set(rates)

    def _set(self, rates):
        for group, lr in zip(self.optimizer.param_groups, rates):
            group["lr"] = lr
        self._last_lr = self._rates()


_LRScheduler = LRScheduler


class LambdaLR(LRScheduler):
    """The first rate times lr_lambda(epoch)."""

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        n = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * n
        if len(self.lr_lambdas) != n:
            raise ValueError(f"Expected {n} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def state_dict(self):
        """Functions are not saved, only the state of callable objects."""
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "lr_lambdas")}
        state["lr_lambdas"] = [None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict):
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, state in zip(self.lr_lambdas, state_dict["lr_lambdas"]):
            if state is not None:
                f.__dict__.update(state)

    def get_lr(self):
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs)]


class MultiplicativeLR(LambdaLR):
    """The current rate times lr_lambda(epoch)."""

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        return [lr * f(self.last_epoch) for f, lr in zip(self.lr_lambdas, self._rates())]


class StepLR(LRScheduler):
    """times gamma every step_size epochs"""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return self._rates()
        return [lr * self.gamma for lr in self._rates()]

    def _get_closed_form_lr(self):
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """times gamma at each milestone"""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = collections.Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch not in self.milestones:
            return self._rates()
        return [lr * self.gamma ** self.milestones[self.last_epoch] for lr in self._rates()]

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.milestones = collections.Counter(self.milestones)  # a file gives a plain dict

    def _get_closed_form_lr(self):
        n = bisect.bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma ** n for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """times factor for the first total_iters epochs"""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if factor > 1.0 or factor < 0:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._rates()]
        if self.last_epoch != self.total_iters:
            return self._rates()
        return [lr * (1.0 / self.factor) for lr in self._rates()]

    def _get_closed_form_lr(self):
        return [base * (self.factor + (self.last_epoch >= self.total_iters) * (1 - self.factor))
                for base in self.base_lrs]


class LinearLR(LRScheduler):
    """times a factor that goes from start_factor to end_factor in total_iters epochs"""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if start_factor > 1.0 or start_factor <= 0:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if end_factor > 1.0 or end_factor < 0:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._rates()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        change = self.end_factor - self.start_factor
        factor = 1.0 + change / (self.total_iters * self.start_factor + (self.last_epoch - 1) * change)
        return [lr * factor for lr in self._rates()]

    def _get_closed_form_lr(self):
        part = min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + (self.end_factor - self.start_factor) * part) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """times gamma every epoch"""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        return [lr * self.gamma for lr in self._rates()]

    def _get_closed_form_lr(self):
        return [base * self.gamma ** self.last_epoch for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """base (1 - epoch / total_iters)^power"""

    def __init__(self, optimizer, total_iters=5, power=1.0, last_epoch=-1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._rates()
        left = 1.0 - self.last_epoch / self.total_iters
        before = 1.0 - (self.last_epoch - 1) / self.total_iters
        return [lr * (left / before) ** self.power for lr in self._rates()]

    def _get_closed_form_lr(self):
        left = 1.0 - min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * left ** self.power for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """eta_min + (base - eta_min) (1 + cos(pi epoch / T_max)) / 2"""

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self._is_initial:
            return self._rates()
        t, last = self.T_max, self.last_epoch
        if self._step_count == 1 and last > 0:
            return self._get_closed_form_lr()
        if (last - 1 - t) % (2 * t) == 0:  # at the bottom the quotient below is 0/0
            return [lr + (base - self.eta_min) * (1 - math.cos(math.pi / t)) / 2
                    for base, lr in zip(self.base_lrs, self._rates())]
        factor = (1 + math.cos(math.pi * last / t)) / (1 + math.cos(math.pi * (last - 1) / t))
        return [factor * (lr - self.eta_min) + self.eta_min for lr in self._rates()]

    def _get_closed_form_lr(self):
        return [self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
                for base in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Repeats half a cosine from the first rate to eta_min. Each period is T_mult times as long as the one before."""

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_i, self.T_mult, self.eta_min, self.T_cur = T_0, T_0, T_mult, eta_min, last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
                for base in self.base_lrs]

    def step(self, epoch=None):
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
        else:
            if epoch < 0:
                raise ValueError(f"Expected non-negative epoch, but got {epoch}")
            self._place(epoch)
        self.last_epoch, self._get_lr_called_within_step = math.floor(epoch), False
        self._set(self.get_lr())

    def _place(self, epoch):
        """T_cur and T_i of any epoch."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult ** n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult ** n


class SequentialLR(LRScheduler):
    """One schedule after the other, changing at milestones."""

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) < 1:
            raise ValueError(f"{type(self).__name__} expects at least one scheduler to be chained, but got no "
                             "scheduler.")
        for i, s in enumerate(schedulers):
            if s.optimizer is not optimizer:
                raise ValueError(f"{type(self).__name__} expects all schedulers to belong to the same optimizer, but "
                                 f"got scheduler {type(s).__name__} at index {i} has {s.optimizer}, which is different "
                                 f"from {type(optimizer).__name__}.")
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the "
                             f"number of milestone points, but got number of schedulers {len(schedulers)} and the "
                             f"number of milestones to be equal to {len(milestones)}")
        self._schedulers, self._milestones = schedulers, milestones
        self.last_epoch, self.optimizer = last_epoch + 1, optimizer
        for group in optimizer.param_groups:  # each scheduler has taken its first step: undo them
            group["lr"] = group["initial_lr"]
        _undo(self)
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self):
        self.last_epoch += 1
        i = bisect.bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self):
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict):
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for s, state in zip(self._schedulers, state_dict["_schedulers"]):
            s.load_state_dict(state)


def _undo(scheduler):
    for s in scheduler._schedulers:
        if hasattr(s, "_schedulers"):
            _undo(s)
        else:
            s.last_epoch -= 1


class ChainedScheduler(LRScheduler):
    """Several schedules at once: each modifies the rate of the one before."""

    def __init__(self, schedulers, optimizer=None):
        self._schedulers = list(schedulers)
        self.optimizer = optimizer or self._schedulers[0].optimizer
        self._last_lr = self._rates()

    def step(self):
        for s in self._schedulers:
            s.step()
        self._last_lr = self._rates()

    state_dict, load_state_dict = SequentialLR.state_dict, SequentialLR.load_state_dict


class OneCycleLR(LRScheduler):
    """Up to max_lr and down to nearly zero in one cycle, with momentum the other way."""

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1):
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps = epochs * steps_per_epoch if total_steps is None else total_steps
        self._anneal_func_type, self.cycle_momentum = anneal_strategy, cycle_momentum
        self._schedule_phases = self._phases(pct_start, three_phase)
        rates = max_lr if isinstance(max_lr, (list, tuple)) else [max_lr] * len(optimizer.param_groups)
        for group, top in zip(optimizer.param_groups, rates):
            if last_epoch == -1:
                group["initial_lr"] = top / div_factor
                group["max_lr"], group["min_lr"] = top, group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _phases(self, pct_start, three_phase):
        """[(end step, from rate, to rate, from momentum, to momentum)]"""
        up = float(pct_start * self.total_steps) - 1
        if three_phase:
            return [(up, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                    (float(2 * pct_start * self.total_steps) - 2, "max_lr", "initial_lr", "base_momentum",
                     "max_momentum"),
                    (self.total_steps - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum")]
        return [(up, "initial_lr", "max_lr", "max_momentum", "base_momentum"),
                (self.total_steps - 1, "max_lr", "min_lr", "base_momentum", "max_momentum")]

    def _start_momentum(self, optimizer, base, top, last_epoch):
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        if last_epoch == -1:
            for group in optimizer.param_groups:
                self._set_momentum(group, top)
                group["max_momentum"], group["base_momentum"] = top, base

    def _set_momentum(self, group, value):
        if self.use_beta1:
            group["betas"] = (value, *group["betas"][1:])
        else:
            group["momentum"] = value

    def _anneal(self, a, b, part):
        return (b + (a - b) / 2.0 * (math.cos(math.pi * part) + 1) if self._anneal_func_type == "cos"
                else (b - a) * part + a)

    def get_lr(self):
        step, rates = self.last_epoch, []
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The total number of steps is {self.total_steps}")
        for group in self.optimizer.param_groups:
            start = 0.0
            for i, (end, lr0, lr1, m0, m1) in enumerate(self._schedule_phases):
                if step <= end or i == len(self._schedule_phases) - 1:
                    part = (step - start) / (end - start)
                    rates.append(self._anneal(group[lr0], group[lr1], part))
                    if self.cycle_momentum:
                        self._set_momentum(group, self._anneal(group[m0], group[m1], part))
                    break
                start = end
        return rates


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rates by `factor` when a measure has not become better for more than `patience` steps."""

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0,
                 min_lr=0, eps=1e-8):
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError("mode " + mode + " is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError("threshold mode " + threshold_mode + " is unknown!")
        groups = optimizer.param_groups
        if isinstance(min_lr, (list, tuple)) and len(min_lr) != len(groups):
            raise ValueError(f"expected {len(groups)} min_lrs, got {len(min_lr)}")
        self.optimizer, self.factor, self.patience, self.cooldown, self.eps = optimizer, factor, patience, cooldown, eps
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * len(groups)
        self.mode, self.threshold, self.threshold_mode, self.last_epoch = mode, threshold, threshold_mode, 0
        self._last_lr = [group["lr"] for group in groups]
        self.best, self.num_bad_epochs, self.cooldown_counter = math.inf if mode == "min" else -math.inf, 0, 0

    def _is_better(self, a):
        sign = -1 if self.mode == "min" else 1
        bound = (self.best * (1 + sign * self.threshold) if self.threshold_mode == "rel"
                 else self.best + sign * self.threshold)
        return a < bound if self.mode == "min" else a > bound

    def step(self, metrics, epoch=None):
        current = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs):
                rate = max(group["lr"] * self.factor, least)
                if group["lr"] - rate > self.eps:
                    group["lr"] = rate
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    @property
    def in_cooldown(self):
        return self.cooldown_counter > 0

    def get_lr(self):
        return self._last_lr


class CyclicLR(LRScheduler):
    """Rates that go up and down between base_lr and max_lr."""

    def __init__(self, optimizer, base_lr, max_lr, step_size_up=2000, step_size_down=None, mode="triangular", gamma=1.0,
                 scale_fn=None, scale_mode="cycle", cycle_momentum=True, base_momentum=0.8, max_momentum=0.9,
                 last_epoch=-1):
        n = len(optimizer.param_groups)
        self.max_lrs = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * n
        bases = list(base_lr) if isinstance(base_lr, (list, tuple)) else [base_lr] * n
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        up, down = float(step_size_up), float(step_size_up if step_size_down is None else step_size_down)
        self.total_size, self.step_ratio, self.mode, self.gamma = up + down, up / (up + down), mode, gamma
        self._scale_fn, self._by_cycle = scale_fn, (scale_mode == "cycle") if scale_fn else mode != "exp_range"
        self.cycle_momentum, self._momenta = cycle_momentum, (base_momentum, max_momentum)
        for group, lr in zip(optimizer.param_groups, bases):
            if last_epoch == -1:
                group["lr"] = lr
        if cycle_momentum and not any(k in optimizer.defaults for k in ("momentum", "betas")):
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        super().__init__(optimizer, last_epoch)
        self.base_lrs = bases

    def _scale(self, x):
        if self._scale_fn is not None:
            return self._scale_fn(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1), "exp_range": self.gamma ** x}[self.mode]

    def get_lr(self):
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self._scale(cycle if self._by_cycle else self.last_epoch)
        rates = [low + (high - low) * height * scale for low, high in zip(self.base_lrs, self.max_lrs)]
        if self.cycle_momentum:
            low, high = self._momenta
            momentum = high - (high - low) * height * scale
            for group in self.optimizer.param_groups:
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return rates


_LRScheduler = LRScheduler
