"""ClusterService."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

from sandboxd.cluster.contract import OwnershipUnknown, PlaceState, Worker, WorkerState
from sandboxd.errors import OwnershipNotKnown, SessionNotFound
from sandboxd.service import wire
from sandboxd.service.wire import Context
from sandboxd.sessions.ownership import committed_snapshot
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import cluster_service_pb2 as pb
from sandboxd_proto.v1 import cluster_service_pb2_grpc as pb_grpc

DRAIN_SECONDS = 300.0
MAX_DRAIN_SECONDS = 86400.0
_STATES = {
    WorkerState.READY: pb.WORKER_STATE_READY,
    WorkerState.DRAINING: pb.WORKER_STATE_DRAINING,
    WorkerState.LOST: pb.WORKER_STATE_LOST,
}


class ClusterServicer(pb_grpc.ClusterServiceServicer):
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._directory = sessions.ownership.directory

    async def ListWorkers(
        self, request: pb.ListWorkersRequest, context: Context
    ) -> pb.ListWorkersResponse:
        try:
            workers = await self._directory.workers()
        except OwnershipUnknown as error:
            raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
        return pb.ListWorkersResponse(
            workers=[_worker(one) for one in workers], answered_by=self._directory.worker_id
        )

    async def FindSession(
        self, request: pb.FindSessionRequest, context: Context
    ) -> pb.FindSessionResponse:
        try:
            place = await self._directory.find(request.session_id)
        except OwnershipUnknown as error:
            raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
        if place is None and self._sessions.has(request.session_id):
            return pb.FindSessionResponse(worker=self._directory.worker_id)  # of a daemon alone
        if place is None or place.state is PlaceState.CLOSED:
            raise SessionNotFound(request.session_id)
        return pb.FindSessionResponse(
            worker=place.worker,
            address=place.address,
            epoch=place.epoch,
            parked=place.state is PlaceState.PARKED,
            committed_snapshot=committed_snapshot(place.seq),
        )

    async def DrainWorker(
        self, request: pb.DrainWorkerRequest, context: Context
    ) -> AsyncIterator[pb.DrainWorkerResponse]:
        seconds = wire.seconds(request, "timeout", low=0, high=MAX_DRAIN_SECONDS)
        state = WorkerState.READY if request.cancel else WorkerState.DRAINING
        try:
            await self._directory.set_state(state)
        except OwnershipUnknown as error:
            raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
        if request.cancel:
            self._sessions.stop_moving_away()
            yield pb.DrainWorkerResponse()
            return
        async for progress in self._sessions.move_away(seconds or DRAIN_SECONDS):
            yield pb.DrainWorkerResponse(
                moved=progress.moved,
                left=progress.left,
                failed=progress.failed,
                running=progress.running,
            )


def _worker(worker: Worker) -> pb.Worker:
    is_alone = math.isinf(worker.lease_seconds)
    return pb.Worker(
        id=worker.id,
        address=worker.address,
        generation=worker.generation,
        state=_STATES[worker.state],
        lease=None if is_alone else wire.duration(max(0.0, worker.lease_seconds)),
        version=worker.version,
        warm=worker.load.warm,
        used=worker.load.used,
        capacity=worker.load.capacity,
        environments=sorted(worker.load.environments),
    )
