"""Tools that upload and download files of any kind."""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import BlobResourceContents, CallToolResult, EmbeddedResource
from pydantic import Field

from sandboxd_client.integrations.mcp.answers import Piece, Written
from sandboxd_client.integrations.mcp.commands import Workspace
from sandboxd_client.integrations.mcp.files import MAX_BLOB_BYTES, Path
from sandboxd_client.integrations.mcp.local_files import NotShared, SharedDirectory
from sandboxd_client.integrations.mcp.workspaces import AnyContext, Workspaces
from sandboxd_client.sandbox import AsyncSandbox

DEFAULT_BYTES = 1 << 20
MAX_LOCAL_BYTES = 256 << 20

Work: TypeAlias = Callable[[AsyncSandbox], Awaitable[Written]]
LocalPath = Annotated[str, Field(description="Path in the directory that the user shares.")]


class TransferTools:
    """Bytes in the messages of the protocol."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def upload_file(
        self,
        context: AnyContext,
        path: Path,
        content: Annotated[str, Field(description="The bytes as base64, up to 4 MiB of them.")],
        overwrite: Annotated[bool, Field(description="Replace a file at the path.")] = True,
        workspace: Workspace = None,
    ) -> Written:
        """Upload a file of any kind into the workspace; missing directories are created. Larger
        files are uploaded in parts, which run_command joins with cat."""
        data = _decoded(content)

        async def upload(sandbox: AsyncSandbox) -> Written:
            info = await sandbox.files.write(path, data, overwrite=overwrite)
            return Written(path=info.path, size_bytes=info.size_bytes)

        return await self._workspaces.use(context, workspace, upload)

    async def download_file(
        self,
        context: AnyContext,
        path: Path,
        offset: Annotated[int, Field(ge=0, description="Position of the first byte.")] = 0,
        max_bytes: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)] = DEFAULT_BYTES,
        workspace: Workspace = None,
    ) -> CallToolResult:
        """Download a file of any kind, or a piece of it, as an embedded resource. Continue at
        `next_offset` until it is null."""

        async def download(sandbox: AsyncSandbox) -> CallToolResult:
            total = (await sandbox.files.stat(path, follow_links=True)).size_bytes
            data = await sandbox.files.read(path, format="bytes", offset=offset, length=max_bytes)
            end = offset + len(data)
            piece = Piece(
                path=path,
                offset=offset,
                size_bytes=len(data),
                total_bytes=max(total, end),
                next_offset=end if data and end < total else None,
            )
            blob = BlobResourceContents(
                uri=f"sandbox://files/{path.lstrip('/')}",
                mime_type=mimetypes.guess_type(path)[0] or "application/octet-stream",
                blob=base64.b64encode(data).decode(),
            )
            return CallToolResult(
                content=[EmbeddedResource(type="resource", resource=blob)],
                structured_content=piece.model_dump(mode="json"),
            )

        return await self._workspaces.use(context, workspace, download)


class LocalTransferTools:
    """Files between the sandbox and a directory of the machine that the server runs on."""

    def __init__(self, workspaces: Workspaces, shared: SharedDirectory) -> None:
        self._workspaces = workspaces
        self._shared = shared

    async def upload_local_file(
        self,
        context: AnyContext,
        local_path: LocalPath,
        path: Path,
        overwrite: Annotated[bool, Field(description="Replace a file at the path.")] = True,
    ) -> Written:
        """Copy a file of the shared directory into the workspace."""

        async def upload(sandbox: AsyncSandbox) -> Written:
            with self._shared.opened(local_path) as file:
                # The SDK opens a name, and this is the file that was checked.
                name = f"/dev/fd/{file.fileno()}"
                info = await sandbox.files.upload(name, path, overwrite=overwrite)
            return Written(path=info.path, size_bytes=info.size_bytes)

        return await self._in_words(context, upload)

    async def download_local_file(
        self,
        context: AnyContext,
        path: Path,
        local_path: LocalPath,
        overwrite: Annotated[bool, Field(description="Replace a file at the local path.")] = False,
    ) -> Written:
        """Copy a file of the workspace into the shared directory, up to 256 MiB."""

        async def download(sandbox: AsyncSandbox) -> Written:
            size = 0
            with self._shared.created(local_path, overwrite=overwrite) as file:
                async with await sandbox.files.read(path, format="stream") as chunks:
                    async for chunk in chunks:
                        size += len(chunk)
                        if size > MAX_LOCAL_BYTES:
                            raise ToolError(f"{path} is larger than {MAX_LOCAL_BYTES} bytes.")
                        await asyncio.to_thread(file.write, chunk)
            return Written(path=local_path, size_bytes=size)

        return await self._in_words(context, download)

    async def _in_words(self, context: AnyContext, work: Work) -> Written:
        try:
            return await self._workspaces.use(context, None, work)
        except NotShared as error:
            raise ToolError(f"local_path: {error}") from error


def _decoded(content: str) -> bytes:
    if len(content) > MAX_BLOB_BYTES * 4 // 3 + 4:
        raise ToolError(
            f"content: more than {MAX_BLOB_BYTES} bytes; upload parts and join them with cat."
        )
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(f"content: not base64 ({error})") from None
