"""What a new process finds of a spool whose process was killed: exactly what was durable."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandboxd.guest.frames import Stream
from sandboxd.spool import Spool, SpoolBudget, SpoolSettings
from sandboxd.spool.record import HEADER_BYTES, decode_page, encode_page
from tests.scale import examples
from tests.unit.spool_rig import (
    ERR,
    KEY,
    OUT,
    OUTPUT,
    Change,
    FailingDisk,
    RecordingDisk,
    ample,
    assert_is_output,
    kill,
    read_all,
    settings_in,
    write,
)

ROOT = Path(__file__).parents[2]


def reopened(settings: SpoolSettings, budget: SpoolBudget | None = None) -> Spool:
    spool = Spool.reopen(settings, KEY, budget or ample())
    assert spool is not None
    return spool


class SpoolModel(RuleBasedStateMachine):
    """A spool beside the plain bytes that went into it, through kills and failures of the disk."""

    @initialize(
        memory_bytes=st.sampled_from([4096, 5000, 9999]),
        max_bytes=st.sampled_from([16_384, 20_001, 40_000]),
        budget=st.sampled_from([0, 20_000, 30_000, 100_000]),
    )
    def start(self, memory_bytes: int, max_bytes: int, budget: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="spool-model-"))
        self.disk = FailingDisk()
        self.settings = settings_in(
            self.directory, memory_bytes=memory_bytes, max_bytes=max_bytes, disk=self.disk
        )
        self.budget = SpoolBudget(budget)
        self.spool = Spool(self.settings, KEY, self.budget)
        self.whole = dict.fromkeys(Stream, b"")
        self.lost: dict[Stream, list[range]] = {stream: [] for stream in Stream}
        self.released = dict.fromkeys(Stream, 0)
        """What the sender has let go of."""

    def teardown(self) -> None:
        if hasattr(self, "spool"):
            self.spool.delete()
            assert os.listdir(self.directory) == []
            assert self.budget.used_bytes == 0
            shutil.rmtree(self.directory)

    @rule(
        stream=st.sampled_from(Stream), size=st.one_of(st.integers(1, 300), st.integers(1, 12_000))
    )
    def append(self, stream: Stream, size: int) -> None:
        offset = len(self.whole[stream])
        data = OUTPUT[offset : offset + size]
        self.whole[stream] += data
        self.spool.append(stream, data)

    @rule()
    def persist(self) -> None:
        self.spool.persist()
        if self.disk.fails_writes is None and not self.spool.problem:
            for stream in Stream:
                assert self.spool.durable(stream) == self.spool.length(stream)

    @rule()
    def close(self) -> None:
        self.spool.close()

    @rule(room=st.sampled_from([0, 0, 7, 40, 5000]))
    def break_disk(self, room: int) -> None:
        self.disk.fails_writes, self.disk.room = errno.EIO, room

    @rule()
    def repair_disk(self) -> None:
        self.disk.fails_writes = None

    @rule()
    def kill(self) -> None:
        """A new process finds what was durable, and the sender sends the rest from there on."""
        durable = {stream: self.spool.durable(stream) for stream in Stream}
        kill(self.spool)
        self.budget = SpoolBudget(self.budget.limit_bytes)
        found = Spool.reopen(self.settings, KEY, self.budget)
        self.spool = found or Spool(self.settings, KEY, self.budget)
        for stream in Stream:
            start, end = durable[stream], self.released[stream]
            assert self.spool.length(stream) == self.spool.durable(stream) == start
            if end > start:
                self.spool.skip(stream, end - start)
                self.lost[stream].append(range(start, end))
            whole = self.whole[stream]
            end = max(start, end)
            self.whole[stream] = whole[:start] + b"?" * (end - start) + whole[end:]
            self.spool.append(stream, whole[end:])

    @rule(stream=st.sampled_from(Stream), part=st.floats(0, 1), max_bytes=st.integers(1, 20_000))
    def read(self, stream: Stream, part: float, max_bytes: int) -> None:
        whole = self.whole[stream]
        offset = int(len(whole) * part)
        piece = self.spool.read(stream, offset, max_bytes)
        assert piece.offset == offset + piece.skipped
        assert piece.data == whole[piece.offset : piece.offset + len(piece.data)]
        assert len(piece.data) <= max_bytes
        assert piece.data or piece.offset == len(whole)

    @invariant()
    def holds_what_it_was_given(self) -> None:
        if not hasattr(self, "spool"):
            return
        for stream in Stream:
            assert_is_output(self.spool, self.whole[stream], stream)
            gap = self.spool.dropped(stream)
            for lost in self.lost[stream]:
                assert gap.at <= lost.start <= lost.stop <= gap.at + gap.size
            durable, released = self.spool.durable(stream), self.spool.releasable(stream)
            assert durable <= released <= len(self.whole[stream])
            self.released[stream] = max(self.released[stream], released)


SpoolModel.TestCase.settings = settings(
    max_examples=examples(50),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSpoolModel = SpoolModel.TestCase


def cuts(change: Change) -> Iterator[int]:
    """How many bytes of a write may have arrived when the process was killed."""
    size = len(change.data)
    if size < 100:
        yield from range(size)
    else:
        places = {0, 1, 511, 512, 540, 579, 580, 4095, 4096, 4097, size // 2, size - 1}
        yield from sorted(place for place in places if place < size)


@pytest.mark.parametrize("skips", [(), (3000, 5000), (12_000, 13_000, 40_000)])
def test_a_kill_between_any_two_writes_loses_nothing_durable(
    tmp_path: Path, skips: tuple[int, ...]
) -> None:
    """At every point of the sequence of writes, and within each of them, a new process finds at
    least what was durable, at most what was appended, and every byte and line count right."""
    disk = RecordingDisk()
    spool = Spool(settings_in(tmp_path / "live", disk=disk), KEY, ample())
    whole = bytearray(OUTPUT[:80_000])
    durable_before: list[int] = []  # for each change
    appended: list[int] = []
    sizes = random.Random(7)
    coming = list(skips)
    while spool.length(OUT) < 60_000:
        before = spool.durable(OUT)
        if coming and coming[0] < spool.length(OUT):
            whole[spool.length(OUT) : spool.length(OUT) + 77] = b"?" * 77
            spool.skip(OUT, 77)
            coming.pop(0)
        else:
            write(spool, sizes.choice([1, 50, 700, 3000, 9000]), step=9000)
        if spool.length(OUT) > 2000:
            spool.persist()
        new = len(disk.changes) - len(durable_before)
        durable_before += [before] * new
        appended += [spool.length(OUT)] * new
    spool.delete()
    assert len(disk.changes) > 40

    killed = settings_in(tmp_path / "killed")
    (tmp_path / "killed").mkdir()
    path = tmp_path / "killed" / f"{KEY}.stdout"
    file = bytearray()
    checked = 0
    for change, durable, length in zip(disk.changes, durable_before, appended, strict=True):
        for cut in cuts(change):
            torn = bytearray(file)
            torn[change.position : change.position + cut] = change.data[:cut]
            path.write_bytes(torn)
            found = Spool.reopen(killed, KEY, ample())
            if found is None:
                assert durable == 0
                continue
            assert durable <= found.length(OUT) <= length
            assert_is_output(found, bytes(whole[: found.length(OUT)]))
            checked += 1
        file[change.position : change.position + len(change.data)] = change.data
    assert checked > 1000


def test_a_reopened_spool_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Reopened after every few appends, it keeps what one that was never reopened keeps."""
    once = Spool(settings_in(tmp_path / "once"), KEY, ample())
    often_in = settings_in(tmp_path / "often")
    often = Spool(often_in, KEY, ample())
    for _ in range(60):
        write(once, 1300)
        write(often, 1300)
        often.persist()
        often.close()
        often = reopened(often_in)
        assert_is_output(often)
    assert often.dropped(OUT).at == once.dropped(OUT).at
    assert abs(often.dropped(OUT).size - once.dropped(OUT).size) < 1000
    once.delete()
    often.delete()


def test_lines_of_a_large_file_are_counted_from_the_last_checkpoint(tmp_path: Path) -> None:
    """A growing file that was never full has its lines right when it is found again."""
    spool_settings = settings_in(tmp_path, max_bytes=16 << 20)
    spool = Spool(spool_settings, KEY, ample())
    for _ in range(5):
        spool.append(OUT, OUTPUT[: 700 << 10])
    spool.close()
    found = reopened(spool_settings)
    assert found.length(OUT) == 5 * (700 << 10)
    shown = found.preview(OUT, max_bytes=1000, collapse=False)
    lines = OUTPUT[: 700 << 10].count(b"\n") * 5
    assert shown.omitted_lines + (shown.head + shown.tail).count(b"\n") == lines
    found.delete()


def test_a_smaller_cap_after_a_restart_drops_from_then_on(tmp_path: Path) -> None:
    """What is there stays readable; what comes next costs the middle."""
    spool = Spool(settings_in(tmp_path, max_bytes=100_000), KEY, ample())
    write(spool, 90_000)
    spool.close()
    found = reopened(settings_in(tmp_path, max_bytes=20_000))
    assert found.dropped(OUT).size == 0
    write(found, 60_000)
    assert found.dropped(OUT).at == 45_000
    assert_is_output(found)
    found.delete()


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", bytes(5000), OUTPUT[:9000], b"sandboxd spool 1", b"sandboxd spool 1" * 300],
    ids=["empty", "short", "zeros", "text", "magic", "magics"],
)
def test_garbage_is_not_a_spool(tmp_path: Path, content: bytes) -> None:
    """A file that no spool wrote is as good as none, and does no harm to the other stream."""
    spool_settings = settings_in(tmp_path)
    (tmp_path / f"{KEY}.stdout").write_bytes(content)
    assert Spool.reopen(spool_settings, KEY, ample()) is None

    spool = Spool(spool_settings, KEY, ample())
    write(spool, 10, ERR)
    spool.persist()
    spool.close()
    found = reopened(spool_settings)
    assert (read_all(found), read_all(found, ERR)) == (b"", OUTPUT[:10])
    write(found, 10)
    found.persist()
    assert found.durable(OUT) == 10
    found.delete()


@pytest.mark.parametrize("size", [0, 4095, 4096, 12_000, 20_479])
def test_a_ring_that_was_cut_is_not_a_spool(tmp_path: Path, size: int) -> None:
    """A file shorter than its record says is not believed."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 30_000)
    spool.close()
    os.truncate(tmp_path / f"{KEY}.stdout", size)
    assert Spool.reopen(settings_in(tmp_path), KEY, ample()) is None


def test_a_ring_full_of_newlines_goes_on(tmp_path: Path) -> None:
    """Damaged bytes with more lines than were ever written do not keep a command from writing."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    for _ in range(30):
        spool.append(OUT, b"x" * 1000)
    spool.persist()
    spool.close()
    with (tmp_path / f"{KEY}.stdout").open("r+b") as file:
        file.seek(HEADER_BYTES)
        file.write(b"\n" * 16_384)
    found = reopened(settings_in(tmp_path))
    write(found, 60_000)

    assert found.length(OUT) == 90_000
    found.delete()


@pytest.mark.parametrize(
    "changes",
    [{"length": 1 << 40}, {"length": 1 << 63}, {"ring": 1, "tail": 30_000}],
    ids=["more bytes than its ring", "longer than anything", "tiny ring"],
)
def test_a_record_that_cannot_be_is_not_a_spool(tmp_path: Path, changes: dict[str, int]) -> None:
    """A search through it would read the same bytes again and again, or a write never end."""
    spool = Spool(settings_in(tmp_path), KEY, ample())
    write(spool, 30_000)
    spool.close()
    path = tmp_path / f"{KEY}.stdout"
    content = path.read_bytes()
    decoded = decode_page(content)
    assert decoded is not None
    sequence, record = decoded
    assert record.is_sound
    record = record._replace(**changes)
    path.write_bytes(encode_page(sequence, record) + content[HEADER_BYTES:])

    assert Spool.reopen(settings_in(tmp_path), KEY, ample()) is None


def test_nothing_but_a_plain_file_is_opened(tmp_path: Path) -> None:
    """Links, pipes and directories under the name of a spool are not followed, waited for, used."""
    spool_settings = settings_in(tmp_path)
    spool = Spool(spool_settings, "other", ample())
    write(spool, 10)
    spool.persist()
    spool.close()
    path = tmp_path / f"{KEY}.stdout"

    path.symlink_to("other.stdout")
    assert Spool.reopen(spool_settings, KEY, ample()) is None
    path.unlink()
    os.mkfifo(path)
    assert Spool.reopen(spool_settings, KEY, ample()) is None
    path.unlink()
    path.mkdir()
    assert Spool.reopen(spool_settings, KEY, ample()) is None


WRITER = """
import random, sys
from pathlib import Path
from sandboxd.guest.frames import Stream
from sandboxd.spool import Spool, SpoolBudget, SpoolSettings

directory, seed = Path(sys.argv[1]), int(sys.argv[2])
settings = SpoolSettings(directory=directory, memory_bytes=8192, max_bytes=256 * 1024)
budget = SpoolBudget(1 << 30)
spool = Spool.reopen(settings, "killed", budget) or Spool(settings, "killed", budget)
chance = random.Random(seed)
while True:
    length = spool.length(Stream.STDOUT)
    size = chance.choice([10, 100, 5000, 60000])
    first = length // 10
    lines = b"".join(b"%09d\\n" % number for number in range(first, first + size // 10 + 2))
    spool.append(Stream.STDOUT, lines[length % 10:][:size + chance.randrange(10)])
    if chance.random() < 0.3:
        spool.persist()
    print(spool.durable(Stream.STDOUT), flush=True)
"""


def test_a_real_kill_loses_nothing_durable(tmp_path: Path) -> None:
    """Writers that are killed one after the other each go on where the one before was durable."""
    spool_settings = SpoolSettings(directory=tmp_path, memory_bytes=8192, max_bytes=256 * 1024)
    chance = random.Random(3)
    reached = 0
    for round_number in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(round_number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 120)):
                reported = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:  # what it had said before it was gone
                if line.endswith("\n"):
                    reported = int(line)
        found = Spool.reopen(spool_settings, "killed", ample())
        length = found.length(OUT) if found else 0
        assert length >= reported >= reached
        reached = length
        if found:
            whole = b"".join(b"%09d\n" % number for number in range(length // 10 + 1))[:length]
            assert_is_output(found, whole)
    assert reached > 256 * 1024
