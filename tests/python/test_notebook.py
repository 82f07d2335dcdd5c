"""Runs, prices and ledgers in a notebook: several on one page, drawn in a real browser."""
import json

import pytest
import tally
from browser import Browser, needs_chromium

TINY = dict(layers=2, channels=32, heads=2, seq=32, context=32, batch=2, steps=4, eval_every=2, sample_tokens=0)


@needs_chromium
def test_pages_in_one_notebook_draw_beside_each_other(tmp_path):
    summary = tally.train(out=tmp_path / "run", **TINY)
    price = tally.train_price(out=str(tmp_path / "other"), **TINY)
    with tally.ledger("receipt <b>") as ledger:
        (tally.ones(64, 64) @ tally.ones(64, 64)).exp().sum()
    shown = [summary, tally.report(tmp_path / "run", tmp_path / "run"), price, ledger]
    assert summary["end"] == "done" and price["schema"] == "tally.run/1"  # they are still dictionaries
    fragments = [x._repr_html_() for x in shown]
    assert not any("http" in f.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "") for f in fragments)
    page = tmp_path / "notebook.html"
    page.write_text("<!doctype html><meta charset='utf-8'><body>" + "<hr>".join(fragments))
    browser = Browser()
    try:
        browser.size(900, 3200)
        browser.open(page.as_uri())
        frames = browser.driver.find_elements("css selector", "iframe")
        assert len(frames) == 4
        facts = []
        for frame in frames:
            browser.driver.switch_to.frame(frame)
            browser.wait("document.documentElement.dataset.drawn === 'yes'")
            facts.append(dict(browser.run("return [...document.querySelectorAll('[data-fact]')].map("
                                          "e => [e.dataset.fact, e.textContent])")))
            assert browser.run("return document.querySelectorAll('svg').length") > 0
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
            browser.driver.switch_to.default_content()
        step = price["kinds"]["step"]["ledger"]
        assert f"{int(step['totals']['flops']):,}" in facts[2]["FLOPs"]
        assert f"{int(step['memory']['peak_bytes']):,} bytes" in facts[2]["Peak memory"]
        assert f"{ledger.flops:,}" in facts[3]["FLOPs"] and f"{ledger.bytes:,} bytes" in facts[3]["Bytes moved"]
        assert facts[0]["Steps"].startswith("4") and f"{summary['peak_bytes']:,} bytes" in facts[0]["Peak memory"]
        assert browser.complaints() == []
        assert browser.run("return document.querySelectorAll('body > style, body > script').length") == 0
    finally:
        browser.close()


def test_a_report_is_what_the_program_draws(tmp_path):
    tally.train(out=tmp_path / "run", **TINY)
    report = tally.report(tmp_path / "run")
    assert report.data["schema"] == "tally.report/1" and report.data["runs"][0]["steps"]["step"] == [1, 2, 3, 4]
    report.write(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")
    with pytest.raises(RuntimeError, match="is not the folder of a run"):
        tally.report(tmp_path).html()
    with pytest.raises((RuntimeError, ValueError), match="not a report, a ledger or a run"):
        from tally._pages import _page
        _page(json.dumps({"schema": "other"}), True)
