"""Where the time of a run goes, by folder: seconds of its tests, and processor seconds of the
processes of its tests, their daemons included. The engine and its containers are nobody's children:
they are only in the sum of the whole machine.

The passes of a run add to one file; `python -m tests.times FILE` prints its table."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_KEY = "processor_seconds"
_MACHINE = "the whole machine"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--times", metavar="FILE", help="add the time of each folder to a file")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--times")) is None:
        return
    config.pluginmanager.register(_Meter(config), "meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Times(Path(path)), "times")


class _Meter:
    """Counts in the process that runs tests. It looks only when the folder changes: a look at all
    processes takes longer than most tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder = ""
        self._spent = 0.0
        self._spent_in: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if (folder := _folder(item.nodeid)) != self._folder:
            self._count(folder)
        return (yield)

    @pytest.hookimpl(tryfirst=True)  # before the table is written
    def pytest_sessionfinish(self) -> None:
        self._count("")
        if hasattr(self._config, "workerinput"):
            self._config.workeroutput[_KEY] = dict(self._spent_in)  # type: ignore[attr-defined]
        elif (table := self._config.pluginmanager.get_plugin("times")) is not None:
            table.add(self._spent_in)

    def _count(self, folder: str) -> None:
        spent = _spent_with_children()
        if self._folder:
            self._spent_in[self._folder] += spent - self._spent
        self._folder, self._spent = folder, spent


@dataclass
class _Folder:
    tests: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0


class _Times:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._folders: dict[str, _Folder] = defaultdict(_Folder)
        self._machine_before = _spent_by_machine()

    def add(self, spent_in: dict[str, float]) -> None:
        for name, seconds in spent_in.items():
            self._folders[name].processor_seconds += seconds

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.add(getattr(node, "workeroutput", {}).get(_KEY, {}))  # a worker that crashed has none

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name in (_folder(report.nodeid), _MACHINE):
            self._folders[name].seconds += report.duration
            self._folders[name].tests += report.when == "call"

    def pytest_terminal_summary(self) -> None:
        spent = _spent_by_machine() - self._machine_before
        self._folders[_MACHINE].processor_seconds += spent
        with self._path.open("a") as file:
            lines = {name: asdict(folder) for name, folder in self._folders.items()}
            file.write(json.dumps(lines) + "\n")


def table(path: Path) -> str:
    folders: dict[str, _Folder] = defaultdict(_Folder)
    for line in path.read_text().splitlines():
        for name, added in json.loads(line).items():
            folders[name].tests += added["tests"]
            folders[name].seconds += added["seconds"]
            folders[name].processor_seconds += added["processor_seconds"]
    whole = folders.pop(_MACHINE, _Folder())
    rows = sorted(folders.items(), key=lambda pair: -pair[1].seconds)
    return "\n".join(
        [
            f"{'folder':24} {'tests':>6} {'seconds':>8} {'processor':>10}",
            *(
                f"{name:24} {row.tests:6} {row.seconds:8.0f} {row.processor_seconds:10.0f}"
                for name, row in [*rows, (_MACHINE, whole)]
            ),
        ]
    )


def _folder(nodeid: str) -> str:
    return nodeid.partition("::")[0].rpartition("/")[0]


def _spent_with_children() -> float:
    """Of this process and what it started, as far as that runs or was waited for."""
    times = dict(_times_of_all())
    ours = {os.getpid()}
    children = defaultdict(list)
    for pid, (parent, _) in times.items():
        children[parent].append(pid)
    waiting = [os.getpid()]
    while waiting:
        started = children[waiting.pop()]
        ours.update(started)
        waiting += started
    return sum(times[pid][1] for pid in ours)


def _times_of_all() -> Iterable[tuple[int, tuple[int, float]]]:
    """The parent of each process, and its time with that of the children that it waited for."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_bytes()
        except OSError:
            continue  # it has ended; its time is with its parent's
        fields = stat.rpartition(b")")[2].split()
        yield int(entry.name), (int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)


def _spent_by_machine() -> float:
    user, nice, system, _, _, irq, softirq = map(
        int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
