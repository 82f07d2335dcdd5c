"""The program's commands in Python: plan, fit, napkin, eval and generate run `tally COMMAND --json` and give what it
prints. Settings are those of the command, as keywords: tally.plan(model="gpt2", device="H200", batch=32)."""
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import _library

_PACKAGE = Path(__file__).resolve().parent


def path():
    """The program: beside the library, in the package, in the source tree, or on the PATH."""
    places = [Path(_library.path).resolve().parent / "tally", _PACKAGE / "bin" / "tally",
              _PACKAGE.parents[1] / "build" / "tally"]
    found = next((str(p) for p in places if p.is_file() and os.access(p, os.X_OK)), None) or _on_the_path()
    if found is None:
        raise FileNotFoundError("the program `tally` is not there: run `make` in the source tree, or put it on the "
                                "PATH")
    return found


def _on_the_path():
    """The script that pip makes for `tally` calls this package, and is not the program: it would start itself."""
    found = shutil.which("tally")
    if found is not None:
        with open(found, "rb") as file:
            return found if file.read(4) == b"\x7fELF" else None


def _words(name, value):
    """An option as the command line has it."""
    option = "--" + name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, (list, tuple)):
        return [word for v in value for word in _words(name, v)]
    return [option, os.fspath(value) if hasattr(value, "__fspath__") else str(value)]


def run(command, *words, **settings):
    """What `tally COMMAND ... --json` prints: an object, or a list where it prints several. What the program says in
    its
    errors is raised: ValueError for a wrong setting, RuntimeError for the rest."""
    line = [path(), command, *map(str, words)]
    for name, value in settings.items():
        line += _words(name, value)
    done = subprocess.run([*line, "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        kind = {1: ValueError, 2: ValueError, 3: OSError, 4: MemoryError}.get(done.returncode, RuntimeError)
        raise kind(done.stderr.strip() or f"tally {command} ended with {done.returncode}")
    text = done.stdout.strip()
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(each) for each in text.splitlines() if each.strip()]


def plan(**settings):
    """What a training run needs: memory, FLOPs, time. The dictionary of schema tally.plan/1; of a sweep, a list."""
    return run("plan", **settings)


def fit(what=None, **settings):
    """The largest batch, seq, layers, channels or model with which a run fits a device, or the fewest devices."""
    return run("fit", *([] if what is None else [what]), **settings)


def napkin(form, **options):
    """A closed form with its numbers: tally.napkin("mfu", model="llama-3-8b", seq=8192, tokens_per_second=85144,
    device="H100", devices=8)"""
    return run("napkin", form, **options)


def eval(model, **options):
    """The loss of a trained model on a text: eval("runs/first", data="other.txt")"""
    return run("eval", model=model, **options)


def generate(model, prompt=None, **options):
    """What a trained model makes of a prompt, or of several: the dictionary that `tally generate --json` prints.
    tally.Model keeps a model in memory for many prompts."""
    return run("generate", model=model, prompt=prompt, **options)
