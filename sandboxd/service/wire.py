"""Checks and conversions that the messages of several services need."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, TypeAlias

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from sandboxd.config import CONFIGURED_NAME, CONFIGURED_NAME_RULE
from sandboxd.errors import InvalidRequest, quoted

# Quoted: the class is generic for the type checker only.
Context: TypeAlias = "aio.ServicerContext[Any, Any]"

DEFAULT_PAGE = 100
MAX_PAGE = 1000


# --- requests ---


def missing(field: str) -> InvalidRequest:
    return InvalidRequest(field, "required")


def configured_name(field: str, value: str) -> str:
    """The name of something in the configuration."""
    if not value:
        raise missing(field)
    if not CONFIGURED_NAME.fullmatch(value):
        raise InvalidRequest(
            field, f"{quoted(value)} is not a valid name; use {CONFIGURED_NAME_RULE}"
        )
    return value


def mapping(values: Mapping[str, str], limit: int) -> dict[str, str]:
    """Of what has more than `limit`, which is refused later, only one more is looked at."""
    return dict(islice(values.items(), limit + 1))


def bounded(field: str, value: int, *, default: int, limit: int) -> int:
    """A number up to a limit; the default in place of 0."""
    if value > limit:
        raise InvalidRequest(field, f"must be at most {limit}")
    return value or default


def page_size(value: int, *, limit: int = MAX_PAGE) -> int:
    return bounded("page_size", value, default=DEFAULT_PAGE, limit=limit)


def seconds(message: Message, field: str, *, low: float, high: float) -> float | None:
    """A Duration field in seconds; None if it is absent."""
    if not message.HasField(field):
        return None
    duration: Duration = getattr(message, field)
    value = duration.seconds + duration.nanos / 1e9
    if not low <= value <= high:
        raise InvalidRequest(field, f"must be from {low:g} to {high:g} seconds, not {value:g}")
    return value


def check_enum(field: str, value: int, enum: EnumDescriptor, *, noun: str) -> None:
    """InvalidRequest unless the API declares the value, if only as unspecified."""
    if value in enum.values_by_number:
        return
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    names = [declared.name.removeprefix(prefix) for declared in enum.values if declared.number]
    raise InvalidRequest(field, f"unknown {noun}; valid values are {', '.join(names)}")


# --- responses ---


def duration(value: float) -> Duration:
    seconds, nanos = split(value)
    return Duration(seconds=seconds, nanos=nanos)


def timestamp(value: float) -> Timestamp:
    seconds, nanos = split(value)
    return Timestamp(seconds=seconds, nanos=nanos)


def moment(timestamp: Timestamp) -> float:
    """The time that `timestamp` was made of, exactly: it has fewer digits than nanoseconds have."""
    return timestamp.seconds + timestamp.nanos / 1e9


def split(value: float) -> tuple[int, int]:
    """Whole seconds and nanoseconds."""
    whole = int(value)
    return whole, int((value - whole) * 1e9)
