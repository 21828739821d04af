"""The server: its tools, resources and transports."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl

from sandboxd_client import __version__
from sandboxd_client.errors import NotAuthorizedError
from sandboxd_client.integrations.callers import Callers, check_address
from sandboxd_client.integrations.mcp.code import CodeTools
from sandboxd_client.integrations.mcp.commands import CommandTools
from sandboxd_client.integrations.mcp.files import FileTools, WorkspaceTools, file_of
from sandboxd_client.integrations.mcp.local_files import SharedDirectory
from sandboxd_client.integrations.mcp.state import PortTools, SnapshotTools
from sandboxd_client.integrations.mcp.transfers import LocalTransferTools, TransferTools
from sandboxd_client.integrations.mcp.workspaces import THREAD_HEADER, Workspaces
from sandboxd_client.sandbox import AsyncSandbox

MAX_BODY_BYTES = 8 << 20
PATH = "/mcp"
THREAD_PATH = "/mcp/t/"
BASIC = frozenset(
    {"run_command", "read_output", "read_file", "write_file", "edit_file", "search_files"}
)
INSTRUCTIONS = """\
Tools of a Linux sandbox that belongs to this conversation. Its workspace keeps files from one \
call to the next. Use run_command for exact arithmetic, for programs and for data (bash, python3, \
jq, awk); use the file tools to read and change files, rather than cat and echo. Long output is \
shortened; read_output has the rest. The sandbox has no network, and is deleted when it was not \
used for a while."""

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_CHANGES = ToolAnnotations(destructive_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False)

Scope: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[[Scope, Any, Any], Awaitable[None]]


class _Verifier:
    """Bearer tokens are those of the daemon."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            caller = await self._callers.of(token)
        except NotAuthorizedError:
            return None
        return AccessToken(
            token=token, client_id=caller.name, scopes=[], subject=caller.user_id or None
        )


def build_server(
    callers: Callers,
    *,
    thread_id: str | None = None,
    is_basic: bool = False,
    url: str | None = None,
    shared: SharedDirectory | None = None,
) -> MCPServer[Any]:
    """The server with its tools. `url` is its own address, if callers need a token; `shared` is a
    directory whose files the agent may copy, for a server of one conversation only."""
    auth = None
    if callers.needs_token:
        address = AnyHttpUrl(url or "http://127.0.0.1")
        auth = AuthSettings(issuer_url=address, resource_server_url=None)

    @asynccontextmanager
    async def lifespan(_: MCPServer[Any]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await callers.aclose()

    server: MCPServer[Any] = MCPServer(
        name="sandboxd",
        title="Sandbox",
        instructions=INSTRUCTIONS,
        version=__version__,
        token_verifier=_Verifier(callers) if auth else None,
        auth=auth,
        lifespan=lifespan if thread_id is not None else None,
        log_level="WARNING",
    )
    workspaces = Workspaces(callers, thread_id=thread_id)
    _add_tools(server, workspaces, is_basic=is_basic)
    if shared is not None:
        local = LocalTransferTools(workspaces, shared)
        server.add_tool(local.upload_local_file, annotations=_WRITES)
        server.add_tool(local.download_local_file, annotations=_CHANGES)
    _add_resources(server, workspaces)
    return server


def _add_tools(server: MCPServer[Any], workspaces: Workspaces, *, is_basic: bool) -> None:
    commands, files = CommandTools(workspaces), FileTools(workspaces)
    whole, code = WorkspaceTools(workspaces), CodeTools(workspaces)
    snapshots, ports = SnapshotTools(workspaces), PortTools(workspaces)
    transfers = TransferTools(workspaces)
    tools: list[tuple[Callable[..., Any], ToolAnnotations]] = [
        (commands.run_command, _CHANGES),
        (code.run_code, _CHANGES),
        (commands.read_output, _READS),
        (commands.stop_command, _CHANGES),
        (commands.send_input, _CHANGES),
        (files.read_file, _READS),
        (files.write_file, _WRITES),
        (files.edit_file, _CHANGES),
        (transfers.upload_file, _WRITES),
        (transfers.download_file, _READS),
        (files.list_files, _READS),
        (files.find_files, _READS),
        (files.search_files, _READS),
        (files.remove_file, _CHANGES),
        (files.move_file, _CHANGES),
        (snapshots.save_snapshot, _CHANGES),
        (snapshots.list_snapshots, _READS),
        (snapshots.compare_snapshot, _READS),
        (snapshots.restore_snapshot, _CHANGES),
        (ports.list_ports, _READS),
        (ports.open_port, _CHANGES),
        (whole.workspace_info, _READS),
        (whole.reset_workspace, _CHANGES),
    ]
    if not workspaces.is_single:
        server.add_tool(whole.open_workspace, annotations=_CHANGES)
    for tool, hints in tools:
        if not is_basic or tool.__name__ in BASIC:
            server.add_tool(tool, annotations=hints)


def _add_resources(server: MCPServer[Any], workspaces: Workspaces) -> None:
    @server.resource("sandbox://files/{+path}", description="A file of the workspace.")
    async def file(path: str, context: Context[Any, Any]) -> str | bytes:
        return await _resource(workspaces, context, lambda sandbox: file_of(sandbox, path))


async def _resource(
    workspaces: Workspaces,
    context: Context[Any, Any],
    read: Callable[[AsyncSandbox], Awaitable[str | bytes]],
) -> str | bytes:
    try:
        return await workspaces.use(context, None, read)
    except ToolError as error:
        raise ResourceError(str(error)) from error


def new_thread() -> str:
    """A thread for a process that names none."""
    return f"mcp-{secrets.token_hex(8)}"


async def serve_stdio(
    callers: Callers,
    thread_id: str,
    *,
    is_basic: bool = False,
    shared: SharedDirectory | None = None,
) -> None:
    """Serve one conversation over standard input and output."""
    server = build_server(callers, thread_id=thread_id, is_basic=is_basic, shared=shared)
    await server.run_stdio_async()


async def serve_http(
    callers: Callers,
    host: str,
    port: int,
    *,
    is_basic: bool = False,
    allowed_hosts: tuple[str, ...] = (),
    on_start: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve many conversations over HTTP; `allowed_hosts` are further names of this server."""
    check_address(host, callers)
    await callers.check_daemon()
    server = build_server(callers, is_basic=is_basic, url=f"http://{host}:{port}")
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=_security(host, allowed_hosts),
        host=host,
    )
    config = uvicorn.Config(
        threads_in_paths(app), host=host, port=port, log_level="warning", access_log=False
    )
    program = _Program(config, on_start)
    try:
        await program.serve()
    finally:
        await callers.aclose()


class _Program(uvicorn.Server):
    """A server that reports its port, which the system may have chosen."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[int], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._on_start(self.servers[0].sockets[0].getsockname()[1])


def _security(host: str, allowed_hosts: tuple[str, ...]) -> TransportSecuritySettings:
    """Requests of web pages that reach this server by another name are refused."""
    names = ["127.0.0.1:*", "localhost:*", "[::1]:*", host, f"{host}:*", *allowed_hosts]
    origins = [f"{scheme}://{name}" for name in names for scheme in ("http", "https")]
    return TransportSecuritySettings(allowed_hosts=names, allowed_origins=origins)


def threads_in_paths(app: App) -> App:
    """/mcp/t/THREAD is /mcp of that thread, for clients that can only be given an address."""

    async def adapted(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(THREAD_PATH):
            thread = scope["path"].removeprefix(THREAD_PATH).strip("/")
            named = (THREAD_HEADER.encode(), thread.encode())
            others = [pair for pair in scope["headers"] if pair[0] != named[0]]
            scope = {**scope, "path": PATH, "raw_path": PATH.encode(), "headers": [*others, named]}
        await app(scope, receive, send)

    return adapted
