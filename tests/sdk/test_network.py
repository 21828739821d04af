"""Over the network: tokens and certificates, from arguments and from the environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trustme

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.daemon.composition import Daemon
from sandboxd_client import (
    AsyncSandboxClient,
    ConnectionLostError,
    InvalidRequestError,
    NotPermittedError,
    UnauthenticatedError,
)

TOKEN = new_token()
StartDaemon = Callable[..., Awaitable[Daemon]]


async def test_token_is_sent(
    start_daemon: StartDaemon, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one, or with a wrong one, nobody is let in, and the errors say which it was."""
    tokens = short_dir / "tokens"
    tokens.touch(mode=0o600)
    ada = Caller(name="ada-service", scope=Scope.USER, user_id="ada")
    tokens.write_text(line(ada, hash_of(TOKEN)))
    daemon = await start_daemon(host="127.0.0.1", port=0, tokens_file=tokens)
    url = f"http://127.0.0.1:{daemon.server.port}"

    for wrong in (None, new_token()):
        async with AsyncSandboxClient(server_url=url, token=wrong) as client:
            with pytest.raises(UnauthenticatedError, match="token"):
                await client.get_or_create_session("ada", "42")
    monkeypatch.setenv("SANDBOXD_TOKEN", TOKEN)
    async with AsyncSandboxClient(server_url=url) as client:
        await client.get_or_create_session("ada", "42")
        assert (await client.execute("echo hi")).stdout == "hi\n"
        with pytest.raises(NotPermittedError) as caught:
            await client.get_or_create_session("grace", "42")
        assert isinstance(caught.value, PermissionError)


async def test_certificates(
    start_daemon: StartDaemon, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is trusted by its CA, and shown a certificate where it asks for one."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(short_dir / "ca.pem")
    for name in ("server", "client"):
        issued = ca.issue_cert("127.0.0.1", "localhost", common_name=name)
        issued.private_key_pem.write_to_path(short_dir / f"{name}.key")
        issued.cert_chain_pems[0].write_to_path(short_dir / f"{name}.pem")
    daemon = await start_daemon(
        host="127.0.0.1",
        port=0,
        tls_cert=short_dir / "server.pem",
        tls_key=short_dir / "server.key",
        tls_client_ca=short_dir / "ca.pem",
    )
    url = f"https://localhost:{daemon.server.port}"

    async with AsyncSandboxClient(server_url=url) as stranger:
        with pytest.raises(ConnectionLostError):
            await stranger.server_status()
    monkeypatch.setenv("SANDBOXD_CA_FILE", str(short_dir / "ca.pem"))
    monkeypatch.setenv("SANDBOXD_CLIENT_CERT", str(short_dir / "client.pem"))
    monkeypatch.setenv("SANDBOXD_CLIENT_KEY", str(short_dir / "client.key"))
    async with AsyncSandboxClient(server_url=url) as known:
        assert (await known.server_status()).version
    monkeypatch.setenv("SANDBOXD_CA_FILE", str(short_dir / "missing.pem"))
    async with AsyncSandboxClient(server_url=url) as unready:
        with pytest.raises(InvalidRequestError, match=r"missing\.pem.*SANDBOXD_CA_FILE"):
            await unready.server_status()
