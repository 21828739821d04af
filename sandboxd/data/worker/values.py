"""Values of PostgreSQL in text form, as JSON; nothing is lost, and nothing raises.

A value that JSON or Python cannot express, such as the date `infinity`, stays the text that
PostgreSQL writes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

Formatter = Callable[[bytes], str]
_encode = json.JSONEncoder(ensure_ascii=False).encode
_OFFSET = re.compile(r"[+-]\d\d(:\d\d){0,2}$")
_PLAIN_NUMBER = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")


class Type(NamedTuple):
    """How the values of a column are sent."""

    name: str
    """Our name: int, float, decimal, bool, text, uuid, json, timestamp, date, time, interval,
    bytes, or `list of` one of them."""
    database_name: str
    format: Formatter


def text(value: bytes) -> str:
    return _encode(value.decode(errors="replace"))


def _integer(value: bytes) -> str:
    return value.decode()


def _float(value: bytes) -> str:
    return value.decode() if _PLAIN_NUMBER.fullmatch(value) else f'"{value.decode()}"'


def _boolean(value: bytes) -> str:
    return "true" if value == b"t" else "false"


def _json(value: bytes) -> str:
    """As the database has it, but in one line: a line is a row."""
    found = value.decode(errors="replace")
    return re.sub(r"[\r\n]+", " ", found)  # inside of strings JSON has no line breaks


def _bytes(value: bytes) -> str:
    return f'"{base64.b64encode(bytes.fromhex(value[2:].decode())).decode()}"'


def _timestamp(value: bytes) -> str:
    found = value.decode()
    if found.endswith("BC") or " " not in found:
        return _encode(found)
    found = found.replace(" ", "T", 1)
    offset = _OFFSET.search(found)
    if offset and len(offset[0]) == 3:
        found += ":00"
    return f'"{found}"'


_SCALARS: Mapping[str, tuple[str, Formatter]] = {
    "int2": ("int", _integer),
    "int4": ("int", _integer),
    "int8": ("int", _integer),
    "oid": ("int", _integer),
    "float4": ("float", _float),
    "float8": ("float", _float),
    "numeric": ("decimal", text),
    "bool": ("bool", _boolean),
    "uuid": ("uuid", text),
    "json": ("json", _json),
    "jsonb": ("json", _json),
    "timestamp": ("timestamp", _timestamp),
    "timestamptz": ("timestamp", _timestamp),
    "date": ("date", text),
    "time": ("time", text),
    "interval": ("interval", text),
    "bytea": ("bytes", _bytes),
}


class Types:
    """The types of one database."""

    def __init__(self, rows: list[list[str | None]]) -> None:
        self._known = {
            int(oid or 0): (name or "", category or "", int(element or 0))
            for oid, name, category, element in rows
        }
        self._made: dict[int, Type] = {}

    def __contains__(self, oid: int) -> bool:
        return oid in self._known

    def get(self, oid: int) -> Type:
        found = self._made.get(oid)
        if found is None:
            found = self._made[oid] = self._make(oid)
        return found

    def _make(self, oid: int) -> Type:
        name, category, element = self._known.get(oid, ("unknown", "", 0))
        if category == "A" and name.startswith("_") and name != "_box":  # boxes contain commas
            inner = self.get(element)
            return Type(f"list of {inner.name}", f"{inner.database_name}[]", _array(inner.format))
        ours, format_ = _SCALARS.get(name, ("text", text))
        return Type(ours, name, format_)


_ARRAY_TOKEN = re.compile(rb'[{}]|,|"((?:[^"\\]|\\.)*)"|([^{},"]+)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


def _array(format_: Formatter) -> Formatter:
    """PostgreSQL writes `[2:3]={1,NULL,"a b"}`; the bounds before the `=` are dropped."""

    def write(value: bytes) -> str:
        start = value.index(b"=") + 1 if value.startswith(b"[") else 0
        parts: list[str] = []
        for token in _ARRAY_TOKEN.finditer(value, start):
            mark = token[0]
            if mark in (b"{", b"}", b","):
                parts.append(_MARKS[mark])
            elif token[1] is not None:
                parts.append(format_(_ESCAPED.sub(rb"\1", token[1])))
            else:
                parts.append("null" if mark == b"NULL" else format_(mark))
        return "".join(parts)

    return write


_MARKS = {b"{": "[", b"}": "]", b",": ","}
