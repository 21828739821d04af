"""E2B's files: the filesystem service, and transfers over plain HTTP."""

from __future__ import annotations

import asyncio
import email.message
import io
import posixpath
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import BodyPartReader, web

from sandboxd_client.errors import NotADirectoryInSandboxError, SandboxError
from sandboxd_client.integrations.e2b.boxes import Boxes
from sandboxd_client.integrations.e2b.connect import (
    Message,
    Refused,
    frame,
    number,
    parsed,
    refusal,
    text,
)
from sandboxd_client.integrations.e2b.processes import answering
from sandboxd_client.integrations.e2b.users import check_user
from sandboxd_client.results import FileEvent, FileInfo
from sandboxd_client.sandbox import AsyncSandbox

SERVICE = "/filesystem.Filesystem"
UPLOADS_AT_ONCE = 4
MAX_FILES = 1000
MAX_WATCHERS = 64
MAX_EVENTS = 10_000
UNUSED_SECONDS = 600.0
_TYPES = {"directory": "FILE_TYPE_DIRECTORY", "file": "FILE_TYPE_FILE"}
_EVENTS = {
    "created": "EVENT_TYPE_CREATE",
    "modified": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
}


class Files:
    """Handlers of files and directories."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._uploads = asyncio.Semaphore(UPLOADS_AT_ONCE)

    def routes(self) -> Sequence[web.RouteDef]:
        calls = {
            "Stat": self._stat,
            "ListDir": self._list,
            "MakeDir": self._make_dir,
            "Move": self._move,
            "Remove": self._remove,
        }
        return [
            web.get("/files", self.download),
            web.post("/files", self.upload),
            *(web.post(f"{SERVICE}/{name}", self._unary(call)) for name, call in calls.items()),
        ]

    def _unary(
        self, call: Callable[[AsyncSandbox, Message], Awaitable[Message]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handler(request: web.Request) -> web.StreamResponse:
            sandbox = await self._boxes.of(request)
            check_user(request, sandbox)
            return web.json_response(await call(sandbox, parsed(await request.read())))

        return handler

    async def _stat(self, sandbox: AsyncSandbox, message: Message) -> Message:
        try:
            info = await sandbox.files.stat(text(message, "path"))
        except NotADirectoryInSandboxError as error:
            raise Refused("not_found", str(error)) from error  # as `exists` needs it
        return {"entry": entry_of(sandbox, info)}

    async def _list(self, sandbox: AsyncSandbox, message: Message) -> Message:
        depth = number(message, "depth") or 1
        found = await sandbox.files.list(text(message, "path"), depth=depth)
        return {"entries": [entry_of(sandbox, info) for info in found]}

    async def _make_dir(self, sandbox: AsyncSandbox, message: Message) -> Message:
        path = text(message, "path")
        is_root = posixpath.normpath(path) in ("/", ".", sandbox.workspace_dir)
        if is_root or not await sandbox.files.make_dir(path):
            raise Refused("already_exists", f"The directory {path} already exists.")
        return {"entry": entry_of(sandbox, await sandbox.files.stat(path))}

    async def _move(self, sandbox: AsyncSandbox, message: Message) -> Message:
        moved = await sandbox.files.rename(
            text(message, "source"), text(message, "destination"), replace=True, make_parents=True
        )
        return {"entry": entry_of(sandbox, moved)}

    async def _remove(self, sandbox: AsyncSandbox, message: Message) -> Message:
        await sandbox.files.remove(text(message, "path"), ignore_missing=True)
        return {}

    # --- transfers ---

    async def download(self, request: web.Request) -> web.StreamResponse:
        sandbox = await self._boxes.of(request)
        check_user(request, sandbox)
        stream = await sandbox.files.read(request.query.get("path", ""), format="stream")
        try:
            response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
            await response.prepare(request)
            async for data in stream:
                await response.write(data)
            await response.write_eof()
        finally:
            await stream.aclose()
        return response

    async def upload(self, request: web.Request) -> web.Response:
        sandbox = await self._boxes.of(request)
        check_user(request, sandbox)
        async with self._uploads:
            if request.content_type == "multipart/form-data":
                written = await self._parts(request, sandbox)
            else:
                data = await _read(request.content.iter_any(), sandbox)
                written = [await sandbox.files.write(request.query.get("path", ""), data)]
        entries = [entry_of(sandbox, info) for info in written]
        return web.json_response(
            [{"path": one["path"], "name": one["name"], "type": "file"} for one in entries]
        )

    async def _parts(self, request: web.Request, sandbox: AsyncSandbox) -> list[FileInfo]:
        """Files of a form. One file may be named by the address, several name themselves."""
        written: list[FileInfo] = []
        named = request.query.get("path", "")
        reader = await request.multipart()
        while (piece := await reader.next()) is not None:
            if not isinstance(piece, BodyPartReader) or len(written) >= MAX_FILES:
                raise Refused("invalid_argument", "The form is not a list of files.")
            path = named if named and not written else filename_of(piece)
            data = await _read(_chunks(piece), sandbox)
            written.append(await sandbox.files.write(path, data))
        if not written:
            raise Refused("invalid_argument", "The form has no file.")
        return written


def filename_of(piece: BodyPartReader) -> str:
    """The name as it was sent; aiohttp would make it relative."""
    header = email.message.Message()
    header["Content-Disposition"] = piece.headers.get("Content-Disposition", "")
    return header.get_filename("")


async def _chunks(piece: BodyPartReader) -> Any:
    while data := await piece.read_chunk(1 << 16):
        yield bytes(data)


async def _read(chunks: Any, sandbox: AsyncSandbox) -> bytes:
    """All bytes, which must not be more than a file may have."""
    content, limit = io.BytesIO(), sandbox.info.limits.max_file_bytes
    async for data in chunks:
        content.write(data)
        if content.tell() > limit:
            raise web.HTTPRequestEntityTooLarge(limit, content.tell())
    return content.getvalue()


def entry_of(sandbox: AsyncSandbox, info: FileInfo) -> Message:
    is_link = info.type == "symlink"
    entry: Message = {
        "name": info.name,
        "type": "FILE_TYPE_SYMLINK" if is_link else _TYPES.get(info.type, "FILE_TYPE_UNSPECIFIED"),
        "path": posixpath.normpath(posixpath.join(sandbox.workspace_dir, info.path)),
        "size": str(info.size_bytes),
        "mode": info.mode & 0o7777,
        "permissions": info.permissions,
        "owner": "",
        "group": "",
        "modifiedTime": info.modified,
        "isSymlink": is_link,
    }
    return {**entry, "symlinkTarget": info.link_target} if is_link else entry


# --- watches ---


class _Watcher:
    """Collects changes until they are fetched."""

    def __init__(self, sandbox: AsyncSandbox, path: str, recursive: bool) -> None:
        self.sandbox_id = sandbox.session_id
        self.used_at = time.monotonic()
        self._events: deque[Message] = deque()
        self._failure: Refused | None = None
        self._sandbox, self._path = sandbox, path
        self._changes = sandbox.files.watch_dir(path, recursive=recursive)
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self._changes.__aenter__()
        self._task = asyncio.create_task(self._collect(), name="watcher of an E2B client")

    async def _collect(self) -> None:
        try:
            async for change in self._changes:
                self._events += events_of(self._sandbox, self._path, change)
                if len(self._events) > MAX_EVENTS:
                    raise Refused("resource_exhausted", "Too many events were not fetched.")
        except Refused as refused:
            self._failure = refused
        except SandboxError as error:
            self._failure = refusal(error, self.sandbox_id)

    def take(self) -> list[Message]:
        self.used_at = time.monotonic()
        if self._failure is not None:
            raise self._failure
        taken = list(self._events)
        self._events.clear()
        return taken

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._changes.aclose()


class Watchers:
    """Handlers of watches: a stream for the async SDK, polling for the sync one."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._watchers: dict[str, _Watcher] = {}

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.post(f"{SERVICE}/WatchDir", self.watch),
            web.post(f"{SERVICE}/CreateWatcher", self.create),
            web.post(f"{SERVICE}/GetWatcherEvents", self.events),
            web.post(f"{SERVICE}/RemoveWatcher", self.remove),
        ]

    async def watch(self, request: web.Request) -> web.StreamResponse:
        async with answering(request) as stream:
            sandbox = await self._boxes.of(request)
            message = await stream.request()
            path = text(message, "path")
            async with sandbox.files.watch_dir(
                path, recursive=message.get("recursive") is True
            ) as changes:
                await stream.write(frame({"start": {}}))
                while (change := await stream.next_of(changes, {"keepalive": {}})) is not None:
                    for event in events_of(sandbox, path, change):
                        await stream.write(frame({"filesystem": event}))
        return stream.response

    async def create(self, request: web.Request) -> web.Response:
        sandbox, message = await self._boxes.of(request), parsed(await request.read())
        await self._remove_unused()
        if len(self._watchers) >= MAX_WATCHERS:
            raise Refused("resource_exhausted", "Too many directories are being watched.")
        watcher = _Watcher(sandbox, text(message, "path"), message.get("recursive") is True)
        await watcher.begin()
        watcher_id = secrets.token_hex(16)
        self._watchers[watcher_id] = watcher
        return web.json_response({"watcherId": watcher_id})

    async def events(self, request: web.Request) -> web.Response:
        return web.json_response({"events": (await self._find(request))[1].take()})

    async def remove(self, request: web.Request) -> web.Response:
        watcher_id, watcher = await self._find(request)
        del self._watchers[watcher_id]
        await watcher.end()
        return web.json_response({})

    async def aclose(self) -> None:
        for watcher in self._watchers.values():
            await watcher.end()
        self._watchers.clear()

    async def _find(self, request: web.Request) -> tuple[str, _Watcher]:
        sandbox, message = await self._boxes.of(request), parsed(await request.read())
        watcher_id = text(message, "watcherId")
        watcher = self._watchers.get(watcher_id)
        if watcher is None or watcher.sandbox_id != sandbox.session_id:
            raise Refused("not_found", "There is no such watcher.")
        return watcher_id, watcher

    async def _remove_unused(self) -> None:
        before = time.monotonic() - UNUSED_SECONDS
        for watcher_id, watcher in list(self._watchers.items()):
            if watcher.used_at < before:
                del self._watchers[watcher_id]
                await watcher.end()


def events_of(sandbox: AsyncSandbox, path: str, change: FileEvent) -> list[Message]:
    """A change as E2B names it, relative to the watched directory; a move is two events."""
    if change.kind == "overflow":
        raise Refused("resource_exhausted", "Changes were missed; list the directory again.")
    root = posixpath.join(sandbox.workspace_dir, path)

    def named(changed: str) -> str:
        return posixpath.relpath(posixpath.join(sandbox.workspace_dir, changed), root)

    if change.kind == "moved":
        return [
            {"name": named(change.old_path), "type": "EVENT_TYPE_RENAME"},
            {"name": named(change.path), "type": "EVENT_TYPE_CREATE"},
        ]
    return [{"name": named(change.path), "type": _EVENTS[change.kind]}]
