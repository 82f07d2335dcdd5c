"""A training loop that is interrupted, saved and resumed: the weights are those of a loop without a pause, bit for bit.

    PYTHONPATH=python python3 examples/python/save_and_resume.py

prints

    20 steps at once, and 8 + 12 from a file: equal
    the file has model, optimizer, step, random
"""
import os
import tempfile

import tally
from tally import nn

x = tally.linspace(-2, 2, 128)[:, None]
y = tally.sin(2 * x)


def new():
    tally.manual_seed(1)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
    return model, tally.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, first, last):
    for _ in range(first, last):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


whole, optimizer = new()
train(whole, optimizer, 0, 20)

path = os.path.join(tempfile.mkdtemp(), "half.safetensors")
model, optimizer = new()
train(model, optimizer, 0, 8)
tally.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 8,
            "random": tally.get_rng_state()}, path)

model, optimizer = new()  # as in a new process
state = tally.load(path)
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
tally.set_rng_state(state["random"])  # dropout draws on from where it was
train(model, optimizer, state["step"], 20)

same = all(a.equal(b) for a, b in zip(whole.parameters(), model.parameters()))
print("20 steps at once, and 8 + 12 from a file:", "equal" if same else "different")
print("the file has", ", ".join(state))
