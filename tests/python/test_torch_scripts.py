"""Programs written for PyTorch, run with Tally in torch's place (`python -m tally.torch`), and what such programs touch
besides tensors: each against PyTorch."""
import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import tally

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def run(*arguments, **environment):
    return subprocess.run([sys.executable, "-m", "tally.torch", *map(str, arguments)], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=600)


def with_torch(script, *arguments):
    """A script in this process, whose torch is PyTorch; what it prints as JSON."""
    argv, out = sys.argv, io.StringIO()
    try:
        sys.argv = [str(script), *map(str, arguments)]
        # torch.testing's samples, which another test may have imported, forbid to set flags of torch.backends
        with contextlib.redirect_stdout(out), torch.backends.__allow_nonbracketed_mutation():
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = argv
    return json.loads(out.getvalue().splitlines()[-1])


def gpt_weights(path):
    r, c, v, t = np.random.default_rng(3), 32, 65, 16
    shapes = {"transformer.wpe.weight": (t, c), "lm_head.weight": (v, c)}
    for i in range(2):
        shapes.update({f"transformer.h.{i}.{k}.weight": s for k, s in (
            ("attn.c_attn", (3 * c, c)), ("attn.c_proj", (c, c)), ("mlp.c_fc", (4 * c, c)), ("mlp.c_proj", (c,
                                                                                                            4 * c)))})
    weights = {k: (0.1 * r.standard_normal(s)).astype("float32") for k, s in shapes.items()}
    weights["transformer.wte.weight"] = weights["lm_head.weight"]
    for k in ("ln_f", "h.0.ln_1", "h.0.ln_2", "h.1.ln_1", "h.1.ln_2"):
        weights[f"transformer.{k}.weight"] = np.ones(c, "float32")
    np.savez(path, **weights)


def test_a_training_script_runs_as_with_torch(tmp_path, monkeypatch):
    """As public ones do: compile, GradScaler, pinned memory, DDP guards, a cosine schedule, checkpoints."""
    gpt_weights(tmp_path / "weights.npz")
    monkeypatch.setenv("SCRIPT_COMPILE", "0")  # PyTorch would start a compiler
    threads = torch.get_num_threads()
    theirs = with_torch(SCRIPTS / "train_gpt.py", tmp_path)
    ours = run(SCRIPTS / "train_gpt.py", tmp_path, "--continue", SCRIPT_COMPILE="1")  # from torch's checkpoint
    assert ours.returncode == 0, ours.stderr
    assert ours.stderr.count("torch.compile changes nothing") == 1
    half = json.loads(ours.stdout)
    np.testing.assert_allclose(half["losses"], theirs["losses"][4:], atol=1e-5)
    ours = json.loads(run(SCRIPTS / "train_gpt.py", tmp_path).stdout)
    np.testing.assert_allclose(ours["losses"], theirs["losses"], atol=1e-5)
    assert ours["grown"] == theirs["grown"] and ours["torch"].startswith("2.10.0+tally")
    again = with_torch(SCRIPTS / "train_gpt.py", tmp_path, "--continue")  # from our checkpoint
    np.testing.assert_allclose(again["losses"], theirs["losses"][4:], atol=1e-5)
    torch.set_num_threads(threads)


def close(a, b, where=""):
    """The same, numbers within 1e-5 of the larger of 1 and their size."""
    if isinstance(b, dict):
        assert list(a) == list(b)
        for k in b:
            close(a[k], b[k], f"{where} {k}")
    elif isinstance(b, list):
        assert len(a) == len(b), where
        for x, y in zip(a, b):
            close(x, y, where)
    else:
        assert a == b or abs(a - b) <= 1e-5 * max(1, abs(b)), f"{where}: {a}, torch {b}"


def test_the_first_tutorials_run_as_with_torch(tmp_path):
    warnings.simplefilter("ignore")
    (tmp_path / "theirs").mkdir()
    theirs = with_torch(SCRIPTS / "tutorials.py", tmp_path / "theirs")
    ours = run(SCRIPTS / "tutorials.py", tmp_path)
    assert ours.returncode == 0, ours.stderr
    close(json.loads(ours.stdout), theirs)
    assert list((tmp_path / "board").glob("events.out.tfevents.*"))


def test_names_are_mapped_or_named():
    done = run("-c", """
import sys, torch
import torch.nn as nn, torch.nn.functional as F, torch.optim as optim, torch.utils.data, torch.backends.cudnn as cudnn
from torch.utils.data import DataLoader, Dataset
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau
from torch.cuda.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.tensorboard import SummaryWriter
from torch import Tensor, nn as nn2
assert nn is torch.nn is nn2 and F is nn.functional and F is sys.modules["torch.nn.functional"]
assert torch.__version__.split(".")[0] == "2" and "tally" in torch.__version__ and nn.__name__ == "tally.nn"
assert isinstance(torch.ones(2), Tensor) and isinstance(nn.Linear(1, 1), nn.Module) and not hasattr(torch, "nope")
for text in ("from torch import lobpcg", "import torch.onnx", "from torch.fx import Graph", "torch.export",
             "from torch import nope"):
    try:
        exec(text)
    except (ImportError, AttributeError) as error:
        print(type(error).__name__, error)
print(sys.argv)
""", "x", "--y")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == ("ImportError torch.lobpcg is not in tally (rarer linear algebra): use `tally.linalg`, or "
                        "`numpy.linalg` on `x.numpy()`")
    assert lines[1].startswith("ModuleNotFoundError torch.onnx is not in tally")
    assert lines[2].startswith("ModuleNotFoundError torch.fx is not in tally (compilation, graphs, export")
    assert lines[3].startswith("AttributeError torch.export is not in tally (compilation, graphs, export")
    assert lines[4].startswith("ImportError torch.nope is not in tally")
    assert lines[5] == "['-c', 'x', '--y']"


def test_the_command_line(tmp_path):
    (tmp_path / "beside.py").write_text("x = 3\n")
    (tmp_path / \
     "main.py").write_text("import sys, beside, torch\nprint(beside.x, sys.argv[1:], __name__)\nsys.exit(7)\n")
    done = run(tmp_path / "main.py", "-v")
    assert (done.returncode, done.stdout) == (7, "3 ['-v'] __main__\n")
    done = run("-m", "json.tool", "--help")
    assert done.returncode == 0 and "usage" in done.stdout
    assert run().returncode == 2 and "python -m tally.torch train.py" in run("--help").stdout
    done = run(tmp_path / "none.py")
    assert done.returncode == 2 and "none.py: no such file" in done.stderr
    with pytest.raises(ImportError, match="torch itself is imported"):
        __import__("tally.torch").torch.install()


# ---- Optimizers: equal to torch over 20 steps ----

OPTIMIZERS = [
    ("NAdam", {}), ("NAdam", dict(weight_decay=0.1, decoupled_weight_decay=True)), ("RAdam", {}),
    ("RAdam", dict(weight_decay=0.1)), ("Adamax", dict(weight_decay=0.01)), ("Adadelta", dict(weight_decay=0.01)),
    ("ASGD", dict(t0=3)), ("Rprop", {}), ("Adafactor", {}), ("Adafactor", dict(weight_decay=0.1, maximize=True)),
    ("NAdam", dict(maximize=True)), ("Muon", {}),
    ("LBFGS", dict(max_iter=4, history_size=3)), ("LBFGS", dict(line_search_fn="strong_wolfe", max_iter=5)),
]


def optimized(t, name, options):
    r = np.random.default_rng(1)
    x, y = (t.from_numpy(r.standard_normal(s)) for s in ((16, 5), (16, 3)))
    params = [t.nn.Parameter(t.from_numpy(0.5 * r.standard_normal(s))) for s in ((5, 4), (4, 3), (3,))]
    params = params[:2] if name == "Muon" else params
    optimizer, losses = getattr(t.optim, name)(params, **options), []
    schedule = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=1e-2)

    def closure():
        optimizer.zero_grad()
        if name == "LBFGS":  # convex: elsewhere each step multiplies the rounding errors of the one before
            loss = (x @ params[0][:, :3] + params[2] - y).square().mean() + 0.1 * (params[0] ** 4).sum()
        else:
            loss = ((t.tanh(x @ params[0]) @ params[1] + (params[2] if len(params) > 2 else 0)) - y).square().mean()
        loss.backward()
        return loss
    for i in range(20):
        if i == 10:  # the state goes through a state_dict
            state = optimizer.state_dict()
            optimizer = getattr(t.optim, name)(params, **options)
            optimizer.load_state_dict(state)
            schedule.optimizer = optimizer
        losses.append(optimizer.step(closure).item())
        schedule.step(losses[-1])
    return np.array(losses), [p.detach().numpy() for p in params], schedule.get_last_lr()


@pytest.mark.parametrize("name, options", OPTIMIZERS, ids=lambda x: str(x))
def test_optimizers_are_torchs_over_20_steps(name, options):
    warnings.simplefilter("ignore")
    (ours, a, rate), (theirs, b, their_rate) = optimized(tally, name, options), optimized(torch, name, options)
    exact = dict(rtol=2e-2, atol=1e-3) if name == "Muon" else dict(rtol=1e-7, atol=1e-9)  # torch's Muon is in bf16
    np.testing.assert_allclose(ours, theirs, **exact)
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, **exact)
    np.testing.assert_allclose(rate, their_rate)


# ---- Each line gives the same with both ----

SAME = r"""
t.Tensor([1, 2]), t.Tensor(2, 3).shape, t.LongTensor([1, 2]), t.FloatTensor(2).dtype == t.float32
isinstance(t.ones(2), t.FloatTensor), isinstance(t.ones(2), t.LongTensor), t.FloatTensor([[1.5]])
t._foreach_add([t.ones(2), t.zeros(3)], 2), t._foreach_mul([t.ones(2)], [t.full((2,), 3.0)])
t._foreach_norm([t.ones(4), t.zeros(3)]), t._foreach_sqrt([t.full((2,), 9.0)])
(lambda x: (t._foreach_add_(x, [1.0, 2.0]), t._foreach_mul_(x, 3.0), x))([t.ones(2), t.ones(1)])
(lambda x: (t._foreach_addcdiv_(x, x, x, [2.0, 1.0]), x))([t.ones(2), t.ones(1)])
t.linalg.vector_norm(t.arange(6.0).reshape(2, 3), 1, dim=1), t.linalg.vector_norm(t.arange(4.0))
t.linalg.norm(t.arange(6.0).reshape(2, 3)), t.linalg.norm(t.arange(6.0).reshape(2, 3), "fro"),
t.linalg.norm(t.arange(6.0).reshape(2, 3), 1)
t.backends.cudnn.is_available() in (True, False), t.backends.mps.is_available(), t.cuda.is_available()
t.autograd.functional.jacobian(lambda x: x.exp() * x.sum(), t.tensor([1.0, 2.0]))
t.autograd.functional.jacobian(lambda x, y: (x * y, x.sum()), (t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0])))
t.autograd.functional.hessian(lambda x: (x ** 3).sum() + x[0] * x[1], t.tensor([1.0, 2.0]))
t.autograd.functional.hessian(lambda x, y: (x * y).sum() * x[0], (t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0])))
t.autograd.functional.vjp(lambda x: x.sin(), t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0]))
t.autograd.functional.jvp(lambda x: x.sin() * x.sum(), t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0]))
t.autograd.functional.vhp(lambda x: (x ** 3).sum(), t.tensor([1.0, 2.0]), t.tensor([3.0, 4.0]))
t.func.grad(lambda x: (x ** 2).sum())(t.tensor([1.0, 2.0])), t.func.grad_and_value(lambda x: x.sum())(t.ones(3))
t.func.grad(lambda p, x: (p["w"] * x + p["b"]).sum())({"w": t.tensor(2.0), "b": t.tensor(1.0)}, t.tensor(3.0))
t.func.vmap(lambda x, y: x @ y, in_dims=(0, None))(t.arange(6.0).reshape(2, 3), t.ones(3))
t.vmap(t.func.grad(lambda w, x: (w * x).sum() ** 2), in_dims=(None, 0))(t.ones(2), t.arange(4.0).reshape(2, 2))
t.func.jacrev(lambda x: x ** 2)(t.tensor([1.0, 2.0])), t.func.hessian(lambda x: (x ** 4).sum())(t.tensor([1.0, 2.0]))
t.func.functional_call(t.nn.Linear(2, 1), {"weight": t.ones(1, 2), "bias": t.zeros(1)}, t.tensor([3.0, 4.0]))
t.func.vjp(lambda x: x * 2, t.ones(2))[1](t.tensor([1.0, 5.0]))
t.func.jvp(lambda x: x ** 2, (t.ones(2),), (t.tensor([3.0, 4.0]),))
t.utils._pytree.tree_map(lambda x: x * 2, {"a": [t.ones(2), (3,)], "b": 4})
t.utils._pytree.tree_leaves([1, {"x": (2, 3)}])
t.autograd.gradcheck(lambda x: (x ** 2).sum(), t.ones(3, dtype=t.float64, requires_grad=True))
t.autograd.gradgradcheck(lambda x: (x ** 3).sum(), t.ones(3, dtype=t.float64, requires_grad=True))
(lambda d: (d.log_prob(t.tensor([0.5, 2.0])), d.entropy(), d.mean))(t.distributions.Normal(t.tensor([0.0, 1.0]), 2.0))
(lambda d: (d.log_prob(t.tensor([0, 2])), d.entropy()))(t.distributions.Categorical(logits=t.tensor([[1.0, 2.0, 0.0]])))
(lambda d: (d.log_prob(t.tensor(1.0)), d.entropy(), d.variance))(t.distributions.Bernoulli(t.tensor(0.3)))
t.distributions.kl_divergence(t.distributions.Normal(0.0, 1.0), t.distributions.Normal(1.0, 2.0))
t.distributions.Categorical(t.ones(2, 4)).sample((5,)).shape, t.distributions.Uniform(0.0, 2.0).log_prob(t.tensor(1.0))
t.nn.init.dirac_(t.empty(3, 2, 3)), t.nn.init.eye_(t.empty(2, 3))
t.ones(2, requires_grad=True).exp().sum().grad_fn.name()[:3], t.ones(1).grad_fn
(lambda y: [f[0].name()[:3] for f in y.grad_fn.next_functions])(t.ones(2, requires_grad=True).exp().sum())
t.are_deterministic_algorithms_enabled() in (True, False), t.get_num_interop_threads() > 0, t.jit.is_scripting()
(t.random.manual_seed(3), t.random.initial_seed())[1], t.typename(3.5), t.is_storage(3)
t.frombuffer(bytearray(b"\1\0\0\0\2\0\0\0"), dtype=t.int32), t.amp.is_autocast_available("cpu") """.strip().splitlines()


def plain(x):
    if isinstance(x, (torch.Tensor, tally.Tensor)):
        return ("tensor", str(x.dtype).split(".")[1], np.round(x.detach().double().numpy(), 5).tolist())
    if isinstance(x, (tuple, list)):
        return [plain(v) for v in x]
    return {k: plain(v) for k, v in x.items()} if isinstance(x, dict) else x


@pytest.mark.parametrize("line", SAME)
def test_same_as_torch(line):
    warnings.simplefilter("ignore")
    assert plain(eval(line, {"t": tally})) == plain(eval(line, {"t": torch}))


def test_assert_close():
    a = tally.tensor([1.0, 2.0])
    tally.testing.assert_close(a, a + 1e-7)
    tally.testing.assert_close({"x": [a, 1.0]}, {"x": [a.clone(), 1.0]})
    for wrong, words in ((a + 1e-3, "Mismatched elements: 2 / 2"), (a.double(), "'dtype' do not match"),
                         (a[:1], "'shape' do not match")):
        with pytest.raises(AssertionError, match=words):
            tally.testing.assert_close(a, wrong)
    with pytest.raises(AssertionError, match="mine"):
        tally.testing.assert_close(1.0, 2.0, msg="mine")


def hooked(t):
    seen = []

    def note(name):
        return lambda module, *grads: seen.append((name, type(module).__name__, plain([list(g) for g in grads])))
    torch_like = t.nn.Sequential(t.nn.Linear(2, 2), t.nn.Tanh(), t.nn.Linear(2, 1))
    with t.no_grad():
        for p in torch_like.parameters():
            p.copy_(t.arange(p.numel(), dtype=t.float32).reshape(p.shape) / 4)
    handles = [torch_like[1].register_full_backward_hook(note("tanh")),
               torch_like.register_full_backward_hook(note("all")),
               torch_like[2].register_full_backward_pre_hook(note("before")),
               torch_like[0].register_full_backward_hook(lambda m, gi, go: None),
               torch_like[1].register_full_backward_hook(lambda m, gi, go: tuple(g * 2 for g in gi))]
    x = t.tensor([[1.0, -2.0]], requires_grad=True)
    torch_like(x).sum().backward()
    handles[0].remove()
    torch_like(t.ones(1, 2)).sum().backward()  # no input needs a gradient
    return seen, plain(x.grad), [plain(p.grad) for p in torch_like.parameters()]


def test_backward_hooks_of_modules_are_torchs():
    warnings.simplefilter("ignore")
    assert hooked(tally) == hooked(torch)


# ---- DataLoader with processes ----

class Squares(tally.utils.data.Dataset):
    def __len__(self):
        return 11

    def __getitem__(self, i):
        if i == 100:
            raise KeyError("no such item")
        info = tally.utils.data.get_worker_info()
        return {"x": tally.tensor([i, i * i]), "worker": -1 if info is None else info.id, "pid": os.getpid()}


class Stream(tally.utils.data.IterableDataset):
    def __iter__(self):
        info = tally.utils.data.get_worker_info()
        return iter(range(info.id, 10, info.num_workers))


def test_workers_load_in_their_own_processes():
    data = tally.utils.data
    plain_batches = [b["x"].tolist() for b in data.DataLoader(Squares(), batch_size=3)]
    loader = data.DataLoader(Squares(), batch_size=3, num_workers=2, persistent_workers=True, pin_memory=True,
                             worker_init_fn=lambda i: None)
    for _ in range(2):
        batches = list(loader)
        assert [b["x"].tolist() for b in batches] == plain_batches
        assert {w for b in batches for w in b["worker"].tolist()} == {0, 1}
        assert os.getpid() not in {p for b in batches for p in b["pid"].tolist()}
    loader._workers.stop()
    assert sorted(x for b in data.DataLoader(Stream(), batch_size=2, num_workers=3)
                  for x in b.tolist()) == list(range(10))
    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker process 0"):
        list(data.DataLoader(Squares(), sampler=[100], num_workers=1))
    first = next(iter(data.DataLoader(Squares(), batch_size=4, num_workers=1)))  # the rest is not wanted
    assert first["x"].shape == (4, 2)


class Dies(tally.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        os._exit(3)


def test_a_worker_that_dies_is_an_error(monkeypatch):
    from tally.utils import _workers
    monkeypatch.setattr(_workers, "_PATIENCE_S", 0.2)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(tally.utils.data.DataLoader(Dies(), num_workers=1))


# ---- TensorBoard, profiler ----

def test_event_files_are_read_by_tensorboard(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tally.utils.tensorboard import SummaryWriter
    with SummaryWriter(tmp_path) as writer:
        for i in range(5):
            writer.add_scalar("loss", tally.tensor(1.0 / (i + 1)), i)
        writer.add_histogram("w", tally.arange(100.0), 2)
        writer.add_text("note", "hallo", 1)
        writer.add_image("picture", tally.rand(3, 4, 5), 0)
    events = loader.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, round(e.value, 4)) for e in events.Scalars("loss")] == [
             (0, 1), (1, .5), (2, .3333), (3, .25), (4, .2)]
    histogram = events.Histograms("w")[0].histogram_value
    assert (histogram.num, histogram.sum, histogram.max, sum(histogram.bucket)) == (100, 4950, 99, 100)
    picture = events.Images("picture")[0]
    assert (picture.width, picture.height, picture.encoded_image_string[1:4]) == (5, 4, b"PNG")
    assert events.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"hallo"]


def test_the_profiler_counts_as_the_ledger_does(tmp_path):
    from tally.profiler import ProfilerActivity, profile, record_function, schedule
    x = tally.ones(8, 8)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        with record_function("part"):
            x @ x
    (row,) = [e for e in p.key_averages() if e.key == "matmul"]
    assert (row.count, row.flops) == (1, 2 * 8**3) and "matmul" in p.key_averages().table(sort_by="cpu_time_total")
    assert p.ledger.rows[0]["path"] == "part"
    p.export_chrome_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"][0]["name"] == "matmul"
    ready = []
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=1), on_trace_ready=ready.append) as p:
        for _ in range(6):
            x @ x
            p.step()
    assert len(ready) == 1 and ready[0].key_averages()[0].count == 2


def test_printing():
    x = tally.tensor([1.0, 2.123456])
    default = repr(x)
    try:
        tally.set_printoptions(precision=2)
        assert repr(x) == "tensor([1.00, 2.12])"
        tally.set_printoptions(sci_mode=True)
        assert repr(x) == "tensor([1.00e+00, 2.12e+00])"
    finally:
        tally._runtime._options.update(tally._runtime._PROFILES["default"])
        tally.set_printoptions(profile="default")
    assert repr(x) == default


# ---- The program ----

def test_commands_of_the_program(tmp_path):
    from tally import _program
    if not os.access(os.path.join(os.path.dirname(os.environ.get("TALLY_LIB", "")), "tally"), os.X_OK):
        pytest.skip("the program is not beside the library")
    plan = tally.plan(model="tiny", device="H200", batch=8, seq=128)
    assert plan["schema"].startswith("tally.plan/")
    assert tally.napkin("memory", shape="2,3", dtype="f32")
    with pytest.raises(ValueError, match="nonsense"):
        tally.plan(model="nonsense")
    with pytest.raises(ValueError):
        tally.napkin("time", no_such_option=3)
    folder = tmp_path / "run"
    tally.train(out=folder, layers=1, channels=16, heads=1, steps=2, warmup=1, batch=2, seq=16, sample_tokens=0)
    assert 5 < tally.eval(folder)["loss"] < 6  # of 256 bytes, almost untrained
    assert len(tally.generate(folder, "Once", tokens=3, seed=1)["tokens"]) == 3
    done = subprocess.run([sys.executable, "-m", "tally", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and tally.__version__ in done.stdout
    assert _program.path().endswith("tally")


def test_prices_that_are_held():
    @tally.priced
    def step(x):
        return (x @ x).relu().sum()
    x = tally.ones(4, 4)
    assert step(x).item() == 64 and step.diff == [] and step.price.flops == step.receipt.flops == 2 * 64 + 16 + 16
    assert tally.assert_price(lambda a: a @ a, (4, 4), flops=128, calls=1, bytes=(1, 1000)).flops == 128
    tally.assert_price(lambda a: a @ a, x, flops=128, runs=True)
    with pytest.raises(AssertionError, match="flops is 128, expected 100"):
        tally.assert_price(lambda a: a @ a, (4, 4), flops=100)
    with pytest.raises(AssertionError, match="exp .*price"):
        tally.assert_price(lambda a: a if a.is_meta else a.exp(), x, runs=True)
    with pytest.raises(TypeError, match="a price has"):
        tally.assert_price(lambda a: a, x, floops=1)
