"""`tally train` against the same loop in PyTorch: same weights, same batches, 100 steps of AdamW with warm-up, cosine
decay and clipping."""
import ctypes
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from tally_c import Tensor, tl
from test_models import CONFIGS, transformers

TALLY = Path(os.environ.get("TALLY", Path(__file__).resolve().parents[2] / "build" / "tally"))
STEPS, BATCH, TIME, LR, WARMUP, DECAY, CLIP = 100, 4, 16, 3e-3, 10, 0.1, 1.0


@pytest.fixture
def text(tmp_path):
    subprocess.run([TALLY, "data", "make", "--bytes", "20000", "--seed", "5", "--out", tmp_path / "text"], check=True,
                   capture_output=True)
    return tmp_path / "text"


def batches(text, n_tokens):
    """What the loader gives to each step."""
    options = tl.loader_defaults()
    options.file = tl.token_file_open(str(text), tl.TOKENS_BYTES)
    options.last, options.batch, options.time, options.seed = n_tokens, BATCH, TIME, 1
    loader = tl.loader_new(ctypes.byref(options))
    try:
        for step in range(STEPS):
            pair = ctypes.c_void_p(), ctypes.c_void_p()
            scope = tl.library.tl_scope_begin()
            assert tl.loader_next(loader, step, *map(ctypes.byref, pair))
            arrays = [torch.from_numpy(Tensor(p.value).numpy().astype(np.int64)) for p in pair]
            tl.library.tl_scope_end(scope)
            yield arrays
    finally:
        tl.loader_free(loader)
        tl.token_file_close(options.file)


def torch_losses(model, text):
    n_tokens = text.stat().st_size - int(0.05 * text.stat().st_size)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY},
                                   {"params": others, "weight_decay": 0.0}], lr=LR, betas=(0.9, 0.95), eps=1e-8)
    schedule = tl.schedule(kind=tl.SCHEDULE_COSINE, warmup_steps=WARMUP, total_steps=STEPS, min_factor=0.1)
    losses = []
    for step, (tokens, targets) in enumerate(batches(text, n_tokens)):
        for group in optimizer.param_groups:
            group["lr"] = LR * tl.library.tl_schedule_factor(ctypes.byref(schedule), step)
        loss = torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_hundred_steps_follow_pytorch(name, tmp_path, text):
    torch.manual_seed(4)
    config = CONFIGS[name]()
    config.vocab_size = 256
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    model.save_pretrained(tmp_path / "model")
    subprocess.run([TALLY, "train", "--model", tmp_path / "model", "--data", text, "--steps", str(STEPS), "--batch",
                    str(BATCH), "--seq", str(TIME), "--lr", str(LR), "--min-lr", "0.1", "--warmup", str(WARMUP),
                    "--weight-decay", str(DECAY), "--clip", str(CLIP), "--beta1", "0.9", "--sample-tokens", "0",
                    "--out", tmp_path / "run", "--quiet"], check=True, capture_output=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    ours = [line["loss"] for line in lines if "loss" in line]
    theirs = torch_losses(model, text)
    assert len(ours) == len(theirs) == STEPS and theirs[-1] < theirs[0] - 1
    difference = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"{name}: the losses of {STEPS} steps differ by at most {difference:.2e}; the last is {ours[-1]:.4f}")
    assert difference < 1e-3
