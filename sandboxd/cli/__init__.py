"""The command line of sandboxd."""

from __future__ import annotations

import os
import sys

# Our commands report failures themselves; gRPC's own log lines would only repeat them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def run() -> None:
    """`sandboxd ...`"""
    try:
        from sandboxd.cli.program import program
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("sandboxd: the command line is not installed; run: pip install 'sandboxd[cli]'")
    program(prog_name="sandboxd")
