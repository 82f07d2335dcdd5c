"""Training steps beside PyTorch on the same cores: tokens per second of `tally train` and of the same model, batch and optimizer in
PyTorch (transformers' model, eager, fused AdamW where it is offered), in turns, the median of each. First figures: speed proper is work to come.

    PYTHONPATH=python build/venv/bin/python bench/bench_step.py [--turns 3] [--steps 8] [--json]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers

TALLY = Path(__file__).resolve().parents[1] / "build" / "tally"
CASES = [("tiny", 8, 128), ("tiny", 8, 256), ("small", 4, 128), ("small", 8, 256)]
SHAPES = {"tiny": (4, 4, 128, 352, 256), "small": (6, 6, 384, 1024, 512)}


def ours(model, batch, seq, steps, recipe):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([TALLY, "train", "--model", model, "--batch", str(batch), "--seq", str(seq), "--steps", str(steps), "--warmup", "1",
                               "--eval-every", "0", "--eval-batches", "1", "--sample-tokens", "0", "--val-share", "0", "--save-every", "0",
                               "--recipe", recipe, "--out", folder + "/run", "--quiet", "--json"], check=True, capture_output=True, text=True)
        assert json.loads(done.stdout)["differences"] == 0
        lines = [json.loads(line) for line in (Path(folder) / "run" / "log.jsonl").read_text().splitlines()]
        return statistics.median(line["time"]["tokens_per_s"] for line in lines[2:] if "time" in line)


def theirs(model, batch, seq, steps):
    layers, heads, channels, ff, context = SHAPES[model]
    config = transformers.LlamaConfig(num_hidden_layers=layers, num_attention_heads=heads, hidden_size=channels, intermediate_size=ff, vocab_size=256,
                                      max_position_embeddings=context, tie_word_embeddings=True, attn_implementation="sdpa")
    net = transformers.LlamaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    times = []
    for _ in range(steps):
        ids = torch.randint(256, (batch, seq + 1))
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(net(ids[:, :-1], use_cache=False).logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - start)
    return batch * seq / statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(2)
    rows = []
    for model, batch, seq in CASES:
        turns = {"torch fp32": [], "fp32": [], "bf16": []}
        for _ in range(options.turns):
            turns["torch fp32"].append(theirs(model, batch, seq, options.steps))
            turns["fp32"].append(ours(model, batch, seq, options.steps, "fp32"))
            turns["bf16"].append(ours(model, batch, seq, options.steps, "bf16"))
        speed = {k: statistics.median(v) for k, v in turns.items()}
        rows.append({"model": model, "batch": batch, "seq": seq, **speed, "ratio": speed["fp32"] / speed["torch fp32"]})
        if not options.json:
            print(f"{model:6} {batch:2} x {seq:3}   torch fp32 {speed['torch fp32']:7.0f}   ours fp32 {speed['fp32']:7.0f}   ours bf16 {speed['bf16']:7.0f} tokens/s"
                  f"   ours/torch {rows[-1]['ratio']:.2f}", flush=True)
    if options.json:
        json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
