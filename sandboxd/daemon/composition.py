"""Composition root: builds every part and owns the order of start and stop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from sandboxd import __version__
from sandboxd.access import Quotas
from sandboxd.audit import AuditLog
from sandboxd.config import Config
from sandboxd.daemon import settings
from sandboxd.daemon.adoption import Adoption
from sandboxd.daemon.cluster import cluster_key, open_cluster, open_ownership
from sandboxd.daemon.console import ConsoleLinks
from sandboxd.daemon.data import DataDoors, open_broker
from sandboxd.daemon.doors import open_doors, open_ports
from sandboxd.daemon.http import open_http
from sandboxd.daemon.instance import StartRefused, claim
from sandboxd.daemon.packages import open_packages
from sandboxd.daemon.preparation import BuiltPreparation
from sandboxd.daemon.reloads import Reloads
from sandboxd.daemon.snapshots import open_lines
from sandboxd.engine.contract import Engine, EngineInfo
from sandboxd.engine.docker import DockerEngine, EngineTimeouts
from sandboxd.environments.builder import Builder
from sandboxd.environments.catalogue import Environments
from sandboxd.environments.environment import Environment
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.records import BuildRecords
from sandboxd.errors import SandboxdError
from sandboxd.execs.policy import CommandPolicies
from sandboxd.execs.records import ExecRecords, Labels
from sandboxd.execs.session_execs import SharedExecState
from sandboxd.isolation import attachment, cgroups, namespaces
from sandboxd.isolation.kernel_memory import KernelMemoryWatch
from sandboxd.isolation.uids import UidRange
from sandboxd.observability.history import History
from sandboxd.observability.journal import DAEMON, KeptJournal
from sandboxd.observability.metrics import Exposition, Figures, MetricsServer, PortInUse
from sandboxd.observability.samples import Samples, sample_of
from sandboxd.observability.statistics import Statistics
from sandboxd.observability.strangers import StrangersLog
from sandboxd.policy import OPEN, STRICT, STRICT_NODE, InvalidPolicy, from_table, load
from sandboxd.pool.pools import Pools
from sandboxd.projects.projects import Projects, ProjectsUnusable
from sandboxd.protections.examination import Examiner
from sandboxd.protections.facts import read_host_facts
from sandboxd.protections.report import Protection, ProtectionSettings, assess
from sandboxd.registry.contract import HistoryStore, SessionRecord, SessionRegistry
from sandboxd.registry.sqlite import RegistryTooNew, RegistryUnusable, SqliteRegistry
from sandboxd.sandboxes.guest_install import install_guest
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFiles, KeptFilesStore
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.service.admin_service import AdminServicer
from sandboxd.service.cluster_service import ClusterServicer
from sandboxd.service.code_service import CodeServicer
from sandboxd.service.data_service import DataServicer
from sandboxd.service.door_service import DoorServicer
from sandboxd.service.environment_service import EnvironmentServicer
from sandboxd.service.exec_service import ExecServicer
from sandboxd.service.file_service import FileServicer
from sandboxd.service.port_service import PortServicer
from sandboxd.service.project_service import ProjectServicer
from sandboxd.service.session_service import SessionServicer
from sandboxd.service.snapshot_service import SnapshotServicer
from sandboxd.service.transport.keyring import Keyring, KeysUnusable
from sandboxd.service.transport.server import ApiServer, Servicers
from sandboxd.sessions.attachments import SessionAttachments
from sandboxd.sessions.ownership import Ownership
from sandboxd.sessions.session import kept_files_of
from sandboxd.sessions.sessions import Sessions
from sandboxd.sessions.snapshots import SessionSnapshots
from sandboxd.spool import SpoolBudget
from sandboxd.workspaces.disks import Disks, DisksUnusable, ProofWithoutSpace

if TYPE_CHECKING:
    from sandboxd.observability.traces import Traces

Opens = Callable[[AsyncExitStack], Awaitable[None]]
log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class Daemon:
    """The parts of a running daemon, for its process and for a program that embeds it."""

    config: Config
    pools: Pools
    sessions: Sessions
    server: ApiServer
    journal: KeptJournal
    metrics: MetricsServer | None
    registry: SessionRegistry
    reloads: Reloads

    @property
    def status(self) -> str:
        """The state of the daemon, in one line."""
        pools, sessions = self.pools.figures, self.sessions
        text = (
            f"{sessions.active_count} sessions, {sessions.running_exec_count} commands, "
            f"{sum(pool.warm for pool in pools)} of {sum(pool.target for pool in pools)} "
            "sandboxes warm"
        )
        if sessions.ownership.is_shared:
            text += f", {_cluster_status(sessions.ownership)}"
        last_error = next((pool.last_error for pool in pools if pool.last_error), "")
        return f"{text}; the last start failed: {last_error}" if last_error else text


def _cluster_status(ownership: Ownership) -> str:
    if not ownership.directory.is_serving:
        return "cut off from the cluster"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(ownership.workers.items()))
    return f"workers: {counts or 'not counted yet'}"


@asynccontextmanager
async def running(
    config: Config,
    *,
    engine: Engine | None = None,
    maker: Callable[[Engine, SandboxSettings, Host], SandboxMaker] = SandboxMaker,
    listen: bool = True,
) -> AsyncIterator[Daemon]:
    """A daemon that serves until the block ends. Leaving the block is the shutdown order.

    One that does not listen has neither server nor socket, unless its server is started later; its
    handlers are called directly.
    """
    async with AsyncExitStack() as stack:
        policies = await stack.enter_async_context(aclosing(_policies(config)))
        quotas = Quotas(settings.user_limits(config))
        keyring = _open_keyring(config)
        instance = claim(config, stack)
        engine = engine or DockerEngine(url=config.docker_url, timeouts=EngineTimeouts())
        stack.push_async_callback(engine.aclose)
        registry = await _open_registry(config.state_dir / "registry.sqlite", stack)
        journal = _open_journal(config, registry, stack)
        await _check_runtime(config, engine)
        disks, disks_detail, moving_problem = await _open_disks(config)
        if disks is None:
            config = config.with_workspace_in_memory()
        host = Host(
            uids=UidRange(start=config.sandbox_uid_start, count=config.sandbox_uid_count),
            cgroups=cgroups.detect(is_root=os.geteuid() == 0),
            disks=disks,
            kernel_memory=await _open_kernel_memory_watch(stack),
            attaching=await asyncio.to_thread(attachment.find_possibility, config.state_dir),
            moving_problem=moving_problem,
            doors_problem=await asyncio.to_thread(namespaces.find_network_problem),
        )
        sandbox_settings = _sandbox_settings(config, instance)
        sandboxes = maker(engine, sandbox_settings, host)
        records = await registry.load()
        kept_files = await _keep_files(sandboxes, records, stack)
        npm = settings.npm_client(config)
        environments = _environments(config, engine, sandboxes, npm, journal)
        adoption = Adoption(
            records, environments.values, sandboxes, grace_seconds=sandbox_settings.grace_seconds
        )
        pools = await stack.enter_async_context(_pools(config, sandboxes, environments, adoption))
        await stack.enter_async_context(environments)
        packages = await open_packages(config, sandboxes, host, npm, stack)
        projects = await _open_projects(config, stack)
        data = await open_broker(config, journal, stack)
        ownership = open_ownership(config, instance)
        shared = _shared_exec_state(config, policies, quotas)
        sessions = await stack.enter_async_context(
            Sessions(
                pools,
                kept_files,
                registry,
                settings.session_settings(config),
                shared,
                adoption.session_ids,
                journal,
                BuiltPreparation(
                    environments,
                    packages,
                    SessionAttachments(projects, workspace_dir=config.workspace_dir),
                    open_doors(config, host, journal, stack, [DataDoors(data)]),
                    await open_lines(config, kept_files, stack),
                    ownership,
                ),
            )
        )
        environments.session_count = sessions.count_in
        if config.keep_sessions:
            stack.callback(pools.leave_used)
        await stack.enter_async_context(
            adoption.running(sessions, pools, is_rest_left=config.keep_sessions)
        )
        examiner = await _open_examiner(config, sandboxes, pools.default.environment, stack)
        protections = partial(
            _assess_protections,
            config,
            settings.protection_settings(config, host, sandbox_settings, disks_detail),
            examiner,
        )
        servicers = Servicers(
            sessions=SessionServicer(sessions, config, console := ConsoleLinks(config, keyring)),
            execs=ExecServicer(sessions, config, journal),
            code=CodeServicer(sessions, config),
            files=FileServicer(sessions, config, journal),
            projects=ProjectServicer(projects, journal),
            snapshots=SnapshotServicer(SessionSnapshots(sessions, journal), sessions, config),
            environments=EnvironmentServicer(environments, packages, config),
            data=DataServicer(data, sessions),
            doors=DoorServicer(sessions),
            ports=PortServicer(open_ports(config, sessions, journal, stack)),
            cluster=ClusterServicer(sessions),
            admin=AdminServicer(
                sessions,
                pools,
                config,
                engine_info=engine.info,
                image_id=lambda: sandboxes.image_id(pools.default.environment),
                protections=protections,
                journal=journal,
                samples=await _take_samples(sessions, pools, journal, stack),
            ),
        )
        server = ApiServer(
            config,
            servicers,
            journal=journal,
            keyring=keyring,
            quotas=quotas,
            cluster=await open_cluster(
                config, sessions, pools, records, stack, journal.statistics.routed_calls
            ),
            cluster_key=cluster_key(config) if ownership.is_shared else b"",
        )
        exposition = Exposition(Figures(sessions, pools, journal, time.monotonic()))
        metrics = await _serve_metrics(config, exposition, server, stack) if listen else None
        # At the end, in reverse: callers learn that the daemon stops, then how their commands
        # ended, and only then the listeners close.
        stack.push_async_callback(server.stop)
        if listen:
            await _open_listeners(
                server,
                partial(console.serve, server, journal),
                partial(open_http, config, keyring, server, exposition, pools),
                stack=stack,
            )
        stack.push_async_callback(sessions.shut_down, config.drain_seconds)
        stack.push_async_callback(server.announce_stop)
        _record_start(journal, stack)
        log.info(
            "daemon.started",
            version=__version__,
            socket=str(config.api_socket) if listen else "off",
            tcp=f"{config.host}:{server.port}" if listen and config.host else "off",
        )
        yield Daemon(
            config=config,
            pools=pools,
            sessions=sessions,
            server=server,
            journal=journal,
            metrics=metrics,
            registry=registry,
            reloads=_reloads(keyring),
        )
        log.info("daemon.stopping")
    log.info("daemon.stopped")


async def _open_listeners(server: ApiServer, *further: Opens, stack: AsyncExitStack) -> None:
    await server.start()
    for open_one in further:
        await open_one(stack)


async def _take_samples(
    sessions: Sessions, pools: Pools, journal: KeptJournal, stack: AsyncExitStack
) -> Samples:
    return await stack.enter_async_context(Samples(partial(sample_of, sessions, pools, journal)))


def _assess_protections(
    config: Config,
    compared: ProtectionSettings,
    examiner: Examiner,
    engine_info: EngineInfo | None,
) -> Sequence[Protection]:
    return assess(read_host_facts(config.state_dir), compared, engine_info, examiner.findings)


def _environments(
    config: Config, engine: Engine, sandboxes: SandboxMaker, npm: NpmClient, journal: KeptJournal
) -> Environments:
    definitions = settings.definitions(config)
    environments = Environments(
        definitions,
        {name: settings.environment(config, known) for name, known in definitions.items()},
        Builder(
            engine,
            list(definitions.values()),
            settings.builder_settings(config),
            npm,
            read_file=sandboxes.read_file,
        ),
        BuildRecords(config.state_dir / "environments"),
        builds_at_once=config.environment_builds,
        build_seconds=config.environment_build_seconds,
    )
    environments.on_event = journal.on_environment
    return environments


def _pools(
    config: Config, sandboxes: SandboxMaker, environments: Environments, adoption: Adoption
) -> Pools:
    """The pools, which follow what is built and deleted."""
    pools = Pools(
        sandboxes,
        environments.values,
        settings.pool_settings(config),
        sweep_seconds=config.sweep_interval_seconds,
        expected=adoption.expected,
    )
    for environment in environments.values:
        if not environments.is_ready(environment.name):
            pools.withdraw(environment.name)
    environments.on_ready = pools.use
    environments.on_withdrawn = pools.withdraw
    pools.on_image_missing = environments.on_image_missing
    return pools


async def _open_kernel_memory_watch(stack: AsyncExitStack) -> KernelMemoryWatch | None:
    """None without root: processes of another user show neither namespaces nor sockets."""
    if os.geteuid() != 0:
        return None
    return await stack.enter_async_context(KernelMemoryWatch())


async def _open_examiner(
    config: Config, sandboxes: SandboxMaker, environment: Environment, stack: AsyncExitStack
) -> Examiner:
    if config.examine:
        return await stack.enter_async_context(Examiner(sandboxes, environment))
    return Examiner(sandboxes, environment, why_not_yet="SANDBOXD_EXAMINE is off")


async def _serve_metrics(
    config: Config, exposition: Exposition, server: ApiServer, stack: AsyncExitStack
) -> MetricsServer | None:
    """Served from before the API starts until after it stops, to say that it does not serve."""
    if not config.metrics_port:
        return None
    metrics = MetricsServer(
        exposition, port=config.metrics_port, is_serving=lambda: server.is_serving
    )
    try:
        return await stack.enter_async_context(metrics)
    except PortInUse as error:
        raise StartRefused(str(error)) from error


def _open_journal(config: Config, store: HistoryStore, stack: AsyncExitStack) -> KeptJournal:
    history = History(store, per_session=config.history_per_session, in_all=config.history_in_all)
    stack.push_async_callback(history.aclose)
    audit = stack.enter_context(AuditLog(settings.audit_settings(config)))
    strangers = StrangersLog(stack.enter_context(AuditLog(settings.strangers_log_settings(config))))
    stack.callback(strangers.flush)
    journal = KeptJournal(audit, history, Statistics(), strangers, _open_traces(config, stack))
    stack.callback(journal.flush)
    return journal


def _record_start(journal: KeptJournal, stack: AsyncExitStack) -> None:
    """In both logs, so that neither is ever empty; the stop only where known callers are."""
    started = {"action": "daemon.started", "who": DAEMON, "version": __version__}
    for audit in (journal.audit, journal.strangers.audit):
        audit.append(lambda: started)
    stack.callback(journal.audit.append, lambda: {"action": "daemon.stopping", "who": DAEMON})


def _open_traces(config: Config, stack: AsyncExitStack) -> Traces | None:
    if not config.traces:
        return None
    try:
        from sandboxd.observability.traces import Traces
    except ImportError as error:
        raise StartRefused(
            "SANDBOXD_TRACES is on, but OpenTelemetry is not installed; install sandboxd with the "
            "extra `otel`: pip install 'sandboxd[daemon,otel]'"
        ) from error
    traces = Traces(worker_id=config.worker_id)
    stack.callback(traces.close)
    return traces


def _policies(config: Config) -> CommandPolicies:
    found = [STRICT, STRICT_NODE, OPEN]
    if config.command_policy_file is not None:
        try:
            found.append(load(config.command_policy_file))
        except InvalidPolicy as error:
            raise StartRefused(f"{config.command_policy_file}: {error}") from error
    for name, table in config.policies.items():
        try:
            found.append(from_table(name, table))
        except InvalidPolicy as error:
            raise StartRefused(f"the setting [policies.{name}]: {error}") from error
    return CommandPolicies(found, default=config.command_policy, is_chosen=config.has_chosen_policy)


async def _keep_files(
    sandboxes: SandboxMaker, records: Sequence[SessionRecord], stack: AsyncExitStack
) -> KeptFilesStore:
    kept_files = sandboxes.kept_files
    stack.push_async_callback(kept_files.aclose)
    await kept_files.keep(_kept(records))
    return kept_files


def _kept(records: Sequence[SessionRecord]) -> Sequence[KeptFiles]:
    """The files of sessions, and project files that still have to be moved to them."""
    unmoved = [KeptFiles(project_id=record.unmoved_project_id) for record in records]
    return [*map(kept_files_of, records), *unmoved]


def _shared_exec_state(
    config: Config, policies: CommandPolicies, quotas: Quotas
) -> SharedExecState:
    (config.state_dir / "execs").mkdir(mode=0o700, exist_ok=True)
    return SharedExecState(
        settings.exec_settings(config),
        Labels.load(config.state_dir),
        ExecRecords(config.state_dir / "execs"),
        SpoolBudget(config.total_spool_bytes),
        policies,
        quotas,
    )


async def _check_runtime(config: Config, engine: Engine) -> None:
    """Refuse a runtime that the engine does not have now, not at the first session."""
    if config.container_runtime is None:
        return
    try:
        runtimes = (await engine.info()).runtimes
    except SandboxdError:
        return  # when the engine is back, it refuses the runtime itself
    if config.container_runtime not in runtimes:
        raise StartRefused(
            f"the engine has no runtime {config.container_runtime}, only {', '.join(runtimes)}; "
            "register it there, or set another SANDBOXD_CONTAINER_RUNTIME"
        )


_NO_DISKS = "workspaces are in memory"


class _FoundDisks(NamedTuple):
    disks: Disks | None
    detail: str
    """How they were proved, or why there are none."""
    moving_problem: str
    """Why kept ones cannot be moved into warm sandboxes; empty if they can."""


async def _open_disks(config: Config) -> _FoundDisks:
    """Disks for workspaces, if this host can have them."""
    if config.workspace_backend == "memory":
        return _FoundDisks(None, "the settings say so", _NO_DISKS)
    disks = Disks(settings.disk_settings(config))
    problems: list[str] = []
    try:
        detail = await disks.prove(
            lambda directory: problems.append(attachment.find_disk_problem(directory))
        )
        return _FoundDisks(disks, detail, problems[0] or _runtime_problem(config))
    except ProofWithoutSpace:
        why = "the host's disk was full"
        log.error("workspaces.not_proved", why=why)
        size = f"{config.workspace_bytes >> 20} MiB"
        detail = f"a disk of {size} each, not proved at the last start because {why}"
        return _FoundDisks(disks, detail, f"it was not tried at the last start because {why}")
    except DisksUnusable as error:
        if config.workspace_backend == "disk":
            raise StartRefused(
                f"workspaces cannot have disks of their own here: {error}; set "
                "SANDBOXD_WORKSPACE_BACKEND=memory to keep them in memory"
            ) from error
        log.warning("workspaces.in_memory", why=str(error))
        return _FoundDisks(None, str(error), _NO_DISKS)


def _runtime_problem(config: Config) -> str:
    """A runtime with a kernel of its own does not show what the host mounts later."""
    if config.container_runtime in (None, "runc"):
        return ""
    return f"it was not tried with the runtime {config.container_runtime}"


async def _open_projects(config: Config, stack: AsyncExitStack) -> Projects:
    try:
        projects = await Projects.open(settings.project_settings(config))
    except ProjectsUnusable as error:
        raise StartRefused(
            f"the projects in {config.state_dir / 'store'} cannot be used: {error}"
        ) from error
    stack.push_async_callback(projects.aclose)
    return projects


def _open_keyring(config: Config) -> Keyring:
    try:
        return Keyring(config)
    except KeysUnusable as error:
        raise StartRefused(str(error)) from error


def _reloads(keyring: Keyring) -> Reloads:
    reloads = Reloads()
    reloads.add("tokens", partial(asyncio.to_thread, keyring.reload_tokens))
    reloads.add("certificates", partial(asyncio.to_thread, keyring.reload_certificates))
    return reloads


async def _open_registry(path: Path, stack: AsyncExitStack) -> SqliteRegistry:
    try:
        registry = await SqliteRegistry.open(path)
    except RegistryTooNew as error:
        raise StartRefused(
            f"the registry {path} was written by a newer release of sandboxd ({error}); start that "
            "release, or set SANDBOXD_STATE_DIR to another directory"
        ) from error
    except RegistryUnusable as error:
        raise StartRefused(
            f"the registry {path} cannot be used ({error}); if no other program has it open, move "
            "it away to restore the sessions from registry.copies"
        ) from error
    stack.push_async_callback(registry.aclose)
    return registry


def _sandbox_settings(config: Config, instance: str) -> SandboxSettings:
    """With the directories that they name; StartRefused if there is no Python for the guest."""
    if not (config.runtime_dir / "bin" / "python3.11").exists():
        raise StartRefused(
            f"there is no guest runtime in {config.runtime_dir}; build it with "
            "./scripts/build_images, or set SANDBOXD_GUEST_RUNTIME"
        )
    made = settings.sandbox_settings(config, instance, install_guest(config.state_dir))
    made.links_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
    return made
