"""Checks that every service shares."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import EnumDescriptor

from sandboxd.errors import InvalidRequest
from sandboxd.service.wire import check_enum
from sandboxd_proto.v1 import exec_service_pb2, file_service_pb2, session_pb2

STATES = session_pb2.SessionState.DESCRIPTOR


@pytest.mark.parametrize("value", session_pb2.SessionState.values())
def test_declared_value_is_accepted(value: int) -> None:
    """Unspecified among them: it means the default."""
    check_enum("state", value, STATES, noun="state")


@pytest.mark.parametrize("value", [-1, max(session_pb2.SessionState.values()) + 1, 77, 2**31 - 1])
def test_unknown_value_is_answered_with_the_valid_ones(value: int) -> None:
    """A caller learns what to send instead, without the prefix that all values share."""
    with pytest.raises(InvalidRequest) as caught:
        check_enum("state", value, STATES, noun="state")

    assert caught.value.message == (
        "state: unknown state; valid values are ACTIVE, EXPIRED, LOST, CLOSED, PARKED, STOPPED"
    )


@pytest.mark.parametrize(
    ("enum", "names"),
    [
        (exec_service_pb2.OnDisconnect.DESCRIPTOR, "KILL, KEEP_RUNNING"),
        (exec_service_pb2.SignalTarget.DESCRIPTOR, "GROUP, LEADER"),
        (file_service_pb2.OverwritePolicy.DESCRIPTOR, "REPLACE, FAIL"),
    ],
)
def test_valid_values_come_from_the_api(enum: EnumDescriptor, names: str) -> None:
    """Whatever the enumeration, its declared names are listed in their order."""
    with pytest.raises(InvalidRequest, match=f"valid values are {names}$"):
        check_enum("field", 99, enum, noun="value")
