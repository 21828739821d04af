"""Rules of egress: which hosts they name, what they allow, and who may ask for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from sandboxd.access.shares import LOOKUPS
from sandboxd.doors import addresses
from sandboxd.doors.addresses import (
    AddressRules,
    PrivateNetwork,
    Resolver,
    Unresolved,
)
from sandboxd.doors.egress_rules import (
    EgressRule,
    InvalidHost,
    InvalidRule,
    Verdict,
    judge,
    normal_host,
    parse_rules,
)
from sandboxd.errors import InvalidRequest

RULES = parse_rules(
    ["example.com", "*.wide.org:8443", "GET+HEAD plain.net:80+8080", "203.0.113.7:443", "x.door"]
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[0:0::ffff:7f00:1]", "::ffff:7f00:1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_host_has_one_form(text: str, host: str) -> None:
    assert normal_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ".",
            "a..b",
            "-a.com",
            "a-.com",
            "a b",
            "a/b",
            "a@b",
            "a:b",
            "a\0b",
            "a\nb",
            "b%2ecom",
        ),
        *(
            "2130706433",
            "0x7f000001",
            "127.1",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "1.2.3.4.5",
            "256.1.1.1",
        ),
        *("[::1%lo]", "[::g]", "[127.0.0.1]", "bücher.example", "a" * 64 + ".com", "a." * 130),
    ],
)
def test_what_is_not_a_host_is_refused(text: str) -> None:
    """Among others every form that a resolver would read as an address."""
    with pytest.raises(InvalidHost):
        normal_host(text)


@pytest.mark.parametrize(
    ("host", "port", "method", "verdict"),
    [
        ("example.com", 443, None, Verdict.ALLOWED),
        ("example.com", 80, "DELETE", Verdict.ALLOWED),
        ("example.com", 80, None, Verdict.PORT),
        ("example.com", 443, "GET", Verdict.PORT),
        ("www.example.com", 443, None, Verdict.HOST),
        ("a.wide.org", 8443, None, Verdict.ALLOWED),
        ("a.b.wide.org", 8443, "GET", Verdict.ALLOWED),
        ("wide.org", 8443, None, Verdict.HOST),
        ("awide.org", 8443, None, Verdict.HOST),
        ("plain.net", 8080, "GET", Verdict.ALLOWED),
        ("plain.net", 8080, "POST", Verdict.METHOD),
        ("plain.net", 80, None, Verdict.METHOD),
        ("203.0.113.7", 443, None, Verdict.ALLOWED),
        ("203.0.113.8", 443, None, Verdict.HOST),
        ("x.door", 80, "GET", Verdict.ALLOWED),
        ("y.door", 80, "GET", Verdict.HOST),
    ],
)
def test_rules_decide(host: str, port: int, method: str | None, verdict: Verdict) -> None:
    assert judge(RULES, host, port, method)[0] is verdict


def test_a_star_stands_for_names_only() -> None:
    """Neither for addresses nor for upstreams, which need to be named."""
    everything = parse_rules(["*"])
    assert judge(everything, "any.example", 443, None)[0] is Verdict.ALLOWED
    for host in ("127.0.0.1", "::1", "203.0.113.7", "x.door"):
        assert judge(everything, host, 443, None)[0] is Verdict.HOST


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "http://example.com", "example.com/", "example.com:", "example.com:0"),
        *("example.com:65536", "example.com:80,443", "GET,HEAD example.com", "get example.com"),
        *("CONNECT example.com", "*.com", "*.x.door", "a.*.com", "**", "*.", "*.1.2.3.4", "a b c"),
        "x" * 500,
    ],
)
def test_what_is_not_a_rule_is_refused(text: str) -> None:
    if text == "example.com:":
        assert str(EgressRule.parse(text)) == "example.com"
        return
    with pytest.raises(InvalidRule):
        EgressRule.parse(text)


def test_rules_have_one_order_and_a_limit() -> None:
    assert [*map(str, parse_rules(["b.com", "A.com", "b.com"]))] == ["a.com", "b.com"]
    with pytest.raises(InvalidRequest, match="64"):
        parse_rules([f"h{number}.com" for number in range(65)])


def test_too_many_rules_are_refused_before_they_are_read() -> None:
    """Also if all are the same: a request has room for millions."""

    class Unread(list[str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError

    with pytest.raises(InvalidRequest, match="at most 64 rules"):
        parse_rules(Unread(["a.com"] * 65))


@pytest.mark.parametrize(
    ("wide", "narrow", "is_covered"),
    [
        ("*", "example.com", True),
        ("*", "*.example.com", True),
        ("*", "x.door", False),
        ("*", "127.0.0.1", False),
        ("example.com", "*", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "*.a.example.com", True),
        ("*.a.example.com", "*.example.com", False),
        ("*.example.com", "example.com", False),
        ("example.com", "example.com:443", True),
        ("example.com:443", "example.com", False),
        ("example.com", "example.com:8443", False),
        ("GET example.com", "example.com", False),
        ("GET+HEAD example.com", "GET example.com", True),
        ("example.com", "GET example.com", True),
        ("x.door", "x.door", True),
    ],
)
def test_a_rule_covers_what_is_within_it(wide: str, narrow: str, is_covered: bool) -> None:
    assert EgressRule.parse(wide).covers(EgressRule.parse(narrow)) is is_covered


PRIVATE = [PrivateNetwork.parse(text) for text in ("10.1.0.0/16", "127.0.0.1:8443", "[fd00::/8]")]


@pytest.mark.parametrize(
    ("address", "port", "is_reached"),
    [
        ("93.184.216.34", 443, True),
        ("2606:2800:220:1::1", 443, True),
        ("10.1.2.3", 22, True),
        ("127.0.0.1", 8443, True),
        ("::ffff:127.0.0.1", 8443, True),
        ("fd00::1", 1, True),
        *(
            (address, 80, False)
            for address in (
                *("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"),
                *("10.2.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254"),
                *("168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "255.255.255.255"),
                *("fe80::1", "fc00::1", "ff02::1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1"),
                *("::127.0.0.1", "240.0.0.1", "64:ff9b:1::1", "fec0::1"),
            )
        ),
    ],
)
def test_only_public_and_named_addresses_are_reached(
    address: str, port: int, is_reached: bool
) -> None:
    assert (AddressRules(PRIVATE).problem(address, port) == "") is is_reached


@pytest.mark.parametrize("text", ["127.0.0.1", "::1", "10.0.0.0/33", "x", "10.1.2.3/8", ""])
def test_a_private_network_is_named_exactly(text: str) -> None:
    """An address of loopback needs a port: it would open all services of the host."""
    with pytest.raises(ValueError, match=r"."):
        PrivateNetwork.parse(text)


async def test_fixed_names_and_addresses_are_not_looked_up() -> None:
    resolver = Resolver({"mirror.example": "10.1.2.3"})
    assert await resolver.find("mirror.example") == ["10.1.2.3"]
    assert await resolver.find("203.0.113.7") == ["203.0.113.7"]
    assert await resolver.find("::1") == ["::1"]
    with pytest.raises(Unresolved):
        await resolver.find("name.invalid")
    resolver.close()


async def test_names_of_one_session_that_take_long_delay_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user has some turns, each until its thread has ended: not only as long as it waits."""
    held, asked = threading.Event(), []

    def look_up(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if host.startswith("slow"):
            held.wait(60)
        return [(0, 0, 0, "", ("203.0.113.7", 0))]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(addresses, "LOOKUP_SECONDS", 0.3)
    resolver = Resolver()
    for _ in range(2):
        names = [f"slow{number}.test" for number in range(100)]
        found = await asyncio.gather(
            *(resolver.find(name, "eve") for name in names), return_exceptions=True
        )
        assert all(isinstance(one, Unresolved) for one in found)
    assert len(asked) == LOOKUPS.per_user
    monkeypatch.setattr(addresses, "LOOKUP_SECONDS", 60)
    assert await resolver.find("fast.test", "ada") == ["203.0.113.7"]
    held.set()
    assert await resolver.find("later.test", "eve") == ["203.0.113.7"]
    resolver.close()
