"""The programs of examples/python run, learn, and are right where they say something that can be checked.
tests/installed/run has those of examples/*.c."""
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tally

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PRINTS = ["einops_attention", "gradients", "price_first", "save_and_resume", "tensor_views"]
OTHERS = ["train_char", "custom_function", "tokenizer_and_model", "plan_a_run"]


def test_every_example_is_here():
    assert sorted(p.stem for p in EXAMPLES.glob("*.py")) == sorted(PRINTS + OTHERS)


@pytest.mark.parametrize("name", PRINTS)
def test_it_prints_what_it_says(name, capsys):
    wanted = re.search(r"\n\nprints\n\n((?:    .*\n)+)", example(name).__doc__)[1]
    assert capsys.readouterr().out == re.sub("^    ", "", wanted, flags=re.M)


def test_the_plan_fits(capsys):
    example("plan_a_run")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and "RTX 4090: batches of" in lines[0]
    for line in lines:
        fits, more = map(int, re.match(r".*: batches of (\d+) .*; (\d+) do not fit$", line).groups())
        assert 1 <= fits < more


def test_a_tokenizer_and_a_model_of_ones_own(tmp_path):
    m, said = example("tokenizer_and_model"), []
    losses, written = m.main(m.make_text(), 30, tmp_path, said.append)
    assert said[0] in m.__doc__
    assert losses[-1] < losses[0] / 2 and written.startswith("the ")
    assert "0 differences between price and receipt" in said[2]
    assert tally.Tokenizer(tmp_path / "tokenizer").encode("the cat") == tally.Model(tmp_path / "run").tokenizer.encode(
        "the cat")


@pytest.mark.parametrize("name", ["train_char", "custom_function"])
def test_it_runs_as_a_program(name):
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parents[1] / "python")}
    done = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), "--steps", "2"], check=True, env=environment,
                          capture_output=True, text=True)
    assert "step    1  loss" in done.stdout and not done.stderr


def test_the_characters_are_learned_and_the_price_was_right():
    m = example("train_char")
    said = []
    model, letters, ids, price, losses = m.train(m.make_text(500), 25, said.append)
    assert f"{price.flops} FLOPs" in said[1]
    assert abs(losses[0] - np.log(len(letters))) < 0.4 and np.mean(losses[-3:]) < 2.2 < losses[0]
    x = m.batch(ids)
    for p in model.parameters():
        p.grad = None
    with tally.Ledger("step", "cpu") as receipt:
        model.loss(x).backward()
    assert (receipt.flops, receipt.bytes) == (price.flops, price.bytes)
    assert len(m.speak(model, letters, 5)) == 5


def test_a_text_of_ones_own(tmp_path):
    (tmp_path / "text.txt").write_text("abc" * 200)
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parents[1] / "python")}
    command = [sys.executable, str(EXAMPLES / "train_char.py"), "--steps", "1", "--text", str(tmp_path / "text.txt")]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert "600 characters of 3 kinds" in done.stdout


def test_the_rounding_is_straight_through():
    """Against torch's detach: u + (round u - u) without a gradient, where u = clamp(x / scale)."""
    values = np.random.default_rng(3).standard_normal(50) * 3
    x, scale = torch.tensor(values, requires_grad=True), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    u = (x / scale).clamp(-7, 7)
    wanted = scale * (u + (u.round() - u).detach())
    seed = torch.linspace(-1, 1, 50, dtype=torch.float64)
    wanted.backward(seed)
    ours = tally.tensor(values, requires_grad=True)
    of_scale = tally.tensor(0.3, dtype=tally.float64, requires_grad=True)
    y = example("custom_function").RoundTo.apply(ours, of_scale, 7)
    y.backward(tally.tensor(seed.numpy()))
    for a, b in ((y, wanted), (ours.grad, x.grad), (of_scale.grad, scale.grad)):
        assert np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_what_is_rounded_is_learned():
    losses, scale = example("custom_function").fit(150, lambda line: None)
    assert losses[0] > 0.5 and losses[-1] < 0.03 and 0.1 < scale < 0.5
