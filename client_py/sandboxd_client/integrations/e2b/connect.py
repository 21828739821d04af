"""The Connect protocol with JSON, as E2B's SDKs speak it to a sandbox."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

from sandboxd_client.errors import (
    CommandNotStartableError,
    ConnectionLostError,
    DirectoryNotEmptyError,
    ExecEndedError,
    ExecNotFoundError,
    ExhaustedError,
    FileExistsInSandboxError,
    InvalidRequestError,
    MissingFileError,
    NotADirectoryInSandboxError,
    NotAFileError,
    NotSupportedError,
    OutsideWorkspaceError,
    PolicyError,
    SandboxError,
    SessionError,
    UnauthenticatedError,
    UnavailableError,
    WorkspaceFullError,
)

Message: TypeAlias = dict[str, Any]
MAX_FRAME_BYTES = 4 << 20
"""Largest message of a caller."""
HEADER = struct.Struct(">BI")
COMPRESSED, END = 1, 2
STATUS = {
    "already_exists": 409,
    "canceled": 499,
    "data_loss": 500,
    "deadline_exceeded": 504,
    "failed_precondition": 400,
    "internal": 500,
    "invalid_argument": 400,
    "not_found": 404,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "unauthenticated": 401,
    "unavailable": 503,
    "unimplemented": 501,
}
_NOT_FOUND = (MissingFileError, ExecNotFoundError, ExecEndedError)
_INVALID = (
    InvalidRequestError,
    NotADirectoryInSandboxError,
    NotAFileError,
    DirectoryNotEmptyError,
    CommandNotStartableError,
)


class Refused(Exception):
    """An answer to a caller: a code of the Connect protocol, and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return STATUS[self.code]

    @property
    def body(self) -> Message:
        return {"code": self.code, "message": self.message}


class Gone(Refused):
    """The sandbox has ended, or never was; E2B's own proxy answers this."""

    def __init__(self, sandbox_id: str) -> None:
        super().__init__("unavailable", f"The sandbox {sandbox_id} was not found")
        self.sandbox_id = sandbox_id

    @property
    def status(self) -> int:
        return 502

    @property
    def body(self) -> Message:
        return {"sandboxId": self.sandbox_id, "message": self.message, "code": self.status}


def refusal(error: SandboxError, sandbox_id: str = "") -> Refused:
    """How an error of the daemon is answered."""
    if isinstance(error, SessionError):
        return Gone(sandbox_id)
    return Refused(_code(error), str(error))


def _code(error: SandboxError) -> str:
    match error:
        case PolicyError():
            return "permission_denied"
        case UnauthenticatedError():
            return "unauthenticated"
        case FileExistsInSandboxError():
            return "already_exists"
        case WorkspaceFullError() | ExhaustedError():
            return "resource_exhausted"
        case NotSupportedError():
            return "unimplemented"
        case PermissionError() | OutsideWorkspaceError():
            return "permission_denied"
        case UnavailableError() | ConnectionLostError():
            return "unavailable"
    if isinstance(error, _NOT_FOUND):
        return "not_found"
    return "invalid_argument" if isinstance(error, _INVALID) else "internal"


class Frames:
    """Takes messages out of the bytes of a stream, however they are cut."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def is_empty(self) -> bool:
        return not self._buffer

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; Refused if the bytes are not valid."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            flags, size = HEADER.unpack_from(self._buffer)
            if flags & COMPRESSED:
                raise Refused("unimplemented", "Compressed messages are not supported.")
            if size > self._max_bytes:
                raise Refused(
                    "resource_exhausted", f"A message has {size} bytes, which is too many."
                )
            if len(self._buffer) < HEADER.size + size:
                return
            body = bytes(self._buffer[HEADER.size : HEADER.size + size])
            del self._buffer[: HEADER.size + size]
            if not flags & END:
                yield parsed(body)


def parsed(body: bytes) -> Message:
    """A message from its JSON."""
    try:
        message = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Refused("invalid_argument", "The message is not valid JSON.") from None
    if not isinstance(message, dict):
        raise Refused("invalid_argument", "The message is not a JSON object.")
    return message


def frame(message: Message, flags: int = 0) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(flags, len(body)) + body


def end_frame(refused: Refused | None = None) -> bytes:
    """The last frame of a stream."""
    if refused is None:
        return frame({}, END)
    return frame({"error": {"code": refused.code, "message": refused.message}}, END)


# --- fields of messages: absent ones have the default of their type ---


def text(message: Message, name: str) -> str:
    value = message.get(name, "")
    if not isinstance(value, str):
        raise Refused("invalid_argument", f"{name}: not a text")
    return value


def number(message: Message, name: str) -> int:
    value = message.get(name, 0)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused("invalid_argument", f"{name}: not a number")
    return value


def part(message: Message, name: str) -> Message:
    value = message.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused("invalid_argument", f"{name}: not an object")
    return value


def texts(message: Message, name: str) -> list[str]:
    value = message.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Refused("invalid_argument", f"{name}: not a list of texts")
    return value


def pairs(message: Message, name: str) -> dict[str, str]:
    value = part(message, name)
    if not all(isinstance(item, str) for item in value.values()):
        raise Refused("invalid_argument", f"{name}: not a map of texts")
    return value
