"""`tally report`: the page in a real browser, what it says beside the run's files, long runs, hostile text."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from browser import Browser, needs_chromium
from conftest import LIBRARY, PATIENCE

pytestmark = needs_chromium
TALLY = LIBRARY.parent / "tally"
HOSTILE = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>&lt;"\u2028'
TINY = ["--layers", "2", "--channels", "32", "--heads", "2", "--seq", "32", "--context", "32", "--batch", "2"]

RANKS = {"schema": "tally.ranks/1", "steps": 10, "sent_bytes": 4096.0, "slowest_rank": 2, "imbalance": 0.25, "ranks": [
    {"rank": rank, "host": HOSTILE, "steps_s": 2.0, "communication_s": 1.0, "exposed_s": exposed}
    for rank, exposed in enumerate((1.0, 1.0, 0.5, 0.9))]}


def tally(*arguments, cwd, code=0):
    done = subprocess.run([TALLY, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=PATIENCE)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two small runs; the second has a profile, and foreign text in its name, its settings and its samples."""
    folder = tmp_path_factory.mktemp("report")
    tally("train", *TINY, "--steps", "24", "--eval-every", "8", "--sample-every", "12", "--out", "plain", "--quiet",
          cwd=folder)
    tally("train", *TINY, "--steps", "12", "--eval-every", "6", "--sample-every", "6", "--profile=4", "--out", "other",
          "--quiet", cwd=folder)
    hostile = folder / "<b>other & \"more\"<svg onload=x>"
    (folder / "other").rename(hostile)
    config = json.loads((hostile / "config.json").read_text())
    config["data"] = HOSTILE
    (hostile / "config.json").write_text(json.dumps(config))
    with open(hostile / "log.jsonl", "a") as log:
        log.write(json.dumps({"step": 12, "sample": HOSTILE}) + "\n")
        log.write("this line is damaged\n")
    (hostile / "ranks.json").write_text(json.dumps(RANKS))
    tally("report", "plain", cwd=folder)
    tally("report", "plain", hostile.name, "-o", "both.html", cwd=folder)
    return folder


class Page(Browser):
    def open(self, where):
        """Opens a file or an address and waits until the page has drawn."""
        super().open(where if "://" in str(where) else Path(where).resolve().as_uri())
        self.wait("document.documentElement.dataset.drawn === 'yes'")

    def resize(self, width, is_dark=False):
        """Charts draw again when an observer sees the new width."""
        self.size(width, is_dark=is_dark)
        self.driver.execute_async_script("const done = arguments[0];"
                                         "const next = requestAnimationFrame;"
                                         "next(() => next(() => setTimeout(done, 30)))")

    def hover(self, selector, x, y):
        """Moves the pointer to a place within an element, given as shares of its size."""
        box = self.run("const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center'});"
                       "const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]", selector)
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {
            "type": "mouseMoved", "x": box[0] + x * box[2], "y": box[1] + y * box[3]})

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)


@pytest.fixture(scope="module")
def page():
    opened = Page()
    opened.size(1200)
    yield opened
    opened.close()


def peak_of(memory):
    """Plays a list of allocations: the most that was held."""
    sizes, live = [tensor[3] for tensor in memory["tensors"]], set(range(memory["held_first"]))
    now = peak = sum(sizes[: memory["held_first"]])
    for kind, item, *_ in memory["events"]:
        if kind in (1, 2):
            assert (item in live) == (kind == 2)
            (live.add if kind == 1 else live.remove)(item)
            now += sizes[item] if kind == 1 else -sizes[item]
        peak = max(peak, now)
    return peak


def facts(page):
    return dict(page.run("return [...document.querySelectorAll('[data-fact]')].map("
                         "e => [e.dataset.fact, e.textContent])"))


def test_the_page_says_what_the_files_say(runs, page):
    receipt = json.loads((runs / "plain/receipt.json").read_text())["kinds"]["step"]
    log = [json.loads(line) for line in (runs / "plain/log.jsonl").read_text().splitlines()]
    page.open(runs / "plain.html")
    assert page.complaints() == []
    shown = facts(page)
    ledger = receipt["ledger"]
    assert peak_of(json.loads((runs / "plain/memory.json").read_text())) == int(ledger["memory"]["peak_bytes"])
    assert f"{int(ledger['memory']['peak_bytes']):,} bytes" in shown["Peak memory"]
    assert shown["memory peak"] == f"{int(ledger['memory']['peak_bytes']):,} bytes"
    assert f"{int(ledger['totals']['flops']):,}" in shown["FLOPs of a step"]
    assert shown["Loss"].startswith(f"{[x for x in log if 'loss' in x][-1]['loss']:.4f}")
    assert shown["Held-out loss"].startswith(f"{[x for x in log if 'held_out' in x][-1]['held_out']:.4f}")
    assert page.find("[data-verdict]").get_attribute("data-verdict") == "tally"
    sample = [x["sample"] for x in log if "sample" in x][-1]
    assert page.run("return document.querySelector('pre.sample').textContent") == sample
    rows = page.run("return [...document.querySelectorAll('#prices tbody tr')].map("
                    "r => [...r.cells].map(c => c.textContent))")
    assert ["step", "FLOPs"] + [f"{int(ledger['totals']['flops']):,}"] * 2 + ["equal"] in rows
    assert all(row[4] == "equal" for row in rows)


def test_charts_answer_pointer_keyboard_and_controls(runs, page):
    memory = json.loads((runs / "plain/memory.json").read_text())
    page.open(runs / "plain.html")
    page.resize(1200)
    page.hover("#memory svg", 0.5, 0.8)
    tip = page.find("#memory .tip").text
    assert re.search(r"op\s+\w+.*module\s+\S+.*shape\s+.*purpose\s+\w+.*size\s+", tip, re.S), tip
    assert any(op in tip for op in memory["ops"]) or "held from before" in tip
    assert page.all("#memory .over path.mark"), "the tensor's life is not outlined"
    page.hover("#curves svg", 0.5, 0.5)
    assert "Step" in page.find("#curves .tip").text and "training loss" in page.find("#curves .tip").text
    layers = page.run("return [...document.querySelectorAll('#memory [data-layer]')].map(e => e.dataset.layer)")
    assert layers[0] == "parameter" and "activation" in layers
    page.find("#memory button[data-value=module]").click()
    layers = page.run("return [...document.querySelectorAll('#memory [data-layer]')].map(e => e.dataset.layer)")
    assert any("*" in layer for layer in layers), layers
    for axis, label in [("tokens", "tokens"), ("time", "time in steps"), ("flops", "FLOP"), ("step", "step")]:
        page.find(f"#curves button[data-value={axis}]").click()
        names = page.run("return [...document.querySelectorAll('#curves svg text.name')].map(e => e.textContent)")
        assert label in names
        assert page.find(f"#curves button[data-value={axis}]").get_attribute("aria-pressed") == "true"
    before = page.run("return document.querySelectorAll('#curves figure path').length")
    page.run("const s = document.getElementById('smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))")
    after = page.run("return document.querySelectorAll('#curves figure path').length")
    assert after > before  # the raw line stays, pale
    page.run("document.querySelector('#curves svg').focus()")
    page.find("#curves svg").send_keys("\ue014\ue014")  # right, right
    assert "training loss" in page.run("return document.querySelector('#curves [aria-live]').textContent")
    page.find("#curves .legend button").click()
    assert page.find("#curves .legend button").get_attribute("aria-pressed") == "false"
    assert page.complaints() == []


def test_every_width_and_theme_is_readable(runs, page):
    page.open(runs / "both.html")
    seen = set()
    for width in (360, 768, 1920):
        for dark in (False, True):
            page.resize(width, dark)
            seen.add(page.run("return getComputedStyle(document.body).backgroundColor"))
            assert page.run("return document.documentElement.scrollWidth") <= width, f"{width} px scrolls sideways"
            outside = page.run("""return [...document.querySelectorAll('svg text')].filter(t => {
                const box = t.getBoundingClientRect(), own = t.closest('svg').getBoundingClientRect();
                return box.left < own.left - 2 || box.right > own.right + 2 || box.bottom > own.bottom + 2;
            }).map(t => t.textContent)""")
            assert outside == [], f"{width} px: labels are cut: {outside}"
            apart = page.run("""return [...document.querySelectorAll('svg')].flatMap(s => {
                const texts = [...s.querySelectorAll('g[aria-hidden] text')].map(
                    t => [t.textContent, t.getBoundingClientRect()]);
                return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([b, q]) => p.left < q.right - 1 &&
                    q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3).map(([b]) => a + ' / ' + b));
            })""")
            assert apart == [], f"{width} px: labels lie on each other: {apart}"
    assert len(seen) == 2, seen
    page.resize(1200)
    page.find("#theme").click(), page.find("#theme").click()
    assert page.run("return document.documentElement.dataset.theme") == "dark"
    page.find("#theme").click()
    assert page.complaints() == []


def test_a_reader_without_a_pointer_can_use_it(runs, page):
    page.open(runs / "both.html")
    assert page.run("return document.documentElement.lang") == "en"
    assert page.run("return document.querySelectorAll('h1').length") == 1
    assert page.run("return [...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))")
    nameless = page.run("""return [...document.querySelectorAll('button, select, input, a')].filter(e =>
        !(e.getAttribute('aria-label') || e.textContent.trim() || e.closest('label'))).map(e => e.outerHTML)""")
    assert nameless == []
    assert page.run("return [...document.querySelectorAll('th')].every(h => h.scope === 'col')")
    links = page.run("return [...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))")
    assert links and all(page.all(f"section[id={link}]") for link in links)


def test_foreign_text_stays_text(runs, page):
    page.open(runs / "both.html")
    page.find("#run").send_keys("<b>")
    assert page.run("return document.title") != "broken"
    made = page.run("return document.querySelectorAll('img, #page b svg, #page script, [onerror], [onload]').length")
    assert made == 0
    assert HOSTILE in page.run("return [...document.querySelectorAll('pre.sample')].map(p => p.textContent)")
    assert HOSTILE in page.run("return [...document.querySelectorAll('#settings td')].map(p => p.textContent)")
    assert "1 damaged lines" in page.find("#summary").text
    shown = facts(page)
    assert (shown["slowest rank"], shown["imbalance"]) == ("Rank 2", "30.4 %")  # 1.5 s without waiting, of 1.15 s
    assert (shown["hidden"], shown["exposed"]) == ("7.5 %", "42.5 %")
    assert page.run("return document.querySelectorAll('#ranks tbody tr').length") == 4
    assert page.find("#time svg").is_displayed() and "matmul" in page.find("#time").text  # it has a profile
    text = (runs / "both.html").read_text().replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "http" not in text and "//fonts" not in text
    assert page.complaints() == []


def test_a_million_steps_stay_small(runs, page, tmp_path):
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / "config.json").write_text((runs / "plain/config.json").read_text())
    line = ('{"step":%d,"tokens":%d,"loss":%.17g,"grad_norm":1.2345678901234567,"lr":0.00061538461538461541,'
            '"skipped":false,"time":{"step_s":0.090971700000000003,"tokens_per_s":11256.247822124902,"wait_s":0.0}}\n')
    with open(folder / "log.jsonl", "w") as log:
        log.writelines(line % (i, 1024 * i, 3 + 1000 / (i + 100) if i != 777_777 else 55.5)
                       for i in range(1, 1_000_001))
    before = os.times()
    tally("report", folder, "-o", tmp_path / "long.html", cwd=tmp_path)
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 5
    assert (tmp_path / "long.html").stat().st_size < 2_000_000
    page.open(tmp_path / "long.html")
    assert page.complaints() == []
    assert facts(page)["Steps"].startswith("1,000,000")
    data = json.loads(tally("report", folder, "--json", cwd=tmp_path))["runs"][0]
    assert data["n_logged"] == 1_000_000 and max(data["steps"]["loss_high"]) == 55.5  # no spike is lost
    steps = data["steps"]["step"]
    assert len(steps) > 500 and steps == sorted(set(steps)) and steps[-1] == 1_000_000


def test_what_is_no_run_is_refused(tmp_path):
    assert "name the folder of a run" in tally("report", cwd=tmp_path, code=1)
    assert "nothere: cannot be opened" in tally("report", "nothere", cwd=tmp_path, code=3)
    (tmp_path / "empty").mkdir()
    assert "is not the folder of a run" in tally("report", "empty", cwd=tmp_path, code=2)
