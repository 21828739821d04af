"""The command line of sandboxd."""

from __future__ import annotations

import gc
import os
import sys

# Our commands report failures themselves; gRPC's own log lines would only repeat them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def run() -> None:
    """`sandboxd ...`"""
    # Imports leave no garbage, but collections during them take a tenth of the start.
    gc.disable()
    try:
        from sandboxd.cli.program import program
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("sandboxd: the command line is not installed; run: pip install 'sandboxd[cli]'")
    program(prog_name="sandboxd")
