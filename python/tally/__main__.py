"""python -m tally: the program. `python -m tally train --help` is `tally train --help`."""
import os
import sys

from ._program import path


def main():
    try:
        program = path()
    except FileNotFoundError as error:
        sys.exit(f"python -m tally: {error}")
    os.execv(program, ["tally", *sys.argv[1:]])


if __name__ == "__main__":
    main()
