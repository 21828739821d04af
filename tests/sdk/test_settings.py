"""Where the daemon is: by URL, by environment, by default."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from grpc import aio

from sandboxd_client import (
    AsyncSandboxClient,
    ConnectionLostError,
    InvalidRequestError,
    LocalModeError,
    SandboxClient,
)
from sandboxd_client.settings import address, resolve


@pytest.mark.parametrize(
    ("url", "target", "is_secure"),
    [
        ("unix:/run/x.sock", "unix:/run/x.sock", False),
        ("unix:///run/x.sock", "unix:/run/x.sock", False),
        ("/run/x.sock", "unix:/run/x.sock", False),
        ("http://localhost:5000", "localhost:5000", False),
        ("http://sandbox-server", "sandbox-server:5000", False),
        ("https://sandbox.example", "sandbox.example:443", True),
        ("https://sandbox.example:8443/", "sandbox.example:8443", True),
        ("grpc://10.0.0.1:7", "10.0.0.1:7", False),
        ("grpcs://10.0.0.1:7", "10.0.0.1:7", True),
        ("localhost:5000", "localhost:5000", False),
        ("[::1]:5000", "[::1]:5000", False),
    ],
)
def test_urls(url: str, target: str, is_secure: bool) -> None:
    """Each form that people write leads to what gRPC calls a target."""
    assert address(url) == (target, is_secure)


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http:///path"])
def test_url_that_is_none_is_refused(url: str) -> None:
    """The message shows the forms there are."""
    with pytest.raises(InvalidRequestError, match="unix:/path"):
        address(url)


def test_everything_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without arguments: SANDBOXD_URL and SANDBOXD_TOKEN, else the socket that a daemon makes."""
    for name in ("URL", "TOKEN", "SOCKET", "RUN_DIR", "MODE"):
        monkeypatch.delenv(f"SANDBOXD_{name}", raising=False)
    assert resolve(None, None).target == "unix:/run/sandboxd/sandboxd.sock"
    monkeypatch.setenv("SANDBOXD_RUN_DIR", "/tmp/run")
    assert resolve(None, None).target == "unix:/tmp/run/sandboxd.sock"
    monkeypatch.setenv("SANDBOXD_URL", "https://host")
    monkeypatch.setenv("SANDBOXD_TOKEN", "secret")
    found = resolve(None, None)
    assert (found.target, found.is_secure, found.token) == ("host:443", True, "secret")
    assert "secret" not in repr(found)
    assert resolve("remote", "unix:/x").target == "unix:/x"
    monkeypatch.setenv("SANDBOXD_MODE", "local")
    assert resolve(None, None).mode == "local"
    assert resolve(None, "unix:/x").mode == "remote"


def test_variables_of_the_earlier_client_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """SANDBOX_MODE and SANDBOX_URL, where ours say nothing."""
    for name in ("SANDBOXD_URL", "SANDBOXD_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SANDBOX_MODE", "local")
    monkeypatch.setenv("SANDBOX_URL", "http://sandboxes:8000")
    assert resolve(None, None).mode == "local"
    monkeypatch.setenv("SANDBOX_MODE", "remote")
    assert resolve(None, None).target == "sandboxes:8000"
    monkeypatch.setenv("SANDBOXD_URL", "http://ours")
    assert resolve(None, None).target == "ours:5000"


def test_mode_is_one_of_two() -> None:
    """A typing error is told at once, as existing code expects: a ValueError."""
    with pytest.raises(ValueError, match="remote"):
        SandboxClient(mode="locl")  # type: ignore[arg-type]


async def test_no_daemon_there_is_told_at_once(tmp_path: Path) -> None:
    """Who never reached one is not kept waiting, and is told where it looked."""
    async with AsyncSandboxClient(server_url=f"unix:{tmp_path}/none.sock") as client:
        async with asyncio.timeout(5):
            with pytest.raises(ConnectionLostError, match=r"none\.sock.*SANDBOXD_URL"):
                await client.get_or_create_session("ada", "42")


async def test_https_for_a_daemon_without_tls_is_named() -> None:
    """And what to write in its place."""
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncSandboxClient(server_url=f"https://127.0.0.1:{port}") as client:
        with pytest.raises(ConnectionLostError, match=f"does not use TLS; write http://.*{port}"):
            await client.server_status()
    await server.stop(None)


async def test_port_of_the_console_is_named() -> None:
    """It speaks HTTP/1.1, and the API does not."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncSandboxClient(server_url=f"http://127.0.0.1:{port}") as client:
            with pytest.raises(ConnectionLostError, match="not the API of a daemon"):
                await client.server_status()


async def test_local_mode_that_cannot_start_says_why(short_dir: Path) -> None:
    """No runtime, no daemon; the message has what to do, and another try is possible."""
    settings = {"state_dir": short_dir / "state", "run_dir": short_dir / "run"}
    for _ in range(2):
        async with AsyncSandboxClient(mode="local", local_settings=settings) as client:
            with pytest.raises(LocalModeError, match=r"guest runtime.*build_images"):
                await client.get_or_create_session("ada", "42")


async def test_local_mode_logs_variables_that_set_nothing(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelt variable is in the program's own log, with the name that was probably meant."""
    monkeypatch.setenv("SANDBOXD_POLL_SIZE", "1")
    settings = {"state_dir": short_dir / "state", "run_dir": short_dir / "run"}
    async with AsyncSandboxClient(mode="local", local_settings=settings) as client:
        with pytest.raises(LocalModeError):
            await client.get_or_create_session("ada", "42")

    (logged,) = (one.message for one in caplog.records if "setting.ignored" in one.message)
    assert "SANDBOXD_POLL_SIZE" in logged
    assert "did you mean SANDBOXD_POOL_SIZE?" in logged
