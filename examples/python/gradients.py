"""Gradients: by backward(), checked by finite differences; and second derivatives.

    PYTHONPATH=python python3 examples/python/gradients.py

prints

    f = 4.25, gradient [3.25, -1.0, 2.0]
    finite differences [3.25, -1.0, 2.0]
    the gradient of the gradient's sum [5.0, 1.0, 0.0]
"""
import tally


def f(x):
    return x[0] ** 3 + x[0] * x[1] ** 2 + 2 * x[2]


point = [1.0, -0.5, 1.5]
x = tally.tensor(point, dtype=tally.float64, requires_grad=True)
y = f(x)  # recorded as it runs
y.backward()
print(f"f = {y.item()}, gradient {x.grad.tolist()}")

h = 1e-5
slopes = []
for i in range(3):  # (f(x + h) - f(x - h)) / 2h, along each axis
    above, below = ([p + sign * h * (i == j) for j, p in enumerate(point)] for sign in (1, -1))
    slopes.append((f(above) - f(below)) / (2 * h))
print("finite differences", [round(s, 6) for s in slopes])

# create_graph records the backward pass too, so that its result can be differentiated.
(first,) = tally.autograd.grad(f(x), x, create_graph=True)
(second,) = tally.autograd.grad(first.sum(), x)
print("the gradient of the gradient's sum", second.tolist())
