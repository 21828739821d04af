"""Costs that were measured, and assumptions about users, hosts and prices."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple


class RestorePoint(NamedTuple):
    """A workspace that was restored into a warm sandbox."""

    megabytes: float
    get_ms: float
    write_ms: float


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Costs of one operation. All of them were measured on a shared machine with 2 cores."""

    open_ms: float = 3.9
    """OpenSession on a warm pool: docs/performance.md."""
    start_ms: float = 250.0
    """Start of a sandbox while others start: docs/performance.md has 192 ms for one alone."""
    starts_at_once: int = 8
    """SANDBOXD_START_CONCURRENCY, its default."""
    claim_ms: float = 0.24
    """One script on Redis 7.0 (append-only file, each second) from an asyncio client, median."""
    restore: tuple[RestorePoint, ...] = (
        RestorePoint(0.0, 3.6, 0.2),
        RestorePoint(0.22, 4.9, 2.9),
        RestorePoint(5.0, 11.0, 51.0),
        RestorePoint(48.0, 157.0, 186.0),
    )
    """Unpark with Ceph's S3 gateway on loopback, medians of 6, without the open itself; for the
    whole of it in the daemon, which is 27 ms for the second, see decision 30. Beyond the last
    point the time grows as it does between the last two."""
    park_ms: float = 16.0
    """Park of a small workspace: docs/decisions/0030-turns-and-parking.md."""
    redis_ops_per_second: float = 18_000.0
    """Scripts that one core of Redis 7.0 did (redis-benchmark, 16 connections) that read the run
    id and a record and write one, as claims, commits, releases and renewals do."""
    redis_us_per_listed_worker: float = 17.0
    """Time of Redis for each worker in the list of all workers: 17 ms for a script that read a
    thousand of them."""
    redis_bytes_per_session: float = 300.0
    """Growth of `used_memory` for a million records, divided by their number."""
    idle_sandbox_mib: float = 10.0
    """Memory of an idle sandbox: docs/performance.md."""
    disk_per_sandbox_mb: float = 564.0
    """MAX_WORKSPACE_SIZE_MB and SANDBOXD_TMP_MB, which are allocated in advance."""
    lease_seconds: float = 15.0
    """A worker that has not renewed for so long gets no new sessions, and loses those it has."""
    renew_seconds: float = 2.5
    """Time between two renewals of a lease."""
    list_seconds: float = 3.0
    """A worker that places a session reads the list of all workers if what it has is older."""
    commit_seconds: float = 60.0
    """A session that has changed is stored so often while it is used."""

    def restore_ms(self, megabytes: float) -> float:
        """Time to get and write a workspace, on a line through the measured points."""
        sizes = [point.megabytes for point in self.restore]
        above = min(max(bisect_right(sizes, megabytes), 1), len(sizes) - 1)
        low, high = self.restore[above - 1], self.restore[above]
        part = (megabytes - low.megabytes) / (high.megabytes - low.megabytes)
        at_low, at_high = low.get_ms + low.write_ms, high.get_ms + high.write_ms
        return at_low + part * (at_high - at_low)


@dataclass(frozen=True, kw_only=True)
class Users:
    """What users do. Assumptions, none of them measured."""

    turn_seconds: float = 20.0
    """Time between two turns of a conversation."""
    least_active_seconds: float = 60.0
    most_active_seconds: float = 300.0
    """A session is used for a time between these two, all equally likely."""
    park_after_seconds: float = 600.0
    """SANDBOXD_PARK_AFTER_MINUTES."""
    returning_share: float = 0.7
    """Opens that are for a thread with files."""
    live_share: float = 0.1
    """Of the kept sessions, those that have a sandbox."""
    median_megabytes: float = 0.3
    mean_megabytes: float = 1.8
    """Of workspaces, which have a log-normal distribution."""
    most_megabytes: float = 500.0
    dirty_share: float = 0.6
    """Turns that change a file."""
    cpu_seconds_per_turn: float = 0.5
    active_mib: float = 128.0
    """Memory of a sandbox that is used, half of MEMORY_LIMIT's default."""

    @property
    def active_seconds(self) -> float:
        return (self.least_active_seconds + self.most_active_seconds) / 2

    @property
    def live_seconds(self) -> float:
        return self.active_seconds + self.park_after_seconds


@dataclass(frozen=True, kw_only=True)
class Prices:
    """US dollars, of the order that public clouds ask; replace them with your own."""

    host_month: float = 450.0
    """16 cores, 64 GB, reserved for a year."""
    redis_month: float = 400.0
    """A primary and two replicas."""
    million_puts: float = 5.0
    million_gets: float = 0.4
    gigabyte_month: float = 0.023


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What is simulated."""

    hosts: int
    sessions: int
    """Sessions that are kept, live and parked."""
    load: float = 1.0
    """Factor of the number of live sessions, and so of opens per second."""
    warm: int = 10
    """Warm sandboxes per host."""
    cores: int = 16
    memory_gib: float = 64.0
    disk_gb: float = 500.0
    sandboxes: int = 300
    """MAX_POOL_SIZE: warm, starting and used ones of a host."""
    lost_share: float = 0.0
    """Hosts that are lost at once."""
    connect_seconds: float = 1.0
    """Until a call to a lost host is given up and the next host is tried."""
    seconds: float = 600.0
    """Simulated time."""
    lost_at: float = 200.0
    seed: int = 1

    @property
    def lost_hosts(self) -> int:
        return round(self.hosts * self.lost_share)

    def live(self, users: Users) -> int:
        return round(self.sessions * users.live_share * self.load)

    def opens_per_second(self, users: Users) -> float:
        return self.live(users) / users.live_seconds
