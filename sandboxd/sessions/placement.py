"""Sessions on sandboxes: records, project files and what follows when a sandbox is lost."""

from __future__ import annotations

from dataclasses import replace

import structlog

from sandboxd.environments.environment import Environment
from sandboxd.errors import SandboxLost
from sandboxd.files import FileSettings, WorkspaceFiles
from sandboxd.registry.contract import SessionRecord
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import Adopted
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.session import Session, SessionSettings, kept_files_of
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.sessions.turns import Turns

log = structlog.get_logger()


class Placement:
    """Puts sessions on sandboxes."""

    def __init__(
        self, shared: SharedSessionState, ends: SessionEnds, expiry: SessionExpiry, turns: Turns
    ) -> None:
        self._pools = shared.pools
        self._kept_files = shared.kept_files
        self._registry = shared.registry
        self._settings = shared.settings
        self._exec_state = shared.exec_state
        self._journal = shared.journal
        self._sessions = shared.sessions
        self._tasks = shared.tasks
        self._ends = ends
        self._expiry = expiry
        self._turns = turns

    # --- new sandboxes ---

    async def assign(
        self, record: SessionRecord, sandbox: Sandbox, kept: KeptFiles
    ) -> SessionRecord:
        """Save that a session is on this sandbox, then move its earlier project files there.

        In this order, so that a daemon that starts after a crash finishes the move.
        """
        owned = sandbox.kept_files
        is_moving = kept.project_id not in ("", owned.project_id)
        record = replace(
            record,
            disk_id=owned.disk.id if owned.disk else "",
            disk_uid=owned.disk.uid if owned.disk else 0,
            uid=sandbox.uid,
            sandbox_id=sandbox.id,
            project_id=owned.project_id,
            unmoved_project_id=kept.project_id if is_moving else "",
        )
        self._kept_files.mark_used(owned)
        await self._registry.save(record)
        if not is_moving:
            return record
        await self._kept_files.move_project_files(kept, owned)
        self._kept_files.discard(KeptFiles(project_id=kept.project_id))
        moved = replace(record, unmoved_project_id="")
        self._tasks.spawn(self._registry.save(moved), "session-save")
        return moved

    def install(self, record: SessionRecord, sandbox: Sandbox) -> Session:
        """Make the session known, on this sandbox; SandboxLost if that is lost by now."""
        session = self._session(record)
        self._place(session, sandbox)
        self._sessions.put(session)
        sandbox.when_lost(lambda why: self._ends.on_sandbox_lost(session, sandbox, why))
        if not session.is_active:
            raise SandboxLost(session.record.end_reason)
        self._turns.on_placed(session)
        self._expiry.expect(session)
        return session

    # --- sessions of an earlier daemon ---

    async def restore(self, record: SessionRecord) -> None:
        """Make a session of an earlier daemon known."""
        if record.unmoved_project_id:
            record = await self._finish_move(record)
        self._sessions.put(self._session(record))

    # --- sessions of other workers ---

    def known(self, record: SessionRecord) -> Session:
        """A session that another worker had."""
        session = self._session(record)
        self._sessions.put(session)
        return session

    async def forget(self, session: Session) -> None:
        """Forget a session that other workers have had since; its snapshots stay."""
        self._kept_files.discard(kept_files_of(session.record))
        session.execs.delete()
        self._sessions.remove(session)
        await self._registry.delete([session.id])

    async def _finish_move(self, record: SessionRecord) -> SessionRecord:
        unmoved = KeptFiles(project_id=record.unmoved_project_id)
        try:
            await self._kept_files.move_project_files(unmoved, kept_files_of(record))
        except OSError as error:
            log.error("project_files.not_moved", session_id=record.session_id, error=str(error))
            return record
        self._kept_files.discard(unmoved)
        moved = replace(record, unmoved_project_id="")
        await self._registry.save(moved)
        return moved

    def adopt(self, session: Session, adopted: Adopted) -> None:
        """Continue a session of an earlier daemon on its sandbox."""
        sandbox = adopted.sandbox
        session.touch()
        self._place(session, sandbox)
        session.execs.adopt(sandbox, adopted.states)
        sandbox.when_lost(lambda why: self._ends.on_sandbox_lost(session, sandbox, why))
        log.info("session.adopted", session_id=session.id, execs=len(session.execs))

    def _place(self, session: Session, sandbox: Sandbox) -> None:
        project_dir = self._kept_files.project_dir(sandbox.kept_files)
        settings = _file_settings(sandbox.environment, self._settings, session.record.project)
        files = WorkspaceFiles(sandbox.link, settings, project_dir)
        if (meter := sandbox.meter) is not None:
            files = WorkspaceFiles(
                sandbox.link, settings, project_dir, meter.over_work, meter.moves
            )
        session.place(sandbox, files)

    def _session(self, record: SessionRecord) -> Session:
        environment = self._pools.environment(record.environment)
        code = self._settings.code
        session = Session(record, environment, self._exec_state, self._journal, code)
        session.on_change = self._turns.on_change
        session.paused_because = self._turns.paused_because
        session.is_there = self._kept_files.has
        return session


def _file_settings(
    environment: Environment, settings: SessionSettings, project: str
) -> FileSettings:
    return FileSettings(
        workspace_dir=settings.workspace_dir,
        layout=settings.layout,
        max_file_bytes=environment.max_file_bytes,
        workspace_bytes=environment.workspace_bytes,
        workspace_files=environment.workspace_files,
        project_bytes=environment.project_bytes,
        project_files=environment.project_files,
        project=project,
    )
