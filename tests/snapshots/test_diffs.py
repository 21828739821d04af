"""Comparisons cost others little: users in turn, bounded per call, ended with their caller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from sandboxd.errors import TooManyRequests
from sandboxd.snapshots.contract import Line
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.snapshots.rig import LINE, Workspace, snapshots_in

OTHER = Line(user_id="bob", name="ses_b")
FILES = 8


@pytest.fixture
async def hard(workspace: Workspace, tmp_path: Path) -> DiskSnapshots:
    """Two snapshots of texts that take nearly all that a call may take, each of them."""
    random, snapshots = Random(1), snapshots_in(tmp_path)
    for _ in range(2):
        for number in range(FILES):
            lines = (f"{random.randrange(6_000)}\n" for _ in range(3_000))
            (workspace.path / f"text{number}").write_text("".join(lines))
        await snapshots.take(LINE, workspace.disk)
        await snapshots.take(OTHER, workspace.disk)
    return snapshots


async def test_comparison_is_not_in_the_process(
    hard: DiskSnapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the daemon waits for the interpreter while texts are compared."""

    def here(*_: object, **__: object) -> None:
        raise AssertionError("texts are compared in the daemon")

    monkeypatch.setattr("difflib.SequenceMatcher.__init__", here)
    found = await hard.diff(LINE, 1, 2)

    assert any(change.text_diff for change in found.changes)
    await hard.close()


async def test_all_texts_of_a_call_share_a_limit(hard: DiskSnapshots) -> None:
    """The first are compared, the others left out, which their change says."""
    found = await hard.diff(LINE, 1, 2)

    with_text = [change for change in found.changes if change.text_diff]
    assert 0 < len(with_text) < FILES
    assert all(change.text_diff or change.is_text_cut for change in found.changes)
    await hard.close()


async def test_users_compare_in_turn(hard: DiskSnapshots) -> None:
    """However many comparisons of one user wait, that of another is the next but one, and beyond a
    limit the user is refused, and nobody else."""
    ended: list[str] = []

    async def compare(line: Line) -> None:
        await hard.diff(line, 1, 2)
        ended.append(line.user_id)

    calls = [asyncio.create_task(compare(LINE)) for _ in range(20)]
    await asyncio.sleep(0)
    calls.append(asyncio.create_task(compare(OTHER)))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert ended.index("bob") <= 2
    refused = [outcome for outcome in outcomes if isinstance(outcome, TooManyRequests)]
    assert len(refused) == 3
    assert "This user" in refused[0].message
    await hard.close()


async def test_comparison_ends_with_its_caller(hard: DiskSnapshots) -> None:
    """Its process, too: the next comparison starts another."""
    call = asyncio.create_task(hard.diff(LINE, 1, 2))
    while (process := hard._differ._process) is None:
        await asyncio.sleep(0.001)
    call.cancel()
    await asyncio.wait([call], timeout=60)

    assert call.cancelled()
    assert process.child.returncode is not None
    assert (await hard.diff(OTHER, 1, 2)).changes
    await hard.close()
