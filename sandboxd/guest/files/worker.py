"""Serves one operation, from its request to its end."""

import importlib
import os
import socket
from collections.abc import Callable

from . import directory_changes, listing, transfer
from .area import Area, whole_filesystem
from .codec import Failed, Failure
from .daemon_connection import DaemonConnection, Gone, Refused
from .failures import failure_of
from .request import Request

Operation = Callable[[Area, Request, DaemonConnection], None]

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


def serve_workspace(connection: socket.socket, workspace: str) -> None:
    """Serve one request in the workspace, in a process that then ends."""
    serve(_workspace_area(workspace), connection)


def serve_anywhere(connection: socket.socket, workspace: str) -> None:
    """Serve one request anywhere in the filesystem, in a process that then ends."""
    area = _workspace_area(workspace)
    everything = whole_filesystem(area.path)
    serve(area._replace(everything=everything), connection)


def _workspace_area(workspace: str) -> Area:
    root = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return Area(root, os.fsencode(workspace))


def serve(area: Area, connection: socket.socket) -> None:
    """Read one request, carry it out and send the outcome."""
    daemon = DaemonConnection(connection)
    try:
        request = Request(daemon.request())
        try:
            project = request.raw("project") or area.project
            area = area.with_layout(frozenset(request.words("protected")), project)
            _operation(request.operation)(area, request, daemon)
        except Refused as refused:
            daemon.failed(refused.failed)
        except OSError as error:
            daemon.failed(_with_figures(failure_of(error), area, request))
        except (MemoryError, RecursionError):
            daemon.failed(Failed(Failure.BROKEN, 0, 0, b""))
    except Gone:
        pass


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
