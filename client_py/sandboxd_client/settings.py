"""Where the daemon is and how long to wait for it: arguments first, then the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from sandboxd_client.errors import InvalidRequestError

Mode = Literal["remote", "local"]
DEFAULT_RUN_DIR = "/run/sandboxd"
DEFAULT_PORT = 5000


@dataclass(frozen=True)
class Timeouts:
    """How long to wait, in seconds. The time limit of a command comes on top of them.

    Example:
        with SandboxClient(timeouts=Timeouts(reconnect=5)) as client:
            client.get_or_create_session(user_id="ada", thread_id="42")
    """

    call: float = 30.0
    """For the answer to a call."""
    open: float = 90.0
    """For a session, which may have to wait for a sandbox."""
    transfer: float = 600.0
    """For a file or an archive, with all tries."""
    reconnect: float = 60.0
    """For a daemon that was there and went away, as when it is restarted."""


@dataclass(frozen=True)
class Settings:
    """Which daemon, and how to get there. Clients with the same settings share a channel."""

    mode: Mode
    target: str
    """As gRPC wants it; empty in local mode."""
    is_secure: bool = False
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    """Certificates to trust, PEM; None means those of gRPC."""
    client_cert: str | None = None
    """Certificate to show, PEM, with `client_key`."""
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
    """Fill in from the environment what is not given."""
    environment = os.environ
    chosen = mode or ("remote" if server_url else environment.get("SANDBOXD_MODE", "remote"))
    if chosen == "local":
        local = tuple(sorted((local_settings or {}).items()))
        return Settings("local", "", local=local)
    if chosen != "remote":
        raise InvalidRequestError(f'mode: it is "local" or "remote", not {chosen!r}')
    target, is_secure = address(server_url or environment.get("SANDBOXD_URL") or _default_url())
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
    """What gRPC calls the target of a URL, and whether it is to be reached through TLS."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        return "unix:" + (path if not path.startswith("//") else path[2:]), False
    if url.startswith("/"):
        return f"unix:{url}", False
    if "://" not in url:
        url = f"grpc://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
        raise InvalidRequestError(
            f"server_url: {url!r} is none; write unix:/path, http://host:port, https://host:port, "
            "grpc://host:port or host:port"
        )
    is_secure = parts.scheme in ("https", "grpcs")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{parts.port or (443 if is_secure else DEFAULT_PORT)}", is_secure


def _default_url() -> str:
    run_dir = os.environ.get("SANDBOXD_RUN_DIR") or DEFAULT_RUN_DIR
    return f"unix:{os.environ.get('SANDBOXD_SOCKET') or f'{run_dir}/sandboxd.sock'}"
