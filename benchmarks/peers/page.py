"""`docs/benchmarks.md`: the table, what was compared with what, and what has no figure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.peers.results import OURS, Column, Failed, Results, Row, cell
from benchmarks.peers.tasks import TITLES

CHART = "benchmarks.svg"
HEAD = f"""\
# Next to other libraries

`./scripts/bench --peers` has written this page and its chart; do not edit them. It installs the
peers from the package index, measures all in one run, in turns and in random order, and removes
them again. Times are medians; in brackets: how many times as long as {OURS} in the same run.
Ratios differ less than milliseconds between machines, and both mean little under a high load.
[Decision 37](decisions/0037-peers-in-the-bench.md) says why these peers and what makes it fair.
What {OURS} costs next to a host subprocess is on the page [What it costs](performance.md).

![The main rows as bars, on a logarithmic scale]({CHART})
"""
BELOW = f"""\
Sandboxes differ in more than time. {OURS} gives every session a fresh sandbox with a user of its
own, a read-only root, a system call filter, limits and no network, and destroys it afterwards. The
peers run with the defaults of Docker, and a pool of llm-sandbox gives the same container to one
session after the other.
"""


def page(results: Results) -> str:
    return "\n".join([HEAD, *_facts(results), *_table(results), *_uses(results), *_gaps(results)])


def _facts(results: Results) -> Iterator[str]:
    yield "| run | |"
    yield "|---|---|"
    for name, value in results.facts.items():
        yield f"| {name} | {value} |"
    yield ""


def _table(results: Results) -> Iterator[str]:
    names = [column.name for column in results.columns]
    yield f"| what | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for task, row in results.rows.items():
        yield f"| {TITLES[task]} | {' | '.join(cell(row, name) for name in names)} |"
    yield ""


def _uses(results: Results) -> Iterator[str]:
    yield "## How each was used"
    for column in results.columns:
        yield f"- **{column.name} {column.version}**".rstrip() + f": {column.use}"
    yield ""
    yield BELOW


def _gaps(results: Results) -> Iterator[str]:
    """Why there is no figure, one line per reason."""
    gaps: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for column in results.columns:
        tasks_by_reason: dict[str, list[str]] = {}
        for task, row in results.rows.items():
            if (reason := _reason(column, task, row)) is not None:
                tasks_by_reason.setdefault(reason, []).append(TITLES[task])
        for reason, titles in tasks_by_reason.items():
            gaps.setdefault((reason, tuple(titles)), []).append(column.name)
    if gaps:
        yield "## What has no figure"
        for (reason, tasks), names in gaps.items():
            yield f"- {', '.join(names)}: {'; '.join(tasks)}: {reason}"
        yield ""


def _reason(column: Column, task: str, row: Row) -> str | None:
    outcome = row.get(column.name)
    if isinstance(outcome, Failed):
        return f"failed: {_told(outcome.reason)}"
    return column.absent.get(task, "it has no such call") if outcome is None else None


def _told(reason: str) -> str:
    """What a program said, without addresses and directories of the machine, and as plain text."""
    reason = re.sub(r"\w+://\S+|host='[^']*'", "an address", reason)
    reason = re.sub(r"(?<![\w.])/(?:[^\s/'\"]+/)+", "", reason)
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", reason)
