"""Processes of a guest that work on files: what they hold, and when they end."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.guest import frames
from sandboxd.guest.files.area import Area
from sandboxd.guest.files.codec import Failure, Kind
from sandboxd.guest.frames import Kind as LinkKind
from sandboxd.guest.frames import Purpose
from sandboxd.guest.worker_frames import frame
from sandboxd.link.workers import socket_pair
from tests.guest.file_worker_rig import ask, swapping
from tests.guest.guest_rig import Rig, guest, wait_until

REQUEST = frame(Kind.REQUEST, b'{"operation": "upload", "path": "f", "shown": "f", "mode": 420}')


def hand_over(
    rig: Rig, number: int, request: bytes = REQUEST, purpose: int = Purpose.FILES
) -> socket.socket:
    """Have a worker started; our end of its socket."""
    ours, its = socket_pair()
    ours.setblocking(True)
    ours.settimeout(20)
    rights = array.array("i", [its.fileno()])
    rig.link.peer.sendmsg(
        [frames.encode(LinkKind.WORKER, number, bytes([purpose]))],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
    )
    its.close()
    if request:
        ours.sendall(request)
    return ours


def is_closed(end: socket.socket) -> bool:
    """Whether nobody is at the other end; what was sent there may be unread."""
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def workers(rig: Rig) -> list[int]:
    """Pids on the host of those that live."""
    (first,) = _children(rig.process.pid)
    return [pid for pid in _children(first) if _name(pid).startswith("python")]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_worker_holds_nothing_but_its_own(tmp_path: Path) -> None:
    """Not the link, not the pipes of commands: only nothing, its socket and its file."""
    with guest(tmp_path) as rig:
        running = rig.start("sleep 1000")
        rig.ping()
        with hand_over(rig, 1) as ours:
            assert ours.recv(5) == frame(Kind.READY)
            (pid,) = workers(rig)
            held = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
            status = Path(f"/proc/{pid}/status").read_text()
        rig.say(LinkKind.KILL, running)
        rig.finish(running)

    sockets = {target for target in held if target.startswith("socket:")}
    assert len(sockets) == 1
    assert {target for target in held if target.startswith(("pipe:", "anon_inode:"))} == set()
    assert held - sockets - {os.devnull} <= {
        str(rig.workspace),
        *(target for target in held if target.startswith(str(rig.workspace))),
    }
    assert "Threads:\t1" in status


def test_workers_end_with_their_socket(tmp_path: Path) -> None:
    """Closing it is enough, in the middle of anything."""
    with guest(tmp_path) as rig:
        ends = [hand_over(rig, number) for number in range(1, 9)]
        for end in ends:
            assert end.recv(5) == frame(Kind.READY)
            end.sendall(frame(Kind.DATA, b"x" * 1000))
        assert len(workers(rig)) == 8
        for end in ends:
            end.close()
        wait_until(lambda: not workers(rig))

        assert list(rig.workspace.iterdir()) == []


NEVER_PAID = 1e-6
"""Of a processor: what a single worker uses takes hours to pay for."""
STAT = frame(Kind.REQUEST, b'{"operation": "stat", "path": "", "shown": ""}')


def test_workers_wait_for_processor_time(tmp_path: Path) -> None:
    """Requests beyond the share of a processor wait without keeping anything else; one that is no
    longer needed is dropped, and the next daemon finds none."""
    with guest(tmp_path, worker_share=NEVER_PAID) as rig:
        with hand_over(rig, 1, STAT) as first:
            assert first.recv(1)
        wait_until(lambda: not workers(rig))
        with hand_over(rig, 2, STAT) as second, hand_over(rig, 3, STAT) as third:
            rig.say(LinkKind.WORKER_END, 2)
            assert is_closed(second)
            assert rig.run("echo served").stdout == b"served\n"
            assert workers(rig) == []
            third.setblocking(False)
            with pytest.raises(BlockingIOError):
                third.recv(1)


@pytest.mark.parametrize("settings", [{}, {"worker_share": 0.0}, {"worker_share": 1000.0}])
def test_workers_that_pay_do_not_wait(settings: dict[str, float], tmp_path: Path) -> None:
    """Without a limit, and within it, each request gets its worker."""
    with guest(tmp_path, **settings) as rig:
        for number in range(1, 6):
            with hand_over(rig, number, STAT) as ours:
                assert ours.recv(1)


def test_a_worker_that_was_stopped_is_ended_on_request(tmp_path: Path) -> None:
    """WORKER_END ends one that cannot end by itself, and no other."""
    with guest(tmp_path) as rig:
        first, second = hand_over(rig, 1), hand_over(rig, 2)
        with first, second:
            for end in (first, second):
                assert end.recv(5) == frame(Kind.READY)
            rig.run("pkill -STOP -P 1 python")
            rig.say(LinkKind.WORKER_END, 1)
            assert is_closed(first)
            wait_until(lambda: len(workers(rig)) == 1)
            rig.say(LinkKind.WORKER_END, 2)
            assert is_closed(second)


def test_workers_do_not_outlive_their_daemon(tmp_path: Path) -> None:
    """After a broken link no worker is left, not even a stopped one; new ones can be started."""
    with guest(tmp_path, grace_seconds=20.0) as rig:
        ours = hand_over(rig, 1)
        assert ours.recv(5) == frame(Kind.READY)
        rig.run("pkill -STOP -P 1 python")
        rig.reconnect()
        wait_until(lambda: not workers(rig))
        ours.close()
        with hand_over(rig, 1) as again:
            assert again.recv(5) == frame(Kind.READY)


def test_there_are_not_too_many(tmp_path: Path) -> None:
    """Beyond its own limit a guest closes the socket unused."""
    with guest(tmp_path) as rig:
        ends = [hand_over(rig, number) for number in range(1, 40)]
        rig.ping()
        assert len(workers(rig)) == 24
        assert is_closed(ends[-1])
        for end in ends:
            end.close()
        wait_until(lambda: not workers(rig))
        assert rig.run("echo fine").stdout == b"fine\n"


def test_a_frame_without_a_descriptor_is_a_broken_rule(tmp_path: Path) -> None:
    """As any other that a daemon would never send."""
    with guest(tmp_path) as rig:
        rig.link.send(frames.encode_worker(1, Purpose.FILES))
        wait_until(lambda: "no descriptor" in rig.error)


@pytest.mark.parametrize("purpose", [0, max(Purpose) + 1, 255])
def test_a_purpose_that_the_guest_does_not_know(tmp_path: Path, purpose: int) -> None:
    """Its socket is closed without a process, and the guest goes on."""
    with guest(tmp_path) as rig:
        with hand_over(rig, 1, b"", purpose) as ours:
            assert is_closed(ours)
        assert workers(rig) == []
        with hand_over(rig, 2) as ours:
            assert ours.recv(5) == frame(Kind.READY)


def waiting_worker(rig: Rig, number: int = 1) -> int:
    """Have an operation done; the pid of the worker that waits for the next."""
    with hand_over(rig, number) as ours:
        assert ours.recv(5) == frame(Kind.READY)
        (at_work,) = workers(rig)
    wait_until(lambda: len(workers(rig)) == 1 and workers(rig) != [at_work])
    (pid,) = workers(rig)
    return pid


def test_the_worker_for_the_next_operation_waits(tmp_path: Path) -> None:
    """It holds nothing but a socket, is the one that does it, and goes when nothing comes."""
    with guest(tmp_path) as rig:
        pid = waiting_worker(rig)
        wait_until(lambda: len(list(Path(f"/proc/{pid}/fd").iterdir())) == 4)
        held = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        with hand_over(rig, 2) as ours:
            assert ours.recv(5) == frame(Kind.READY)
            assert workers(rig) == [pid]
            rig.say(LinkKind.WORKER_END, 2)
            assert is_closed(ours)
        wait_until(lambda: not workers(rig))

    assert len([target for target in held if target.startswith("socket:")]) == 1
    assert {target for target in held if target.startswith(("pipe:", "anon_inode:"))} == set()


def test_a_waiting_worker_that_was_stopped_works_all_the_same(tmp_path: Path) -> None:
    """What a command does to it while it waits does not count."""
    with guest(tmp_path) as rig:
        pid = waiting_worker(rig)
        rig.run("pkill -STOP -P 1 python")
        with hand_over(rig, 2) as ours:
            assert ours.recv(5) == frame(Kind.READY)
            assert workers(rig) == [pid]


def test_a_waiting_worker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """The next operation does not fail because of it."""
    with guest(tmp_path) as rig:
        pid = waiting_worker(rig)
        rig.run("pkill -KILL -P 1 python")
        with hand_over(rig, 2) as ours:
            assert ours.recv(5) == frame(Kind.READY)
            assert pid not in workers(rig)


def test_a_waiting_worker_goes_with_a_command_that_is_killed(tmp_path: Path) -> None:
    """It is in nobody's way: the command is killed as if it were alone, and files go on."""
    with guest(tmp_path) as rig:
        pid = waiting_worker(rig)
        running = rig.start("sleep 1000")
        rig.say(LinkKind.KILL, running)
        rig.finish(running)
        wait_until(lambda: pid not in workers(rig))
        with hand_over(rig, 2) as ours:
            assert ours.recv(5) == frame(Kind.READY)


TRIES = 20_000


def _in_area(path: Path, work: Callable[[Area], None]) -> None:
    root = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        work(Area(root, os.fsencode(path)))
    finally:
        os.close(root)


def test_twenty_thousand_downloads_beside_a_swapper(tmp_path: Path) -> None:
    """P07: not one of them sends what is outside."""
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    inside.mkdir()
    outside.write_bytes(b"secret")
    (inside / "f").write_bytes(b"inside")
    (inside / "l").symlink_to(outside)
    seen: dict[tuple[bytes, Failure | None], int] = {}

    def work(area: Area) -> None:
        for _ in range(TRIES):
            answer = ask(area, b'{"operation": "download", "path": "f", "shown": "f"}')
            seen[answer] = seen.get(answer, 0) + 1

    with swapping(inside / "f", inside / "l"):
        _in_area(inside, work)

    assert set(seen) == {(b"inside", None), (b"", Failure.OUTSIDE)}
    print(f"downloads beside a swapper: {TRIES}, {seen[b'inside', None]} sent, 0 leaks")


def test_twenty_thousand_uploads_beside_a_swapper(tmp_path: Path) -> None:
    """P08: not one of them writes outside."""
    inside, outside = tmp_path / "workspace", tmp_path / "outside"
    outside.mkdir()
    (inside / "d").mkdir(parents=True)
    (inside / "l").symlink_to(outside)
    failures: dict[Failure | None, int] = {}
    request = (
        b'{"operation": "upload", "path": "d/f", "shown": "d/f", "mode": 420, "replace": true}'
    )

    def work(area: Area) -> None:
        for _ in range(TRIES):
            _, failure = ask(area, request, b"content")
            failures[failure] = failures.get(failure, 0) + 1

    with swapping(inside / "d", inside / "l"):
        _in_area(inside, work)

    assert set(failures) <= {None, Failure.OUTSIDE, Failure.NOT_A_DIRECTORY}
    assert failures[None] > 0
    assert list(outside.iterdir()) == []
    directory = inside / ("l" if (inside / "d").is_symlink() else "d")
    assert [path.name for path in directory.iterdir()] == ["f"]
    print(f"uploads beside a swapper: {TRIES}, {failures[None]} written, 0 outside")
