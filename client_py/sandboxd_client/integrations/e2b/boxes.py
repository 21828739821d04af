"""Sandboxes that were created through the gateway: who may use them, and until when."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

from aiohttp import web

from sandboxd_client.errors import SandboxError, SessionError, UnauthenticatedError
from sandboxd_client.integrations.callers import Caller, Callers
from sandboxd_client.integrations.conversation import DaemonSandboxes
from sandboxd_client.integrations.e2b.connect import Gone, Refused, refusal
from sandboxd_client.results import SessionInfo
from sandboxd_client.sandbox import AsyncSandbox
from sandboxd_client.session import close_session, get_session

TEMPLATE, END_AT = "e2b.template", "e2b.end_at"
"""Labels of a session: what it was made from, and when it ends, in seconds since 1970."""
PAUSED, SNAPSHOT, SNAPSHOT_OF = "e2b.paused", "e2b.snapshot", "e2b.snapshot_of"
"""Labels of a parked session: whether it was paused; the name of the snapshot that it is, and the
sandbox that it was taken of."""
LABELS = frozenset({TEMPLATE, END_AT, PAUSED, SNAPSHOT, SNAPSHOT_OF})
ADMIN_USER = "e2b"
ENVD_PORT, CODE_PORT = "49983", "49999"
TRAFFIC_TOKEN = "E2B-Traffic-Access-Token"
"""Where the code interpreter sends the access token for some of its calls."""
USER_HEADER = "X-Sandboxd-User"
MAX_KNOWN = 10_000
LOOK_SECONDS = 1.0
UNKNOWN_ACCESS = (
    "The gateway does not know this sandbox, perhaps because it was restarted; connect to the "
    "sandbox again."
)
_HOST = re.compile(r"(\d+)-(ses_[A-Za-z0-9]+)\..*")
_KEY_PREFIX = "e2b_"
_SECONDS = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True)
class Known:
    """What the gateway keeps about a sandbox."""

    caller: Caller
    access_token: str
    end_at: float


class Boxes:
    """Access to sandboxes. The daemon decides about API keys, which are its tokens; the access
    token of a sandbox is the gateway's own and valid until the gateway restarts."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._ended: OrderedDict[str, None] = OrderedDict()

    # --- the control plane: API keys ---

    async def caller(self, request: web.Request) -> Caller:
        """Every SDK sends a key, also one that nobody looks at; no page can without a preflight."""
        key = request.headers.get("X-API-Key", "")
        if not key:
            raise Refused("unauthenticated", "Send an API key; with --user any will do.")
        try:
            caller = await self._callers.of(token_of(key))
        except SandboxError as error:
            raise refusal(error) from error
        if caller.user_id:
            return caller
        named = request.headers.get(USER_HEADER, ADMIN_USER)
        return Caller(named, caller.name, caller.token)

    async def find(self, caller: Caller, sandbox_id: str) -> AsyncSandbox:
        """An active sandbox that belongs to the caller; SessionError otherwise."""
        sandbox = await self._callers.sandboxes(caller).connect(sandbox_id)
        if not is_of(caller, sandbox.info) or SNAPSHOT in sandbox.info.metadata:
            raise Gone(sandbox_id)
        if end_of(sandbox.info) <= time.time():
            await sandbox.kill()
            raise Gone(sandbox_id)
        return sandbox

    async def parked(self, caller: Caller, session_id: str, label: str) -> SessionInfo:
        """A parked session of the caller that was paused, or is a snapshot, as the label says."""
        info = await get_session(await self.sandboxes(caller).connection(), session_id)
        if not is_of(caller, info) or info.state != "parked" or label not in info.metadata:
            raise Gone(session_id)
        return info

    def keep(self, caller: Caller, info: SessionInfo) -> str:
        """Remember a sandbox and when it ends; returns its access token."""
        known = self._known.pop(info.session_id, None)
        if known is not None and known.caller.token == caller.token:
            access_token = known.access_token
        else:
            access_token = secrets.token_hex(24)
        self._known[info.session_id] = Known(caller, access_token, end_of(info))
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return access_token

    def forget(self, sandbox_id: str) -> None:
        """The sandbox has ended."""
        self._known.pop(sandbox_id, None)
        self._ended[sandbox_id] = None
        while len(self._ended) > MAX_KNOWN:
            self._ended.popitem(last=False)

    def sandboxes(self, caller: Caller) -> DaemonSandboxes:
        return self._callers.sandboxes(caller)

    # --- the sandbox itself: access tokens ---

    async def of(self, request: web.Request, service: str = ENVD_PORT) -> AsyncSandbox:
        """The sandbox that a request is about; `service` is the port of the handler."""
        sandbox_id, port = named_in(request)
        if port not in ("", service):
            raise Refused("unimplemented", f"Port {port} of a sandbox is not offered here.")
        known = self._known.get(sandbox_id)
        given = request.headers.get("X-Access-Token", "") or request.headers.get(TRAFFIC_TOKEN, "")
        if known is None and sandbox_id in self._ended:
            raise Gone(sandbox_id)
        if known is None:
            raise Refused("unauthenticated", UNKNOWN_ACCESS)
        is_allowed = hmac.compare_digest(given.encode(), known.access_token.encode())
        if not is_allowed and not is_signed(request, known.access_token):
            raise Refused("unauthenticated", "The access token is not that of the sandbox.")
        try:
            return await self.find(known.caller, sandbox_id)
        except SessionError:
            self.forget(sandbox_id)
            raise Gone(sandbox_id) from None
        except SandboxError as error:
            raise refusal(error, sandbox_id) from error

    # --- deadlines ---

    async def end_on_time(self) -> None:
        """End sandboxes when their time is over, for as long as this runs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.time()
            for sandbox_id, known in list(self._known.items()):
                if known.end_at <= now:
                    self.forget(sandbox_id)
                    await self._end(sandbox_id, known.caller)

    async def _end(self, sandbox_id: str, caller: Caller) -> None:
        try:
            connection = await self._callers.sandboxes(caller).connection()
            await close_session(connection, sandbox_id)
        except SandboxError:
            pass  # it expires, as it is not used


def token_of(key: str) -> str:
    """The daemon's token in an API key: the token, or e2b_ and its bytes in hexadecimal digits,
    for SDKs that want a key of that form."""
    if key.startswith(_KEY_PREFIX):
        try:
            return bytes.fromhex(key.removeprefix(_KEY_PREFIX)).decode()
        except ValueError:
            raise refusal(UnauthenticatedError("The API key is not a token of sandboxd.")) from None
    return key


def is_of(caller: Caller, info: SessionInfo) -> bool:
    """Whether it was created through the gateway, for this user."""
    return info.user_id == caller.user_id and TEMPLATE in info.metadata


def end_of(info: SessionInfo) -> float:
    try:
        return float(info.metadata[END_AT])
    except (KeyError, ValueError):
        return 0.0


def named_in(request: web.Request) -> tuple[str, str]:
    """Sandbox and port of a request: in headers, or in the name of the host."""
    sandbox_id = request.headers.get("E2b-Sandbox-Id", "")
    if sandbox_id:
        return sandbox_id, request.headers.get("E2b-Sandbox-Port", "")
    if match := _HOST.fullmatch(request.host.partition(":")[0] + "."):
        return match[2], match[1]
    raise Refused("invalid_argument", "The request does not name a sandbox.")


def has_signature(request: web.Request) -> bool:
    """Whether the address is one of a file that was signed; `is_signed` checks it."""
    return request.path == "/files" and bool(request.query.get("signature"))


def is_signed(request: web.Request, access_token: str) -> bool:
    """Whether the address itself proves that its maker has the access token, for this file."""
    if not has_signature(request):
        return False
    query = request.query
    given, expires = query["signature"], query.get("signature_expiration", "")
    if expires and not (_SECONDS.fullmatch(expires) and int(expires) > time.time()):
        return False
    operation = "read" if request.method == "GET" else "write"
    words = [query.get("path", ""), operation, query.get("username", ""), access_token]
    raw = ":".join([*words, expires] if expires else words)
    digest = base64.b64encode(hashlib.sha256(raw.encode()).digest()).rstrip(b"=").decode()
    return hmac.compare_digest(given.encode(), f"v1_{digest}".encode())
