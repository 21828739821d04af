"""The calls of AdminService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import admin_service_pb2 as pb

SERVICE = "AdminService"

GET_STATUS = Method(SERVICE, "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse, True)
GET_STATISTICS = Method(
    SERVICE, "GetStatistics", pb.GetStatisticsRequest, pb.GetStatisticsResponse, True
)
