"""Pause, fork and snapshots of E2B's API: a sandbox keeps its files, never its memory.

A paused sandbox is a parked session. A snapshot is a fork of the sandbox that is parked at once, so
that it outlives the sandbox, as E2B's snapshots do.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from sandboxd_client.cancellation import run_or_undo
from sandboxd_client.errors import SandboxError, SessionError, SessionExistsError
from sandboxd_client.integrations.callers import Caller
from sandboxd_client.integrations.e2b.boxes import (
    END_AT,
    PAUSED,
    SNAPSHOT,
    SNAPSHOT_OF,
    TEMPLATE,
    Boxes,
)
from sandboxd_client.integrations.e2b.connect import Gone, Message, Refused, number
from sandboxd_client.results import SessionInfo
from sandboxd_client.sandbox import AsyncSandbox, sandbox_of
from sandboxd_client.session import close_session, list_sessions, open_session

MAX_FORKS = 20


class States:
    """What keeps the files of a sandbox: pauses, forks, snapshots."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    # --- pauses ---

    async def pause(self, sandbox: AsyncSandbox, body: Message) -> None:
        await check_nothing_runs(sandbox, body)
        await sandbox.update_metadata({PAUSED: "yes"})
        try:
            await sandbox.park()
        except BaseException:
            with suppress(SandboxError):
                await sandbox.update_metadata({PAUSED: None})
            raise
        self._boxes.forget(sandbox.session_id)

    async def resumed(self, caller: Caller, sandbox_id: str) -> AsyncSandbox:
        """A paused sandbox as a running one; SessionError or Gone if it is not paused."""
        paused = await self._boxes.parked(caller, sandbox_id, PAUSED)
        connection = await self._boxes.sandboxes(caller).connection()
        info = await open_session(
            connection, paused.user_id, paused.thread_id, environment=paused.environment
        )
        sandbox = sandbox_of(connection, info)
        await sandbox.update_metadata({PAUSED: None})
        return sandbox

    # --- forks ---

    async def fork(
        self, caller: Caller, sandbox: AsyncSandbox, body: Message, seconds: int
    ) -> Sequence[SessionInfo]:
        await check_nothing_runs(sandbox, body)
        count = number(body, "count") if body.get("count") is not None else 1
        if not 1 <= count <= MAX_FORKS:
            raise Refused("invalid_argument", f"count: from 1 to {MAX_FORKS}")
        threads = [f"e2b-{secrets.token_hex(16)}" for _ in range(count)]
        labels = {**sandbox.info.metadata, END_AT: repr(time.time() + seconds)}
        return await self._forked(caller, sandbox, threads, labels)

    async def _forked(
        self,
        caller: Caller,
        sandbox: AsyncSandbox,
        threads: Sequence[str],
        labels: Mapping[str, str],
    ) -> Sequence[SessionInfo]:
        """Copies, which end if the caller is gone before it knows them."""
        connection = await self._boxes.sandboxes(caller).connection()

        async def end(made: Sequence[SessionInfo]) -> None:
            for info in made:
                await close_session(connection, info.session_id)

        return await run_or_undo(
            sandbox.fork_many(len(threads), thread_ids=threads, metadata=labels), end
        )

    # --- snapshots ---

    async def take(self, caller: Caller, sandbox: AsyncSandbox, body: Message) -> SessionInfo:
        await check_nothing_runs(sandbox, body)
        name = body.get("name") or ""
        if not isinstance(name, str) or len(name) > 60 or not name.isprintable():
            raise Refused("invalid_argument", "name: text of up to 60 characters")
        info = sandbox.info
        thread_id = f"e2b-snapshot-{secrets.token_hex(16)}"
        labels = {
            TEMPLATE: info.metadata[TEMPLATE],
            SNAPSHOT: name or "-",
            SNAPSHOT_OF: info.session_id,
        }
        (made,) = await self._forked(caller, sandbox, [thread_id], labels)
        copy = sandbox_of(await self._boxes.sandboxes(caller).connection(), made)
        try:
            return await copy.park()
        except BaseException:
            await copy.kill()
            raise

    async def snapshots(self, caller: Caller, query: Mapping[str, str]) -> Sequence[SessionInfo]:
        connection = await self._boxes.sandboxes(caller).connection()
        wanted = {SNAPSHOT_OF: query["sandboxID"]} if query.get("sandboxID") else {}
        if query.get("name"):
            wanted[SNAPSHOT] = query["name"]
        found = await list_sessions(
            connection, user_id=caller.user_id, state="parked", metadata=wanted
        )
        return [info for info in found if SNAPSHOT in info.metadata]

    async def delete(self, caller: Caller, snapshot_id: str) -> bool:
        try:
            info = await self._boxes.parked(caller, snapshot_id, SNAPSHOT)
        except (Gone, SessionError):
            return False
        connection = await self._boxes.sandboxes(caller).connection()
        await sandbox_of(connection, info).kill()
        return True

    async def created(
        self, caller: Caller, snapshot_id: str, thread_id: str, labels: Mapping[str, str]
    ) -> SessionInfo:
        """A new sandbox with the files of a snapshot."""
        snapshot = await self._boxes.parked(caller, snapshot_id, SNAPSHOT)
        connection = await self._boxes.sandboxes(caller).connection()
        try:
            source = sandbox_of(connection, snapshot)
            (info,) = await self._forked(caller, source, [thread_id], labels)
        except SessionExistsError:  # the request was sent again
            info = await open_session(
                connection, caller.user_id, thread_id, environment=snapshot.environment
            )
        return info


async def check_nothing_runs(sandbox: AsyncSandbox, body: Message) -> None:
    """Refuse to lose processes, unless the caller has said that only files count."""
    if body.get("memory") is False:
        return
    if await sandbox.commands.list(running=True) or await sandbox.code.contexts():
        raise Refused(
            "failed_precondition",
            "Commands or code contexts of the sandbox run, and sandboxd keeps files, not memory: "
            'end them, or use mode="filesystem".',
        )


def described_snapshot(info: SessionInfo) -> Message:
    name = info.metadata[SNAPSHOT]
    return {"snapshotID": info.session_id, "names": [] if name == "-" else [name]}
