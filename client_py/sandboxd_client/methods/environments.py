"""The calls of EnvironmentService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import environment_service_pb2 as pb

SERVICE = "EnvironmentService"

LIST_ENVIRONMENTS = Method(
    SERVICE,
    "ListEnvironments",
    pb.ListEnvironmentsRequest,
    pb.ListEnvironmentsResponse,
    True,
)
GET_ENVIRONMENT = Method(
    SERVICE,
    "GetEnvironment",
    pb.GetEnvironmentRequest,
    pb.GetEnvironmentResponse,
    True,
)
BUILD_ENVIRONMENT = Method(
    SERVICE,
    "BuildEnvironment",
    pb.BuildEnvironmentRequest,
    pb.BuildEnvironmentResponse,
)
DELETE_ENVIRONMENT = Method(
    SERVICE,
    "DeleteEnvironment",
    pb.DeleteEnvironmentRequest,
    pb.DeleteEnvironmentResponse,
)
ENSURE_PACKAGES = Method(
    SERVICE,
    "EnsurePackages",
    pb.EnsurePackagesRequest,
    pb.EnsurePackagesResponse,
)
