"""Serves one operation, from its request to its end."""

import errno
import importlib
import os
import socket
from collections.abc import Callable

from . import directory_changes, listing, transfer
from .area import Area
from .codec import Failed, Failure
from .daemon_connection import DaemonConnection, Gone, Refused
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

_FAILURES = {
    errno.ENOENT: Failure.NOT_FOUND,
    errno.EEXIST: Failure.EXISTS,
    errno.EISDIR: Failure.NOT_A_FILE,
    errno.ENXIO: Failure.NOT_A_FILE,
    errno.ENOTDIR: Failure.NOT_A_DIRECTORY,
    errno.ENOTEMPTY: Failure.NOT_EMPTY,
    errno.ELOOP: Failure.OUTSIDE,
    errno.EROFS: Failure.PROTECTED,
    errno.EXDEV: Failure.PROTECTED,
    errno.EBUSY: Failure.PROTECTED,
    errno.EACCES: Failure.NOT_PERMITTED,
    errno.EPERM: Failure.NOT_PERMITTED,
    errno.EFBIG: Failure.TOO_LARGE,
    errno.ENOSPC: Failure.FULL,
    errno.EDQUOT: Failure.FULL,
    errno.ENAMETOOLONG: Failure.NAME_TOO_LONG,
}


def serve_workspace(connection: socket.socket, workspace: str) -> None:
    """Serve one request in the workspace, in a process that then ends."""
    root = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    serve(Area(root, os.fsencode(workspace)), connection)


def serve(area: Area, connection: socket.socket) -> None:
    """Read one request, carry it out and send the outcome."""
    daemon = DaemonConnection(connection)
    try:
        request = Request(daemon.request())
        try:
            area = area._replace(
                protected=frozenset(request.words("protected")),
                project=request.raw("project") or area.project,
            )
            _operation(request.operation)(area, request, daemon)
        except Refused as refused:
            daemon.failed(refused.failed)
        except OSError as error:
            failure = _FAILURES.get(error.errno or 0, Failure.BROKEN)
            daemon.failed(_with_figures(failure, area))
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


def _with_figures(failure: Failure, area: Area) -> Failed:
    if failure is not Failure.FULL:
        return Failed(failure, 0, 0, b"")
    there = os.fstatvfs(area.root)
    return Failed(failure, there.f_bavail * there.f_frsize, there.f_favail, b"")
