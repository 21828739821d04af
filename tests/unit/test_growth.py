"""The growth calculation: deterministic, loses nobody, and right where it can be done by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.growth.__main__ import BEGIN, END, with_tables
from benchmarks.growth.demand import (
    Rates,
    Setting,
    dollars_per_thousand,
    fewest_hosts,
    list_reads,
    redis_cores,
    resources,
)
from benchmarks.growth.inputs import Fleet, Inputs, Prices, Users
from benchmarks.growth.report import percentile
from benchmarks.growth.simulation import Simulation, State

SMALL = Fleet(hosts=20, sessions=5_000, seconds=300.0, lost_share=0.1, lost_at=100.0)
ALWAYS = Users(least_active_seconds=180.0, most_active_seconds=180.0, returning_share=0.0)
"""Sessions that are all new and used equally long."""
FIXED_MS = Inputs().claim_ms + Inputs().open_ms


def one_host(**changes: float) -> Fleet:
    return Fleet(**{"hosts": 1, "sessions": 100, "seconds": 2_000.0, **changes})  # type: ignore[arg-type]


def simulated(fleet: Fleet, opens: list[float], users: Users = ALWAYS) -> Simulation:
    simulation = Simulation(fleet, Inputs(), users, opens=opens)
    simulation.run()
    return simulation


def milliseconds(simulation: Simulation) -> list[float]:
    return [pytest.approx(sample, abs=1e-6) for sample in sorted(simulation.result.open_ms)]


@pytest.fixture(scope="module")
def small() -> Simulation:
    simulation = Simulation(SMALL)
    simulation.run()
    return simulation


def test_the_same_seed_gives_the_same_result(small: Simulation) -> None:
    assert Simulation(SMALL).run() == small.result
    assert Simulation(replace(SMALL, seed=2)).run() != small.result


def test_no_session_is_lost_or_counted_twice(small: Simulation) -> None:
    """Every session is in one state; hosts hold those that are live or on their way."""
    result = small.result
    assert result.opens > 100
    assert result.lost_live > 50

    recount = Counter(map(State, small.states))
    assert [recount[state] for state in State] == result.counts
    assert sum(result.counts) == SMALL.sessions + result.created
    away = small._away
    assert len(away) == len(set(away)) == recount[State.PARKED] + recount[State.LOST]
    held = small._sessions
    assert {State(small.states[number]) for number in held} <= {State.LIVE, State.OPENING}
    assert len(held) == recount[State.LIVE] + recount[State.OPENING]
    assert not set(held) & set(away)


def test_hosts_hold_the_sessions_that_are_on_them(small: Simulation) -> None:
    on = Counter(one.host for one in small._sessions.values() if one.host >= 0)
    for number, host in enumerate(small.hosts):
        assert on[number] == host.used + len(host.waiting)
        assert host.sandboxes <= SMALL.sandboxes
        assert not host.is_lost or on[number] == 0


def test_an_open_on_a_warm_host_takes_a_claim_and_an_open() -> None:
    assert milliseconds(simulated(one_host(warm=1), [1.0])) == [FIXED_MS]


def test_an_open_without_a_warm_sandbox_waits_for_a_start() -> None:
    """The first takes the warm one, whose replacement starts at once and serves the second."""
    simulation = simulated(one_host(warm=1), [1.0, 1.0])

    assert milliseconds(simulation) == [FIXED_MS, FIXED_MS + 250]
    assert simulation.result.misses == 1


def test_only_so_many_sandboxes_start_at_once() -> None:
    """Of ten opens on a host without warm sandboxes, two wait for a second round of starts."""
    simulation = simulated(one_host(warm=0), [1.0] * 10)

    assert milliseconds(simulation) == [FIXED_MS + 250] * 8 + [FIXED_MS + 500] * 2


def test_a_full_host_refuses() -> None:
    simulation = simulated(one_host(warm=0, sandboxes=3), [1.0] * 5)

    assert simulation.result.refused == 2
    assert len(simulation.result.open_ms) == 3


def test_a_session_is_parked_when_it_was_idle_and_leaves_its_place() -> None:
    """180 s of use and 600 s of idle time later its place is free for the next one."""
    fleet = one_host(warm=0, sandboxes=1)

    assert simulated(fleet, [1.0, 780.0]).result.refused == 1
    after = simulated(fleet, [1.0, 782.0])
    assert after.result.refused == 0
    assert after.result.counts[State.PARKED] == 2


def test_turns_and_commits_follow_from_the_time_of_use() -> None:
    """180 s: a turn at once and one each 20 s (the last would be at its end); three minutes, in
    each of which one of three turns changes something."""
    result = simulated(one_host(warm=1), [1.0]).result

    assert result.turns == 9
    assert result.commits == pytest.approx(3 * (1 - 0.4**3), rel=1e-3)


@pytest.mark.parametrize(
    ("megabytes", "expected"),
    [(0.0, 3.8), (0.22, 7.8), (2.61, 34.9), (5.0, 62.0), (48.0, 343.0), (91.0, 624.0)],
)
def test_restores_take_what_was_measured(megabytes: float, expected: float) -> None:
    """At the measured sizes what was measured; between and beyond them, on a line."""
    assert Inputs().restore_ms(megabytes) == pytest.approx(expected)


def test_a_session_of_a_lost_host_is_served_again_after_the_fence() -> None:
    """When the lease of 15 s is over, as fast as a restore; work since the last commit is lost."""
    users = replace(ALWAYS, turn_seconds=10.0)
    fleet = one_host(hosts=2, warm=1, lost_share=0.5, lost_at=71.0)
    opens = [1.0 - FIXED_MS / 1000] * 2  # served at 1.0; the least loaded of two: one on each
    result = simulated(fleet, opens, users).result

    assert result.lost_live == result.lost_active == 1
    assert result.lost_work_seconds == [pytest.approx(10.0)]
    (again,) = result.reopen_ms
    assert again >= FIXED_MS + 3.8
    assert result.served_again_after == pytest.approx(15.0 + again / 1000)


def test_a_host_that_is_not_known_to_be_lost_costs_a_try() -> None:
    """Until its lease has ended the empty lost host looks best; the next try may find another."""
    fleet = one_host(hosts=2, warm=1, lost_share=0.5, lost_at=10.0)
    during = simulated(fleet, [10.5] * 20).result
    after = simulated(fleet, [25.5] * 20).result

    assert during.unreachable > 0
    assert after.unreachable == 0
    assert len(during.open_ms) == len(after.open_ms) == 20
    assert during.counts[State.OPENING] == after.counts[State.OPENING] == 0


def test_more_load_needs_more_of_everything() -> None:
    """Rates, shares of resources, refusals and costs of use grow with the load."""
    runs = [Simulation(replace(SMALL, load=load, lost_share=0.0)) for load in (1, 4, 16)]
    results = [run.run() for run in runs]
    settings = [Setting(fleet=run.fleet, inputs=run.inputs, users=run.users) for run in runs]
    rates = [Rates.of(result, SMALL.seconds) for result in results]
    shares = [
        {one.name: one.used_share for one in resources(*pair)}
        for pair in zip(rates, settings, strict=True)
    ]
    prices = [
        sum(dollars_per_thousand(*pair, Prices()).values())
        for pair in zip(rates, settings, strict=True)
    ]
    hosts = [fewest_hosts(*pair) for pair in zip(rates, settings, strict=True)]

    for light, heavy in ((0, 1), (1, 2)):
        assert results[light].opens < results[heavy].opens
        assert results[light].refused <= results[heavy].refused
        assert results[light].misses <= results[heavy].misses
        for name, share in shares[light].items():
            assert share <= shares[heavy][name], name
        assert prices[light] < prices[heavy]
        assert hosts[light] < hosts[heavy]
    assert results[0].refused == 0 < results[2].refused


def test_reading_the_list_of_workers_grows_with_the_square() -> None:
    """Ten times the fleet reads the list ten times as often, and it is ten times as long."""
    rates = Rates(opens=10, turns=0, parks=0, restores=1, restored_mb=1, commits=0)
    tenfold = replace(rates, opens=100)
    small, large = (
        Setting(fleet=Fleet(hosts=hosts, sessions=1), inputs=Inputs(), users=Users())
        for hosts in (100, 1_000)
    )

    # 0.1 opens per second and host, and a list that is good for 3 s: 0.1 / 1.3 reads.
    assert list_reads(rates, small) == pytest.approx(100 * 0.1 / 1.3)
    assert list_reads(tenfold, large) == pytest.approx(10 * list_reads(rates, small))
    assert redis_cores(rates, small)[1] == pytest.approx(100 * 0.1 / 1.3 * 100 * 17e-6)
    assert redis_cores(tenfold, large)[1] == pytest.approx(100 * redis_cores(rates, small)[1])


def test_a_percentile_of_nothing_is_nothing() -> None:
    assert percentile([], 99) == 0
    assert percentile([3, 1, 2], 50) == 2
    assert percentile(range(100), 99.9) == 99


def test_tables_are_written_between_the_marks_and_nowhere_else() -> None:
    assert with_tables(f"a\n{BEGIN}\nold\n{END}\nb\n", "new") == f"a\n{BEGIN}\nnew\n{END}\nb\n"
    for page in ("", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with pytest.raises(ValueError, match="the page needs one line"):
            with_tables(page, "new")


def test_the_page_has_tables_of_both_fleets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    written = page.split(BEGIN)[1].split(END)[0]

    assert "| kept / live sessions | 100,000 / 10,000 | 1,000,000 / 100,000 |" in written
    assert written.count("\n| --- ") == 4
