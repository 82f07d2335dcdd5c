"""A host process with a locale of its own: numbers are read and written as in the C locale, down to the byte.

de_DE writes 0,5; ps_AF has a decimal point of two bytes, which jansson cannot replace; tr_TR in its 8-bit encoding has
another small I. Most machines have none of them: they are made here from the sources of the package `locales`.
"""
import shutil
import subprocess
from pathlib import Path

import pytest

LOCALES = {"de_DE.UTF-8": ("de_DE", "UTF-8", ","), "ps_AF.UTF-8": ("ps_AF", "UTF-8", "\u066b"),
           "tr_TR.ISO-8859-9": ("tr_TR", "ISO-8859-9", ",")}

# A program that uses everything that reads or writes numbers. It makes its run in the current folder, where the tests
# compare the files.
PROGRAM = """
import json, locale, re, sys
name, point = {name!r}, {point!r}
if name:
    locale.setlocale(locale.LC_ALL, name)
    assert locale.localeconv()["decimal_point"] == point, locale.localeconv()
import tally
print(json.dumps(tally.train_settings()))
small = dict(model="tiny-gpt2", layers=2, channels=32, heads=2, steps=8, warmup=1, batch=2, seq=16, sample_tokens=5,
             eval_every=2, eval_batches=2, lr=0.0025, dropout=0.125, memory_limit="1.5GiB", top_p=0.75, out="run")
price = tally.train_price(**small)
for kind in price["kinds"].values():
    print(kind["count"], kind["ledger"]["totals"])
summary = tally.train(**small, on_step=lambda news: news["step"] < 3)
print(summary["end"], summary["steps"])
news = []
summary = tally.train(**small, on_step=news.append)
print({{k: summary[k] for k in ("end", "steps", "loss", "held_out", "differences", "floor", "text")}})
print([n.get("loss") for n in news])
print(tally.Model("run/final").generate("A", tokens=4, seed=1))
print(tally.tensor([[0.5, -1.25e-7], [3.0, 1e30]]), tally.tensor([0.5, 2.25]))
print(tally.tensor(0.1, requires_grad=True).exp())
for wrong in dict(lr=-0.5), dict(dropout=1.5), dict(memory_limit="0.5x"), dict(device="mi300x"), dict(lr="0,5"):
    try:
        tally.train(**{{**small, **wrong, "out": "never"}})
    except Exception as error:
        print(type(error).__name__, error)
try:
    tally.nn.functional.dropout(tally.ones(2), 1.5)
except Exception as error:
    print(error)
for file in "config.json", "price.json", "final/config.json":
    print(open("run/" + file).read())
print(re.sub('"time":{{[^}}]*}}', "", open("run/log.jsonl").read()))
print(open("run/stories.txt").read()[:2000])
if name:
    assert locale.setlocale(locale.LC_ALL) == name and locale.localeconv()["decimal_point"] == point
"""


@pytest.fixture(scope="module")
def locales(tmp_path_factory):
    """The folder with the locales of above."""
    if not shutil.which("localedef") or not Path("/usr/share/i18n/locales/de_DE").exists():
        pytest.skip("no locale can be made: there is no localedef, or no /usr/share/i18n (the package `locales`)")
    folder = tmp_path_factory.mktemp("locales")
    for name, (source, charmap, _) in LOCALES.items():
        made = subprocess.run(["localedef", "-i", source, "-f", charmap, str(folder / name)], capture_output=True,
                              text=True)
        assert (folder / name / "LC_NUMERIC").exists(), made.stderr
    return folder


def transcript(run_python, tmp_path, folder, **environment):
    (tmp_path / folder).mkdir()
    return run_python(f"import os; os.chdir({folder!r})\n" + PROGRAM.format(**environment.pop("given")),
                      OMP_NUM_THREADS="2", PYTHONIOENCODING="utf-8", **environment)


@pytest.mark.parametrize("name", LOCALES)
def test_a_locale_of_the_host_changes_no_byte(run_python, tmp_path, locales, name):
    plain = transcript(run_python, tmp_path, "plain", given=dict(name="", point="."), LC_ALL="C")
    other = transcript(run_python, tmp_path, "other", given=dict(name=name, point=LOCALES[name][2]), LC_ALL="C",
                       LOCPATH=str(locales))
    assert other == plain
    assert "0.0025" in plain and "lr: \"-0.5\" is not a number from" in plain
    for file in "final/model.safetensors", "final/config.json", "config.json", "price.json", "stories.txt":
        assert (tmp_path / "other/run" / file).read_bytes() == (tmp_path / "plain/run" / file).read_bytes(), file
