"""DoorService."""

from __future__ import annotations

from sandboxd.service import door_wire
from sandboxd.service.wire import Context
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import door_service_pb2 as pb
from sandboxd_proto.v1 import door_service_pb2_grpc as pb_grpc


class DoorServicer(pb_grpc.DoorServiceServicer):
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def GetEgress(
        self, request: pb.GetEgressRequest, context: Context
    ) -> pb.GetEgressResponse:
        await self._sessions.wait_until_back(request.session_id)
        status = self._sessions.egress(request.session_id)
        return pb.GetEgressResponse(egress=door_wire.egress(status))

    async def SetEgress(
        self, request: pb.SetEgressRequest, context: Context
    ) -> pb.SetEgressResponse:
        rules = door_wire.rules(request.rules) if request.HasField("rules") else None
        await self._sessions.set_egress(request.session_id, rules, incarnation=request.incarnation)
        status = self._sessions.egress(request.session_id)
        return pb.SetEgressResponse(egress=door_wire.egress(status))

    async def ListDoors(
        self, request: pb.ListDoorsRequest, context: Context
    ) -> pb.ListDoorsResponse:
        await self._sessions.wait_until_back(request.session_id)
        sandbox = self._sessions.get(request.session_id).sandbox
        return pb.ListDoorsResponse(doors=door_wire.doors(sandbox) if sandbox else ())
