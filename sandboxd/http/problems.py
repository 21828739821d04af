"""Refusals as problem details (RFC 9457): a typed reason and what to do next."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from sandboxd.service.in_process import CallRefused
from sandboxd.service.json_messages import problem_of

CONTENT_TYPE = "application/problem+json"


def answer(refused: CallRefused) -> web.Response:
    """The answer to a call that was refused."""
    problem = problem_of(refused)
    headers = {}
    if problem.retry_after_seconds is not None:
        headers["Retry-After"] = str(math.ceil(problem.retry_after_seconds))
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _response(problem.status, problem.body, headers)


def of_http(error: web.HTTPException) -> web.Response:
    """The answer to a request that never became a call."""
    body = {"type": "about:blank", "title": error.reason, "status": error.status}
    body["detail"] = error.text or error.reason
    kept = {name: error.headers[name] for name in ("Allow", "Location") if name in error.headers}
    return _response(error.status, body, kept)


def as_text(refused: CallRefused) -> str:
    """For a stream that has begun, which can only say it in its own form."""
    return json.dumps({"error": problem_of(refused).body})


def _response(status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> web.Response:
    return web.json_response(body, status=status, headers=headers, content_type=CONTENT_TYPE)
