"""PostgreSQL's own grammar, from libpg_query, as a tree of plain dictionaries."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

MAX_TREE_BYTES = 16 << 20


class GrammarMissing(Exception):
    """libpg_query cannot be loaded."""


class NotSql(Exception):
    """The text is not a statement of PostgreSQL; `position` is that of the character, from 1."""

    def __init__(self, problem: str, position: int = 0) -> None:
        super().__init__(problem)
        self.position = position


class TooComplex(Exception):
    """The statement nests too deeply to be checked."""


class _Error(ctypes.Structure):
    _fields_ = (
        ("message", ctypes.c_char_p),
        ("funcname", ctypes.c_char_p),
        ("filename", ctypes.c_char_p),
        ("lineno", ctypes.c_int),
        ("cursorpos", ctypes.c_int),
        ("context", ctypes.c_char_p),
    )


class _ParseResult(ctypes.Structure):
    _fields_ = (
        ("parse_tree", ctypes.c_char_p),
        ("stderr_buffer", ctypes.c_char_p),
        ("error", ctypes.POINTER(_Error)),
    )


def parse(sql: str) -> list[dict[str, Any]]:
    """The statements of a text, each as a dictionary with one key, which is its kind."""
    result = _library().pg_query_parse(sql.encode())
    try:
        if result.error:
            error = result.error.contents
            raise NotSql(error.message.decode(errors="replace"), error.cursorpos)
        return _statements(result.parse_tree)
    finally:
        _library().pg_query_free_parse_result(result)


def _statements(tree: bytes) -> list[dict[str, Any]]:
    if len(tree) > MAX_TREE_BYTES:
        raise TooComplex
    try:
        found = json.loads(tree)
    except RecursionError:
        raise TooComplex from None
    return [statement["stmt"] for statement in found.get("stmts", [])]


def load() -> None:
    """GrammarMissing unless statements can be parsed."""
    _library()


@cache
def _library() -> ctypes.CDLL:
    path = _bundled() or ctypes.util.find_library("pg_query")
    if path is None:
        raise GrammarMissing("libpg_query is not installed; install the package postgast")
    try:
        library = ctypes.CDLL(path)
        library.pg_query_parse.argtypes = [ctypes.c_char_p]
        library.pg_query_parse.restype = _ParseResult
        library.pg_query_free_parse_result.argtypes = [_ParseResult]
        library.pg_query_free_parse_result.restype = None
    except (OSError, AttributeError) as error:
        raise GrammarMissing("libpg_query cannot be loaded; install postgast again") from error
    return library


def _bundled() -> str | None:
    """The library that comes with postgast, of which nothing else is used: its own reader of the
    tree refuses ordinary statements that nest fifty deep."""
    found = importlib.util.find_spec("postgast")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("libpg_query.so")
    return str(path) if path.is_file() else None
