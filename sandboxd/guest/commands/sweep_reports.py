"""Reports to the daemon about killed commands that take a while to end."""

import time

from .. import frames
from ..daemon_link import DaemonLink


class _Report:
    """The next report about one command. Not a dataclass: the module of those, with all that it
    imports, takes a megabyte of every sandbox."""

    def __init__(self, period: float, due_at: float) -> None:
        self.period = period
        self.due_at = due_at
        self.number = 1


class SweepReports:
    """Reports each killed command until it has ended, as often as KILL asked for."""

    def __init__(self, link: DaemonLink) -> None:
        self._link = link
        self._reports: dict[int, _Report] = {}

    def begin(self, channel: int, period: float) -> None:
        if channel not in self._reports:
            self._reports[channel] = _Report(period, time.monotonic() + period)

    def end(self, channel: int) -> None:
        self._reports.pop(channel, None)

    def clear(self) -> None:
        """The daemon that asked for them is gone."""
        self._reports.clear()

    def __bool__(self) -> bool:
        return bool(self._reports)

    @property
    def next_at(self) -> float:
        return min((report.due_at for report in self._reports.values()), default=float("inf"))

    def send_due(self) -> None:
        now = time.monotonic()
        for channel, report in self._reports.items():
            if report.due_at <= now:
                self._link.send(frames.encode_sweeping(channel, report.number))
                report.number += 1
                # Never sooner than asked for, so no report makes up for one that came late.
                report.due_at = now + report.period
