"""`tally watch`: the live page in a real browser, and requests that nobody should send."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from conftest import LIBRARY, PATIENCE
from test_report import TINY, Page, tally

TALLY = LIBRARY.parent / "tally"


@contextlib.contextmanager
def watching(*runs, cwd):
    server = subprocess.Popen([TALLY, "watch", *runs], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    try:
        line = server.stdout.readline().strip()
        if not line and "no HTTP server" in server.stderr.read():
            pytest.skip("this build has no libmicrohttpd (scripts/install-deps)")
        match = re.fullmatch(r"http://(127\.0\.0\.1):(\d+)/\?token=([0-9a-f]{32})", line)
        assert match, line
        yield server, int(match[2]), match[3], line
        assert server.poll() is None, "the server died"
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=PATIENCE) == 0


def get(port, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    tally("train", *TINY, "--steps", "6", "--eval-every", "3", "--out", "a", "--quiet", cwd=folder)
    return folder


def test_the_page_follows_the_run(folder):
    page = Page()
    try:
        with watching("a", cwd=folder) as (_, _, _, address):
            page.open(address)
            shown = "document.querySelector('[data-fact=Steps]').textContent"
            assert page.run(f"return {shown}").startswith("6")
            page.find("#curves button[data-value=log]").click()
            page.find("#memory button[data-value=module]").click()
            page.find("#curves .legend button").click()
            page.run("document.querySelector('#settings details').open = true; scrollTo(0, 1400)")
            kept = """return [scrollY, document.querySelector('#settings details').open,
                ...['#curves button[data-value=log]', '#memory button[data-value=module]', '#curves .legend button']
                    .map(s => document.querySelector(s).getAttribute('aria-pressed'))]"""
            before = page.run(kept)
            assert before[0] > 1000 and before[1:] == [True, "true", "true", "false"]
            with open(folder / "a/log.jsonl", "a") as log:
                line = json.loads((folder / "a/log.jsonl").read_text().splitlines()[0])
                log.write(json.dumps({**line, "step": 7}, separators=(",", ":")) + "\n")
            page.wait(f"{shown}.startsWith('7')")
            assert page.run(kept) == before  # news do not disturb the reader
            assert page.complaints() == []
    finally:
        page.close()


def test_hostile_requests_get_nothing_and_cost_nothing(folder):
    with watching("a", cwd=folder) as (server, port, token, _):
        good = f"/?token={token}"
        assert get(port, good)[0] == 200 and b"tally.report/1" in get(port, f"/data?token={token}")[1]
        for path in ("/", "/?token=", f"/?token={token[:-1]}", f"/?token={'0' * 32}", "/data", "/a/config.json"):
            assert get(port, path)[0] == 403, path
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/a/log.jsonl", "//etc/passwd"):
            status, body = get(port, f"{path}?token={token}")
            assert status == 404 and b"root:" not in body, path
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert get(port, good, method, body=b"x" * 1000, Origin="http://evil.example")[0] == 405, method
        assert get(port, good, Host="evil.example")[0] == 403  # a name that was made to resolve to 127.0.0.1
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert get(port, good, Huge="x" * 1_000_000)[0] >= 400
        before = sum(os_times(server.pid))
        slow = []
        for _ in range(1000):  # clients that never finish a request
            with contextlib.suppress(OSError):
                client = socket.create_connection(("127.0.0.1", port), timeout=0.2)
                client.sendall(b"GET / HT")
                slow.append(client)
        for client in slow:
            client.close()
        end = time.monotonic() + PATIENCE
        while True:  # it answers again
            with contextlib.suppress(OSError, http.client.HTTPException):
                if get(port, good)[0] == 200:
                    break
            assert time.monotonic() < end
            time.sleep(0.1)
        assert sum(os_times(server.pid)) - before < 1.0  # seconds of a core


def test_a_run_serves_its_own_page_and_takes_it_along(tmp_path):
    run = subprocess.Popen([TALLY, "train", *TINY, "--steps", "1000000", "--eval-every", "0", "--sample-tokens", "0",
                            "--stories", "300000", "--out", "run", "--watch"], cwd=tmp_path, stderr=subprocess.PIPE,
                           text=True)
    try:
        said = []
        while not said or not (said[-1].startswith("page ") or said[-1] == ""):
            said.append(run.stderr.readline())
        if "no HTTP server" in said[0]:
            pytest.skip("this build has no libmicrohttpd (scripts/install-deps)")
        port, token = re.fullmatch(r"page +http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{32})\n", said[-1]).groups()
        status, page = get(int(port), f"/?token={token}")
        assert status == 200 and b"tally.report/1" in page and run.poll() is None
    finally:
        run.kill()  # with no chance to say goodbye
        run.wait()
        run.stderr.close()
    end = time.monotonic() + 20
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            get(int(port), f"/?token={token}")
            time.sleep(0.1)
    assert time.monotonic() < end, "the server outlives the run"
    assert "not a port" in tally("train", "--watch=0", cwd=tmp_path, code=2)


def test_a_watched_run_costs_little(folder):
    with watching("a", cwd=folder) as (server, port, token, _):
        stamp = json.loads(get(port, f"/data?token={token}")[1])["stamp"]
        before, began = sum(os_times(server.pid)), time.monotonic()
        for _ in range(30):  # a minute of a page that asks every two seconds
            assert get(port, f"/data?token={token}&after={stamp}")[0] == 204
        assert sum(os_times(server.pid)) - before <= 0.005 * 60, time.monotonic() - began


def os_times(pid):
    """Seconds of a core that a process has used: in user mode, in the kernel."""
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return [int(fields[i]) / os.sysconf("SC_CLK_TCK") for i in (11, 12)]
