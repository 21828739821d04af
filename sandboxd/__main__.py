"""`python -m sandboxd` is `sandboxd`."""

from sandboxd.cli import main

main(prog_name="sandboxd")
