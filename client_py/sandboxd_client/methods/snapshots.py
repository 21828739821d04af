"""The calls of SnapshotService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import snapshot_service_pb2 as pb

SERVICE = "SnapshotService"

# Those that change something only with a request id, which this package always sets.
CREATE_SNAPSHOT = Method(
    SERVICE,
    "CreateSnapshot",
    pb.CreateSnapshotRequest,
    pb.CreateSnapshotResponse,
    True,
)
LIST_SNAPSHOTS = Method(
    SERVICE,
    "ListSnapshots",
    pb.ListSnapshotsRequest,
    pb.ListSnapshotsResponse,
    True,
)
GET_SNAPSHOT = Method(
    SERVICE,
    "GetSnapshot",
    pb.GetSnapshotRequest,
    pb.GetSnapshotResponse,
    True,
)
DIFF_SNAPSHOTS = Method(
    SERVICE,
    "DiffSnapshots",
    pb.DiffSnapshotsRequest,
    pb.DiffSnapshotsResponse,
)
READ_SNAPSHOT_FILE = Method(
    SERVICE,
    "ReadSnapshotFile",
    pb.ReadSnapshotFileRequest,
    pb.ReadSnapshotFileResponse,
)
RESTORE_SESSION = Method(
    SERVICE,
    "RestoreSession",
    pb.RestoreSessionRequest,
    pb.RestoreSessionResponse,
    True,
)
FORK_SESSION = Method(
    SERVICE,
    "ForkSession",
    pb.ForkSessionRequest,
    pb.ForkSessionResponse,
    True,
)
PARK_SESSION = Method(
    SERVICE,
    "ParkSession",
    pb.ParkSessionRequest,
    pb.ParkSessionResponse,
    True,
)
DELETE_SNAPSHOT = Method(
    SERVICE,
    "DeleteSnapshot",
    pb.DeleteSnapshotRequest,
    pb.DeleteSnapshotResponse,
    True,
)
EXPORT_SNAPSHOT = Method(
    SERVICE,
    "ExportSnapshot",
    pb.ExportSnapshotRequest,
    pb.ExportSnapshotResponse,
)
IMPORT_SNAPSHOT = Method(
    SERVICE,
    "ImportSnapshot",
    pb.ImportSnapshotRequest,
    pb.ImportSnapshotResponse,
)
VERIFY_SNAPSHOTS = Method(
    SERVICE,
    "VerifySnapshots",
    pb.VerifySnapshotsRequest,
    pb.VerifySnapshotsResponse,
    True,
)
