"""Snapshots of a sandbox's workspace."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import IO

from sandboxd_client.arguments import checked
from sandboxd_client.cancellation import run_or_undo
from sandboxd_client.files import closed, local_target, removed, unfinished_beside
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.methods.snapshots import (
    CREATE_SNAPSHOT,
    DELETE_SNAPSHOT,
    DIFF_SNAPSHOTS,
    EXPORT_SNAPSHOT,
    GET_SNAPSHOT,
    IMPORT_SNAPSHOT,
    LIST_SNAPSHOTS,
    READ_SNAPSHOT_FILE,
    VERIFY_SNAPSHOTS,
)
from sandboxd_client.results import ProgressCallback
from sandboxd_client.session import SessionHold
from sandboxd_client.snapshot_results import (
    ConsistencyName,
    SnapshotChange,
    SnapshotCheck,
    SnapshotDiff,
    SnapshotInfo,
    SnapshotName,
    reference,
)
from sandboxd_client.transfers import Progress, Tries, chunks, until_through
from sandboxd_proto.v1 import snapshot_service_pb2 as pb

_CONSISTENCIES = {
    "whole_files": pb.SNAPSHOT_CONSISTENCY_WHOLE_FILES,
    "one_moment": pb.SNAPSHOT_CONSISTENCY_ONE_MOMENT,
}


@checked
class AsyncSnapshots:
    """Snapshots of a sandbox's workspace: names, content, permissions, times and links.

    A snapshot is named by its number; 0 is the newest one, "-1" the one before it, and so on. A
    label names it too, and `turn:ID` is the end of a turn, `before:ID` what was before it.

    Example:
        first = await sandbox.snapshots.create("clean")
        await sandbox.commands.run("echo draft > notes.txt")
        for change in (await sandbox.snapshots.diff(first)).changes:
            print(change.kind, change.path)
        await sandbox.rewind(snapshot="clean")
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    async def create(
        self, label: str = "", *, consistency: ConsistencyName = "whole_files"
    ) -> SnapshotInfo:
        """Take a snapshot of the workspace as it is.

        With `consistency="one_moment"`, running commands may be stopped for up to half a second.

        Example:
            print((await sandbox.snapshots.create("before the cleanup")).number)
        """
        request = pb.CreateSnapshotRequest(
            session_id=self._hold.id,
            label=label,
            consistency=_CONSISTENCIES[consistency],
            request_id=os.urandom(16).hex(),
        )
        connection = self._hold.connection
        done = await connection.call(CREATE_SNAPSHOT, request, timeout=connection.timeouts.transfer)
        return SnapshotInfo.of(done.snapshot)

    async def list(self) -> Sequence[SnapshotInfo]:
        """Snapshots of the session, newest first.

        Example:
            for snapshot in await sandbox.snapshots.list():
                print(snapshot.number, snapshot.cause, snapshot.files)
        """
        request = pb.ListSnapshotsRequest(session_id=self._hold.id, page_size=1000)
        found: list[SnapshotInfo] = []
        while True:
            page = await self._hold.connection.call(LIST_SNAPSHOTS, request)
            found += map(SnapshotInfo.of, page.snapshots)
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def get(self, snapshot: SnapshotName) -> SnapshotInfo:
        """One snapshot.

        Example:
            await sandbox.snapshots.create()
            print((await sandbox.snapshots.get(0)).created_at)
        """
        request = pb.GetSnapshotRequest(session_id=self._hold.id, snapshot=reference(snapshot))
        found = await self._hold.connection.call(GET_SNAPSHOT, request)
        return SnapshotInfo.of(found.snapshot)

    async def diff(
        self,
        before: SnapshotName,
        after: SnapshotName | None = None,
        *,
        with_text: bool = False,
        path: str = "",
    ) -> SnapshotDiff:
        """What differs between two snapshots, or between one and the present.

        `path` is where to look: a file, or a directory and what is below it.

        Example:
            before = await sandbox.snapshots.create()
            await sandbox.files.write("a.txt", "hello")
            for change in (await sandbox.snapshots.diff(before, with_text=True)).changes:
                print(change.kind, change.path, change.unified_diff)
        """
        request = pb.DiffSnapshotsRequest(
            session_id=self._hold.id,
            before=reference(before),
            after=reference(after) if after is not None else None,
            with_text=with_text,
            path_prefix=path,
        )
        connection = self._hold.connection
        found: list[SnapshotChange] = []
        summary = pb.DiffSummary()
        responses = connection.stream(DIFF_SNAPSHOTS, request, timeout=connection.timeouts.transfer)
        async with aclosing(responses):
            async for response in responses:
                found += map(SnapshotChange.of, response.changes)
                if response.HasField("summary"):
                    summary = response.summary
        return SnapshotDiff(
            changes=found,
            added=summary.added,
            changed=summary.changed,
            removed=summary.removed,
            moved=summary.moved,
            is_cut=summary.cut,
        )

    async def read(self, snapshot: SnapshotName, path: str | bytes) -> bytes:
        """The content of a file of a snapshot.

        Example:
            await sandbox.files.write("a.txt", "old")
            old = await sandbox.snapshots.create()
            await sandbox.files.write("a.txt", "new")
            print(await sandbox.snapshots.read(old, "a.txt"))
        """
        request = pb.ReadSnapshotFileRequest(session_id=self._hold.id, snapshot=reference(snapshot))
        if isinstance(path, bytes):
            request.path_bytes = path
        else:
            request.path = path
        content = io.BytesIO()
        await self._receive(READ_SNAPSHOT_FILE, request, content, Progress(None))
        return content.getvalue()

    async def delete(self, number: int) -> bool:
        """Delete a snapshot; returns False if it was deleted before. Others stay complete.

        Example:
            old = await sandbox.snapshots.create()
            await sandbox.snapshots.delete(old.number)
        """
        request = pb.DeleteSnapshotRequest(session_id=self._hold.id, number=number)
        done = await self._hold.connection.call(DELETE_SNAPSHOT, request)
        return done.deleted

    async def export_to(
        self,
        snapshot: SnapshotName,
        local_path: str | os.PathLike[str],
        *,
        on_progress: ProgressCallback | None = None,
    ) -> str:
        """Write the files of a snapshot to a tar archive on this machine; returns its path.

        Example:
            await sandbox.snapshots.create()
            print(await sandbox.snapshots.export_to(0, "workspace.tar"))
        """
        target = await asyncio.to_thread(local_target, "snapshot.tar", local_path)
        request = pb.ExportSnapshotRequest(session_id=self._hold.id, snapshot=reference(snapshot))
        making = asyncio.to_thread(unfinished_beside, target)
        with await run_or_undo(making, removed) as content:
            try:
                await self._receive(EXPORT_SNAPSHOT, request, content, Progress(on_progress))
                content.flush()
                os.replace(content.name, target)
            except BaseException:
                os.unlink(content.name)
                raise
        return target

    async def import_from(
        self,
        local_path: str | os.PathLike[str],
        label: str = "",
        *,
        on_progress: ProgressCallback | None = None,
    ) -> SnapshotInfo:
        """Make a snapshot of a tar archive on this machine; the workspace does not change.

        Example:
            await sandbox.snapshots.create()
            await sandbox.snapshots.export_to(0, "workspace.tar")
            print((await sandbox.snapshots.import_from("workspace.tar")).number)
        """
        header = pb.ImportSnapshotHeader(
            session_id=self._hold.id, label=label, request_id=os.urandom(16).hex()
        )
        progress = Progress(on_progress)
        opening = asyncio.to_thread(open, local_path, "rb")
        with await run_or_undo(opening, closed) as source:
            return await until_through(
                self._hold.connection, lambda tries: self._send(header, source, progress, tries)
            )

    async def _send(
        self, header: pb.ImportSnapshotHeader, source: IO[bytes], progress: Progress, tries: Tries
    ) -> SnapshotInfo:
        source.seek(0)

        async def parts() -> AsyncGenerator[pb.ImportSnapshotRequest, None]:
            yield pb.ImportSnapshotRequest(header=header)
            sent = 0
            async for chunk in chunks(source):
                yield pb.ImportSnapshotRequest(chunk=chunk)
                sent += len(chunk)
                await progress.reached(sent)

        async with aclosing(parts()) as requests:
            done = await self._hold.connection.send(
                IMPORT_SNAPSHOT,
                requests,
                timeout=tries.seconds_left,
                earlier_tries=tries.before,
                session_id=self._hold.id,
            )
        return SnapshotInfo.of(done.snapshot)

    async def verify(self) -> SnapshotCheck:
        """Check that everything that the session's snapshots need is there; for admins.

        Example:
            print((await sandbox.snapshots.verify()).problem_count)
        """
        connection = self._hold.connection
        found = await connection.call(
            VERIFY_SNAPSHOTS,
            pb.VerifySnapshotsRequest(session_id=self._hold.id),
            timeout=connection.timeouts.transfer,
        )
        return SnapshotCheck.of(found)

    async def _receive(
        self,
        method: Method[Request, Response],
        request: Request,
        target: IO[bytes],
        progress: Progress,
    ) -> None:
        """Write what is streamed; each attempt starts anew. A snapshot does not change."""
        connection = self._hold.connection

        async def once(tries: Tries) -> None:
            target.seek(0)
            target.truncate()
            received = 0
            responses = connection.stream(
                method, request, timeout=tries.seconds_left, earlier_tries=tries.before
            )
            async with aclosing(responses):
                async for response in responses:
                    chunk: bytes = getattr(response, "chunk", b"")
                    target.write(chunk)
                    received += len(chunk)
                    await progress.reached(received)

        await until_through(connection, once)
