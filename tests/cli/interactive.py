#!/usr/bin/env python3
"""`tally generate --interactive` at a terminal: python3 interactive.py TALLY MODEL. Prints what is wrong, or nothing.

The model's tokens are bytes, so that half characters come; its context is shorter than what is generated."""
import os
import pty
import select
import sys
import time

tally, model = sys.argv[1:]


class Terminal:
    def __init__(self, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(tally, [tally, "generate", "--model", model, "--interactive", *options])
        self.text = b""

    def send(self, data):
        os.write(self.fd, data)

    def read_some(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return b""
        try:
            got = os.read(self.fd, 65536)
        except OSError:  # the other end is closed
            got = b""
        self.text += got
        return got

    def until(self, what, seconds=60):
        """What comes up to and including `what`."""
        end = time.monotonic() + seconds
        while what not in self.text:
            if time.monotonic() > end:
                raise AssertionError(f"no {what!r} within {seconds} s: {self.text[-300:]!r}")
            self.read_some(0.2)
        at = self.text.index(what) + len(what)
        got, self.text = self.text[:at], self.text[at:]
        return got

    def code(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read_some(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        raise AssertionError(f"it has not ended: {self.text[-300:]!r}")


def check(what, truth):
    if not truth:
        print(f"{what};", end=" ")


def texts():
    t = Terminal("--tokens", "30", "--temperature", "0")
    greeting = t.until(b"> ")
    check("no greeting", b"/reset" in greeting and b"Ctrl-C" in greeting)
    bear = "Ein Bär 日本\n".encode()
    t.send(bear[:6])  # half of the ä
    time.sleep(0.05)
    t.send(bear[6:])
    first = t.until(b"\r\n> ").split(b"\r\n", 1)[1]
    check("nothing was generated", len(first) > 10)
    first.decode()  # whole characters only
    t.send(b"/reset\n")
    t.until(b"(a new text)")
    t.until(b"> ")
    t.send(bear)
    again = t.until(b"\r\n> ").split(b"\r\n", 1)[1]
    check(f"another text after /reset: {first!r}, {again!r}", first == again)
    t.send(b"\n")  # goes on
    t.until(b"\r\n> ")
    t.send(b"/nonsense\n")
    check("an unknown command", b"there is no command /nonsense" in t.until(b"> "))
    t.send(b"//x\n")
    t.until(b"\r\n> ")
    t.send(b"\xc3\n")  # half a character is bytes too
    t.until(b"\r\n> ")
    t.send(b"typed and given up\x03")
    t.until(b"\r\n> ")
    t.send(b"\x04")
    check("Ctrl-D", t.code() == 0)


def given_up():
    """Ctrl-C as soon as the prompt is there, which is before the program waits for input, sometimes."""
    t = Terminal("--tokens", "5")
    t.until(b"> ")
    for _ in range(150):
        t.send(b"x\x03")
        t.until(b"\r\n> ", 20)
    t.send(b"/quit\n")
    check("/quit after Ctrl-C", t.code() == 0)


def interrupted():
    t = Terminal("--tokens", "10000000")
    t.until(b"> ")
    t.send(b"Once\n")
    t.until(b"context")  # it is full, and the text goes on
    time.sleep(0.3)
    t.send(b"\x03")
    t.until(b"\r\n> ")
    time.sleep(0.7)
    t.send(b"more\n")
    time.sleep(0.3)
    t.send(b"\x03")  # a second one, later, does not end the program either
    t.until(b"\r\n> ")
    t.send(b"/quit\n")
    check("/quit", t.code() == 0)


def stopped():
    t = Terminal("--tokens", "200", "--stop", "e", "--prompt", "A cat")
    first = t.until(b"\r\n> ")
    check(f"the stop string: {first!r}", b"e" not in first.split(b"model.\r\n")[-1])
    t.send(b"\x04")
    check("the end after a stop", t.code() == 0)


for case in texts, given_up, interrupted, stopped:
    try:
        case()
    except (AssertionError, UnicodeDecodeError, OSError) as problem:
        print(f"{case.__name__}: {problem};", end=" ")
