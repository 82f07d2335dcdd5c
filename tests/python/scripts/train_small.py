"""A small GPT as written for PyTorch: model, custom optimizer, training loop, checkpoint. The first argument names the
library to use as torch: `torch` or `tally`.

    train_small.py torch|tally LOSSES.json CHECKPOINT
"""
import json
import math
import sys

import numpy as np

if sys.argv[1] == "tally":
    import tally as torch
    import tally.nn as nn
    import tally.nn.functional as F
else:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (z.view(B, T, self.n_heads, C // self.n_heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class SpelledOutAttention(CausalSelfAttention):
    """The same, as textbooks write it."""

    def __init__(self, width, n_heads, context):
        super().__init__(width, n_heads)
        self.register_buffer("bias", torch.tril(torch.ones(context, context)).view(1, 1, context, context),
                             persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.reshape(B, T, self.n_heads, -1).permute(0, 2, 1, 3) for z in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.proj(y.permute(0, 2, 1, 3).flatten(2))


class Block(nn.Module):
    def __init__(self, width, n_heads, context, spelled_out):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SpelledOutAttention(width, n_heads, context) if spelled_out else CausalSelfAttention(width, n_heads)
        self.mlp = nn.ModuleDict(dict(fc=nn.Linear(width, 4 * width), act=nn.GELU(approximate="tanh"),
                                      proj=nn.Linear(4 * width, width)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m["proj"](m["act"](m["fc"](self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=17, context=12, width=32, n_heads=4, n_layers=3):
        super().__init__()
        self.context = context
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList([Block(width, n_heads, context, i % 2 == 1) for i in range(n_layers)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.wte.weight
        self.drop = nn.Dropout(0.0)

    def forward(self, idx, targets=None):
        B, T = idx.shape
        pos = torch.arange(0, T, dtype=torch.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -self.context:])
            probs = F.softmax(logits[:, -1, :], dim=-1)
            idx = torch.cat((idx, torch.topk(probs, 1)[1]), dim=1)
        return idx


class MyAdamW(torch.optim.Optimizer):
    """As a student writes it."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01):
        if lr < 0:
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["t"] = 0
                    state["m"] = torch.zeros_like(p.data)
                    state["v"] = torch.zeros_like(p.data)
                state["t"] += 1
                m, v, g = state["m"], state["v"], p.grad.data
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                rate = group["lr"] * math.sqrt(1 - beta2 ** state["t"]) / (1 - beta1 ** state["t"])
                p.data.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-rate)
                p.data -= group["lr"] * group["weight_decay"] * p.data
        return loss


def initialize(model):
    """Without random numbers of the library, whose generators differ."""
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if p.dim() >= 2:
                p.copy_(torch.from_numpy((rng.standard_normal(tuple(p.shape)) * 0.08).astype(np.float32)))
            elif name.endswith("bias"):
                nn.init.zeros_(p)


def get_batch(rng, text, context):
    starts = rng.integers(0, len(text) - context - 1, 8)
    x = torch.stack([torch.from_numpy(text[i:i + context].astype(np.int64)) for i in starts])
    y = torch.stack([torch.from_numpy(text[i + 1:i + 1 + context].astype(np.int64)) for i in starts])
    return x, y


def make():
    model = GPT()
    decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
    rest = [p for n, p in model.named_parameters() if p.dim() < 2]
    optimizer = MyAdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / 5))
    return model, optimizer, warmup


def main(losses_path, checkpoint_path):
    model, optimizer, scheduler = make()
    initialize(model)
    rng = np.random.default_rng(1)
    text = (np.arange(400) * 7 % 17 + np.arange(400) // 50) % 17
    losses, norms = [], []
    model.train()
    for step in range(30):
        if step == 15:  # as if the run had been interrupted here
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                       checkpoint_path)
            before = scheduler
            model, optimizer, scheduler = make()
            checkpoint = torch.load(checkpoint_path, map_location="cpu")
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            scheduler.load_state_dict(before.state_dict())
            assert checkpoint["step"] == step and model.lm_head.weight is model.wte.weight
        x, y = get_batch(rng, text, model.context)
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    sample = model.generate(torch.tensor([[1, 8]]), 6)[0].tolist()
    with open(losses_path, "w") as file:
        json.dump({"losses": losses, "norms": norms, "sample": sample}, file)


main(sys.argv[2], sys.argv[3])
