"""Address of the daemon and time limits: from arguments, then from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from sandboxd_client.errors import InvalidRequestError

Mode = Literal["remote", "local"]
UNIX_SCHEME = "unix:"
DEFAULT_RUN_DIR = "/run/sandboxd"
DEFAULT_PORT = 5000


@dataclass(frozen=True)
class Timeouts:
    """Time limits in seconds. The time limit of a command is added to them.

    Example:
        with SandboxClient(timeouts=Timeouts(reconnect=5)) as client:
            client.get_or_create_session(user_id="ada", thread_id="42")
    """

    call: float = 30.0
    """Limit for the answer to a call."""
    open: float = 90.0
    """Limit for opening a session, which may have to wait for a sandbox."""
    transfer: float = 600.0
    """Limit for transferring a file or an archive, including all attempts."""
    reconnect: float = 60.0
    """Limit for reconnecting to a daemon that stopped answering, as during a restart."""


@dataclass(frozen=True)
class Settings:
    """Address and credentials of a daemon. Clients with the same settings share a channel."""

    mode: Mode
    target: str
    """Target in the syntax of gRPC; empty in local mode."""
    is_secure: bool = False
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    """Certificates to trust, PEM; None means the defaults of gRPC."""
    client_cert: str | None = None
    """Certificate of the client, PEM, with `client_key`."""
    client_key: str | None = None
    local: tuple[tuple[str, object], ...] = ()
    """Settings of the daemon in local mode."""


def resolve(
    mode: str | None,
    server_url: str | None,
    *,
    token: str | None = None,
    local_settings: Mapping[str, object] | None = None,
) -> Settings:
    """Settings from the arguments; the environment fills in what is missing."""
    environment = os.environ
    chosen = mode or ("remote" if server_url else _variable("MODE") or "remote")
    if chosen == "local":
        local = tuple(sorted((local_settings or {}).items()))
        return Settings("local", "", local=local)
    if chosen != "remote":
        raise InvalidRequestError(f'mode: {chosen!r} is not a valid mode; use "local" or "remote"')
    target, is_secure = address(server_url or _variable("URL") or _default_url())
    return Settings(
        "remote",
        target,
        is_secure=is_secure,
        token=token or environment.get("SANDBOXD_TOKEN") or None,
        ca_file=environment.get("SANDBOXD_CA_FILE") or None,
        client_cert=environment.get("SANDBOXD_CLIENT_CERT") or None,
        client_key=environment.get("SANDBOXD_CLIENT_KEY") or None,
    )


def address(url: str) -> tuple[str, bool]:
    """The gRPC target of a URL, and whether it uses TLS."""
    if url.startswith(UNIX_SCHEME):
        path = url.removeprefix(UNIX_SCHEME)
        return UNIX_SCHEME + (path if not path.startswith("//") else path[2:]), False
    if url.startswith("/"):
        return f"{UNIX_SCHEME}{url}", False
    if "://" not in url:
        url = f"grpc://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
        raise InvalidRequestError(
            f"server_url: {url!r} is not a valid URL; use unix:/path, http://host:port, "
            "https://host:port, grpc://host:port or host:port"
        )
    is_secure = parts.scheme in ("https", "grpcs")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or (443 if is_secure else DEFAULT_PORT)}", is_secure


def _variable(name: str) -> str | None:
    """A variable by our name for it, or by the one that programs for the earlier client set."""
    return os.environ.get(f"SANDBOXD_{name}") or os.environ.get(f"SANDBOX_{name}")


def _default_url() -> str:
    run_dir = os.environ.get("SANDBOXD_RUN_DIR") or DEFAULT_RUN_DIR
    return f"{UNIX_SCHEME}{os.environ.get('SANDBOXD_SOCKET') or f'{run_dir}/sandboxd.sock'}"
