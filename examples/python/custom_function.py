"""A function with a hand-written gradient: rounding with a straight-through estimator.

    PYTHONPATH=python python3 examples/python/custom_function.py

Rounding has derivative 0, so no gradient flows through it. The straight-through estimator rounds in the forward pass
and passes the gradient through in the backward pass, but only inside the range of the rounded numbers; outside, a
change of x has no effect. This program learns a vector whose rounded values reproduce given numbers, together with the
scale of the grid.
"""
import argparse

import tally
from tally.autograd import Function


class RoundTo(Function):
    """scale * round(x / scale), with at most `levels` steps to either side."""

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
        # d(scale * steps) / d scale: steps, and inside the range also -x / scale from the division, straight through
        # the rounding
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
