"""`tally train` at a terminal, in tmux: the progress line, Ctrl-C once and twice, resuming, errors; and in a pipe."""
import re
import shutil
import socket
import subprocess
import time

import pytest
from conftest import LIBRARY
from test_report import TINY

TALLY = LIBRARY.parent / "tally"
needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (scripts/install-deps --tests)")
BAR_LEAST = 10  # of train_progress.c
BARE = ["--eval-every", "0", "--sample-tokens", "0", "--stories", "300000"]
LONG = [*TINY, *BARE, "--steps", "100000", "--save-every", "0"]
# A step of seconds, so that a key can be pressed in the middle of one.
SLOW = ["--layers", "2", "--channels", "256", "--heads", "4", "--seq", "512", "--context", "512", "--batch", "24",
        *BARE, "--steps", "9", "--save-every", "1"]


class Terminal:
    """A shell in tmux, without the user's settings."""

    def __init__(self, folder, columns, rows):
        self.socket = folder / "tmux"
        self.columns = columns
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(rows),
                  f"cd {folder} && PS1='$ ' exec bash --norc --noprofile")
        self.wait(r"^\$")

    def tmux(self, *arguments):
        done = subprocess.run(["tmux", "-S", self.socket, *arguments], capture_output=True, text=True, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lines(self):
        return self.tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def type(self, text):
        self.tmux("send-keys", "-l", text + "; echo code=$?")
        self.tmux("send-keys", "Enter")

    def press(self, key):
        self.tmux("send-keys", key)

    def clear(self):
        self.tmux("send-keys", "-R", "C-l")
        self.tmux("clear-history")

    def wait(self, pattern, seconds=30):
        """Until a line of the screen matches."""
        end = time.monotonic() + seconds
        while True:
            for line in self.lines():
                found = re.search(pattern, line)
                if found:
                    return found
            assert time.monotonic() < end, f"no {pattern!r}:\n" + "\n".join(self.lines())
            time.sleep(0.05)

    def close(self):
        self.tmux("kill-server")


@pytest.fixture
def terminal(tmp_path, request):
    opened = Terminal(tmp_path, *request.param)
    yield opened
    opened.close()


def progress(terminal):
    return [line for line in terminal.lines() if re.match(r"\d+/\d+ \[", line)]


@needs_tmux
@pytest.mark.parametrize("terminal", [(80, 24), (120, 40)], indirect=True, ids=["80x24", "120x40"])
def test_progress_interrupt_resume_and_errors(terminal):
    command = f"{TALLY} train {' '.join(LONG)} --out run"
    terminal.type(command)
    terminal.wait(r"^\d+/100000 \[=*>? *\].*loss \d")
    time.sleep(0.5)  # several lines, each over the one before
    shown = progress(terminal)
    assert len(shown) == 1, "a trail of progress lines:\n" + "\n".join(terminal.lines())
    assert len(shown[0]) < terminal.columns and re.search(r"ETA \S+", shown[0]), shown
    assert "tok/s" in shown[0], shown
    # The memory comes after the speed: a bar wider than it must be means that "  1023.99 KiB" would have had room.
    assert "KiB" in shown[0] or len(re.search(r"\[(.*)\]", shown[0])[1]) < BAR_LEAST + 13, shown
    assert "KiB" in shown[0] or terminal.columns < 120, shown
    opening = [line for line in terminal.lines() if re.match(r"(run|model|data|batch|memory|compute|time) ", line)]
    assert len(opening) == 7 and all(len(line) <= terminal.columns for line in opening)
    terminal.press("C-c")
    terminal.wait(r"^tally train: stopping after this step \(Ctrl-C again: at once\)$")
    steps = terminal.wait(r"^tally train: saved after (\d+) steps; run the same command to resume$")[1]
    terminal.wait(r"^code=75$")
    terminal.clear()
    terminal.type(command)
    assert terminal.wait(r"^resume +after step (\d+) of 100000$")[1] == steps
    terminal.wait(r"^\d+/100000 \[")
    terminal.press("C-c")
    assert int(terminal.wait(r"saved after (\d+) steps")[1]) >= int(steps)
    terminal.clear()
    terminal.type(f"{TALLY} train --learning-rate 1e-3")
    terminal.wait(r"did you mean --lr")
    terminal.wait(r"^code=1$")
    terminal.clear()
    terminal.type(f"{TALLY} train {' '.join([*TINY, *BARE])} --steps 3 --out short --quiet --watch")
    if not terminal.wait(r"^The page stays until Ctrl-C|(no HTTP server)")[1]:
        port = terminal.wait(r"^http://127.0.0.1:(\d+)/\?token=[0-9a-f]{32}$")[1]
        socket.create_connection(("127.0.0.1", int(port)), timeout=5).close()
        terminal.press("C-c")
        terminal.wait(r"^code=0$")


def stop_at_once(terminal):
    terminal.press("C-c")
    terminal.wait(r"stopping after this step")
    time.sleep(0.7)  # signals within half a second count as one: a launcher may send Ctrl-C several times
    terminal.press("C-c")
    terminal.wait(r"^\$ ?$", 3)  # the shell, which leaves out what stood behind the command
    assert not any("saved after" in line for line in terminal.lines()), "the step was shorter than a second"
    terminal.type("true")


def state(folder):
    return subprocess.run([TALLY, "runs", "slow"], capture_output=True, text=True, cwd=folder, timeout=20).stdout


@needs_tmux
@pytest.mark.parametrize("terminal", [(80, 24)], indirect=True, ids=["80x24"])
def test_a_second_interrupt_stops_at_once(terminal, tmp_path):
    terminal.type(f"{TALLY} train {' '.join(SLOW)} --out slow")
    terminal.wait(r"^1/9 \[", 120)
    end = time.monotonic() + 30
    while "1/9" not in state(tmp_path) or not (tmp_path / "slow/receipt.json").exists():  # written after the checkpoint
        assert time.monotonic() < end
        time.sleep(0.05)
    stop_at_once(terminal)
    assert [path.name for path in (tmp_path / "slow/checkpoints").iterdir()] == ["step-000000000001"]
    assert re.search(r"slow +stopped +1/9", state(tmp_path))
    terminal.clear()
    terminal.type(f"{TALLY} train {' '.join(SLOW)} --out slow")
    assert terminal.wait(r"^resume +after step (\d+) of 9$", 60)[1] == "1"
    assert re.search(r"slow +running +1/9", state(tmp_path))
    stop_at_once(terminal)


def test_a_pipe_gets_plain_lines(tmp_path):
    done = subprocess.run([TALLY, "train", *TINY, "--steps", "40", "--eval-every", "20", "--sample-every", "20",
                           "--out", "run"], capture_output=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0
    said = done.stdout + done.stderr
    assert b"step 40/40" in said and b"0 differences" in said
    assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", said), "control characters in a pipe"


@needs_tmux
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("arguments", ["help", "data --help", "train --no-such-option-of-any-command-at-all-in-here 1"])
def test_wide_lines_are_folded_at_blanks(tmp_path, columns, arguments):
    whole = subprocess.run([TALLY, *arguments.split()], capture_output=True, text=True)
    terminal = Terminal(tmp_path, columns, 100)
    terminal.clear()
    terminal.type(f"{TALLY} {arguments}")
    terminal.wait(r"^code=")
    lines = [line for line in terminal.lines() if not line.startswith(("$", "code="))]
    lines = lines[next(i for i, line in enumerate(lines) if line.startswith(("tally ", "usage"))):]
    text = whole.stdout + whole.stderr
    commands = [line for line in text.split("\n") if line.startswith("  tally ") and len(line) > columns]
    for line in commands:  # these are the terminal's to fold, so that they can be pasted
        text = text.replace(line, "")
    shown = "\n".join(lines)
    for line in commands:
        for i in range(0, len(line), columns):
            shown = shown.replace(line[i:i + columns].rstrip(), "", 1)
    assert shown.split() == text.split()
