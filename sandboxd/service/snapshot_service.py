"""SnapshotService."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.config import Config
from sandboxd.errors import FileNotFound, NotAFile
from sandboxd.files import text_of
from sandboxd.observability import calls
from sandboxd.service import file_wire, page_tokens, session_wire, snapshot_wire, wire
from sandboxd.service.wire import Context
from sandboxd.sessions.lines import AutoSnapshot
from sandboxd.sessions.session import Session
from sandboxd.sessions.sessions import Sessions
from sandboxd.sessions.snapshots import SessionSnapshots
from sandboxd.snapshots.contract import Kind
from sandboxd_proto.v1 import session_pb2
from sandboxd_proto.v1 import snapshot_service_pb2 as pb
from sandboxd_proto.v1 import snapshot_service_pb2_grpc as pb_grpc


class SnapshotServicer(pb_grpc.SnapshotServiceServicer):
    def __init__(self, snapshots: SessionSnapshots, sessions: Sessions, config: Config) -> None:
        self._snapshots = snapshots
        self._sessions = sessions
        self._config = config

    async def CreateSnapshot(
        self, request: pb.CreateSnapshotRequest, context: Context
    ) -> pb.CreateSnapshotResponse:
        taken = await self._snapshots.create(
            request.session_id,
            label=snapshot_wire.label(request.label),
            consistency=snapshot_wire.consistency(request.consistency),
            incarnation=request.incarnation,
            request_id=snapshot_wire.request_id(request.request_id),
        )
        return pb.CreateSnapshotResponse(snapshot=snapshot_wire.snapshot(taken))

    async def ListSnapshots(
        self, request: pb.ListSnapshotsRequest, context: Context
    ) -> pb.ListSnapshotsResponse:
        size = wire.page_size(request.page_size)
        before = page_tokens.SNAPSHOTS.decode(request.page_token)
        session, line = await self._snapshots.list(request.session_id)
        rest = [one for one in reversed(line) if before is None or one.number < before]
        page = rest[:size]
        return pb.ListSnapshotsResponse(
            snapshots=map(snapshot_wire.snapshot, page),
            next_page_token=page_tokens.SNAPSHOTS.encode(
                page[-1].number if len(rest) > size else None
            ),
            line=snapshot_wire.line(
                line,
                self._snapshots.lines.settings.limits,
                AutoSnapshot(session.record.auto_snapshot),
                self._sessions.turns.paused_because(session.id),
            ),
        )

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, context: Context
    ) -> pb.GetSnapshotResponse:
        ref = snapshot_wire.ref(request.snapshot)
        found = await self._snapshots.get(request.session_id, ref)
        return pb.GetSnapshotResponse(snapshot=snapshot_wire.snapshot(found))

    async def DiffSnapshots(
        self, request: pb.DiffSnapshotsRequest, context: Context
    ) -> AsyncIterator[pb.DiffSnapshotsResponse]:
        before = snapshot_wire.ref(request.before, "before")
        after = snapshot_wire.optional_ref(request.after, "after")
        limits = snapshot_wire.diff_limits(request, self._config)
        found = await self._snapshots.diff(request.session_id, before, after, limits)
        for message in snapshot_wire.diff(found):
            yield message

    async def ReadSnapshotFile(
        self, request: pb.ReadSnapshotFileRequest, context: Context
    ) -> AsyncIterator[pb.ReadSnapshotFileResponse]:
        path = snapshot_wire.path(request, self._config)
        ref = snapshot_wire.ref(request.snapshot)
        line, snapshot, entry = await self._snapshots.find_file(request.session_id, ref, path)
        if entry is None:
            raise FileNotFound(text_of(path))
        if entry.kind is not Kind.FILE:
            raise NotAFile(text_of(path))
        yield pb.ReadSnapshotFileResponse(file=snapshot_wire.file(entry))
        async for chunk in self._snapshots.read_file(line, snapshot, path):
            yield snapshot_wire.file_chunk(chunk)

    async def RestoreSession(
        self, request: pb.RestoreSessionRequest, context: Context
    ) -> pb.RestoreSessionResponse:
        done = await self._snapshots.restore(
            request.session_id,
            snapshot_wire.ref(request.snapshot),
            incarnation=request.incarnation,
            request_id=snapshot_wire.request_id(request.request_id),
        )
        return pb.RestoreSessionResponse(
            session=self._describe(done.session),
            restored_from=snapshot_wire.snapshot(done.restored_from),
            before=snapshot_wire.snapshot(done.before) if done.before else None,
        )

    async def ForkSession(
        self, request: pb.ForkSessionRequest, context: Context
    ) -> pb.ForkSessionResponse:
        ref = snapshot_wire.optional_ref(request.snapshot, "snapshot")
        wanted = snapshot_wire.fork_request(request)
        snapshot, forks = await self._snapshots.fork(request.session_id, ref, wanted)
        return pb.ForkSessionResponse(
            forks=[
                snapshot_wire.fork(one, self._describe(one.session) if one.session else None)
                for one in forks
            ],
            snapshot=snapshot_wire.snapshot(snapshot),
        )

    async def ParkSession(
        self, request: pb.ParkSessionRequest, context: Context
    ) -> pb.ParkSessionResponse:
        session = await self._snapshots.park(request.session_id, incarnation=request.incarnation)
        return pb.ParkSessionResponse(session=self._describe(session))

    async def DeleteSnapshot(
        self, request: pb.DeleteSnapshotRequest, context: Context
    ) -> pb.DeleteSnapshotResponse:
        if not request.number:
            raise wire.missing("number")
        is_deleted = await self._snapshots.delete(request.session_id, request.number)
        return pb.DeleteSnapshotResponse(deleted=is_deleted)

    async def ExportSnapshot(
        self, request: pb.ExportSnapshotRequest, context: Context
    ) -> AsyncIterator[pb.ExportSnapshotResponse]:
        ref = snapshot_wire.ref(request.snapshot)
        snapshot, archive = await self._snapshots.export(request.session_id, ref)
        yield pb.ExportSnapshotResponse(snapshot=snapshot_wire.snapshot(snapshot))
        async for chunk in archive:
            yield snapshot_wire.archive_chunk(chunk)

    async def ImportSnapshot(
        self, requests: AsyncIterator[pb.ImportSnapshotRequest | memoryview], context: Context
    ) -> pb.ImportSnapshotResponse:
        header = (await file_wire.first_of(requests)).header
        calls.set_session(header.session_id)
        # The end of a stream whose caller disconnected must not look like the end of an archive.
        chunks = file_wire.unless_cancelled(file_wire.chunks(requests), context)
        made = await self._snapshots.import_archive(
            header.session_id,
            file_wire.whole(chunks),
            label=snapshot_wire.label(header.label),
            request_id=snapshot_wire.request_id(header.request_id),
        )
        return pb.ImportSnapshotResponse(snapshot=snapshot_wire.snapshot(made))

    async def VerifySnapshots(
        self, request: pb.VerifySnapshotsRequest, context: Context
    ) -> pb.VerifySnapshotsResponse:
        return snapshot_wire.verification(await self._snapshots.verify(request.session_id))

    def _describe(self, session: Session) -> session_pb2.Session:
        return session_wire.describe(session, self._config)
