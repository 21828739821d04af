"""The gRPC server: listeners, limits, health, reflection."""

from __future__ import annotations

import os
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from sandboxd.access import RateLimit
from sandboxd.config import Config
from sandboxd.journal import KeptJournal
from sandboxd.service.admin_service import AdminServicer
from sandboxd.service.entrance import Entrance
from sandboxd.service.exec_service import ExecServicer
from sandboxd.service.file_service import FileServicer
from sandboxd.service.guard import CallGuard
from sandboxd.service.keyring import Keyring
from sandboxd.service.reflection import add_reflection
from sandboxd.service.session_service import SessionServicer
from sandboxd_proto.v1 import (
    admin_service_pb2,
    exec_service_pb2,
    file_service_pb2,
    session_service_pb2,
)

MAX_MESSAGE_BYTES = 16 << 20
LAST_WORDS_SECONDS = 1.0
"""For calls to end by themselves once their commands have."""
_SESSIONS = session_service_pb2.DESCRIPTOR.services_by_name["SessionService"]
_EXECS = exec_service_pb2.DESCRIPTOR.services_by_name["ExecService"]
_FILES = file_service_pb2.DESCRIPTOR.services_by_name["FileService"]
_ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]
SERVICES = tuple(service.full_name for service in (_SESSIONS, _EXECS, _FILES, _ADMIN))


class AddressInUse(Exception):
    """A listener could not be opened; the text says which and what to do."""


class ApiServer:
    """Serves the API until it is stopped. Its handlers can also be called without a server."""

    def __init__(
        self,
        config: Config,
        *,
        sessions: SessionServicer,
        execs: ExecServicer,
        files: FileServicer,
        admin: AdminServicer,
        journal: KeptJournal,
        keyring: Keyring,
    ) -> None:
        self._config = config
        self._keyring = keyring
        guard = CallGuard(
            max_calls=config.max_calls,
            entrance=_entrance(config, keyring),
            idle_seconds=config.upload_idle_seconds,
            journal=journal,
            statistics=journal.statistics,
            traces=journal.traces,
        )
        self.handlers = (
            # Asked in this order; the one that is asked most comes first.
            guard.handler(_EXECS, execs),
            guard.handler(_SESSIONS, sessions),
            guard.handler(_FILES, files),
            guard.handler(_ADMIN, admin),
        )
        self.port = 0
        self.is_serving = False

    async def start(self) -> None:
        """Open the listeners and answer calls."""
        self._server = aio.server(options=_options(self._config.max_calls))
        self._server.add_generic_rpc_handlers(self.handlers)
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if self._config.reflection:
            add_reflection((*SERVICES, health.SERVICE_NAME), self._server)
        socket_path = self._config.api_socket
        self._listen_unix(socket_path)
        if self._config.host:
            self._listen_tcp()
        await self._server.start()
        for service in ("", *SERVICES):
            await self._health.set(service, health_pb2.HealthCheckResponse.SERVING)
        self.is_serving = True

    def _listen_unix(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # ours: the instance lock is held
        before = os.umask(0o117)  # created as 0660; a chmod afterwards would leave a moment
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
        """Tell whoever asks for health that we are leaving."""
        self.is_serving = False
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        """Let calls send their last words, end the rest, close the listeners."""
        await self._server.stop(LAST_WORDS_SECONDS)
        self._config.api_socket.unlink(missing_ok=True)


def _entrance(config: Config, keyring: Keyring) -> Entrance:
    return Entrance(
        keyring.access,
        trusts_socket=config.socket_auth != "token",
        rate=RateLimit(
            calls_per_second=config.user_calls_per_second, burst=config.user_calls_burst
        ),
    )


def _options(max_calls: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        # Or a second daemon would silently share the port.
        ("grpc.so_reuseport", 0),
        # The core drops calls at random once a thousand wait. Ours is the limit that answers.
        ("grpc.server.max_pending_requests", 4 * max_calls),
        ("grpc.server.max_pending_requests_hard_limit", 8 * max_calls),
        # No pings to find out how much may be on its way: they come with every short call. What a
        # client may send ahead is fixed instead.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 4 << 20),
        # Finds out about clients that vanished without a word.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
