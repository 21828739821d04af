"""Adapters for virtual file systems of LangGraph and DeepAgents; neither must be installed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from sandboxd_client.integrations.virtual_files import VirtualFileError


class _Item(Protocol):
    @property
    def value(self) -> Any: ...


class _Store(Protocol):
    async def aget(self, namespace: tuple[str, ...], key: str) -> _Item | None: ...

    async def aput(self, namespace: tuple[str, ...], key: str, value: dict[str, Any]) -> None: ...


class StoreFiles:
    """Files in a LangGraph store, in memory or in PostgreSQL, as DeepAgents keeps them there.

    Each is an item under its path: `content` as text, or as base64 where `encoding` says so.

    Example:
        AsyncBashTool(files=lambda conversation: StoreFiles(store, (conversation.user_id, "files")))
    """

    def __init__(self, store: _Store, namespace: tuple[str, ...]) -> None:
        self._store = store
        self._namespace = namespace

    async def read(self, path: str) -> bytes:
        item = await self._store.aget(self._namespace, path)
        if item is None:
            raise FileNotFoundError(path)
        return _content(path, item.value)

    async def write(self, path: str, data: bytes) -> None:
        there = await self._store.aget(self._namespace, path)
        now = datetime.now(UTC).isoformat()
        created = there.value.get("created_at", now) if there is not None else now
        value = {**_encoded(data), "created_at": created, "modified_at": now}
        await self._store.aput(self._namespace, path, value)


class _Downloaded(Protocol):
    @property
    def content(self) -> bytes | None: ...

    @property
    def error(self) -> str | None: ...


class _Uploaded(Protocol):
    @property
    def error(self) -> str | None: ...


class _Backend(Protocol):
    async def adownload_files(self, paths: list[str]) -> Sequence[_Downloaded]: ...

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> Sequence[_Uploaded]: ...


class BackendFiles:
    """Files of a DeepAgents backend, the same ones that the agent's file tools see.

    Example:
        backend = StoreBackend(namespace=lambda runtime: (runtime.context.user_id,))
        AsyncBashTool(files=BackendFiles(backend))
    """

    def __init__(self, backend: _Backend) -> None:
        self._backend = backend

    async def read(self, path: str) -> bytes:
        (found,) = await self._backend.adownload_files([path])
        if found.error == "file_not_found":
            raise FileNotFoundError(path)
        if found.error is not None or found.content is None:
            raise VirtualFileError(f"{path} cannot be read: {found.error}.")
        return found.content

    async def write(self, path: str, data: bytes) -> None:
        (done,) = await self._backend.aupload_files([(path, data)])
        if done.error is not None:
            raise VirtualFileError(f"{path} cannot be written: {done.error}.")


def _content(path: str, value: Any) -> bytes:
    content = value.get("content") if isinstance(value, dict) else None
    if isinstance(content, list):
        content = "\n".join(content)  # the form of older versions
    if not isinstance(content, str):
        raise VirtualFileError(f"{path} is not a file.")
    if value.get("encoding") != "base64":
        return content.encode()
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise VirtualFileError(f"{path} is damaged: its content is not valid base64.") from None


def _encoded(data: bytes) -> dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "encoding": "base64"}
    if "\0" in text:  # JSON in PostgreSQL cannot store it
        return {"content": base64.b64encode(data).decode(), "encoding": "base64"}
    return {"content": text, "encoding": "utf-8"}
