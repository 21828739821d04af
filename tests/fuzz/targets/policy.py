"""Commands that the policy checks; a parser written in C reads them."""

from __future__ import annotations

from collections.abc import Hashable

from sandboxd.policy import STRICT, check
from sandboxd.policy.worker import MAX_PROCESSOR_SECONDS
from tests.fuzz.target import Target, stateless
from tests.unit.policy_cases import ALLOWED, REFUSED
from tests.unit.test_policy_fuzz import ATOMS

MOST_FINDINGS = 5


async def decide(data: bytes) -> Hashable:
    """As a line, and split at NUL as words."""
    text = data.decode(errors="replace")
    decision = check(text.split("\0") if "\0" in text else text, STRICT)
    assert decision.allowed or decision.explanation
    assert len(decision.findings) <= MOST_FINDINGS
    return tuple((finding.rule, finding.problem[:40]) for finding in decision.findings)


POLICY = Target(
    name="policy",
    open=stateless(decide),
    seeds=[
        *(command.encode() for command in ALLOWED),
        *(case[0].encode() for case in REFUSED if isinstance(case[0], str)),
    ],
    words=[atom.encode() for atom in ATOMS],
    max_bytes=16 << 10,
    processor_seconds=MAX_PROCESSOR_SECONDS,
    growth_bytes=128 << 20,
)
