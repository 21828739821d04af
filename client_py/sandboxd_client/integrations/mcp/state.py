"""Tools for the state of a workspace: snapshots of its files, and ports of its programs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxd_client.integrations.mcp.answers import (
    Change,
    Changes,
    Port,
    PortAddress,
    Ports,
    Snapshot,
    Snapshots,
    WorkspaceAnswer,
)
from sandboxd_client.integrations.mcp.commands import Workspace
from sandboxd_client.integrations.mcp.files import described
from sandboxd_client.integrations.mcp.workspaces import AnyContext, Workspaces
from sandboxd_client.sandbox import AsyncSandbox

MAX_SNAPSHOTS = 100
MAX_CHANGES = 200
MAX_DIFF_CHARACTERS = 4000

SnapshotName = Annotated[
    str, Field(description="Number or label; 0 is the newest, -1 the one before it.")
]


class SnapshotTools:
    """Snapshots of the workspace."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def save_snapshot(
        self,
        context: AnyContext,
        label: Annotated[str, Field(description="A name to find it by.")] = "",
        workspace: Workspace = None,
    ) -> Snapshot:
        """Save the files of the workspace as they are, before you try something."""

        async def save(sandbox: AsyncSandbox) -> Snapshot:
            return Snapshot.of(await sandbox.snapshots.create(label))

        return await self._workspaces.use(context, workspace, save)

    async def list_snapshots(self, context: AnyContext, workspace: Workspace = None) -> Snapshots:
        """List snapshots of the workspace, newest first."""

        async def listing(sandbox: AsyncSandbox) -> Snapshots:
            found = await sandbox.snapshots.list()
            shown = [Snapshot.of(one) for one in found[:MAX_SNAPSHOTS]]
            return Snapshots(snapshots=shown, is_complete=len(shown) == len(found))

        return await self._workspaces.use(context, workspace, listing)

    async def compare_snapshot(
        self, context: AnyContext, snapshot: SnapshotName = "0", workspace: Workspace = None
    ) -> Changes:
        """What has changed in the workspace since a snapshot, with differences of text files."""

        async def compare(sandbox: AsyncSandbox) -> Changes:
            found = await sandbox.snapshots.diff(named(snapshot), with_text=True)
            shown = [
                Change(
                    kind=change.kind,
                    path=change.path,
                    difference=(change.unified_diff or "")[:MAX_DIFF_CHARACTERS],
                )
                for change in found.changes[:MAX_CHANGES]
            ]
            is_complete = not found.is_cut and len(shown) == len(found.changes)
            return Changes(changes=shown, is_complete=is_complete)

        return await self._workspaces.use(context, workspace, compare)

    async def restore_snapshot(
        self, context: AnyContext, snapshot: SnapshotName = "0", workspace: Workspace = None
    ) -> WorkspaceAnswer:
        """Put the files of the workspace back as they were in a snapshot; its processes end."""

        async def restore(sandbox: AsyncSandbox) -> WorkspaceAnswer:
            await sandbox.rewind(snapshot=named(snapshot))
            return described(sandbox.info)

        return await self._workspaces.use(context, workspace, restore)


class PortTools:
    """Ports that programs in the sandbox listen on."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def list_ports(self, context: AnyContext, workspace: Workspace = None) -> Ports:
        """List the ports that programs in the sandbox listen on."""

        async def listing(sandbox: AsyncSandbox) -> Ports:
            found = await sandbox.ports.list()
            return Ports(ports=[Port(port=one.port, address=one.address) for one in found])

        return await self._workspaces.use(context, workspace, listing)

    async def open_port(
        self,
        context: AnyContext,
        port: Annotated[int, Field(ge=1, le=65535)],
        seconds: Annotated[float, Field(ge=1, le=86400, description="How long it works.")] = 3600,
        workspace: Workspace = None,
    ) -> PortAddress:
        """An address under which your user's browser reaches a server in the sandbox."""

        async def opened(sandbox: AsyncSandbox) -> PortAddress:
            made = await sandbox.ports.preview(port, ttl=seconds)
            return PortAddress(url=made.url, path_url=made.path_url, expires_at=made.expires_at)

        return await self._workspaces.use(context, workspace, opened)


def named(snapshot: str) -> int | str:
    """A number of a snapshot as a number; everything else is a label."""
    return int(snapshot) if snapshot.isdecimal() and snapshot.isascii() else snapshot
