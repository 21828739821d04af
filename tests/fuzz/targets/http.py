"""Requests of HTTP before a handler has them: JSON, queries, ranges, ids of events."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from typing import Any
from urllib.parse import parse_qsl

from sandboxd.http.routes import ROUTES
from sandboxd.http.transfers import Unsatisfiable, wanted_range
from sandboxd.service.in_process import CallRefused
from sandboxd.service.json_messages import (
    Method,
    Positions,
    as_json,
    from_body,
    from_query,
    problem_of,
)
from tests.fuzz.target import Target, stateless

METHODS = [Method.named(route.method) for route in ROUTES]
"""The first byte of an input says which."""
SIZE = 1000
SEEDS = (
    b'{"user_id": "ada", "threadId": "t", "idle_timeout": "60s", "metadata": {"a": "b"}}',
    b'{"shell": "echo", "timeout": "1.5s", "env": {"A": "1"}, "terminal": {"rows": 3}}',
    b'{"stdin": true, "argv": {"args": ["ls"]}, "maxOutputBytes": "10"}',
    b"page_size=5&metadata.kind=agent&with_usage=true&state=SESSION_STATE_ACTIVE",
    b"snapshot.number=3&before.label=x&path=a/b&header.mode=420",
    b"exe_1:10:0:7",
    b"bytes=10-20",
)


async def read(data: bytes) -> Hashable:
    """Whatever comes, it becomes a message that can be shown, or a refusal that can."""
    method, text = METHODS[(data or b"0")[0] % len(METHODS)], data[1:]
    pairs = parse_qsl(text.decode(errors="replace"))[:100]
    words = text.decode(errors="surrogateescape")
    return (
        _asked(method, lambda: from_body(text)),
        _asked(method, lambda: from_query(method, pairs)),
        _is_position(words),
        _ranged(words),
    )


def _asked(method: Method, fields: Callable[[], dict[str, Any]]) -> str:
    try:
        message = method.request.FromString(method.packed(fields()))
    except CallRefused as refused:
        problem = problem_of(refused)
        assert (problem.status, problem.body["reason"]) == (400, "INVALID_REQUEST")
        json.dumps(problem.body)
        return str(problem.body["violations"][0]["description"])[:20]
    json.dumps(as_json(message))
    return ",".join(field.name for field, _ in message.ListFields())


def _is_position(words: str) -> bool:
    positions = Positions.read(words)
    return positions is not None and Positions.read(str(positions)) is not None


def _ranged(words: str) -> str:
    try:
        found = wanted_range(words, SIZE)
    except Unsatisfiable:
        return "none of it"
    assert found is None or 0 <= found.begin < found.end <= SIZE
    return "whole" if found is None else "part"


HTTP_REQUESTS = Target(
    name="http-requests",
    open=stateless(read),
    seeds=[bytes([i]) + seed for i, seed in enumerate(SEEDS)],
    words=[
        *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"true", b"1e999", b"NaN", b"\\ud800"),
        *(b"&", b"=", b".", b"%00", b"%ff", b"bytes=", b"-", b"s", b"==", b'{"a":'),
    ],
)
