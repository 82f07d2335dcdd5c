"""PyTorch's own samples of its operators and modules, run with both libraries (opinfo.py): how many names are there,
and
that no value and no gradient is wrong. TALLY_SOAK=n runs n times as many samples of each, in float64 too."""
import os

import pytest

import opinfo

SOAK = int(os.environ.get("TALLY_SOAK", "0"))
# Values and gradients that differ, and why.
KNOWN_WRONG = {
    "as_strided": "some samples are parts of a larger storage, which is not rebuilt here",
}
KNOWN_WRONG_GRADIENTS = {
    "nn.functional.scaled_dot_product_attention":
    "of a query with three axes, which torch gives to its unfused path. Its fused kernel, too, keeps a log-sum-exp in "
    "float32 instead of the probabilities, and has the same error, 1.2e-5 where the scores reach 81",
    "nn.functional.ctc_loss": "torch's gradient includes that of the log_softmax before the loss",
    "nn.CTCLoss": "the same",
    "as_strided_scatter": "where one element is replaced, torch's gradient of the whole is not 0 there",
}
LEAST_NAMES, LEAST_COMPLEX, LEAST_MODULES = 570, 280, 110


def report(found, what):
    t = opinfo.totals(found)
    print(f"\n{what}: {t['there']} of {t['names']} names, {t['calls']} calls right, {len(t['wrong'])} names wrong; "
          f"{t['gradients']} gradients right, {len(t['wrong gradients'])} names wrong")
    return t


def check(found, t, least):
    wrong = {n: found[n].wrong[0] for n in t["wrong"] if n not in KNOWN_WRONG}
    assert not wrong, wrong
    wrong = {n: found[n].wrong_grads[0] for n in t["wrong gradients"] if n not in KNOWN_WRONG_GRADIENTS}
    assert not wrong, wrong
    assert t["there"] >= least, f"{t['there']} names are there, {least} were: {t['missing']} {t['refused']}"


def test_operators():
    found = opinfo.run(n_samples=2 if not SOAK else 4 * SOAK)
    check(found, report(found, "operators"), LEAST_NAMES)


def test_operators_of_complex_numbers():
    found = opinfo.run(dtypes=("complex64",), n_samples=1 if not SOAK else 4 * SOAK)
    check(found, report(found, "operators of complex numbers"), LEAST_COMPLEX)


def test_modules():
    found = opinfo.run_modules(n_samples=2 if not SOAK else 4 * SOAK)
    check(found, report(found, "modules"), LEAST_MODULES)


@pytest.mark.skipif(not SOAK, reason="a soak: TALLY_SOAK=1 runs it")
def test_operators_in_float64():
    found = opinfo.run(dtypes=("float64",), n_samples=4 * SOAK)
    check(found, report(found, "operators in float64"), LEAST_NAMES - 20)  # some names have no float64
