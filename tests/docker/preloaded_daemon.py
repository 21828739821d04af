"""Starts daemons from a process that has imported everything already, one for each line of input.

Importing takes most of the time of a start, so that many kills and starts fit into one test. It
answers with the pid of the daemon, and with its status once it has ended.
"""

import os
import sys

from sandboxd.cli.program import program
from sandboxd.daemon import composition, serving  # noqa: F401  # what `serve` would import

START = b"start\n"


def main() -> None:
    while sys.stdin.buffer.readline() == START:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            os.dup2(2, 1)
            program(args=["serve"], prog_name="sandboxd")
        _say(pid)
        _, status = os.waitpid(pid, 0)
        _say(os.waitstatus_to_exitcode(status))


def _say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
