"""The tables, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.growth.demand import (
    FULL_SHARE,
    Rates,
    Setting,
    dollars_per_thousand,
    fewest_hosts,
    list_reads,
    redis_ops,
    resources,
)
from benchmarks.growth.inputs import Fleet, Inputs, Prices, Users
from benchmarks.growth.simulation import Result, Simulation

FLEETS = (
    Fleet(hosts=100, sessions=100_000, lost_share=0.04),
    Fleet(hosts=1_000, sessions=1_000_000, lost_share=0.04),
)
SWEEP = Fleet(hosts=100, sessions=100_000, seconds=300.0)
LOADS = (1.0, 2.0, 3.0, 4.0)
WARM = (10, 3, 0)


@dataclass(frozen=True)
class Run:
    setting: Setting
    result: Result

    @property
    def rates(self) -> Rates:
        return Rates.of(self.result, self.setting.fleet.seconds)


def simulated(fleet: Fleet) -> Run:
    setting = Setting(fleet=fleet, inputs=Inputs(), users=Users())
    return Run(setting, Simulation(fleet, setting.inputs, setting.users).run())


def percentile(samples: Sequence[float], percent: float) -> float:
    if not samples:
        return 0.0
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def report() -> str:
    """All tables; some seconds."""
    runs = [simulated(fleet) for fleet in FLEETS]
    return "\n\n".join(
        [
            "### In use, and with 4 % of the hosts lost at once",
            _overview(runs),
            "### What breaks first",
            _resources(runs),
            _sweep(),
            "### US dollars a month, per 1,000 kept sessions",
            _costs(runs),
        ]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _percentiles(samples: Sequence[float], *percents: float) -> str:
    return " / ".join(f"{percentile(samples, percent):,.0f}" for percent in percents)


def _overview(runs: Sequence[Run]) -> str:
    rows = [
        ["kept / live sessions", *map(_sessions, runs)],
        ["opens per second", *(f"{run.rates.opens:,.0f}" for run in runs)],
        [
            "open, ms: p50 / p95 / p99 / p99.9",
            *(_percentiles(run.result.open_ms, 50, 95, 99, 99.9) for run in runs),
        ],
        [
            "opens without a warm sandbox / refused",
            *(f"{run.result.misses:,} / {run.result.refused:,}" for run in runs),
        ],
        ["fullest host, of the mean", *(f"{_fullest(run.result):.2f}" for run in runs)],
        [
            "restores per second, MB per second",
            *(f"{run.rates.restores:,.0f}, {run.rates.restored_mb:,.0f}" for run in runs),
        ],
        [
            "parks / commits per second",
            *(f"{run.rates.parks:,.0f} / {run.rates.commits:,.0f}" for run in runs),
        ],
        [
            "Redis: operations / reads of the list of workers per second",
            *(_redis(run) for run in runs),
        ],
        [
            "lost at once: hosts / live sessions / of these in use",
            *(_lost(run) for run in runs),
        ],
        [
            "in use again after, s (all of them)",
            *(f"{run.result.served_again_after:.1f}" for run in runs),
        ],
        [
            "reopens in the busiest second; ms p50 / p99",
            *(_reopens(run.result) for run in runs),
        ],
        [
            "work lost since the last commit, s: mean / most",
            *(_lost_work(run.result) for run in runs),
        ],
        [
            "tries on a lost host before its lease ended",
            *(f"{run.result.unreachable:,}" for run in runs),
        ],
    ]
    return _table(["", *(f"{run.setting.fleet.hosts:,} hosts" for run in runs)], rows)


def _sessions(run: Run) -> str:
    return f"{run.setting.fleet.sessions:,} / {run.setting.fleet.live(run.setting.users):,}"


def _fullest(result: Result) -> float:
    return max(result.used) * len(result.used) / sum(result.used)


def _redis(run: Run) -> str:
    ops = sum(redis_ops(run.rates, run.setting).values())
    return f"{ops:,.0f} / {list_reads(run.rates, run.setting):,.0f}"


def _lost(run: Run) -> str:
    result = run.result
    return f"{run.setting.fleet.lost_hosts} / {result.lost_live:,} / {result.lost_active:,}"


def _reopens(result: Result) -> str:
    busiest = max(result.reopens_per_second.values(), default=0)
    return f"{busiest:,}; {_percentiles(result.reopen_ms, 50, 99)}"


def _lost_work(result: Result) -> str:
    lost = result.lost_work_seconds
    return f"{sum(lost) / len(lost):.0f} / {max(lost):.0f}"


def _resources(runs: Sequence[Run]) -> str:
    """Per resource what is used of it; those that the largest fleet uses most first."""
    found = [{one.name: one for one in resources(run.rates, run.setting)} for run in runs]
    rows = []
    for name, largest in found[-1].items():
        needs = [f"{one[name].needed:,.2f} ({one[name].used_share:.1%})" for one in found]
        rows.append([name, f"{largest.available:,.0f} {largest.unit}", *needs])
    heads = (f"{run.setting.fleet.hosts:,} hosts need" for run in runs)
    return _table(["resource", "there is", *heads], rows)


def _sweep() -> str:
    """The same fleet with more live sessions, and with fewer warm sandboxes."""
    fleets = [replace(SWEEP, load=load) for load in LOADS]
    fleets += [replace(SWEEP, warm=warm) for warm in WARM[1:]]
    rows = []
    for fleet in fleets:
        run = simulated(fleet)
        result = run.result
        live = fleet.live(run.setting.users) / fleet.hosts
        rows.append(
            [
                f"{live:,.0f}",
                f"{fleet.warm}",
                f"{run.rates.opens:,.0f}",
                _percentiles(result.open_ms, 50, 99),
                f"{result.misses / result.opens:.1%}",
                f"{result.refused / result.opens:.1%}",
            ]
        )
    head = ["live per host wanted", "warm", "opens/s", "ms p50 / p99", "no warm one", "refused"]
    return _table(head, rows)


def _costs(runs: Sequence[Run]) -> str:
    costs = [dollars_per_thousand(run.rates, run.setting, Prices()) for run in runs]
    rows = [[name, *(f"{cost[name]:,.2f}" for cost in costs)] for name in costs[0]]
    rows.append(["together", *(f"{sum(cost.values()):,.2f}" for cost in costs)])
    fewest = [fewest_hosts(run.rates, run.setting) for run in runs]
    per_thousand = [
        count * Prices().host_month / (run.setting.fleet.sessions / 1000)
        for count, run in zip(fewest, runs, strict=True)
    ]
    rows.append(
        [
            f"hosts alone, if each were used to {FULL_SHARE:.0%}",
            *(
                f"{dollars:,.2f} ({count:,} hosts)"
                for dollars, count in zip(per_thousand, fewest, strict=True)
            ),
        ]
    )
    return _table(["", *(f"{run.setting.fleet.hosts:,} hosts" for run in runs)], rows)
