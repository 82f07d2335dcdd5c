#!/usr/bin/env python3
"""How fast text is generated, against what the memory's bandwidth allows and against transformers.

    make python && build/venv/bin/python bench/bench_decode.py [--model gpt2-124m] [--tokens 64] [--rounds 5]
                                                               [--batch 8] [--threads N] [--peers] [--device cuda]
                                                               [--least 60]

A token reads every weight once, so decoding is bound by bytes / bandwidth. Bytes per step are the ledger's. The
bandwidth is that of a sum over as many bytes with the same threads, or of an addition of halves where that is faster,
measured between the rounds of the same run. All figures are those of the fastest step of all rounds, and of the
fastest sum: on a shared machine the slower ones are the neighbours'. Batches decode `--batch` texts in each step and
are compared with as many texts one after the other. With --least the exit status is 1 if one text alone reaches less
than so many percent of what the bandwidth allows. --peers also runs transformers (torch) on the same weights, if it
is installed.
"""
import argparse
import ctypes
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
import numpy as np  # noqa: E402

import tally  # noqa: E402
from tally._library import c, structs  # noqa: E402

PROMPT = 16


def best(seconds, run, rounds):
    for _ in range(rounds):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


class Session:
    def __init__(self, model, rows, tokens):
        self.address = c.tl_session_new(model, rows, PROMPT + tokens)
        self.drawn = (ctypes.c_int64 * rows)()
        self.rows = rows
        options = structs["tl_generate_options"](0.0, 0, 1.0, 0.0, 1.0)
        rng = np.random.default_rng(0)
        for _ in range(rows):
            ids = (ctypes.c_int64 * PROMPT)(*rng.integers(0, 50257, PROMPT).tolist())
            assert c.tl_session_open(self.address, ids, PROMPT, ctypes.byref(options), 1) >= 0
        self.step()

    def step(self):
        assert c.tl_session_step(self.address, self.drawn)

    def close(self):
        c.tl_session_free(self.address)

    def bytes(self):
        with tally.ledger("decode") as ledger:
            self.step()
        return ledger.bytes


def decode(model, rows, tokens):
    """Seconds of the fastest step, and its bytes."""
    session = Session(model, rows, tokens)
    n_bytes = session.bytes()
    took = best([], session.step, tokens - 8)
    session.close()
    return took, n_bytes


def bandwidth(n_bytes):
    n = int(n_bytes) // 8
    x = tally.ones(2, n)
    a, b = x[0], x[1]

    def add():
        for _ in range(4):
            a.add_(b)
        a[0].item()  # waits

    return max(8 * n / best([], lambda: x.sum().item(), 20), 4 * 12 * n / best([], add, 10))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="gpt2-124m")
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--peers", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--least", type=float, default=0, help="percent of what the bandwidth allows")
    a = p.parse_args()
    tally.set_num_threads(a.threads)
    tally.set_default_device(a.device)
    config = structs["tl_model_config"]()
    assert c.tl_model_preset(a.model.encode(), ctypes.byref(config))
    print(f"{a.model}, {a.device}, {a.threads} threads, prompt of {PROMPT} tokens, {a.tokens} more; fastest step of "
          f"{a.rounds} rounds")
    missed = False
    with tally.no_grad():
        for name in ("float32", "bfloat16") if a.device == "cpu" else ("bfloat16",):
            model = c.tl_model_new(ctypes.byref(config), getattr(tally, name).code, None)
            share = run(model, name, a)
            missed = missed or share < a.least
            if a.peers:
                peer(model, name, a)
            c.tl_module_free(model)
    return 1 if missed else 0


def run(model, name, a):
    alone, together, read = [], [], []
    for _ in range(a.rounds):
        took, one = decode(model, 1, a.tokens)
        alone.append(took)
        read.append(bandwidth(one))
        took, many = decode(model, a.batch, a.tokens)
        together.append(took)
    bound = max(read) / one
    share = 100 / min(alone) / bound
    print(f"{name:9} alone    {1 / min(alone):7.1f} tokens/s; {one / 1e6:.0f} MB per token at "
          f"{max(read) / 1e9:.1f} GB/s allow {bound:.1f}: {share:.0f} %")
    bound = max(read) / many * a.batch
    print(f"{'':9} batch {a.batch:2} {a.batch / min(together):7.1f} tokens/s; {many / 1e6:.0f} MB per step "
          f"allow {bound:.1f}: {100 * a.batch / min(together) / bound:.0f} %; "
          f"{a.batch * min(alone) / min(together):.2f} times {a.batch} alone")
    return share


def peer(model, name, a):
    try:
        import torch
        import transformers
    except ImportError:
        print("          transformers is not installed")
        return
    torch.set_num_threads(a.threads)
    with tempfile.TemporaryDirectory() as folder:
        assert c.tl_model_save(model, folder.encode())
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, name)).eval()
    ids = torch.randint(0, 50257, (1, PROMPT))
    seconds = []
    with torch.inference_mode():
        for _ in range(max(a.rounds // 2, 1)):
            out = theirs(ids, use_cache=True)
            past, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
            for _ in range(a.tokens - 8):
                began = time.perf_counter()
                out = theirs(last, past_key_values=past, use_cache=True)
                past, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
                seconds.append(time.perf_counter() - began)
    print(f"{'':9} transformers {transformers.__version__}, torch {torch.__version__}: {1 / min(seconds):.1f} tokens/s")


if __name__ == "__main__":
    sys.exit(main())
