"""Command line of sandboxd."""

from sandboxd.cli.main import main

__all__ = ["main"]
