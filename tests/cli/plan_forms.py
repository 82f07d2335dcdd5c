"""A plan in its forms: plan_forms.py TALLY WORK. Text, Markdown, CSV, JSON and SVG have the same figures, text is short
and begins with the answer, and docs/planning.md names every key. Prints what is wrong."""
import csv
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TALLY, WORK = sys.argv[1], Path(sys.argv[2])
BILL = ["--price-per-hour", "2", "--carbon", "100", "--tokens", "1B"]
PLANS = [
    ["--model", "gpt2-124m", "--device", "H100", *BILL],
    ["--model", "llama-3-8b", "--recipe", "bf16", "--seq", "8192", "--batch", "1", "--checkpoint", "full", "--device",
     "H200", *BILL],
    ["--model", "llama-3-8b", "--recipe", "bf16", "--seq", "4096", "--batch", "16", "--device", "H100"],
    ["--model", "llama-3-8b", "--recipe", "bf16", "--seq", "4096", "--batch", "16", "--shard", "zero3", "--device",
     "H100", "--devices", "8", "--checkpoint", "full", *BILL],
    ["--model", "tiny-gpt2", "--device", "A100-40", "--recipe", "fp8", "--devices", "8", "--pp", "2", "--accum", "4",
     "--batch", "64", "--memory-limit", "1GiB", *BILL],
    ["--model", "tiny", "--device", "cpu", "--memory-limit", "1GiB"],
    ["--model", "gpt2-124m", "--device", "MI300X"],
    ["--as", "hf-trainer", "--model", "gpt2-124m", "--recipe", "bf16", "--device", "H100", *BILL],
    ["--as", "pytorch-fsdp", "--model", "llama-3-8b", "--recipe", "bf16", "--seq", "8192", "--batch", "16", "--shard",
     "zero3", "--checkpoint", "selective", "--device", "H100", "--devices", "8", *BILL],
]
UNITS = {"text", "1", "B", "s", "d", "USD", "share"}


def run(*arguments):
    done = subprocess.run([TALLY, "plan", *map(str, arguments)], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    return done.stdout


def csv_check(plan, figures):
    """Of each row a value by figure; the answer and the memory are those of JSON."""
    rows = list(csv.reader(figures.splitlines()))
    assert rows[0] == ["section", "row", "figure", "value", "unit"], rows[0]
    by_name = {}
    for section, row, figure, value, unit in rows[1:]:
        assert unit in UNITS, unit
        if unit != "text":
            float(value)
        assert (section, row, figure) not in by_name, (section, row, figure)
        by_name[section, row, figure] = value
    for row, value in plan["answer"].items():
        for figure, part in value.items() if isinstance(value, dict) else [("expected", value)]:
            found = by_name.get(("answer", row, figure))
            assert found == (None if part is None else part) or float(found) == part, (row, figure, found, part)
    if "as" in plan:  # the parts are a sum
        parts = {name: int(size) for name, size in plan["as"].items() if name.endswith("_bytes")}
        assert 2 * parts["total_bytes"] == sum(parts.values()), parts
        total = plan["as"]["total_bytes"]
        assert by_name["memory", "peak", "bytes"] == total == by_name["answer", "device_bytes", "expected"]
        return
    purposes = {row: value for (section, row, figure), value in by_name.items()
                if section == ("memory" if plan["devices"]["devices"] == 1 else "memory_of_one") and figure == "bytes"}
    for purpose, size in plan["memory"]["peak_by_purpose"].items():
        assert purposes.get(purpose, "0") == size, (purpose, size)
    flops = {row: value for (section, row, figure), value in by_name.items() if section == "flops"}
    assert flops["all"] == plan["flops"]["total"]


def markdown_check(text):
    widths = [line.count("|") - line.count("\\|") for line in text.splitlines()]
    for before, after in zip(widths, widths[1:]):
        assert before == after or 0 in (before, after), "a table whose rows have different lengths"
    assert max(widths) > 2 and "\n## " in text


def text_check(plan, text, is_long):
    lines = text.splitlines()
    answer = plan["answer"]
    large = answer["verdict"] == "too large"
    assert lines[0].startswith("TOO LARGE for" if large else "fits"), lines[0]
    n = answer["devices"]
    assert (f"{n} x " in lines[0]) == (n > 1), lines[0]
    assert is_long or len(lines) <= 40, f"{len(lines)} lines"
    assert f"{answer['step_tokens']:,} tokens, a global batch of" in text and "run: " in text
    assert "TOO LARGE" not in "".join(lines[1:])


def svg_check(plan, path):
    root = ElementTree.parse(path).getroot()
    texts = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]
    held = [p for p, size in plan["memory"]["peak_by_purpose"].items() if size != "0"]
    if plan["devices"]["devices"] == 1:
        assert set(held) <= set(texts), texts
    assert "forward" in texts and "backward" in texts
    assert any(re.search(r" \d+\.\d %$", t) for t in texts) == (plan["run"]["roofline_s"] is not None)
    assert not re.search(r"\bnan\b|\binf\b", Path(path).read_text())


def keys_of(value):
    """Names of keys but those that are data: names of modules, purposes, settings and so on."""
    data = {"settings", "peak_by_purpose", "by_purpose", "by_phase", "by_dtype", "conventions", "utilisation",
            "network"}
    if isinstance(value, list):
        return set().union(*map(keys_of, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys_of(v) for k, v in value.items() if k not in data))


def main():
    manual = Path("docs/planning.md").read_text()
    for plan_flags in PLANS:
        short = [] if "--as" in plan_flags else ["--short"]
        try:
            plan = json.loads(run(*plan_flags, *short, "--json"))
            csv_check(plan, run(*plan_flags, *short, "--csv"))
            text_check(plan, run(*plan_flags), False)
            text_check(plan, run(*plan_flags, *short, "--full"), True)
            for long in ([], ["--full"]):
                markdown_check(run(*plan_flags, *short, *long, "--markdown"))
            if short:
                run(*plan_flags, "--short", "--svg", WORK / "plan.svg")
                svg_check(plan, WORK / "plan.svg")
            unknown = {k for k in keys_of(plan) if f"`{k}`" not in manual}
            assert not unknown, f"docs/planning.md does not name {sorted(unknown)}"
        except (AssertionError, TypeError, ValueError, KeyError, ElementTree.ParseError) as wrong:
            print(f"tally plan {' '.join(plan_flags)}: {type(wrong).__name__} {wrong}")


main()
