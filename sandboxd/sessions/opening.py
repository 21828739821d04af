"""Opens: the session of a thread is found, awaited or created."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import structlog

from sandboxd.access import current_caller
from sandboxd.cluster.contract import Mine
from sandboxd.cluster.contract import Origin as ClaimOrigin
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment
from sandboxd.errors import Draining, EnvironmentMismatch, SandboxdError, SessionExists
from sandboxd.packages import requests
from sandboxd.policy import STRICT
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.book import ThreadKey
from sandboxd.sessions.changing import kept_or, merged_env, merged_labels
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.lines import AutoSnapshot, Cause, Occasion, line_of
from sandboxd.sessions.ownership import claimed, is_same_owner, record_of
from sandboxd.sessions.placement import Placement
from sandboxd.sessions.session import Outcome, Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.snapshots.contract import Line, Snapshot
from sandboxd.tasks import run_to_end

log = structlog.get_logger()

T = TypeVar("T")

TAKEN_OVER = "another worker had it"
TAKEN = ClaimOrigin.TAKEN


@dataclass(frozen=True)
class EnvironmentConfig:
    """What a session adds to its environment."""

    packages: Sequence[str] = ()
    """As they were asked for, or in the one form that is kept and compared."""
    env_vars: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """What an open asks for. A session that is opened again, parked, stopped or expired, has what
    it had before; what is named holds instead, or is added."""

    idle_seconds: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    project_id: str = ""
    environment: str = ""
    """Empty means that of the session, or the default one for a new session."""
    environment_config: EnvironmentConfig | None = None
    """None means that of the session, or an empty one for a new session."""
    command_policy: str = ""
    """Empty means that of the session, or the one of the environment for a new session."""
    default_command_policy: str = ""
    """Used for a new session if neither the caller nor an operator names a policy."""
    data_sources: Sequence[str] = ()
    """Names of data sources, which are added to those of the session."""
    egress: Sequence[str] | None = None
    """Hosts that it may reach; None means those of the session, or of the environment for a new
    session."""
    build_wait_seconds: float = 0.0
    """How long to wait until the environment and its packages are built."""
    auto_snapshot: AutoSnapshot | None = None
    """None means that of the session, or the daemon's default for a new session; `park_seconds`
    likewise, where 0 means never."""
    park_seconds: float | None = None
    origin: Origin | None = None
    """What a fork starts with; None for any other open."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A snapshot of another session of the same user, and the project files of that session."""

    record: SessionRecord
    snapshot: Snapshot
    request_id: str = ""

    @property
    def files(self) -> FilesToRestore:
        return FilesToRestore(line_of(self.record), self.snapshot.number)


class FilesToRestore(NamedTuple):
    """A snapshot that a new sandbox gets before its first command."""

    line: Line
    number: int


class Opening:
    """Opens sessions; racing callers share one creation."""

    def __init__(
        self, shared: SharedSessionState, expiry: SessionExpiry, placement: Placement
    ) -> None:
        self._pools = shared.pools
        self._preparation = shared.preparation
        self._packages = shared.packages
        self._doors = shared.preparation.doors
        self._policies = shared.exec_state.policies
        self._registry = shared.registry
        self._settings = shared.settings
        self._quotas = shared.exec_state.quotas
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._attachments = shared.preparation.attachments
        self._expiry = expiry
        self._placement = placement
        self._lines = shared.lines
        self._kept_files = shared.kept_files
        self._ownership = shared.ownership

    async def open(self, key: ThreadKey, wanted: OpenRequest) -> tuple[Session, Outcome]:
        self._doors.check_usable(wanted.data_sources, key[0])
        is_prepared = False
        while True:
            while (replacing := self._transitions.replacing(key)) is not None:
                await asyncio.wait([replacing])
            opening = self._transitions.opening(key)
            if opening is not None:
                opened, _ = await result_of(opening)
                return await self._attach(opened, wanted)
            session = self._sessions.of_thread(key)
            if session is not None and session.is_active:
                return await self._attach(session, wanted)
            if session is not None and session.has_files and wanted.origin is not None:
                raise SessionExists(key[1])
            if is_prepared:
                break
            # Not as part of the creation that racing callers share: each waits as long as it asked.
            await self._prepare(key, session.record if session else None, wanted)
            is_prepared = True
        return await result_of(self._transitions.start_open(key, self._create(key, wanted)))

    async def _prepare(
        self, key: ThreadKey, before: SessionRecord | None, wanted: OpenRequest
    ) -> None:
        """Check what can be checked without a sandbox, then wait for what is not built yet."""
        asked = self._new_record(key, wanted, before)
        self._check(asked, wanted)
        await self._preparation.prepare(
            self._pools.get(asked.environment).environment,
            asked.packages,
            user_id=key[0],
            wait_seconds=wanted.build_wait_seconds,
        )

    def _check(self, asked: SessionRecord, wanted: OpenRequest) -> None:
        """Refuse what the caller may not ask for, or what is not there any more, also if the
        session has it from an earlier open: it comes back as it was, or not at all."""
        environment = self._pools.get(asked.environment).environment
        with _from_earlier("command_policy", is_named=bool(wanted.command_policy)):
            self._check_policy(environment, asked.command_policy)
        with _from_earlier("egress", is_named=wanted.egress is not None):
            self._doors.egress.check(asked.egress or (), environment.name)
        with _from_earlier("", is_named=False):  # those that are named were checked before
            self._doors.check_usable(asked.data_sources, asked.user_id)
        policy = self._policies.get(asked.command_policy or environment.command_policy)
        policy.check_variables({**asked.env_vars, **asked.env})

    def _check_policy(self, environment: Environment, asked: str) -> None:
        """Refuse a policy that the caller may not ask for, or that is not there any more."""
        if asked:
            self._policies.check_known(asked)
            usual = self._policies.get(environment.command_policy)
            if asked != usual.name and not self._is_up_to_clients(environment):
                current_caller().check_asks_for_policy(asked)

    async def _attach(self, session: Session, wanted: OpenRequest) -> tuple[Session, Outcome]:
        session.check_not_returning()
        if wanted.origin is not None:
            _check_is_fork(session, wanted.origin)
        session.check_project(wanted.project_id)
        _check_same(session, wanted)
        session.execs.policy.check_variables(wanted.env)
        session.touch()
        record = session.record
        changed = replace(
            record,
            idle_seconds=wanted.idle_seconds or record.idle_seconds,
            metadata=merged_labels(record.metadata, wanted.metadata),
            env=merged_env(record.env, wanted.env),
            data_sources=_data_sources(record, wanted),
            auto_snapshot=wanted.auto_snapshot or record.auto_snapshot,
            park_seconds=kept_or(record.park_seconds, wanted.park_seconds),
        )
        if changed != record:
            session.record = changed
            if changed.data_sources != record.data_sources and session.sandbox is not None:
                await self._doors.open(changed, session.sandbox)
            self._expiry.wake()
            await self._registry.save(changed)
        if changed.auto_snapshot != record.auto_snapshot:
            session.on_change(session, Occasion(cause=Cause.BASELINE))
        return session, Outcome.ATTACHED

    async def _create(self, key: ThreadKey, wanted: OpenRequest) -> tuple[Session, Outcome]:
        self._check_room_of(key[0])
        earlier = self._sessions.of_thread(key)
        if not self._ownership.is_shared:
            return await self._create_from(key, wanted, earlier)
        mine = await self._ownership.claim(*key, earlier.record if earlier else None)
        try:
            earlier = await self._taken_over(mine, earlier)
            return await self._create_from(key, wanted, earlier, mine)
        except BaseException:
            await run_to_end(self._ownership.give_back(mine))
            raise

    async def _taken_over(self, mine: Mine, known: Session | None) -> Session | None:
        """What a claimed session was before: as this daemon knows it, unless another worker had it
        since."""
        if known is not None and is_same_owner(known.record, mine):
            return known
        if known is not None and known.id == mine.session_id:
            await self._placement.forget(known)
        if not mine.head:
            return None
        try:
            record = record_of(mine.head, epoch=mine.epoch)
        except ValueError as error:
            log.error("session.head_unreadable", session_id=mine.session_id, error=str(error))
            return None
        # Also of one that was parked: a failed takeover leaves it so, and a store that forgot later
        # writes may name a snapshot that is deleted by now.
        if (mine.origin is TAKEN or record.parked_number) and self._lines.is_on:
            number = await self._last_snapshot(record)
            state = SessionState.PARKED if number else SessionState.LOST
            record = replace(record, parked_number=number, state=state)
        return self._placement.known(replace(record, end_reason=TAKEN_OVER))

    async def _last_snapshot(self, record: SessionRecord) -> int:
        """The last snapshot of a worker that was lost, perhaps before it could tell of it; 0 if
        there is none. The one that it told of may be deleted by now."""
        line = {one.number: one.notes.incarnation for one in await self._lines.find(record)}
        own = [number for number, of in line.items() if of == record.incarnation]
        newest = max([record.parked_number, *own])
        if newest in line:
            return newest
        before = [number for number, of in line.items() if of < record.incarnation]
        if newest:
            log.error("session.snapshot_missing", session_id=record.session_id, number=newest)
        return max(before, default=0) if newest else 0

    async def _create_from(
        self,
        key: ThreadKey,
        wanted: OpenRequest,
        earlier: Session | None,
        mine: Mine | None = None,
    ) -> tuple[Session, Outcome]:
        # Before a sandbox is taken. Another worker may have told of the session only now.
        asked = self._new_record(key, wanted, earlier.record if earlier else None)
        self._check(asked, wanted)
        kept = kept_files_of(earlier.record) if earlier else KeptFiles()
        if earlier is not None and not earlier.is_over:
            earlier.check_project(wanted.project_id)
        if wanted.project_id:
            project = self._attachments.asked_for(key[0], wanted.project_id)
        else:
            project = self._attachments.of(key[0], earlier.record.project if earlier else "")
        pool = self._pools.get(asked.environment)
        found = await self._packages.find(pool.environment, asked)
        with self._packages.held(found) as packages:
            sandbox = await pool.acquire(kept, user_id=key[0], attachments=[*project, *packages])
            is_kept = _is_on(sandbox, kept)
            try:
                restored = await self._fill(sandbox, earlier.record if earlier else None, wanted)
                record = self._new_record(key, wanted, earlier.record if earlier else None)
                record = replace(
                    record,
                    package_set=found.key if found else "",
                    restored_number=restored.number if restored else 0,
                )
                if mine is not None:
                    record = claimed(record, mine)
                record = await self._placement.assign(record, sandbox, kept)
                # Before anything runs in it: nobody else may use this incarnation again.
                await self._ownership.told(record.session_id)
                await self._doors.open(record, sandbox)
            except BaseException:
                self._pools.destroy(sandbox, keep=is_kept)
                raise
            if earlier is not None and earlier.is_closed:
                self._pools.destroy(sandbox, keep=is_kept)
                self._tasks.spawn(self._registry.save(earlier.record), "session-save")
                return await self._create(key, wanted)
            if earlier is not None:
                earlier.execs.delete()  # of another incarnation
            session = self._placement.install(record, sandbox)
        session.has_earlier_files = is_kept or restored is not None
        outcome = Outcome.RECREATED if earlier else Outcome.CREATED
        if earlier is not None and earlier.record.state == SessionState.PARKED:
            is_taken = mine is not None and mine.origin is TAKEN
            outcome = Outcome.RECREATED if is_taken else Outcome.UNPARKED
        log.info("session.opened", session_id=session.id, outcome=outcome.name.lower())
        return session, outcome

    async def _fill(
        self, sandbox: Sandbox, before: SessionRecord | None, wanted: OpenRequest
    ) -> FilesToRestore | None:
        """Restore what a parked session or the origin of a fork had; None if there is nothing."""
        files = _files_to_restore(before, wanted.origin)
        if files is None:
            return None
        await self._lines.restore(files.line, files.number, sandbox)
        if wanted.origin is not None and wanted.origin.record.project_id:
            source = KeptFiles(project_id=wanted.origin.record.project_id)
            await self._kept_files.copy_project_files(source, sandbox.kept_files)
        return files

    def _new_record(
        self, key: ThreadKey, wanted: OpenRequest, before: SessionRecord | None
    ) -> SessionRecord:
        now = time.time()
        environment = self._pools.get(_environment(before, wanted)).environment
        config = self._config(before, wanted, environment)
        return SessionRecord(
            session_id=before.session_id if before else f"ses_{secrets.token_hex(12)}",
            user_id=key[0],
            thread_id=key[1],
            state=SessionState.ACTIVE,
            incarnation=before.incarnation + 1 if before else 1,
            created_at=before.created_at if before else now,
            changed_at=now,
            idle_seconds=wanted.idle_seconds
            or (before.idle_seconds if before else self._settings.idle_seconds),
            metadata=merged_labels(before.metadata if before else {}, wanted.metadata),
            env=merged_env(before.env if before else {}, wanted.env),
            project=wanted.project_id or (before.project if before else ""),
            environment=environment.name,
            packages=config.packages,
            package_set=before.package_set if before and _is_same(before, config) else "",
            env_vars=config.env_vars,
            command_policy=self._policy(before, wanted, environment),
            data_sources=_data_sources(before, wanted),
            auto_snapshot=wanted.auto_snapshot
            or (before.auto_snapshot if before else self._lines.settings.auto),
            park_seconds=kept_or(
                before.park_seconds if before else self._lines.settings.park_seconds,
                wanted.park_seconds,
            ),
            forked_from=wanted.origin.record.session_id
            if wanted.origin
            else (before.forked_from if before else ""),
            fork_request=wanted.origin.request_id
            if wanted.origin
            else (before.fork_request if before else ""),
            egress=before.egress if before and wanted.egress is None else wanted.egress,
        )

    def _config(
        self, before: SessionRecord | None, wanted: OpenRequest, environment: Environment
    ) -> EnvironmentConfig:
        """What a session adds to its environment: as requested, otherwise as it did before, unless
        it was in one with packages of another kind."""
        if wanted.environment_config is not None:
            return _normal(wanted.environment_config, environment)
        if before is None:
            return EnvironmentConfig()
        earlier = self._pools.environment(before.environment) or environment
        is_same_kind = earlier.packages == environment.packages
        return EnvironmentConfig(before.packages if is_same_kind else (), before.env_vars)

    def _policy(
        self, before: SessionRecord | None, wanted: OpenRequest, environment: Environment
    ) -> str:
        """The policy that is asked for, or that the session had before, or the client's default;
        empty for that of the environment."""
        if wanted.command_policy:
            return wanted.command_policy
        if before is not None:
            return before.command_policy
        return self._default_policy(wanted.default_command_policy, environment)

    def _default_policy(self, default: str, environment: Environment) -> str:
        """A client's default, which gives way to what an operator has set: the daemon's policy, the
        environment's, or a list of those that the caller may ask for."""
        if not default or not self._is_up_to_clients(environment):
            return ""
        name = environment.strict_policy if default == STRICT.name else default
        self._policies.check_known(name)
        caller = current_caller()
        return name if not caller.policies or caller.may_ask_for_policy(name) else ""

    def _is_up_to_clients(self, environment: Environment) -> bool:
        """Whether no operator has set a policy: sessions have `open`, and any other allows less."""
        return not (environment.command_policy or self._policies.is_chosen)

    def _check_room_of(self, user_id: str) -> None:
        """Refuse another session, counting those that are being opened, this one among them."""
        if not self._quotas.limits.sessions:
            return  # and do not look through all sessions
        of_user = {key for key in self._transitions.opening_threads if key[0] == user_id}
        of_user |= {
            session.thread
            for session in self._sessions.present
            if session.record.user_id == user_id and session.is_active
        }
        self._quotas.check_sessions(len(of_user))


async def result_of(task: asyncio.Task[T]) -> T:
    """The result of an open or a reset that others may wait for too."""
    try:
        # Shielded: a caller that gives up must not take the session away from the others.
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():  # by the shutdown, not by our caller
            raise Draining from None
        raise


def _normal(config: EnvironmentConfig, environment: Environment) -> EnvironmentConfig:
    """With packages in the one form that is kept and compared."""
    return replace(config, packages=requests.normal(environment.packages, config.packages))


def _is_same(before: SessionRecord, config: EnvironmentConfig) -> bool:
    """Whether a session goes on with the packages that it had."""
    return tuple(before.packages) == tuple(config.packages)


def _environment(before: SessionRecord | None, wanted: OpenRequest) -> str:
    return wanted.environment or (before.environment if before else DEFAULT_ENVIRONMENT)


@contextmanager
def _from_earlier(option: str, *, is_named: bool) -> Iterator[None]:
    """Say of a refusal that it is about what the session has from an earlier open, and what can be
    done; nothing if the caller has named it."""
    try:
        yield
    except SandboxdError as error:
        if not is_named:
            other = f"name another {option} to open it with that, or " if option else ""
            error.add(
                f"The session has it from an earlier open; {other}close the session to begin "
                "anew, which deletes its files."
            )
        raise


def _data_sources(before: SessionRecord | None, wanted: OpenRequest) -> Sequence[str]:
    return tuple(sorted({*(before.data_sources if before else ()), *wanted.data_sources}))


def _check_same(session: Session, wanted: OpenRequest) -> None:
    """EnvironmentMismatch if an open session is not what is asked for."""
    record, config = session.record, wanted.environment_config
    if wanted.environment not in ("", record.environment):
        raise EnvironmentMismatch(
            "environment", asked=wanted.environment, current=record.environment
        )
    if wanted.command_policy not in ("", session.command_policy):
        raise EnvironmentMismatch(
            "command_policy", asked=wanted.command_policy, current=session.command_policy
        )
    # A fork that is asked for again is the one that was made, whatever changed since.
    is_fork = wanted.origin is not None
    if not is_fork and wanted.egress is not None and wanted.egress != record.egress:
        raise EnvironmentMismatch(
            "egress",
            asked=", ".join(wanted.egress),
            current=", ".join(record.egress or ()),
        )
    if config is None:
        return
    if session.environment is not None:
        config = _normal(config, session.environment)
    if config.packages != record.packages:
        raise EnvironmentMismatch(
            "packages", asked=", ".join(config.packages), current=", ".join(record.packages)
        )
    if config.env_vars != record.env_vars:
        # Only names: the values may be secrets.
        raise EnvironmentMismatch(
            "env_vars",
            asked=f"these values of {', '.join(config.env_vars)}",
            current=", ".join(record.env_vars),
        )


def _files_to_restore(before: SessionRecord | None, origin: Origin | None) -> FilesToRestore | None:
    if origin is not None:
        return origin.files
    if before is None or before.state != SessionState.PARKED:
        return None
    return FilesToRestore(line_of(before), before.parked_number)


def _check_is_fork(session: Session, origin: Origin) -> None:
    """SessionExists unless the session is the fork that the same request has made."""
    record = session.record
    made_by = (record.forked_from, record.fork_request)
    if not origin.request_id or made_by != (origin.record.session_id, origin.request_id):
        raise SessionExists(record.thread_id)


def _is_on(sandbox: Sandbox, kept: KeptFiles) -> bool:
    return kept.disk is not None and sandbox.disk == kept.disk
