"""Serves operations, each from its request to its end."""

import importlib
import os
import socket
import time
from collections.abc import Callable
from typing import NamedTuple

from . import directory_changes, listing, transfer
from .area import Area, whole_filesystem
from .codec import Failed, Failure
from .daemon_connection import DaemonConnection, Gone, Refused
from .failures import failure_of
from .request import Request

Operation = Callable[[Area, Request, DaemonConnection], None]


class Stay(NamedTuple):
    """On what terms a worker stays for further requests."""

    seconds: float
    """Processor time after which it does not: PID 1 charges for it when it has ended."""
    mark: Callable[[bool], None]
    """Called with True before it waits for another request, and with False after it."""


_OPERATIONS: dict[str, Operation] = {
    "upload": transfer.upload,
    "download": transfer.download,
    "list": listing.list_directory,
    "stat": listing.stat,
    "make_directory": directory_changes.make_directory,
    "move": directory_changes.move,
    "remove": directory_changes.remove,
}
_LATER = {
    "read_text": "text",
    "write_text": "text",
    "edit_text": "text",
    "grep": "search",
    "glob": "search",
    "watch": "watch",
    "unpack": "unpack",
    "pack": "pack",
}
"""Modules that are imported when they are needed, because PID 1 keeps what it imports for good."""


def serve_workspace(connection: socket.socket, workspace: str, stay: Stay | None = None) -> None:
    """Serve requests in the workspace, in a process that then ends."""
    _serve_in_turn(lambda: _workspace_area(workspace), connection, stay)


def serve_anywhere(connection: socket.socket, workspace: str, stay: Stay | None = None) -> None:
    """Serve requests anywhere in the filesystem, in a process that then ends."""

    def area() -> Area:
        inner = _workspace_area(workspace)
        return inner._replace(everything=whole_filesystem(inner.path))

    _serve_in_turn(area, connection, stay)


def _workspace_area(workspace: str) -> Area:
    root = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return Area(root, os.fsencode(workspace))


def _serve_in_turn(
    make_area: Callable[[], Area], connection: socket.socket, stay: Stay | None
) -> None:
    """Serve one request, and further ones for as long as each asks for that.

    The area is opened for each: between two of them another filesystem may come in its place, and
    one that is open cannot be detached.
    """
    daemon = DaemonConnection(connection)
    try:
        while True:
            request = Request(daemon.request())
            if stay is not None:
                stay.mark(False)
            area = make_area()
            try:
                is_fit = _serve(area, request, daemon)
            finally:
                _close(area)
            if stay is None or not (request.flag("stay") and is_fit and daemon.is_at_the_end):
                return
            if time.process_time() > stay.seconds:
                return
            stay.mark(True)
    except Gone:
        pass


def _close(area: Area) -> None:
    if area.everything is not None:
        os.close(area.everything.root)
    os.close(area.root)


def serve(area: Area, connection: socket.socket) -> None:
    """Read one request, carry it out and send the outcome."""
    daemon = DaemonConnection(connection)
    try:
        _serve(area, Request(daemon.request()), daemon)
    except Gone:
        pass


def _serve(area: Area, request: Request, daemon: DaemonConnection) -> bool:
    """Carry out a request and send the outcome; False if this process is no longer fit for another.
    Gone if the daemon gave it up."""
    try:
        if request.flag("announce"):
            daemon.announce()
        project = request.raw("project") or area.project
        area = area.with_layout(frozenset(request.words("protected")), project)
        _operation(request.operation)(area, request, daemon)
    except Refused as refused:
        daemon.failed(refused.failed)
    except OSError as error:
        daemon.failed(_with_figures(failure_of(error), area, request))
    except (MemoryError, RecursionError):
        daemon.failed(Failed(Failure.BROKEN, 0, 0, b""))
        return False
    return True


def _operation(name: str) -> Operation:
    if name in _OPERATIONS:
        return _OPERATIONS[name]
    module = importlib.import_module(f".{_LATER[name]}", __package__)
    operation: Operation = getattr(module, name)
    return operation


def _with_figures(failure: Failure, area: Area, request: Request) -> Failed:
    if failure is not Failure.FULL or request.is_outside:
        return Failed(failure, 0, 0, b"")
    there = os.fstatvfs(area.root)
    return Failed(failure, there.f_bavail * there.f_frsize, there.f_favail, b"")
