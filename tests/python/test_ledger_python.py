"""Prices and receipts from Python."""
import json

import pytest

import tally
import tally.nn as nn
import tally.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up = nn.Embedding(11, 8), nn.Linear(8, 24)
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 11)

    def forward(self, ids):
        return self.head(self.norm(F.gelu(self.up(self.embed(ids)))))


def step(model, ids, targets):
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    loss.backward()
    return loss


def test_a_price_is_the_receipt():
    model, ids = Net(), tally.randint(11, (4, 6))
    price = tally.price(step, model, ((4, 6), tally.int64), ((4, 6), tally.int64))
    with tally.ledger("receipt") as receipt:
        loss = step(model, ids, ids)
    assert (price.flops, price.bytes, price.calls) == (receipt.flops, receipt.bytes, receipt.calls)
    priced, counted = ({(r["path"], r["op"], r["phase"], r["flops"]) for r in x.rows} for x in (price, receipt))
    assert priced == counted
    assert price.result.is_meta and loss.item() > 0


def test_a_matmul_costs_2mkn_and_its_bytes():
    price = tally.price(lambda a, b: a @ b, (3, 5), (5, 7))
    assert price.flops == 2 * 3 * 5 * 7
    assert (price.bytes_read, price.bytes_written) == (4 * (15 + 35), 4 * 21)
    assert price.intensity == price.flops / price.bytes
    half = tally.price(lambda a, b: a @ b, ((3, 5), tally.bfloat16), ((5, 7), tally.bfloat16))
    assert half.flops == price.flops and half.bytes * 2 == price.bytes


def test_peaks_are_by_purpose():
    model = Net()
    with tally.ledger() as l:
        step(model, tally.zeros(4, 6, dtype=tally.int64), tally.zeros(4, 6, dtype=tally.int64))
    assert l.peak == sum(l.peak_by_purpose.values()) >= l.peak_by_purpose["parameter"] > 0
    assert l.peak_by_purpose["gradient"] > 0 and l.peak_by_purpose["activation"] > 0


def test_rows_are_summed_and_ordered():
    price = tally.price(step, Net(), ((2, 3), tally.int64), ((2, 3), tally.int64))
    phases = price.by("phase")
    assert set(phases) == {"forward", "backward"} and sum(p["flops"] for p in phases.values()) == price.flops
    flops = [v["flops"] for v in price.by("path", "op").values()]
    assert flops == sorted(flops, reverse=True)
    assert any(path.endswith("up") for path in price.by("path"))


def test_ledgers_nest_travel_and_differ(tmp_path):
    x = tally.ones(4)
    with tally.ledger("outer") as outer:
        x + x
        with tally.ledger("inner") as inner:
            x * x
    assert (outer.calls, inner.calls) == (2, 1)
    inner.write(tmp_path / "l.json")
    assert json.loads((tmp_path / "l.json").read_text())["schema"] == "tally.ledger/1"
    assert inner.diff(inner) == "" and "calls" in outer.diff(inner)


def test_what_is_open_is_not_read():
    with tally.ledger() as l:
        with pytest.raises(RuntimeError, match="still open"):
            l.flops
        assert "open" in repr(l)
    assert l.flops == 0 and "total" in str(l)


def test_tables_show_themselves():
    page = tally.price(lambda x: x.exp().sum(), (100,))._repr_html_()
    assert page.count("<table>") == 3 and "<script" not in page and "exp" in page


def test_the_default_device_comes_back_after_an_error():
    assert tally.get_default_device() == tally.device("cpu")
    with pytest.raises(RuntimeError):
        tally.price(lambda x: x @ x, (2, 3))
    assert tally.zeros(1).device == tally.device("cpu")
    with pytest.raises(ValueError, match="made on meta"):
        tally.price(lambda x: x, (2,), device="cpu")
    tally.set_default_device("meta")
    try:
        assert tally.zeros(2).is_meta
    finally:
        tally.set_default_device(None)


def test_a_target_has_its_own_memory():
    with pytest.raises(tally.OutOfMemoryError):
        tally.price(lambda: tally.empty(200 * 2**30, dtype=tally.uint8), device="meta:h200")
    assert tally.price(lambda: tally.empty(2**30, dtype=tally.uint8), device="meta:h200").peak == 2**30


def test_profiling_measures_time():
    before = tally.profile(True)
    try:
        with tally.ledger() as l:
            tally.randn(64, 64) @ tally.randn(64, 64)
    finally:
        tally.profile(before)
    assert l.data["totals"]["time_s"] > 0
