"""What is raised for a filesystem that cannot be read."""

from __future__ import annotations


class Damaged(Exception):
    """It is not a filesystem that we make, it is damaged, or it changed while it was read."""


def require(is_right: bool, problem: str) -> None:
    if not is_right:
        raise Damaged(problem)
