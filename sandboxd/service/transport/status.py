"""Errors on the wire: one table from categories to codes, with details as in google.rpc."""

from __future__ import annotations

import math

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from sandboxd.errors import (
    AlreadyExists,
    Exhausted,
    InvalidRequest,
    Lost,
    NotFound,
    NotPermitted,
    SandboxdError,
    Unauthenticated,
    Unavailable,
    WrongState,
)
from sandboxd_proto.v1.error_reason_pb2 import ErrorReason

DOMAIN = "sandboxd"
_INTERNAL = ErrorReason.Name(ErrorReason.INTERNAL)

STATUS_CODES: dict[type[SandboxdError], grpc.StatusCode] = {
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    WrongState: grpc.StatusCode.FAILED_PRECONDITION,
    NotPermitted: grpc.StatusCode.PERMISSION_DENIED,
    Exhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    Lost: grpc.StatusCode.ABORTED,
}


def status_code(error_type: type[SandboxdError]) -> grpc.StatusCode:
    """The code of the nearest category."""
    return next(STATUS_CODES[base] for base in error_type.__mro__ if base in STATUS_CODES)


def to_status(error: SandboxdError) -> rpc_status._Status:
    """An error as gRPC sends it: code, message, ErrorInfo, and RetryInfo or BadRequest if any."""
    details: list[any_pb2.Any] = [_info(error.reason, error.metadata)]
    if error.retry_after_seconds is not None:
        seconds = error.retry_after_seconds
        delay = duration_pb2.Duration(
            seconds=math.floor(seconds), nanos=int(seconds % 1 * 1_000_000_000)
        )
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    if isinstance(error, InvalidRequest):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.problem
        )
        details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
    return _status(status_code(type(error)), error.message, details)


def internal_status(error_id: str) -> rpc_status._Status:
    """The status of an internal error, whose text stays in the log."""
    message = f"sandboxd failed; its log has the details under error id {error_id}."
    return _status(grpc.StatusCode.INTERNAL, message, [_info(_INTERNAL, {"errorId": error_id})])


def _info(reason: str, metadata: dict[str, str]) -> any_pb2.Any:
    return _packed(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata))


def _packed(message: object) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)  # type: ignore[arg-type]  # googleapis ships no stubs for its messages
    return packed


def _status(code: grpc.StatusCode, message: str, details: list[any_pb2.Any]) -> rpc_status._Status:
    return rpc_status.to_status(
        status_pb2.Status(code=code.value[0], message=message, details=details)
    )
