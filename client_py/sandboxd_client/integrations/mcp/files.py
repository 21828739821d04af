"""Tools that read and write files, and the workspace as a whole."""

from __future__ import annotations

import base64
import posixpath
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent
from pydantic import Field

from sandboxd_client.integrations.mcp.answers import (
    Count,
    Entries,
    Entry,
    Line,
    Lines,
    TextAnswer,
    WorkspaceAnswer,
    Written,
)
from sandboxd_client.integrations.mcp.commands import Workspace
from sandboxd_client.integrations.mcp.workspaces import AnyContext, Workspaces
from sandboxd_client.results import SessionInfo
from sandboxd_client.sandbox import AsyncSandbox

MAX_LINES = 2000
MAX_TEXT_BYTES = 64 << 10
MAX_BLOB_BYTES = 4 << 20
MAX_ENTRIES = 500
MAX_MATCHES = 200
IMAGES = {".gif": "gif", ".jpeg": "jpeg", ".jpg": "jpeg", ".png": "png", ".webp": "webp"}

Path = Annotated[str, Field(description="Relative to the workspace, or absolute.")]


class FileTools:
    """Files of the sandbox."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def read_file(
        self,
        context: AnyContext,
        path: Path,
        first_line: Annotated[int, Field(ge=1)] = 1,
        max_lines: Annotated[int, Field(ge=1, le=MAX_LINES)] = MAX_LINES,
        workspace: Workspace = None,
    ) -> CallToolResult:
        """Read a text file in pages of lines. Pictures are shown; other files are downloaded with
        download_file."""

        async def read(sandbox: AsyncSandbox) -> CallToolResult:
            kind = IMAGES.get(posixpath.splitext(path)[1].lower())
            if kind:
                return _picture(await _bytes(sandbox, path), kind)
            page = await sandbox.files.read_lines(
                path, first_line=first_line, max_lines=max_lines, max_bytes=MAX_TEXT_BYTES
            )
            if page.invalid_utf8:
                raise ToolError(f"{path} is not a text file; download_file returns its bytes.")
            answer = TextAnswer(
                path=path,
                text=page.text,
                first_line=page.first_line,
                line_count=page.line_count,
                total_lines=page.total_lines,
                is_complete=not page.truncated,
            )
            return CallToolResult(
                content=[_text(page.text)], structured_content=answer.model_dump(mode="json")
            )

        return await self._workspaces.use(context, workspace, read)

    async def write_file(
        self,
        context: AnyContext,
        path: Path,
        content: str,
        workspace: Workspace = None,
    ) -> Written:
        """Write a text file, or replace it; missing directories are created."""

        async def write(sandbox: AsyncSandbox) -> Written:
            info = await sandbox.files.write(path, content.encode())
            return Written(path=info.path, size_bytes=info.size_bytes)

        return await self._workspaces.use(context, workspace, write)

    async def edit_file(
        self,
        context: AnyContext,
        path: Path,
        old_text: Annotated[str, Field(description="Exactly as in the file; must occur once.")],
        new_text: str,
        replace_all: Annotated[bool, Field(description="Replace it wherever it occurs.")] = False,
        workspace: Workspace = None,
    ) -> Count:
        """Replace a piece of text in a file."""

        async def edit(sandbox: AsyncSandbox) -> Count:
            count = await sandbox.files.edit(path, old_text, new_text, replace_all=replace_all)
            return Count(count=count)

        return await self._workspaces.use(context, workspace, edit)

    async def list_files(
        self,
        context: AnyContext,
        path: Annotated[str, Field(description="Directory; by default the workspace.")] = "",
        depth: Annotated[int, Field(ge=1, le=10)] = 1,
        workspace: Workspace = None,
    ) -> Entries:
        """List a directory."""

        async def listing(sandbox: AsyncSandbox) -> Entries:
            found = await sandbox.files.list(path, depth=depth)
            shown = [Entry.of(info) for info in found[:MAX_ENTRIES]]
            return Entries(entries=shown, is_complete=len(found) == len(shown))

        return await self._workspaces.use(context, workspace, listing)

    async def find_files(
        self,
        context: AnyContext,
        pattern: Annotated[
            str,
            Field(description="*, ?, [a-z], {py,md}, ** for directories; a name at any depth."),
        ],
        path: Annotated[str, Field(description="Directory; by default the workspace.")] = "",
        workspace: Workspace = None,
    ) -> Entries:
        """Find files by a pattern of their path."""

        async def find(sandbox: AsyncSandbox) -> Entries:
            found = await sandbox.files.glob(
                pattern, path, exclude_dirs=[".git"], max_entries=MAX_ENTRIES
            )
            return Entries(entries=list(map(Entry.of, found.entries)), is_complete=found.complete)

        return await self._workspaces.use(context, workspace, find)

    async def search_files(
        self,
        context: AnyContext,
        pattern: Annotated[str, Field(description="Text, or a regular expression with regex.")],
        path: Annotated[str, Field(description="File or directory.")] = "",
        glob: Annotated[str, Field(description="Only files that match, such as *.py.")] = "",
        regex: bool = False,
        ignore_case: bool = False,
        workspace: Workspace = None,
    ) -> Lines:
        """Find lines in files."""

        async def search(sandbox: AsyncSandbox) -> Lines:
            found = await sandbox.files.grep(
                pattern,
                path,
                regex=regex,
                ignore_case=ignore_case,
                glob=glob,
                exclude_dirs=[".git"],
                max_matches=MAX_MATCHES,
            )
            lines = [
                Line(path=match.path, line_number=match.line_number, line=match.line[:1000])
                for match in found.matches
            ]
            return Lines(matches=lines, is_complete=found.complete)

        return await self._workspaces.use(context, workspace, search)

    async def remove_file(
        self, context: AnyContext, path: Path, workspace: Workspace = None
    ) -> Count:
        """Remove a file, or a directory with everything in it."""

        async def remove(sandbox: AsyncSandbox) -> Count:
            return Count(count=await sandbox.files.remove(path))

        return await self._workspaces.use(context, workspace, remove)

    async def move_file(
        self,
        context: AnyContext,
        path: Path,
        new_path: Path,
        replace: bool = False,
        workspace: Workspace = None,
    ) -> Entry:
        """Move or rename a file or directory; missing directories are created."""

        async def move(sandbox: AsyncSandbox) -> Entry:
            return Entry.of(
                await sandbox.files.rename(path, new_path, replace=replace, make_parents=True)
            )

        return await self._workspaces.use(context, workspace, move)


class WorkspaceTools:
    """The workspace as a whole."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def open_workspace(self, context: AnyContext) -> WorkspaceAnswer:
        """Open a new workspace. Give its id to the other tools as `workspace`."""
        handle = self._workspaces.new_handle()
        found = await self._workspaces.use(context, handle, _described)
        return found.model_copy(update={"workspace": handle})

    async def workspace_info(
        self, context: AnyContext, workspace: Workspace = None
    ) -> WorkspaceAnswer:
        """Limits and state of the workspace."""
        return await self._workspaces.use(context, workspace, _described)

    async def reset_workspace(
        self, context: AnyContext, workspace: Workspace = None
    ) -> WorkspaceAnswer:
        """Delete everything in the workspace and end its processes; project_files/ stays."""

        async def reset(sandbox: AsyncSandbox) -> WorkspaceAnswer:
            return described(await sandbox.reset())

        return await self._workspaces.use(context, workspace, reset)


async def file_of(sandbox: AsyncSandbox, path: str) -> bytes | str:
    """The content of a resource: text if it is text."""
    data = await _bytes(sandbox, path)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


async def _bytes(sandbox: AsyncSandbox, path: str) -> bytes:
    data = await sandbox.files.read(path, format="bytes", length=MAX_BLOB_BYTES + 1)
    if len(data) > MAX_BLOB_BYTES:
        raise ToolError(
            f"{path} is larger than {MAX_BLOB_BYTES} bytes; download_file returns pieces of it."
        )
    return data


def _picture(data: bytes, kind: str) -> CallToolResult:
    text = base64.b64encode(data).decode()
    picture = ImageContent(type="image", data=text, mime_type=f"image/{kind}")
    return CallToolResult(content=[picture])


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


async def _described(sandbox: AsyncSandbox) -> WorkspaceAnswer:
    return described(sandbox.info)


def described(info: SessionInfo) -> WorkspaceAnswer:
    limits = info.limits
    return WorkspaceAnswer(
        directory=info.workspace_dir,
        incarnation=info.incarnation,
        expires_at=info.expires_at,
        seconds_per_command=limits.default_exec_timeout.seconds,
        max_file_bytes=limits.max_file_bytes,
        workspace_bytes=limits.workspace_bytes,
        workspace_files=limits.workspace_files,
        is_new=info.status == "created" or not info.workspace_kept,
    )
