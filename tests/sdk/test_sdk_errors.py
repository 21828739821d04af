"""Errors of the SDK are the exact inverse of what the daemon sends."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

import sandboxd_client
from sandboxd import errors as daemon_errors
from sandboxd.errors import InvalidRequest, PoolExhausted, SessionExpired
from sandboxd.service.transport.status import internal_status, status_code, to_status
from sandboxd_client.errors import (
    BY_REASON,
    CallTimeoutError,
    ConnectionLostError,
    InternalError,
    InvalidRequestError,
    NotAuthorizedError,
    NotSupportedError,
    PoolExhaustedError,
    SandboxError,
    SessionExpiredError,
    UnavailableError,
)
from sandboxd_client.status import TRAILER, error_of
from sandboxd_proto.v1 import call_status_pb2
from sandboxd_proto.v1.error_reason_pb2 import ErrorReason


def decoded(status: grpc.Status) -> SandboxError:
    packed = dict(status.trailing_metadata or ())[TRAILER]
    assert isinstance(packed, bytes)
    return error_of(status.code, status.details, packed)


def test_every_reason_has_its_class_and_no_other() -> None:
    """A reason that the protos gain is noticed here."""
    reasons = {name for name in ErrorReason.keys() if name != "ERROR_REASON_UNSPECIFIED"}  # noqa: SIM118

    assert set(BY_REASON) == reasons
    assert len(set(BY_REASON.values())) == len(reasons)


def test_every_class_is_exported() -> None:
    """What can be raised can be caught by its name."""

    def tree(kind: type[SandboxError]) -> set[type[SandboxError]]:
        return {kind}.union(*map(tree, kind.__subclasses__()))

    missing = {one.__name__ for one in tree(SandboxError)} - set(sandboxd_client.__all__)
    assert missing == set()


def test_what_the_daemon_raises_comes_out_with_all_that_it_says() -> None:
    """Reason, message, metadata and when to try again."""
    expired = decoded(to_status(SessionExpired("ses_1", "was idle")))
    assert isinstance(expired, SessionExpiredError)
    assert (expired.reason, expired.metadata) == ("SESSION_EXPIRED", {"sessionId": "ses_1"})
    assert str(expired).startswith("Session ses_1 was idle")
    assert expired.retry_after_seconds is None

    full = decoded(to_status(PoolExhausted("all in use", retry_after_seconds=2.5)))
    assert isinstance(full, PoolExhaustedError)
    assert full.retry_after_seconds == 2.5

    invalid = decoded(to_status(InvalidRequest("timeout", "it is too long")))
    assert isinstance(invalid, InvalidRequestError)
    assert isinstance(invalid, ValueError)

    internal = decoded(internal_status("abc"))
    assert isinstance(internal, InternalError)
    assert internal.metadata == {"errorId": "abc"}


def test_reason_of_a_newer_daemon_is_caught_by_its_category() -> None:
    """A client that does not know a reason still tells it, under the category of its code."""

    class Unheard(daemon_errors.Unavailable):
        reason = "UNHEARD_OF"

    error = decoded(to_status(Unheard("later")))

    assert type(error) is UnavailableError
    assert error.reason == "UNHEARD_OF"
    assert status_code(Unheard) == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "kind", "builtin"),
    [
        (grpc.StatusCode.UNAVAILABLE, ConnectionLostError, ConnectionError),
        (grpc.StatusCode.CANCELLED, ConnectionLostError, ConnectionError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, CallTimeoutError, TimeoutError),
        (grpc.StatusCode.UNAUTHENTICATED, NotAuthorizedError, PermissionError),
        (grpc.StatusCode.UNIMPLEMENTED, NotSupportedError, SandboxError),
    ],
)
def test_status_of_grpc_itself_has_a_class(
    code: grpc.StatusCode, kind: type[SandboxError], builtin: type[Exception]
) -> None:
    """What no daemon said is told as what it is, also to those who catch builtins."""
    for packed in (None, b"not a status"):
        error = error_of(code, "words of gRPC", packed)
        assert type(error) is kind
        assert isinstance(error, builtin)
        assert str(error) == "words of gRPC"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("CallErrorInfo", "ErrorInfo"), ("CallRetryInfo", "RetryInfo"), ("CallStatus", "Status")],
)
def test_details_have_the_fields_of_google_rpc(ours: str, theirs: str) -> None:
    """Our own definitions read the same bytes: names, numbers and types are equal."""
    from google.rpc import status_pb2

    module = status_pb2 if theirs == "Status" else error_details_pb2
    mine = call_status_pb2.DESCRIPTOR.message_types_by_name[ours]
    other = module.DESCRIPTOR.message_types_by_name[theirs]

    def fields(message: object) -> dict[str, tuple[int, int]]:
        return {one.name: (one.number, one.type) for one in message.fields}  # type: ignore[attr-defined]

    assert fields(mine) == fields(other)
