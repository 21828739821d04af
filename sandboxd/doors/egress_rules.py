"""Which hosts a session may reach.

A rule is written as `[METHODS ]HOST[:PORTS]`:

- `example.com`: plain HTTP on port 80 and TLS on port 443;
- `*.example.com:8443`: every name below example.com, not itself, on this port;
- `GET+HEAD example.com:80+8080`: plain HTTP with these methods. TLS hides the method, so a rule
  with methods allows none;
- `203.0.113.7:443`: an address, which only this text in a request reaches;
- `*`: every name;
- `github.door`: an upstream that the operator has named.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sandboxd.errors import InvalidRequest, quoted

MAX_RULES = 64
MAX_RULE = 400
DOOR_SUFFIX = ".door"
"""Ending of the names of upstreams; no public name has it."""
ANY_HOST = "*"
HTTP_PORT, TLS_PORT = 80, 443
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_METHOD = re.compile(r"[A-Z]{1,20}", re.ASCII)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)


class InvalidHost(ValueError):
    """Text that is not the name of a host, or an address in an unusual form."""


class InvalidRule(ValueError):
    """Text that is not a rule; it says why."""


class Verdict(StrEnum):
    """What the rules say about a request."""

    ALLOWED = "allowed"
    HOST = "host"
    PORT = "port"
    METHOD = "method"


def normal_host(text: str) -> str:
    """The one form of a name or of an address; InvalidHost.

    Forms that programs read as an address and that do not look like one are refused: `2130706433`,
    `0x7f.1`, `0177.0.0.1`, `127.1`. So is every name with a character that needs encoding.
    """
    host = text.lower()
    if host.startswith("[") and host.endswith("]"):
        return _address_in_brackets(host)
    host = host.removesuffix(".")
    if not 1 <= len(host) <= 253 or not all(map(_LABEL.fullmatch, host.split("."))):
        raise InvalidHost(f"{quoted(text)} is not the name of a host")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return _dotted_address(host)
    return host


def _address_in_brackets(host: str) -> str:
    if "%" in host:
        raise InvalidHost("an address with a zone is not accepted")
    try:
        return str(ipaddress.IPv6Address(host[1:-1]))
    except ValueError:
        raise InvalidHost(f"{quoted(host)} is not an IPv6 address") from None


def _dotted_address(host: str) -> str:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise InvalidHost(f"{quoted(host)} is not an address in the form 203.0.113.7") from None


def is_address(host: str) -> bool:
    """Whether a host in its normal form is an address."""
    return ":" in host or host.rpartition(".")[2].isdigit()


@dataclass(frozen=True)
class EgressRule:
    host: str
    ports: frozenset[int] = frozenset()
    """Empty means 80 for plain HTTP and 443 for TLS."""
    methods: frozenset[str] = frozenset()
    """Methods of plain HTTP; empty means all, and TLS."""

    def __str__(self) -> str:
        methods = "+".join(sorted(self.methods)) + " " if self.methods else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        ports = ":" + "+".join(map(str, sorted(self.ports))) if self.ports else ""
        return f"{methods}{host}{ports}"

    @classmethod
    def parse(cls, text: str) -> EgressRule:
        """InvalidRule."""
        if len(text) > MAX_RULE:
            raise InvalidRule(f"it has more than {MAX_RULE} characters")
        methods, _, place = text.strip().rpartition(" ")
        host, ports = _split_ports(place)
        return cls(_rule_host(host), _ports(ports), _methods(methods))

    def matches_host(self, host: str) -> bool:
        if self.host == host:
            return True
        if is_address(host) or host.endswith(DOOR_SUFFIX):
            return False
        return self.host == ANY_HOST or (self.host[0] == "*" and host.endswith(self.host[1:]))

    def matches_port(self, port: int, *, is_tls: bool) -> bool:
        return port in (self.ports or {TLS_PORT if is_tls else HTTP_PORT})

    def matches_method(self, method: str | None) -> bool:
        """None stands for TLS, which hides it."""
        return not self.methods or method in self.methods

    def covers(self, other: EgressRule) -> bool:
        """Whether everything that the other allows is allowed by this."""
        if not self._covers_host(other.host):
            return False
        ports = other.ports or frozenset({HTTP_PORT, TLS_PORT})
        has_ports = ports <= (self.ports or {HTTP_PORT, TLS_PORT})
        has_methods = not self.methods or (bool(other.methods) and other.methods <= self.methods)
        return has_ports and has_methods

    def _covers_host(self, host: str) -> bool:
        if host == ANY_HOST:
            return self.host == ANY_HOST
        if host[0] == "*":
            is_below = self.host[0] == "*" and host[1:].endswith(self.host[1:])
            return self.host == ANY_HOST or is_below
        return self.matches_host(host)


def parse_rules(texts: Sequence[str]) -> tuple[EgressRule, ...]:
    """Rules without repetitions, in one order; InvalidRequest names the first bad one."""
    if len(texts) > MAX_RULES:
        raise InvalidRequest("egress", f"must have at most {MAX_RULES} rules")
    found: dict[str, EgressRule] = {}
    for text in texts:
        try:
            rule = EgressRule.parse(text)
        except InvalidRule as error:
            raise InvalidRequest("egress", f"{quoted(text)}: {error}") from None
        found[str(rule)] = rule
    return tuple(found[text] for text in sorted(found))


def judge(
    rules: Sequence[EgressRule], host: str, port: int, method: str | None
) -> tuple[Verdict, EgressRule | None]:
    """Whether a request is allowed, and the rule that allows it or comes nearest to it.

    The host is in its normal form. A method of None stands for TLS.
    """
    near = [rule for rule in rules if rule.matches_host(host)]
    if not near:
        return Verdict.HOST, None
    on_port = [rule for rule in near if rule.matches_port(port, is_tls=method is None)]
    if not on_port:
        return Verdict.PORT, near[0]
    allowing = next((rule for rule in on_port if rule.matches_method(method)), None)
    if allowing is None:
        return Verdict.METHOD, on_port[0]
    return Verdict.ALLOWED, allowing


def _split_ports(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, bracket, rest = place.partition("]")
        return host + bracket, rest.removeprefix(":")
    host, _, ports = place.partition(":")
    return host, ports


def _rule_host(text: str) -> str:
    if text == ANY_HOST:
        return text
    is_wide = text.startswith("*.")
    try:
        host = normal_host(text.removeprefix("*.") if is_wide else text)
    except InvalidHost as error:
        raise InvalidRule(f"{error}; write a name such as example.com or *.example.com") from None
    if is_wide and (is_address(host) or host.endswith(DOOR_SUFFIX) or "." not in host):
        raise InvalidRule("a star stands before a name of at least two parts, as *.example.com")
    return f"*.{host}" if is_wide else host


def _ports(text: str) -> frozenset[int]:
    if not text:
        return frozenset()
    words = text.split("+")
    if not all(map(_PORT.fullmatch, words)) or not all(1 <= int(word) <= 65535 for word in words):
        raise InvalidRule("write ports as 443 or 80+8080, from 1 to 65535")
    return frozenset(map(int, words))


def _methods(text: str) -> frozenset[str]:
    if not text:
        return frozenset()
    words = text.split("+")
    if not all(map(_METHOD.fullmatch, words)) or "CONNECT" in words:
        raise InvalidRule("write methods as GET or GET+HEAD, without CONNECT")
    return frozenset(words)
