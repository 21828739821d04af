"""Command line of sandboxd."""

from __future__ import annotations

import os
import sys

# What goes wrong is told in our own words; the core's lines would stand beside them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def run() -> None:
    """`sandboxd ...`"""
    try:
        from sandboxd.cli.program import program
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("sandboxd: the command line is an extra: pip install 'sandboxd[cli]'")
    program(prog_name="sandboxd")
