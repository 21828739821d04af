"""What a fleet needs of each resource, how much there is, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.growth.inputs import Fleet, Inputs, Prices, Users
from benchmarks.growth.simulation import Result

MONTH_SECONDS = 30 * 86_400
S3_PUTS_PER_SECOND = 3_500.0
"""For one prefix of a bucket, as the documentation of S3 has it. Each user is a prefix of its own,
but a new prefix is given its share only after some time."""

FULL_SHARE = 0.7
"""A host is called full at this share of a resource: the rest is for hosts that are lost."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Operations per second, from the counts of a simulation."""

    opens: float
    turns: float
    parks: float
    restores: float
    restored_mb: float
    commits: float

    @classmethod
    def of(cls, result: Result, seconds: float) -> Rates:
        return cls(
            opens=result.opens / seconds,
            turns=result.turns / seconds,
            parks=result.parks / seconds,
            restores=result.restores / seconds,
            restored_mb=result.restored_mb / seconds,
            commits=result.commits / seconds,
        )


@dataclass(frozen=True)
class Resource:
    name: str
    needed: float
    available: float
    unit: str

    @property
    def used_share(self) -> float:
        return self.needed / self.available


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all calculations are about."""

    fleet: Fleet
    inputs: Inputs
    users: Users


def redis_ops(rates: Rates, setting: Setting) -> dict[str, float]:
    """Per second, if nobody remembers where a session is."""
    return {
        "look-ups, one per turn": rates.turns,
        "claims": rates.opens,
        "releases": rates.parks,
        "commits": rates.commits,
        "renewals": setting.fleet.hosts / setting.inputs.renew_seconds,
    }


def list_reads(rates: Rates, setting: Setting) -> float:
    """Reads of the list of workers per second: opens of a host that come when its list is old."""
    per_host = rates.opens / setting.fleet.hosts
    return setting.fleet.hosts * per_host / (1 + per_host * setting.inputs.list_seconds)


def redis_cores(rates: Rates, setting: Setting) -> tuple[float, float]:
    """For the records of sessions and leases, and for the list of workers."""
    records = sum(redis_ops(rates, setting).values()) / setting.inputs.redis_ops_per_second
    one_list = setting.fleet.hosts * setting.inputs.redis_us_per_listed_worker / 1e6
    return records, list_reads(rates, setting) * one_list


def resources(rates: Rates, setting: Setting) -> list[Resource]:
    """Those that are used most first."""
    fleet, inputs, users = setting.fleet, setting.inputs, setting.users
    live = fleet.live(users) / fleet.hosts
    active = live * users.active_seconds / users.live_seconds
    sandboxes = live + fleet.warm
    memory = (sandboxes * inputs.idle_sandbox_mib + active * users.active_mib) / 1024
    starts = inputs.starts_at_once / (inputs.start_ms / 1000)
    per_restore = inputs.restore_ms(rates.restored_mb / rates.restores) / 1000
    cpu = (
        active / users.turn_seconds * users.cpu_seconds_per_turn
        + rates.restores / fleet.hosts * per_restore
        + rates.opens / fleet.hosts * inputs.start_ms / 1000
        + rates.parks / fleet.hosts * inputs.park_ms / 1000
    )
    records, lists = redis_cores(rates, setting)
    memory_of_redis = fleet.sessions * inputs.redis_bytes_per_session / 1e9
    found = [
        Resource("places for sandboxes, per host", sandboxes, fleet.sandboxes, "sandboxes"),
        Resource("memory, per host", memory, fleet.memory_gib, "GiB"),
        Resource(
            "disk, per host", sandboxes * inputs.disk_per_sandbox_mb / 1000, fleet.disk_gb, "GB"
        ),
        Resource("processors, per host", cpu, fleet.cores, "cores"),
        Resource("starts of sandboxes, per host", rates.opens / fleet.hosts, starts, "1/s"),
        Resource("Redis: sessions and leases", records, 1.0, "core"),
        Resource("Redis: list of workers", lists, 1.0, "core"),
        Resource("Redis: memory", memory_of_redis, 16.0, "GB"),
        Resource("object store: writes", rates.commits + rates.parks, S3_PUTS_PER_SECOND, "1/s"),
    ]
    return sorted(found, key=lambda resource: resource.used_share, reverse=True)


def fewest_hosts(rates: Rates, setting: Setting) -> int:
    """Hosts for the same load if they used so much of what they have least of."""
    of_hosts = [one for one in resources(rates, setting) if one.name.endswith("per host")]
    scarcest = max(one.used_share for one in of_hosts)
    return math.ceil(setting.fleet.hosts * scarcest / FULL_SHARE)


def dollars_per_thousand(rates: Rates, setting: Setting, prices: Prices) -> dict[str, float]:
    """A month, for each thousand sessions that are kept."""
    fleet, users = setting.fleet, setting.users
    thousands = fleet.sessions / 1000
    puts = (rates.commits + rates.parks) * MONTH_SECONDS / 1e6
    return {
        "hosts": fleet.hosts * prices.host_month / thousands,
        "Redis": prices.redis_month / thousands,
        "writes to the object store": puts * prices.million_puts / thousands,
        "reads from it": rates.restores * MONTH_SECONDS / 1e6 * prices.million_gets / thousands,
        "space in it": users.mean_megabytes * prices.gigabyte_month,
    }
