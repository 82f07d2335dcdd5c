"""Threads with small stacks, counts that are absurd, gradients from another device."""
import json
import subprocess
import sys

import pytest

import tally

SMALL = """
import threading, tally
threading.stack_size(262144)
def work():
    for dtype in (tally.float32, tally.bfloat16, tally.float64):
        x = tally.randn(160, 160, dtype=dtype, requires_grad=True)
        a = tally.randn(64, 40, 40, dtype=dtype)
        (x @ x).sum().backward()
        (a @ a.transpose(1, 2)).sum()
    model = tally.nn.Sequential(tally.nn.Linear(64, 64), tally.nn.GELU(), tally.nn.LayerNorm(64),
                                tally.nn.Linear(64, 8))
    step = tally.optim.AdamW(model.parameters())
    tally.nn.functional.cross_entropy(model(tally.randn(32, 64)), tally.randint(0, 8, (32,))).backward()
    step.step()
    print("done")
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def test_a_thread_with_a_small_stack_multiplies_and_trains():
    r = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True)
    assert (r.returncode, r.stdout.strip()) == (0, "done"), r.stderr[-2000:]


@pytest.mark.parametrize("size", [0, 3, 1 << 40])
def test_absurd_numbers_of_parts_are_refused(size):
    x = tally.empty(size, device="meta")
    cuts = [lambda: x.tensor_split(10**9)]
    if size != 3:  # of three there are at most three
        cuts.append(lambda: x.chunk(10**9))
    if size > 3:
        cuts += [lambda: x.split(2), lambda: x.unbind()]
    for cut in cuts:
        with pytest.raises(RuntimeError, match="parts are too many"):
            cut()


def test_a_few_parts_are_cut_as_ever():
    assert [p.numel() for p in tally.arange(7).chunk(10**9)] == [1] * 7
    assert len(tally.empty(0).chunk(5)) == 5 and len(tally.arange(7).tensor_split(9)) == 9


def test_a_gradient_on_meta_for_a_cpu_tensor_is_refused():
    class FromMeta(tally.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return tally.ones(3, device="meta")

    x = tally.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="on cpu, a gradient on meta"):
        FromMeta.apply(x).sum().backward()
    with pytest.raises(RuntimeError, match="shape and device"):
        (x * 2).backward(tally.ones(3, device="meta"))
    with pytest.raises(RuntimeError, match="device"):
        x.grad = tally.ones(3, device="meta")
    assert x.grad is None


def test_a_config_that_asks_for_more_than_the_weights_have(tmp_path):
    tally.train(model="tiny-gpt2", layers=1, channels=16, heads=2, batch=1, seq=8, steps=1, warmup=0,
                out=str(tmp_path / "run"))
    config = tmp_path / "run" / "final" / "config.json"
    given = json.loads(config.read_text())
    for key, value in {"n_inner": 1 << 32, "vocab_size": 150_000_000, "n_layer": 100_000}.items():
        config.write_text(json.dumps({**given, key: value}))
        with pytest.raises((RuntimeError, ValueError), match="takes|n_layers is"):
            tally.Model(tmp_path / "run" / "final")
