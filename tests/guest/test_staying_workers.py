"""Workers that stay for a session's next requests: when they do, and what cannot go wrong by it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from sandboxd.files import FilePath, UploadSpec, WorkspaceFiles
from sandboxd.guest.files.codec import Kind
from sandboxd.guest.frames import Kind as LinkKind
from sandboxd.guest.worker_frames import HEADER, frame
from sandboxd.link import workers as link_workers
from tests.guest.file_rig import FileRig, chunks_of, guest_with_files
from tests.guest.guest_rig import Rig, guest, wait_until
from tests.guest.test_file_workers import hand_over, is_closed, workers

MANY = 20_000
"""More requests than any worker has processor time for."""


def request(operation: str, **fields: object) -> bytes:
    return frame(
        Kind.REQUEST, json.dumps({"operation": operation, "stay": True, **fields}).encode()
    )


STAT = request("stat", path="", shown="")


def answer(ours: socket.socket) -> list[int]:
    """The kinds of the frames up to the outcome; none if the worker is gone."""
    kinds: list[int] = []
    while not kinds or kinds[-1] not in (Kind.DONE, Kind.FAILED):
        try:
            head = ours.recv(HEADER.size, socket.MSG_WAITALL)
        except ConnectionResetError:
            return []
        if not head:
            return []
        kind, size = HEADER.unpack(head)
        assert len(ours.recv(size, socket.MSG_WAITALL) if size else b"") == size
        kinds.append(kind)
    return kinds


def staying_worker(rig: Rig, ours: socket.socket) -> int:
    """The pid of the worker at the other end, which has answered and waits."""
    assert answer(ours) == [Kind.ENTRIES, Kind.DONE]
    (pid,) = workers(rig)
    return pid


def test_a_worker_serves_one_request_after_another(tmp_path: Path) -> None:
    """The same process, which holds nothing but its socket in between."""
    with guest(tmp_path) as rig, hand_over(rig, 1, STAT) as ours:
        pid = staying_worker(rig, ours)
        for _ in range(5):
            ours.sendall(request("stat", path="missing", shown="missing"))
            assert answer(ours) == [Kind.FAILED]
            ours.sendall(STAT)
            assert answer(ours) == [Kind.ENTRIES, Kind.DONE]
        descriptors = Path(f"/proc/{pid}/fd")
        wait_until(lambda: len(list(descriptors.iterdir())) == 4)
        held = {os.readlink(entry) for entry in descriptors.iterdir()}

        assert workers(rig) == [pid]
        assert len([target for target in held if target.startswith("socket:")]) == 1
        assert held <= {os.devnull, *(target for target in held if target.startswith("socket:"))}


def test_a_worker_that_is_not_asked_to_stay_ends(tmp_path: Path) -> None:
    """As for daemons of earlier releases, and after operations that leave something behind."""
    plain = frame(Kind.REQUEST, b'{"operation": "stat", "path": "", "shown": ""}')
    with guest(tmp_path) as rig, hand_over(rig, 1, plain) as ours:
        assert answer(ours) == [Kind.ENTRIES, Kind.DONE]
        assert is_closed(ours)


def test_a_worker_ends_when_it_has_used_its_processor_time(tmp_path: Path) -> None:
    """Its account is settled then, so that no number of short requests is free."""
    with guest(tmp_path) as rig, hand_over(rig, 1, STAT) as ours:
        served = 0
        try:
            while served < MANY and answer(ours):
                served += 1
                ours.sendall(STAT)
        except BrokenPipeError:
            pass
        assert 1 <= served < MANY
        print(f"requests that a worker serves before its account is settled: {served}")


def test_a_worker_with_unread_data_ends(tmp_path: Path) -> None:
    """What belongs to a failed upload is never taken for the next request."""
    upload = request("upload", path="d/f", shown="d/f", mode=0o644, make_parents=True)
    with guest(tmp_path) as rig, hand_over(rig, 1, upload) as ours:
        assert ours.recv(5) == frame(Kind.READY)
        (rig.workspace / "d").rmdir()
        ours.sendall(frame(Kind.DATA, b"x") + frame(Kind.END))
        assert answer(ours) == [Kind.FAILED]  # it was read to its end: the worker is fit
        (rig.workspace / "full").mkdir()
        ours.sendall(request("upload", path="full", shown="full", mode=0o644))
        assert answer(ours) == [Kind.FAILED]  # before any data was asked for
        ours.sendall(request("upload", path="f", shown="f", mode=0o644))
        assert ours.recv(5) == frame(Kind.READY)
        ours.sendall(frame(Kind.REQUEST, b"{}"))  # no data: the daemon would never do that
        assert is_closed(ours)


def test_a_stopped_worker_is_woken(tmp_path: Path) -> None:
    """WORKER_WAKE continues it; one that is gone, or was never there, is none of its business."""
    with guest(tmp_path) as rig, hand_over(rig, 1, STAT) as ours:
        staying_worker(rig, ours)
        rig.run("pkill -STOP -P 1 python")
        ours.sendall(STAT)
        rig.say(LinkKind.WORKER_WAKE, 7)
        rig.say(LinkKind.WORKER_WAKE, 1)
        assert answer(ours) == [Kind.ENTRIES, Kind.DONE]


def test_a_worker_that_stays_goes_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """It is in nobody's way, and the daemon sees at once that it is gone; one at work is spared."""
    upload = request("upload", path="f", shown="f", mode=0o644)
    with (
        guest(tmp_path) as rig,
        hand_over(rig, 1, STAT) as idle,
        hand_over(rig, 2, upload) as busy,
    ):
        assert answer(idle) == [Kind.ENTRIES, Kind.DONE]
        assert busy.recv(5) == frame(Kind.READY)
        assert len(workers(rig)) == 2
        running = rig.start("sleep 1000")
        rig.say(LinkKind.KILL, running)
        rig.finish(running)
        assert is_closed(idle)
        busy.sendall(frame(Kind.DATA, b"x") + frame(Kind.END))
        assert answer(busy) == [Kind.ENTRIES, Kind.DONE]


# --- as the daemon uses them ---


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[FileRig]:
    async with guest_with_files(tmp_path) as rig:
        yield rig


async def workers_of(rig: FileRig) -> set[str]:
    """Pids in the sandbox of its workers, as a command sees them."""
    return set((await rig.run("pgrep -P 1 python")).split())


OPERATIONS: dict[str, Callable[[FileRig], Awaitable[object]]] = {
    "upload": lambda rig: rig.put("f", b"new"),
    "download": lambda rig: rig.get("there"),
    "list": lambda rig: rig.files.list(rig.path("")),
    "stat": lambda rig: rig.files.stat(rig.path("there")),
    "make_directory": lambda rig: rig.files.make_directory(rig.path("made")),
    "move": lambda rig: rig.files.move(rig.path("there"), rig.path("moved")),
    "remove": lambda rig: rig.files.remove(rig.path("there")),
    "outside": lambda rig: rig.files.stat(FilePath((b"/", b"etc"))),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("blow", ["KILL", "STOP"])
async def test_a_command_cannot_spoil_the_next_call(rig: FileRig, name: str, blow: str) -> None:
    """Whatever it does to a worker that stays: the call after it is served, once."""
    await rig.put("there", b"there")
    await rig.files.stat(FilePath((b"/", b"etc")))
    await rig.run(f"pkill -{blow} -P 1 python")
    await OPERATIONS[name](rig)

    expected = {
        "upload": {"there", "f"},
        "make_directory": {"there", "made"},
        "move": {"moved"},
        "remove": set(),
    }
    assert rig.names() == expected.get(name, {"there"})


async def test_calls_share_a_worker(rig: FileRig) -> None:
    """One after another, with different operations, those that fail included."""
    await rig.put("f", b"content")
    (pid,) = await workers_of(rig)
    for _ in range(3):
        assert await rig.get("f") == b"content"
        with pytest.raises(Exception, match="missing"):
            await rig.get("missing")
        await rig.files.make_directory(rig.path("d"))
        await rig.files.remove(rig.path("d"))
        assert await workers_of(rig) == {pid}


async def test_workers_that_stay_are_few_and_leave(
    rig: FileRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After many calls at once, no more than KEPT_WORKERS stay; after a while, none."""
    monkeypatch.setattr(link_workers, "KEPT_SECONDS", 0.3)
    await asyncio.gather(*(rig.put(f"f{number}", b"x") for number in range(8)))
    async with asyncio.timeout(20):
        while len(await workers_of(rig)) > link_workers.KEPT_WORKERS + 1:
            await asyncio.sleep(0.01)
        while rig.files._operations._workers._kept:
            await asyncio.sleep(0.01)
    await rig.put("f", b"x")
    assert rig.names() == {"f", *(f"f{number}" for number in range(8))}


async def test_a_closed_session_keeps_no_worker(rig: FileRig) -> None:
    """Nothing waits for the idle time of workers."""
    await rig.put("f", b"x")
    await rig.files.aclose()
    async with asyncio.timeout(20):
        while rig.files._operations._workers._kept:
            await asyncio.sleep(0.01)


async def test_workers_under_the_limits_of_commands_are_not_used_again(tmp_path: Path) -> None:
    """One that was moved there, at work or between two calls, makes place for another."""
    moves = 0
    async with guest_with_files(tmp_path) as rig:
        rig.files = files = WorkspaceFiles(rig.link, rig.settings, moves=lambda: moves)
        await rig.put("f", b"x")
        (first,) = await workers_of(rig)
        moves += 1
        await rig.put("f", b"x")
        (second,) = await workers_of(rig) - {first}

        async def moved_meanwhile() -> AsyncIterator[bytes]:
            nonlocal moves
            moves += 1
            yield b"x"

        await files.upload(UploadSpec(path=rig.path("f")), moved_meanwhile())
        await rig.put("f", b"x")
        assert not {first, second} & await workers_of(rig)


async def test_a_cancelled_call_leaves_no_worker_to_the_next(rig: FileRig) -> None:
    """One in the middle of something is ended, not kept."""
    await rig.put("f", b"old")
    never = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield b"new"
        await never.wait()

    for _ in range(3):
        uploading = asyncio.ensure_future(
            rig.files.upload(UploadSpec(path=rig.path("f")), endless())
        )
        await asyncio.wait([uploading], timeout=0.05)
        uploading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await uploading
        assert await rig.get("f") == b"old"
    assert [chunk async for chunk in chunks_of(await rig.get("f"))] == [b"old"]
    assert rig.names() == {"f"}


@pytest.mark.parametrize("end", ["close", "detach"])
async def test_a_link_that_is_over_keeps_no_worker(rig: FileRig, end: str) -> None:
    """Closed or left to the next daemon: the sockets of its workers are closed with it."""
    await rig.put("f", b"x")
    (kept,) = rig.files._operations._workers._kept
    if end == "close":
        rig.link.close("the test is over")
    else:
        rig.link.detach()
    assert kept.worker._socket.fileno() == -1
    assert rig.files._operations._workers._giving_up is None
