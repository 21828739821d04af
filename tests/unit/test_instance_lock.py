"""The lock of a directory: for one process, and for no child that it has forked."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from sandboxd.daemon.instance import lock

FORKING = """
import os, sys
from contextlib import ExitStack
from pathlib import Path
from sandboxd.daemon.instance import lock
stack = ExitStack()
assert lock(Path(sys.argv[1]), stack)
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
os._exit(0)
"""


def test_lock_is_for_one_process_and_ends_with_it(tmp_path: Path) -> None:
    """A child lives on without it: the program may be one that forks, and be killed."""
    path = tmp_path / "state" / "local.lock"
    with ExitStack() as stack:
        assert lock(path, stack)
        with ExitStack() as second:
            assert not lock(path, second)
    command = [sys.executable, "-c", FORKING, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"forked\n"
        parent.wait(60)

        with ExitStack() as stack:
            assert lock(path, stack)
