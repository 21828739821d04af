"""Messages of DoorService to domain objects and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandboxd.doors.egress_ledger import Denial
from sandboxd.doors.egress_rules import parse_rules
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.service import wire
from sandboxd.sessions.egress import PROXY_URL, EgressStatus
from sandboxd_proto.v1 import door_service_pb2, egress_pb2


def rules(message: egress_pb2.EgressRules) -> Sequence[str]:
    """In the one form that is kept and compared; InvalidRequest."""
    return tuple(map(str, parse_rules(message.rules)))


def egress(status: EgressStatus) -> egress_pb2.Egress:
    described = egress_pb2.Egress(
        rules=map(str, status.rules),
        is_own=status.is_own,
        problem=status.problem,
        max_bytes=status.max_bytes,
    )
    if (ledger := status.ledger) is not None:
        described.proxy_url = PROXY_URL
        described.connections = ledger.connections
        described.bytes_in = ledger.bytes_in
        described.bytes_out = ledger.bytes_out
        described.denied.update({kind.value: count for kind, count in ledger.denials.items()})
        described.recent_denials.extend(map(_denial, ledger.recent))
    return described


def _denial(denial: Denial) -> egress_pb2.EgressDenial:
    return egress_pb2.EgressDenial(
        time=wire.timestamp(denial.at),
        rule=denial.kind.value,
        host=denial.host,
        port=denial.port,
        message=denial.message,
    )


def doors(sandbox: Sandbox) -> Iterable[door_service_pb2.Door]:
    """Those that are open, and those that could not be opened, by name."""
    found = {
        name: door_service_pb2.Door(
            name=name,
            address=str(opened.door.address),
            connections=opened.connections,
            refused=opened.refused,
        )
        for name, opened in sandbox.doors.open_doors.items()
    }
    for name, problem in sandbox.doors.problems.items():
        found[name] = door_service_pb2.Door(name=name, problem=problem)
    return [found[name] for name in sorted(found)]
