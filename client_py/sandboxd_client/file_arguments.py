"""Arguments of calls about files, checked before anything is sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import IO, Any, TypeAlias

from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.results import SandboxPath
from sandboxd_proto.v1 import files_pb2

Content: TypeAlias = str | bytes | IO[str] | IO[bytes]
"""What can be written to a file."""
MAX_NUMBER = (1 << 63) - 1
_TYPES = {
    name.removeprefix("FILE_TYPE_").lower(): number
    for name, number in files_pb2.FileType.items()
    if number
}


def where(path: SandboxPath, field: str = "path") -> Mapping[str, Any]:
    """The field of a request that names this path."""
    named = posix(path, field)
    return {f"{field}_bytes": named} if isinstance(named, bytes) else {field: named}


def posix(path: SandboxPath, field: str = "path") -> str | bytes:
    """A path as it is named in the sandbox."""
    if isinstance(path, PurePath):
        return path.as_posix()  # also on Windows
    try:
        return os.fspath(path)
    except TypeError:
        raise InvalidRequestError(
            f"{field}: must be text, a path object or bytes, not {type(path).__name__}"
        ) from None


def number(field: str, value: int, *, least: int = 0, most: int = MAX_NUMBER) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequestError(f"{field}: must be a whole number from {least} on, not {value!r}")
    return value


def names(field: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise InvalidRequestError(f"{field}: must be a list of names")
    return values


def file_types(values: Sequence[str]) -> Sequence[files_pb2.FileType.ValueType]:
    for value in names("types", values):
        choice("types", value, _TYPES)
    return [_TYPES[value] for value in values]


def choice(field: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        listed = ", ".join(f'"{one}"' for one in choices)
        raise InvalidRequestError(f"{field}: {value!r} is not one of {listed}")


async def content_of(data: Content) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if not hasattr(data, "read"):
        raise InvalidRequestError(
            f"data: must be text, bytes or an open file, not {type(data).__name__}"
        )
    content: str | bytes = await asyncio.to_thread(data.read)
    return content.encode() if isinstance(content, str) else content
