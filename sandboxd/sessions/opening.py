"""Opens: the session of a thread is found, awaited or created."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from sandboxd.access import current_caller
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment
from sandboxd.errors import Draining, EnvironmentMismatch
from sandboxd.packages import requests
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.book import ThreadKey
from sandboxd.sessions.changing import merged_env, merged_labels
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.placement import Placement
from sandboxd.sessions.session import Outcome, Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState

log = structlog.get_logger()

T = TypeVar("T")


@dataclass(frozen=True)
class EnvironmentConfig:
    """What a session adds to its environment."""

    packages: Sequence[str] = ()
    """As they were asked for, or in the one form that is kept and compared."""
    env_vars: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """What an open asks for."""

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
    build_wait_seconds: float = 0.0
    """How long to wait until the environment and its packages are built."""


class Opening:
    """Opens sessions; racing callers share one creation."""

    def __init__(
        self, shared: SharedSessionState, expiry: SessionExpiry, placement: Placement
    ) -> None:
        self._pools = shared.pools
        self._preparation = shared.preparation
        self._packages = shared.packages
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

    async def open(self, key: ThreadKey, wanted: OpenRequest) -> tuple[Session, Outcome]:
        is_prepared = False
        while True:
            while (resetting := self._transitions.resetting(key)) is not None:
                await asyncio.wait([resetting])
            opening = self._transitions.opening(key)
            if opening is not None:
                opened, _ = await result_of(opening)
                return await self._attach(opened, wanted)
            session = self._sessions.of_thread(key)
            if session is not None and session.is_active:
                return await self._attach(session, wanted)
            if is_prepared:
                break
            # Not as part of the creation that racing callers share: each waits as long as it asked.
            await self._prepare(key[0], session.record if session else None, wanted)
            is_prepared = True
        return await result_of(self._transitions.start_open(key, self._create(key, wanted)))

    async def _prepare(
        self, user_id: str, before: SessionRecord | None, wanted: OpenRequest
    ) -> None:
        """Check what can be checked without a sandbox, then wait for what is not built yet."""
        environment = self._pools.get(_environment(before, wanted)).environment
        config = self._config(before, wanted, environment)
        self._check_policy(environment, _policy(before, wanted), {**config.env_vars, **wanted.env})
        await self._preparation.prepare(
            environment,
            config.packages,
            user_id=user_id,
            wait_seconds=wanted.build_wait_seconds,
        )

    def _check_policy(self, environment: Environment, asked: str, env: Mapping[str, str]) -> None:
        """Refuse a policy that the caller may not ask for, and variables that it forbids."""
        usual = self._policies.get(environment.command_policy)
        policy = self._policies.get(asked) if asked else usual
        if policy.name != usual.name:
            current_caller().check_asks_for_policy(policy.name)
        policy.check_variables(env)

    async def _attach(self, session: Session, wanted: OpenRequest) -> tuple[Session, Outcome]:
        session.check_not_returning()
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
        )
        if changed != record:
            session.record = changed
            self._expiry.wake()
            await self._registry.save(changed)
        return session, Outcome.ATTACHED

    async def _create(self, key: ThreadKey, wanted: OpenRequest) -> tuple[Session, Outcome]:
        self._check_room_of(key[0])
        earlier = self._sessions.of_thread(key)
        # Refuses too many labels or variables, before a sandbox is taken.
        asked = self._new_record(key, wanted, earlier.record if earlier else None)
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
                record = self._new_record(key, wanted, earlier.record if earlier else None)
                record = replace(record, package_set=found.key if found else "")
                record = await self._placement.assign(record, sandbox, kept)
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
        session.has_earlier_files = is_kept
        outcome = Outcome.RECREATED if earlier else Outcome.CREATED
        log.info("session.opened", session_id=session.id, outcome=outcome.name.lower())
        return session, outcome

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
            idle_seconds=wanted.idle_seconds or self._settings.idle_seconds,
            metadata=merged_labels(before.metadata if before else {}, wanted.metadata),
            env=merged_env(before.env if before else {}, wanted.env),
            project=wanted.project_id or (before.project if before else ""),
            environment=environment.name,
            packages=config.packages,
            package_set=before.package_set if before and _is_same(before, config) else "",
            env_vars=config.env_vars,
            command_policy=_policy(before, wanted),
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


def _policy(before: SessionRecord | None, wanted: OpenRequest) -> str:
    """The policy that is asked for, or that an ended session had asked for, if this caller may ask
    for it too; empty for that of the environment."""
    if wanted.command_policy or before is None:
        return wanted.command_policy
    return (
        before.command_policy if current_caller().may_ask_for_policy(before.command_policy) else ""
    )


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


def _is_on(sandbox: Sandbox, kept: KeptFiles) -> bool:
    return kept.disk is not None and sandbox.disk == kept.disk
