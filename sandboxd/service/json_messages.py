"""Messages of the API as JSON, as protobuf defines it, for callers that speak no gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, error_details_pb2, status_pb2

from sandboxd.errors import InvalidRequest, SandboxdError
from sandboxd.service.in_process import TRAILER, CallRefused
from sandboxd.service.transport.status import to_status
from sandboxd_proto.v1 import (  # noqa: F401  # so that their methods are found by name
    admin_service_pb2,
    cluster_service_pb2,
    code_service_pb2,
    data_service_pb2,
    door_service_pb2,
    environment_service_pb2,
    exec_pb2,
    exec_service_pb2,
    file_service_pb2,
    port_service_pb2,
    project_service_pb2,
    session_service_pb2,
    snapshot_service_pb2,
)

PACKAGE = "sandboxd.v1"
MAX_DEPTH = 32
_HTTP_STATUSES = {1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 409, 10: 409}
_HTTP_STATUSES |= {11: 400, 12: 501, 14: 503, 16: 401}
_TRUTHS = {"true": True, "1": True, "": True, "false": False, "0": False}


class Method(NamedTuple):
    """A method of the API, by the types of its messages."""

    path: str
    """As gRPC has it: /sandboxd.v1.Service/Method."""
    request: Any
    response: Any

    @classmethod
    @cache
    def named(cls, name: str) -> Method:
        """`name`: Service.Method."""
        found = descriptor_pool.Default().FindMethodByName(f"{PACKAGE}.{name}")
        service, _, method = name.partition(".")
        return cls(
            f"/{PACKAGE}.{service}/{method}",
            GetMessageClass(found.input_type),
            GetMessageClass(found.output_type),
        )

    def packed(self, fields: dict[str, Any]) -> bytes:
        """A request; CallRefused if these are not its fields."""
        try:
            message = json_format.ParseDict(fields, self.request(), max_recursion_depth=MAX_DEPTH)
        # SystemError: what protobuf makes of a name that is not Unicode.
        except (json_format.ParseError, UnicodeError, RecursionError, SystemError) as error:
            raise refusal(InvalidRequest("request", _words(error))) from None
        packed: bytes = message.SerializeToString()
        return packed

    def answer(self, message: bytes) -> Any:
        return self.response.FromString(message)


class Problem(NamedTuple):
    """Why a call was refused, as HTTP says it (RFC 9457)."""

    status: int
    body: Mapping[str, Any]
    retry_after_seconds: float | None


def as_json(message: Any) -> dict[str, Any]:
    """With the fields that have their default: a reader need not know which those are."""
    shown: dict[str, Any] = json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True
    )
    return shown


def with_field(fields: dict[str, Any], path: str, value: object) -> None:
    """Set a field by its path, `header.session_id`."""
    *parents, last = path.split(".")
    for parent in parents:
        below = fields.setdefault(parent, {})
        if not isinstance(below, dict):
            raise refusal(InvalidRequest(parent, "this has fields of its own; send an object"))
        fields = below
    fields[last] = value


def from_query(
    method: Method, pairs: Iterable[tuple[str, str]], prefix: str = ""
) -> dict[str, Any]:
    """The fields of a request that stand in a query: `page_size=5&metadata.kind=agent`."""
    fields: dict[str, Any] = {}
    for name, text in pairs:
        field = _field(method.request.DESCRIPTOR, prefix + name)
        if field is None:
            raise refusal(
                InvalidRequest(name[:80], "the request has no such field; see /docs of this daemon")
            )
        value = _value(name, field, text)
        if _is_repeated(field) and not _is_map(field):
            fields.setdefault(prefix + name, []).append(value)
        else:
            fields[prefix + name] = value
    nested: dict[str, Any] = {}
    for path, value in fields.items():
        with_field(nested, path, value)
    return nested


def from_body(data: bytes) -> dict[str, Any]:
    """The fields of a request that is sent as JSON; nothing is an empty one."""
    try:
        fields = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise refusal(InvalidRequest("request", f"the body is not JSON: {error}")) from None
    if not isinstance(fields, dict):
        raise refusal(InvalidRequest("request", "the body has to be a JSON object"))
    return fields


def has_field(message_type: Any, name: str) -> bool:
    return name in message_type.DESCRIPTOR.fields_by_name


def refusal(error: SandboxdError) -> CallRefused:
    """A typed error as a call ends with it."""
    try:
        status = to_status(error)
    except UnicodeError:  # it quotes what was sent
        status = to_status(InvalidRequest("request", "there is text in it that is not Unicode"))
    packed = dict(status.trailing_metadata)[TRAILER]
    return CallRefused(packed, error.message)


def problem_of(refused: CallRefused) -> Problem:
    status = status_pb2.Status.FromString(refused.status)
    code = code_pb2.Code.Name(status.code) if status.code in code_pb2.Code.values() else "UNKNOWN"
    http_status = _HTTP_STATUSES.get(status.code, 500)
    body: dict[str, Any] = {"title": code, "status": http_status, "detail": status.message}
    retry_after = None
    for detail in status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            body["type"] = f"urn:sandboxd:{info.reason}"
            body["reason"] = info.reason
            body["metadata"] = dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
            body["retry_after_seconds"] = retry_after
        elif detail.Unpack(bad):
            body["violations"] = [
                {"field": one.field, "description": one.description} for one in bad.field_violations
            ]
    return Problem(http_status, body, retry_after)


class Positions:
    """How far the reader of an exec's events is, as an id that it can come back with."""

    def __init__(
        self, exec_id: str = "", stdout: int = 0, stderr: int = 0, events: int = 0
    ) -> None:
        self.exec_id = exec_id
        self.stdout, self.stderr, self.events = stdout, stderr, events

    @classmethod
    def read(cls, text: str) -> Positions | None:
        """None if this is not an id that `__str__` has written."""
        exec_id, *numbers = text.rsplit(":", 3)
        if len(numbers) != 3 or not all(n.isascii() and n.isdigit() for n in numbers):
            return None
        if any(len(number) > 19 for number in numbers):
            return None
        return cls(exec_id, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.exec_id}:{self.stdout}:{self.stderr}:{self.events}"

    def take(self, message: Any) -> None:
        """Move on behind a message with events of an exec."""
        for event in message.events:
            kind = event.WhichOneof("event")
            if kind == "started":
                self.exec_id = event.started.exec_id
            elif kind == "stdout":
                self.stdout = event.stdout.offset + len(event.stdout.data)
            elif kind == "stderr":
                self.stderr = event.stderr.offset + len(event.stderr.data)
            elif kind == "code":
                self.events = event.code.next_offset
            elif kind == "dropped":
                self._skip(event.dropped)

    def _skip(self, gap: exec_pb2.OutputGap) -> None:
        end = gap.offset + gap.bytes
        if gap.stream == exec_pb2.OUTPUT_STREAM_STDERR:
            self.stderr = end
        elif gap.stream == exec_pb2.OUTPUT_STREAM_EVENTS:
            self.events = end
        else:
            self.stdout = end


def has_positions(method: Method) -> bool:
    """Whether the answers of a method are events of an exec."""
    events = method.response.DESCRIPTOR.fields_by_name.get("events")
    return events is not None and events.message_type is exec_pb2.ExecEvent.DESCRIPTOR


def _below(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _field(message: Descriptor, path: str) -> FieldDescriptor | None:
    name, _, below = path.partition(".")
    field = message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)
    if field is None or not below:
        return field
    if _is_map(field):
        return _below(field).fields_by_name["value"]
    return None if field.message_type is None else _field(field.message_type, below)


def _value(name: str, field: FieldDescriptor, text: str) -> object:
    if field.type != FieldDescriptor.TYPE_BOOL:
        return text
    if text.lower() not in _TRUTHS:
        raise refusal(InvalidRequest(name[:80], "write true or false"))
    return _TRUTHS[text.lower()]


def _is_repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return message is not None and bool(message.GetOptions().map_entry)


def _words(error: Exception) -> str:
    return f"the fields cannot be read: {str(error)[:300]}"
