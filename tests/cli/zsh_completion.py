#!/usr/bin/env python3
"""What zsh makes of a command line when Tab is pressed: python3 zsh_completion.py FOLDER, with _tally in it.

Reads lines "TYPED|WANTED" from standard input (a final _ of WANTED is a blank), types each at a terminal, and prints
the line that zsh then has where it is another."""
import os
import pty
import select
import sys
import time

PATIENCE = 60  # seconds; all of it takes two
SETUP = r"""PS1= RPS1= fpath=("$1" $fpath); unsetopt PROMPT_SP; autoload -Uz compinit; compinit -u -D
shown() { print -r -- "<<$BUFFER>>"; BUFFER= }; zle -N shown; bindkey "^X^B" shown; bindkey "^I" complete-word
print -r "<<read""y>>"
"""


def answer(fd):
    """The text in the next <<...>>, whatever else the terminal shows."""
    text, end = b"", time.monotonic() + PATIENCE
    while b">>" not in text.rpartition(b"<<")[2] or b"<<" not in text:
        if time.monotonic() > end or not select.select([fd], [], [], PATIENCE)[0]:
            sys.exit(f"zsh does not answer: {text[-300:]!r}")
        text += os.read(fd, 65536)
    return text.rpartition(b"<<")[2].partition(b">>")[0].decode()


def main():
    folder = os.path.abspath(sys.argv[1])
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", HOME=folder, COLUMNS="200")
        os.execvp("zsh", ["zsh", "-f", "-i", "-s", folder])
    os.write(fd, SETUP.encode())
    while answer(fd) != "ready":
        pass
    for line in sys.stdin:
        typed, _, wanted = line.rstrip("\n").partition("|")
        os.write(fd, typed.encode() + b"\t\x18\x02")
        got = answer(fd)
        if got != (wanted[:-1] + " " if wanted.endswith("_") else wanted):
            print(f"{typed!r} becomes {got!r}, want {wanted!r}")
    os.write(fd, b"\x04")
    os.close(fd)
    os.waitpid(pid, 0)


main()
