"""What sandboxes send to the egress proxy, and what browsers send to previews."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

from sandboxd.doors import http_head
from sandboxd.doors.client_hello import Need, NotTls, parse_client_hello
from sandboxd.doors.egress_rules import (
    EgressRule,
    InvalidHost,
    InvalidRule,
    normal_host,
)
from sandboxd.doors.http_head import BadMessage
from sandboxd.doors.listening_ports import parse_tcp_table
from tests.fuzz.target import Target, stateless


async def read_request(data: bytes) -> Hashable:
    """What is accepted has one meaning: written anew and read again it is the same."""
    return _proxied(data), _served(data), _answered(data)


def _proxied(data: bytes) -> Hashable:
    try:
        head = http_head.parse_request(data)
    except BadMessage as error:
        return str(error)[:40]
    assert normal_host(f"[{head.host}]" if ":" in head.host else head.host) == head.host
    assert 1 <= head.port <= 65535
    assert not {"\r", "\n", " "} & set(head.path)
    names = [name.lower() for name, _ in head.fields]
    assert not {"host", "content-length", "transfer-encoding"} & set(names)
    assert not any("\n" in value or "\r" in value for _, value in head.fields)
    authority = f"[{head.host}]:{head.port}" if ":" in head.host else f"{head.host}:{head.port}"
    target = authority if head.method == "CONNECT" else f"http://{authority}{head.path}"
    fields = [("Host", authority), *head.fields]
    if head.length is None:
        fields.append(("Transfer-Encoding", "chunked"))
    elif head.length:
        fields.append(("Content-Length", str(head.length)))
    again = http_head.parse_request(http_head.encode(f"{head.method} {target} HTTP/1.1", fields))
    assert (again.host, again.port, again.path) == (head.host, head.port, head.path)
    assert (again.length, list(again.fields)) == (head.length, list(head.fields))
    return head.method, head.length is None


def _served(data: bytes) -> Hashable:
    try:
        head, is_websocket = http_head.parse_served_request(data)
    except BadMessage as error:
        return str(error)[:40]
    assert head.path.startswith("/")
    return is_websocket, head.length is None


def _answered(data: bytes) -> Hashable:
    try:
        head = http_head.parse_response(data)
    except BadMessage as error:
        return str(error)[:40]
    return head.status // 100, head.length is None


async def read_hello(data: bytes) -> Hashable:
    """A shorter beginning never gets another answer than that more is needed, or the same."""
    try:
        found = parse_client_hello(data)
    except NotTls as error:
        return str(error)
    if isinstance(found, Need):
        return "more"
    for size in range(0, len(data), max(1, len(data) // 8)):
        earlier = parse_client_hello(data[:size])
        assert earlier is Need.MORE or earlier == found
    return found.server_name is None, found.hides_name


async def read_rule(data: bytes) -> Hashable:
    """A rule that is accepted has one form; so has a host."""
    text = data.decode(errors="surrogateescape")
    tuple(parse_tcp_table(data))
    try:
        rule = EgressRule.parse(text)
    except InvalidRule as error:
        outcome = str(error)[:20]
    else:
        assert EgressRule.parse(str(rule)) == rule
        assert rule.covers(rule)
        outcome = f"{len(rule.ports)} {len(rule.methods)} {rule.host[:1]}"
    try:
        host = normal_host(text)
    except InvalidHost:
        return outcome
    assert normal_host(f"[{host}]" if ":" in host else host) == host
    return outcome, ":" in host


def _hello(name: bytes | None, more: bytes = b"") -> bytes:
    extensions = more
    if name is not None:
        entry = b"\x00" + len(name).to_bytes(2) + name
        names = len(entry).to_bytes(2) + entry
        extensions = b"\x00\x00" + len(names).to_bytes(2) + names + more
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(extensions).to_bytes(2) + extensions
    message = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16\x03\x01" + len(message).to_bytes(2) + message


def with_lengths(data: bytes, random: Random) -> bytes:
    """The same bytes as one record with one message."""
    body = data[9:]
    message = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16\x03\x01" + len(message).to_bytes(2) + message


def with_end(data: bytes, random: Random) -> bytes:
    """The same lines as a whole head."""
    return b"\r\n".join(data.replace(b"\r", b"").strip(b"\n").split(b"\n")) + b"\r\n\r\n"


_SPLIT = _hello(b"example.com")
HEADS = Target(
    name="door-heads",
    open=stateless(read_request),
    seeds=[
        b"GET http://example.com/a?b HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
        b"CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n",
        b"POST http://a.b:8080/ HTTP/1.1\r\nHost: a.b:8080\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"PUT http://a.b/ HTTP/1.0\r\nContent-Length: 5\r\nConnection: close, x\r\nX: y\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: x.localhost:1\r\nUpgrade: websocket\r\nOrigin: null\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nSet-Cookie: a=b\r\n\r\n",
    ],
    words=[
        b"Content-Length:",
        b"Transfer-Encoding:",
        b"chunked",
        b"\r\n",
        b"\n",
        b" ",
        b"\t",
        b"@",
    ],
    repair=with_end,
)
HELLO = Target(
    name="door-client-hello",
    open=stateless(read_hello),
    seeds=[
        _hello(b"example.com"),
        _hello(None),
        _hello(b"a.b", b"\xfe\x0d\x00\x02\x00\x00"),
        # In two records.
        b"\x16\x03\x01\x00\x06"
        + _SPLIT[5:11]
        + b"\x16\x03\x01"
        + (len(_SPLIT) - 11).to_bytes(2)
        + _SPLIT[11:],
    ],
    words=[b"\x16\x03\x01", b"\x01\x00", b"\x00\x00", b"\xfe\x0d"],
    repair=with_lengths,
)
RULES = Target(
    name="door-rules",
    open=stateless(read_rule),
    seeds=[
        b"example.com",
        b"GET+HEAD *.example.com:80+8080",
        b"[2001:db8::1]:443",
        b"203.0.113.7",
        b"github.door",
        b"head\n 0: 0100007F:1F90 00000000:0000 0A 0 0\n",
    ],
    words=[b"*.", b"0x7f", b":443", b"[::ffff:", b"0177", b"+", b".door"],
    max_bytes=2 << 10,
)
