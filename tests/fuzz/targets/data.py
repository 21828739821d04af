"""Queries: requests at the data door, statements at the check, parameters, values."""

from __future__ import annotations

import json
from collections.abc import Hashable
from pathlib import Path

from sandboxd.data.frames import decode_request
from sandboxd.data.worker import grammar, parameters
from sandboxd.data.worker.binder import bind
from sandboxd.data.worker.failure import QueryFailure
from sandboxd.data.worker.rule import Permits, Refused, check
from sandboxd.data.worker.values import Types
from sandboxd.errors import InvalidRequest
from tests.fuzz.target import Target, stateless

CASES = json.loads((Path(__file__).parents[2] / "data" / "hostile_statements.json").read_text())
STATEMENTS = [case["sql"].encode() for case in CASES if case["engine"] == "postgresql"]
PERMITS = Permits(functions=frozenset({"count", "now", "sum"}), writes=frozenset({"public.a"}))
TYPES = Types(
    [
        ["1007", "_int4", "A", "23"],
        ["23", "int4", "N", "0"],
        ["25", "text", "S", "0"],
        ["1009", "_text", "A", "25"],
        ["1114", "timestamp", "D", "0"],
        ["701", "float8", "N", "0"],
        ["114", "json", "U", "0"],
    ]
)


async def _request(data: bytes) -> Hashable:
    try:
        request = decode_request(data)
    except InvalidRequest as error:
        return error.field
    return (request.operation, bool(request.sql), bool(request.params), request.is_repeat)


async def _statement(data: bytes) -> Hashable:
    try:
        sql = data.decode()
    except UnicodeDecodeError:
        return "text"
    bound = bind(sql)
    try:
        return check(bound.sql, PERMITS).kind
    except Refused as refused:
        return refused.rule
    except grammar.NotSql:
        return ("not sql", min(len(bound.names), 3))


async def _values(data: bytes) -> Hashable:
    try:
        values = parameters.decode(data)
        kinds = {parameters.for_postgres(name, value).type for name, value in values.items()}
        for name, value in values.items():
            parameters.for_sqlite(name, value)
    except QueryFailure as failure:
        return str(failure)[-20:]
    return tuple(sorted(kinds))


async def _array(data: bytes) -> Hashable:
    """Arrays of texts, as the database writes them, and what is no array."""
    written = TYPES.get(1009).format(b"{" + data + b"}")
    try:
        json.loads(written)
    except (ValueError, RecursionError):
        return "not an array"
    return min(len(written), 50) // 10


REQUESTS = Target(
    name="data-requests",
    open=stateless(_request),
    seeds=[
        b'{"source": "app"}\nSELECT 1\0{"id": 1}',
        b'{"operation": "schema", "table": "users", "max_rows": 5, "seconds": 1.5}\n\0',
        b'{"is_repeat": true, "max_bytes": 100}\nUPDATE a SET b = :b\0{"b": "x"}',
    ],
    words=[b'"source"', b'"operation"', b'"sources"', b"null", b"1e999", b"[[[[", b"\0", b"\n"],
)
STATEMENT = Target(
    name="data-statements",
    open=stateless(_statement),
    seeds=[*STATEMENTS, b"SELECT count(*) FROM a WHERE x = :x AND y = '12:30'::time"],
    words=[b":a", b"::", b"$$", b"E'", b"/*", b"*/", b"--", b"WITH", b"SELECT", b"(", b"pg_sleep"],
)
PARAMETERS = Target(
    name="data-parameters",
    open=stateless(_values),
    seeds=[
        b'{"a": 1, "b": "x", "c": null, "d": [1, [2, null], "q\\""], "e": {"$bytes": "AA=="}}',
        b'{"big": 123456789012345678901234567890, "f": 1.5e300, "t": true}',
    ],
    words=[b"$bytes", b"[[[[[[", b"\\u0000", b"\\ud800", b"NaN", b"1e400"],
)
ARRAYS = Target(
    name="data-arrays",
    open=stateless(_array),
    seeds=[b'a,"b c",NULL,"q\\"x\\\\"', b"{a,b},{c,d}", b'"{","}"'],
    words=[b"NULL", b'""', b"\\\\", b"{{{{", b"}}"],
)
