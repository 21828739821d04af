"""The routes that sandboxd was designed with: `/sandbox/...`, `/files/...`, `/upload_file`.

They are for programs that were written for those, and for curl: plain JSON with text for output, in
place of the messages of the API. A session is named by its id, or by the id of the conversation
that it belongs to. docs/http.md has the table.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from aiohttp import BodyPartReader, web

from sandboxd.errors import InvalidRequest, SessionNotFound
from sandboxd.http import transfers
from sandboxd.http.api import body_of
from sandboxd.http.calls import CALLER, HttpCalls
from sandboxd.http.request_transport import connection_of
from sandboxd.service.in_process import CallRefused
from sandboxd.service.json_messages import Method, from_body, problem_of, refusal
from sandboxd_client.connection import Connection
from sandboxd_client.integrations.sandbox_service import ExecutionOutcome, SandboxService
from sandboxd_client.results import SessionInfo
from sandboxd_client.sandbox import AsyncSandbox, sandbox_of
from sandboxd_client.session import get_session, list_sessions, open_session

DEFAULT_USER = "default"
POLICY = "strict"
"""What these routes ask for when they open a session, as the documents promise it."""
MAX_STEPS = 1000
"""Steps that one answer of `debug` has."""
MAX_PARTS = 16
MAX_FIELD = 4096

Given = Mapping[str, Any]


class Visit:
    """One request: what it gives, and the SDK on its behalf."""

    def __init__(self, request: web.Request, calls: HttpCalls, given: Given) -> None:
        self.request = request
        self.calls = calls
        self.given = given
        self.connection: Connection = connection_of(request, calls)

    def text(self, *names: str, default: str = "") -> str:
        """A field of the body or of the query, under the first of these names that is there."""
        for name in names:
            value = self.given.get(name, self.request.query.get(name))
            if value not in (None, ""):
                return str(value)
        return default

    def required(self, *names: str) -> str:
        if found := self.text(*names):
            return found
        raise refusal(InvalidRequest(names[0], f"send it in the body, as {{{names[0]!r}: ...}}"))

    def table(self, name: str) -> Mapping[str, Any]:
        value = self.given.get(name) or {}
        if not isinstance(value, dict):
            raise refusal(InvalidRequest(name, "this is a JSON object"))
        return value

    def seconds(self) -> float | None:
        value = self.given.get("timeout")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise refusal(InvalidRequest("timeout", "this is a number of seconds"))
        return float(value)

    @property
    def user(self) -> str:
        return self.text("user_id", default=self.request[CALLER].user_id or DEFAULT_USER)

    @property
    def named(self) -> str:
        """The session or conversation in the path."""
        return self.request.match_info["session_id"]

    def service(self, database: str | None = None) -> SandboxService:
        return SandboxService.over(self.connection, database)

    async def session(self) -> SessionInfo:
        """The session that the path names, by its id or by its conversation."""
        found = await self.find_session(self.named)
        if found is None:
            raise refusal(SessionNotFound(self.named))
        return found

    async def find_session(self, named: str) -> SessionInfo | None:
        try:
            return await get_session(self.connection, named)
        except CallRefused as refused:
            if problem_of(refused).status not in (400, 404):
                raise
        user = self.text("user_id") or self.request[CALLER].user_id or ""
        found = await list_sessions(self.connection, user_id=user, thread_id=named, state="active")
        return found[0] if found else None

    async def sandbox(self) -> AsyncSandbox:
        return sandbox_of(self.connection, await self.session())

    async def data_source(self) -> str | None:
        """The one that is named, or the only one there is."""
        if named := self.text("data_source"):
            return named
        method = "DataService.ListDataSources"
        listed = await self.calls.call(self.request, method, {"user_id": self.user})
        names = [str(source["name"]) for source in islice(listed["dataSources"], 2)]
        return names[0] if len(names) == 1 else None


Action = Callable[[Visit], Awaitable[Any]]


def seed_routes(calls: HttpCalls) -> Iterator[web.RouteDef]:
    """All of them."""
    for (verb, path), action in _ACTIONS.items():
        yield web.route(verb, path, partial(_answer, calls, action))


async def _answer(calls: HttpCalls, action: Action, request: web.Request) -> web.StreamResponse:
    calls.identify(request)
    is_json = request.can_read_body and not request.content_type.startswith("multipart/")
    given = from_body(await body_of(request)) if is_json else {}
    answer = await action(Visit(request, calls, given))
    return answer if isinstance(answer, web.StreamResponse) else web.json_response(answer)


# --- sandboxes ---


async def _create(visit: Visit) -> Given:
    service = visit.service(await visit.data_source())
    sandbox_id = await service.create_agent_sandbox(visit.user, visit.table("config"))
    return {"sandbox_id": sandbox_id, "session_id": sandbox_id, "status": "created"}


async def _start(visit: Visit) -> Given:
    """Open the session of the conversation, or the one that ended under this id once more."""
    before = await visit.find_session(visit.named)
    config = visit.table("environment_config")
    info = await open_session(
        visit.connection,
        before.user_id if before else visit.user,
        before.thread_id if before else visit.named,
        project=visit.text("project_id"),
        environment=visit.text("environment_type", "environment"),
        packages=config.get("packages"),
        env_vars=config.get("env_vars"),
        command_policy=visit.text("command_policy"),
        default_policy=POLICY,
    )
    return _state(info)


async def _stop(visit: Visit) -> Given:
    sandbox = await visit.sandbox()
    await sandbox.kill()
    return {"session_id": sandbox.session_id, "status": "stopped"}


async def _reset(visit: Visit) -> Given:
    return _state(await (await visit.sandbox()).reset())


async def _status(visit: Visit) -> Given:
    info = await visit.session()
    usage = (await sandbox_of(visit.connection, info).get_metrics()) if _runs(info) else None
    measured = {} if usage is None else _usage(usage)
    return {**_state(info), "usage": measured}


def _usage(usage: Any) -> Given:
    return {
        "memory_bytes": usage.memory_bytes,
        "cpu_seconds": usage.cpu_time.seconds + usage.cpu_time.nanos / 1e9,
        "processes": usage.processes,
        "workspace_bytes": usage.workspace_bytes,
        "workspace_files": usage.workspace_files,
    }


def _runs(info: SessionInfo) -> bool:
    return info.state == "active"


def _state(info: SessionInfo) -> Given:
    return {
        "session_id": info.session_id,
        "sandbox_id": info.session_id,
        "status": "running" if _runs(info) else "stopped",
        "state": info.state,
        "user_id": info.user_id,
        "thread_id": info.thread_id,
        "project_id": info.project_id,
        "environment_type": info.environment,
        "workspace_dir": info.workspace_dir,
        "created_at": info.created_at,
        "expires_at": info.expires_at,
        "running_executions": info.running_execs,
    }


# --- commands and code ---


async def _execute(visit: Visit) -> Given:
    """Run code where the body has `code`, a command where it has `command`."""
    if code := visit.text("code"):
        info = await visit.session()
        service, timeout = visit.service(), visit.seconds()
        return _outcome(await service.execute_code(info.session_id, code, timeout=timeout))
    command = visit.required("command")
    done = await (await visit.sandbox()).commands.run(
        command, timeout=visit.seconds(), cwd=visit.text("working_dir", "cwd") or None
    )
    return dict(done)


async def _debug(visit: Visit) -> Given:
    info, code = await visit.session(), visit.required("code")
    steps: list[Given] = []
    async with aclosing(visit.service().debug_code(info.session_id, code)) as lines:
        async for line in lines:
            steps.append({**line, "result": _outcome(line["result"])})
            if len(steps) == MAX_STEPS:
                break
    return {"steps": steps, "complete": len(steps) < MAX_STEPS}


async def _quick_execute(visit: Visit) -> Given:
    code = visit.required("code")
    service = visit.service()
    return _outcome(await service.quick_execute(visit.user, code, timeout=visit.seconds()))


async def _analyze(visit: Visit) -> Given:
    """In the sandbox that the body names, or in one for this call only."""
    data, query = visit.given.get("data"), visit.text("query") or None
    params = visit.table("params") or None
    service = visit.service(None if query is None else await visit.data_source())
    named = visit.text("sandbox_id", "session_id")
    sandbox_id = named or await service.create_agent_sandbox(visit.user)
    try:
        return _outcome(await service.analyze_data(sandbox_id, data, query=query, params=params))
    finally:
        if not named:
            await service.cleanup_sandbox(sandbox_id)


def _outcome(outcome: ExecutionOutcome) -> Given:
    return dict(outcome)


async def _functions(visit: Visit) -> Given:
    return await visit.service().get_available_functions((await visit.session()).session_id)


async def _examples(visit: Visit) -> Given:
    info = await visit.session()
    return {"examples": await visit.service().get_code_examples(info.session_id)}


# --- databases ---


async def _query(visit: Visit) -> Given:
    info = await visit.session()
    service = visit.service(await visit.data_source())
    query, params = visit.required("query", "sql"), visit.table("params") or None
    rows = await service.query_database(info.session_id, query, params)
    return {"rows": rows, "row_count": len(rows)}


async def _schema(visit: Visit) -> Given:
    info = await visit.session()
    service = visit.service(await visit.data_source())
    return await service.get_database_schema(info.session_id)


# --- files ---


class _File(NamedTuple):
    """A file of a project, as these routes name it in one word."""

    user_id: str
    project_id: str
    name: str

    @property
    def file_id(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode().rstrip("=")

    @classmethod
    def of(cls, visit: Visit) -> _File:
        text = visit.request.match_info["file_id"]
        try:
            parts = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            user_id, project_id, name = (str(part) for part in parts)
        except (binascii.Error, ValueError, TypeError):
            problem = "this is not an id of a file; GET /files/project/PROJECT lists them"
            raise refusal(InvalidRequest("file_id", problem)) from None
        return cls(user_id, project_id, name)


def _listed(user_id: str, project_id: str, file: Given) -> Given:
    name = str(file["name"])
    return {
        "file_id": _File(user_id, project_id, name).file_id,
        "filename": name,
        "project_id": project_id,
        "size_bytes": int(file["sizeBytes"]),
        "mime_type": file["mimeType"],
        "sha256": base64.b64decode(file["sha256"]).hex(),
        "uploaded_at": file.get("createTime", ""),
    }


async def _upload_to_project(visit: Visit) -> Given:
    project_id = visit.request.match_info["project_id"]
    fields, part = await _form(visit.request)
    user_id = fields.get("user_id") or visit.user
    project = {"user_id": user_id, "project_id": project_id}
    await visit.calls.call(visit.request, "ProjectService.CreateProject", project)
    header = {"header": {**project, "name": part.filename or "file"}}
    uploaded = await _send_part(visit, "ProjectService.UploadProjectFile", header, part)
    return {**_listed(user_id, project_id, uploaded["file"]), "status": "uploaded"}


async def _list_project(visit: Visit) -> Given:
    project_id, user_id = visit.request.match_info["project_id"], visit.user
    files: list[Given] = []
    wanted = {"user_id": user_id, "project_id": project_id, "page_size": 1000}
    while True:
        method = "ProjectService.ListProjectFiles"
        page = await visit.calls.call(visit.request, method, wanted)
        files += [_listed(user_id, project_id, file) for file in page["files"]]
        if not (token := page["nextPageToken"]):
            return {"project_id": project_id, "files": files, "total_files": len(files)}
        wanted["page_token"] = token


async def _download(visit: Visit) -> web.StreamResponse:
    method = Method.named("ProjectService.DownloadProjectFile")
    fields = dict(_File.of(visit)._asdict())
    return await transfers.send(visit.request, visit.calls, method, fields)


async def _delete_file(visit: Visit) -> Given:
    file = _File.of(visit)
    await visit.calls.call(visit.request, "ProjectService.DeleteProjectFile", file._asdict())
    return {"status": "deleted", "filename": file.name}


async def _upload_file(visit: Visit) -> Given:
    fields, part = await _form(visit.request)
    name = (part.filename or "file").rpartition("/")[2]
    named = fields.get("session_id") or visit.text("session_id")
    if not named:
        problem = "send it as a field of the form, before the file"
        raise refusal(InvalidRequest("session_id", problem))
    info = await visit.find_session(named)
    if info is None:
        raise refusal(SessionNotFound(named))
    header = {"header": {"session_id": info.session_id, "path": name}}
    uploaded = await _send_part(visit, "FileService.UploadFile", header, part)
    return {
        "status": "uploaded",
        "filename": name,
        "path": f"{info.workspace_dir}/{name}",
        "size_bytes": int(uploaded["entry"]["sizeBytes"]),
    }


async def _form(request: web.Request) -> tuple[Given, BodyPartReader]:
    """The fields of a form up to its first file, and that file, of which nothing is read yet."""
    if not request.content_type.startswith("multipart/"):
        problem = "send a form (multipart/form-data) with the field `file`, as curl -F does"
        raise refusal(InvalidRequest("file", problem))
    fields: dict[str, str] = {}
    try:
        reader = await request.multipart()
        for _ in range(MAX_PARTS):
            part = await reader.next()
            if not isinstance(part, BodyPartReader):
                break
            if part.filename is not None or part.name == "file":
                return fields, part
            fields[part.name or ""] = (await _field(part)).decode(errors="replace")
    except ValueError as error:
        raise refusal(InvalidRequest("request", f"the form cannot be read: {error}")) from None
    raise refusal(InvalidRequest("file", "the form has no file"))


async def _field(part: BodyPartReader) -> bytes:
    data = b""
    while chunk := await part.read_chunk(MAX_FIELD):
        data += chunk
        if len(data) > MAX_FIELD:
            raise refusal(InvalidRequest(str(part.name)[:80], "a field of a form is too long"))
    return data


async def _send_part(
    visit: Visit, name: str, header: dict[str, Any], part: BodyPartReader
) -> dict[str, Any]:
    async def chunks() -> AsyncIterator[bytes]:
        while data := await part.read_chunk(transfers.CHUNK):
            yield data

    return await transfers.feed_into(
        visit.request, visit.calls, Method.named(name), header, chunks()
    )


_SANDBOX = "/sandbox/{session_id}"
_ACTIONS: Mapping[tuple[str, str], Action] = {
    ("POST", "/sandbox/create"): _create,
    ("POST", "/sandbox/agent/quick-execute"): _quick_execute,
    ("POST", "/sandbox/agent/analyze-data"): _analyze,
    ("DELETE", _SANDBOX): _stop,
    ("GET", f"{_SANDBOX}/status"): _status,
    ("POST", f"{_SANDBOX}/start"): _start,
    ("POST", f"{_SANDBOX}/stop"): _stop,
    ("POST", f"{_SANDBOX}/reset"): _reset,
    ("POST", f"{_SANDBOX}/execute"): _execute,
    ("POST", f"{_SANDBOX}/debug"): _debug,
    ("POST", f"{_SANDBOX}/database/query"): _query,
    ("GET", f"{_SANDBOX}/database/schema"): _schema,
    ("GET", f"{_SANDBOX}/help/functions"): _functions,
    ("GET", f"{_SANDBOX}/help/examples"): _examples,
    ("POST", "/files/upload/{project_id}"): _upload_to_project,
    ("GET", "/files/project/{project_id}"): _list_project,
    ("GET", "/files/{file_id}/download"): _download,
    ("DELETE", "/files/{file_id}"): _delete_file,
    ("POST", "/upload_file"): _upload_file,
}
