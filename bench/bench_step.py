"""Training steps against PyTorch on the same cores: the same GPT-2 shapes, batch, optimizer and clipping, dropout off,
random tokens.

    build/venv/bin/python bench/bench_step.py [--quick] [--turns 3]      everything, in turns, and the table
    ... bench_step.py --only CASE:CONTENDER                              one turn, added to the file of results
    ... bench_step.py --tune CASE                                        which settings PyTorch is fastest with there
    ... bench_step.py --peak                                             the multiply-add peaks of this machine, now
    ... bench_step.py --table [--json]                                   the table of all that is in the file

Every turn is a separate process and appends one line to the file of results (--results, build/bench_step.jsonl), so
that a table can be made in pieces, and contenders can alternate on a machine that is not always quiet. PyTorch uses the
settings that --tune found (threads, oneDNN, memory allocator). It runs the nanoGPT-shaped model below, in plain torch
with scaled_dot_product_attention and fused AdamW, eager and compiled. Compiling is not timed.

Columns: tokens/s (median of all timed steps of all turns); GFLOP/s, counted as 6 N per token (N: weights in products,
including the head) plus causal attention; share of the f32 (fp32) or bf16 (amp, bf16) multiply-add peak; ratio to
PyTorch's best (for fp32 in fp32, for amp and bf16 in either precision); peak bytes of tensors; resident memory above
that of the program at its start.
"""
import argparse
import ctypes.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TALLY = ROOT / "build" / "tally"
PEAK = ROOT / "build" / "bench" / "bench_peak"
# layers, heads, channels, vocabulary, batch, time, timed steps. The first has llm.c's batch size; the small ones are
# nanoGPT's.
CASES = {"gpt2-256": (12, 12, 768, 50257, 4, 256, 3), "gpt2-64": (12, 12, 768, 50257, 4, 64, 6),
         "small": (6, 6, 384, 65, 8, 256, 8), "tiny": (4, 4, 128, 65, 12, 64, 60)}
# selective: the backward pass recomputes GELU and norms.
OURS = ["fp32", "fp32-selective", "amp", "bf16", "bf16-selective"]
THEIRS = ["eager-fp32", "compile-fp32", "eager-bf16", "compile-bf16"]
CONTENDERS = [f"tally-{r}" for r in OURS] + [f"torch-{t}" for t in THEIRS]


def step_flops(case):
    L, _, C, V, B, T, _ = CASES[case]
    return 6 * B * T * (12 * L * C * C + V * C) + 12 * L * C * B * T * (T + 1) // 2


def is_bf16(contender):
    return "fp32" not in contender


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- Ours ----

def program_bytes():
    """Resident memory of the program when it has started and done nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run([TALLY, "train", "--models"], check=True, capture_output=True)
    own = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(own, before) * 1024


def ours(case, form, threads, quick):
    import random
    recipe, policy = (form.removesuffix("-selective"), "selective") if form.endswith("-selective") else (form, "none")
    L, H, C, V, B, T, steps = CASES[case]
    steps = 2 if quick else steps
    started = program_bytes()
    # A run writes a checkpoint at its end, which is not timed.
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        config = {"model_type": "gpt2", "n_layer": L, "n_head": H, "n_embd": C, "n_positions": T, "vocab_size": V,
                  "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "activation_function": "gelu_new"}
        Path(folder, "config.json").write_text(json.dumps(config))
        draw = random.Random(1)
        tokens = b"".join(draw.randrange(V).to_bytes(2, "little") for _ in range(B * T * 8 + 1))
        Path(folder, "tokens.bin").write_bytes(tokens)
        done = subprocess.run([TALLY, "train", "--model", folder + "/config.json", "--data", folder + "/tokens.bin",
                               "--batch", str(B), "--seq", str(T), "--steps", str(steps + 2), "--warmup", "1", "--lr",
                               "1e-4", "--eval-every", "0", "--sample-tokens", "0", "--val-share", "0", "--save-every",
                               "0", "--threads", str(threads), "--recipe", recipe, "--checkpointing", policy, "--out",
                               folder + "/run", "--quiet", "--json"],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        summary = json.loads(done.stdout)
        assert summary["differences"] == 0
        lines = [json.loads(line) for line in Path(folder, "run", "log.jsonl").read_text().splitlines()]
        times = [line["time"]["step_s"] for line in lines if "time" in line][2:]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"times": times, "loss": summary["loss"], "tensor_bytes": summary["peak_bytes"],
            "resident_bytes": peak - started, "settings": {"threads": threads}}


# ---- Theirs ----

def model_new(L, H, C, V, T):
    from torch import nn
    from torch.nn import functional as F
    from torch_block import Block

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
            self.h, self.ln_f = nn.ModuleList(Block(C, H, 4 * C) for _ in range(L)), nn.LayerNorm(C)
            for p in self.parameters():
                if p.dim() == 2:
                    nn.init.normal_(p, std=0.02)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
            for block in self.h:
                x = block(x)
            logits = self.ln_f(x) @ self.wte.weight.t()
            return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    return Gpt()


def tensor_peak(step, net, optimizer):
    """Peak bytes of tensors during a step: those held throughout, plus the largest excess of allocations over frees."""
    import torch
    held = sum(p.numel() * p.element_size() for p in net.parameters())
    held += sum(s.numel() * s.element_size() for state in optimizer.state.values()
                for s in state.values() if torch.is_tensor(s))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return held + peak


def theirs(case, form, settings, quick, warm_only):
    import torch
    L, H, C, V, B, T, steps = CASES[case]
    steps = 2 if quick else steps
    started = resident_bytes()
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(1)
    net = model_new(L, H, C, V, T).train()
    run = torch.compile(net) if form.startswith("compile") else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    narrow = form.endswith("bf16")

    def step():
        tokens = torch.randint(V, (B, T + 1))
        with (torch.autocast("cpu", torch.bfloat16, enabled=narrow),
              torch.backends.mkldnn.flags(enabled=settings["mkldnn"])):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        with torch.backends.mkldnn.flags(enabled=settings["mkldnn"]):
            loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    times = []
    for i in range(1 if warm_only else steps + 2):
        start = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    tensors = 0 if warm_only or settings.get("no_memory") else tensor_peak(step, net, optimizer)
    return {"times": times[2:], "loss": loss, "tensor_bytes": tensors, "resident_bytes": peak - started,
            "settings": settings}


# ---- PyTorch's best settings ----

def allocators():
    """Environments: as it comes, glibc told to keep what it has and to use huge pages, and what else is installed."""
    keep = {"MALLOC_TRIM_THRESHOLD_": "100000000000", "MALLOC_MMAP_THRESHOLD_": "100000000000",
            "MALLOC_TOP_PAD_": "67108864", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    found = {"default": {}, "keep": keep}
    for name in ("jemalloc", "tcmalloc_minimal", "mimalloc"):
        library = ctypes.util.find_library(name)
        if library:
            found[name] = {"LD_PRELOAD": library}
    return found


def tuned(results, case, form):
    """The best of --tune for this case and form, or for the smallest case; before that, all threads and keep."""
    tried = [r for r in results if r["kind"] == "tune" and r["case"] == case and r["contender"] == "torch-" + form]
    tried = tried or [r for r in results if r["kind"] == "tune" and r["case"] == "tiny"
                      and r["contender"] == "torch-" + form]
    best = min(tried, key=lambda r: min(r["times"]), default=None)
    return ({k: v for k, v in best["settings"].items() if k != "no_memory"} if best
            else {"threads": len(os.sched_getaffinity(0)), "mkldnn": True, "allocator": "keep"})


def candidates(results, case, form):
    """Every combination for the smallest case; elsewhere those that were not far behind there."""
    tiny = [r for r in results if r["kind"] == "tune" and r["case"] == "tiny" and r["contender"] == "torch-" + form]
    best = min((min(r["times"]) for r in tiny), default=0)
    for allocator in allocators():
        for mkldnn in (True, False):
            for threads in sorted({1, len(os.sched_getaffinity(0))}):
                settings = {"threads": threads, "mkldnn": mkldnn, "allocator": allocator, "no_memory": True}
                there = [min(r["times"]) for r in tiny if r["settings"] == settings]
                if case == "tiny" or not there or min(there) < 1.5 * best:
                    yield settings


# ---- Turns ----

def run_turn(options, case, contender, settings=None, kind="turn", quick=None):
    """One turn in a process of its own; adds a line to the results."""
    results = read(options)
    who, form = contender.split("-", 1)
    environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
    if who == "torch":
        settings = settings or tuned(results, case, form)
        environment.update(allocators().get(settings["allocator"], {}), OMP_NUM_THREADS=str(settings["threads"]))
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "build" / "inductor"))
    quick = options.quick if quick is None else quick
    command = [*options.under.split(), sys.executable, __file__, "--turn", case, contender, json.dumps(settings),
               "--threads", str(options.threads)] + ["--quick"] * quick
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{case} {contender} {settings}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    row = {"kind": kind, "case": case, "contender": contender, **json.loads(done.stdout.splitlines()[-1])}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with open(options.results, "a") as file:
        file.write(json.dumps(row) + "\n")
    B, T = CASES[case][4:6]
    print(f"{case:9} {contender:20} {B * T / statistics.median(row['times']):9.1f} tokens/s   {row['settings']}",
          file=sys.stderr, flush=True)
    return row


def turn(case, contender, settings, threads, quick):
    who, form = contender.split("-", 1)
    if who == "tally":
        return ours(case, form, threads, quick)
    return theirs(case, form, settings, quick, False)


def tune(options, case):
    for form in THEIRS:
        if form.startswith("eager"):
            for settings in candidates(read(options), case, form):
                run_turn(options, case, "torch-" + form, settings, "tune", True)
        else:  # compiled code has the same products in it: the eager form's settings, once with each allocator
            settings = tuned(read(options), case, form.replace("compile", "eager"))
            for allocator in allocators():
                run_turn(options, case, "torch-" + form, dict(settings, allocator=allocator, no_memory=True), "tune",
                         True)


def peak(options):
    done = subprocess.run([PEAK, str(options.threads)], check=True, capture_output=True, text=True)
    row = {"kind": "peak", **json.loads(done.stdout)}
    with open(options.results, "a") as file:
        file.write(json.dumps(row) + "\n")
    return row


# ---- The table ----

def read(options):
    return [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []


def rows(results):
    peaks = [r for r in results if r["kind"] == "peak"]
    top = {key: max((p[key] for p in peaks), default=0) for key in ("f32_gflops", "bf16_gflops")}
    for case in CASES:
        speed, all_of = {}, {}
        for contender in CONTENDERS:
            turns = [r for r in results if r["kind"] == "turn" and r["case"] == case and r["contender"] == contender
                     and r["times"]]
            if turns:
                all_of[contender] = turns
                speed[contender] = statistics.median(t for r in turns for t in r["times"])
        for contender in speed:
            B, T = CASES[case][4:6]
            # bf16 need not be PyTorch's faster precision: amp and bf16 are held against the faster one
            same = {c: s for c, s in speed.items() if c.startswith("torch") and (is_bf16(contender) or not is_bf16(c))}
            best = min(same, key=same.get, default=None)
            top_here = top["bf16_gflops" if is_bf16(contender) else "f32_gflops"]
            gflops = step_flops(case) / speed[contender] / 1e9
            yield {"case": case, "contender": contender, "tokens_per_s": B * T / speed[contender], "gflops": gflops,
                   "share_of_peak": gflops / top_here if top_here else None,
                   "of_torch": same[best] / speed[contender] if best else None,
                   "tensor_mib": max(r["tensor_bytes"] for r in all_of[contender]) / 2**20,
                   "resident_mib": max(r["resident_bytes"] for r in all_of[contender]) / 2**20,
                   "torch_tensor_mib": max(r["tensor_bytes"] for r in all_of[best]) / 2**20 if best else None,
                   "torch_resident_mib": max(r["resident_bytes"] for r in all_of[best]) / 2**20 if best else None,
                   "turns": len(all_of[contender])}


def table(options):
    results = read(options)
    if options.json:
        json.dump(list(rows(results)), sys.stdout)
        return
    print(f"{'case':9} {'':20} {'tokens/s':>9} {'GFLOP/s':>8} {'of peak':>8} {'x torch':>8} {'tensors':>9} "
          f"{'of torch':>8} {'resident':>9} {'of torch':>8} turns")
    for r in rows(results):
        share = f"{100 * r['share_of_peak']:.1f} %" if r["share_of_peak"] else ""
        ratio = f"{r['of_torch']:.2f}" if r["of_torch"] else ""
        tensors = f"{r['tensor_mib'] / r['torch_tensor_mib']:.2f}" if r["torch_tensor_mib"] else ""
        resident = f"{r['resident_mib'] / r['torch_resident_mib']:.2f}" if r["torch_resident_mib"] else ""
        print(f"{r['case']:9} {r['contender']:20} {r['tokens_per_s']:9.1f} {r['gflops']:8.1f} {share:>8} {ratio:>8} "
              f"{r['tensor_mib']:8.0f}M {tensors:>8} {r['resident_mib']:8.0f}M {resident:>8} {r['turns']}")
    for p in [r for r in results if r["kind"] == "peak"][-1:]:
        print(f"peak on {p['threads']} threads: f32 {p['f32_gflops']:.1f}, bf16 {p['bf16_gflops']:.1f} GFLOP/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--quick", action="store_true", help="two timed steps a turn")
    parser.add_argument("--only", help="CASE:CONTENDER of " + ", ".join(CASES) + " and " + ", ".join(CONTENDERS))
    parser.add_argument("--tune", choices=CASES)
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "bench_step.jsonl")
    parser.add_argument("--under", default="", help="a command that each turn is run by, as `taskset -c 0,1`")
    parser.add_argument("--warm", help="CASE:CONTENDER to compile without timing")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options.turn[0], options.turn[1], json.loads(options.turn[2]), options.threads,
                              options.quick)))
    elif options.warm:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "build" / "inductor"))
        case, contender = options.warm.split(":")
        form = contender.split("-", 1)[1]
        theirs(case, form, tuned(read(options), case, form), True, True)
    elif options.only:
        run_turn(options, *options.only.split(":"))
    elif options.tune:
        tune(options, options.tune)
    elif options.peak:
        print(json.dumps(peak(options)))
    elif options.table:
        table(options)
    else:
        peak(options)
        for _ in range(1 if options.quick else options.turns):
            for case in CASES:
                for contender in CONTENDERS:
                    run_turn(options, case, contender)
        table(options)


if __name__ == "__main__":
    main()
