"""The spool keeps output: where it goes, what is dropped, what it costs, what is left behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.spool import Gap, Piece, Spool, SpoolBudget, SpoolSettings, SpoolUnreadable, sweep
from tests.unit.spool_rig import (
    ERR,
    KEY,
    OUT,
    OUTPUT,
    FailingDisk,
    FullDisk,
    ample,
    assert_is_output,
    read_all,
    settings_in,
    write,
)


def files_in(directory: Path) -> set[str]:
    return set(os.listdir(directory)) if directory.exists() else set()


def descriptors_in(directory: Path) -> int:
    held = []
    for number in os.listdir("/proc/self/fd"):
        try:
            held.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            pass  # the descriptor of the listing itself
    return sum(name.startswith(str(directory)) for name in held)


def test_a_short_command_does_not_touch_the_disk(tmp_path: Path) -> None:
    """What fits into memory stays there: no directory, no file, no descriptor, no budget."""
    budget = ample()
    spool = Spool(settings_in(tmp_path / "spool"), KEY, budget)
    write(spool, 4096)
    write(spool, 100, ERR)

    assert_is_output(spool)
    assert_is_output(spool, stream=ERR)
    assert (spool.durable(OUT), spool.releasable(OUT), spool.problem) == (0, 0, "")
    assert not (tmp_path / "spool").exists()
    assert budget.used_bytes == 0


def test_a_stream_goes_to_disk_when_its_memory_is_full(tmp_path: Path) -> None:
    """From then on all of it is durable at once; the other stream is not concerned."""
    spool = Spool(settings_in(tmp_path / "spool"), KEY, ample())
    write(spool, 4097)
    write(spool, 10, ERR)

    assert spool.durable(OUT) == 4097
    write(spool, 1)
    assert spool.durable(OUT) == spool.releasable(OUT) == 4098
    assert spool.durable(ERR) == 0
    assert files_in(tmp_path / "spool") == {"exe_1.stdout"}
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "spool" / "exe_1.stdout").stat().st_mode & 0o777 == 0o600
    spool.delete()


def test_persist_makes_both_streams_durable(tmp_path: Path) -> None:
    """What was only in memory is found by a new process; an empty stream needs no file."""
    settings = settings_in(tmp_path)
    spool = Spool(settings, KEY, ample())
    spool.persist()
    assert files_in(tmp_path) == set()
    write(spool, 10)
    spool.persist()
    assert files_in(tmp_path) == {"exe_1.stdout"}
    write(spool, 20, ERR)
    spool.persist()
    assert (spool.durable(OUT), spool.durable(ERR)) == (10, 20)
    spool.close()

    found = Spool.reopen(settings, KEY, ample())

    assert found is not None
    assert (read_all(found), read_all(found, ERR)) == (OUTPUT[:10], OUTPUT[:20])
    counts = "stdout 10 (10 durable), stderr 20 (20 durable), events 0 (0 durable)"
    assert repr(found) == f"<Spool exe_1: {counts}>"


def test_past_the_cap_the_middle_is_dropped(tmp_path: Path) -> None:
    """Half of the cap holds the beginning, most of the other half the end; the file stays small."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 16 * 1024)
    assert spool.dropped(OUT) == Gap(0, 0)

    write(spool, 1)
    for _ in range(40):
        gap = spool.dropped(OUT)
        assert gap.at == 8 * 1024
        assert spool.length(OUT) - gap.at - gap.size >= 4 * 1024
        assert_is_output(spool)
        write(spool, 1777)

    unrecorded = spool.length(OUT) - spool.durable(OUT)
    assert 0 < unrecorded <= 2 * 1024
    spool.close()
    assert spool.durable(OUT) == spool.length(OUT)
    assert (tmp_path / "exe_1.stdout").stat().st_size == 4096 + 16 * 1024
    assert spool.problem == ""
    spool.delete()


@pytest.mark.parametrize("piece", [1, 100, 4096, 65536])
def test_appends_of_any_size_give_the_same(tmp_path: Path, piece: int) -> None:
    """How output is cut into appends does not show in what is kept of it."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 70_000, step=piece)
    assert_is_output(spool)
    spool.delete()


def test_a_reader_is_told_what_it_missed(tmp_path: Path) -> None:
    """Reading runs up to the gap, and from within it to its end; at the end there is nothing."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 40_000)
    gap = spool.dropped(OUT)
    end = gap.at + gap.size

    assert spool.read(OUT, gap.at - 10, 100) == Piece(gap.at - 10, OUTPUT[gap.at - 10 : gap.at], 0)
    newlines = OUTPUT[:end].count(b"\n")
    tail = OUTPUT[end : end + 10]
    assert spool.read(OUT, gap.at, 10) == Piece(end, tail, gap.size, newlines)
    assert spool.read(OUT, end - 1, 10) == Piece(end, tail, 1, newlines)
    assert spool.read(OUT, end, 10) == Piece(end, tail, 0)
    assert spool.read(OUT, 40_000, 10) == Piece(40_000, b"", 0)
    assert spool.read(OUT, 50_000, 10) == Piece(50_000, b"", 0)
    assert spool.read(ERR, 0, 10) == Piece(0, b"", 0)
    spool.delete()


def test_spools_share_a_budget(tmp_path: Path) -> None:
    """Together they take no more than it allows, each keeps both ends, and all is given back."""
    daemon = SpoolBudget(200_000)
    session = SpoolBudget(100_000, daemon)
    settings = settings_in(tmp_path, max_bytes=80_000)
    spools = [Spool(settings, f"exe_{number}", session) for number in range(4)]
    for _ in range(100):
        for spool in spools:
            write(spool, 1000)

    assert session.used_bytes <= session.limit_bytes
    assert daemon.used_bytes == session.used_bytes
    on_disk = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert 50_000 < on_disk <= session.used_bytes
    for spool in spools:
        spool.persist()
        assert spool.durable(OUT) == spool.length(OUT)
        assert spool.problem == "the disk space for kept output is used up"
        gap = spool.dropped(OUT)
        assert gap.at > 2000
        assert 100_000 - gap.at - gap.size > 2000
        assert_is_output(spool)
        spool.delete()
    assert (session.used_bytes, daemon.used_bytes) == (0, 0)


def test_the_daemons_budget_bounds_every_session(tmp_path: Path) -> None:
    """A session with a large budget of its own is held back by the daemon's."""
    daemon = SpoolBudget(40_000)
    settings = settings_in(tmp_path, max_bytes=1 << 20)
    first = Spool(settings, "first", SpoolBudget(1 << 30, daemon))
    second = Spool(settings, "second", SpoolBudget(1 << 30, daemon))
    write(first, 100_000)
    write(second, 100_000)

    first.persist()
    assert daemon.used_bytes <= daemon.limit_bytes
    assert first.durable(OUT) == 100_000
    assert_is_output(first)
    # Nothing was left for the second: it goes on in memory, and holds up nobody.
    assert (second.durable(OUT), second.releasable(OUT)) == (0, 100_000)
    assert_is_output(second)

    first.delete()
    second.persist()
    assert second.durable(OUT) == second.releasable(OUT) == 100_000
    assert_is_output(second)
    second.delete()
    assert daemon.used_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 60), st.integers(1, 60)), max_size=40))
def test_a_budget_is_never_overdrawn(takes: list[tuple[int, int, int]]) -> None:
    """No order of takes brings a budget or its parent over the limit."""
    parent = SpoolBudget(150)
    budgets = [parent, SpoolBudget(100, parent), SpoolBudget(80, parent)]
    taken = [0, 0, 0]
    for which, wanted, at_least in takes:
        got = budgets[which].reserve(wanted, at_least=min(wanted, at_least))
        assert got == 0 or min(wanted, at_least) <= got <= wanted
        taken[which] += got
        assert budgets[1].used_bytes == taken[1] <= 100
        assert budgets[2].used_bytes == taken[2] <= 80
        assert parent.used_bytes == sum(taken) <= 150
    for budget, count in zip(budgets, taken, strict=True):
        budget.give_back(count)
    assert [budget.used_bytes for budget in budgets] == [0, 0, 0]


def test_a_budget_counts_what_an_earlier_process_left(tmp_path: Path) -> None:
    """Files that are found are charged, also beyond the limit, and give back what they took."""
    settings = settings_in(tmp_path)
    spool = Spool(settings, KEY, ample())
    write(spool, 16_000)
    spool.close()
    budget = SpoolBudget(5000)

    found = Spool.reopen(settings, KEY, budget)

    assert found is not None
    assert budget.used_bytes == 4096 + 16_384
    write(found, 50_000)
    assert_is_output(found)
    found.persist()
    assert found.durable(OUT) == 66_000
    found.delete()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("max_file_bytes", [4096 + 100, 4096 + 3000, 4096 + 5000, 4096 + 12_000])
def test_a_full_disk_costs_the_middle(tmp_path: Path, max_file_bytes: int) -> None:
    """No append fails; what is on disk is used further where there is enough of it."""
    settings = settings_in(tmp_path, disk=FullDisk(max_file_bytes))
    spool = Spool(settings, KEY, ample())
    write(spool, 50)
    spool.persist()
    write(spool, 60_000)
    spool.persist()

    assert spool.problem == "output could not be written to disk: No space left on device"
    assert spool.releasable(OUT) == spool.length(OUT) == 60_050
    assert_is_output(spool)
    gap = spool.dropped(OUT)
    assert 60_050 - gap.at - gap.size > 600
    durable = spool.durable(OUT)
    assert durable == (60_050 if max_file_bytes > 4096 + 2048 else max_file_bytes - 4096)
    spool.close()
    found = Spool.reopen(settings, KEY, ample())
    assert found is not None
    assert found.length(OUT) == durable
    assert_is_output(found)
    found.delete()


def test_a_disk_that_takes_nothing_leaves_the_ends_in_memory(tmp_path: Path) -> None:
    """Without any file both ends are kept in memory, and the command is not held up."""
    disk, budget = FailingDisk(), ample()
    disk.fails_writes = errno.EROFS
    spool = Spool(settings_in(tmp_path, disk=disk), KEY, budget)
    write(spool, 3000)
    spool.persist()
    assert (spool.durable(OUT), spool.releasable(OUT)) == (0, 3000)
    write(spool, 50_000)

    assert spool.problem == "output could not be written to disk: Read-only file system"
    assert spool.releasable(OUT) == 53_000
    gap = spool.dropped(OUT)
    assert gap.at == 2048
    assert 53_000 - gap.at - gap.size > 1000
    assert_is_output(spool)
    assert files_in(tmp_path) == set()
    assert budget.used_bytes == 0


def test_a_disk_that_recovers_is_used_again(tmp_path: Path) -> None:
    """If nothing was lost meanwhile, the problem is no longer reported."""
    disk = FailingDisk()
    disk.fails_writes = errno.ENOSPC
    disk.room = 4100  # a first page and a little more: the file has to go again
    spool = Spool(settings_in(tmp_path, disk=disk), KEY, ample())
    write(spool, 3000)
    spool.persist()
    assert spool.problem
    assert files_in(tmp_path) == set()
    disk.fails_writes = None
    spool.persist()
    assert (spool.problem, spool.durable(OUT), spool.releasable(OUT)) == ("", 3000, 3000)
    write(spool, 9000)
    assert_is_output(spool)
    assert spool.dropped(OUT).size == 0
    spool.delete()


@pytest.mark.parametrize("written", [5000, 16_384, 30_000])
@pytest.mark.parametrize("room", [0, 1, 40, 300, 1040])
def test_a_disk_that_fails_midway_costs_the_middle(tmp_path: Path, written: int, room: int) -> None:
    """Whatever write fails first, the beginning stays, and the end is kept in memory."""
    disk = FailingDisk()
    settings = settings_in(tmp_path, disk=disk)
    spool = Spool(settings, KEY, ample())
    write(spool, written)
    spool.persist()
    disk.fails_writes, disk.room = errno.EIO, room
    write(spool, 30_000)

    assert spool.problem == "output could not be written to disk: Input/output error"
    assert spool.releasable(OUT) == spool.length(OUT) == written + 30_000
    assert_is_output(spool)
    assert spool.dropped(OUT).at >= 2048
    durable = spool.durable(OUT)
    assert written <= durable <= written + room
    disk.fails_writes = None
    write(spool, 5000)
    spool.persist()
    assert_is_output(spool)
    assert spool.durable(OUT) == durable

    spool.close()
    found = Spool.reopen(settings, KEY, ample())
    assert found is not None
    assert found.length(OUT) == durable
    assert_is_output(found)
    found.delete()


def test_output_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A read that the disk refuses raises in words without a path, and appends go on."""
    disk = FailingDisk()
    settings = settings_in(tmp_path, disk=disk)
    spool = Spool(settings, KEY, ample())
    write(spool, 10_000)
    disk.fails_reads = errno.EIO
    with pytest.raises(SpoolUnreadable, match=r"^kept output cannot be read: Input/output error$"):
        spool.read(OUT, 0, 10)
    assert Spool.reopen(settings, KEY, ample()) is None
    write(spool, 20_000)
    disk.fails_reads = None
    assert_is_output(spool)

    spool.close()
    os.truncate(tmp_path / "exe_1.stdout", 6000)
    with pytest.raises(SpoolUnreadable, match="truncated"):
        spool.read(OUT, 0, 8000)
    os.unlink(tmp_path / "exe_1.stdout")
    with pytest.raises(SpoolUnreadable, match="No such file"):
        spool.read(OUT, 0, 10)
    write(spool, 20_000)
    assert spool.problem == "output could not be written to disk: No such file or directory"
    spool.delete()


def test_a_ring_that_cannot_be_counted_again_starts_afresh(tmp_path: Path) -> None:
    """A reopened ring that cannot be read drops its tail and goes on with the right numbers."""
    disk = FailingDisk()
    settings = settings_in(tmp_path, disk=disk)
    spool = Spool(settings, KEY, ample())
    write(spool, 30_000)
    spool.close()
    found = Spool.reopen(settings, KEY, ample())
    assert found is not None
    disk.fails_reads = errno.EIO
    write(found, 2000)
    disk.fails_reads = None
    assert_is_output(found)
    write(found, 30_000)
    assert_is_output(found)
    found.delete()


def test_lost_bytes_are_skipped_and_counted(tmp_path: Path) -> None:
    """Bytes that are lost are part of the gap, and the next follow at their offsets."""
    whole = OUTPUT[:3000] + b"?" * 700 + OUTPUT[3700:5000] + b"?" * 10 + OUTPUT[5010:60_000]
    settings = settings_in(tmp_path)
    for is_durable in (False, True):
        spool = Spool(settings, KEY, ample())
        write(spool, 3000)
        if is_durable:
            spool.persist()
        spool.skip(OUT, 700)
        write(spool, 1300)
        assert_is_output(spool, whole[:5000])
        assert spool.dropped(OUT) == Gap(3000, 700)
        spool.skip(OUT, 10)
        assert spool.dropped(OUT) == Gap(3000, 2010)
        spool.persist()
        spool.close()

        found = Spool.reopen(settings, KEY, ample())
        assert found is not None
        assert found.dropped(OUT) == Gap(3000, 2010)
        write(found, 54_990)
        assert_is_output(found, whole)
        assert found.dropped(OUT).at == 3000
        found.skip(OUT, 5)
        assert found.dropped(OUT) == Gap(3000, 57_005)
        found.delete()


def test_skipping_at_the_cap_gives_the_tail_room(tmp_path: Path) -> None:
    """When the head has taken all the room, half of it is given to what comes after."""
    for memory_bytes, written in ((4096, 16_000), (4096, 16_384), (4096, 4000)):
        spool = Spool(settings_in(tmp_path, memory_bytes=memory_bytes), KEY, SpoolBudget(24_000))
        write(spool, written)
        spool.skip(OUT, 100)
        write(spool, 40_000)
        assert_is_output(spool, OUTPUT[:written] + b"?" * 100 + OUTPUT[written + 100 :][:40_000])
        gap = spool.dropped(OUT)
        assert spool.length(OUT) - gap.at - gap.size > 700
        spool.delete()


def test_skipping_on_a_failing_disk_counts_all_the_same(tmp_path: Path) -> None:
    """The gap is right in this process, and `durable` claims no more than the next one finds."""
    disk = FailingDisk()
    settings = settings_in(tmp_path, disk=disk)
    for again in (False, True):
        spool = Spool(settings, KEY, ample())
        write(spool, 6000)
        if again:
            spool.skip(OUT, 100)
            write(spool, 2000)
        length = spool.length(OUT)
        disk.fails_writes = errno.EIO
        spool.skip(OUT, 50)
        write(spool, 500)
        disk.fails_writes = None
        assert spool.length(OUT) == spool.releasable(OUT) == length + 550
        assert spool.dropped(OUT).at == 6000
        assert read_all(spool) == OUTPUT[:6000] + OUTPUT[length + 50 : length + 550]
        spool.close()
        found = Spool.reopen(settings, KEY, ample())
        assert found is not None
        assert found.length(OUT) >= spool.durable(OUT)
        found.delete()


def test_a_spool_holds_at_most_one_descriptor_per_stream(tmp_path: Path) -> None:
    """Memory needs none, close lets go of all, and reading afterwards holds none."""
    directory = tmp_path / "spool"
    settings = settings_in(directory)
    spool = Spool(settings, KEY, ample())
    write(spool, 100)
    assert descriptors_in(directory) == 0
    write(spool, 100_000)
    write(spool, 100_000, ERR)
    assert descriptors_in(directory) == 2
    spool.close()
    assert descriptors_in(directory) == 0
    assert_is_output(spool)
    found = Spool.reopen(settings, KEY, ample())
    assert found is not None
    assert_is_output(found, stream=ERR)
    assert descriptors_in(directory) == 0
    write(found, 1)
    assert descriptors_in(directory) == 1
    found.delete()
    assert descriptors_in(directory) == 0


def test_a_deleted_spool_leaves_nothing(tmp_path: Path) -> None:
    """Files and content are gone, late output is ignored, and a second delete is harmless."""
    budget = ample()
    spool = Spool(settings_in(tmp_path), KEY, budget)
    write(spool, 50_000)
    spool.delete()
    spool.delete()
    spool.append(OUT, b"late")
    spool.skip(OUT, 5)
    spool.persist()

    assert files_in(tmp_path) == set()
    assert (spool.length(OUT), read_all(spool), budget.used_bytes) == (0, b"", 0)


def test_a_file_of_no_use_is_replaced(tmp_path: Path) -> None:
    """What an earlier process left unfinished under a key does not stop a new spool."""
    (tmp_path / "exe_1.stdout").write_bytes(b"half a page")
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 10)
    spool.persist()
    assert (spool.durable(OUT), spool.problem) == (10, "")
    spool.delete()

    (tmp_path / "exe_1.stdout").mkdir()
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 10)
    spool.persist()
    assert spool.durable(OUT) == 0
    assert spool.problem.startswith("output could not be written to disk: ")


def test_sweep_deletes_the_spools_of_no_one(tmp_path: Path) -> None:
    """Only files that a spool may have made and that nobody wants, whatever is in them."""
    settings = settings_in(tmp_path)
    for key in ("kept", "gone", "gone.too"):
        spool = Spool(settings, key, ample())
        write(spool, 10)
        write(spool, 10, ERR)
        spool.persist()
        spool.close()
    (tmp_path / "garbage.stdout").write_bytes(b"\0" * 5000)
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / ".hidden.stdout").write_text("not ours")
    (tmp_path / "folder.stdout").mkdir()
    (tmp_path / "link.stdout").symlink_to("notes.txt")

    assert sweep(settings, {"kept"}) == 3

    left = {"notes.txt", ".hidden.stdout", "folder.stdout", "link.stdout"}
    assert files_in(tmp_path) == {"kept.stdout", "kept.stderr"} | left
    assert sweep(settings, {"kept"}) == 0
    assert sweep(settings_in(tmp_path / "nowhere"), set()) == 0


@pytest.mark.parametrize("key", ["", ".", "..", ".a", "a/b", "a\0", "a b", "ä", "x" * 201, "a\n"])
def test_a_key_that_is_no_name_is_refused(tmp_path: Path, key: str) -> None:
    """No key leads out of the directory or hides in it."""
    with pytest.raises(ValueError, match="a key has"):
        Spool(settings_in(tmp_path), key, ample())


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    """The bounds leave room for a beginning and an end."""
    with pytest.raises(ValueError, match="memory_bytes"):
        SpoolSettings(directory=tmp_path, memory_bytes=4095)
    with pytest.raises(ValueError, match="max_bytes"):
        SpoolSettings(directory=tmp_path, memory_bytes=4096, max_bytes=16_383)
    with pytest.raises(ValueError, match="max_bytes"):
        SpoolSettings(directory=tmp_path, memory_bytes=70_000, max_bytes=65_536)


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    """A wrong call is an error of its author, not an empty answer."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    with pytest.raises(ValueError, match="offset"):
        spool.read(OUT, -1, 10)
    with pytest.raises(ValueError, match="max_bytes"):
        spool.read(OUT, 0, 0)
    with pytest.raises(ValueError, match="max_bytes"):
        spool.preview(OUT, max_bytes=0, collapse=False)
    with pytest.raises(ValueError, match="skip"):
        spool.skip(OUT, 0)
