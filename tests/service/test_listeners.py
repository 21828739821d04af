"""Tokens and TLS at the listeners: who has to show what, and what a reload changes."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import trustme
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.cli.program import program
from sandboxd.daemon.composition import Daemon
from sandboxd.daemon.instance import StartRefused
from sandboxd.service.transport.reflection import SERVICE_V1
from sandboxd_proto.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.service.client import Api, refused

StartDaemon = Callable[..., Awaitable[Daemon]]

OPS = Caller(name="ops", scope=Scope.ADMIN)
TOKEN = new_token()
CALL_SECONDS = 10.0
START_SECONDS = 30.0


@pytest.fixture
def tokens_file(short_dir: Path) -> Path:
    file = short_dir / "tokens"
    file.touch(mode=0o600)
    write(file, line(OPS, hash_of(TOKEN)))
    return file


def write(file: Path, *lines: str) -> None:
    file.write_text("\n".join(lines))


class Pki:
    """A CA, and files with what it has issued."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.ca = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)
        self.cert, self.key = directory / "cert.pem", directory / "key.pem"
        self.issue("first.example.org")

    def issue(self, name: str) -> None:
        """Another certificate for the server."""
        issued = self._ca.issue_cert("127.0.0.1", "localhost", common_name=name)
        issued.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def client(self, name: str | None, trusting: Path | None = None) -> grpc.ChannelCredentials:
        """What a client shows whose certificate has this name, or who has none."""
        roots = (trusting or self.ca).read_bytes()
        if name is None:
            return grpc.ssl_channel_credentials(roots)
        issued = self._ca.issue_cert("client.example.org", common_name=name)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return grpc.ssl_channel_credentials(roots, issued.private_key_pem.bytes(), chain)

    def context(self, name: str | None) -> ssl.SSLContext:
        """The same for a client of HTTP."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if name is not None:
            issued = self._ca.issue_cert("client.example.org", common_name=name)
            issued.configure_cert(context)
        return context

    def lock_key(self) -> None:
        """Give the server's key a passphrase."""
        key = load_pem_private_key(self.key.read_bytes(), password=None)
        locked = BestAvailableEncryption(b"secret")
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))


@pytest.fixture
def pki(short_dir: Path) -> Pki:
    return Pki(short_dir)


@asynccontextmanager
async def tcp(
    daemon: Daemon, credentials: grpc.ChannelCredentials | None = None
) -> AsyncIterator[aio.Channel]:
    target = f"localhost:{daemon.server.port}"
    # Or a second channel would use the first one's connection, and with it its handshake.
    options = [("grpc.use_local_subchannel_pool", 1)]
    if credentials is None:
        channel = aio.insecure_channel(target, options=options)
    else:
        channel = aio.secure_channel(target, credentials, options=options)
    async with channel:
        yield channel


async def status(channel: aio.Channel, token: str | None = None) -> str:
    """What only an admin is told."""
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    request = admin_service_pb2.GetStatusRequest()
    return (await stub.GetStatus(request, metadata=metadata, timeout=CALL_SECONDS)).version


async def is_healthy(channel: aio.Channel) -> bool:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS)
    return answer.status == health_pb2.HealthCheckResponse.SERVING


# --- tokens ---


async def test_tcp_asks_for_a_token_and_the_socket_does_not(
    start_daemon: StartDaemon, tokens_file: Path
) -> None:
    """Whoever may open the socket is the host's; over TCP nobody knows."""
    daemon = await start_daemon(host="127.0.0.1", port=0, tokens_file=tokens_file)
    async with Api(daemon.config.api_socket) as api, tcp(daemon) as channel:
        assert (await api.status()).version
        assert await status(channel, TOKEN)
        with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
            await status(channel)


async def test_health_needs_no_token(start_daemon: StartDaemon, tokens_file: Path) -> None:
    """A balancer asks without knowing secrets."""
    daemon = await start_daemon(
        host="127.0.0.1", port=0, tokens_file=tokens_file, socket_auth="token"
    )
    async with Api(daemon.config.api_socket) as api, tcp(daemon) as channel:
        assert await is_healthy(api.channel)
        assert await is_healthy(channel)


async def test_reflection_can_be_off(start_daemon: StartDaemon) -> None:
    """Then nobody is told what the API looks like."""
    daemon = await start_daemon(reflection=False)
    async with Api(daemon.config.api_socket) as api:
        call = api.channel.stream_stream(f"/{SERVICE_V1}/ServerReflectionInfo")()
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()

    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_reload_takes_new_tokens_and_drops_old_ones(
    start_daemon: StartDaemon, tokens_file: Path
) -> None:
    """Also for a connection that is open; a broken file leaves everyone as they were."""
    daemon = await start_daemon(host="127.0.0.1", port=0, tokens_file=tokens_file)
    fresh = new_token()
    async with tcp(daemon) as channel:
        assert await status(channel, TOKEN)
        write(tokens_file, line(OPS, hash_of(fresh)))
        await daemon.reloads.run()
        assert await status(channel, fresh)
        with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
            await status(channel, TOKEN)

        write(tokens_file, "nonsense")
        await daemon.reloads.run()
        assert await status(channel, fresh)


async def test_unusable_token_file_keeps_the_daemon_from_starting(
    start_daemon: StartDaemon, tokens_file: Path
) -> None:
    """No daemon runs that would let in others than its file says."""
    write(tokens_file, "nonsense")
    with pytest.raises(StartRefused, match=f"the token file {tokens_file}: line 1: write a name"):
        await start_daemon(tokens_file=tokens_file)


async def test_commands_use_the_token_of_the_environment(
    start_daemon: StartDaemon, tokens_file: Path
) -> None:
    """doctor and selfcheck work where the socket asks for a token, and say so without one."""
    daemon = await start_daemon(tokens_file=tokens_file, socket_auth="token")
    socket = ("--socket", str(daemon.config.api_socket))

    async def sandboxd(*words: str, token: str) -> Result:
        environment = {"SANDBOXD_CONFIG": os.devnull, "SANDBOXD_TOKEN": token}
        return await asyncio.to_thread(CliRunner().invoke, program, words, env=environment)

    for command in (("doctor", "--json"), ("selfcheck", "--no-session")):
        told = await sandboxd(*command, *socket, token=TOKEN)
        assert "protections" in told.output, told.output
    unknown = await sandboxd("doctor", *socket, token="")
    assert unknown.exit_code == 2
    assert "SANDBOXD_TOKEN" in unknown.output
    waiting = await sandboxd("selfcheck", *socket, token="wrong")
    assert waiting.exit_code == 5
    assert "does not know the token" in waiting.output


# --- TLS ---


async def test_tls_serves_those_who_trust_its_ca(start_daemon: StartDaemon, pki: Pki) -> None:
    """The same API, encrypted; without TLS the port does not answer."""
    daemon = await start_daemon(host="127.0.0.1", port=0, tls_cert=pki.cert, tls_key=pki.key)
    async with tcp(daemon, pki.client(None)) as channel:
        assert await status(channel)
    async with tcp(daemon) as channel:
        with pytest.raises(aio.AioRpcError) as caught:
            await status(channel)

    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_client_without_a_certificate_is_not_heard(
    start_daemon: StartDaemon, pki: Pki, tmp_path: Path
) -> None:
    """With a client CA the handshake itself fails, also for a certificate of another CA."""
    daemon = await start_daemon(
        host="127.0.0.1", port=0, tls_cert=pki.cert, tls_key=pki.key, tls_client_ca=pki.ca
    )
    foreign = Pki(tmp_path).client("anyone", trusting=pki.ca)
    async with tcp(daemon, pki.client("anyone")) as channel:
        assert await status(channel)
    for credentials in (pki.client(None), foreign):
        async with tcp(daemon, credentials) as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await is_healthy(channel)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_certificate_is_who_the_token_file_says(
    start_daemon: StartDaemon, pki: Pki, tokens_file: Path
) -> None:
    """With a token file a certificate alone is not enough: it has a line, or a token comes too."""
    board = Caller(name="board", scope=Scope.USER, user_id="ada")
    of_certificate = line(board, "board.example.org", kind="cert")
    write(tokens_file, line(OPS, hash_of(TOKEN)), of_certificate)
    daemon = await start_daemon(
        host="127.0.0.1",
        port=0,
        tls_cert=pki.cert,
        tls_key=pki.key,
        tls_client_ca=pki.ca,
        tokens_file=tokens_file,
    )
    async with tcp(daemon, pki.client("board.example.org")) as channel:
        with refused(grpc.StatusCode.PERMISSION_DENIED, "NOT_PERMITTED"):
            await status(channel)
        assert await status(channel, TOKEN)
    async with tcp(daemon, pki.client("nobody.example.org")) as channel:
        with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
            await status(channel)


async def name_served(daemon: Daemon, pki: Pki) -> str:
    """The common name of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(
        "127.0.0.1", daemon.server.port, ssl=context, server_hostname="localhost"
    )
    subject = writer.get_extra_info("peercert")["subject"]
    writer.transport.abort()
    return next(value for ((key, value),) in subject if key == "commonName")


async def test_reload_serves_the_new_certificate(start_daemon: StartDaemon, pki: Pki) -> None:
    """A renewed certificate is taken without a restart; one that does not fit its key is not."""
    daemon = await start_daemon(host="127.0.0.1", port=0, tls_cert=pki.cert, tls_key=pki.key)
    assert await name_served(daemon, pki) == "first.example.org"
    pki.issue("second.example.org")
    assert await name_served(daemon, pki) == "first.example.org"
    await daemon.reloads.run()
    assert await name_served(daemon, pki) == "second.example.org"

    key = pki.key.read_bytes()
    pki.issue("third.example.org")
    pki.key.write_bytes(key)
    await daemon.reloads.run()
    assert await name_served(daemon, pki) == "second.example.org"


@pytest.mark.parametrize("what", ["key", "cert", "ca", "missing", "locked"])
async def test_unusable_certificates_keep_the_daemon_from_starting(
    what: str, start_daemon: StartDaemon, pki: Pki
) -> None:
    """What does not fit is told at the start, and not with the first connection."""
    files = {"tls_cert": pki.cert, "tls_key": pki.key, "tls_client_ca": pki.ca}
    if what == "key":
        pki.key.write_bytes(trustme.CA().issue_cert("x").private_key_pem.bytes())
    elif what == "cert":
        pki.cert.write_text("no certificate")
    elif what == "ca":
        pki.ca.write_text("no certificate")
    elif what == "missing":
        pki.key.unlink()
    else:
        pki.lock_key()
    with pytest.raises(StartRefused, match="PEM"):
        await start_daemon(host="127.0.0.1", port=0, **files)


# --- the whole program ---


async def test_sighup_reloads_a_running_daemon(short_dir: Path, tokens_file: Path) -> None:
    """As an operator does it: a line more in the file, a signal, and the token works."""
    runtime = short_dir / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "python3.11").touch()
    flags = {
        "state-dir": short_dir / "state",
        "run-dir": short_dir / "run",
        "guest-runtime": runtime.parent,
        "docker-url": "unix:///nobody/listens.sock",
        "host": "",
        "pool-size": 0,
        "min-pool-size": 0,
        "workspace-backend": "memory",
        "tokens-file": tokens_file,
        "socket-auth": "token",
        "console-port": 0,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandboxd", "serve", "--no-examine", *words),
        env={**os.environ, "SANDBOXD_CONFIG": os.devnull},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            await _until_line(process, "listening on")
            async with Api(short_dir / "run" / "sandboxd.sock") as api:
                assert await is_healthy(api.channel)
                fresh = new_token()
                with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
                    await status(api.channel, fresh)
                other = Caller(name="more", scope=Scope.ADMIN)
                write(tokens_file, line(OPS, hash_of(TOKEN)), line(other, hash_of(fresh)))
                process.send_signal(signal.SIGHUP)
                await _until_line(process, "tokens.reloaded")
                assert await status(api.channel, fresh)
                assert await status(api.channel, TOKEN)
    finally:
        process.terminate()
        async with asyncio.timeout(START_SECONDS):
            await process.communicate()
    assert process.returncode == 0


async def _until_line(process: asyncio.subprocess.Process, words: str) -> None:
    assert process.stderr is not None
    seen = b""
    while words.encode() not in (text := await process.stderr.readline()):
        assert text, f"it ended: {seen.decode()}"
        seen += text
