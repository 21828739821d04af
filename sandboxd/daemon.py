"""Composition root: builds every part and owns the order of start and stop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from sandboxd import __version__
from sandboxd.audit import AuditLog, AuditSettings
from sandboxd.config import Config
from sandboxd.engine.contract import Engine, EngineInfo
from sandboxd.engine.docker import DockerEngine, EngineTimeouts
from sandboxd.errors import SandboxdError
from sandboxd.examination import Examiner
from sandboxd.exec_records import ExecRecords, Labels
from sandboxd.exec_shelf import ExecHouse, ShelfSettings
from sandboxd.files import FileSettings
from sandboxd.guest_install import install_guest
from sandboxd.history import History
from sandboxd.instance import StartRefused, claim
from sandboxd.isolation import cgroups, seccomp
from sandboxd.isolation import facts as host_facts
from sandboxd.isolation.disks import Disks, DiskSettings, DisksUnusable, ProofWithoutSpace
from sandboxd.isolation.host import Host
from sandboxd.isolation.layout import Layout
from sandboxd.isolation.report import Measures, Protection, assess
from sandboxd.isolation.uids import UidRange
from sandboxd.journal import DAEMON, Journal, KeptJournal
from sandboxd.metrics import Figures, MetricsServer, PortInUse
from sandboxd.policy import OPEN, STRICT, CommandChecker, InvalidPolicy, load
from sandboxd.pool import DEFAULT_ENVIRONMENT, PoolSettings, WarmPool
from sandboxd.registry.contract import Registry, SessionRecord, SessionState
from sandboxd.registry.sqlite import RegistryUnusable, SqliteRegistry
from sandboxd.reloads import Reloads
from sandboxd.sandbox import Belongings, SandboxMaker, SandboxSettings
from sandboxd.service.admin_service import AdminServicer
from sandboxd.service.exec_service import ExecServicer
from sandboxd.service.file_service import FileServicer
from sandboxd.service.keyring import Keyring, KeysUnusable
from sandboxd.service.server import ApiServer
from sandboxd.service.session_service import SessionServicer
from sandboxd.sessions import Adopted, Sessions, SessionSettings, belongings_of
from sandboxd.spool import SpoolBudget, SpoolSettings
from sandboxd.statistics import Statistics

if TYPE_CHECKING:
    from sandboxd.traces import Traces

log = structlog.get_logger()

ENGINE_SECONDS = 45.0
"""How long a start with sessions to adopt waits for the engine. Guests wait longer for us."""


class Daemon:
    """All parts of a running daemon."""

    def __init__(
        self,
        config: Config,
        pool: WarmPool,
        sessions: Sessions,
        server: ApiServer,
        journal: KeptJournal,
        metrics: MetricsServer | None,
        keyring: Keyring,
        registry: Registry,
    ) -> None:
        self.config = config
        self.pool = pool
        self.sessions = sessions
        self.server = server
        self.journal = journal
        self.metrics = metrics
        self.registry = registry
        self.reloads = Reloads()
        self.reloads.add("tokens", partial(asyncio.to_thread, keyring.reload_tokens))
        self.reloads.add("certificates", partial(asyncio.to_thread, keyring.reload_certificates))

    @property
    def status(self) -> str:
        """How it is, in one line."""
        pool, sessions = self.pool.figures, self.sessions
        text = (
            f"{sessions.active_count} sessions, {sessions.running_exec_count} commands, "
            f"{pool.warm} of {pool.target} sandboxes warm"
        )
        return f"{text}; the last start failed: {pool.last_error}" if pool.last_error else text


@asynccontextmanager
async def running(
    config: Config,
    *,
    engine: Engine | None = None,
    maker: Callable[[Engine, SandboxSettings, Host], SandboxMaker] = SandboxMaker,
    listen: bool = True,
) -> AsyncIterator[Daemon]:
    """A daemon that serves until the block ends. Leaving the block is the shutdown order.

    One that does not listen has neither server nor socket; whoever runs it calls its handlers.
    """
    async with AsyncExitStack() as stack:
        checker = _command_checker(config)
        keyring = _open_keyring(config)
        instance = claim(config, stack)
        if engine is None:
            engine = DockerEngine(url=config.docker_url, timeouts=EngineTimeouts())
        stack.push_async_callback(engine.aclose)
        registry = await _open_registry(config.state_dir / "registry.sqlite")
        stack.push_async_callback(registry.aclose)
        journal = _open_journal(config, registry, stack)
        await _check_runtime(config, engine)
        disks, disks_say = await _open_disks(config)
        if disks is None:
            config = config.with_workspace_in_memory()
        host = Host(
            uids=UidRange(start=config.sandbox_uid_start, count=config.sandbox_uid_count),
            cgroups=cgroups.detect(is_root=os.geteuid() == 0),
            disks=disks,
        )
        sandbox_settings = _sandbox_settings(config, instance)
        sandboxes = maker(engine, sandbox_settings, host)
        records = await registry.load()
        await sandboxes.keep(_kept(records))
        adopted = await _adopt(records, sandboxes, engine)
        in_use = [one.sandbox for one in adopted.values()]
        pool = await stack.enter_async_context(WarmPool(sandboxes, _pool_settings(config), in_use))
        house = _exec_house(config, journal)
        sessions = await stack.enter_async_context(
            Sessions(pool, registry, _session_settings(config), house, adopted)
        )
        if config.keep_sessions:
            stack.callback(pool.leave_used)
        examiner = await _open_examiner(config, sandboxes, sandbox_settings, stack)
        measures = _measures(config, host, sandbox_settings, disks_say)

        def protections(engine_info: EngineInfo | None) -> Sequence[Protection]:
            facts = host_facts.look(config.state_dir)
            return assess(facts, measures, engine_info, examiner.findings)

        pools = {DEFAULT_ENVIRONMENT: pool}
        server = ApiServer(
            config,
            sessions=SessionServicer(sessions, config),
            execs=ExecServicer(sessions, config, checker, journal),
            files=FileServicer(sessions, config),
            admin=AdminServicer(
                sessions,
                pools,
                config,
                engine_info=engine.info,
                image_id=lambda: sandboxes.image_id,
                protections=protections,
                journal=journal,
            ),
            journal=journal,
            keyring=keyring,
        )
        figures = Figures(sessions, pools, journal, time.monotonic())
        metrics = await _serve_metrics(config, figures, server, stack) if listen else None
        # At the end, the last first: callers hear that we leave, then how their commands ended, and
        # only then the listeners close.
        if listen:
            await server.start()
            stack.push_async_callback(server.stop)
        stack.push_async_callback(sessions.shut_down, config.drain_seconds)
        if listen:
            stack.push_async_callback(server.announce_stop)
        started = {"action": "daemon.started", "who": DAEMON, "version": __version__}
        journal.audit.tell(lambda: started)
        stack.callback(journal.audit.tell, lambda: {"action": "daemon.stopping", "who": DAEMON})
        log.info(
            "daemon.started",
            version=__version__,
            socket=str(config.api_socket) if listen else "off",
            tcp=f"{config.host}:{server.port}" if listen and config.host else "off",
        )
        yield Daemon(config, pool, sessions, server, journal, metrics, keyring, registry)
        log.info("daemon.stopping")
    log.info("daemon.stopped")


async def _adopt(
    records: Sequence[SessionRecord], sandboxes: SandboxMaker, engine: Engine
) -> Mapping[str, Adopted]:
    """Go on with the sessions that were active, all at once; those that cannot be are lost."""
    active = [one for one in records if one.state == SessionState.ACTIVE and one.sandbox_id]
    if active:
        await _wait_for(engine)

    async def adopt(record: SessionRecord) -> Adopted | None:
        try:
            found = await sandboxes.adopt(
                record.sandbox_id, uid=record.uid, belongings=belongings_of(record)
            )
        except SandboxdError as error:
            log.warning("session.not_adopted", session_id=record.session_id, error=str(error))
            return None
        return Adopted(*found) if found else None

    results = await asyncio.gather(*map(adopt, active))
    pairs = zip(active, results, strict=True)
    return {record.session_id: one for record, one in pairs if one is not None}


async def _open_examiner(
    config: Config, sandboxes: SandboxMaker, settings: SandboxSettings, stack: AsyncExitStack
) -> Examiner:
    if config.examine:
        return await stack.enter_async_context(Examiner(sandboxes, settings))
    return Examiner(sandboxes, settings, until_then="SANDBOXD_EXAMINE is off")


async def _serve_metrics(
    config: Config, figures: Figures, server: ApiServer, stack: AsyncExitStack
) -> MetricsServer | None:
    """Before the API and until after it, so that whoever asks hears when it does not serve."""
    if not config.metrics_port:
        return None
    metrics = MetricsServer(figures, port=config.metrics_port, is_serving=lambda: server.is_serving)
    try:
        return await stack.enter_async_context(metrics)
    except PortInUse as error:
        raise StartRefused(str(error)) from error


def _open_journal(config: Config, registry: Registry, stack: AsyncExitStack) -> KeptJournal:
    history = History(
        registry, per_session=config.history_per_session, in_all=config.history_in_all
    )
    stack.push_async_callback(history.aclose)
    audit = stack.enter_context(AuditLog(_audit_settings(config)))
    journal = KeptJournal(audit, history, Statistics(), _open_traces(config, stack))
    stack.callback(journal.settle)
    return journal


def _open_traces(config: Config, stack: AsyncExitStack) -> Traces | None:
    if not config.traces:
        return None
    try:
        from sandboxd.traces import Traces
    except ImportError as error:
        raise StartRefused(
            "SANDBOXD_TRACES is on, but OpenTelemetry is not installed; install sandboxd with the "
            "extra `otel`: pip install 'sandboxd[daemon,otel]'"
        ) from error
    traces = Traces(worker_id=config.worker_id)
    stack.callback(traces.close)
    return traces


def _audit_settings(config: Config) -> AuditSettings:
    return AuditSettings(
        directory=config.audit_dir,
        file_bytes=config.audit_file_mb << 20,
        total_bytes=config.audit_total_mb << 20,
        max_files=config.audit_max_files,
        max_age_seconds=config.audit_days * 86400,
    )


def _command_checker(config: Config) -> CommandChecker:
    if config.command_policy_file is None:
        return CommandChecker(OPEN if config.command_policy == OPEN.name else STRICT)
    try:
        return CommandChecker(load(config.command_policy_file))
    except InvalidPolicy as error:
        raise StartRefused(f"{config.command_policy_file}: {error}") from error


def _kept(records: Sequence[SessionRecord]) -> Sequence[Belongings]:
    """What sessions keep of sandboxes, and what they have to take from elsewhere yet."""
    unmoved = [Belongings(project_id=one.unmoved_project_id) for one in records]
    return [*map(belongings_of, records), *unmoved]


async def _wait_for(engine: Engine) -> None:
    """Give an engine that is being restarted as well the time to come back: without it no session
    can be adopted, although its sandbox goes on."""
    try:
        async with asyncio.timeout(ENGINE_SECONDS):
            while True:
                try:
                    await engine.info()
                    return
                except SandboxdError as error:
                    log.warning("engine.waited_for", error=str(error))
                await asyncio.sleep(0.5)
    except TimeoutError:
        log.error("engine.not_waited_for_any_more", seconds=ENGINE_SECONDS)


def _exec_house(config: Config, journal: Journal) -> ExecHouse:
    spools = SpoolSettings(directory=config.state_dir / "spool", max_bytes=config.spool_bytes)
    (config.state_dir / "execs").mkdir(mode=0o700, exist_ok=True)
    settings = ShelfSettings(
        spools=spools,
        session_spool_bytes=config.session_spool_bytes,
        max_running=config.max_running_execs,
        max_running_in_all=config.max_running_execs_in_all,
        max_running_of_user=config.max_user_running_execs,
        user_spool_bytes=config.max_user_spool_bytes,
        memory_seconds=config.exec_memory_minutes * 60,
    )
    return ExecHouse(
        settings,
        Labels.of(config.state_dir),
        ExecRecords(config.state_dir / "execs"),
        SpoolBudget(config.total_spool_bytes),
        journal,
    )


async def _check_runtime(config: Config, engine: Engine) -> None:
    """A runtime that the engine does not have is refused now, not at the first session."""
    if config.container_runtime is None:
        return
    try:
        runtimes = (await engine.info()).runtimes
    except SandboxdError:
        return  # the engine itself refuses it when it is back; it never takes another instead
    if config.container_runtime not in runtimes:
        raise StartRefused(
            f"the engine has no runtime {config.container_runtime}, only {', '.join(runtimes)}; "
            "register it there, or set another SANDBOXD_CONTAINER_RUNTIME"
        )


def _measures(config: Config, host: Host, settings: SandboxSettings, disks_say: str) -> Measures:
    return Measures(
        cgroups=host.cgroups,
        has_disks=host.disks is not None,
        disks_say=disks_say,
        workspace_bytes=config.workspace_bytes,
        workspace_files=config.max_total_files,
        reserve_bytes=config.disk_reserve_mb << 20,
        seccomp_digest=seccomp.digest(settings.seccomp),
        uid_start=config.sandbox_uid_start,
        uid_count=config.sandbox_uid_count,
        user=config.sandbox_user,
        runtime=config.container_runtime,
        max_sandboxes=config.max_pool_size,
        max_open_files=config.max_open_files,
    )


async def _open_disks(config: Config) -> tuple[Disks | None, str]:
    """Disks for workspaces and how they were proved, or none and why not."""
    if config.workspace_backend == "memory":
        return None, "the settings say so"
    disks = Disks(
        DiskSettings(
            directory=config.state_dir / "disks",
            mounts=config.run_dir / "mounts",
            size_bytes=config.workspace_bytes,
            max_files=config.max_total_files,
            reserve_bytes=config.disk_reserve_mb << 20,
            layout=Layout(config.workspace_layout),
        )
    )
    try:
        return disks, await disks.prove()
    except ProofWithoutSpace:
        log.error("workspaces.not_proved", why="the host's disk is full")
        return disks, (
            f"a disk of {config.workspace_bytes >> 20} MiB each, not proved at the last start "
            "because the host's disk was full"
        )
    except DisksUnusable as error:
        if config.workspace_backend == "disk":
            raise StartRefused(
                f"workspaces cannot have disks of their own here: {error}; set "
                "SANDBOXD_WORKSPACE_BACKEND=memory to keep them in memory"
            ) from error
        log.warning("workspaces.in_memory", why=str(error))
        return None, str(error)


def _open_keyring(config: Config) -> Keyring:
    try:
        return Keyring(config)
    except KeysUnusable as error:
        raise StartRefused(str(error)) from error


async def _open_registry(path: Path) -> SqliteRegistry:
    try:
        return await SqliteRegistry.open(path)
    except RegistryUnusable as error:
        raise StartRefused(
            f"the registry {path} cannot be used ({error}); if no other program has it open, move "
            "it away to start without the memory of earlier sessions"
        ) from error


def _sandbox_settings(config: Config, instance: str) -> SandboxSettings:
    runtime_dir = config.runtime_dir
    if not (runtime_dir / "bin" / "python3.11").exists():
        raise StartRefused(
            f"there is no guest runtime in {runtime_dir}; build it with ./scripts/build_images, or "
            "set SANDBOXD_GUEST_RUNTIME"
        )
    links_dir = config.run_dir / "links"
    links_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    return SandboxSettings(
        instance=instance,
        image=config.container_image,
        runtime=config.container_runtime,
        network_mode=config.docker_network_mode,
        runtime_dir=runtime_dir.resolve(),
        guest_dir=install_guest(config.state_dir),
        links_dir=links_dir,
        projects_dir=config.state_dir / "projects",
        workspace_dir=config.workspace_dir,
        workspace_bytes=config.workspace_bytes,
        workspace_files=config.max_total_files,
        max_file_bytes=config.max_file_bytes,
        layout=Layout(config.workspace_layout),
        write_bytes_per_second=config.workspace_write_mb << 20,
        user=config.sandbox_user,
        seccomp=seccomp.profile(),
        memory_bytes=config.memory_limit_bytes,
        cpu_quota_us=config.cpu_quota_us,
        max_processes=config.max_processes,
        max_open_files=config.max_open_files,
        grace_seconds=config.grace_seconds,
    )


def _pool_settings(config: Config) -> PoolSettings:
    return PoolSettings(
        target=config.pool_size,
        minimum=config.min_pool_size,
        maximum=config.max_pool_size,
        idle_seconds=config.pool_idle_seconds,
        concurrency=config.start_concurrency,
        max_queue=config.open_queue,
        wait_seconds=config.open_wait_seconds,
        health_seconds=config.health_interval_seconds,
        sweep_seconds=config.sweep_interval_seconds,
    )


def _session_settings(config: Config) -> SessionSettings:
    return SessionSettings(
        idle_seconds=config.session_timeout_minutes * 60,
        memory_seconds=config.session_memory_hours * 3600,
        max_remembered=config.max_ended_sessions,
        max_of_user=config.max_user_sessions,
        outlive_the_daemon=config.keep_sessions,
        files=FileSettings(
            workspace_dir=config.workspace_dir,
            max_file_bytes=config.max_file_bytes,
            workspace_bytes=config.workspace_bytes,
            workspace_files=config.max_total_files,
            project_bytes=config.max_project_mb << 20,
            project_files=config.max_project_files,
        ),
    )
