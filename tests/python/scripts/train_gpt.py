"""A training script as public ones are written for PyTorch: torch.compile, GradScaler, autocast, pinned memory, guards
for DistributedDataParallel, a cosine schedule with warmup, gradient accumulation and clipping, a checkpoint that is
saved, loaded and continued, rotary positions in complex numbers. tests/python/test_torch_scripts.py runs it with torch
and with Tally.

    python train_gpt.py FOLDER [--continue]      FOLDER has weights.npz; losses are printed as JSON
"""
import contextlib
import inspect
import json
import math
import os
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

folder = sys.argv[1]
always_save_checkpoint, init_from = True, "resume" if "--continue" in sys.argv else "scratch"
gradient_accumulation_steps, batch_size, block_size = 2, 4, 16
learning_rate, max_iters, weight_decay, beta1, beta2, grad_clip = 1e-3, 8, 1e-1, 0.9, 0.95, 1.0
decay_lr, warmup_iters, lr_decay_iters, min_lr = True, 2, 8, 1e-4
backend, compile = "nccl", True
device = "cuda" if torch.cuda.is_available() and os.environ.get("SCRIPT_DEVICE") == "cuda" else "cpu"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"

ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    init_process_group(backend=backend)
    ddp_local_rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{ddp_local_rank}"
    torch.cuda.set_device(device)
    master_process, seed_offset = int(os.environ["RANK"]) == 0, int(os.environ["RANK"])
else:
    master_process, seed_offset = True, 0
torch.manual_seed(1337 + seed_offset)
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = True
torch.set_float32_matmul_precision("highest")
torch._dynamo.config.suppress_errors = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = contextlib.nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 65
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32
    dropout: float = 0.0
    bias: bool = False


class LayerNorm(nn.Module):
    def __init__(self, ndim, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ndim))
        self.bias = nn.Parameter(torch.zeros(ndim)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, 1e-5)


def rotary(T, size):
    frequencies = 1.0 / 10000.0 ** (torch.arange(0, size, 2)[: size // 2].float() / size)
    angles = torch.outer(torch.arange(T), frequencies)
    return torch.polar(torch.ones_like(angles), angles)  # complex64


def apply_rotary(x, turns):
    x_ = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(x_ * turns).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head, self.n_embd, self.dropout = config.n_head, config.n_embd, config.dropout
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in (q, k, v))
        q, k = (apply_rotary(y, rotary(T, C // self.n_head).to(y.device)) for y in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0,
                                           is_causal=True)
        return self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = LayerNorm(config.n_embd, config.bias), Attention(config)
        self.ln_2 = LayerNorm(config.n_embd, config.bias)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias),
                                      gelu=nn.GELU(), c_proj=nn.Linear(4 * config.n_embd, config.n_embd,
                                                                       bias=config.bias),
                                      dropout=nn.Dropout(config.dropout)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m.dropout(m.c_proj(m.gelu(m.c_fc(self.ln_2(x)))))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(config.vocab_size, config.n_embd),
                                              wpe=nn.Embedding(config.block_size, config.n_embd),
                                              drop=nn.Dropout(config.dropout),
                                              h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
                                              ln_f=LayerNorm(config.n_embd, bias=config.bias)))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith("c_proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        params = {pn: p for pn, p in self.named_parameters() if p.requires_grad}
        groups = [{"params": [p for p in params.values() if p.dim() >= 2], "weight_decay": weight_decay},
                  {"params": [p for p in params.values() if p.dim() < 2], "weight_decay": 0.0}]
        use_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and device_type == "cuda"
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **(dict(fused=True) if use_fused else dict()))

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.config.block_size:])
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), dim=1)
        return idx


data = np.random.default_rng(0).integers(0, 65, 4000).astype(np.uint16)
draws = np.random.default_rng(1)


def get_batch():
    ix = torch.from_numpy(draws.integers(0, len(data) - block_size, batch_size))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


model_args, iter_num, best_val_loss = dict(block_size=block_size, n_layer=2), 0, 1e9
model = GPT(GPTConfig(**model_args))
checkpoint = None
if init_from == "scratch":
    with np.load(os.path.join(folder, "weights.npz")) as weights:
        model.load_state_dict({k: torch.from_numpy(weights[k]) for k in weights.files})
else:
    checkpoint = torch.load(os.path.join(folder, "ckpt.pt"), map_location=device)
    state_dict = checkpoint["model"]
    for k in list(state_dict):
        if k.startswith("_orig_mod."):
            state_dict[k[len("_orig_mod."):]] = state_dict.pop(k)
    model.load_state_dict(state_dict)
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
    for _ in range(iter_num * gradient_accumulation_steps):
        get_batch()
model.to(device)
scaler = torch.amp.GradScaler(device_type, enabled=(dtype == "float16" and device_type == "cuda"))
optimizer = model.configure_optimizers(weight_decay, learning_rate, (beta1, beta2), device_type)
if checkpoint is not None:
    optimizer.load_state_dict(checkpoint["optimizer"])
if compile and os.environ.get("SCRIPT_COMPILE", "1") == "1":
    model = torch.compile(model)
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank])
raw_model = model.module if ddp else model


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    coeff = 0.5 * (1.0 + math.cos(math.pi * (it - warmup_iters) / (lr_decay_iters - warmup_iters)))
    return min_lr + coeff * (learning_rate - min_lr)


losses, t0 = [], time.time()
X, Y = get_batch()
while iter_num < max_iters:
    for param_group in optimizer.param_groups:
        param_group["lr"] = get_lr(iter_num) if decay_lr else learning_rate
    if iter_num == max_iters // 2 and master_process and init_from == "scratch":
        torch.save({"model": raw_model.state_dict(), "optimizer": optimizer.state_dict(), "model_args": model_args,
                    "iter_num": iter_num, "best_val_loss": best_val_loss, "config": {"dtype": dtype,
                                                                                     "lr": learning_rate}},
                   os.path.join(folder, "ckpt.pt"))
    for micro_step in range(gradient_accumulation_steps):
        if ddp:
            model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item() * gradient_accumulation_steps)
    iter_num += 1
model.eval()
grown = raw_model.generate(torch.zeros((1, 1), dtype=torch.long, device=device), 5, top_k=10)
print(json.dumps({"losses": losses, "grown": list(grown.shape), "torch": torch.__version__}))
if ddp:
    destroy_process_group()
