"""E2B's control plane: create, find, extend and end sandboxes."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from aiohttp import web

from sandboxd_client.errors import (
    EnvironmentNotFoundError,
    ExhaustedError,
    InvalidRequestError,
    NotAuthorizedError,
    SandboxEnvironmentError,
    SandboxError,
    SessionError,
    SnapshotsOffError,
    UnauthenticatedError,
    UnavailableError,
)
from sandboxd_client.integrations.callers import Caller
from sandboxd_client.integrations.e2b.boxes import (
    END_AT,
    LABELS,
    PAUSED,
    SNAPSHOT,
    TEMPLATE,
    Boxes,
    end_of,
)
from sandboxd_client.integrations.e2b.connect import (
    Gone,
    Message,
    Refused,
    number,
    pairs,
    parsed,
)
from sandboxd_client.integrations.e2b.states import States, described_snapshot
from sandboxd_client.results import SessionInfo, StateName
from sandboxd_client.sandbox import AsyncSandbox, sandbox_of
from sandboxd_client.session import list_sessions, open_session

ENVD_VERSION = "0.6.1"
"""What E2B's SDKs may use: not metadata of files, and not entries in events, which came later."""
DEFAULT_TEMPLATES = ("", "base", "code-interpreter-v1")
DEFAULT_SECONDS, MAX_SECONDS = 300, 7 * 86400 - 120
FORK_SECONDS = 15
"""How long a fork lives unless the request says otherwise, as in E2B."""
MAX_PAGE = 1000
SAMPLE_SECONDS = 0.25
NOT_OFFERED = ("network", "volumeMounts", "iam", "mcp")


class ControlPlane:
    """Handlers of E2B's HTTP API."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._states = States(boxes)

    def routes(self) -> Sequence[web.RouteDef]:
        one = "/sandboxes/{id}"
        return [
            web.post("/v2/sandboxes", self.create),
            web.post("/sandboxes", self.create),
            web.get("/v2/sandboxes", self.list),
            web.get("/sandboxes", self.list),
            web.post(f"/v2{one}/connect", self.connect),
            web.post(f"{one}/connect", self.connect),
            web.get(one, self.info),
            web.delete(one, self.kill),
            web.post(f"{one}/timeout", self.set_timeout),
            web.get(f"{one}/metrics", self.metrics),
            web.post(f"{one}/pause", self.pause),
            web.post(f"{one}/resume", self.resume),
            web.post(f"{one}/fork", self.fork),
            web.post(f"{one}/snapshots", self.create_snapshot),
            web.get("/snapshots", self.list_snapshots),
            web.delete("/templates/{id}", self.delete_snapshot),
        ]

    async def create(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        body = await message_of(request)
        check_offered(body)
        template = str(body.get("templateID", ""))
        seconds = seconds_of(body)
        labels = {
            **pairs(body, "metadata"),
            TEMPLATE: template,
            END_AT: repr(time.time() + seconds),
        }
        try:
            if template.startswith("ses_"):
                info = await self._from_snapshot(caller, body, thread_of(request), labels)
            else:
                info = await open_session(
                    await self._boxes.sandboxes(caller).connection(),
                    caller.user_id,
                    thread_of(request),
                    idle_seconds=seconds + 60,
                    metadata=labels,
                    env=pairs(body, "envVars"),
                    environment="" if template in DEFAULT_TEMPLATES else template,
                )
        except SandboxError as error:
            return failure(error)
        access_token = self._boxes.keep(caller, info)
        return web.json_response(described(info, access_token), status=201)

    async def _from_snapshot(
        self, caller: Caller, body: Message, thread_id: str, labels: dict[str, str]
    ) -> SessionInfo:
        if pairs(body, "envVars"):
            raise Refused(
                "unimplemented", "envVars: not offered with a snapshot, which has its own"
            )
        snapshot_id = labels[TEMPLATE]
        try:
            info = await self._states.created(caller, snapshot_id, thread_id, labels)
        except Gone:
            raise not_found(f"The snapshot {snapshot_id} was not found") from None
        connection = await self._boxes.sandboxes(caller).connection()
        sandbox = sandbox_of(connection, info)
        await extend(sandbox, float(labels[END_AT]))
        return sandbox.info

    async def connect(self, request: web.Request) -> web.Response:
        """Access to a sandbox, which is resumed if it is paused; extends its time, and never
        shortens it."""
        caller = await self._boxes.caller(request)
        body = await message_of(request)
        wanted = time.time() + seconds_of(body)
        sandbox = await self._resumed(caller, request.match_info["id"], wanted)
        if sandbox is None:
            sandbox = await self._find(request)
            if wanted > end_of(sandbox.info):
                await extend(sandbox, wanted)
        return web.json_response(
            described(sandbox.info, self._boxes.keep(caller, sandbox.info)), status=200
        )

    async def _resumed(self, caller: Caller, sandbox_id: str, end_at: float) -> AsyncSandbox | None:
        """A paused sandbox, running again until then; None if it is not paused."""
        try:
            sandbox = await self._states.resumed(caller, sandbox_id)
        except (Refused, SessionError):
            return None
        await extend(sandbox, end_at)
        return sandbox

    async def resume(self, request: web.Request) -> web.Response:
        """What older SDKs call in place of `connect`."""
        caller = await self._boxes.caller(request)
        end_at = time.time() + seconds_of(await message_of(request))
        sandbox = await self._resumed(caller, request.match_info["id"], end_at)
        if sandbox is None:
            await self._find(request)  # 404 if there is none
            raise Refused("already_exists", "The sandbox runs already")
        access_token = self._boxes.keep(caller, sandbox.info)
        return web.json_response(described(sandbox.info, access_token), status=201)

    async def pause(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        if await self._paused(caller, request.match_info["id"]) is not None:
            raise Refused("already_exists", "The sandbox is paused already")
        await self._states.pause(await self._find(request), await message_of(request))
        return web.Response(status=204)

    async def fork(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        sandbox = await self._find(request)
        body = await message_of(request)
        seconds = seconds_of({"timeout": FORK_SECONDS, **body})
        connection = await self._boxes.sandboxes(caller).connection()
        answer = []
        for info in await self._states.fork(caller, sandbox, body, seconds):
            await extend(sandbox_of(connection, info), time.time() + seconds)
            answer.append({"sandbox": described(info, self._boxes.keep(caller, info))})
        return web.json_response(answer, status=201)

    async def create_snapshot(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        sandbox = await self._find(request)
        made = await self._states.take(caller, sandbox, await message_of(request))
        return web.json_response(described_snapshot(made), status=201)

    async def list_snapshots(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        found = await self._states.snapshots(caller, request.query)
        page, headers = paged(request, found)
        return web.json_response(list(map(described_snapshot, page)), headers=headers)

    async def delete_snapshot(self, request: web.Request) -> web.Response:
        """Snapshots only: templates are environments, which are not deleted from here."""
        caller = await self._boxes.caller(request)
        snapshot_id = request.match_info["id"]
        if not await self._states.delete(caller, snapshot_id):
            raise not_found(f"The snapshot {snapshot_id} was not found")
        return web.Response(status=204)

    async def info(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        paused = await self._paused(caller, request.match_info["id"])
        return web.json_response(detailed(paused or (await self._find(request)).info))

    async def kill(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        paused = await self._paused(caller, request.match_info["id"])
        if paused is not None:
            connection = await self._boxes.sandboxes(caller).connection()
            sandbox = sandbox_of(connection, paused)
        else:
            sandbox = await self._find(request)
        await sandbox.kill()
        self._boxes.forget(sandbox.session_id)
        return web.Response(status=204)

    async def set_timeout(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        sandbox = await self._find(request)
        body = await message_of(request)
        await extend(sandbox, time.time() + seconds_of(body))
        self._boxes.keep(caller, sandbox.info)
        return web.Response(status=204)

    async def list(self, request: web.Request) -> web.Response:
        caller = await self._boxes.caller(request)
        wanted = {unquote(name): unquote(value) for name, value in metadata_in(request)}
        connection = await self._boxes.sandboxes(caller).connection()
        states: tuple[StateName, ...] = ("active", "parked")
        found = [
            info
            for state in states
            for info in await list_sessions(
                connection, user_id=caller.user_id, state=state, metadata=wanted
            )
            if is_ours(info)
        ]
        page, headers = paged(request, chosen_by(request, found))
        return web.json_response(list(map(detailed, page)), headers=headers)

    async def metrics(self, request: web.Request) -> web.Response:
        """One sample of now; earlier ones are not kept."""
        sandbox = await self._find(request)
        before, start = await sandbox.get_metrics(), time.monotonic()
        await asyncio.sleep(SAMPLE_SECONDS)
        after, passed = await sandbox.get_metrics(), time.monotonic() - start
        if before is None or after is None:
            return web.json_response([])
        limits = sandbox.info.limits
        spent = after.cpu_time.ToMicroseconds() - before.cpu_time.ToMicroseconds()
        now = datetime.now(UTC)
        sample = {
            "timestamp": now.isoformat(),
            "timestampUnix": int(now.timestamp()),
            "cpuCount": cpus(sandbox.info),
            "cpuUsedPct": round(spent / 1e6 / passed * 100, 2),
            "memUsed": after.memory_bytes,
            "memTotal": limits.memory_bytes,
            "memCache": 0,
            "diskUsed": after.workspace_bytes,
            "diskTotal": limits.workspace_bytes,
        }
        return web.json_response([sample])

    async def _find(self, request: web.Request) -> AsyncSandbox:
        caller = await self._boxes.caller(request)
        sandbox_id = request.match_info["id"]
        try:
            return await self._boxes.find(caller, sandbox_id)
        except (Refused, SessionError):
            raise not_found(f"The sandbox {sandbox_id} was not found") from None

    async def _paused(self, caller: Caller, sandbox_id: str) -> SessionInfo | None:
        try:
            return await self._boxes.parked(caller, sandbox_id, PAUSED)
        except (Refused, SessionError):
            return None


def not_found(message: str) -> web.HTTPNotFound:
    return web.HTTPNotFound(
        text=json.dumps({"code": 404, "message": message}), content_type="application/json"
    )


def check_offered(body: Message) -> None:
    """Refuse what would otherwise be ignored without a word."""
    for name in NOT_OFFERED:
        if body.get(name):
            raise Refused("unimplemented", f"{name}: not offered by sandboxd")
    if body.get("autoPause") or part_is_on(body.get("autoResume")):
        raise Refused("unimplemented", "autoPause: sandboxes are ended, not paused")


def part_is_on(value: Any) -> bool:
    return bool(value.get("enabled", True)) if isinstance(value, dict) else bool(value)


def seconds_of(body: Message) -> int:
    seconds = number(body, "timeout") if body.get("timeout") is not None else DEFAULT_SECONDS
    if not 0 <= seconds <= MAX_SECONDS:
        raise Refused("invalid_argument", f"timeout: at most {MAX_SECONDS} s")
    return seconds


async def message_of(request: web.Request) -> Message:
    body = await request.read()
    if body and request.content_type != "application/json":
        raise Refused("invalid_argument", "Send the message as application/json.")
    return parsed(body)


def thread_of(request: web.Request) -> str:
    """A request that is sent again with its key gets the sandbox of the first one."""
    key = request.headers.get("Idempotency-Key", "") or secrets.token_hex(16)
    return f"e2b-{key}"[:256]


async def extend(sandbox: AsyncSandbox, end_at: float) -> None:
    await sandbox.update_metadata({END_AT: repr(end_at)})
    await sandbox.set_timeout(seconds=max(1.0, end_at - time.time() + 60))


def metadata_in(request: web.Request) -> list[tuple[str, str]]:
    return parse_qsl(request.query.get("metadata", ""), keep_blank_values=True)


def is_ours(info: SessionInfo) -> bool:
    """Whether it is a sandbox of the gateway that runs or is paused."""
    if TEMPLATE not in info.metadata or SNAPSHOT in info.metadata:
        return False
    return is_paused(info) or (info.state == "active" and end_of(info) > time.time())


def is_paused(info: SessionInfo) -> bool:
    return info.state == "parked" and PAUSED in info.metadata


def chosen_by(request: web.Request, found: Sequence[SessionInfo]) -> list[SessionInfo]:
    """Those that the filters of a request let through, in its order."""
    query = request.query
    states = [state for value in query.getall("state", []) for state in value.split(",")]
    if states:
        found = [info for info in found if state_of(info) in states]
    if template := query.get("template"):
        found = [info for info in found if info.metadata[TEMPLATE] == template]
    if after := query.get("startedAfter"):
        try:
            moment = datetime.fromisoformat(after)
        except ValueError:
            raise Refused("invalid_argument", "startedAfter: not a time") from None
        found = [info for info in found if datetime.fromisoformat(info.created_at) > moment]
    ordered = sorted(found, key=lambda info: info.created_at)
    return ordered if query.get("order") == "asc" else ordered[::-1]


def paged(
    request: web.Request, found: Sequence[SessionInfo]
) -> tuple[Sequence[SessionInfo], dict[str, str]]:
    """The page that a request asks for, and the header that leads to the next one."""
    try:
        first = int(request.query.get("nextToken", "0"))
        limit = int(request.query.get("limit", "100"))
    except ValueError:
        raise Refused("invalid_argument", "nextToken, limit: not numbers") from None
    first, limit = max(0, first), min(max(1, limit), MAX_PAGE)
    end = first + limit
    return found[first:end], {"X-Next-Token": str(end)} if len(found) > end else {}


def described(info: SessionInfo, access_token: str) -> Message:
    """A sandbox for the caller that may use it."""
    return {
        "sandboxID": info.session_id,
        "templateID": info.metadata[TEMPLATE],
        "clientID": "sandboxd",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": access_token,
        "trafficAccessToken": access_token,
        "domain": None,
    }


def detailed(info: SessionInfo) -> Message:
    return {
        "sandboxID": info.session_id,
        "templateID": info.metadata[TEMPLATE],
        "clientID": "sandboxd",
        "envdVersion": ENVD_VERSION,
        "startedAt": info.created_at,
        "endAt": datetime.fromtimestamp(end_of(info), UTC).isoformat(),
        "cpuCount": cpus(info),
        "memoryMB": info.limits.memory_bytes >> 20,
        "diskSizeMB": info.limits.workspace_bytes >> 20,
        "state": state_of(info),
        "metadata": {name: value for name, value in info.metadata.items() if name not in LABELS},
    }


def state_of(info: SessionInfo) -> str:
    return "paused" if is_paused(info) else "running"


def cpus(info: SessionInfo) -> int:
    return max(1, round(info.limits.cpu_millis / 1000))


def failure(error: SandboxError) -> web.Response:
    """An error of the daemon as E2B's API answers it."""
    return web.json_response(
        {"code": status_of(error), "message": str(error)}, status=status_of(error)
    )


def status_of(error: SandboxError) -> int:
    match error:
        case UnauthenticatedError():
            return 401
        case NotAuthorizedError():
            return 403
        case EnvironmentNotFoundError() | SessionError():
            return 404
        case SnapshotsOffError():
            return 501
        case ExhaustedError():
            return 429
        case UnavailableError():
            return 503
        case InvalidRequestError() | SandboxEnvironmentError():
            return 400
    return 500
