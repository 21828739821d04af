"""`python -m sandboxd` is `sandboxd`."""

from sandboxd.cli import run

run()
