"""Heads of HTTP/1 messages, read strictly: what two readers could understand differently is
refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sandboxd.doors.egress_rules import HTTP_PORT, InvalidHost, normal_host

MAX_HEAD = 64 << 10
MAX_FIELDS = 100
HEAD_END = b"\r\n\r\n"
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Fields between two neighbours, which are not passed on."""
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(r"[\x21-\x7e]+", re.ASCII)
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\]+)(?::([0-9]{1,5}))?", re.ASCII)
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,8}\r\n")
_LOOSE_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")
_STATUS = re.compile(r"HTTP/1\.[01] ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")

Fields: TypeAlias = Sequence[tuple[str, str]]


class BadMessage(ValueError):
    """A message that is not passed on; the text says why."""


@dataclass(frozen=True)
class RequestHead:
    method: str
    host: str
    """In its normal form."""
    port: int
    path: str
    """With the query; empty for CONNECT."""
    fields: Fields
    """Without those between two neighbours, Host, Expect and the length."""
    length: int | None
    """Bytes of the body; None if it is in chunks."""
    expects_continue: bool
    is_newer: bool
    """Whether the client reads chunks: HTTP/1.1."""


@dataclass(frozen=True)
class ResponseHead:
    status: int
    reason: str
    fields: Fields
    """All but those between two neighbours. Without a length if the body is in chunks; with the
    encoding of the transfer if it is another."""
    length: int | None
    """Bytes of the body if the head says it."""
    is_chunked: bool


def parse_request(data: bytes) -> RequestHead:
    """A request to a proxy, from its first byte to the empty line; BadMessage."""
    first, fields = _lines(data)
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadMessage("the first line is not METHOD TARGET HTTP/1.1")
    method, target, version = words
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise BadMessage("the method or the target has a character that is not allowed")
    host, port, path = _connect_target(target) if method == "CONNECT" else _http_target(target)
    _check_host(fields, host, port, is_connect=method == "CONNECT")
    length = _body_length(fields)
    if method == "CONNECT" and length != 0:
        raise BadMessage("CONNECT has no body")
    expects = _values(fields, "expect")
    return RequestHead(
        method=method,
        host=host,
        port=port,
        path=path,
        fields=_passed_on(fields, {"host", "expect", "content-length"}),
        length=length,
        expects_continue=[value.lower() for value in expects] == ["100-continue"],
        is_newer=version == "HTTP/1.1",
    )


def parse_served_request(data: bytes) -> tuple[RequestHead, bool]:
    """A request to a server, and whether it asks for a WebSocket; BadMessage."""
    first, fields = _lines(data)
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadMessage("the first line is not METHOD PATH HTTP/1.1")
    method, path, version = words
    hosts = _values(fields, "host")
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(path) or not path.startswith("/"):
        raise BadMessage("the method or the path is not valid")
    if len(hosts) != 1:
        raise BadMessage("the field Host is missing, or there twice")
    host, port = split_authority(hosts[0], HTTP_PORT)
    head = RequestHead(
        method=method,
        host=host,
        port=port,
        path=path,
        fields=_passed_on(fields, {"host", "expect", "content-length"}),
        length=_body_length(fields),
        expects_continue=bool(_values(fields, "expect")),
        is_newer=version == "HTTP/1.1",
    )
    upgrades = [value.lower() for value in _values(fields, "upgrade")]
    return head, upgrades == ["websocket"] and method == "GET" and head.length == 0


def parse_response(data: bytes) -> ResponseHead:
    """A response of a server, from its first byte to the empty line; BadMessage."""
    first, fields = _lines(data)
    match = _STATUS.fullmatch(first)
    if match is None:
        raise BadMessage("the server does not answer in HTTP/1")
    encodings = _values(fields, "transfer-encoding")
    lengths = set(_values(fields, "content-length"))
    is_plain = not encodings and len(lengths) == 1 and _LENGTH.fullmatch(min(lengths))
    is_chunked = [value.lower() for value in encodings] == ["chunked"]
    kept = _passed_on(fields, {"content-length"} if is_chunked else set())
    others = [] if is_chunked else [("Transfer-Encoding", value) for value in encodings]
    return ResponseHead(
        status=int(match[1]),
        reason=match[2] or "",
        fields=[*kept, *others],
        length=int(min(lengths)) if is_plain else None,
        is_chunked=is_chunked,
    )


def encode(first: str, fields: Iterable[tuple[str, str]]) -> bytes:
    """A head with these fields."""
    lines = [first, *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def is_field(name: str, value: str) -> bool:
    """Whether it can be written as a field, a character for each byte."""
    return bool(_TOKEN.fullmatch(name) and _VALUE.fullmatch(value))


def chunk_size(line: bytes, *, is_answer: bool = False) -> int:
    """The number in the first line of a chunk, with its end; BadMessage. In answers it may have
    extensions, which are dropped."""
    match = (_LOOSE_CHUNK if is_answer else _CHUNK).fullmatch(line)
    if match is None:
        raise BadMessage("a chunk has no valid length")
    return int(match[1] if is_answer else line, 16)


def split_authority(text: str, default_port: int | None) -> tuple[str, int]:
    """Host in its normal form, and port; BadMessage."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise BadMessage("the host is not written as NAME or NAME:PORT")
    port = int(match[2]) if match[2] else default_port
    if port is None or not 1 <= port <= 65535:
        raise BadMessage("the port is missing or not from 1 to 65535")
    try:
        return normal_host(match[1]), port
    except InvalidHost as error:
        raise BadMessage(str(error)) from None


def _lines(data: bytes) -> tuple[str, Fields]:
    if len(data) > MAX_HEAD:
        raise BadMessage("the head is too long")
    if not data.endswith(HEAD_END) or data.count(HEAD_END) != 1:
        raise BadMessage("the head has no end")
    # One character for each byte, so that nothing is lost or changes its length.
    first, *lines = data[: -len(HEAD_END)].decode("latin-1").split("\r\n")
    if len(lines) > MAX_FIELDS:
        raise BadMessage(f"the head has more than {MAX_FIELDS} fields")
    if "\r" in first or "\n" in first:
        raise BadMessage("a line does not end with CR LF")
    return first, [_field(line) for line in lines]


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    value = value.strip(" \t")
    if not colon or not is_field(name, value):
        raise BadMessage("a header field is not written as NAME: VALUE")
    return name, value


def _connect_target(target: str) -> tuple[str, int, str]:
    host, port = split_authority(target, None)
    return host, port, ""


def _http_target(target: str) -> tuple[str, int, str]:
    scheme, separator, rest = target.partition("://")
    if not separator or scheme.lower() != "http":
        raise BadMessage(
            "a proxy is asked with a whole URL, http://HOST/PATH, and for https with CONNECT"
        )
    authority, slash, path = rest.partition("/")
    if "?" in authority or "#" in target:
        raise BadMessage("the URL has no path, or a fragment")
    host, port = split_authority(authority, HTTP_PORT)
    return host, port, f"/{path}" if slash else "/"


def _check_host(fields: Fields, host: str, port: int, *, is_connect: bool) -> None:
    """The field Host says the same as the target: a server may believe either."""
    values = _values(fields, "host")
    if len(values) > 1:
        raise BadMessage("the field Host is there twice")
    for value in values:
        named, named_port = split_authority(value, port if is_connect else HTTP_PORT)
        if (named, named_port) != (host, port):
            raise BadMessage("the field Host names another host than the target")


def _body_length(fields: Fields) -> int | None:
    encodings, lengths = _values(fields, "transfer-encoding"), _values(fields, "content-length")
    if encodings:
        if lengths or len(encodings) > 1 or encodings[0].lower() != "chunked":
            raise BadMessage("the length of the body is not clear")
        return None
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise BadMessage("the length of the body is not clear")
    return int(lengths[0]) if lengths else 0


def _values(fields: Fields, wanted: str) -> list[str]:
    return [value for name, value in fields if name.lower() == wanted]


def _passed_on(fields: Fields, dropped: set[str]) -> Fields:
    """Fields for the next neighbour, without those that Connection names."""
    named = {
        word.strip().lower() for value in _values(fields, "connection") for word in value.split(",")
    }
    unwanted = HOP_BY_HOP | dropped | (named - {"content-length", "host"})
    return [(name, value) for name, value in fields if name.lower() not in unwanted]
