"""One `tally train` process: started as a user without rights, stopped at a chosen moment, and what it said."""
import ctypes
import os
import resource
import select
import signal
import struct
import subprocess
import time

IN_CREATE, IN_MOVED_TO, IN_DELETE = 0x100, 0x80, 0x200
# Each saves and exits with 75; but SIGXFSZ stands for a limit on the size of files, which is an error of writing.
STOPPING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU, signal.SIGXFSZ]


class Watch:
    """Names that appear in a run's checkpoints, through inotify: the phases of a save, in their order."""

    libc = ctypes.CDLL(None, use_errno=True)

    def __init__(self, run):
        self.run, self.fd, self.folders = run, self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), {}
        for folder in (run, os.path.join(run, "checkpoints"), os.path.join(run, "final")):
            self._add(folder)

    def _add(self, folder):
        number = self.libc.inotify_add_watch(self.fd, os.fsencode(folder), IN_CREATE | IN_MOVED_TO | IN_DELETE)
        if number >= 0:
            self.folders[number] = folder

    def events(self, timeout):
        """How many there were since the last call, without those of the log and other files directly in the run's
        folder."""
        if self.fd < 0 or not select.select([self.fd], [], [], timeout)[0]:
            return 0
        data, at, count = os.read(self.fd, 65536), 0, 0
        while at < len(data):
            number, mask, _, length = struct.unpack_from("iIII", data, at)
            name = os.fsdecode(data[at + 16:at + 16 + length].rstrip(b"\0"))
            folder = self.folders.get(number, "")
            at += 16 + length
            if mask & IN_CREATE and (name in ("checkpoints", "final") or name.startswith("step-")):
                self._add(os.path.join(folder, name))
            count += folder != self.run or name == "checkpoints"
        return count

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)


class Plan:
    """How a process is to end: left alone, or by a signal after a time or in a phase of a save."""

    def __init__(self, signal_number=None, after_s=None, phase=None, file_limit=None, closed=()):
        self.signal, self.after_s, self.phase = signal_number, after_s, phase
        self.file_limit, self.closed = file_limit, closed

    def __str__(self):
        if self.signal is None:
            words = "left alone"
        else:
            when = f" in phase {self.phase} of its saves" if self.phase else f" after {self.after_s:.3f} s"
            words = signal.Signals(self.signal).name + when
        words += f", files of at most {self.file_limit} bytes" if self.file_limit else ""
        return words + (f", closed descriptors {list(self.closed)}" if self.closed else "")


class Outcome:
    code = None
    text = ""          # what it said, on both
    hung = False
    signalled = False  # the signal was sent to a living process
    was_ready = False  # ... which had its handlers by then
    seconds = 0.0
    n_phases = 0       # that were seen, where a phase was waited for

    @property
    def has_words(self):
        return bool(self.text.strip())


def _catches_signals(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = next((line for line in status if line.startswith("SigCgt:")), "SigCgt: 0")
        return bool(int(caught.split()[1], 16) >> signal.SIGTERM - 1 & 1)
    except (OSError, ValueError):
        return False


def _prepare(plan):
    def prepare():
        for number in (signal.SIGHUP, signal.SIGINT):  # nohup and background jobs ignore them, and so would the program
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if plan.file_limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (plan.file_limit, plan.file_limit))
        for number in plan.closed:
            os.close(number)
    return prepare


def _wait_for_moment(child, plan, run, began, out):
    """False: it ended before."""
    if plan.after_s is not None:
        try:
            child.wait(max(0.0, began + plan.after_s - time.monotonic()))
            return False
        except subprocess.TimeoutExpired:
            return True
    watch = Watch(run)
    try:
        while child.poll() is None and time.monotonic() < began + plan.limit_s / 2:
            out.n_phases += watch.events(0.02)
            if out.n_phases >= plan.phase:
                return child.poll() is None
    finally:
        watch.close()
    return False


def run(arguments, plan, folder, logs, uid, environment, limit_s):
    out = Outcome()
    plan.limit_s = limit_s
    paths = [os.path.join(logs, name) for name in ("stdout", "stderr")]
    ids = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 and uid else {}
    began = time.monotonic()
    with open(paths[0], "wb") as stdout, open(paths[1], "wb") as stderr:
        child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=logs,
                                 env=environment, preexec_fn=_prepare(plan), **ids)
    try:
        if plan.signal is not None and _wait_for_moment(child, plan, folder, began, out):
            out.was_ready = _catches_signals(child.pid)
            child.send_signal(plan.signal)
            out.signalled = True
        try:
            child.wait(max(1.0, began + limit_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            out.hung = True
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    out.code, out.seconds = child.returncode, time.monotonic() - began
    for path in paths:
        with open(path, "rb") as file:
            out.text += file.read(1 << 20).decode(errors="replace")
    return out
