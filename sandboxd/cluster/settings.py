"""What a worker of a cluster has to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DAY_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """The times that ownership depends on; the same for all workers of a cluster."""

    renew_seconds: float = 2.5
    self_fence_seconds: float = 10.0
    """A worker whose last renewal was sent so long ago, by its own clock, serves nothing."""
    write_seconds: float = 12.5
    """A worker that has not renewed for so long may write nothing."""
    lease_seconds: float = 15.0
    """Others may take the sessions of a worker that has not renewed for so long."""
    held_seconds: float = 7 * DAY_SECONDS
    """How long the record of a session outlives its owner, if nobody asks for it."""
    tombstone_seconds: float = 3600.0
    """How long a released session is remembered at least: its old owner may be away meanwhile."""
    forget_seconds: float = DAY_SECONDS
    """How long a lost worker is remembered."""

    def __post_init__(self) -> None:
        in_order = (
            0
            < self.renew_seconds
            < self.self_fence_seconds
            < self.write_seconds
            < self.lease_seconds
        )
        if not in_order:
            raise ValueError("renewal, self-fence, writes and lease must end one after the other")

    @classmethod
    def of(cls, lease_seconds: float) -> LeaseSettings:
        return cls(
            renew_seconds=lease_seconds / 6,
            self_fence_seconds=lease_seconds * 2 / 3,
            write_seconds=lease_seconds * 5 / 6,
            lease_seconds=lease_seconds,
        )

    @property
    def gap_seconds(self) -> float:
        """A silence or a step of the store's clock that is longer than this begins a new era."""
        return self.lease_seconds - self.self_fence_seconds


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    worker_id: str
    address: str
    """Where other workers and clients reach this one."""
    instance: str
    """Random name of the state directory: proves that a restarted worker is on the same host."""
    cluster_key: bytes
    """Secret of the cluster, from which session ids are made."""
    version: str = ""
    name: str = "sandboxd"
    """Of the cluster; several can share one Redis."""
    leases: LeaseSettings = LeaseSettings()

    def __post_init__(self) -> None:
        if not self.worker_id or not self.instance:
            raise ValueError("a worker needs an id and an instance")
        if len(self.cluster_key) < 16:
            raise ValueError("the cluster key must have at least 16 bytes")
        if any(character in self.name for character in "{}"):
            raise ValueError("the name of a cluster must not contain { or }")


@dataclass(frozen=True, kw_only=True)
class RedisSettings:
    host: str = "127.0.0.1"
    port: int = 6379
    socket_path: str = ""
    """Unix socket, in place of host and port."""
    sentinels: Sequence[tuple[str, int]] = ()
    """Addresses of sentinels that know the primary, in place of host and port."""
    primary_name: str = "sandboxd"
    """What the sentinels call it."""
    username: str = ""
    password: str = ""
    sentinel_username: str = ""
    sentinel_password: str = ""
    is_tls: bool = False
    ca_file: str = ""
    database: int = 0
    call_seconds: float = 2.0
    """Longest wait for an answer; well below the time between renewal and self-fence."""
    connections: int = 16
    replicas: int = 0
    """So many replicas must have a write before it counts; use 1 where sentinels fail over."""
