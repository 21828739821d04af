"""Users inside a sandbox: there is one, under E2B's name or its own."""

from __future__ import annotations

import base64
import binascii

from aiohttp import web

from sandboxd_client.integrations.e2b.connect import Refused
from sandboxd_client.sandbox import AsyncSandbox

DEFAULT_USER = "user"


def check_user(request: web.Request, sandbox: AsyncSandbox) -> None:
    """Refuse work for another user, which would otherwise be done as this one."""
    name = request.query.get("username", "") or _basic_user(request)
    if name not in ("", DEFAULT_USER):
        raise Refused(
            "invalid_argument",
            f"user: commands and files belong to the sandbox's one user, not to {name!r}",
        )


def _basic_user(request: web.Request) -> str:
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        raise Refused("invalid_argument", "Authorization: not valid") from None
