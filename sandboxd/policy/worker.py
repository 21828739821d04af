"""A process that checks commands, one after the other: `python -m sandboxd.policy.worker`.

The parser cannot be interrupted and holds the interpreter's lock, so a long check would stop
everything else in its process. Lines of JSON come in, first the policy and then commands; each
command is answered with its decision. One that takes too much processor time ends the process.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

from sandboxd.policy.checker import check
from sandboxd.policy.decision import Decision, Finding, Rule
from sandboxd.policy.profile import Policy

MAX_PROCESSOR_SECONDS = 1.0
"""Processor time of one check, many times that of the worst text found."""
MAX_MEMORY_BYTES = 1 << 30


def encode_policy(policy: Policy) -> bytes:
    return _line(
        {
            "name": policy.name,
            "allow": None if policy.allow is None else sorted(policy.allow),
            "forbid": sorted(policy.forbid),
            "forbid_patterns": policy.forbid_patterns,
            "forbid_writes": policy.forbid_writes,
            "inline_code": policy.inline_code,
            "instead": dict(policy.instead),
        }
    )


def _decode_policy(line: bytes) -> Policy:
    fields = json.loads(line)
    allow = fields.pop("allow")
    return Policy(
        **fields
        | {
            "allow": None if allow is None else frozenset(allow),
            "forbid": frozenset(fields["forbid"]),
            "forbid_patterns": tuple(fields["forbid_patterns"]),
            "forbid_writes": tuple(fields["forbid_writes"]),
        }
    )


def encode_command(command: str | Sequence[str]) -> bytes:
    return _line(command if isinstance(command, str) else list(command))


def decode_decision(line: bytes) -> Decision:
    return Decision(tuple(Finding(Rule(rule), *texts) for rule, *texts in json.loads(line)))


def _encode_decision(decision: Decision) -> bytes:
    return _line(
        [
            (finding.rule, finding.command, finding.problem, finding.instead)
            for finding in decision.findings
        ]
    )


def _line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    commands, decisions = sys.stdin.buffer, sys.stdout.buffer
    policy = _decode_policy(commands.readline())
    for line in commands:
        signal.setitimer(signal.ITIMER_PROF, MAX_PROCESSOR_SECONDS)
        decision = check(json.loads(line), policy)
        signal.setitimer(signal.ITIMER_PROF, 0)
        decisions.write(_encode_decision(decision))
        decisions.flush()


if __name__ == "__main__":
    main()
