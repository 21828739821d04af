"""A hostile guest in place of ours, against the whole daemon: link, commands, sessions, gRPC.

The numbers L01 to L15 are those of the list of attacks. L11, a listing of files that lies, comes
with the API for files. L09 is about JSON, of which a guest sends none: it is played as garbage in
frames of every kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

import grpc
import pytest
import structlog
import uvloop
from grpc import aio

from sandboxd.engine.contract import Container, ContainerSpec
from sandboxd.execs import host_kill
from sandboxd.guest import frames
from sandboxd.guest.frames import HEADER, Kind, Stream
from sandboxd.link import connection
from sandboxd.pool import pool as pool_module
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from tests.fakes.guest import LINK_TARGET, Command, FakeGuest
from tests.fakes.lies import LIES
from tests.fakes.output_frame import encode_output
from tests.fakes.waiting import eventually
from tests.hostile.liar import (
    BYE,
    LOST,
    MIB,
    PATIENCE_SECONDS,
    ROOT,
    TIMED_OUT,
    Liar,
    Say,
    Stage,
    in_time,
    memory_within,
    staged,
    tally,
)
from tests.service.client import Api, events, refused


@pytest.fixture(scope="module", autouse=True)
def told_at_the_end() -> Iterator[None]:
    yield
    print(
        f"lying guest: {tally.lies} lies, {tally.unhandled} unhandled exceptions, "
        f"{tally.hangs} hangs"
    )


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.01,))


@pytest.fixture
async def stage(short_dir: Path) -> AsyncIterator[Stage]:
    async with staged(short_dir) as stage:
        yield stage


async def tell(stage: Stage, lie: str) -> None:
    """Tell one of the lies, which then has to be caught."""
    liar = await stage.liar()
    liar.say(LIES[lie].frames(liar.channel))
    if lie in AFTER_AN_END:
        await liar.is_caught_after(AFTER_AN_END[lie], LIES[lie].told)
    else:
        await liar.is_caught(LIES[lie].told)


# --- L01, L02, L03, L14: frames that are too long, empty, unfinished or slow ---

LENGTHS = ["huge length", "length just over"]
EMPTY = ["zero length flood", "empty output flood"]


@pytest.mark.parametrize("lie", LENGTHS)
async def test_announced_length_is_not_believed(lie: str, stage: Stage) -> None:
    """L01: a frame over the limit ends the guest at its header; nothing is allocated for it."""
    async with memory_within():
        await tell(stage, lie)


@pytest.mark.parametrize("lie", EMPTY)
async def test_flood_of_empty_frames_ends_with_the_first(lie: str, stage: Stage) -> None:
    """L02: frames that hold nothing cost the daemon nothing."""
    async with memory_within():
        await tell(stage, lie)


@pytest.mark.parametrize("length", [1, HEADER.size - 1, HEADER.size, HEADER.size + 5000])
async def test_unfinished_frame_has_a_deadline(
    length: int, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L03: a frame that has begun and does not go on costs the guest its sandbox."""
    monkeypatch.setattr(connection, "FRAME_SECONDS", 0.05)
    liar = await stage.liar()
    frame = encode_output(liar.channel, Stream.STDOUT, 0, b"x" * frames.MAX_CHUNK)
    liar.say(frame[:length])

    await liar.is_caught("half a frame")


async def test_command_does_not_wait_longer_for_a_frame_than_it_may_run(stage: Stage) -> None:
    """L03: its own deadline is the first to come, and the reason tells of that one."""
    liar = await stage.liar(timeout=0.2)
    liar.say(HEADER.pack(1000, Kind.OUTPUT, liar.channel))

    await liar.is_caught("did not end a command in time", reason=TIMED_OUT)


async def test_guest_that_leaves_within_a_frame_is_lost(stage: Stage) -> None:
    """L03: nothing waits for the rest of a frame whose sender is gone."""
    liar = await stage.liar()
    liar.say(HEADER.pack(1000, Kind.OUTPUT, liar.channel))
    liar.guest.drop()

    await liar.is_caught("went away")


async def test_frame_in_single_bytes_has_the_same_deadline(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L14: a byte now and then does not keep a frame alive; it has to be whole in time."""
    monkeypatch.setattr(connection, "FRAME_SECONDS", 0.5)
    liar = await stage.liar()
    frame = encode_output(liar.channel, Stream.STDOUT, 0, b"x" * 1000)
    tally.lies += 1
    said = 0
    async with in_time():
        while liar.guest.is_connected:
            liar.guest.say(frame[said : said + 1])
            said += 1
            await asyncio.sleep(0.1)

    assert said <= 10
    await liar.is_caught("half a frame")


# --- L04: silence ---


async def test_guest_that_never_answers_meets_the_deadline(stage: Stage) -> None:
    """L04: commands end as timed out, on the daemon's clock, and the host ends the sandbox."""
    began = time.monotonic()
    liar = await stage.liar(timeout=0.2)
    tally.lies += 1

    exited = await liar.is_caught("did not end a command in time", reason=TIMED_OUT)
    assert 0.2 <= seconds(exited) < time.monotonic() - began


async def test_guest_that_does_not_even_read_meets_the_deadline(stage: Stage) -> None:
    """L04: a request to end a command that nobody reads does not delay its end."""
    liar = await stage.liar(timeout=0.2)
    tally.lies += 1
    liar.guest.stop_reading()

    await liar.is_caught("did not end a command in time", reason=TIMED_OUT)


async def killed(liar: Liar) -> int:
    """The channel of the command that is waited for, once the guest was asked to end it."""
    command = liar.guest.running[liar.channel]
    await eventually(lambda: command.kills == 1)
    return command.channel


async def test_guest_that_reports_a_kill_for_ever_meets_the_limit(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L04: it wins time by saying that it is still at it, but only so much."""
    monkeypatch.setattr(host_kill, "LIMIT_SECONDS", 1.0)
    liar = await stage.liar(timeout=0.2)
    tally.lies += 1
    async with in_time():
        channel = await killed(liar)
        reports = 0
        while liar.guest.is_connected:
            await asyncio.sleep(connection.SWEEP_REPORT_SECONDS)
            reports += 1
            liar.guest.say(frames.encode_sweeping(channel, reports))

    exited = await liar.is_caught("did not end a command in time", reason=TIMED_OUT)
    assert seconds(exited) >= 1.2
    assert reports > host_kill.STEP_SECONDS / connection.SWEEP_REPORT_SECONDS


@pytest.mark.parametrize("numbers", [(1, 1), (2,), range(1, 100)], ids=["twice", "gap", "flood"])
async def test_report_of_a_kill_out_of_turn_is_the_last_one(
    numbers: Sequence[int], stage: Stage
) -> None:
    """L05: a guest that is asked to end a command cannot fill its answer with anything."""
    liar = await stage.liar(timeout=0.2)
    async with in_time():
        channel = await killed(liar)
        await asyncio.sleep(connection.SWEEP_REPORT_SECONDS)
    liar.say(b"".join(frames.encode_sweeping(channel, number) for number in numbers))

    await liar.is_caught("of a kill", reason=TIMED_OUT)


async def test_requests_do_not_pile_up_before_a_guest_that_does_not_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L04: what waits to be sent is bounded; a guest that makes no room for more counts as gone."""
    monkeypatch.setattr(connection, "READ_SECONDS", 1.0)
    liar = await stage.liar()
    session = stage.daemon.sessions.get(liar.session_id)
    tally.lies += 1
    liar.guest.stop_reading()
    large = {f"V{n}": "v" * 100_000 for n in range(5)}
    waiting: list[asyncio.Future[exec_service_pb2.RunResponse]] = []
    async with memory_within(), in_time():
        while session.is_active:
            call = stage.api.run(liar.session_id, "stubborn", env=large)
            waiting.append(asyncio.ensure_future(call))
            # The two commands it had, and these; none when it is lost.
            await eventually(lambda: len(session.execs) in (0, 2 + len(waiting)))
        await asyncio.wait(waiting)

    *before, last = waiting
    assert {answer.result().exit.reason for answer in before} == {LOST}
    with refused(grpc.StatusCode.ABORTED, "SANDBOX_LOST"):
        last.result()
    await liar.is_caught("stopped reading")


# --- L05, L06, L07: answers out of turn, and values that cannot be ---

IMPOSSIBLE = [
    lie
    for lie in LIES
    if lie.startswith(("exit code", "exit too", "hello too", "signal", "unknown", "last kind"))
]
WRONG_OUTPUT = [
    *(lie for lie in LIES if lie.startswith(("output with", "output once", "output from"))),
    *(lie for lie in LIES if lie.startswith("output on stream") or "counted" in lie),
    "endless refusal",
]
FLOODS = ["too much output", "too many tiny outputs"]
"""Whoever reads as fast as a guest sends gives it all the room it wants; told further down."""
OUT_OF_TURN = [
    lie for lie in LIES if lie not in (*LENGTHS, *EMPTY, *IMPOSSIBLE, *WRONG_OUTPUT, *FLOODS)
]
AFTER_AN_END = {
    "exit twice": "exit",
    "output after exit": "exit",
    "kill reported after exit": "exit",
    "exit after refusal": "refusal",
}


@pytest.mark.parametrize("lie", OUT_OF_TURN)
async def test_answer_out_of_turn_is_the_last_one(lie: str, stage: Stage) -> None:
    """L05, L06: a second end, news of a command that does not run, words that are not a guest's."""
    await tell(stage, lie)


@pytest.mark.parametrize("kind", [Kind.EXITED, Kind.OUTPUT, Kind.REFUSED])
async def test_guess_at_the_next_command_is_out_of_turn(kind: Kind, stage: Stage) -> None:
    """L06: a guest that answers a command before it was given one loses an idle session too."""
    liar = await Liar.meet(stage)
    about_the_next = {
        Kind.EXITED: frames.encode_exited(1, BYE),
        Kind.OUTPUT: encode_output(1, Stream.STDOUT, 0, b"early"),
        Kind.REFUSED: frames.encode(Kind.REFUSED, 1, b"\0no"),
    }
    liar.say(about_the_next[kind])

    async with in_time():
        await eventually(lambda: not stage.daemon.sessions.get(liar.session_id).is_active)
    await liar.is_gone("frame for exec 1, which does not run")


async def test_guest_that_lies_in_the_pool_is_never_used(stage: Stage) -> None:
    """L06: a warm sandbox with a liar in it is replaced before anybody gets it."""
    async with in_time():
        await stage.daemon.pools.default.wait_until_warm()
        container_id, liar = list(stage.guests.by_container.items())[-1]
        tally.lies += 1
        liar.say(frames.encode_exited(1, BYE))
        await stage.engine.wait_until(lambda: container_id not in stage.engine.live)
        session_id = await stage.api.open_id("carol")

        assert stage.guest_of(session_id)[0] != container_id
        assert (await stage.api.run(session_id, "true")).exit.code == 0
        await stage.neighbour.is_served()


async def test_commands_of_others_are_out_of_reach(stage: Stage) -> None:
    """L05: news of every number there may be ends the liar's own commands and no one else's."""
    liar = await stage.liar()
    liar.say(b"".join(frames.encode_exited(number, BYE) for number in range(1, 10_000)))
    async with in_time():
        answer, followed = await asyncio.gather(liar.answer, liar.followed)

    assert (answer.exit.code, followed[-1].exited.code) == (0, 0)
    await liar.is_gone("frame for exec 3, which does not run")


@pytest.mark.parametrize("lie", IMPOSSIBLE)
async def test_impossible_value_ends_the_guest(lie: str, stage: Stage) -> None:
    """L07: codes, signals, ways of ending and kinds of frames that do not exist reach nobody."""
    await tell(stage, lie)


@pytest.mark.parametrize("lie", WRONG_OUTPUT)
async def test_output_that_does_not_add_up_ends_the_guest(lie: str, stage: Stage) -> None:
    """L05, L07: gaps, repetitions, wrong counts and endless texts are not passed on."""
    liar = await stage.liar()
    liar.say(LIES[lie].frames(liar.channel))
    async with in_time():
        answer = await liar.answer

    assert answer.exit.reason == LOST
    # What was said before the lie is told, and counted by the daemon.
    assert answer.stdout.data in (b"", b"hi")
    assert answer.exit.stdout_bytes == len(answer.stdout.data)
    await liar.is_gone(LIES[lie].told)


# --- greetings ---

GREETINGS: dict[str, bytes] = {
    "exit before hello": frames.encode_exited(1, BYE),
    "ready before hello": frames.encode(Kind.READY),
    "output before ready": frames.encode_hello(1) + encode_output(1, Stream.STDOUT, 0, b"x"),
    "two hellos": 2 * frames.encode_hello(1),
    "not PID 1": frames.encode_hello(4711),
    "huge length": HEADER.pack(0xFFFFFFFF, Kind.HELLO, 0),
    "HTTP": b"GET / HTTP/1.1\r\nHost: sandboxd\r\n\r\n",
    "noise": random.Random(0).randbytes(4096),
}


def saying(data: bytes) -> Say:
    def say(guest: FakeGuest) -> None:
        tally.lies += 1
        guest.say(data)

    return say


async def opened(api: Api, user: str) -> str:
    """Open a session as a caller does that tries again while none can be started."""
    while True:
        with suppress(aio.AioRpcError):
            return await api.open_id(user)
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("greeting", GREETINGS)
async def test_greeting_that_lies_fails_the_open_alone(greeting: str, short_dir: Path) -> None:
    """L06, L09: the opener is told that no sandbox started; the next one gets an honest guest."""
    async with staged(short_dir, pool_size=0) as stage, in_time():
        honest = stage.guests.greet
        stage.guests.greet = saying(GREETINGS[greeting])
        with refused(grpc.StatusCode.UNAVAILABLE, "ENGINE_FAILED") as refusal:
            await stage.api.open("mallory")
        assert "guest did not answer" in refusal.message
        assert len(stage.engine.live) == 1, "the neighbour's"

        stage.guests.greet = honest
        session_id = await opened(stage.api, "mallory")
        assert (await stage.api.run(session_id, "true")).exit.code == 0
        await stage.neighbour.is_served()


async def test_lie_in_one_breath_with_the_greeting_is_told(short_dir: Path) -> None:
    """L06: a sandbox that is lost the moment it is ready is not given out as a session."""
    async with staged(short_dir, pool_size=0) as stage, in_time():
        honest = stage.guests.welcome
        stage.guests.welcome = saying(frames.encode(Kind.READY) + frames.encode_exited(1, BYE))
        with refused(grpc.StatusCode.ABORTED, "SANDBOX_LOST"):
            await stage.api.open("mallory")

        stage.guests.welcome = honest
        session_id = await opened(stage.api, "mallory")
        assert (await stage.api.run(session_id, "true")).exit.code == 0
        await stage.neighbour.is_served()


# --- L08: figures ---


def seconds(exited: exec_pb2.ExitStatus) -> float:
    return exited.duration.seconds + exited.duration.nanos / 1e9


async def test_duration_is_what_the_daemon_measured(stage: Stage) -> None:
    """L08: a guest that answers late cannot make a command look short; it is not asked."""
    began = time.monotonic()
    liar = await stage.liar()
    tally.lies += 1
    accepted = time.monotonic()
    await stage.neighbour.is_served()
    withheld = time.monotonic() - accepted
    liar.guest.say(frames.encode_exited(liar.channel, BYE))
    async with in_time():
        exited = (await liar.answer).exit

    assert withheld <= seconds(exited) <= time.monotonic() - began
    assert exited.reason == exec_pb2.EXIT_REASON_EXITED


async def test_limits_are_what_the_daemon_set(stage: Stage) -> None:
    """L08: what a session may use is told from the daemon's settings, before and after a lie."""
    before = (await stage.api.open("mallory")).session.limits
    await tell(stage, "2^64-1 counted")

    assert (await stage.api.open("mallory")).session.limits == before
    assert before.memory_bytes == stage.daemon.config.memory_limit_bytes


# --- L09: garbage ---

GARBAGE: dict[str, bytes] = {
    "deep": b"[" * 60_000,
    "deep and closed": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "same key": b"{" + b'"a":1,' * 10_000 + b'"a":2}',
    "numbers": b"[NaN, Infinity, -Infinity, 1e400, -1e400, 1" + b"0" * 5000 + b"]",
    "noise": random.Random(9).randbytes(5000),
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_is_not_interpreted(garbage: str, stage: Stage) -> None:
    """L09: payloads that break parsers end the guest, in frames of any kind."""
    for kind in Kind:
        liar = await stage.liar()
        # Twice: once may be a request that has no use for a payload, and that is answered.
        liar.say(2 * frames.encode(kind, liar.channel, GARBAGE[garbage]))
        await liar.is_caught("broke the protocol")


# --- L10: floods ---


@asynccontextmanager
async def flooding(command: Command, *, frame_bytes: int) -> AsyncIterator[Process]:
    """A process that sends output of this command as fast as it is taken, until it is cut off."""
    tally.lies += 1
    with command.guest.raw_socket() as link:
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fakes.lies"),
            *map(str, (link.fileno(), command.channel, frame_bytes)),
            cwd=ROOT,
            pass_fds=[link.fileno()],
        )
    try:
        yield flood
        assert await flood.wait() == 0
    finally:
        if flood.returncode is None:
            flood.kill()
            await flood.wait()


@pytest.mark.parametrize("frame_bytes", [frames.MAX_CHUNK, 32])
async def test_flood_beyond_the_window_is_cut_off(frame_bytes: int, stage: Stage) -> None:
    """L10: while its reader does not read, a guest that sends on is ended; what was within the
    window is delivered, and no more than that is held."""
    liar = await Liar.meet(stage)
    call = stage.api.exec(liar.session_id, "stubborn")
    async with memory_within(), in_time():
        await call.read()
        command = await stage.guests.wait_for("stubborn")
        async with flooding(command, frame_bytes=frame_bytes) as flood:
            await flood.wait()
        delivered = 0
        async for event in events(call):
            if event.HasField("stdout"):
                assert event.stdout.offset == delivered
                delivered += len(event.stdout.data)
            else:
                exited = event.exited

    assert (exited.reason, exited.stdout_bytes) == (LOST, delivered)
    await liar.is_gone("more output than was allowed")


async def test_flood_that_is_read_ends_at_the_deadline(stage: Stage) -> None:
    """L10: Run reads all that comes and keeps little of it; its deadline holds, and others are
    served meanwhile."""
    liar = await Liar.meet(stage)
    async with memory_within(), in_time():
        answering = asyncio.ensure_future(
            stage.api.run(liar.session_id, "stubborn", timeout=1.0, max_output_bytes=1000)
        )
        command = await stage.guests.wait_for("stubborn")
        async with flooding(command, frame_bytes=frames.MAX_CHUNK):
            await stage.neighbour.is_served()
            answer = await answering

    assert answer.exit.reason == TIMED_OUT
    assert 1.0 <= seconds(answer.exit) < 1.0 + 5.0
    assert answer.stdout.data == b"x" * 1000
    assert answer.stdout.omitted_bytes == answer.exit.stdout_bytes - 1000
    assert answer.exit.stdout_bytes > 2 * frames.WINDOW
    await liar.is_gone("did not end a command in time")


async def test_flood_of_tiny_frames_is_cut_off(stage: Stage) -> None:
    """L10: what came in one read is acknowledged after it, so a guest that does not wait for that
    is ended by its many frames however quickly they are taken; others are served meanwhile."""
    liar = await Liar.meet(stage)
    async with memory_within(), in_time():
        answering = asyncio.ensure_future(stage.api.run(liar.session_id, "stubborn", timeout=30.0))
        command = await stage.guests.wait_for("stubborn")
        async with flooding(command, frame_bytes=1):
            await stage.neighbour.is_served()
            answer = await answering

    assert answer.exit.reason == LOST
    assert answer.stdout.data == b"x" * answer.exit.stdout_bytes
    await liar.is_gone("more output than was allowed")


async def test_flood_within_the_window_waits_for_its_reader(stage: Stage) -> None:
    """L10: a guest that keeps to its window is held back, and loses nothing by it."""
    line = f"flood {128 * MIB}"
    call = stage.api.exec(await stage.api.open_id("carol"), line)
    async with memory_within(), in_time():
        await call.read()
        command = await stage.guests.wait_for(line)
        await eventually(lambda: command.is_held_back)
        await stage.neighbour.is_served()
        assert command.is_held_back
        assert command.unread_bytes <= frames.WINDOW + frames.MAX_CHUNK + frames.FRAME_COST
        async for event in events(call):
            last = event

    assert (last.exited.code, last.exited.stdout_bytes) == (0, 128 * MIB)


# --- L12: words ---

WORDS: dict[str, bytes] = {
    "lines": b"no\nlevel=error event=forged\r\nadmin logged in",
    "terminal": b"\x1b[2J\x1b[31mred\x1b]0;title\x07\x08\x9b31m",
    "controls of Unicode": "\u009b31m \u2028 \u2029 \u0085 \u202e \u2066 \ufeff".encode(),
    "formats": b"%s %n %d %(message)s {0} {event} {self.__class__} $HOME `id` %%",
    "JSON": b'", "level": "critical", "event": "forged',
    "not UTF-8": b"\xff\xfe\x00\xc3\x28\xed\xa0\x80",
    "NUL": b"no\0body",
    "nothing": b"",
    "as long as may be": b"n" * frames.MAX_REFUSAL,
}


@pytest.mark.parametrize("words", WORDS)
async def test_words_of_a_guest_cannot_break_out(words: str, stage: Stage) -> None:
    """L12: what a refusal says reaches callers and logs as one short line of printable text."""
    liar = await stage.liar()
    liar.say(frames.encode(Kind.REFUSED, liar.channel, b"\0" + WORDS[words]))
    async with in_time():
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "COMMAND_NOT_STARTABLE") as refusal:
            await liar.answer

    assert refusal.message.isprintable()
    assert len(refusal.message) <= frames.MAX_REFUSAL + 50
    logged = [one for one in stage.faults.events if one.get("method") == "Run"]
    assert [one["message"] for one in logged] == [refusal.message]
    console = structlog.dev.ConsoleRenderer(colors=False)(None, "info", dict(logged[0]))
    as_json = structlog.processors.JSONRenderer()(None, "info", dict(logged[0]))
    assert (str(console).isprintable(), str(as_json).isprintable()) == (True, True)
    assert json.loads(as_json)["event"] == "call.refused"
    # A refusal is a guest's right: the session goes on.
    assert (await stage.api.run(liar.session_id, "echo on")).stdout.data == b"on\n"
    await stage.neighbour.is_served()


async def test_formats_are_words_like_others(stage: Stage) -> None:
    """L12: nothing is put in for what looks like a placeholder."""
    liar = await stage.liar()
    liar.say(frames.encode(Kind.REFUSED, liar.channel, b"\0" + WORDS["formats"]))
    async with in_time():
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "COMMAND_NOT_STARTABLE") as refusal:
            await liar.answer

    assert WORDS["formats"].decode() in refusal.message


# --- L13: descriptors and connections ---


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_descriptors_from_a_guest_are_not_kept(stage: Stage) -> None:
    """L13: open files that come along with output are closed, and the output is all the same."""
    liar = await stage.liar()
    await (
        stage.daemon.pools.default.wait_until_warm()
    )  # or the one being started would be counted too
    ours, theirs = os.pipe2(os.O_NONBLOCK)
    before = descriptors()
    with liar.guest.raw_socket() as link:
        for number in range(40):
            tally.lies += 1
            frame = encode_output(liar.channel, Stream.STDOUT, number, b"x")
            try:
                socket.send_fds(link, [frame], [theirs] * 250)
            except PermissionError:  # a kernel that can refuse them was asked to
                link.send(frame)
            await asyncio.sleep(0)
    liar.guest.say(frames.encode_exited(liar.channel, BYE._replace(stdout_bytes=40)))
    async with in_time():
        answer = await liar.answer

    assert (answer.stdout.data, answer.exit.code) == (b"x" * 40, 0)
    assert descriptors() == before
    os.close(theirs)
    assert os.read(ours, 1) == b"", "somebody still holds the other end"
    os.close(ours)
    await stage.neighbour.is_served()


def slow_to_close(seconds: int) -> tuple[int, list[socket.socket]]:
    """A descriptor whose last close waits: unsent data, SO_LINGER, a peer that does not read."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    sender.setblocking(False)
    try:
        while True:
            sender.send(b"x" * 65536)
    except BlockingIOError:
        pass  # full
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, seconds))
    return sender.detach(), [listener, peer]


async def test_descriptor_that_is_slow_to_close_holds_nobody_up(stage: Stage) -> None:
    """L13: closing what a guest sent along takes nobody's time but the guest's."""
    liar = await stage.liar()
    descriptor, others = slow_to_close(4)
    frame = encode_output(liar.channel, Stream.STDOUT, 0, b"x")
    tally.lies += 1
    with liar.guest.raw_socket() as link:
        try:
            socket.send_fds(link, [frame], [descriptor])
        except PermissionError:  # refused by the kernel: as it should be
            link.send(frame)
            others.append(socket.socket(fileno=os.dup(descriptor)))
    os.close(descriptor)  # from here on the daemon has the last one
    began = time.monotonic()
    async with in_time():
        await stage.neighbour.is_served()
    took = time.monotonic() - began
    for one in others:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        one.close()
    assert took < 2.0, f"the daemon stood still for {took:.1f} s"


async def test_second_connection_is_not_heard(short_dir: Path) -> None:
    """L13: a guest has one connection: another is closed unread, and later ones find no socket."""
    async with staged(short_dir, pool_size=0) as stage, in_time():
        start = stage.engine.on_start
        assert start is not None
        second = socket.socket(socket.AF_UNIX)
        paths: list[str] = []

        async def connect_twice(spec: ContainerSpec, container: Container) -> None:
            await start(spec, container)
            link = next(bind.source for bind in spec.binds if bind.target == LINK_TARGET)
            paths.append(str(link / "guest.sock"))
            second.connect(paths[0])
            tally.lies += 1
            second.send(frames.encode_hello(1) + frames.encode(Kind.READY) + b"\xff" * 1000)

        stage.engine.on_start = connect_twice
        session_id = await stage.api.open_id("mallory")
        assert (await stage.api.run(session_id, "echo heard")).stdout.data == b"heard\n"

        with second, suppress(ConnectionResetError):
            assert second.recv(1) == b""
        with socket.socket(socket.AF_UNIX) as third, pytest.raises(FileNotFoundError):
            third.connect(paths[0])
        await stage.neighbour.is_served()


async def test_connection_closed_by_half_is_closed(stage: Stage) -> None:
    """L13: a guest that only listens from now on is gone."""
    liar = await stage.liar()
    tally.lies += 1
    with liar.guest.raw_socket() as link:
        link.shutdown(socket.SHUT_WR)

    await liar.is_caught("went away")


# --- L15: noise ---

CONVERSATIONS = 300
FRAMES = 7400
"""Of a conversation at most, before it goes wrong; over a million in all."""


@cache
def _honest_output(channel: int) -> list[bytes]:
    """In the smallest frames there are."""
    return [encode_output(channel, Stream.STDOUT, offset, b"x") for offset in range(FRAMES)]


class Noise:
    """Conversations that begin well and go wrong at random, the same each time."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.frames = 0
        """That were said so far."""

    def conversation(self, channel: int) -> list[bytes]:
        """What is sent, piece by piece, by a guest that runs a command on this channel."""
        chance = self._chance
        said = list(_honest_output(channel)[: chance.randint(0, FRAMES)])
        for _ in range(chance.randint(1, 4)):
            # Late, as a rule: the first one that is wrong is the last one that is read.
            said.insert(round(len(said) * chance.random() ** 0.1), self._wrong(channel))
        self.frames += len(said)
        data = b"".join(said)
        cut = sorted(chance.randrange(len(data) + 1) for _ in range(chance.randint(0, 6)))
        return [data[a:b] for a, b in pairwise([0, *cut, len(data)])]

    def _wrong(self, channel: int) -> bytes:
        """A frame that is damaged, or made up, or no frame at all."""
        chance = self._chance
        number = chance.choice([0, 1, channel, channel + 1, chance.getrandbits(32)])
        payload = chance.randbytes(chance.choice([0, 1, 9, 21, 22, 23, chance.randint(0, 3000)]))
        length = chance.choice([len(payload), chance.getrandbits(16), chance.getrandbits(32)])
        match chance.randrange(5):
            case 0:
                return chance.randbytes(chance.randint(1, 2000))
            case 1:
                return HEADER.pack(length, chance.randrange(256), number) + payload
            case 2:
                return HEADER.pack(len(payload), chance.choice(list(Kind)), number) + payload
            case 3:
                good = bytearray(frames.encode_exited(channel, BYE))
                good[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
                return bytes(good)
            case _:
                good = bytearray(encode_output(channel, Stream.STDERR, 0, payload + b"!"))
                return bytes(good[: chance.randrange(1, len(good))])


async def hear_out(stage: Stage, noise: Noise) -> None:
    """One conversation to its end, which is the end of the sandbox too."""
    session_id = await stage.api.open_id("mallory")
    _, guest = stage.guest_of(session_id)
    answering = asyncio.ensure_future(
        stage.api.run(session_id, "stubborn", timeout=PATIENCE_SECONDS, max_output_bytes=1000)
    )
    await eventually(lambda: bool(guest.running))
    tally.lies += 1
    for piece in noise.conversation(max(guest.running)):
        guest.say(piece)
        await asyncio.sleep(0)
    guest.leave()
    await asyncio.wait([answering])
    if answering.exception() is None:
        assert answering.result().exit.reason in (LOST, exec_pb2.EXIT_REASON_EXITED)
    else:  # the noise held a refusal
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "COMMAND_NOT_STARTABLE"):
            answering.result()
    await eventually(lambda: not stage.daemon.sessions.get(session_id).is_active)


async def test_noise_never_becomes_a_fault(short_dir: Path) -> None:
    """L15: a million frames with random damage end commands, never the daemon's composure."""
    noise = Noise(seed=15)
    async with staged(short_dir) as stage, memory_within(), in_time(60.0):
        for _ in range(CONVERSATIONS):
            await hear_out(stage, noise)
        await stage.neighbour.is_served()

    assert noise.frames >= 1_000_000


# --- the same once more ---


def test_lies_end_the_same_on_the_loop_that_serves(short_dir: Path) -> None:
    """The daemon runs on uvloop, whose transports are others: every lie ends as it does here."""

    async def tell_all() -> None:
        async with staged(short_dir) as stage:
            for lie in (*LENGTHS, *EMPTY, *OUT_OF_TURN, *IMPOSSIBLE):
                await tell(stage, lie)
            for _ in range(50):
                await hear_out(stage, Noise(seed=16))

    uvloop.run(tell_all())
