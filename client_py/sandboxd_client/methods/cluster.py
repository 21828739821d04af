"""The calls of ClusterService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import cluster_service_pb2 as pb

SERVICE = "ClusterService"

LIST_WORKERS = Method(SERVICE, "ListWorkers", pb.ListWorkersRequest, pb.ListWorkersResponse, True)
FIND_SESSION = Method(SERVICE, "FindSession", pb.FindSessionRequest, pb.FindSessionResponse, True)
DRAIN_WORKER = Method(SERVICE, "DrainWorker", pb.DrainWorkerRequest, pb.DrainWorkerResponse)
