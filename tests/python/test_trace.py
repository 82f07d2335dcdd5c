"""`tally train --trace`: the file beside the run's profile and receipt, by the rules of Chrome's trace event format."""
import json
import subprocess
from collections import Counter, defaultdict

import pytest
from conftest import LIBRARY
from test_report import TINY, tally

TALLY = LIBRARY.parent / "tally"


def check_format(events):
    """What viewers need: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU"""
    for e in events:
        assert e["ph"] in "XCMsf" and isinstance(e["name"], str) and isinstance(e["pid"], int), e
        assert e["ts"] >= 0 and isinstance(e["tid"], int), e
        if e["ph"] == "X":
            assert e["dur"] >= 0 and e["cat"] in ("step", "phase", "module", "op", "launch", "wait", "work"), e
        if e["ph"] == "C":
            assert all(isinstance(v, int) for v in e["args"].values()), e
        if e["ph"] == "M":
            assert e["name"] in ("process_name", "thread_name", "process_labels"), e
    tracks = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            tracks[e["pid"], e["tid"]].append((round(1000 * e["ts"]), round(1000 * e["dur"]), e))
    for slices in tracks.values():  # in nanoseconds: each inside the one it begins in, and in the file's order
        assert [s[0] for s in slices] == sorted(s[0] for s in slices)
        open_until = []
        for begin, length, e in slices:
            while open_until and open_until[-1][0] <= begin:
                open_until.pop()
            assert not open_until or begin + length <= open_until[-1][0], (e, open_until[-1][1])
            open_until.append((begin + length, e))
            e["depth"], e["inside"] = len(open_until), [o[1]["name"] for o in open_until]


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    tally("train", *TINY, "--steps", "6", "--eval-every", "4", "--save-every", "4", "--sample-every", "4",
          "--profile=3", "--trace", "trace.json", "--out", "run", "--quiet", cwd=folder)
    trace = json.loads((folder / "trace.json").read_text())
    check_format(trace["traceEvents"])
    return folder, trace


def test_the_trace_has_what_profile_and_receipt_have(traced):
    folder, trace = traced
    events = trace["traceEvents"]
    ops = [e for e in events if e.get("cat") == "op"]
    steps = [e["name"] for e in events if e.get("cat") == "step"]
    assert steps == ["step 3", "step 4", "step 5"]
    assert trace["otherData"] == {**trace["otherData"], "schema": "tally.trace/1", "steps": 3, "lost_events": 0}
    profile = json.loads((folder / "run/profile.json").read_text())
    want, got = Counter(), Counter()
    for row in profile["rows"]:
        want[row["op"]] += 3 * row["time_s"]
    for e in ops:
        got[e["name"]] += e["dur"] * 1e-6
    assert set(got) == set(want)
    assert all(abs(got[op] - want[op]) < 1e-8 for op in got), (got, want)
    ledger = json.loads((folder / "run/receipt.json").read_text())["kinds"]["step"]["ledger"]
    assert sum(e["args"]["flops"] for e in ops) == 3 * int(ledger["totals"]["flops"])
    assert sum(e["args"]["bytes"] for e in ops) == 3 * (
        int(ledger["totals"]["bytes_read"]) + int(ledger["totals"]["bytes_written"]))
    held = [sum(e["args"].values()) for e in events if e["ph"] == "C"]
    assert max(held) == int(ledger["memory"]["peak_bytes"])
    gradients = [(e["ts"], e["args"]["gradient"]) for e in events if e["ph"] == "C"]
    assert gradients[-1][1] == 0 and max(g for _, g in gradients) > 0  # a step frees its gradients when it ends


def test_slices_are_nested_as_the_program_is(traced):
    _, trace = traced
    events = trace["traceEvents"]
    for e in events:
        if e.get("cat") == "op":
            module = e["args"]["module"].split(".") if e["args"]["module"] else []
            assert e["inside"][1:] == [e["args"]["phase"], *module, e["name"]], e
            assert e["inside"][0].startswith("step ")
    matmul = next(e for e in events if e.get("cat") == "op" and e["name"] == "matmul")
    assert " x [" in matmul["args"]["shapes"] and " -> [" in matmul["args"]["shapes"]
    work = [e["name"] for e in events if e.get("cat") == "work"]
    assert {"evaluation", "sampling", "saving"} <= set(work)
    names = {(e["name"], e["args"].get("name")) for e in events if e["ph"] == "M"}
    assert ("process_name", "rank 0 (cpu)") in names and ("thread_name", "ops") in names


def test_ranks_are_processes_of_one_file(tmp_path):
    done = subprocess.run([TALLY, "launch", "-n", "2", "train", *TINY, "--steps", "4", "--sample-tokens", "0",
                           "--trace", "t.json", "--trace-steps", "3:3", "--out", "run", "--quiet"],
                          capture_output=True, text=True, cwd=tmp_path, timeout=120)
    if "MPI" in done.stderr and done.returncode:
        pytest.skip("there is no MPI here")
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    check_format(events)
    for rank in (0, 1):
        own = [e for e in events if e["pid"] == rank]
        assert [e["name"] for e in own if e.get("cat") == "step"] == ["step 3"]
        assert any(e["name"] == "messages under way" for e in own) and any(e.get("cat") == "op" for e in own)
        assert any(e["name"] == "wait for messages" for e in own)
    ranks = json.loads((tmp_path / "run/ranks.json").read_text())
    assert ranks["schema"] == "tally.ranks/1" and [r["rank"] for r in ranks["ranks"]] == [0, 1]
    assert all(r["steps_s"] >= r["exposed_s"] > 0 for r in ranks["ranks"])


def test_what_cannot_be_traced_is_said(tmp_path):
    run = ["train", *TINY, "--steps", "2", "--eval-batches", "1", "--sample-tokens", "0", "--out", "run", "--quiet"]
    assert "nowhere/t.json" in tally(*run, "--trace", "nowhere/t.json", cwd=tmp_path, code=3)
    assert "has no effect without --trace" in tally(*run, "--trace-steps", "1:2", cwd=tmp_path, code=1)
    assert "not steps such as" in tally(*run, "--trace=t.json", "--trace-steps", "5:4", cwd=tmp_path, code=2)
    assert "no trace was written" in tally(*run, "--trace", "t.json", cwd=tmp_path)
    assert not list(tmp_path.glob("t.json*"))
    memory = tmp_path / "run/memory.json"
    assert memory.exists()
