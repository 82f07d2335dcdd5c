#!/usr/bin/env python3
"""Does a small GPT learn here as it does in PyTorch? The character-level model of nanoGPT (6 layers, 6 heads, 384
channels, context 256, batch 64, dropout 0.2, 5,000 steps) on a text of about 1 MB, once in plain PyTorch and once by
`tally train`, with the same settings and the same held-out text (the last tenth, evaluated whole every 250 steps).

    bench/bench_learning.py TEXT [--device cuda|cpu] [--steps N] [--recipe bf16] [--seeds N] [--json FILE]

Tokens are bytes in both. Weights, batches and dropout masks differ, so the runs agree in what they learn and not in
their digits. The exit status is 1 when the best held-out losses are more than 0.02 apart (means over the seeds).
"""
import argparse
import contextlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS, HEADS, CHANNELS, CONTEXT, BATCH, DROPOUT = 6, 6, 384, 256, 64, 0.2
LR, MIN_LR, WARMUP, BETA1, BETA2, DECAY, CLIP = 1e-3, 1e-4, 100, 0.9, 0.99, 0.1, 1.0
EVERY, HELD_OUT = 250, 0.1


def options_read():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--recipe", default="bf16", help="tally's; PyTorch uses bf16 autocast unless it is fp32 [bf16]")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json")
    return parser.parse_args()


# ---- PyTorch

def torch_model(torch):
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
            self.attn, self.attn_proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
            self.fc, self.fc_proj = nn.Linear(CHANNELS, 4 * CHANNELS), nn.Linear(4 * CHANNELS, CHANNELS)
            self.drop = nn.Dropout(DROPOUT)

        def forward(self, x):
            B, T, C = x.shape
            parts = self.attn(self.ln_1(x)).split(C, dim=2)
            q, k, v = (y.view(B, T, HEADS, C // HEADS).transpose(1, 2) for y in parts)
            p = DROPOUT if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
            x = x + self.drop(self.attn_proj(y.transpose(1, 2).reshape(B, T, C)))
            return x + self.drop(self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh")))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(256, CHANNELS), nn.Embedding(CONTEXT, CHANNELS)
            self.drop, self.blocks = nn.Dropout(DROPOUT), nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(CHANNELS)
            for name, p in self.named_parameters():
                if p.dim() == 2:
                    deep = name.endswith("_proj.weight")
                    nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS) if deep else 0.02)
                elif name.endswith(".bias"):
                    nn.init.zeros_(p)

        def forward(self, ids):
            x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
            for block in self.blocks:
                x = block(x)
            return F.linear(self.norm(x), self.tokens.weight)

    return Model()


def learning_rate(step, steps):
    if step < WARMUP:
        return LR * (step + 1) / (WARMUP + 1)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (steps - WARMUP))) * (LR - MIN_LR)


def torch_losses(options, text, seed):
    import torch
    from torch.nn import functional as F
    torch.manual_seed(seed)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().to(options.device)
    n = len(data) - int(len(data) * HELD_OUT)
    train, held_out = data[:n], data[n:]
    model = torch_model(torch).to(options.device)
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), fused=options.device != "cpu")
    precise = options.recipe == "fp32"
    narrow = contextlib.nullcontext if precise else lambda: torch.autocast(options.device, torch.bfloat16)
    reach = torch.arange(CONTEXT + 1, device=options.device)

    def loss_of(rows, **how):
        with narrow():
            logits = model(rows[:, :-1])
        return F.cross_entropy(logits.float().view(-1, 256), rows[:, 1:].reshape(-1), **how)

    def evaluate():
        model.eval()
        starts = torch.arange(0, len(held_out) - CONTEXT - 1, CONTEXT, device=options.device)
        with torch.no_grad():
            total = sum(loss_of(held_out[part[:, None] + reach], reduction="sum").item()
                        for part in starts.split(BATCH))
        model.train()
        return total / (len(starts) * CONTEXT)

    losses = []
    for step in range(options.steps):
        if step and step % EVERY == 0:
            losses.append(evaluate())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, options.steps)
        starts = torch.randint(len(train) - CONTEXT - 1, (BATCH,), device=options.device)
        loss = loss_of(train[starts[:, None] + reach])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
    return [*losses, evaluate()]


# ---- Tally

def tally_losses(options, path, seed):
    folder = tempfile.mkdtemp(prefix="tally-learning-")
    settings = {
        "model": "gpt2-124m", "layers": LAYERS, "heads": HEADS, "channels": CHANNELS, "ff": 4 * CHANNELS,
        "context": CONTEXT, "vocabulary": 256, "data": path, "val-share": HELD_OUT, "sampling": "random",
        "batch": BATCH, "seq": CONTEXT, "steps": options.steps, "dropout": DROPOUT, "lr": LR, "min-lr": MIN_LR / LR,
        "warmup": WARMUP, "beta1": BETA1, "beta2": BETA2, "weight-decay": DECAY, "clip": CLIP, "eval-every": EVERY,
        "eval-batches": 1000, "sample-tokens": 0, "save-every": 0, "save-best": "false", "seed": seed,
        "recipe": options.recipe, "device": options.device, "out": os.path.join(folder, "run")}
    flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    subprocess.run([os.path.join(ROOT, "build", "tally"), "train", "--quiet", *flags], check=True,
                   stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "run", "log.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    shutil.rmtree(folder)
    return [line["held_out"] for line in lines if "held_out" in line]


def main():
    options = options_read()
    with open(options.text, "rb") as file:
        text = file.read()
    best, record = {}, {"bytes": len(text), "steps": options.steps, "recipe": options.recipe}
    for name, run in (("torch", lambda seed: torch_losses(options, text, seed)),
                      ("tally", lambda seed: tally_losses(options, options.text, seed))):
        curves, began = [], time.monotonic()
        for seed in range(1, options.seeds + 1):
            curves.append(run(seed))
            print(f"{name}, seed {seed}: " + " ".join(f"{loss:.4f}" for loss in curves[-1]), flush=True)
        best[name] = sum(map(min, curves)) / len(curves)
        seconds = (time.monotonic() - began) / options.seeds
        record[name] = {"curves": curves, "best": best[name], "seconds": seconds}
        print(f"{name}: best held-out loss {best[name]:.4f} (mean of {options.seeds}), {seconds:.0f} s a run")
    gap = best["tally"] - best["torch"]
    print(f"tally - torch: {gap:+.4f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)
    sys.exit(abs(gap) > 0.02)


if __name__ == "__main__":
    main()
