"""tally plan --best: plan_best.py TALLY. Its winners are plans, to the byte, and no random configuration of the same
step that fits is faster, cheaper or smaller by more than 3 %. With TALLY_SOAK, 500 of them for each of five models up
to 8B on chips of 24, 80 and 141 GB, with the figures on stderr. Prints what is wrong."""
import json
import os
import random
import shlex
import subprocess
import sys

TALLY = sys.argv[1]
SOAK = bool(os.environ.get("TALLY_SOAK"))
CASES = [("gpt2-124m", chip, 64, 1024, 1) for chip in ("RTX 4090", "H100")] + [("tiny", "H200", 64, 128, 4)]
if SOAK:
    CASES = [(model, chip, 64, seq, 1) for model, seq in
             (("gpt2-124m", 1024), ("gpt2-350m", 1024), ("gpt2-1558m", 1024), ("llama-3.2-1b", 2048),
              ("llama-3-8b", 4096))
             for chip in ("RTX 4090", "H100", "H200")]
    CASES += [("llama-3-8b", "H100", 64, 4096, 8)]
RIVALS = 500 if SOAK else 13  # of each case
RECIPES = "fp32 amp bf16 bf16-lean fp16 fp8".split()
POLICIES = "none every-k sqrt full selective".split()


def ask(*arguments):
    done = subprocess.run([TALLY, "plan", *map(str, arguments), "--json"], capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL)
    return json.loads(done.stdout) if done.stdout else None


def figures(plan):
    """Seconds of a step, device-seconds, and devices and bytes."""
    answer = plan["answer"]
    seconds = answer["step_s"]["expected"]
    return seconds, seconds * answer["devices"], (answer["devices"], int(answer["device_bytes"]))


def rival(r, sequences, devices):
    n = r.choice([d for d in (1, 2, 4, 8) if d <= devices])
    accum = r.choice([a for a in (1, 2, 4, 8, 16, 32, 64) if sequences // n % a == 0])
    flags = ["--recipe", r.choice(RECIPES), "--checkpointing", r.choice(POLICIES), "--batch", sequences // accum,
             "--accum", accum]
    if n > 1:
        flags += ["--devices", n, "--shard", r.choice("none zero1 zero2 zero3".split())]
    return flags


def check(model, chip, sequences, seq, devices):
    base = ["--model", model, "--device", chip, "--seq", seq]
    joined = ["--fabric", "ethernet", "--link", "7", "--rings"] if devices > 1 else []
    best = ask("--best", *base, "--batch", sequences, *(["--devices", devices, *joined] if devices > 1 else []))
    if best is None or best["fastest"] is None:
        assert model == "llama-3-8b" and chip != "H200", "nothing fits"
        return
    for row in best["pareto"]:
        assert row["devices"] == 1 or " ".join(joined) in row["plan"], row
    won = {}
    for name in ("fastest", "cheapest", "smallest"):
        row = best[name]
        words = shlex.split(row["plan"])
        assert words[:2] == ["tally", "plan"], words
        plan = ask(*words[2:], "--short")
        assert plan and plan["answer"]["device_bytes"] == row["device_bytes"], (name, row)
        assert plan["answer"]["verdict"] != "too large" and row["batch"] * row["accum"] == sequences, (name, row)
        assert abs(plan["answer"]["step_s"]["expected"] / row["step_s"] - 1) < 1e-9, (name, row)
        assert row["train"].startswith("tally train" if row["devices"] == 1 else "tally launch -n")
        won[name] = figures(plan)
    r, rivals = random.Random(f"{model} {chip}"), {}
    for _ in range(RIVALS):
        flags = rival(r, sequences, devices)
        rivals[tuple(flags)] = flags + (joined if "--devices" in flags else [])
    least, n_fit = [float("inf")] * 3, 0
    for flags in rivals.values():
        plan = ask(*base, *flags, "--short")
        if plan is None or plan["answer"]["verdict"] == "too large":
            continue
        seconds, together, (n, size) = figures(plan)
        n_fit += 1
        least = [min(least[0], seconds / won["fastest"][0]), min(least[1], together / won["cheapest"][1]),
                 min(least[2], size / won["smallest"][2][1] if n == won["smallest"][2][0] else float("inf"))]
        assert seconds > 0.97 * won["fastest"][0], ("fastest", flags)
        assert together > 0.97 * won["cheapest"][1], ("cheapest", flags)
        n_won, size_won = won["smallest"][2]
        assert n > n_won or size > 0.97 * size_won, ("smallest", flags)
    if SOAK:
        print(f"{model} on {devices} x {chip}: {RIVALS} draws, {len(rivals)} differ, {n_fit} fit; the best of them "
              f"needs {least[0]:.3f} of the fastest's time, {least[1]:.3f} of the cheapest's, {least[2]:.3f} of the "
              f"smallest's bytes", file=sys.stderr, flush=True)


for case in CASES:
    try:
        check(*case)
    except (AssertionError, TypeError, KeyError) as wrong:
        print(f"{case}: {type(wrong).__name__} {wrong}")
