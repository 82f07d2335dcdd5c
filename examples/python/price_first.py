"""The price of a step, before any of it runs: FLOPs, bytes and peak memory, to the last one. The receipt agrees.

    PYTHONPATH=python python3 examples/python/price_first.py

prints

    a step on 32 rows: 35,654,498 FLOPs, 4,010,084 bytes moved
    price - receipt: 0 FLOPs, 0 bytes
    64 times as wide: 2,281,704,290 FLOPs
"""
import tally
from tally import nn
from tally.nn import functional as F


def make(width, device):
    return nn.Sequential(nn.Linear(256, width, device=device), nn.ReLU(), nn.Linear(width, 10, device=device))


def step(model, x, labels):
    F.cross_entropy(model(x), labels).backward()


shapes = (32, 256), ((32,), tally.int64)
model = make(1024, "cpu")
price = tally.price(step, model, *shapes)
print(f"a step on 32 rows: {price.flops:,} FLOPs, {price.bytes:,} bytes moved")

x, labels = tally.randn(32, 256), tally.randint(0, 10, (32,))
with tally.ledger() as receipt:
    step(model, x, labels)
print(f"price - receipt: {price.flops - receipt.flops} FLOPs, {price.bytes - receipt.bytes} bytes")

# On meta a model has shapes and no data: a price needs neither the memory nor the time of the step.
wide = tally.price(step, make(64 * 1024, "meta"), *shapes)
print(f"64 times as wide: {wide.flops:,} FLOPs")
