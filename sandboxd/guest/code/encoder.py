"""A result as JSON, by an encoder that notes what JSON cannot express."""

from __future__ import annotations

import sys
from base64 import b64encode
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from time import monotonic
from typing import Any
from uuid import UUID

from .summaries import cut, instance_dictionary, type_name

try:
    from _json import encode_basestring as quoted
except ImportError:
    from json.encoder import encode_basestring as quoted

MAX_DEPTH = 32
MAX_ROWS = 10_000
MAX_CONVERSIONS = 100
MAX_SAFE_INTEGER = (1 << 53) - 1
_MAX_TEXT_OF_OBJECT = 10_000
_INFINITY = float("inf")


class TooLarge(Exception):
    """The result exceeds a limit."""


class Encoder:
    """Encodes one value within a number of bytes and seconds."""

    def __init__(self, max_bytes: int, seconds: float) -> None:
        self._left = max_bytes
        self._deadline = monotonic() + seconds
        self._parts: list[str] = []
        self._open: set[int] = set()
        self.conversions: list[tuple[str, str]] = []
        self.is_cut = False

    def encode(self, value: Any) -> str:
        """Raises TooLarge."""
        self._any(value, "$", 0)
        return "".join(self._parts)

    def _put(self, text: str) -> None:
        self._left -= len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self._left < 0:
            raise TooLarge("it is larger than the limit")
        if monotonic() > self._deadline:
            raise TooLarge("it took too long to encode")
        self._parts.append(text)

    def _convert(self, path: str, what: str) -> None:
        if len(self.conversions) < MAX_CONVERSIONS:
            self.conversions.append((cut(path), cut(what)))

    def _any(self, value: Any, path: str, depth: int) -> None:
        kind = type(value)
        if value is None or kind is bool:
            self._put({None: "null", True: "true", False: "false"}[value])
        elif kind is str:
            self._text(value)
        elif kind is int:
            self._integer(value, path)
        elif kind is float:
            self._float(value, path)
        elif kind in (list, dict, tuple, set, frozenset):
            self._container(value, kind, path, depth)
        else:
            self._other(value, path, depth)

    def _text(self, value: str) -> None:
        if len(value) > self._left:
            raise TooLarge("it is larger than the limit")
        self._put(quoted(value.encode("utf-8", "replace").decode()))

    def _integer(self, value: int, path: str) -> None:
        if value.bit_length() > 8192:
            self._convert(path, f"int of {value.bit_length()} bits to hexadecimal text")
            self._text(hex(value))
            return
        if abs(value) > MAX_SAFE_INTEGER:
            self._convert(path, "int beyond 2**53, which some readers of JSON round")
        self._put(int.__repr__(value))

    def _float(self, value: float, path: str) -> None:
        if value != value or value in (_INFINITY, -_INFINITY):
            name = "NaN" if value != value else "infinity"
            self._convert(path, f"{name} to null")
            self._put("null")
        else:
            self._put(float.__repr__(value))

    def _container(self, value: Any, kind: type, path: str, depth: int) -> None:
        if id(value) in self._open:
            self._convert(path, "reference to a value that contains it to null")
            self._put("null")
        elif depth >= MAX_DEPTH:
            self.is_cut = True
            self._convert(path, f"{kind.__name__} deeper than {MAX_DEPTH} levels to null")
            self._put("null")
        else:
            self._open.add(id(value))
            if kind is dict:
                self._mapping(value, path, depth)
            else:
                self._list(value, kind, path, depth)
            self._open.discard(id(value))

    def _list(self, value: Any, kind: type, path: str, depth: int) -> None:
        if kind is not list:
            self._convert(path, f"{kind.__name__} to list")
        self._put("[")
        for index, item in enumerate(list(value)):
            if index:
                self._put(", ")
            self._any(item, f"{path}[{index}]", depth + 1)
        self._put("]")

    def _mapping(self, value: dict[Any, Any], path: str, depth: int) -> None:
        self._put("{")
        for index, (key, item) in enumerate(list(dict.items(value))):
            if index:
                self._put(", ")
            name = self._key(key, path)
            self._text(name)
            self._put(": ")
            self._any(item, f"{path}.{name[:80]}", depth + 1)
        self._put("}")

    def _key(self, key: Any, path: str) -> str:
        kind = type(key)
        if kind is str:
            return str(key)
        self._convert(path, f"key of type {type_name(key)} to text")
        if key is None or kind is bool:
            return {None: "null", True: "true", False: "false"}[key]
        return _text_of(key)

    def _other(self, value: Any, path: str, depth: int) -> None:
        """What JSON has no form for."""
        found = _of_library(value) or _of_type(value) or _of_class(value)
        if found is None:
            self._convert(path, f"{type_name(value)} to text")
            self._text(_text_of(value))
            return
        name, inner = found
        if name.endswith("cut"):
            self.is_cut = True
        self._convert(path, f"{type_name(value)} to {name}")
        if depth >= MAX_DEPTH or id(value) in self._open:
            self._put("null")
            return
        self._open.add(id(value))
        self._any(inner, path, depth + 1)
        self._open.discard(id(value))


def _text_of(value: Any) -> str:
    try:
        text = str(value)
    except Exception as error:
        return f"<{type_name(value)} whose text cannot be made: {type_name(error)}>"
    return str.__str__(text)[:_MAX_TEXT_OF_OBJECT]


def _base64(value: Any) -> str:
    return b64encode(bytes(value)).decode()


_KINDS: tuple[tuple[type, str, Any], ...] = (
    (bool, "bool", bool),
    (str, "str", str.__str__),
    (int, "int", lambda value: int.__add__(value, 0)),
    (float, "float", lambda value: float.__add__(value, 0.0)),
    (dict, "object", lambda value: dict(dict.items(value))),
    (list, "list", lambda value: list(list.__iter__(value))),
    (tuple, "list", lambda value: list(tuple.__iter__(value))),
    (set, "list", lambda value: list(set.__iter__(value))),
    (frozenset, "list", lambda value: list(frozenset.__iter__(value))),
    (bytes, "base64 text", _base64),
    (bytearray, "base64 text", _base64),
    (memoryview, "base64 text", _base64),
    (datetime, "ISO text", datetime.isoformat),
    (date, "ISO text", date.isoformat),
    (time, "ISO text", time.isoformat),
    (timedelta, "seconds", timedelta.total_seconds),
    (Decimal, "text", Decimal.__str__),
    (UUID, "text", UUID.__str__),
    (PurePath, "text", PurePath.__str__),
)


def _of_type(value: Any) -> tuple[str, Any] | None:
    for kind, name, convert in _KINDS:
        if isinstance(value, kind):
            return name, convert(value)
    return None


def _of_class(value: Any) -> tuple[str, Any] | None:
    """Instances of dataclasses, with their fields."""
    fields = getattr(type(value), "__dataclass_fields__", None)
    if type(fields) is not dict:
        return None
    inner = instance_dictionary(value) or {}
    names = [name for name in fields if type(name) is str]
    return "object", {
        name: inner[name] if name in inner else getattr(value, name, None) for name in names
    }


def _of_library(value: Any) -> tuple[str, Any] | None:
    """Values of numpy and pandas, if the code has loaded them."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    try:
        if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
            return _of_numpy(value, numpy)
        if pandas is not None:
            return _of_pandas(value, pandas)
    except AttributeError:
        pass  # something else under that name
    return None


def _of_numpy(value: Any, numpy: Any) -> tuple[str, Any]:
    if isinstance(value, numpy.ndarray):
        return "list", value.tolist()
    item = value.item()
    return ("plain value", item) if not isinstance(item, numpy.generic) else ("text", str(value))


def _names_of_index(frame: Any, pandas: Any) -> list[str]:
    """Under which names the parts of the index become columns; none if it only counts the rows."""
    index, names = frame.index, list(frame.index.names)
    counts = isinstance(index, pandas.RangeIndex) and (index.start, index.step) == (0, 1)
    if counts and names == [None]:
        return []
    found: list[str] = []
    for level, given in enumerate(names):
        unnamed = "index" if len(names) == 1 else f"level_{level}"
        name = unnamed if given is None else str(given)
        while name in found or name in frame.columns:
            name += "_"
        found.append(name)
    return found


def _of_pandas(value: Any, pandas: Any) -> tuple[str, Any] | None:
    if isinstance(value, pandas.DataFrame):
        shown = value.head(MAX_ROWS)
        records, names = shown.to_dict(orient="records"), _names_of_index(value, pandas)
        if names:
            records = [
                {**dict(zip(names, label if len(names) > 1 else (label,))), **record}  # noqa: B905
                for label, record in zip(shown.index, records)  # noqa: B905
            ]
        what = "records" + (f" with the index as {', '.join(names)}" if names else "")
        is_cut = len(value) > MAX_ROWS
        return what + (f", the first {MAX_ROWS}; cut" if is_cut else ""), records
    if isinstance(value, pandas.Series):
        is_cut = len(value) > MAX_ROWS
        named = {str(key): item for key, item in value.head(MAX_ROWS).items()}
        return "object" + (f", the first {MAX_ROWS}; cut" if is_cut else ""), named
    if isinstance(value, pandas.Index):
        return "list", value[:MAX_ROWS].tolist()
    if value is pandas.NaT or value is pandas.NA:
        return "null", None
    return None
