"""Command line of sandboxd."""

import os

# What goes wrong is told in our own words; the core's lines would stand beside them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from sandboxd.cli.main import main

__all__ = ["main"]
