"""The gRPC server: listeners, limits, health, reflection."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import structlog
from grpc import aio

from sandboxd.access import CallPlaces, Quotas, RateLimit
from sandboxd.config import Config
from sandboxd.observability.journal import KeptJournal
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
from sandboxd.service.transport.cluster import Cluster
from sandboxd.service.transport.entrance import Entrance
from sandboxd.service.transport.guard import CallGuard
from sandboxd.service.transport.health import SERVICE as HEALTH_SERVICE
from sandboxd.service.transport.health import Health
from sandboxd.service.transport.keyring import Keyring
from sandboxd.service.transport.reflection import reflection_handlers
from sandboxd_proto.v1 import (
    admin_service_pb2,
    cluster_service_pb2,
    code_service_pb2,
    data_service_pb2,
    door_service_pb2,
    environment_service_pb2,
    exec_service_pb2,
    file_service_pb2,
    port_service_pb2,
    project_service_pb2,
    session_service_pb2,
    snapshot_service_pb2,
)

log = structlog.get_logger()

MAX_REQUEST_BYTES = 9 << 20
"""The largest request, which is EditText with two texts of 4 MiB."""
MAX_RESPONSE_BYTES = 16 << 20
HANDSHAKE_SECONDS = 10
"""How long a connection may take for TLS and the first frame of HTTP/2."""
IDLE_SECONDS = 600
"""How long a connection stays open without a call. Clients connect again for their next one."""
STOP_SECONDS = 1.0
"""How long calls may take to return once their commands have ended."""
CLOSE_SECONDS = 30.0
"""How long cancelled calls may take to return before the daemon stops without them."""
_GRPC_LOGGER = "grpc._cython.cygrpc"
_SESSIONS = session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]
_EXECS = exec_service_pb2.DESCRIPTOR.services_by_name["ExecService"]
_CODE = code_service_pb2.DESCRIPTOR.services_by_name["CodeService"]
_FILES = file_service_pb2.DESCRIPTOR.services_by_name["FileService"]
_PROJECTS = project_service_pb2.DESCRIPTOR.services_by_name["ProjectService"]
_SNAPSHOTS = snapshot_service_pb2.DESCRIPTOR.services_by_name["SnapshotService"]
_CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
_ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
_DATA = data_service_pb2.DESCRIPTOR.services_by_name["DataService"]
_DOORS = door_service_pb2.DESCRIPTOR.services_by_name["DoorService"]
_PORTS = port_service_pb2.DESCRIPTOR.services_by_name["PortService"]
_ENVIRONMENTS = environment_service_pb2.DESCRIPTOR.services_by_name["EnvironmentService"]
SERVICES = tuple(
    service.full_name
    for service in (
        *(_SESSIONS, _EXECS, _CODE, _FILES, _PROJECTS, _SNAPSHOTS, _ENVIRONMENTS, _DATA, _ADMIN),
        *(_DOORS, _PORTS, _CLUSTER),
    )
)


class AddressInUse(Exception):
    """A listener could not be opened; the text says which and what to do."""


@dataclass(frozen=True, kw_only=True)
class Servicers:
    """What answers the calls of each service."""

    sessions: SessionServicer
    execs: ExecServicer
    code: CodeServicer
    files: FileServicer
    projects: ProjectServicer
    snapshots: SnapshotServicer
    environments: EnvironmentServicer
    data: DataServicer
    doors: DoorServicer
    ports: PortServicer
    cluster: ClusterServicer
    admin: AdminServicer


class ApiServer:
    """Serves the API until it is stopped. Its handlers can also be called without a server."""

    def __init__(
        self,
        config: Config,
        servicers: Servicers,
        *,
        journal: KeptJournal,
        keyring: Keyring,
        quotas: Quotas,
        cluster: Cluster | None = None,
        cluster_key: bytes = b"",
    ) -> None:
        self._config = config
        self._keyring = keyring
        guard = CallGuard(
            places=CallPlaces(total=config.max_calls, per_user=config.max_user_calls),
            entrance=_entrance(config, keyring, quotas, cluster_key),
            idle_seconds=config.upload_idle_seconds,
            journal=journal,
            statistics=journal.statistics,
            traces=journal.traces,
            cluster=cluster,
        )
        self.handlers = (
            # Tried in this order; the busiest service comes first.
            guard.handler(_EXECS, servicers.execs),
            guard.handler(_CODE, servicers.code),
            guard.handler(_SESSIONS, servicers.sessions),
            guard.handler(_FILES, servicers.files),
            guard.handler(_PROJECTS, servicers.projects),
            guard.handler(_SNAPSHOTS, servicers.snapshots),
            guard.handler(_ENVIRONMENTS, servicers.environments),
            guard.handler(_DATA, servicers.data),
            guard.handler(_DOORS, servicers.doors),
            guard.handler(_PORTS, servicers.ports),
            guard.handler(_CLUSTER, servicers.cluster),
            guard.handler(_ADMIN, servicers.admin),
        )
        self.guard = guard
        self.port = 0
        self.is_serving = False
        self._was_started = False

    async def start(self) -> None:
        """Open the listeners and answer calls."""
        logging.getLogger(_GRPC_LOGGER).addFilter(_is_no_lost_caller)
        self._server = aio.server(options=_options(self._config))
        self._health = Health(SERVICES)
        self._server.add_generic_rpc_handlers((*self.handlers, self._health.handler))
        if self._config.reflection:
            names = (*SERVICES, HEALTH_SERVICE)
            self._server.add_generic_rpc_handlers(tuple(reflection_handlers(names, self.guard)))
        socket_path = self._config.api_socket
        self._listen_unix(socket_path)
        if self._config.host:
            self._listen_tcp()
        await self._server.start()
        self.is_serving = self._was_started = True

    def _listen_unix(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # left by an earlier daemon: we hold the instance lock
        before = os.umask(0o117)  # created as 0660; a later chmod would leave a gap
        try:
            self._server.add_insecure_port(f"unix:{path}")
        finally:
            os.umask(before)

    def _listen_tcp(self) -> None:
        host = f"[{self._config.host}]" if ":" in self._config.host else self._config.host
        address = f"{host}:{self._config.port}"
        try:
            self.port = self._add_port(address)
        except RuntimeError as error:
            raise AddressInUse(
                f"{address} is in use by another program; set PORT to a free port, or HOST to "
                "nothing for the unix socket only"
            ) from error

    def _add_port(self, address: str) -> int:
        certificates = self._keyring.certificates
        if certificates is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, certificates.credentials)

    async def announce_stop(self) -> None:
        """Report through the health service that the daemon stops."""
        if not self.is_serving:
            return
        self.is_serving = False
        self._health.announce_stop()

    async def stop(self) -> None:
        """Let calls return, cancel the rest, close the listeners, if it was started."""
        if not self._was_started:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS + CLOSE_SECONDS):
                await self._server.stop(STOP_SECONDS)
        except TimeoutError:
            log.error("server.does_not_stop")
        self._config.api_socket.unlink(missing_ok=True)


def _entrance(config: Config, keyring: Keyring, quotas: Quotas, cluster_key: bytes) -> Entrance:
    limits = quotas.limits
    return Entrance(
        keyring.access,
        trusts_socket=config.socket_auth != "token",
        rate=RateLimit(calls_per_second=limits.calls_per_second, burst=limits.calls_burst),
        cluster_key=cluster_key,
    )


def _is_no_lost_caller(record: logging.LogRecord) -> bool:
    """An answer that could not be sent: the way to the caller is cut, which ends the call as a
    cancel does. gRPC logs it with its stack if it has not heard of the cancel yet."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, aio.InternalError)


def _options(config: Config) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
        ("grpc.max_send_message_length", MAX_RESPONSE_BYTES),
        # What is left to strangers: connections of each listener, streams of each connection, time.
        ("grpc.max_allowed_incoming_connections", config.max_connections),
        ("grpc.max_concurrent_streams", 2 * config.max_calls),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
        ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
        # Or a second daemon would silently share the port.
        ("grpc.so_reuseport", 0),
        # The core drops calls at random once a thousand wait; our own limit answers them.
        ("grpc.server.max_pending_requests", 4 * config.max_calls),
        ("grpc.server.max_pending_requests_hard_limit", 8 * config.max_calls),
        # No pings to measure the bandwidth: they come with every short call. The window of a client
        # is fixed instead.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 4 << 20),
        # Detects clients that vanished without closing their connection.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
