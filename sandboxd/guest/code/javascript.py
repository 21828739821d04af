"""Contexts of JavaScript: the forked process becomes node."""

from __future__ import annotations

from os import environ
from posix import _exit, access, close, dup2, execve, write
from typing import Any

from .protocol import FIRST_DESCRIPTOR, SETTINGS_VARIABLE, Descriptors

NO_INTERPRETER = 127
_SPARE = 50
"""Numbers from here on are free: descriptors are moved there before they get their places."""
_OPTIONS = ("--expose-internals", "--no-warnings", "--v8-pool-size=0")
"""Internals for top-level await; no threads that the limit of a context has no room for."""


def become_node(
    body: str, settings: dict[str, Any], descriptors: tuple[int, ...], held: int
) -> None:
    """Does not return."""
    node = _find(settings["env"].get("PATH") or environ.get("PATH") or "/usr/bin:/bin")
    variables = {
        **environ,
        "UV_THREADPOOL_SIZE": "1",
        **settings["env"],
        SETTINGS_VARIABLE: body,
    }
    write(held, b"t")
    close(held)
    if node is None:
        _exit(NO_INTERPRETER)
    _place(descriptors)
    program = __file__.rpartition("/")[0] + "/context.js"
    execve(node, [node, *_OPTIONS, program], variables)


def _find(path: str) -> str | None:
    for directory in path.split(":"):
        found = directory + "/node"
        if directory and access(found, 1):
            return found
    return None


def _place(descriptors: tuple[int, ...]) -> None:
    places = {
        descriptors[Descriptors.STDOUT]: 1,
        descriptors[Descriptors.STDERR]: 2,
        descriptors[Descriptors.CONTROL]: FIRST_DESCRIPTOR,
        descriptors[Descriptors.INPUT]: FIRST_DESCRIPTOR + 1,
        descriptors[Descriptors.EVENTS]: FIRST_DESCRIPTOR + 2,
    }
    for index, given in enumerate(places):
        dup2(given, _SPARE + index)
    for index, place in enumerate(places.values()):
        dup2(_SPARE + index, place)
        close(_SPARE + index)
