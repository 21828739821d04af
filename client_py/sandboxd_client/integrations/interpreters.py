"""Programs that run code in a language, given on standard input."""

from __future__ import annotations

_PROGRAMS = {
    "bash": "bash",
    "javascript": "node",
    "js": "node",
    "py": "python3",
    "python": "python3",
    "sh": "sh",
    "shell": "bash",
}


def interpreter(language: str) -> list[str]:
    """The command for a language; another language is the name of its program."""
    return [_PROGRAMS.get(language.lower(), language), "-"]
