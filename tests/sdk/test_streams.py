"""Streams heal, and only where that is safe; what broke for good is an error."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from sandboxd_client.commands import AsyncCommands
from sandboxd_client.errors import (
    CommandNotStartableError,
    ConnectionLostError,
    DrainingError,
    ExecNotFoundError,
    SandboxError,
    SandboxLostError,
)
from sandboxd_client.methods import Method, execs, files, sessions
from sandboxd_client.methods.execs import ATTACH_EXEC, RUN, START_EXEC
from sandboxd_client.methods.sessions import GET_SESSION
from sandboxd_client.results import CommandResult, OutputChunk, OutputGap
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from tests.sdk.scripted import (
    Scripted,
    batch,
    dropped,
    exited,
    hold_on,
    offsets,
    started,
    stderr,
    stdout,
)

CUT_OFF = ConnectionLostError("cut off")


async def watched(transport: Scripted) -> tuple[list[object], CommandResult]:
    """Events of a background command, and its result."""
    handle = await AsyncCommands(hold_on(transport)).run("x", background=True)
    async with handle.stream() as events:
        seen: list[object] = [event async for event in events]
    assert events.result is not None
    return seen, events.result


async def test_cut_off_stream_goes_on_at_the_next_byte() -> None:
    """A dropped connection, a stream that just ends and a daemon that leaves are all the same."""
    transport = Scripted(
        {
            "StartExec": [started()],
            "AttachExec": [
                [batch(stdout(0, b"one ")), CUT_OFF],
                [batch(stderr(0, b"err"), stdout(4, b"two "))],
                [DrainingError("leaving")],
                [batch(stdout(8, b"three")), batch(exited(7))],
            ],
        }
    )

    seen, result = await watched(transport)

    texts = [one.text for one in seen if isinstance(one, OutputChunk)]
    assert texts == ["one ", "err", "two ", "three"]
    assert (result.stdout, result.stderr, result.exit_code) == ("one two three", "err", 7)
    attached = transport.requests(ATTACH_EXEC)
    assert offsets(attached) == [(0, 0), (4, 0), (8, 3), (8, 3)]
    assert transport.tries(ATTACH_EXEC) == ["", "1", "2", "3"]
    assert len(transport.requests(START_EXEC)) == 1


async def test_bytes_that_come_twice_are_told_once() -> None:
    """Whatever a daemon sends again, a reader sees each byte once."""
    transport = Scripted(
        {
            "StartExec": [started()],
            "AttachExec": [
                [batch(stdout(0, b"abcd")), CUT_OFF],
                [batch(stdout(0, b"abcd"), stdout(2, b"cdef"), exited())],
            ],
        }
    )

    seen, result = await watched(transport)

    assert [(one.offset, one.data) for one in seen if isinstance(one, OutputChunk)] == [
        (0, b"abcd"),
        (4, b"ef"),
    ]
    assert result.stdout == "abcdef"


async def test_missing_bytes_are_told() -> None:
    """A gap is an event of its own, announced by the daemon or not, and counted in the result."""
    transport = Scripted(
        {
            "StartExec": [started()],
            "AttachExec": [
                [batch(stdout(0, b"ab"), dropped(2, 10), stdout(12, b"cd")), CUT_OFF],
                [batch(stdout(20, b"ef"), exited())],
            ],
        }
    )

    seen, result = await watched(transport)

    gaps = [one for one in seen if isinstance(one, OutputGap)]
    assert gaps == [OutputGap("stdout", 2, 10), OutputGap("stdout", 14, 6)]
    assert result.stdout_omitted_bytes == 16 + len(b"cd")
    assert result.stdout == "ab\n[... 18 bytes left out ...]\nef"


async def test_stream_without_an_exit_is_an_error() -> None:
    """However often it is tried, within its time, an end that nobody saw is no success."""
    transport = Scripted({"StartExec": [started()], "AttachExec": [[batch(stdout(0, b"a"))], []]})

    with pytest.raises(ConnectionLostError, match="before its end"):
        async with asyncio.timeout(5):
            await watched(transport)

    assert len(transport.requests(ATTACH_EXEC)) > 2


async def test_in_process_stream_without_an_exit_is_an_error_at_once() -> None:
    """A daemon in this process does not come back."""
    transport = Scripted(
        {"StartExec": [started()], "AttachExec": [[batch(stdout(0, b"a"))]]}, can_come_back=False
    )

    with pytest.raises(ConnectionLostError):
        await watched(transport)

    assert len(transport.requests(ATTACH_EXEC)) == 1


async def test_lost_sandbox_ends_a_stream() -> None:
    """What another try cannot cure is told as it is."""
    transport = Scripted({"StartExec": [started()], "AttachExec": [[SandboxLostError("gone")]]})

    with pytest.raises(SandboxLostError):
        await watched(transport)

    assert len(transport.requests(ATTACH_EXEC)) == 1


async def test_queued_command_is_started_again_after_a_restart() -> None:
    """One that waited for its shell is forgotten by a new daemon, and runs once under its id."""
    transport = Scripted(
        {
            "StartExec": [started(queued=True), started()],
            "AttachExec": [
                [CUT_OFF],
                [ExecNotFoundError("never heard of it")],
                [batch(stdout(0, b"a"), exited())],
            ],
        }
    )

    _, result = await watched(transport)

    first, second = transport.requests(START_EXEC)
    assert first == second
    assert transport.tries(START_EXEC) == ["", "1"]
    assert result.stdout == "a"


async def test_command_that_had_begun_is_not_started_again() -> None:
    """Once it was seen to run, that it is unknown means that it ended too long ago."""
    transport = Scripted(
        {
            "StartExec": [started(queued=True)],
            "AttachExec": [[batch(stdout(0, b"a")), CUT_OFF], [ExecNotFoundError("gone")]],
        }
    )

    with pytest.raises(ExecNotFoundError):
        await watched(transport)

    assert len(transport.requests(START_EXEC)) == 1


async def test_leaving_a_stream_cancels_its_call() -> None:
    """A reader that has seen enough costs the daemon nothing more."""
    transport = Scripted(
        {"StartExec": [started()], "AttachExec": [[batch(stdout(0, b"a")), batch(exited())]]}
    )
    handle = await AsyncCommands(hold_on(transport)).run("x", background=True)

    async with handle.stream() as events:
        async for _ in events:
            break

    assert transport.left == 1


async def test_characters_cut_by_pieces_are_whole() -> None:
    """Text is decoded across pieces and restarts; what stays incomplete is marked at the end."""
    euro = "€".encode()
    transport = Scripted(
        {
            "StartExec": [started()],
            "AttachExec": [
                [batch(stdout(0, euro[:1])), CUT_OFF],
                [batch(stdout(1, euro[1:]), stdout(3, euro[:2]), exited())],
            ],
        }
    )

    seen, _ = await watched(transport)

    assert [one.text for one in seen if isinstance(one, OutputChunk)] == ["", "€", "", "\ufffd"]


async def test_run_is_repeated_under_its_id() -> None:
    """A lost answer is asked for again with the very same request, so the command runs once."""
    done = exec_service_pb2.RunResponse(exec_id="e1", exit=exited(3).exited)
    transport = Scripted({"Run": [CUT_OFF, CUT_OFF, done]})

    result = await AsyncCommands(hold_on(transport)).run("x")

    assert result.exit_code == 3
    requests = transport.requests(RUN)
    assert requests[0] == requests[1] == requests[2]
    assert requests[0].exec_id
    assert requests[0].incarnation == 3
    assert transport.tries(RUN) == ["", "1", "2"]


async def test_command_that_ended_with_its_connection_is_an_error() -> None:
    """Cancelled by a dropped connection is not how a command ends by itself."""
    status = exec_pb2.ExitStatus(signal=9, reason=exec_pb2.EXIT_REASON_CANCELLED)
    transport = Scripted({"Run": [CUT_OFF, exec_service_pb2.RunResponse(exit=status)]})

    with pytest.raises(ConnectionLostError, match="background"):
        await AsyncCommands(hold_on(transport)).run("x")


async def test_command_without_a_process_is_tried_again_as_a_new_one() -> None:
    """It never ran, so another one is safe; a command that can never start is not tried again."""
    not_now = CommandNotStartableError("no process")
    not_now.retry_after_seconds = 0.01
    done = exec_service_pb2.RunResponse(exec_id="e1", exit=exited().exited)
    transport = Scripted({"Run": [not_now, done]})

    assert (await AsyncCommands(hold_on(transport)).run("x")).ok

    first, second = transport.requests(RUN)
    assert first.exec_id != second.exec_id
    assert transport.tries(RUN) == ["", "1"]
    with pytest.raises(CommandNotStartableError):
        await AsyncCommands(hold_on(Scripted({"Run": [not_now]}))).run("x", exec_id="mine")
    with pytest.raises(CommandNotStartableError):
        never = Scripted({"Run": [CommandNotStartableError("no such directory")]})
        await AsyncCommands(hold_on(never)).run("x")


@pytest.mark.parametrize(
    ("method", "error", "tries"),
    [
        ("GetSession", CUT_OFF, 2),
        ("RemoveFile", CUT_OFF, 1),
        ("RemoveFile", DrainingError("leaving"), 2),
        ("SignalExec", CUT_OFF, 1),
        ("GetSession", SandboxLostError("gone"), 1),
    ],
)
async def test_only_what_is_safe_is_repeated(method: str, error: SandboxError, tries: int) -> None:
    """By the call and by the reason: a lost answer only where twice is as once."""
    called: Method[Any, Any] = next(
        one
        for module in (execs, files, sessions)
        for one in vars(module).values()
        if isinstance(one, Method) and one.name == method
    )
    transport = Scripted({method: [error, called.response()]})

    refused = pytest.raises(type(error)) if tries == 1 else nullcontext()
    with refused:
        await hold_on(transport).connection.call(called, called.request())

    assert len(transport.asked) == tries


async def test_tries_are_bounded_in_time() -> None:
    """A daemon that stays away is told after the time for reconnecting, with what was wrong."""
    transport = Scripted({"GetSession": [CUT_OFF]})

    with pytest.raises(ConnectionLostError) as caught:
        async with asyncio.timeout(5):
            connection = hold_on(transport).connection
            await connection.call(GET_SESSION, GET_SESSION.request())

    assert caught.value.may_have_begun
