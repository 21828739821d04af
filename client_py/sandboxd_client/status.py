"""Converts the status of a failed call to an exception: the inverse of the daemon's mapping."""

from __future__ import annotations

import grpc
from google.protobuf.message import DecodeError

from sandboxd_client.errors import (
    BY_REASON,
    CallTimeoutError,
    ConnectionLostError,
    ExhaustedError,
    InternalError,
    InvalidRequestError,
    NotAuthorizedError,
    NotSupportedError,
    SandboxError,
    UnavailableError,
)
from sandboxd_proto.v1.call_status_pb2 import CallErrorInfo, CallRetryInfo, CallStatus

TRAILER = "grpc-status-details-bin"
DOMAIN = "sandboxd"

_BY_CODE: dict[grpc.StatusCode, type[SandboxError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.DEADLINE_EXCEEDED: CallTimeoutError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ExhaustedError,
    grpc.StatusCode.UNAUTHENTICATED: NotAuthorizedError,
    grpc.StatusCode.PERMISSION_DENIED: NotAuthorizedError,
    grpc.StatusCode.UNIMPLEMENTED: NotSupportedError,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNKNOWN: InternalError,
}


def error_of(code: grpc.StatusCode, message: str, packed: bytes | None) -> SandboxError:
    """The exception of a status; `packed` is the trailer with its details."""
    info, retry = _details(packed)
    if info is None:
        # Not from a daemon: gRPC's own status about the connection.
        is_lost = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        kind = ConnectionLostError if is_lost else _BY_CODE.get(code, SandboxError)
        return kind(message or code.name.lower().replace("_", " "))
    kind = BY_REASON.get(info.reason) or _of_newer_daemon(code)
    error = kind(message, metadata=info.metadata)
    error.reason = info.reason
    if retry is not None:
        delay = retry.retry_delay
        error.retry_after_seconds = delay.seconds + delay.nanos / 1e9
    return error


def _of_newer_daemon(code: grpc.StatusCode) -> type[SandboxError]:
    if code == grpc.StatusCode.UNAVAILABLE:
        return UnavailableError
    return _BY_CODE.get(code, SandboxError)


def _details(packed: bytes | None) -> tuple[CallErrorInfo | None, CallRetryInfo | None]:
    info: CallErrorInfo | None = None
    retry: CallRetryInfo | None = None
    if packed is None:
        return info, retry
    try:
        for detail in CallStatus.FromString(packed).details:
            kind = detail.type_url.rpartition("/")[2]
            if kind == "google.rpc.ErrorInfo":
                found = CallErrorInfo.FromString(detail.value)
                info = found if found.domain == DOMAIN else info
            elif kind == "google.rpc.RetryInfo":
                retry = CallRetryInfo.FromString(detail.value)
    except DecodeError:
        return None, None  # not from sandboxd
    return info, retry
