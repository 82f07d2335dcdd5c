"""Optimizers that are written with tensors, one op after the other: NAdam, RAdam, Adamax, Adadelta, ASGD, Rprop,
LBFGS; and Adafactor, whose ops the library calls. The formulas are torch's, in its order of operations."""
import ctypes
import math

from .. import _functions as f
from .._grad import enable_grad
from .._library import lib
from . import _options as fused_options
from .optimizer import Fused, Optimizer, check, refuse_differentiable, zeros_for


def _check_adam(lr, betas, eps, weight_decay):
    check(lr >= 0.0, f"Invalid learning rate: {lr}")
    check(eps >= 0.0, f"Invalid epsilon value: {eps}")
    for i in (0, 1):
        check(0.0 <= betas[i] < 1.0, f"Invalid beta parameter at index {i}: {betas[i]}")
    check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")


class _Composed(Fused):
    """Computes in the state's dtype: f32, or f64 of f64."""

    def _wide(self, p, grad, group, decoupled=False):
        """(p, grad) in the state's dtype, with weight decay."""
        kind = zeros_for(p).dtype
        x, g = p.detach().to(kind), grad.to(kind)
        if group["weight_decay"] != 0:
            if decoupled:
                x = x * (1 - group["lr"] * group["weight_decay"])
            else:
                g = g.add(x, alpha=group["weight_decay"])
        return x, g


class NAdam(_Composed):
    """Adam with Nesterov's momentum."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
                 decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False):
        _check_adam(lr, betas, eps, weight_decay)
        check(momentum_decay >= 0.0, f"Invalid momentum_decay value: {momentum_decay}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay,
                                      momentum_decay=momentum_decay, decoupled_weight_decay=decoupled_weight_decay,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, mu_product=1.0, exp_avg=zeros_for(p), exp_avg_sq=zeros_for(p))
        state["step"] += 1
        t, (beta1, beta2), decay = state["step"], group["betas"], group["momentum_decay"]
        x, g = self._wide(p, grad, group, group["decoupled_weight_decay"])
        mu = beta1 * (1 - 0.5 * 0.96 ** (t * decay))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((t + 1) * decay))
        state["mu_product"] *= mu
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        denominator = (state["exp_avg_sq"] / (1 - beta2 ** t)).sqrt().add_(group["eps"])
        lr = float(group["lr"])
        x = x.addcdiv(g, denominator, value=-lr * (1 - mu) / (1 - state["mu_product"]))
        x = x.addcdiv(state["exp_avg"], denominator, value=-lr * mu_next / (1 - state["mu_product"] * mu_next))
        lib.tl_copy_(p, x)


class RAdam(_Composed):
    """Adam whose first steps, where the variance is not known yet, are those of a momentum."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
                 foreach=None, maximize=False, capturable=False, differentiable=False):
        _check_adam(lr, betas, eps, weight_decay)
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      foreach=foreach, capturable=capturable, differentiable=differentiable,
                                      decoupled_weight_decay=decoupled_weight_decay))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, exp_avg=zeros_for(p), exp_avg_sq=zeros_for(p))
        state["step"] += 1
        t, (beta1, beta2) = state["step"], group["betas"]
        x, g = self._wide(p, grad, group, group["decoupled_weight_decay"])
        state["exp_avg"].lerp_(g, 1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        right1, right2 = 1 - beta1 ** t, 1 - beta2 ** t
        mean = state["exp_avg"] / right1
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * t * beta2 ** t / right2
        step = mean * float(group["lr"])
        if rho > 5:
            rect = math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))
            step = step * (math.sqrt(right2) / state["exp_avg_sq"].sqrt().add_(group["eps"])) * rect
        lib.tl_copy_(p, x - step)


class Adamax(_Composed):
    """Adam with the largest gradient in place of the root of the mean square."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):
        _check_adam(lr, betas, eps, weight_decay)
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach,
                                      maximize=maximize, differentiable=differentiable, capturable=capturable))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, exp_avg=zeros_for(p), exp_inf=zeros_for(p))
        state["step"] += 1
        beta1, beta2 = group["betas"]
        x, g = self._wide(p, grad, group)
        state["exp_avg"].lerp_(g, 1 - beta1)
        lib.tl_copy_(state["exp_inf"], f.maximum(state["exp_inf"] * beta2, g.abs() + group["eps"]))
        lib.tl_copy_(p, x.addcdiv(state["exp_avg"], state["exp_inf"],
                                  value=-float(group["lr"]) / (1 - beta1 ** state["step"])))


class Adadelta(_Composed):
    """Steps as long as the running mean of past steps over that of past gradients."""

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False,
                 maximize=False, differentiable=False):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(0.0 <= rho <= 1.0, f"Invalid rho value: {rho}")
        check(eps >= 0.0, f"Invalid epsilon value: {eps}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize,
                                      capturable=capturable, foreach=foreach, differentiable=differentiable))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, square_avg=zeros_for(p), acc_delta=zeros_for(p))
        state["step"] += 1
        rho, eps = group["rho"], group["eps"]
        x, g = self._wide(p, grad, group)
        state["square_avg"].mul_(rho).addcmul_(g, g, value=1 - rho)
        delta = (state["acc_delta"] + eps).sqrt() / (state["square_avg"] + eps).sqrt() * g
        state["acc_delta"].mul_(rho).addcmul_(delta, delta, value=1 - rho)
        lib.tl_copy_(p, x.add(delta, alpha=-float(group["lr"])))


class ASGD(_Composed):
    """SGD, and the mean of the parameters over the steps in state["ax"]."""

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(weight_decay >= 0.0, f"Invalid weight_decay value: {weight_decay}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize, differentiable=differentiable,
                                      capturable=capturable))

    def _update(self, p, grad, states, group):
        state, lr = states[p], float(group["lr"])
        if not state:
            state.update(step=0, eta=lr, mu=1.0, ax=zeros_for(p))
        state["step"] += 1
        x, g = self._wide(p, grad, group)
        x = (x * (1 - group["lambd"] * state["eta"])).add(g, alpha=-state["eta"])
        if state["mu"] != 1:
            state["ax"].add_((x - state["ax"]) * state["mu"])
        else:
            lib.tl_copy_(state["ax"], x)
        state["eta"] = lr / (1 + group["lambd"] * lr * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1, state["step"] - group["t0"])
        lib.tl_copy_(p, x)


class Rprop(_Composed):
    """Each element has its own step, which grows while the sign of its gradient stays."""

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None,
                 maximize=False, differentiable=False):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        check(0.0 < etas[0] < 1.0 < etas[1], f"Invalid eta values: {etas[0]}, {etas[1]}")
        refuse_differentiable(differentiable)
        super().__init__(params, dict(lr=lr, etas=etas, step_sizes=step_sizes, foreach=foreach, maximize=maximize,
                                      differentiable=differentiable, capturable=capturable, weight_decay=0))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            state.update(step=0, prev=zeros_for(p), step_size=zeros_for(p, float(group["lr"])))
        state["step"] += 1
        x, g = self._wide(p, grad, group)
        low, high = group["etas"]
        same = (g * state["prev"]).sign()
        factor = f.where(same > 0, high, f.where(same < 0, low, f.where(same == 0, 1.0, same)))
        lib.tl_copy_(state["step_size"], (state["step_size"] * factor).clamp(*group["step_sizes"]))
        g = f.where(factor == low, 0.0, g)
        lib.tl_copy_(p, x.addcmul(g.sign(), state["step_size"], value=-1))
        lib.tl_copy_(state["prev"], g)


class Adafactor(_Composed):
    """Adam whose second moment of a matrix is the product of a row and a column."""

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None,
                 maximize=False):
        check(lr >= 0.0, f"Learning rate should be >= 0 but is: {lr}")
        check(beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        check(eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        check(eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        check(d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}")
        check(weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize))

    def _update(self, p, grad, states, group):
        state = states[p]
        if not state:
            like = zeros_for(p)
            state.update(step=0)
            if p.ndim > 1:
                state.update(row_var=like[..., :1].clone(), col_var=like[..., :1, :].clone())
            else:
                state.update(variance=like)
        state["step"] += 1
        eps1, eps2 = group["eps"]
        eps1 = 0.0 if eps1 is None else max(eps1, 5e-324)  # 0 stands for None there
        options = fused_options("tl_adafactor_options", lr=float(group["lr"]), beta2_decay=group["beta2_decay"],
                                eps1=eps1, eps2=eps2, d=group["d"], weight_decay=group["weight_decay"],
                                step=state["step"])
        lib.tl_adafactor_(p, grad, state.get("row_var"), state.get("col_var"), state.get("variance"),
                          ctypes.addressof(options))


def _cubic(x1, f1, g1, x2, f2, g2, bounds=None):
    """The minimum of the cubic through two points with these slopes."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 ** 2 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2)) if x1 <= x2 else \
        x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


class _Search:
    """A line search for the strong Wolfe conditions: sufficient decrease (c1), and a slope that has shrunk (c2)."""

    def __init__(self, evaluate, d, loss, grad, slope, c1=1e-4, c2=0.9, tolerance_change=1e-9, max_ls=25):
        self.evaluate, self.norm = evaluate, d.abs().max().item()
        self.d, self.loss, self.grad, self.slope = d, loss, grad, slope
        self.c1, self.c2, self.tolerance, self.max_ls, self.n_evals = c1, c2, tolerance_change, max_ls, 0

    def at(self, t):
        loss, grad = self.evaluate(t)
        self.n_evals += 1
        return loss, grad, grad.dot(self.d).item()

    def bracket(self, t):
        """[(t, loss, grad, slope), ...] of one point that will do, or of two with one between them."""
        before = (0, self.loss, self.grad, self.slope)
        new = (t, *self.at(t))
        n = 0
        while n < self.max_ls:
            if new[1] > self.loss + self.c1 * new[0] * self.slope or (n > 1 and new[1] >= before[1]):
                return [before, new], n, False
            if abs(new[3]) <= -self.c2 * self.slope:
                return [new], n, True
            if new[3] >= 0:
                return [before, new], n, False
            t = new[0]
            step = _cubic(before[0], before[1], before[3], t, new[1], new[3],
                          (t + 0.01 * (t - before[0]), t * 10))
            before, new = new, (step, *self.at(step))
            n += 1
        return [(0, self.loss, self.grad, self.slope), new], n, False

    def run(self, t):
        points, n, is_done = self.bracket(t)
        if len(points) == 1:
            t, loss, grad, _ = points[0]
            return loss, grad, t, self.n_evals
        low, high = (0, 1) if points[0][1] <= points[-1][1] else (1, 0)
        lacks_progress = False
        while not is_done and n < self.max_ls:
            if abs(points[1][0] - points[0][0]) * self.norm < self.tolerance:
                break
            a, b = points
            t = _cubic(a[0], a[1], a[3], b[0], b[1], b[3])
            ends = (a[0], b[0])
            margin = 0.1 * (max(ends) - min(ends))
            if min(max(ends) - t, t - min(ends)) < margin:
                if lacks_progress or t >= max(ends) or t <= min(ends):
                    t = max(ends) - margin if abs(t - max(ends)) < abs(t - min(ends)) else min(ends) + margin
                    lacks_progress = False
                else:
                    lacks_progress = True
            else:
                lacks_progress = False
            new = (t, *self.at(t))
            n += 1
            if new[1] > self.loss + self.c1 * t * self.slope or new[1] >= points[low][1]:
                points[high] = new
                low, high = (0, 1) if points[0][1] <= points[1][1] else (1, 0)
            else:
                if abs(new[3]) <= -self.c2 * self.slope:
                    is_done = True
                elif new[3] * (points[high][0] - points[low][0]) >= 0:
                    points[high] = points[low]
                points[low] = new
        t, loss, grad, _ = points[low]
        return loss, grad, t, self.n_evals


class LBFGS(Optimizer):
    """Quasi-Newton: directions from the last `history_size` differences of parameters and gradients."""

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9,
                 history_size=100, line_search_fn=None):
        check(lr >= 0.0, f"Invalid learning rate: {lr}")
        super().__init__(params, dict(lr=lr, max_iter=max_iter,
                                      max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                                      tolerance_grad=tolerance_grad, tolerance_change=tolerance_change,
                                      history_size=history_size, line_search_fn=line_search_fn))
        check(len(self.param_groups) == 1, "LBFGS doesn't support per-parameter options (parameter groups)")
        check(line_search_fn in (None, "strong_wolfe"), "only 'strong_wolfe' is supported")
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self):
        return f.cat([(p.detach() * 0 if p.grad is None else p.grad).reshape(-1) for p in self._params])

    def _move(self, t, direction):
        at = 0
        for p in self._params:
            n = p.numel()
            p.data.add_(direction[at:at + n].view_as(p), alpha=t)
            at += n

    def _at(self, closure, start, t, d):
        self._move(t, d)
        loss, grad = float(closure()), self._flat_grad()
        for p, x in zip(self._params, start):
            p.data.copy_(x)
        return loss, grad

    def _direction(self, state, grad):
        """-H grad, by the two loops over the history."""
        q, past = -grad, list(zip(state["old_dirs"], state["old_stps"], state["ro"]))
        alphas = []
        for y, s, ro in reversed(past):
            alphas.append(s.dot(q) * ro)
            q = q.add(y * -alphas[-1])
        d = q * state["H_diag"]
        for (y, s, ro), alpha in zip(past, reversed(alphas)):
            d = d.add(s * (alpha - y.dot(d) * ro))
        return d

    def step(self, closure):
        """Up to max_iter steps. closure clears the gradients, computes the loss and calls backward."""
        group, state = self.param_groups[0], self.state[self._params[0]]

        def evaluate():
            with enable_grad():
                return closure()
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = evaluate()
        loss, n_evals = float(first), 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if grad.abs().max().item() <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            loss, grad, used, is_over = self._iterate(evaluate, state, group, loss, grad, n)
            n_evals += used
            state["func_evals"] += used
            if is_over or n_evals >= group["max_eval"]:
                break
        return first

    def _iterate(self, evaluate, state, group, loss, grad, n):
        """One step: (loss, gradient, evaluations, whether it was the last)"""
        state["n_iter"] += 1
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            d = -grad
        else:
            y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
            ys = y.dot(s).item()
            if ys > 1e-10:
                for name, value in (("old_dirs", y), ("old_stps", s), ("ro", 1.0 / ys)):
                    state[name].append(value)
                    del state[name][:-group["history_size"]]
                state["H_diag"] = ys / y.dot(y).item()
            d = self._direction(state, grad)
        state["prev_flat_grad"], before = grad.clone(), loss
        lr = group["lr"]
        t = min(1.0, 1.0 / grad.abs().sum().item()) * lr if state["n_iter"] == 1 else lr
        slope, used = grad.dot(d).item(), 0
        state["d"], state["t"] = d, t
        if slope > -group["tolerance_change"]:
            return loss, grad, 0, True
        if group["line_search_fn"] == "strong_wolfe":
            start = [p.detach().clone() for p in self._params]
            search = _Search(lambda step: self._at(evaluate, start, step, d), d, loss, grad, slope,
                             tolerance_change=group["tolerance_change"])
            loss, grad, t, used = search.run(t)
            self._move(t, d)
        else:
            self._move(t, d)
            if n != group["max_iter"]:
                loss, grad, used = float(evaluate()), self._flat_grad(), 1
        state["t"] = t
        is_over = (grad.abs().max().item() <= group["tolerance_grad"]
                   or (d * t).abs().max().item() <= group["tolerance_change"]
                   or abs(loss - before) < group["tolerance_change"])
        return loss, grad, used, is_over
