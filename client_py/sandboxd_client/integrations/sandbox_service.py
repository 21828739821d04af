"""One object for programs that run code for agents: sandboxes by id, code, steps, history.

`SandboxService` has the methods of a service that such programs often write for themselves; each is
a thin layer over `AsyncSandbox`. Code runs under the policy `strict`, unless the configuration of
its sandbox names another one.

Example:
    import asyncio
    from sandboxd_client.integrations.sandbox_service import SandboxService

    async def main():
        async with SandboxService() as service:
            sandbox_id = await service.create_agent_sandbox(user_id=1)
            result = await service.execute_code(sandbox_id, "__result__ = {'sum': 1 + 2}")
            print(result.status, result.result)
            await service.cleanup_sandbox(sandbox_id)

    asyncio.run(main())
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import Any

from sandboxd_client.code_help import CodeLimits
from sandboxd_client.code_results import CodeFrame, CodeRun
from sandboxd_client.connection import Connection, acquire, release
from sandboxd_client.debug_results import DebugStep
from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.integrations.code_templates import (
    analysis_of_query,
    analysis_of_rows,
    processor_template,
)
from sandboxd_client.methods.admin import GET_STATISTICS
from sandboxd_client.methods.execs import LIST_EXECUTIONS
from sandboxd_client.results import Result, iso, seconds_of
from sandboxd_client.sandbox import AsyncSandbox, sandbox_of
from sandboxd_client.session import close_session, get_session, open_session
from sandboxd_client.settings import Mode, Timeouts, resolve
from sandboxd_proto.v1 import admin_service_pb2, exec_pb2, exec_service_pb2

COMPLETED, FAILED = "completed", "failed"
CONTEXT = "main"
DEFAULTS: Mapping[str, object] = {
    "max_execution_time": 30,
    "enable_debugging": True,
    "policy": "strict",
}
_LIMITS = {
    "max_memory_mb": "memory_bytes",
    "max_cpu_percent": "cpu_percent",
    "max_open_files": "open_files",
    "max_threads": "threads",
}
_NUMBERS = ("max_execution_time", *_LIMITS, "build_wait")
_OTHERS = ("enable_debugging", "policy", "environment", "packages", "egress")


async def get_db_session(data_source: str | None = None) -> str | None:
    """What `SandboxService` takes as its database: the name of a data source of the daemon.

    Without a name it is that of SANDBOXD_DATA_SOURCE, or none: then code has no database.
    """
    return data_source or os.environ.get("SANDBOXD_DATA_SOURCE") or None


class ExecutionOutcome(Result):
    """How code ended."""

    execution_id: str
    status: str
    """`completed` or `failed`; `run.status` says more."""
    result: Any
    """`__result__`, or the value of the last expression."""
    error: str | None
    """What went wrong, in one line; None if nothing did."""
    debug_info: dict[str, Any]
    """Lines of `debug`, what `inspect_var` was given, notes."""
    execution_time: float
    """Seconds."""
    stdout: str
    stderr: str

    run: CodeRun | None = None
    """The run with everything that sandboxd knows about it; None for a step of one."""

    @classmethod
    def of(cls, run: CodeRun) -> ExecutionOutcome:
        outcome = cls(
            execution_id=run.exec_id,
            status=COMPLETED if run.ok else FAILED,
            result=run.result,
            error=_what_went_wrong(run),
            debug_info=_debug_info(run),
            execution_time=run.execution_time_ms / 1000,
            stdout=run.stdout,
            stderr=run.stderr,
        )
        outcome.run = run
        return outcome


class SandboxService:
    """Sandboxes of agents, by their ids.

    The daemon is found as by `AsyncSandbox`; `database` names the data source that `db_query` and
    `query_database` use. `async with` frees the connection; sandboxes stay until they are cleaned
    up or expire.
    """

    def __init__(
        self,
        database: str | None = None,
        *,
        mode: Mode | None = None,
        server_url: str | None = None,
        token: str | None = None,
        timeouts: Timeouts | None = None,
        local_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._database = database
        self._settings = resolve(mode, server_url, token=token, local_settings=local_settings)
        self._timeouts = timeouts or Timeouts()
        self._connection: Connection | None = None
        self._sandboxes: dict[str, AsyncSandbox] = {}
        self._configs: dict[str, Mapping[str, Any]] = {}

    @classmethod
    def over(cls, connection: Connection, database: str | None = None) -> SandboxService:
        """The same over a connection that its owner frees."""
        service = cls(database, server_url="unix:/")
        service._connection = connection
        return service

    async def __aenter__(self) -> SandboxService:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Free the connection. Sandboxes stay until they expire."""
        connection, self._connection = self._connection, None
        self._sandboxes.clear()
        if connection is not None:
            await release(connection)

    # --- sandboxes ---

    async def create_agent_sandbox(
        self, user_id: int | str, config: Mapping[str, Any] | None = None
    ) -> str:
        """A new sandbox of a user; its id.

        `config` has `max_execution_time` (seconds), `max_memory_mb`, `max_cpu_percent`,
        `max_open_files`, `max_threads`, `enable_debugging`, `policy` (of code: `strict`, `open` or
        one of the daemon's), and `environment`, `packages`, `build_wait` and `egress` as
        `AsyncSandbox.create` has them.
        """
        given = _checked({**DEFAULTS, **(config or {})})
        connection = await self._connected()
        info = await open_session(
            connection,
            str(user_id),
            f"agent-{secrets.token_hex(8)}",
            environment=str(given.get("environment", "")),
            packages=given.get("packages"),
            build_wait=float(given.get("build_wait", 0)),
            egress=given.get("egress"),
            data_sources=[self._database] if self._database else (),
        )
        sandbox = sandbox_of(connection, info)
        try:
            await sandbox.code.create_context(
                CONTEXT, policy=str(given["policy"]), limits=_limits(given)
            )
        except BaseException:
            await connection.clean_up(close_session(connection, info.session_id))
            raise
        self._sandboxes[info.session_id] = sandbox
        self._configs[info.session_id] = given
        return info.session_id

    async def get_sandbox_status(self, sandbox_id: str) -> dict[str, Any]:
        """State of a sandbox, its age, and what runs in it."""
        info = await get_session(await self._connected(), sandbox_id)
        return {
            "sandbox_id": info.session_id,
            "status": info.state,
            "user_id": info.user_id,
            "created_at": info.created_at,
            "expires_at": info.expires_at,
            "running_executions": info.running_execs,
        }

    async def get_sandbox_state(self, sandbox_id: str) -> dict[str, Any]:
        """The variables of a sandbox, with type and summary."""
        sandbox = await self._sandbox(sandbox_id)
        return {"variables": await _variables(sandbox), "context": CONTEXT}

    async def cleanup_sandbox(self, sandbox_id: str) -> None:
        """End a sandbox and delete everything in it."""
        self._sandboxes.pop(sandbox_id, None)
        self._configs.pop(sandbox_id, None)
        await close_session(await self._connected(), sandbox_id)

    # --- code ---

    async def execute_code(
        self, sandbox_id: str, code: str, *, timeout: float | None = None
    ) -> ExecutionOutcome:
        """Run code; what it sets stays for the next call. An exception is an outcome too."""
        sandbox = await self._sandbox(sandbox_id)
        timeout = timeout or self._config(sandbox_id)["max_execution_time"]
        return ExecutionOutcome.of(
            await sandbox.code.run(code, context=CONTEXT, timeout=float(timeout))
        )

    async def debug_code(self, sandbox_id: str, code: str) -> AsyncGenerator[dict[str, Any], None]:
        """Run code line by line: each line with its outcome, and the variables after it."""
        sandbox = await self._sandbox(sandbox_id)
        if not self._config(sandbox_id)["enable_debugging"]:
            raise InvalidRequestError("this sandbox was created without `enable_debugging`")
        shown: dict[str, str] = {}
        previous: DebugStep | None = None
        async with sandbox.code.step_through(code, context=CONTEXT) as steps:
            async for step in steps:
                _apply(step, shown)
                if step.reason == "return":
                    continue  # of the last line, whose outcome is that of the run
                if previous is not None:
                    outcome = _line_outcome(steps.exec_id, step.stdout, step.stderr)
                    yield _line(previous, outcome, shown)
                previous = step
            assert steps.result is not None
            last = previous or _refused_line(steps.result)
            if last is not None:
                yield _line(last, ExecutionOutcome.of(steps.result), shown)

    async def quick_execute(
        self, user_id: int | str, code: str, *, timeout: float | None = None
    ) -> ExecutionOutcome:
        """Run code in a sandbox for this call only."""
        config = {} if timeout is None else {"max_execution_time": timeout}
        sandbox_id = await self.create_agent_sandbox(user_id, config)
        try:
            return await self.execute_code(sandbox_id, code)
        finally:
            await (await self._connected()).clean_up(self.cleanup_sandbox(sandbox_id))

    async def analyze_data(
        self,
        sandbox_id: str,
        data: Sequence[Mapping[str, object]] | None = None,
        *,
        query: str | None = None,
        params: Mapping[str, object] | None = None,
    ) -> ExecutionOutcome:
        """Describe each column of a table, or of what a query returns."""
        if (data is None) == (query is None):
            raise InvalidRequestError("data, query: give one of them")
        code = analysis_of_rows(data or ()) if query is None else analysis_of_query(query, params)
        return await self.execute_code(sandbox_id, code)

    async def create_processor_template(
        self, sandbox_id: str, processor_name: str = "data_processor"
    ) -> str:
        """A processor to modify and to run with `execute_code`."""
        await self._sandbox(sandbox_id)
        return processor_template(processor_name)

    async def get_available_functions(self, sandbox_id: str) -> dict[str, Any]:
        """What code can call and import in a sandbox, and its limits."""
        found = await (await self._sandbox(sandbox_id)).code.functions(CONTEXT)
        return {
            "functions": [vars(function) for function in found.functions],
            "allowed_modules": list(found.allowed_modules),
            "blocked_calls": list(found.blocked_calls),
            "limits": vars(found.limits),
        }

    async def get_code_examples(self, sandbox_id: str) -> list[dict[str, str]]:
        """Worked examples, with title and code."""
        found = await (await self._sandbox(sandbox_id)).code.functions(CONTEXT)
        return [vars(example) for example in found.examples]

    # --- the database ---

    async def query_database(
        self, sandbox_id: str, query: str, params: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Rows of a query, with parameters as `:name`, as `db_query` returns them to code."""
        sandbox = await self._with_database(sandbox_id)
        return [dict(row) for row in await sandbox.data.query(query, params)]

    async def get_database_schema(self, sandbox_id: str) -> dict[str, Any]:
        """Names of the tables, and the columns of each."""
        tables = await (await self._with_database(sandbox_id)).data.schema()
        return {
            "tables": [table.name for table in tables],
            "columns": {
                table.name: [
                    {"name": column.name, "type": column.type, "nullable": column.nullable}
                    for column in table.columns
                ]
                for table in tables
            },
        }

    # --- the past ---

    async def get_execution_history(self, sandbox_id: str) -> list[dict[str, Any]]:
        """Runs of code in a sandbox that have ended, the newest first."""
        connection = await self._connected()
        request = exec_service_pb2.ListExecutionsRequest(session_id=sandbox_id)
        found: list[dict[str, Any]] = []
        while True:
            page = await connection.call(LIST_EXECUTIONS, request)
            found += [_past(execution) for execution in page.executions if execution.context]
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def get_sandbox_statistics(self) -> dict[str, Any]:
        """Active sandboxes, success rate in percent and mean time in seconds, of all users."""
        connection = await self._connected()
        found = await connection.call(GET_STATISTICS, admin_service_pb2.GetStatisticsRequest())
        execs = found.execs
        return {
            "active_sandboxes": found.active_sandboxes,
            "total_executions": execs.durations.count,
            "success_rate": 100 * execs.success_rate,
            "average_execution_time": seconds_of(execs.durations.mean),
        }

    # --- parts ---

    async def _connected(self) -> Connection:
        if self._connection is None:
            connection = await acquire(self._settings, self._timeouts)
            if self._connection is None:
                self._connection = connection
            else:
                await release(connection)  # another task did it first
        return self._connection

    async def _sandbox(self, sandbox_id: str) -> AsyncSandbox:
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None:
            connection = await self._connected()
            sandbox = sandbox_of(connection, await get_session(connection, sandbox_id))
            self._sandboxes[sandbox_id] = sandbox
        return sandbox

    async def _with_database(self, sandbox_id: str) -> AsyncSandbox:
        sandbox = await self._sandbox(sandbox_id)
        if not sandbox.info.data_sources:
            raise InvalidRequestError(
                "this sandbox has no database: set SANDBOXD_DATA_SOURCE to the name of a data "
                "source of the daemon, and give SandboxService what get_db_session() returns"
            )
        return sandbox

    def _config(self, sandbox_id: str) -> Mapping[str, Any]:
        return self._configs.get(sandbox_id, DEFAULTS)


def _checked(config: Mapping[str, Any]) -> Mapping[str, Any]:
    known = (*_NUMBERS, *_OTHERS)
    for name, value in config.items():
        if name not in known:
            raise InvalidRequestError(f"config: {name!r} is not one of {', '.join(known)}")
        if name in _NUMBERS and not (isinstance(value, int | float) and value > 0):
            raise InvalidRequestError(f"config: {name} is a number above 0, not {value!r:.80}")
    return config


def _limits(config: Mapping[str, Any]) -> CodeLimits:
    given = {field: int(config[name]) for name, field in _LIMITS.items() if name in config}
    if "memory_bytes" in given:
        given["memory_bytes"] <<= 20
    return CodeLimits(**given)


def _what_went_wrong(run: CodeRun) -> str | None:
    if run.ok:
        return None
    if run.error is not None:
        return f"{run.error.type}: {run.error.message}"
    return run.hint or f"the run ended as {run.status}"


def _debug_info(run: CodeRun) -> dict[str, Any]:
    return {
        "logs": [dict(line) for line in run.logs if not line.variable],
        "variables": {
            line.variable: {"type": line.type, "value": line.value}
            for line in run.logs
            if line.variable
        },
        "notes": run.notes,
        "traceback": run.error.traceback if run.error is not None else None,
    }


def _past(execution: exec_pb2.Execution) -> dict[str, Any]:
    end = execution.exit
    is_good = end.reason == exec_pb2.EXIT_REASON_EXITED and end.code == 0
    return {
        "execution_id": execution.exec_id,
        "status": COMPLETED if is_good else FAILED,
        "code": execution.command,
        "started_at": iso(execution.start_time),
        "execution_time": seconds_of(end.duration),
    }


async def _variables(sandbox: AsyncSandbox) -> dict[str, str]:
    return {one.name: one.value for one in await sandbox.code.state(CONTEXT)}


def _apply(step: DebugStep, shown: dict[str, str]) -> None:
    shown.update((variable.name, variable.value) for variable in step.changed)
    for name in step.removed:
        shown.pop(name, None)


def _refused_line(run: CodeRun) -> CodeFrame | None:
    """Where code is that was refused, or is no Python: no line of it has run."""
    return run.error.frames[-1] if run.error is not None and run.error.frames else None


def _line(
    step: DebugStep | CodeFrame, outcome: ExecutionOutcome, variables: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "line_number": step.line,
        "line_code": step.source,
        "result": outcome,
        "state": {"variables": dict(variables)},
        "output": outcome.stdout,
    }


def _line_outcome(exec_id: str, stdout: str, stderr: str) -> ExecutionOutcome:
    return ExecutionOutcome(
        execution_id=exec_id,
        status=COMPLETED,
        result=None,
        error=None,
        debug_info={},
        execution_time=0.0,
        stdout=stdout,
        stderr=stderr,
    )
