"""The page and the chart of `scripts/bench --peers` say what was measured, and what was not."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers import tasks
from benchmarks.peers.chart import Scale, chart
from benchmarks.peers.columns import ABSENT, MODULES, OF_THE_INDEX, USES
from benchmarks.peers.install import PACKAGES
from benchmarks.peers.page import CHART, page
from benchmarks.peers.process import ContenderFailed, running
from benchmarks.peers.results import (
    OURS,
    Column,
    Failed,
    Measured,
    Outcome,
    Results,
    Row,
    cell,
    ratio,
    ratio_text,
    time_text,
)

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
OTHER = "other"


def results(row: Row, task: str = tasks.TRUE) -> Results:
    columns = [
        Column(OURS, "1.0", "the SDK"),
        Column(OTHER, "2.0", "a pool", {tasks.SHELL: "it has no shell"}),
    ]
    return Results(columns, {task: row}, {"date": "2026-01-02", "load": "0.1 at the begin"})


def texts(drawing: str) -> list[str]:
    return [found.text or "" for found in ElementTree.fromstring(drawing).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 ms"),
        (0.00224, "2.2 ms"),
        (0.0552, "55 ms"),
        (0.9994, "999 ms"),
        (2.386, "2.39 s"),
    ],
)
def test_times_have_digits_that_mean_something(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.614, "0.61"), (1.756, "1.76"), (4.97, "5.0"), (66.7, "67")]
)
def test_ratios_have_digits_that_mean_something(value: float, text: str) -> None:
    assert ratio_text(value) == text


def test_a_ratio_above_one_means_slower_than_ours() -> None:
    assert ratio(Measured(0.3, 5), Measured(0.1, 5)) == pytest.approx(3)
    assert ratio(Measured(0.1, 5), Measured(0.2, 5)) == pytest.approx(0.5)


@pytest.mark.parametrize("ours", [None, Failed("no"), Measured(0.0, 5)])
def test_without_a_figure_of_ours_there_is_a_time_and_no_ratio(ours: Outcome | None) -> None:
    """Nothing is divided by zero, or by nothing."""
    row = {OTHER: Measured(0.05, 5), **({} if ours is None else {OURS: ours})}

    assert ratio(row[OTHER], ours) is None
    assert cell(row, OTHER) == "50 ms"
    assert "50 ms" in texts(chart(results(row)))


def test_a_cell_has_the_time_and_for_others_the_ratio() -> None:
    row = {OURS: Measured(0.002, 5), OTHER: Measured(0.05, 5)}

    assert cell(row, OURS) == "2.0 ms"
    assert cell(row, OTHER) == "50 ms (25x)"
    assert cell(row, "another") == "-"


def test_a_page_has_facts_versions_figures_and_its_chart() -> None:
    written = page(results({OURS: Measured(0.002, 5), OTHER: Measured(0.05, 5)}))

    assert "| date | 2026-01-02 |" in written
    assert "| `true` in an open session | 2.0 ms | 50 ms (25x) |" in written
    assert "- **other 2.0**: a pool" in written
    assert f"]({CHART})" in written
    assert "`./scripts/bench --peers` has written this page" in written
    assert "no figure" not in written


def test_one_that_failed_is_shown_as_failed() -> None:
    found = results({OURS: Measured(0.002, 5), OTHER: Failed("RuntimeError: no container")})

    assert "| 2.0 ms | failed |" in page(found)
    assert "- other: `true` in an open session: failed: RuntimeError: no container" in page(found)
    assert "other: failed" in texts(chart(found))


def test_one_without_the_task_is_named_with_the_reason() -> None:
    found = results({OURS: Measured(0.002, 5)}, tasks.SHELL)

    assert "| 2.0 ms | - |" in page(found)
    assert "- other: `true` in a shell that stays: it has no shell" in page(found)


def test_a_reason_names_no_address_and_no_directory_and_is_no_mark_up() -> None:
    said = "pip: https://index.example/simple failed, see /tmp/x/pip.log (host='index.example') <b>"
    written = page(results({OURS: Measured(0.002, 5), OTHER: Failed(said)}))

    assert "index.example" not in written
    assert "/tmp" not in written
    assert "pip.log" in written
    assert "<b>" not in re.sub(r"\\.", "", written)


@pytest.mark.parametrize(
    "row",
    [
        {OURS: Measured(0.002, 5), OTHER: Measured(2.5, 5)},
        {OURS: Measured(0.0, 5), OTHER: Measured(0.0, 5)},
        {OURS: Failed("<no> & none"), OTHER: Failed("no")},
        {},
    ],
)
def test_a_chart_is_valid_and_its_bars_are_inside(row: Row) -> None:
    drawing = ElementTree.fromstring(chart(results(row)))
    width, height = float(drawing.attrib["width"]), float(drawing.attrib["height"])

    for box in drawing.iter(f"{SVG}rect"):
        x, y = float(box.attrib.get("x", 0)), float(box.attrib.get("y", 0))
        assert 0 <= x <= x + float(box.attrib["width"]) <= width
        assert 0 <= y <= y + float(box.attrib["height"]) <= height


def test_a_chart_follows_the_colours_of_its_reader() -> None:
    assert "prefers-color-scheme: dark" in chart(results({}))


def test_a_chart_says_what_was_measured_when_and_under_which_load() -> None:
    captions = texts(chart(results({OURS: Measured(0.002, 5)})))[-2:]

    assert captions == [f"{OURS} 1.0, other 2.0", "2026-01-02; load 0.1 at the begin"]


def test_longer_is_further_right() -> None:
    scale = Scale([0.002, 0.05, 2.5])
    ends = [scale.at(seconds) for seconds in (0.0, 0.001, 0.002, 0.05, 2.5, 10.0, 1e9)]

    assert ends == sorted(ends)
    assert Scale([0.010, 0.020]).at(0.010) > Scale([0.010, 0.020]).at(0.005) > scale.at(0.0)
    assert scale.at(0.01) - scale.at(0.001) == pytest.approx(scale.at(0.1) - scale.at(0.01))
    assert not any(math.isnan(end) for end in ends)


def test_every_contender_says_how_it_is_used_and_what_it_lacks() -> None:
    assert list(MODULES) == list(USES)
    assert set(OF_THE_INDEX) == set(PACKAGES)
    for name, reasons in ABSENT.items():
        assert name in MODULES
        assert set(reasons) <= set(tasks.TITLES)


def test_content_has_the_size_that_was_asked_for() -> None:
    assert [len(tasks.content(size)) for size in (0, 1, 1_000, 1_000_000)] == [
        0,
        1,
        1_000,
        1_000_000,
    ]


async def test_a_contender_that_does_not_start_fails_with_the_reason(tmp_path: Path) -> None:
    async with running(sys.executable, "on_nothing", {}, tmp_path / "log") as contender:
        assert "on_nothing" in contender.failure
        with pytest.raises(ContenderFailed, match="its process ended"):
            await contender.ask(tasks.TRUE)


async def test_answers_of_a_contender_are_its_times_and_its_errors(tmp_path: Path) -> None:
    """What it prints itself, or raises, does not confuse the driver; it goes on afterwards."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{CONTENDER}' \"$3\"\n")
    program.chmod(0o755)

    async with asyncio.timeout(60), running(program, "x", {"a": "b"}, tmp_path / "log") as one:
        assert (one.version, one.tasks) == ("3", ["good", "bad", "wrong"])
        assert await one.ask("good") >= 0
        with pytest.raises(ContenderFailed, match="OSError: no luck"):
            await one.ask("bad")
        with pytest.raises(ContenderFailed, match="wrong result: 5"):
            await one.ask("wrong")
        assert await one.ask("good") >= 0
    assert "noise" in (tmp_path / "log").read_text()
    assert "closed b" in (tmp_path / "log").read_text()


CONTENDER = """
from benchmarks.peers.answers import check, serve
class Contender:
    version = "3"
    def __init__(self, given):
        self.given = given
        self.calls = {"good": self.good, "bad": self.bad, "wrong": self.wrong}
    def good(self):
        print("noise", flush=True)
    def bad(self):
        raise OSError("no\\nluck")
    def wrong(self):
        return lambda: check(False, 5)
    def close(self):
        print("closed", self.given["a"], flush=True)
serve(Contender)
"""


def test_help_of_the_script_names_every_option() -> None:
    def help_of(*words: str) -> str:
        return subprocess.run(
            [*words, "--help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    shown = help_of("scripts/bench")
    known = set(re.findall(r"--[a-z]+", help_of(sys.executable, "-m", "benchmarks"))) - {"--help"}

    assert {"--quick", "--peers", "--features", "--json"} <= known
    assert known <= set(re.findall(r"--[a-z]+", shown))
    assert "set -euo" not in shown
