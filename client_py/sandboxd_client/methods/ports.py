"""The calls of PortService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import port_service_pb2 as pb

SERVICE = "PortService"

LIST_PORTS = Method(SERVICE, "ListPorts", pb.ListPortsRequest, pb.ListPortsResponse, True)
FORWARD_PORT = Method(SERVICE, "ForwardPort", pb.ForwardPortRequest, pb.ForwardPortResponse)
CREATE_PREVIEW = Method(SERVICE, "CreatePreview", pb.CreatePreviewRequest, pb.CreatePreviewResponse)
DELETE_PREVIEWS = Method(
    SERVICE, "DeletePreviews", pb.DeletePreviewsRequest, pb.DeletePreviewsResponse, True
)
