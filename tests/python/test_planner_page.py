"""The planner's page: the same C in WebAssembly answers as the program does, to the last byte.

`make planner-page` builds it, and needs emscripten and node; without it the tests here are skipped. A question depends
only on its number: TALLY_QUESTION=n asks one again. The page itself is driven in headless Chromium.
"""
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from browser import browser, needs_chromium  # noqa: F401 (a fixture)
from conftest import PATIENCE

ROOT = Path(__file__).resolve().parents[2]
TALLY = ROOT / "build" / "tally"
WASM = ROOT / "build" / "wasm"
N_QUESTIONS = 200 if os.environ.get("TALLY_SOAK") else 60

pytestmark = [
    pytest.mark.skipif(not (WASM / "planner.wasm").exists(), reason="there is no planner page (make planner-page)"),
    pytest.mark.skipif(not shutil.which("node"), reason="there is no node"),
    pytest.mark.skipif(not TALLY.exists(), reason=f"there is no {TALLY}"),
]

MODELS = {"nano": 6, "tiny": 4, "tiny-gpt2": 4, "small": 6, "gpt2-124m": 6, "llama-3.2-1b": 2, "llama-3-8b": 2,
          "qwen2.5-0.5b": 2, "llama-3-70b": 0.5, "config.json": 5, "tiny-moe": 4}
# Of each family one, with a few layers.
LARGE = {name: 1 for name in ("mixtral-8x7b", "qwen3-30b-a3b", "olmoe-1b-7b", "gpt-oss-20b", "deepseek-v2-lite",
                              "deepseek-v3", "llama-4-scout", "gemma-3-1b", "gemma-3-27b", "gemma-2-2b", "qwen3-0.6b",
                              "phi-4", "smollm3-3b", "falcon-7b", "starcoder-1b", "olmo2-1b", "pythia-410m")}
CHIPS = ["V100", "A100", "A100-40", "H100", "H100 PCIe", "H200", "B200", "L40S", "RTX 4090", "MI300X", "cpu",
         "TPU v5p", "meta:h200"]
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1376,
          "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000,
          "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
          "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def question(number):
    """Random arguments of `tally`, and files that they name."""
    r = random.Random(number)
    models = {**MODELS, **LARGE}
    model = r.choices(list(models), models.values())[0]
    most = {"nano": 512, "tiny": 512, "tiny-gpt2": 512, "tiny-moe": 512, "small": 512, "gpt2-124m": 1024,
            "pythia-410m": 2048}.get(model, 4096)
    seq = r.choice([n for n in (64, 100, 256, 384, 1000, 2048, 4096) if n <= most])
    batch = r.choice([1, 2, 3, 4, 8, 16, 64])
    args = ["plan", "--model", model, "--device", r.choice(CHIPS), "--seq", str(seq), "--batch", str(batch),
            "--recipe", r.choice("fp32 amp bf16 bf16 bf16 bf16-lean fp16 fp8 fp4".split())]

    def maybe(share, *more):
        if r.random() < share:
            args.extend(str(word) for word in more)

    maybe(0.7, "--checkpointing", r.choice("none every-k sqrt full nothing selective".split()))
    maybe(0.4, "--accum", r.choice([2, 4, 7, 1000 if most <= 512 else 8]))
    maybe(0.3, "--optimizer", r.choice("adam sgd adagrad rmsprop muon lion adafactor".split()))
    maybe(0.5, "--tokens", r.choice(["300B", "1T", "1e9", "15T"]))
    maybe(0.4, "--price-per-hour", r.choice(["2", "3.5", "0.1"]))
    maybe(0.2, "--memory-limit", r.choice(["24GiB", "80GB", "5000000000", "640MB"]))
    maybe(0.1, "--peak", "123e12")
    if "cpu" in args:
        args += ["--memory-limit", "8GiB"]  # instead of the memory of this machine, which a browser does not know
    maybe(0.8 if model in LARGE else 0.1, "--layers", r.choice([1, 3]))
    maybe(0.1, "--label-smoothing", "0.1")
    maybe(0.1, "--moments", r.choice(["bf16", "8bit"]))
    if r.random() < 0.3:
        args[args.index("--batch") + 1] = str(64 * batch)
        args += ["--devices", str(r.choice([8, 16, 64]))]
        maybe(0.4, "--tp", r.choice([2, 4, 8]))
        maybe(0.2, "--pp", r.choice([2, 4]))
        maybe(0.2, "--cp", 2)
        maybe(0.2, "--sp")
        maybe(0.5, "--shard", r.choice("zero1 zero2 zero3".split()))
        maybe(0.2, "--fabric", r.choice(["p4d", "ethernet"]))
    if "--devices" not in args and r.random() < 0.25:  # a part of the parameters is trained
        args += r.choice([["--lora", "8"], ["--lora", "16", "--lora-base", r.choice("nvfp4 mxfp8 mxfp4 nf4".split())],
                          ["--lora", "4", "--lora-alpha", "32"], ["--train-only", "*norm*"], ["--freeze", "*.0.*"]])
    maybe(0.03, "--batch", r.choice(["x", "0", "1e30"]))  # which is refused
    maybe(0.02, "--model", "llama-4")
    if r.random() < 0.1:  # which reads little else
        args = [*args[:args.index("--recipe") + 2], "--inference", "--json"]
        if "cpu" in args:
            args[args.index("cpu")] = "H200"  # it takes no --memory-limit
        return {"args": args, "files": {"config.json": json.dumps(CONFIG)} if model == "config.json" else {}}
    # The limits of growth take many prices, which are quick where little fits.
    if model == "nano" and not {"nothing", "--devices"} & set(args) and r.random() < 0.25:
        args += ["--memory-limit", "640MB"]
    else:
        args.append("--short")
    if r.random() < 0.9:
        args.append("--json")
    if "--short" in args and r.random() < 0.12:  # many are refused
        args.remove("--short")
        args += ["--as", r.choice("pytorch-fsdp megatron hf-trainer hf-trainer llm.c llmq jax".split())]
        if r.random() < 0.7:  # as most of them are trained
            args[args.index("--recipe") + 1] = "bf16"
            while unknown := {"--optimizer", "--moments", "--lora", "--label-smoothing"} & set(args):
                at = args.index(min(unknown))
                del args[at:at + 2]
    return {"args": args, "files": {"config.json": json.dumps(CONFIG)} if model == "config.json" else {}}


def ask_wasm(questions):
    done = subprocess.run(["node", ROOT / "tests/python/planner_ask.js", WASM], text=True, capture_output=True,
                          input="".join(json.dumps(q) + "\n" for q in questions), timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def ask_native(q, folder):
    """The program, away from what this machine's user has measured or configured."""
    for name, text in q["files"].items():
        (folder / name).write_text(text)
    done = subprocess.run([TALLY, *q["args"]], capture_output=True, text=True, cwd=folder, timeout=PATIENCE,
                          env={**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder),
                               "XDG_CACHE_HOME": str(folder), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def without_clock(answer):
    """The one line that says how long it took."""
    lines = [line for line in answer["out"].splitlines() if not line.startswith("planned in ")]
    return {**answer, "out": "\n".join(lines)}


def test_wasm_answers_as_the_program_does(tmp_path):
    only = os.environ.get("TALLY_QUESTION")
    numbers = [int(only)] if only else range(N_QUESTIONS)
    questions = [question(n) for n in numbers]
    with ThreadPoolExecutor(2) as pool:
        theirs = pool.submit(ask_wasm, questions)
        ours = [ask_native(q, tmp_path) for q in questions]
        theirs = theirs.result()
    assert len(theirs) == len(questions)
    for number, q, native, wasm in zip(numbers, questions, ours, theirs):
        assert without_clock(wasm) == without_clock(native), f"TALLY_QUESTION={number} asks again: {q['args']}"
    codes = [a["code"] for a in ours]
    assert only or (codes.count(0) > 0.7 * N_QUESTIONS and len(set(codes)) > 1)  # most were answered, some refused


def test_wasm_napkins_are_the_programs(tmp_path):
    lines = ["time --params 70e9 --tokens 15e12 --device H100 --devices 1024 --mfu 0.5",
             "fit --device H100 --devices 8",
             "flops --model llama-3-8b --seq 8192 --tokens 1T", "memory --shape 49152,12288 --dtype f32",
             "activations --layers 96 --channels 12288 --heads 96 --seq 2048 --batch 1 --tensor 8 --pipeline 8",
             "intensity --op matmul --m 4096 --k 4096 --n 4096 --device H100", "chinchilla --flops 1e24",
             "mfu --model llama-3-8b --seq 8192 --tokens-per-second 85144 --device H100 --devices 8",
             "references --flops 1e24", "time --params 0", "nothing"]
    questions = [{"args": ["napkin", *line.split()], "files": {}} for line in lines]
    for q, wasm in zip(questions, ask_wasm(questions)):
        assert wasm == ask_native(q, tmp_path), q["args"]


# ---- In a browser ----

PAGE = ROOT / "build" / "planner.html"
READY = "!document.getElementById('result').hidden && !document.getElementById('result').classList.contains('old')"
GROWN = "document.querySelector('table.growth tbody') && document.getElementById('answer').ariaBusy === 'false'"
NANO = {"model": "nano", "seq": "64", "batch": "2", "device": "H100 SXM5", "checkpointing": "none", "tokens": "1e9"}


def link(**state):
    """The page with a question in its link."""
    return f"{PAGE.as_uri()}#{urllib.parse.urlencode({**NANO, **state})}"


def text_of(browser, element):
    return browser.run("return document.getElementById(arguments[0]).textContent", element)


def set_value(browser, element, value):
    browser.run("""const node = document.getElementById(arguments[0]);
        node.value = arguments[1];
        node.dispatchEvent(new Event(node.tagName === "SELECT" ? "change" : "input", {bubbles: true}));""",
                element, value)


def page_plan(browser, tmp_path):
    """What the program says to the command that the page shows."""
    words = shlex.split(text_of(browser, "command").replace("\\\n", " "))
    assert words[:2] == ["tally", "plan"]
    answer = ask_native({"args": [*words[1:], "--short", "--json"], "files": {}}, tmp_path)
    assert answer["code"] == 0, answer["err"]
    return json.loads(answer["out"])


@needs_chromium
def test_page_shows_the_numbers_of_the_command_it_shows(browser, tmp_path):
    browser.size(1280)
    browser.open(link())
    browser.wait(READY)
    plan = page_plan(browser, tmp_path)
    bytes_shown = browser.run("""return [...document.querySelectorAll(".purposes tbody [data-bytes]")].map((cell) =>
        [cell.parentNode.firstChild.textContent, cell.dataset.bytes, cell.textContent])""")
    purposes = {name: size for name, size, _ in bytes_shown}
    unused = int(plan["memory"]["reserved_bytes"]) - int(plan["memory"]["peak_bytes"])
    expected = {name: size for name, size in plan["memory"]["peak_by_purpose"].items() if size != "0"}
    assert purposes == {**expected, "rounding, gaps, unused": str(unused)}
    assert all(text.replace(",", "") == size for _, size, text in bytes_shown)
    assert browser.run("return document.getElementById('need').dataset.bytes") == plan["memory"]["reserved_bytes"]
    assert text_of(browser, "verdict").startswith("Fits: ")
    # The bar has a part for each, as wide as its share of the chip's memory.
    widths = browser.run("""const width = (node) => node.getBoundingClientRect().width;
        const bar = document.querySelector(".bar");
        return [...bar.querySelectorAll(".part")].map((part) => width(part) / width(bar))""")
    limit = int(plan["memory"]["limit_bytes"])
    assert [round(w, 2) for w in widths] == [round(int(size) / limit, 2) for _, size, _ in bytes_shown]
    browser.wait(GROWN)
    assert browser.complaints() == []


@needs_chromium
def test_controls_change_the_plan_the_link_and_the_command(browser, tmp_path):
    browser.size(1280)
    browser.open(link())
    browser.wait(READY)
    before = text_of(browser, "verdict")
    set_value(browser, "field-batch", "32")
    set_value(browser, "field-checkpointing", "full")
    browser.wait(f"{READY} && document.getElementById('command').textContent.includes('--batch 32')")
    assert "--checkpointing full" in text_of(browser, "command").replace("\\\n", "")
    assert text_of(browser, "verdict") != before
    assert page_plan(browser, tmp_path)["memory"]["reserved_bytes"] == browser.run(
        "return document.getElementById('need').dataset.bytes")
    href = browser.run("return location.href")
    assert "batch=32" in href
    browser.open(href)
    browser.wait(READY)
    assert "--batch 32" in text_of(browser, "command")
    # A slider moves over powers of two; several devices bring their own fields.
    browser.run("const s = document.querySelector('#row-devices input[type=range]'); s.value = 3;"
                "s.dispatchEvent(new Event('input', {bubbles: true}))")
    browser.wait(f"{READY} && document.getElementById('command').textContent.includes('--devices 8')")
    assert browser.run("return document.getElementById('row-shard').hidden") is False
    plan = page_plan(browser, tmp_path)
    assert browser.run("return document.getElementById('need').dataset.bytes") == plan["devices"]["total_bytes"]
    assert browser.complaints() == []


@needs_chromium
def test_page_says_what_the_planner_refuses(browser, tmp_path):
    browser.size(1280)
    browser.open(link(batch="x"))
    browser.wait("!document.getElementById('problem').hidden")
    native = ask_native({"args": ["plan", "--model", "nano", "--batch", "x"], "files": {}}, tmp_path)
    assert text_of(browser, "problem") == native["err"].strip()
    config = json.dumps({**CONFIG, "hidden_size": 511})
    browser.open(link(model="config.json", config=config))
    browser.wait("!document.getElementById('problem').hidden")
    native = ask_native({"args": ["plan", "--model", "config.json", "--seq", "64"], "files": {"config.json": config}},
                        tmp_path)
    assert text_of(browser, "problem") == native["err"].strip()
    set_value(browser, "field-config", json.dumps(CONFIG))
    browser.wait(READY)
    assert browser.complaints() == []


@needs_chromium
def test_page_searches_for_what_breaks_first(browser):
    browser.size(1280)
    browser.open(link())
    browser.wait(GROWN)
    rows = browser.run("""return [...document.querySelectorAll("table.growth tbody tr")].map((row) =>
        row.firstChild.textContent)""")
    assert sorted(rows) == ["Batch", "Channels", "Layers", "Sequence length"]
    browser.run("""[...document.querySelectorAll("table.growth tbody tr")].find((row) =>
        row.firstChild.textContent === "Batch").querySelector("button").click()""")
    browser.wait(f"{READY} && !document.getElementById('command').textContent.includes('--batch 2 ')")
    assert browser.complaints() == []


@needs_chromium
@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_page_fits_the_window(browser, width, is_dark):
    browser.size(width, is_dark=is_dark)
    browser.open(link(devices="8", batch="8"))
    browser.wait(READY)
    assert browser.run("return document.documentElement.scrollWidth") == width
    page, text = browser.run("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    brightness = [sum(int(x) for x in re.findall(r"\d+", c)[:3]) for c in (page, text)]
    assert brightness[0] < brightness[1] if is_dark else brightness[0] > brightness[1]
    assert browser.complaints() == []


@needs_chromium
def test_keyboard_and_screen_readers_reach_everything(browser, tmp_path):
    browser.size(1280)
    browser.open(link())
    browser.wait(READY)
    nameless = browser.run("""return [...document.querySelectorAll("input, select, textarea, button")].filter((node) =>
        !node.hidden && node.offsetParent && !(node.labels && node.labels.length) && !node.ariaLabel &&
        !node.textContent.trim()).map((node) => node.outerHTML)""")
    assert nameless == []
    assert browser.run("return document.querySelector('.bar').ariaLabel").startswith("Memory by purpose: parameter")
    # The arrow keys change the tab; the formula has its numbers in it.
    browser.run("document.getElementById('tab-plan').focus()")
    browser.driver.switch_to.active_element.send_keys("\ue014")  # right
    browser.wait("document.getElementById('formula')")
    assert browser.run("return document.activeElement.id") == "tab-napkin"
    native = ask_native({"args": shlex.split(text_of(browser, "napkin-command").replace("\\\n", " "))[1:],
                         "files": {}}, tmp_path)
    shown = browser.run("return [...document.querySelectorAll('#formula div')].map((d) => d.textContent).join(' ')")
    assert shown == native["out"].splitlines()[0]
    set_value(browser, "napkin-devices", "2048")
    browser.wait("document.getElementById('formula').textContent.includes('2048')")
    assert browser.complaints() == []
