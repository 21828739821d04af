"""What ports and egress of a sandbox look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandboxd_client.records import Record, record
from sandboxd_client.results import iso

if TYPE_CHECKING:
    from sandboxd_proto.v1 import egress_pb2, port_service_pb2


@record(frozen=True)
class PortInfo(Record):
    """A port that a program in the sandbox listens on."""

    port: int
    address: str
    """`0.0.0.0` or `::` for all."""

    @classmethod
    def of(cls, port: port_service_pb2.ListeningPort) -> PortInfo:
        return cls(port.port, port.address)


@record(frozen=True)
class PreviewInfo(Record):
    """URLs under which a browser on the daemon's host reaches a port. They are secrets."""

    url: str
    """With an origin of its own, below `localhost`."""
    path_url: str
    """The same under a path of 127.0.0.1, for programs that do not resolve names below
    `localhost`."""
    expires_at: str
    """ISO 8601 time."""

    @classmethod
    def of(cls, made: port_service_pb2.CreatePreviewResponse) -> PreviewInfo:
        return cls(made.url, made.path_url, iso(made.expire_time))


@record(frozen=True)
class EgressDenial(Record):
    """A request of the sandbox that was refused."""

    at: str
    """ISO 8601 time."""
    rule: str
    """`host`, `port`, `method`, `address`, `name`, `protocol` or `limit`."""
    host: str
    port: int
    message: str
    """Why, and what to do."""


@record(frozen=True)
class EgressInfo(Record):
    """What the sandbox may reach, and what it did with that."""

    rules: Sequence[str]
    is_own: bool
    """Whether the session has asked for these rules; otherwise they are its environment's."""
    proxy_url: str
    """Address of the proxy inside; empty while there is none."""
    problem: str
    """Why there is no proxy although there are rules; empty otherwise."""
    connections: int
    bytes_in: int
    bytes_out: int
    max_bytes: int
    denied: Mapping[str, int]
    """Refused requests by rule."""
    recent_denials: Sequence[EgressDenial]

    @classmethod
    def of(cls, egress: egress_pb2.Egress) -> EgressInfo:
        return cls(
            rules=tuple(egress.rules),
            is_own=egress.is_own,
            proxy_url=egress.proxy_url,
            problem=egress.problem,
            connections=egress.connections,
            bytes_in=egress.bytes_in,
            bytes_out=egress.bytes_out,
            max_bytes=egress.max_bytes,
            denied=dict(egress.denied),
            recent_denials=tuple(
                EgressDenial(iso(one.time), one.rule, one.host, one.port, one.message)
                for one in egress.recent_denials
            ),
        )
