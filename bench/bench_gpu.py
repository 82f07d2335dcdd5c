"""Training steps against torch.compile on the same GPU: the same models, batches and random tokens, bf16, AdamW,
clipping.

    python3 bench/bench_gpu.py [--only NAME ...] [--recipe bf16] [--steps 24] [--ours] [--goals] [--json FILE]
    python3 bench/bench_gpu.py --random 20 [--seed 1] [--steps 24] [--json FILE]
    python3 bench/bench_gpu.py --profile [--only NAME ...] [--recipe bf16] [--json FILE]

PyTorch compiles all models first, as many at once as the GPU has memory for; then it waits, and nothing else runs
while a model is timed. Prints one table. The columns:

- tokens/s (median of the steps after the first eight), ours (deterministic) and PyTorch's, and their ratio;
- model FLOP/s utilisation by PaLM's rule (6 N + 12 L T d per token, of 989.5 TFLOP/s of dense bf16) of both;
- our FLOP/s as a share of what this card reaches in an 8192^3 product in this run;
- peak memory: ours as priced, as priced with `--checkpointing selective`, and as the driver reports it; PyTorch's as
  PyTorch counts it.

Then it prints what a model is to reach (GOALS) beside what it reached.

PyTorch runs its fastest form: bf16 by autocast with f32 parameters, fused AdamW and scaled_dot_product_attention. Ours
runs the recipe with bf16 parameters and f32 masters. --ours leaves PyTorch out. A signal ends our process after its
steps; nothing is saved.

--random compares models drawn at random instead, and prints ours / PyTorch of the time of a step, slowest first.

--profile prints where the time of our steps goes instead, op by op, beside the least time that the card's peaks allow.

The exit status is 1 if a step of ours takes more than --bar times PyTorch's (1.3), or did not run; those models are
named. Without PyTorch's figure a model is not judged. With --goals it is also 1 if a goal was missed.

--device cpu tries the script where there is no GPU, with models cut to two layers of 64 channels and no goals.
"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TALLY = ROOT / "build" / "tally"
DENSE_BF16 = 989.5e12
# family, layers, heads, heads of keys and values, channels, inner width, vocabulary, batch, time, dropout (0)
CASES = {
    "gpt2-124m": ("gpt2", 12, 12, 12, 768, 3072, 50257, 64, 1024),
    "gpt2-350m": ("gpt2", 24, 16, 16, 1024, 4096, 50257, 32, 1024),
    "gpt2-1558m": ("gpt2", 48, 25, 25, 1600, 6400, 50257, 16, 1024),
    "llama-1b": ("llama", 16, 32, 8, 2048, 8192, 50304, 16, 2048),
    "char": ("gpt2", 6, 6, 6, 384, 1536, 65, 64, 256, 0.2),
}
# What they are to reach on an H200: tokens/s over PyTorch's at least; at most, memory over PyTorch's, without and with
# selective checkpointing, and ms a step.
GOALS = {
    "gpt2-124m": {"speed": 1.2, "memory": 0.735, "selective": 0.8},
    "gpt2-350m": {"speed": 1.2, "memory": 0.855, "selective": 0.8},
    "gpt2-1558m": {"speed": 1.2, "memory": 0.925, "selective": 0.8},
    "llama-1b": {"speed": 1.12, "memory": 0.885, "selective": 0.8},
    "char": {"speed": 2.5, "ms": 4.0},
}
WARM = 8
WAYS = ["ours", "torch"]


def cut(case):
    """The same family and heads shared alike, so small that a CPU trains it at once."""
    family, _, heads, kv_heads, *_ = case
    return (family, 2, 4, max(1, 4 * kv_heads // heads), 64, 128, 64, 2, 64, *case[9:])


def dropout_of(case):
    return case[9] if len(case) > 9 else 0.0


def parameters(case):
    family, L, H, kv, C, F, V, _, T = case[:9]
    if family == "gpt2":
        return V * C + T * C + L * (12 * C * C + 13 * C) + 2 * C
    return V * C + L * (2 * C * C + 2 * C * (C // H) * kv + 3 * C * F + 2 * C) + C


def token_flops(case):
    _, L, H, _, C, _, _, _, T = case[:9]
    return 6 * parameters(case) + 12 * L * T * C


def case_draw(r):
    """A model of 1M to 300M parameters and a batch of up to 32,768 tokens, of any length and widths."""
    family = r.choice(["gpt2", "llama"])
    D = r.choice([32, 48, 64, 64, 80, 96, 128])
    kv = r.choice([1, 2, 4, 6] if family == "llama" else [2, 4, 6, 8, 12, 16])
    H = kv if family == "gpt2" else kv * r.choice([1, 2, 4])
    while H * D < 128:
        H, kv = 2 * H, 2 * kv
    T = r.choice([r.randrange(64, 2049), 8 * r.randrange(16, 257), 256, 1024])
    B = max(1, min(64, r.randrange(1024, 32769) // T))
    C = H * D
    F = r.choice([4 * C, 8 * ((8 * C // 3 + 7) // 8), 8 * r.randrange(C // 8, C)])
    V = r.choice([65, 256, 8 * r.randrange(64, 8000), r.randrange(500, 65000), 50257])
    return (family, r.randrange(1, 7), H, kv, C, F, V, B, T)


# ---- Ours ----

def config(case):
    family, L, H, kv, C, F, V, _, T = case[:9]
    if family == "gpt2":
        return {"model_type": "gpt2", "n_layer": L, "n_head": H, "n_embd": C, "n_positions": T, "vocab_size": V,
                "n_inner": F, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "activation_function": "gelu_new",
                **{f"{part}_pdrop": dropout_of(case) for part in ("attn", "embd", "resid")}}
    return {"model_type": "llama", "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": kv,
            "hidden_size": C, "intermediate_size": F, "vocab_size": V, "max_position_embeddings": T,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "initializer_range": 0.02,
            "hidden_act": "silu"}


def driver_bytes(which):
    """Of the GPU's memory, "used" or "total"; 0 where there is no driver."""
    if not shutil.which("nvidia-smi"):
        return 0
    done = subprocess.run(["nvidia-smi", f"--query-gpu=memory.{which}", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True)
    return int(done.stdout.split()[0]) << 20 if done.returncode == 0 and done.stdout.split() else 0


def priced_bytes(price):
    """The largest reservation among the stretches of a price."""
    def reserved(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "peak_reserved_bytes":
                    yield int(inner)
                yield from reserved(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from reserved(inner)
    return max(reserved(price), default=0)


def train_command(case, recipe, device, folder, *more, steps=100000):
    """`tally train` on random tokens in a folder; by default until it is stopped."""
    V, B, T = case[6:9]
    (folder / "config.json").write_text(json.dumps(config(case)))
    draw = random.Random(1)
    (folder / "tokens.bin").write_bytes(b"".join(draw.randrange(V).to_bytes(2, "little")
                                                 for _ in range(B * T * 4 + 1)))
    return [str(word) for word in (
        TALLY, "train", "--model", folder / "config.json", "--data", folder / "tokens.bin", "--batch", B, "--seq", T,
        "--steps", steps, "--warmup", 1, "--lr", "1e-4", "--eval-every", 0, "--sample-tokens", 0, "--val-share", 0,
        "--save-every", 0, "--device", device, "--recipe", recipe, "--out", folder / "run", "--json", "--dropout",
        dropout_of(case), *more)]


def ours(case, recipe, device, n_steps):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = train_command(case, recipe, device, folder, "--quiet")
        before, held = driver_bytes("used"), 0
        with open(folder / "error", "w") as error:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=error)
        log, times, began = folder / "run" / "log.jsonl", [], time.time()
        while process.poll() is None and len(times) < WARM + n_steps and time.time() - began < 150:
            time.sleep(0.2)
            held = max(held, driver_bytes("used") - before)
            if log.exists():
                whole = [line for line in log.read_text().splitlines() if line.endswith("}")]
                times = [json.loads(line)["time"]["step_s"] for line in whole if '"time"' in line]
        process.send_signal(signal.SIGKILL)
        process.wait()
        if len(times) <= WARM:
            raise RuntimeError(f"tally took {len(times)} steps: " + (folder / "error").read_text().strip()[-300:])
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}") and '"watts"' in line]
        health = lines[-1]["time"] if lines else {}
        price = json.loads((folder / "run" / "price.json").read_text())
        return {"times": times[WARM:], "bytes": priced_bytes(price), "driver_bytes": held, "health": health}


def selective_bytes(case, recipe, device):
    """What a run would reserve with selective checkpointing: its price."""
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(train_command(case, recipe, device, Path(name), "--price", "--checkpointing",
                                            "selective"), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-300:])
        return priced_bytes(json.loads(done.stdout))


def trained(case, recipe, device, steps, *more):
    """A whole run: its summary, and the lines of its log. It ends with its weights and moments in a file, some 16 bytes
    for each parameter: in memory, where there is room."""
    shared = Path("/dev/shm")
    has_room = shared.is_dir() and shutil.disk_usage(shared).free > 20 * parameters(case) + (1 << 30)
    with tempfile.TemporaryDirectory(dir=shared if has_room else None) as name:
        folder = Path(name)
        done = subprocess.run(train_command(case, recipe, device, folder, "--quiet", "--eval-batches", 1, *more,
                                            steps=steps), capture_output=True, text=True, timeout=150)
        if done.returncode:
            raise RuntimeError(f"tally ended with {done.returncode}: " + done.stderr.strip()[-300:])
        log = (folder / "run" / "log.jsonl").read_text().splitlines()
        return json.loads(done.stdout), [json.loads(line) for line in log if line.endswith("}")]


def profile_of(case, recipe, device):
    """Where the time of a step goes, op by op."""
    run, _ = trained(case, recipe, device, 10, "--profile=4")
    if run["differences"]:
        raise RuntimeError(f"{run['differences']} differences between price and receipt")
    return run["profile"]


def profile_print(name, profile):
    floor = lambda row: format(row["floor_ms"], "9.3f") if "floor_ms" in row else format("-", ">9")
    print(f"\n{name:22} {'phase':9} {'calls':>6} {'ms':>9} {'floor':>9} {'share':>7} {'TFLOP/s':>8} {'GB/s':>7}")
    for row in profile["by_op"]:
        print(f"{row['name']:22} {row['phase']:9} {row['calls']:6.0f} {row['ms']:9.3f} {floor(row)} "
              f"{100 * row['share']:6.1f}% {row['gflops_per_s'] / 1e3:8.1f} {row['gb_per_s']:7.0f}")
    print(f"{'outside kernels':39} {profile['outside_kernels_ms']:9.3f}")
    print(f"{'all':39} {profile['step_ms']:9.3f} {floor(profile)}  peaks: {profile.get('floors', 'not known')}",
          flush=True)


# ---- Theirs: run in a process of its own ----

def gpt2_new(case):
    from torch import nn
    from torch.nn import functional as F
    from torch_block import Block
    _, L, H, _, C, W, V, _, T = case[:9]
    dropout = dropout_of(case)

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding((V + 63) // 64 * 64, C), nn.Embedding(T, C)  # as nanoGPT pads it
            self.h, self.ln_f = nn.ModuleList(Block(C, H, W, dropout) for _ in range(L)), nn.LayerNorm(C)
            self.drop = nn.Dropout(dropout)

        def forward(self, tokens, targets):
            x = self.drop(self.wte(tokens) + self.wpe.weight[: tokens.shape[1]])
            for block in self.h:
                x = block(x)
            return F.cross_entropy(F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1), targets.flatten())

    return Gpt()


def llama_new(case):
    import torch
    from torch import nn
    from torch.nn import functional as F
    _, L, H, kv, C, W, V, _, T = case[:9]
    D = C // H
    angle = torch.outer(torch.arange(T, dtype=torch.float32),
                        10000.0 ** (-torch.arange(0, D // 2, dtype=torch.float32) / (D // 2)))

    def turn(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.RMSNorm(C, eps=1e-5), nn.RMSNorm(C, eps=1e-5)
            self.q, self.k, self.v = (nn.Linear(C, C, bias=False), nn.Linear(C, kv * D, bias=False),
                                      nn.Linear(C, kv * D, bias=False))
            self.o, self.gate, self.up = (nn.Linear(C, C, bias=False), nn.Linear(C, W, bias=False),
                                          nn.Linear(C, W, bias=False))
            self.down = nn.Linear(W, C, bias=False)

        def forward(self, x, cos, sin):
            B, T, _ = x.shape
            h = self.norm_1(x)
            q = turn(self.q(h).view(B, T, H, D).transpose(1, 2), cos, sin)
            k = turn(self.k(h).view(B, T, kv, D).transpose(1, 2), cos, sin)
            v = self.v(h).view(B, T, kv, D).transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(B, T, C))
            h = self.norm_2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.norm = nn.Embedding(V, C), nn.RMSNorm(C, eps=1e-5)
            self.h = nn.ModuleList(Block() for _ in range(L))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)

        def forward(self, tokens, targets):
            x = self.wte(tokens)
            for block in self.h:
                x = block(x, self.cos, self.sin)
            return F.cross_entropy(F.linear(self.norm(x), self.wte.weight).flatten(0, 1), targets.flatten())

    return Llama()


def theirs(case, device, n_steps):
    """It compiles, says that it is ready, and takes its timed steps when told to."""
    import torch
    is_cuda = device == "cuda"

    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    family, V, B, T = case[0], case[6], case[7], case[8]
    with torch.device(device):
        net = (gpt2_new if family == "gpt2" else llama_new)(case)
    for p in net.parameters():
        if p.dim() == 2:
            torch.nn.init.normal_(p, std=0.02)
    run = torch.compile(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(V, (4, B, T + 1), device=device)

    def step(i):
        now = tokens[i % 4]
        with torch.autocast(device, torch.bfloat16):
            loss = run(now[:, :-1], now[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def mark():
        if not is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    step(0)
    if is_cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    print("ready", flush=True)
    sys.stdin.readline()
    marks = []
    for i in range(WARM + n_steps + 1):
        marks.append(mark())
        loss = step(i)
    if is_cuda:
        torch.cuda.synchronize()
    times = [a.elapsed_time(b) / 1e3 if is_cuda else b - a for a, b in zip(marks, marks[1:])][WARM:]
    return {"times": times, "bytes": torch.cuda.max_memory_allocated() if is_cuda else 0, "loss": float(loss)}


def ceiling():
    """FLOP/s of an 8192^3 product of random bf16 matrices, and bytes/s of a copy, read and written."""
    import torch
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    big, to = (torch.empty(1 << 31, device="cuda", dtype=torch.uint8) for _ in range(2))

    def seconds(call):
        spans = []
        for _ in range(30):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            spans.append(begin.elapsed_time(end) / 1e3)
        return statistics.median(spans[5:])

    return {"flops": 2 * 8192**3 / seconds(lambda: a @ b), "copy": 2 * (1 << 31) / seconds(lambda: to.copy_(big))}


def apart(*arguments):
    """This file again, in a process of its own, so that what PyTorch holds is given back."""
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


# ---- The table ----

def attempt(what, call):
    try:
        return call()
    except Exception as error:  # one row that fails is a row that says so
        print(f"{what}: {error}", file=sys.stderr, flush=True)
        return None


def row_print(name, case, ways, top):
    rate = {way: case[7] * case[8] / statistics.median(ways[way]["times"]) if ways[way] else None for way in WAYS}
    our, their = ways["ours"], ways["torch"]
    number = lambda x, text: format(x, text) if x is not None else format("-", ">" + text.split(".")[0])
    over = lambda a, b: a / b if a and b else None
    flops = {way: value and value * token_flops(case) for way, value in rate.items()}
    gigabytes = lambda n_bytes: number(n_bytes and n_bytes / 2**30, "8.2f")
    cells = [number(rate[way], "9.0f") for way in WAYS] + [number(over(rate["ours"], rate["torch"]), "6.3f")]
    cells += [number(over(flops[way], DENSE_BF16), "6.3f") for way in WAYS]
    cells += [number(over(flops["ours"], top and top["flops"]), "8.3f")]
    cells += [gigabytes(n_bytes) for n_bytes in (our and our["bytes"], ways["selective_bytes"],
                                                 our and our["driver_bytes"], their and their["bytes"])]
    print(f"{name:11}", *cells, f" {our['health'].get('watts', '') if our else ''}", flush=True)


def goals_of(name, ways):
    """Rows of what was reached and what is to be reached, each with whether it was; of figures that are there."""
    goals, our, their, rows = GOALS.get(name, {}), ways["ours"], ways["torch"], []

    def goal(key, what, reached, most=True):
        if key in goals and reached is not None:
            rows.append({"model": name, "what": what, "reached": reached, "goal": goals[key], "at_most": most,
                         "met": reached <= goals[key] if most else reached >= goals[key]})
    if our:
        goal("ms", "ms a step", statistics.median(our["times"]) * 1e3)
    if our and their:
        goal("speed", "tokens/s over PyTorch's", 1 / ratio_of(our, their), most=False)
    if our and their and their["bytes"]:
        goal("memory", "memory over PyTorch's", our["bytes"] / their["bytes"])
        if ways["selective_bytes"]:
            goal("selective", "the same with selective checkpointing", ways["selective_bytes"] / their["bytes"])
    return rows


def goals_print(rows):
    """Returns how many were missed."""
    for row in rows:
        print(f"{row['model']:11} {row['what']:38} {row['reached']:7.3f}  at {'most' if row['at_most'] else 'least':5} "
              f"{row['goal']:6.3f}  {'met' if row['met'] else 'MISSED'}")
    missed = sum(not row["met"] for row in rows)
    if rows:
        print(f"{len(rows) - missed} of {len(rows)} goals met", flush=True)
    return missed


def judge(ratios, bar):
    """The exit status for times of steps, ours / PyTorch, by name: None is not judged, infinity did not run."""
    slow = {name: ratio for name, ratio in ratios.items() if ratio is not None and ratio > bar}
    for name, ratio in slow.items():
        print(f"bench_gpu: {name}: {f'{ratio:.2f} times PyTorch' if ratio < float('inf') else 'did not run'} "
              f"(bar {bar})", file=sys.stderr)
    return 1 if slow else 0


def ratio_of(our, their):
    """Of the default mode; see judge."""
    if not our:
        return float("inf")
    return statistics.median(our["times"]) / statistics.median(their["times"]) if their else None


class Room:
    """Memory that processes share: each takes what it needs at its peak and gives back what it does not keep."""

    def __init__(self, n_bytes):
        self.free, self.n_busy = n_bytes, 0
        self.changed = threading.Condition()

    def take(self, n_bytes):
        """Waits until there is so much, or until nobody is at his peak: then it can only be tried."""
        with self.changed:
            self.changed.wait_for(lambda: self.free >= n_bytes or not self.n_busy)
            self.free -= n_bytes
            self.n_busy += 1

    def give(self, n_bytes):
        with self.changed:
            self.free += n_bytes
            self.n_busy -= 1
            self.changed.notify_all()


def peer_bytes(case):
    """At least PyTorch's peak in a step, and what it keeps between steps: weights and AdamW's moments in f32."""
    L, C, V, B, T = case[1], case[4], *case[6:9]
    context = 1 << 30
    return 16 * parameters(case) + B * T * (44 * L * C + 4 * V) + context, 12 * parameters(case) + context


class Peer:
    """PyTorch's side of a case in a process of its own, compiled and waiting to be timed."""

    def __init__(self, case, device, n_steps, room):
        peak, kept = peer_bytes(case)
        self.errors = tempfile.TemporaryFile("w+")
        room.take(peak)
        # Several compile at once: few threads each.
        self.process = subprocess.Popen([sys.executable, __file__, "--turn", json.dumps(case), "--device", device,
                                         "--steps", str(n_steps)], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors,
                                        env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "2"})
        is_ready = self.process.stdout.readline()
        room.give(peak - kept if is_ready else peak)

    def run(self):
        try:
            out, _ = self.process.communicate("go\n")
        except BrokenPipeError:  # it ended before
            out = ""
        if self.process.wait() or not out:
            self.errors.seek(0)
            raise RuntimeError((self.errors.read().strip().splitlines() or ["it failed"])[-1])
        return json.loads(out.splitlines()[-1])


def room_of(device):
    """All of the GPU's memory but a tenth; on a cpu, one at a time."""
    return Room(0 if device == "cpu" else driver_bytes("total") * 9 // 10)


def peers_of(cases, options):
    """A Peer for each case, or None: all are compiled when this returns. The largest begin."""
    room, peers = room_of(options.device), {}

    def start(i):
        peers[i] = attempt(f"{cases[i]}, torch", lambda: Peer(cases[i], options.device, options.steps, room))
    began = time.time()
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(start, sorted(range(len(cases)), key=lambda i: -peer_bytes(cases[i])[0])))
    print(f"PyTorch compiled {len(cases)} models in {time.time() - began:.0f} s", file=sys.stderr, flush=True)
    return [peers[i] for i in range(len(cases))]


def random_compare(options):
    """Steps of random models beside torch.compile, slowest first."""
    draw = random.Random(options.seed)
    cases = [case_draw(draw) for _ in range(options.random)]
    cases = cases if options.device == "cuda" else [cut(case) for case in cases]
    peers = peers_of(cases, options)
    rows, ratios = [], {}
    for case, peer in zip(cases, peers):
        our = attempt(f"{case}, ours", lambda: ours(case, options.recipe, options.device, options.steps))
        their = peer and attempt(f"{case}, torch", peer.run)
        ratios[", ".join(map(str, case))] = ratio_of(our, their)
        if our and their:
            ms = [statistics.median(way["times"]) * 1e3 for way in (our, their)]
            rows.append({"case": case, "ours": ms[0], "torch": ms[1], "ratio": ms[0] / ms[1]})
            print(f"  {len(rows)}: {ms[0] / ms[1]:.2f}", file=sys.stderr, flush=True)
    print(f"{'ratio':>7} {'ours ms':>9} {'torch ms':>9}  family, layers, heads, of keys, channels, inner, vocabulary, "
          "batch, time")
    for row in sorted(rows, key=lambda row: -row["ratio"]):
        print(f"{row['ratio']:7.2f} {row['ours']:9.3f} {row['torch']:9.3f}  {', '.join(map(str, row['case']))}")
    print(f"{len(rows)} of {len(cases)} models; {sum(row['ratio'] > options.bar for row in rows)} slower than "
          f"{options.bar} times torch")
    if options.json:
        options.json.write_text(json.dumps(rows))
    return judge(ratios, options.bar)


def profiles(options):
    rows = {}
    for name in options.only:
        case = CASES[name] if options.device == "cuda" else cut(CASES[name])
        rows[name] = attempt(f"{name}, profile", lambda: profile_of(case, options.recipe, options.device))
        if rows[name]:
            profile_print(name, rows[name])
    if options.json:
        options.json.write_text(json.dumps(rows))
    return 0 if all(rows.values()) else 1


def named_compare(options):
    """The models of the table, and their goals."""
    is_cuda = options.device == "cuda"
    cases = {name: CASES[name] if is_cuda else cut(CASES[name]) for name in options.only}
    peers = [None] * len(cases) if options.ours else peers_of(list(cases.values()), options)
    top = attempt("ceiling", lambda: apart("--turn", "ceiling")) if is_cuda else None
    if top:
        print(f"ceilings here: product {top['flops'] / 1e12:.0f} TFLOP/s, copy {top['copy'] / 1e12:.2f} TB/s; recipe "
              f"{options.recipe}")
    print(f"{'':11} {'tokens/s':>19} {'over':>6} {'MFU':>13} {'of':>8} {'GiB':>35}")
    print(f"{'':11} {'ours':>9} {'torch':>9} {'torch':>6} {'ours':>6} {'torch':>6} {'product':>8} {'priced':>8} "
          f"{'select.':>8} {'driver':>8} {'torch':>8}  watts")
    rows, goals = {}, []
    for (name, case), peer in zip(cases.items(), peers):
        rows[name] = ways = {}
        ways["ours"] = attempt(f"{name}, ours", lambda: ours(case, options.recipe, options.device, options.steps))
        ways["torch"] = peer and attempt(f"{name}, torch", peer.run)
        ways["selective_bytes"] = attempt(f"{name}, price", lambda: selective_bytes(case, options.recipe,
                                                                                    options.device))
        row_print(name, case, ways, top)
        goals += goals_of(name, ways) if is_cuda else []
    missed = goals_print(goals)
    if options.json:
        options.json.write_text(json.dumps({"ceiling": top, "rows": rows, "goals": goals}))
    slow = judge({name: ratio_of(ways["ours"], ways["torch"]) for name, ways in rows.items()}, options.bar)
    return 1 if slow or (options.goals and missed) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--random", type=int, metavar="N", help="so many models drawn at random instead")
    parser.add_argument("--seed", type=int, default=1, help="of these")
    parser.add_argument("--recipe", default="bf16")
    parser.add_argument("--ours", action="store_true", help="without PyTorch")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--bar", type=float, default=1.3, help="times PyTorch's that a step of ours may take")
    parser.add_argument("--goals", action="store_true", help="fail where a goal is missed")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: only to try this script")
    parser.add_argument("--profile", action="store_true", help="op by op, beside floors; without PyTorch")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(ceiling() if options.turn == "ceiling"
                         else theirs(json.loads(options.turn), options.device, options.steps)))
        return 0
    compare = profiles if options.profile else random_compare if options.random else named_compare
    return compare(options)


if __name__ == "__main__":
    sys.exit(main())
