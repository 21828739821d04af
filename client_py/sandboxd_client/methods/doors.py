"""The calls of DoorService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import door_service_pb2 as pb

SERVICE = "DoorService"

GET_EGRESS = Method(SERVICE, "GetEgress", pb.GetEgressRequest, pb.GetEgressResponse, True)
SET_EGRESS = Method(SERVICE, "SetEgress", pb.SetEgressRequest, pb.SetEgressResponse, True)
LIST_DOORS = Method(SERVICE, "ListDoors", pb.ListDoorsRequest, pb.ListDoorsResponse, True)
