#!/usr/bin/env python3
"""How many steps does Muon need for AdamW's loss? A model of 6 layers on the built-in stories, or on a text, trained by
both with the same number of trials, one for each learning rate. Muon has a share of AdamW's steps, 0.8 of them, with a
schedule of its own that ends there.

    bench/bench_muon.py [--data TEXT] [--steps N] [--share X] [--channels N] [--device cpu|cuda] [--recipe R]
                        [--adamw LR,LR,...] [--muon LR,LR,...] [--tally PROGRAM] [--json FILE]

Every trial and the curves of held-out loss are printed. The exit status is 1 if Muon's best loss is above AdamW's.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EVALUATIONS = 10


def rates(text):
    return [float(part) for part in text.split(",")]


def options_read():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="builtin")
    parser.add_argument("--steps", type=int, default=400, help="AdamW's [400]")
    parser.add_argument("--share", type=float, default=0.8, help="of these that Muon has [0.8]")
    parser.add_argument("--channels", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--recipe", default="fp32")
    parser.add_argument("--adamw", type=rates, default=rates("0.001,0.002,0.004,0.008"))
    parser.add_argument("--muon", type=rates, default=rates("0.002,0.004,0.008,0.016"))
    parser.add_argument("--tally", default=os.path.join(ROOT, "build/tally"))
    parser.add_argument("--json")
    o = parser.parse_args()
    if len(o.adamw) != len(o.muon):
        parser.error("both need the same number of trials")
    return o


def trial(o, optimizer, lr, steps, folder):
    out = os.path.join(folder, f"{optimizer}-{lr:g}")
    every = max(1, steps // EVALUATIONS)
    # the same stories for both, enough for the longer run
    stories = ["--stories", str(o.steps * o.batch * o.seq * 5 // 4)] if o.data == "builtin" else []
    subprocess.run([o.tally, "train", "--model", "nano", "--layers", "6", "--channels", str(o.channels),
                    "--data", o.data, "--steps", str(steps),
                    "--batch", str(o.batch), "--seq", str(o.seq), "--device", o.device,
                    "--recipe", o.recipe, "--optimizer", optimizer, "--lr", repr(lr), "--eval-every", str(every),
                    "--sample-tokens", "0", "--save-every", "0", "--save-best", "false", "--out", out, *stories],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    curve = [(row["step"], row["held_out"]) for row in rows if row.get("held_out") is not None]
    return curve


def curve_print(curve):
    print("    " + "  ".join(f"{step}: {loss:.4f}" for step, loss in curve))


def trials(o, optimizer, lrs, steps, folder):
    print(f"{optimizer}: {steps} steps, {len(lrs)} trials")
    best = None
    for lr in lrs:
        curve = trial(o, optimizer, lr, steps, folder)
        print(f"  lr {lr:g}: held-out loss {curve[-1][1]:.4f}")
        curve_print(curve)
        sys.stdout.flush()
        if best is None or curve[-1][1] < best["loss"]:
            best = {"lr": lr, "loss": curve[-1][1], "curve": curve}
    return best


def main():
    o = options_read()
    with tempfile.TemporaryDirectory() as folder:
        adamw = trials(o, "adamw", o.adamw, o.steps, folder)
        muon = trials(o, "muon", o.muon, int(o.share * o.steps), folder)
    holds = muon["loss"] <= adamw["loss"]
    print(f"best: adamw {adamw['loss']:.4f} after {o.steps} steps (lr {adamw['lr']:g}), "
          f"muon {muon['loss']:.4f} after {int(o.share * o.steps)} steps (lr {muon['lr']:g}): "
          f"{'reached' if holds else 'NOT reached'} in {o.share:g} of the steps")
    if o.json:
        with open(o.json, "w", encoding="utf-8") as to:
            json.dump({"steps": o.steps, "share": o.share, "adamw": adamw, "muon": muon}, to, indent=1)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
