"""Arguments of calls about files, as requests have them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.results import Content, SandboxPath
from sandboxd_proto.v1 import files_pb2

_TYPES = {
    name.removeprefix("FILE_TYPE_").lower(): number
    for name, number in files_pb2.FileType.items()
    if number
}


def where(path: SandboxPath, field: str = "path") -> Mapping[str, Any]:
    """The field of a request that names this path."""
    named = posix(path)
    return {f"{field}_bytes": named} if isinstance(named, bytes) else {field: named}


def posix(path: SandboxPath) -> str | bytes:
    """A path as it is named in the sandbox."""
    if isinstance(path, PurePath):
        return path.as_posix()  # also on Windows
    return os.fspath(path)


def positive(field: str, value: int) -> int:
    if value < 1:
        raise InvalidRequestError(f"{field}: must be a whole number from 1 on, not {value}")
    return value


def file_types(values: Sequence[str]) -> Sequence[files_pb2.FileType.ValueType]:
    for value in values:
        if value not in _TYPES:
            listed = ", ".join(f'"{one}"' for one in _TYPES)
            raise InvalidRequestError(f"types: {value!r:.80} is not one of {listed}")
    return [_TYPES[value] for value in values]


async def content_of(data: Content) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    content: str | bytes = await asyncio.to_thread(data.read)
    return content.encode() if isinstance(content, str) else content
