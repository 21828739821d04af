"""Opens the doors of a daemon: what its configuration says about egress and upstreams."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from sandboxd.config import Config, UpstreamTable
from sandboxd.daemon.instance import StartRefused
from sandboxd.doors.addresses import AddressRules, PrivateNetwork, Resolver
from sandboxd.doors.egress import EgressLimits
from sandboxd.doors.egress_rules import EgressRule, InvalidHost, InvalidRule, normal_host
from sandboxd.doors.upstreams import Upstream, Upstreams, secret_of_file
from sandboxd.sandboxes.host import Host
from sandboxd.sessions.doors import DoorProvider, SessionDoors
from sandboxd.sessions.egress import EgressSettings, SessionEgress
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.ports import SessionPorts
from sandboxd.sessions.sessions import Sessions


def open_doors(
    config: Config,
    host: Host,
    journal: Journal,
    stack: AsyncExitStack,
    providers: Sequence[DoorProvider],
) -> SessionDoors:
    """What gives doors to sessions. StartRefused if a setting makes no sense."""
    resolver = Resolver(dict(map(_fixed_address, config.egress_hosts)))
    upstreams = {name: _upstream(name, one) for name, one in config.upstreams.items()}
    egress = SessionEgress(
        EgressSettings(
            allowed=_rules("SANDBOXD_EGRESS_ALLOW", config.egress_allow),
            of_environments={
                name: _rules(f"egress of [environments.{name}]", table.egress)
                for name, table in config.environments.items()
                if table.egress
            },
            limits=EgressLimits(
                max_bytes=config.egress_mb << 20,
                connections=config.egress_connections,
                connection_seconds=config.egress_connection_seconds,
            ),
            doors_problem=host.doors_problem,
        ),
        journal,
        addresses=AddressRules(_private_networks(config.egress_private)),
        resolver=resolver,
        upstreams=Upstreams(upstreams, resolver),
    )
    stack.push_async_callback(egress.aclose)
    return SessionDoors(providers, egress)


def open_ports(
    config: Config, sessions: Sessions, journal: Journal, stack: AsyncExitStack
) -> SessionPorts:
    ports = SessionPorts(sessions, journal, preview_port=config.preview_port)
    stack.push_async_callback(ports.aclose)
    return ports


def _rules(setting: str, texts: Sequence[str]) -> Sequence[EgressRule]:
    found = []
    for text in texts:
        try:
            found.append(EgressRule.parse(text))
        except InvalidRule as error:
            raise StartRefused(f"{setting}: {text!r}: {error}") from None
    return found


def _private_networks(texts: Sequence[str]) -> Sequence[PrivateNetwork]:
    try:
        return [PrivateNetwork.parse(text) for text in texts]
    except ValueError as error:
        raise StartRefused(f"SANDBOXD_EGRESS_PRIVATE: {error}") from None


def _fixed_address(text: str) -> tuple[str, str]:
    name, _, address = text.partition("=")
    try:
        host = normal_host(f"[{address}]" if ":" in address else address)
        if not host.rpartition(".")[2].isdigit() and ":" not in host:
            raise InvalidHost(f"{address!r} is not an address")
        return normal_host(name), host
    except InvalidHost as error:
        raise StartRefused(f"SANDBOXD_EGRESS_HOSTS: {text!r}: {error}") from None


def _upstream(name: str, table: UpstreamTable) -> Upstream:
    return Upstream(
        name=name,
        url=table.url.rstrip("/"),
        header=table.header,
        value=table.value,
        secret=_secret(name, table),
        methods=frozenset(table.methods),
        users=frozenset(table.users),
        requests_per_minute=table.requests_per_minute,
        max_bytes=table.max_mb << 20,
        ca_file=table.ca_file,
    )


def _secret(name: str, table: UpstreamTable) -> Callable[[], str]:
    """Reads the secret; StartRefused if it cannot be read now."""
    if table.secret_file is not None:
        read = partial(secret_of_file, table.secret_file)
        try:
            read()
        except (OSError, ValueError):
            raise StartRefused(
                f"[upstreams.{name}]: {table.secret_file} cannot be read, or is not one line"
            ) from None
        return read
    secret = os.environ.get(table.secret_env or "", "")
    if not secret:
        raise StartRefused(f"[upstreams.{name}]: the variable {table.secret_env} is not set")
    return lambda: secret
