"""Every error has its reason and its status, and the protos know them all."""

from __future__ import annotations

import re
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pb2 import EnumDescriptorProto
from google.rpc import error_details_pb2, status_pb2

from sandboxd import errors
from sandboxd.errors import (
    InvalidRequest,
    PoolExhausted,
    SandboxdError,
    SandboxLost,
    SessionNotFound,
)
from sandboxd.service.transport.status import STATUS_CODES, internal_status, status_code, to_status
from sandboxd_proto.v1.error_reason_pb2 import ErrorReason


def descendants(kind: type[SandboxdError]) -> Iterator[type[SandboxdError]]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


EVERY = sorted(set(descendants(SandboxdError)), key=lambda kind: kind.__name__)
WITH_REASON = [kind for kind in EVERY if "reason" in vars(kind)]


def details(error: SandboxdError) -> dict[str, object]:
    """The details of an error's status, by the name of their kind."""
    ((_, packed),) = to_status(error).trailing_metadata
    found = {}
    for detail in status_pb2.Status.FromString(packed).details:
        kind = getattr(error_details_pb2, detail.type_url.rpartition(".")[2])
        found[kind.__name__] = message = kind()
        detail.Unpack(message)
    return found


@pytest.mark.parametrize("kind", [kind for kind in EVERY if not kind.__subclasses__()])
def test_leaf_has_a_reason_of_its_own(kind: type[SandboxdError]) -> None:
    """No error goes out under another's name."""
    assert kind in WITH_REASON
    assert [one for one in WITH_REASON if one.reason == kind.reason] == [kind]


@pytest.mark.parametrize("kind", EVERY)
def test_error_has_a_status_that_is_not_internal(kind: type[SandboxdError]) -> None:
    """What a caller is told about is never a fault of ours."""
    assert status_code(kind) not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)


def test_reasons_are_those_of_the_proto() -> None:
    """The enum of the API lists exactly what is sent."""
    sent = {kind.reason for kind in WITH_REASON} | {"INTERNAL"}

    assert sent == set(ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}


def test_numbers_of_reasons_have_no_gap_that_is_not_reserved() -> None:
    """A number that was skipped is never given to a reason later."""
    declared = EnumDescriptorProto()
    ErrorReason.DESCRIPTOR.CopyToProto(declared)
    used = {value.number for value in declared.value}
    reserved = {n for part in declared.reserved_range for n in range(part.start, part.end + 1)}

    assert used | reserved == set(range(max(used) + 1))
    assert not used & reserved


def test_categories_have_distinct_codes() -> None:
    """A client can tell the categories by code alone."""
    assert len(set(STATUS_CODES.values())) == len(STATUS_CODES)


def test_tree_in_the_docstring_names_every_error() -> None:
    """The drawing is the truth."""
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or ""))

    assert drawn == {kind.__name__ for kind in EVERY}


def test_status_carries_reason_domain_and_metadata() -> None:
    """ErrorInfo says which error it is, and about what."""
    info = details(SessionNotFound("ses_1"))["ErrorInfo"]

    assert isinstance(info, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("SESSION_NOT_FOUND", "sandboxd")
    assert dict(info.metadata) == {"sessionId": "ses_1"}
    assert all(re.fullmatch("[a-z][a-zA-Z0-9]*", key) for key in info.metadata)


def test_status_of_a_bad_field_names_it() -> None:
    """BadRequest says which field is wrong and how."""
    bad = details(InvalidRequest("env", "it is too odd"))["BadRequest"]

    assert isinstance(bad, error_details_pb2.BadRequest)
    (violation,) = bad.field_violations
    assert (violation.field, violation.description) == ("env", "it is too odd")


@pytest.mark.parametrize(
    ("seconds", "expected"), [(5.0, (5, 0)), (0.25, (0, 250_000_000)), (1.5, (1, 500_000_000))]
)
def test_status_says_when_to_try_again(seconds: float, expected: tuple[int, int]) -> None:
    """RetryInfo has the delay to the fraction of a second."""
    retry = details(PoolExhausted("Full.", retry_after_seconds=seconds))["RetryInfo"]

    assert isinstance(retry, error_details_pb2.RetryInfo)
    assert (retry.retry_delay.seconds, retry.retry_delay.nanos) == expected


def test_status_without_a_delay_promises_none() -> None:
    """What does not pass by itself has no RetryInfo."""
    assert set(details(SandboxLost("it died"))) == {"ErrorInfo"}


def test_status_of_a_fault_has_an_id_and_no_text() -> None:
    """The id leads to the log; nothing else is said."""
    status = internal_status("abc123")

    assert status.code == grpc.StatusCode.INTERNAL
    assert "abc123" in status.details
