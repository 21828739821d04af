"""A sandbox as the backend of DeepAgents (files and commands); needs the extra `deepagents`.

Each thread of the agent has its own sandbox: the backend looks up user and thread in the run that
calls it, so one backend serves all conversations of a program.

Example:
    from deepagents import create_deep_agent
    from sandboxd_client.integrations.deepagents import SandboxdBackend, with_artifacts

    agent = create_deep_agent(model=model, backend=with_artifacts(SandboxdBackend()))
    agent.invoke(
        {"messages": [...]}, config={"configurable": {"user_id": "ada", "thread_id": "42"}}
    )
"""

from __future__ import annotations

import base64
import dataclasses
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from deepagents.backends import CompositeBackend, protocol, utils
from deepagents.backends.protocol import (
    BackendProtocol,
    EditResult,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox
from langgraph.config import get_config
from langgraph.runtime import get_runtime

from sandboxd_client.command_policy import CommandPolicy
from sandboxd_client.errors import (
    InvalidRequestError,
    MissingFileError,
    NotADirectoryInSandboxError,
    NotAFileError,
    OutsideWorkspaceError,
    SandboxError,
    TextNotFoundError,
)
from sandboxd_client.integrations.conversation import (
    Conversation,
    DaemonSandboxes,
    Sandboxes,
    in_sandbox,
)
from sandboxd_client.integrations.langchain import conversation_of
from sandboxd_client.portal import portal
from sandboxd_client.results import CommandResult, FileInfo, TextPage
from sandboxd_client.sandbox import AsyncSandbox
from sandboxd_client.settings import Mode, Timeouts

T = TypeVar("T")
Identify: TypeAlias = Callable[[], Conversation]

MAX_PAGE_BYTES = 500 << 10
"""Text of one read, and the largest binary file that a read returns."""
MAX_OUTPUT_BYTES = 1 << 20
"""Output of a command that is returned inline."""
MAX_CAPTURED_BYTES = 10 << 20
"""Output of a command that is saved to a file."""
MAX_MATCHES = 10_000
PREVIEW_BYTES = 4 << 10
ARTIFACTS = ".deepagents"
"""Directory in the workspace for what the agent's middleware saves."""

_EMPTY = "System reminder: File exists but has empty contents"
_CUT = (
    "\n\n[Output was truncated due to size limits. Continue reading with a larger offset or a "
    "smaller limit to inspect the rest of the file.]"
)
_LINE_CUT = "\n\n[This line was truncated due to size limits; use execute to see the rest of it.]"


def from_run() -> Conversation:
    """User and thread of the run that calls the backend, from its context or configuration.

    The context is an object or a dict with `user_id` and `thread_id`; in the configuration they
    are `configurable`.
    """
    try:
        configurable = get_config().get("configurable", {})
    except RuntimeError:
        raise InvalidRequestError(
            "The backend was called outside of an agent's run, so there is no conversation; give "
            "SandboxdBackend a user_id and a thread_id."
        ) from None
    return conversation_of(get_runtime().context, configurable)


def with_artifacts(
    backend: SandboxdBackend, routes: Mapping[str, BackendProtocol] | None = None
) -> CompositeBackend:
    """The backend for an agent, which keeps large results in the workspace.

    Without it the middleware saves them at the root of the file system, where the sandbox cannot
    write, and they stay in the model's context. `routes` are further backends by path prefix, such
    as `{"/memories/": StoreBackend(...)}`.

    Example:
        agent = create_deep_agent(model=model, backend=with_artifacts(SandboxdBackend()))
    """
    root = posixpath.join(backend.workspace_dir, ARTIFACTS)
    return CompositeBackend(default=backend, routes=dict(routes or {}), artifacts_root=root)


class SandboxdBackend(BaseSandbox):
    """Files and commands of the sandbox of the agent's conversation.

    Files go through the daemon's file service: any image works, paths are checked, and nothing
    that a model writes becomes part of a command line. The daemon and `policy` are chosen as for
    AsyncSandboxClient. `identify` returns the conversation; with `user_id` and `thread_id` it is
    always the same. `timeout` is how many seconds a command may run unless the model asks for
    another time, and `timeout_minutes` the idle time after which a session expires.

    Example:
        backend = SandboxdBackend(user_id="ada", thread_id="conversation-42")
        backend.write("/workspace/numbers.txt", "3\\n1\\n2\\n")
        print(backend.execute("sort -n numbers.txt").output)
    """

    def __init__(
        self,
        mode: Mode | None = None,
        server_url: str | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        identify: Identify = from_run,
        token: str | None = None,
        policy: CommandPolicy | None = None,
        timeout_minutes: float | None = None,
        timeout: float | None = None,
        workspace_dir: str = "/workspace",
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
        sandboxes: Sandboxes | None = None,
    ) -> None:
        self._sandboxes = sandboxes or DaemonSandboxes(
            mode,
            server_url,
            token=token,
            policy=policy,
            timeouts=timeouts,
            local_settings=local_settings,
            idle_minutes=timeout_minutes,
        )
        if user_id is not None or thread_id is not None:
            fixed = Conversation(user_id or "", thread_id or "")
            identify = lambda: fixed  # noqa: E731
        self._identify = identify
        self._timeout = timeout
        self.workspace_dir = workspace_dir

    @property
    def id(self) -> str:
        """User and thread of the conversation, or `sandboxd` outside of one."""
        try:
            whose = self._identify()
        except InvalidRequestError:
            return "sandboxd"
        return f"{whose.user_id}/{whose.thread_id}"

    async def aclose(self) -> None:
        """Free the connection of this event loop. Sessions stay open until they expire."""
        await self._sandboxes.aclose()

    def close(self) -> None:
        """Free the connection of the sync methods. Sessions stay open until they expire."""
        portal.call(self._sandboxes.aclose())

    # --- commands ---

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command line. What a policy refuses, or a lost sandbox, is output with code 126."""
        try:
            return _response(await self._run(command, timeout, MAX_OUTPUT_BYTES))
        except SandboxError as error:
            return ExecuteResponse(output=f"Error: {error}", exit_code=126)

    async def aexecute_with_offload(
        self,
        command: str,
        capture_path: str,
        *,
        max_inline_bytes: int,
        max_capture_bytes: int | None = None,
        timeout: int | None = None,
    ) -> Any:
        """Run a command line; output that is too long is saved to a file in the sandbox."""
        limit = min(max_capture_bytes or MAX_CAPTURED_BYTES, MAX_CAPTURED_BYTES)
        try:
            done = await self._run(command, timeout, limit)
            if len(done.stdout_bytes) <= max_inline_bytes:
                return _inline(_response(done))
            await self._in_sandbox(lambda box: box.files.write(capture_path, done.stdout_bytes))
        except SandboxError as error:
            return _inline(ExecuteResponse(output=f"Error: {error}", exit_code=126))
        return _preview(done)

    async def _run(self, command: str, timeout: float | None, limit: int) -> CommandResult:
        """A time of 0 means as long as the session allows."""
        seconds = self._timeout if timeout is None else timeout
        return await self._in_sandbox(
            lambda sandbox: sandbox.commands.run(
                command, timeout=seconds, merge_stderr=True, max_output_bytes=limit
            )
        )

    # --- files ---

    async def als(self, path: str) -> LsResult:
        """The entries of a directory, with absolute paths."""
        try:
            entries = await self._in_sandbox(lambda sandbox: sandbox.files.list(path))
        except SandboxError as error:
            return LsResult(error=f"Path '{path}': {_code(error)}")
        return LsResult(entries=[self._described(entry) for entry in entries])

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Lines of a text file; of any other file, all of it in base64 if it is not too large."""
        offset, limit = max(0, int(offset)), max(0, int(limit))
        try:
            if _is_binary(file_path):
                return await self._binary(file_path)
            page = await self._in_sandbox(
                lambda sandbox: sandbox.files.read_lines(
                    file_path,
                    first_line=offset + 1,
                    max_lines=max(1, limit),
                    max_bytes=MAX_PAGE_BYTES,
                )
            )
            if page.invalid_utf8:
                return await self._binary(file_path)
        except SandboxError as error:
            return ReadResult(error=f"File '{file_path}': {_code(error)}")
        return _page(file_path, page, offset, limit)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        """Write a file; missing directories are created."""
        (done,) = await self.aupload_files([(file_path, content.encode("utf-8", "replace"))])
        if done.error:
            return WriteResult(error=f"Failed to write file '{file_path}': {done.error}")
        return WriteResult(path=file_path)

    async def aedit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        """Replace a piece of text that occurs once, or everywhere. Line ends of the file stay."""
        if not old_string:
            return EditResult(error="Error: old_string cannot be empty.")
        try:
            count = await self._in_sandbox(
                lambda sandbox: _edited(sandbox, file_path, old_string, new_string, replace_all)
            )
        except SandboxError as error:
            return EditResult(error=_edit_error(error, file_path, old_string))
        return EditResult(path=file_path, occurrences=count)

    async def adelete(self, file_path: str) -> Any:
        """Delete a file, or a directory with everything in it."""
        try:
            await self._in_sandbox(lambda sandbox: sandbox.files.remove(file_path))
        except MissingFileError:
            return protocol.DeleteResult(error=f"Error: '{file_path}' not found")
        except SandboxError as error:
            return protocol.DeleteResult(error=f"Error deleting file '{file_path}': {error}")
        return protocol.DeleteResult(path=file_path)

    async def agrep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        """Lines that contain a text."""
        limit = MAX_MATCHES if max_count is None else min(max_count + 1, MAX_MATCHES)
        root = path or self.workspace_dir
        excluded = getattr(self, "grep_exclude_dirs", (".git",))
        try:
            found = await self._in_sandbox(
                lambda sandbox: sandbox.files.grep(
                    pattern,
                    root,
                    glob=glob or "",
                    exclude_dirs=[name for name in excluded if name != posixpath.basename(root)],
                    max_matches=max(1, limit),
                )
            )
        except SandboxError as error:
            return GrepResult(error=f"Path '{root}': {_code(error)}")
        matches = [
            protocol.GrepMatch(
                path=self._absolute(match.path), line=match.line_number, text=match.line
            )
            for match in found.matches
        ]
        shown = matches if max_count is None else matches[:max_count]
        is_cut = not found.complete if max_count is None else len(matches) > max_count
        return _made(GrepResult, matches=shown, truncated=is_cut)

    async def aglob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Files whose path matches a pattern; names that begin with a dot only if it has the dot.

        A pattern without a slash also matches in directories whose name begins with a dot.
        """
        root = posixpath.join("/", path or "/")
        is_name = "/" not in pattern
        try:
            found = await self._in_sandbox(
                lambda sandbox: sandbox.files.glob(
                    pattern,
                    root,
                    types=["file"],
                    skip_hidden=not is_name,
                    exclude_dirs=["proc", "sys", "dev"] if root == "/" else (),
                    max_entries=MAX_MATCHES,
                )
            )
        except SandboxError as error:
            return GlobResult(error=f"Path '{root}': {_code(error)}")
        shows_hidden = any(mark in f",{pattern}" for mark in (",.", "{."))
        matches = [
            self._described(entry)
            for entry in found.entries
            if not is_name or shows_hidden or not entry.name.startswith(".")
        ]
        why = None if found.complete else "budget"
        return _made(
            GlobResult, matches=matches, truncated=not found.complete, truncation_reason=why
        )

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files; each has its own answer."""
        return [FileUploadResponse(path, await self._uploaded(path, data)) for path, data in files]

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files; each has its own answer."""
        return [await self._downloaded(path) for path in paths]

    async def _uploaded(self, path: str, data: bytes) -> str | None:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            await self._in_sandbox(lambda sandbox: sandbox.files.write(path, data))
        except SandboxError as error:
            return _code(error)
        return None

    async def _downloaded(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path, error="invalid_path")
        if posixpath.normpath(path) in ("/", self.workspace_dir):
            return FileDownloadResponse(path, error="is_directory")
        try:
            data = await self._in_sandbox(lambda sandbox: sandbox.files.read(path, format="bytes"))
        except SandboxError as error:
            return FileDownloadResponse(path, error=_code(error))
        return FileDownloadResponse(path, content=data)

    async def _binary(self, path: str) -> ReadResult:
        data = await self._in_sandbox(
            lambda sandbox: sandbox.files.read(path, format="bytes", length=MAX_PAGE_BYTES + 1)
        )
        if len(data) > MAX_PAGE_BYTES:
            why = f"Binary file exceeds maximum preview size of {MAX_PAGE_BYTES} bytes"
            return ReadResult(error=f"File '{path}': {why}")
        return _content(base64.b64encode(data).decode(), "base64") if data else _content(_EMPTY)

    def _described(self, entry: FileInfo) -> protocol.FileInfo:
        return protocol.FileInfo(
            path=self._absolute(entry.path),
            is_dir=entry.type == "directory",
            size=entry.size_bytes,
            modified_at=entry.modified,
        )

    def _absolute(self, path: str) -> str:
        return posixpath.join(self.workspace_dir, path)

    async def _in_sandbox(self, work: Callable[[AsyncSandbox], Awaitable[T]]) -> T:
        return await in_sandbox(self._sandboxes, self._identify(), work)

    # --- the same without await ---

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return portal.call(self.aexecute(command, timeout=timeout))

    def execute_with_offload(self, command: str, capture_path: str, **limits: Any) -> Any:
        return portal.call(self.aexecute_with_offload(command, capture_path, **limits))

    def ls(self, path: str) -> LsResult:
        return portal.call(self.als(path))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return portal.call(self.aread(file_path, offset, limit))

    def write(self, file_path: str, content: str) -> WriteResult:
        return portal.call(self.awrite(file_path, content))

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        return portal.call(self.aedit(file_path, old_string, new_string, replace_all))

    def delete(self, file_path: str) -> Any:
        return portal.call(self.adelete(file_path))

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
    ) -> GrepResult:
        return portal.call(self.agrep(pattern, path, glob, max_count=max_count))

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        return portal.call(self.aglob(pattern, path))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return portal.call(self.aupload_files(files))

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return portal.call(self.adownload_files(paths))


async def _edited(sandbox: AsyncSandbox, path: str, old: str, new: str, replace_all: bool) -> int:
    """Models see files with \\n at the end of lines, so a text may only match with \\r\\n."""
    variants = [(old, new)]
    plain_old, plain_new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if "\n" in old:
        variants += [
            (plain_old.replace("\n", "\r\n"), plain_new.replace("\n", "\r\n")),
            (plain_old, plain_new),
        ]
    for number, (before, after) in enumerate(variants, 1):
        try:
            return await sandbox.files.edit(path, before, after, replace_all=replace_all)
        except TextNotFoundError as error:
            if error.metadata.get("count") != "0" or number == len(variants):
                raise
    raise AssertionError("unreachable")


def _edit_error(error: SandboxError, path: str, old: str) -> str:
    if isinstance(error, TextNotFoundError):
        if error.metadata.get("count") == "0":
            return f"Error: String not found in file: '{old}'"
        why = "appears multiple times. Use replace_all=True to replace all occurrences."
        return f"Error: String '{old}' {why}"
    if isinstance(error, MissingFileError):
        return f"Error: File '{path}' not found"
    if isinstance(error, PermissionError):
        return f"Error: Permission denied editing file '{path}'"
    if isinstance(error, NotAFileError):
        return f"Error: '{path}' is not a regular file"
    return f"Error editing file '{path}': {error}"


def _code(error: SandboxError) -> str:
    """The protocol's name of an error that a model can correct; others in the daemon's words."""
    match error:
        case MissingFileError():
            return "file_not_found"
        case PermissionError() | OutsideWorkspaceError():
            return "permission_denied"
        case NotAFileError():
            return "is_directory"
        case NotADirectoryInSandboxError() | InvalidRequestError():
            return "invalid_path"
    return str(error)


def _page(path: str, page: TextPage, offset: int, limit: int) -> ReadResult:
    if not page.total_lines:
        return _content(_EMPTY)
    if not limit:
        return _content("", no_lines_requested=True)
    if not page.line_count:
        why = f"Line offset {offset} exceeds file length ({page.total_lines} lines)"
        return ReadResult(error=f"File '{path}': {why}")
    last = page.first_line + page.line_count - 1
    text = page.text
    if page.truncated and not text.endswith("\n"):
        # The last line is cut. The next read begins with it, unless it is the only one.
        if page.line_count > 1:
            text, last = text[: text.rindex("\n") + 1] + _CUT, last - 1
        else:
            text += _LINE_CUT
    return _content(
        text.replace("\r\n", "\n").removesuffix("\n"),
        total_lines=page.total_lines,
        start_line=page.first_line,
        end_line=last,
        next_offset=last if last < page.total_lines else None,
    )


def _content(text: str, encoding: str = "utf-8", **window: Any) -> ReadResult:
    return _made(ReadResult, file_data=protocol.FileData(content=text, encoding=encoding), **window)


def _made(kind: type[T], **values: Any) -> T:
    """A result with the fields that this release of deepagents has."""
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})


def _response(done: CommandResult) -> ExecuteResponse:
    hint = f"\n[{done.hint}]" if done.hint else ""
    return ExecuteResponse(
        output=done.stdout + hint,
        exit_code=done.exit_code,
        truncated=bool(done.stdout_omitted_bytes),
    )


def _inline(response: ExecuteResponse) -> Any:
    return protocol.ExecuteOffloadResult(offloaded=False, response=response)


def _preview(done: CommandResult) -> Any:
    """The beginning and the end of output that was saved, in whole lines where possible."""
    data = done.stdout_bytes
    head, tail = data[: PREVIEW_BYTES // 2], data[-PREVIEW_BYTES // 2 :]
    head = head[: head.rfind(b"\n") + 1] or head
    tail = tail[tail.find(b"\n") + 1 :] or tail
    lines = data[len(head) : len(data) - len(tail)].count(b"\n")
    shown = (
        f"{_decoded(head)}\n... [{lines} lines truncated] ...\n{_decoded(tail)}"
        if lines
        else f"{_decoded(head)}\n... [{len(data) - len(head) - len(tail)} bytes left out] ...\n"
        f"{_decoded(tail)}"
    )
    return protocol.ExecuteOffloadResult(
        offloaded=True,
        response=dataclasses.replace(_response(done), output=shown),
        preview_has_truncation_marker=bool(lines),
    )


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace").removesuffix("\n")


def _is_binary(path: str) -> bool:
    """Whether the agent's middleware expects base64 for this name."""
    find = getattr(utils, "_get_backend_read_file_type", None) or utils._get_file_type
    return bool(find(path) != "text")
