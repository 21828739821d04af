"""Egress of sessions: which hosts each may reach, who may decide that, and the door for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from sandboxd.access import current_caller
from sandboxd.access.shares import EGRESS_CONNECTIONS, Places
from sandboxd.doors.addresses import AddressRules, Resolver
from sandboxd.doors.door import Door, Loopback
from sandboxd.doors.egress import Egress, EgressLimits
from sandboxd.doors.egress_ledger import EgressLedger
from sandboxd.doors.egress_rules import EgressRule, InvalidRule, parse_rules
from sandboxd.doors.upstreams import Upstreams
from sandboxd.errors import DoorsOff, EgressNotAllowed
from sandboxd.registry.contract import SessionRecord
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.journal import Journal

NAME = "egress"
PROXY_PORT = 3128
PROXY_URL = f"http://127.0.0.1:{PROXY_PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), PROXY_URL),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _LOCAL),
    "NODE_USE_ENV_PROXY": "1",
}


@dataclass(frozen=True, kw_only=True)
class EgressSettings:
    """What the operator allows."""

    allowed: Sequence[EgressRule] = ()
    """What callers may ask for; an admin may ask for everything."""
    of_environments: Mapping[str, Sequence[EgressRule]] = field(default_factory=dict)
    """What sessions of an environment have unless they ask for something else."""
    limits: EgressLimits = field(default_factory=EgressLimits)
    doors_problem: str = ""
    """Why there are no doors; empty if there are."""


class EgressStatus(NamedTuple):
    """The egress of a session as it is now."""

    rules: Sequence[EgressRule]
    is_own: bool
    """Whether the session has asked for these rules; otherwise they are its environment's."""
    ledger: EgressLedger | None
    """None while the door is closed."""
    max_bytes: int
    problem: str
    """Why the door is closed although there are rules; empty if it is open."""


class SessionEgress:
    """Gives sessions with rules a door for them."""

    def __init__(
        self,
        settings: EgressSettings | None = None,
        journal: Journal | None = None,
        *,
        addresses: AddressRules | None = None,
        resolver: Resolver | None = None,
        upstreams: Upstreams | None = None,
    ) -> None:
        self._settings = settings or EgressSettings()
        self._journal = journal or Journal()
        self._addresses = addresses or AddressRules()
        self._resolver = resolver or Resolver()
        self._upstreams = upstreams or Upstreams()
        self._places = Places(EGRESS_CONNECTIONS)
        self._live: dict[str, Egress] = {}
        """Open doors by session id."""

    # --- who may ask for what ---

    def check(self, rules: Sequence[str], environment: str) -> None:
        """EgressNotAllowed unless the caller may ask for these; DoorsOff."""
        for rule in self._refused(rules, environment):
            raise EgressNotAllowed(str(rule), allowed=map(str, self._ceiling(environment)))
        if rules and self._settings.doors_problem:
            raise DoorsOff(self._settings.doors_problem)

    def _refused(self, rules: Sequence[str], environment: str) -> list[EgressRule]:
        asked, ceiling = parse_rules(rules), self._ceiling(environment)
        if current_caller().is_admin:
            return []
        return [rule for rule in asked if not any(one.covers(rule) for one in ceiling)]

    def _ceiling(self, environment: str) -> Sequence[EgressRule]:
        own = self._settings.of_environments.get(environment, ())
        return [*self._settings.allowed, *own, *_rules_of_caller()]

    # --- doors ---

    def rules_of(self, record: SessionRecord) -> Sequence[EgressRule]:
        if record.egress is not None:
            return parse_rules(record.egress)
        return self._settings.of_environments.get(record.environment, ())

    def doors_of(self, record: SessionRecord) -> Sequence[Door]:
        """See DoorProvider."""
        rules = self.rules_of(record)
        return [self._door(record, rules)] if rules else []

    async def apply(self, record: SessionRecord, sandbox: Sandbox) -> None:
        """Use the rules of a record in the sandbox of its session from now on."""
        rules, live = self.rules_of(record), self._live.get(record.session_id)
        if not rules:
            sandbox.doors.shut(NAME)
        elif live is not None:
            live.change(rules)
        else:
            await sandbox.doors.open(self._door(record, rules))

    def status(self, record: SessionRecord, sandbox: Sandbox | None) -> EgressStatus:
        live = self._live.get(record.session_id)
        return EgressStatus(
            rules=self.rules_of(record),
            is_own=record.egress is not None,
            ledger=live.ledger if live else None,
            max_bytes=self._settings.limits.max_bytes,
            problem=sandbox.doors.problems.get(NAME, "") if sandbox else "",
        )

    def _door(self, record: SessionRecord, rules: Sequence[EgressRule]) -> Door:
        limits = self._settings.limits
        ledger = EgressLedger(max_bytes=limits.max_bytes, record=partial(self._record, record))
        egress = Egress(
            rules,
            ledger,
            limits,
            addresses=self._addresses,
            resolver=self._resolver,
            upstreams=self._upstreams,
            user_id=record.user_id,
            places=self._places,
        )

        def on_opened() -> None:
            self._live[record.session_id] = egress

        def on_closed() -> None:
            ledger.flush()
            if self._live.get(record.session_id) is egress:
                del self._live[record.session_id]

        return Door(
            name=NAME,
            address=Loopback(PROXY_PORT),
            serve=egress.serve,
            max_connections=limits.connections,
            env=VARIABLES,
            on_opened=on_opened,
            on_closed=on_closed,
        )

    def _record(self, record: SessionRecord, action: str, details: Mapping[str, Any]) -> None:
        self._journal.on_door(record, action, details)

    async def aclose(self) -> None:
        self._resolver.close()
        await self._upstreams.aclose()


def _rules_of_caller() -> list[EgressRule]:
    """What its line of the token file adds; a word that is not a rule adds nothing."""
    found = []
    for text in current_caller().egress:
        with suppress(InvalidRule):
            found.append(EgressRule.parse(text))
    return found
