"""Changes of files, reported by a real guest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from sandboxd.errors import FileBusy, FileNotFound, FileWorkInterrupted, NotADirectory
from sandboxd.files import Change, ChangeKind, Changes
from sandboxd.guest.files import watch
from tests.guest.file_rig import FileRig, guest_with_files

CREATED, MODIFIED, REMOVED, MOVED = ChangeKind


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    async with guest_with_files(tmp_path) as rig:
        yield rig


class Seen:
    """What a watch has reported so far."""

    def __init__(self, reported: AsyncIterator[Changes]) -> None:
        self._changes = reported
        self.changes: list[Change] = []
        self.overflows = 0

    async def until(self, condition: Callable[[Sequence[Change]], object]) -> None:
        async with asyncio.timeout(20):
            while not condition(self.changes):
                news = await anext(self._changes)
                self.changes += news.changes
                self.overflows += news.overflow

    async def until_told(self, kind: ChangeKind, path: bytes) -> None:
        await self.until(lambda reported: any((c.kind, c.path) == (kind, path) for c in reported))

    def brief(self) -> list[tuple[ChangeKind, bytes]]:
        return [(change.kind, change.path) for change in self.changes]


async def test_every_kind_of_change(rig: FileRig) -> None:
    """Made, changed, moved and removed, in order; quick changes of the same file become one."""
    async with rig.files.watch(rig.path(""), recursive=True) as reported:
        seen = Seen(reported)
        await rig.run("echo a > one; echo b >> one; echo c >> one")
        await seen.until_told(CREATED, b"one")
        await rig.run("for i in 1 2 3 4 5; do echo $i >> one; done")
        await seen.until_told(MODIFIED, b"one")
        await rig.run("mv one two")
        await seen.until_told(MOVED, b"two")
        await rig.run("chmod 600 two")
        await seen.until_told(MODIFIED, b"two")
        await rig.run("unlink two; mkdir d")
        await seen.until_told(CREATED, b"d")

    assert seen.brief() == [
        (CREATED, b"one"),
        (MODIFIED, b"one"),
        (MOVED, b"two"),
        (MODIFIED, b"two"),
        (REMOVED, b"two"),
        (CREATED, b"d"),
    ]
    assert seen.changes[2].old_path == b"one"
    assert seen.changes[-1].is_directory
    assert seen.overflows == 0


async def test_five_hundred_changes(rig: FileRig) -> None:
    """Every change is reported, also in directories that are made at the same time."""
    async with rig.files.watch(rig.path(""), recursive=True) as reported:
        seen = Seen(reported)
        making = rig.start(
            "for i in $(seq 50); do mkdir -p d$i/e; for j in $(seq 9); do > d$i/e/$j; done; done; "
            "> last"
        )
        await seen.until_told(CREATED, b"last")
        await making.end

    expected = {f"d{i}" for i in range(1, 51)} | {f"d{i}/e" for i in range(1, 51)}
    expected |= {f"d{i}/e/{j}" for i in range(1, 51) for j in range(1, 10)} | {"last"}
    created = [change.path.decode() for change in seen.changes if change.kind == CREATED]
    assert sorted(created) == sorted(expected)
    assert seen.overflows == 0


async def test_only_below_the_directory(rig: FileRig) -> None:
    """Nothing is reported from elsewhere, nor from deeper down unless asked for; what leaves is
    removed, what arrives is created."""
    await rig.run("mkdir -p d/e other; > other/x")
    async with rig.files.watch(rig.path("d")) as reported:
        seen = Seen(reported)
        await rig.run("> other/y; > d/e/deep; > d/one; mv d/one other/; mv other/x d/x; > d/last")
        await seen.until_told(CREATED, b"d/last")

    assert seen.brief() == [
        (CREATED, b"d/one"),
        (REMOVED, b"d/one"),
        (CREATED, b"d/x"),
        (CREATED, b"d/last"),
    ]


async def test_a_directory_that_moves(rig: FileRig) -> None:
    """What is in it is reported under its new path; a directory that leaves is not followed."""
    await rig.run("mkdir -p in/a/b out; > in/a/b/old")
    async with rig.files.watch(rig.path("in"), recursive=True) as reported:
        seen = Seen(reported)
        await rig.run("mv in/a in/z; > in/z/b/new")
        await seen.until_told(CREATED, b"in/z/b/new")
        await rig.run("mv in/z out/z; > out/z/b/unseen; mv out/z in/back; > in/back/b/again")
        await seen.until_told(CREATED, b"in/back/b/again")

    paths = [change.path for change in seen.changes]
    assert (MOVED, b"in/z") in seen.brief()
    assert (REMOVED, b"in/z") in seen.brief()
    assert b"in/back/b/old" in paths
    assert not [path for path in paths if path.startswith(b"out")]


async def test_uploads_are_told_as_what_they_are(rig: FileRig) -> None:
    """A new file is created, a replaced one modified; nothing of ours shows."""
    async with rig.files.watch(rig.path("")) as reported:
        seen = Seen(reported)
        await rig.put("file", b"1")
        await seen.until_told(CREATED, b"file")
        await rig.put("file", b"2")
        await seen.until_told(MODIFIED, b"file")

    assert seen.brief() == [(CREATED, b"file"), (MODIFIED, b"file")]


async def test_more_than_can_be_told(rig: FileRig) -> None:
    """When there is more than is gathered, the overflow is said, and later news come."""
    # Moved in at once: how long it takes to make so many does not matter.
    await rig.run("mkdir seen pile; cd pile; seq 12000 | xargs touch")
    async with rig.files.watch(rig.path("seen"), recursive=True, gather_seconds=0.5) as reported:
        seen = Seen(reported)
        await rig.run("mv pile seen/")
        await seen.until(lambda changes: seen.overflows)
        await rig.run("mkdir seen/later; > seen/later/file")
        await seen.until_told(CREATED, b"seen/later/file")


async def test_more_than_the_kernel_keeps(rig: FileRig) -> None:
    """What it drops while nobody reads is an overflow too, and everything is watched anew."""
    await rig.run("mkdir seen")
    async with rig.files.watch(rig.path("seen"), recursive=True) as reported:
        seen = Seen(reported)
        limit = int(await rig.run("cat /proc/sys/fs/inotify/max_queued_events"))
        await rig.run("pkill -STOP -P 1 python")
        await rig.run(f"mkdir seen/lost; cd seen; seq {limit} | xargs touch")
        await rig.run("pkill -CONT -P 1 python")
        await seen.until(lambda changes: seen.overflows)
        await rig.run("> seen/lost/file")
        await seen.until_told(CREATED, b"seen/lost/file")


STORM = """
import os, sys
names, rounds = int(sys.argv[1]), int(sys.argv[2])
for number in range(names * rounds):
    name = f"seen/{number % names}"
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    if rounds > 1:
        os.unlink(name)
"""


async def _storm(rig: FileRig, names: int, rounds: int) -> list[Changes]:
    """All reports of a watch while files come and, with more rounds, go, until a change after the
    storm is reported."""
    (rig.workspace / "storm.py").write_text(STORM)
    await rig.run("mkdir -p seen")
    reports = []
    line = "until [ -e stop ]; do echo >> seen/last; sleep 0.05; done"
    async with rig.files.watch(rig.path("seen"), gather_seconds=0.0) as told:
        storm = asyncio.ensure_future(rig.run(f"python3 storm.py {names} {rounds}; {line}"))
        async with asyncio.timeout(60):
            async for news in told:
                reports.append(news)
                if any(change.path == b"seen/last" for change in news.changes):
                    break
        (rig.workspace / "stop").touch()
        await storm
    return reports


async def test_files_that_come_and_go_are_few_changes(rig: FileRig) -> None:
    """However often within a report: what is reported grows with the files and the reports, which
    have their shortest interval, and not with the changes."""
    began = time.monotonic()
    reports = await _storm(rig, names=4, rounds=5000)
    most_reports = 2 + (time.monotonic() - began) / watch.REPORT_SECONDS
    count = sum(len(news.changes) for news in reports)

    print(f"40000 changes of 4 files: {count} reported in {len(reports)} reports")
    assert len(reports) <= most_reports
    assert max(len(news.changes) for news in reports) <= 4 * 3 + 1
    assert not any(news.overflow for news in reports)


async def test_a_storm_is_an_overflow(rig: FileRig) -> None:
    """Of many files, no more changes are reported than the budget has: the rest is said to be
    missing, and later changes are reported."""
    began = time.monotonic()
    reports = await _storm(rig, names=30_000, rounds=1)
    seconds = time.monotonic() - began
    count = sum(len(news.changes) for news in reports)

    print(f"30000 new files: {count} reported in {len(reports)} reports")
    assert count <= watch.MAX_GATHERED + watch.CHANGES_PER_SECOND * seconds
    assert any(news.overflow for news in reports)
    assert max(len(news.changes) for news in reports) <= watch.BATCH_CHANGES


async def test_what_cannot_be_watched(rig: FileRig) -> None:
    """It is said on entering."""
    await rig.put("file")
    with pytest.raises(FileNotFound):
        async with rig.files.watch(rig.path("missing")):
            pass
    with pytest.raises(NotADirectory):
        async with rig.files.watch(rig.path("file")):
            pass


async def test_watches_leave_room_for_others(tmp_path: Path) -> None:
    """They have a limit of their own, below that of all calls."""
    async with guest_with_files(tmp_path, max_watches=1, wait_seconds=0.05) as rig:
        async with rig.files.watch(rig.path("")):
            with pytest.raises(FileBusy):
                async with rig.files.watch(rig.path("")):
                    pass
            await rig.put("file", b"x")
        async with rig.files.watch(rig.path("")):
            pass


async def test_a_stopped_watch_is_noticed(tmp_path: Path) -> None:
    """A watch that a command stops is not taken for a quiet one."""
    async with guest_with_files(tmp_path, idle_seconds=7.0) as rig:
        with pytest.raises(FileWorkInterrupted):
            async with rig.files.watch(rig.path("")) as reported:
                await rig.run("pkill -STOP -P 1 python")
                await anext(reported)
