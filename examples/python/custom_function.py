"""A function with a derivative of its own: rounding that lets gradients through.

    PYTHONPATH=python python3 examples/python/custom_function.py

Rounding has the derivative 0, so nothing can be learned behind it. The straight-through estimator rounds on the way forward and on the
way back pretends that it had not, but only inside the range that the rounded numbers have: outside, a change of x changes nothing. Here
a vector is learned whose rounded values reproduce given numbers. The scale of the grid is learned with it.
"""
import argparse

import tally
from tally.autograd import Function


class RoundTo(Function):
    """scale * round(x / scale), of at most `levels` steps to either side."""

    @staticmethod
    def forward(ctx, x, scale, levels):
        steps = (x / scale).round().clamp(-levels, levels)
        ctx.save_for_backward(x, scale, steps)
        ctx.levels = levels
        return steps * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale, steps = ctx.saved_tensors
        is_inside = (x / scale).abs() <= ctx.levels
        # d(scale * steps): steps by scale itself, and inside -x / scale by the division, which rounding lets through
        of_scale = tally.where(is_inside, steps - x / scale, steps)
        return grad * is_inside, (grad * of_scale).sum().reshape(scale.shape), None


def fit(steps, say=print):
    tally.manual_seed(1)
    wanted = tally.randn(64)
    x, scale = tally.zeros(64, requires_grad=True), tally.tensor(1.0, requires_grad=True)
    optimizer = tally.optim.Adam([x, scale], lr=0.02)
    losses = []
    for step in range(steps):
        loss = (RoundTo.apply(x, scale, 7) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == steps - 1:
            say(f"step {step:4}  loss {losses[-1]:.5f}  scale {scale.item():.4f}")
    return losses, scale.item()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    fit(parser.parse_args().steps)
