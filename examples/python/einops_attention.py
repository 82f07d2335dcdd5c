"""Attention written with einops: axes have names, and the code says what happens to each.

    PYTHONPATH=python python3 examples/python/einops_attention.py

prints

    q (2, 3, 5, 4), weights (2, 3, 5, 5), out (2, 5, 12)
    largest difference from the fused op: below 1e-6
    each token sees itself and those before it: [1, 2, 3, 4, 5]
"""
import tally
from tally.einops import einsum, rearrange
from tally.nn import functional as F

HEADS = 3

tally.manual_seed(1)
x, w = tally.randn(2, 5, 12), tally.randn(12, 36) / 12 ** 0.5
q, k, v = rearrange(x @ w, "batch time (part head width) -> part batch head time width", part=3, head=HEADS)
scores = einsum(q, k, "batch head query width, batch head key width -> batch head query key") / q.shape[-1] ** 0.5
is_later = tally.ones(5, 5, dtype=tally.bool).triu(1)
weights = scores.masked_fill(is_later, float("-inf")).softmax(-1)
mixed = einsum(weights, v, "batch head query key, batch head key width -> batch head query width")
out = rearrange(mixed, "batch head time width -> batch time (head width)")
print(f"q {tuple(q.shape)}, weights {tuple(weights.shape)}, out {tuple(out.shape)}")

fused = rearrange(F.scaled_dot_product_attention(q, k, v, is_causal=True), "b h t w -> b t (h w)")
difference = (out - fused).abs().max().item()
print("largest difference from the fused op:", "below 1e-6" if difference < 1e-6 else difference)
print("each token sees itself and those before it:", (weights[0, 0] > 0).sum(-1).tolist())
