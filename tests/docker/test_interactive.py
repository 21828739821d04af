"""Terminals and standard input of commands."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal

import grpc
import pytest

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from tests.docker.commands import (
    attach,
    close_session,
    run,
    send_signal,
    start,
    wait,
    watching,
    write,
)
from tests.docker.daemon_process import Api
from tests.docker.test_lifecycle import eventually, reason

SCREEN = exec_pb2.Terminal(rows=24, columns=80)
MEBIBYTE = 1 << 20


async def resize(api: Api, session_id: str, exec_id: str, *, rows: int, columns: int) -> None:
    size = exec_pb2.Terminal(rows=rows, columns=columns)
    request = exec_service_pb2.ResizeExecRequest(
        session_id=session_id, exec_id=exec_id, terminal=size
    )
    await api.execs.ResizeExec(request, timeout=10)


async def state_of_sleep(api: Api, session_id: str) -> str:
    """As ps tells it; a `+` stands for the foreground of a terminal."""
    answer = await run(api, session_id, "ps -o stat= -C sleep")
    return answer.stdout.data.decode().strip()


async def test_python_prompt(api: Api, session_id: str) -> None:
    """An interpreter in a terminal prompts, answers and returns the code it is left with."""
    await start(api, session_id, ["python3", "-q"], exec_id="py", terminal=SCREEN)
    async with watching(api, session_id, "py") as python:
        await python.shows(">>> ")
        await python.type("1+1\n")
        await python.shows("2\r\n>>> ")
        await python.type("exit(3)\n")
        ended = await python.ends()

    assert (ended.code, ended.reason) == (3, exec_pb2.EXIT_REASON_EXITED)
    assert not python.streamed.stderr


async def test_job_control(api: Api, session_id: str) -> None:
    """In a terminal Ctrl-Z stops a job, `jobs` and `fg` know it, Ctrl-C ends it, and the shell
    goes on."""
    await start(api, session_id, ["bash", "--norc", "-i"], exec_id="sh", terminal=SCREEN)
    async with watching(api, session_id, "sh") as shell:
        await shell.shows("$ ")
        await shell.type("sleep 100\n")
        await eventually(lambda: _in_foreground(api, session_id))
        await shell.type("\x1a")
        await shell.shows("Stopped")
        await shell.shows("$ ")
        assert (await state_of_sleep(api, session_id)).startswith("T")
        await shell.type("jobs\n")
        assert "Stopped" in await shell.shows("sleep 100\r\n")
        await shell.shows("$ ")
        await shell.type("fg\n")
        await eventually(lambda: _in_foreground(api, session_id))
        await shell.type("\x03")
        await shell.shows("^C")
        await shell.type("echo code $?\n")
        await shell.shows("code 130")
        await shell.type("exit 5\n")
        ended = await shell.ends()

    assert ended.code == 5
    assert await state_of_sleep(api, session_id) == ""


async def _in_foreground(api: Api, session_id: str) -> bool:
    return (await state_of_sleep(api, session_id)).startswith("S+")


async def test_full_screen_program(api: Api, session_id: str) -> None:
    """`top` draws its screen again and again and ends at a key."""
    env = {"TERM": "xterm"}
    await start(
        api, session_id, ["top", "-d", "0.2"], exec_id="top", terminal=SCREEN, env=env, timeout=30
    )
    async with watching(api, session_id, "top") as top:
        await top.shows("PID")
        await top.shows("COMMAND")
        for _ in range(2):
            await top.shows("top - ")
        await top.type("q")
        ended = await top.ends()

    assert ended.code == 0


async def test_resize(api: Api, session_id: str) -> None:
    """A terminal has the size that was asked for, and a new one is told to its program."""
    await start(
        api,
        session_id,
        "trap 'echo changed' WINCH; stty size; while read -r; do stty size; done",
        exec_id="sh",
        terminal=exec_pb2.Terminal(rows=30, columns=100),
    )
    async with watching(api, session_id, "sh") as shell:
        await shell.shows("30 100\r\n")
        await resize(api, session_id, "sh", rows=50, columns=132)
        await shell.type("\n")
        assert "changed" in await shell.shows("50 132\r\n")
        await shell.type("\x04")
        ended = await shell.ends()

    assert ended.code == 0
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await resize(api, session_id, "sh", rows=5, columns=5)
    assert reason(caught.value) == "EXEC_ENDED"


async def test_terminal_is_one_stream(api: Api, session_id: str) -> None:
    """In a terminal both streams come as one, in the order they were written; input is echoed."""
    line = "test -t 0 && test -t 1 && test -t 2 && echo all; echo err >&2; echo out; cat"
    await start(api, session_id, line, exec_id="tty", terminal=SCREEN)
    async with watching(api, session_id, "tty") as terminal:
        await terminal.shows("all\r\nerr\r\nout\r\n")
        await terminal.type("typed\n")
        await terminal.shows("typed\r\ntyped\r\n")
        await send_signal(api, session_id, "tty", signal.SIGINT)
        ended = await terminal.ends()

    assert not terminal.streamed.stderr
    assert ended.signal == signal.SIGINT or ended.code == 128 + signal.SIGINT


async def test_stdin_in_pieces_and_repeats(api: Api, session_id: str) -> None:
    """5 MB in pieces, many sent again or overlapping earlier ones, arrive once and in order."""
    data = random.Random(1).randbytes(5_000_000)
    await start(api, session_id, ["sha256sum"], exec_id="sum", stdin=True)
    position = 0
    repeats = 0
    while position < len(data):
        position = await write(
            api, session_id, "sum", position, data[position : position + 300_000]
        )
        if repeats < 10:
            repeats += 1
            begin = max(0, position - 450_000)
            assert await write(api, session_id, "sum", begin, data[begin:position]) == position
    await write(api, session_id, "sum", len(data), eof=True)
    await write(api, session_id, "sum", len(data), eof=True)
    streamed = await attach(api, session_id, "sum")

    print(f"stdin: {len(data)} bytes, {repeats} repeats")
    assert streamed.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert streamed.exit.code == 0


async def test_two_people_type_into_one_terminal(api: Api, session_id: str) -> None:
    """Each line of both arrives whole, although neither knows what the other has typed."""
    count = 100
    await start(api, session_id, "stty -echo; echo ready; cat", exec_id="tty", terminal=SCREEN)

    async def type_lines(name: str) -> None:
        for number in range(count):
            await write(api, session_id, "tty", 0, f"{name}{number}\n".encode(), append=True)

    async with watching(api, session_id, "tty") as terminal:
        await terminal.shows("ready\r\n")
        await asyncio.gather(type_lines("ada"), type_lines("bob"))
        await write(api, session_id, "tty", 0, b"\x04", append=True)
        await terminal.ends()

    lines = terminal.streamed.stdout.decode().split("\r\n")
    for name in ("ada", "bob"):
        assert [line for line in lines if line.startswith(name)] == [
            f"{name}{number}" for number in range(count)
        ]


async def test_stdin_with_a_gap_is_refused(api: Api, session_id: str) -> None:
    """Bytes beyond the next position are refused, and the input is as it was."""
    await start(api, session_id, ["cat"], exec_id="cat", stdin=True)
    await write(api, session_id, "cat", 0, b"abc")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await write(api, session_id, "cat", 4, b"e")
    assert reason(caught.value) == "INVALID_REQUEST"
    await write(api, session_id, "cat", 3, b"d", eof=True)

    assert (await attach(api, session_id, "cat")).stdout == b"abcd"


async def test_slow_command_slows_its_writer_down(api: Api, session_id: str) -> None:
    """A command that does not read yet holds its writer up; when it reads, it gets everything."""
    line = "until [ -e go ]; do sleep 0.05; done; cat"
    data = random.Random(2).randbytes(4 * MEBIBYTE)
    await start(api, session_id, line, exec_id="late", stdin=True)
    answered: list[int] = []

    async def write_all() -> None:
        for begin in range(0, len(data), MEBIBYTE):
            piece = data[begin : begin + MEBIBYTE]
            answered.append(await write(api, session_id, "late", begin, piece))
        await write(api, session_id, "late", len(data), eof=True)

    writer = asyncio.create_task(write_all())
    await asyncio.wait([writer], timeout=0.7)
    held_at = len(answered)
    await run(api, session_id, "touch go")
    streamed = await attach(api, session_id, "late")
    await writer

    assert held_at <= 1
    assert hashlib.sha256(streamed.stdout).digest() == hashlib.sha256(data).digest()
    assert streamed.exit.code == 0


async def test_interactive_loop_over_pipes(api: Api, session_id: str) -> None:
    """Without a terminal, a program that answers each line can be talked to."""
    line = 'while read -r word; do echo "got $word"; done; echo end'
    await start(api, session_id, line, exec_id="talk", stdin=True)
    async with watching(api, session_id, "talk") as talk:
        for number in range(20):
            await talk.type(f"{number}\n")
            await talk.shows(f"got {number}\n")
        await write(api, session_id, "talk", sum(len(f"{n}\n") for n in range(20)), eof=True)
        await talk.shows("end\n")
        assert (await talk.ends()).code == 0


async def test_writing_to_what_has_ended(api: Api, session_id: str) -> None:
    """After its end, a command cannot be written to, signalled or resized: EXEC_ENDED."""
    await start(api, session_id, "exit 4", exec_id="gone", stdin=True)
    assert (await wait(api, session_id, "gone")).exit.code == 4
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await write(api, session_id, "gone", 0, b"late")
    assert reason(caught.value) == "EXEC_ENDED"
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await send_signal(api, session_id, "gone", signal.SIGTERM)
    assert reason(caught.value) == "EXEC_ENDED"


async def test_writer_of_a_command_that_ends_is_told(api: Api, session_id: str) -> None:
    """A writer that is held up by a command which then ends gets EXEC_ENDED, not silence."""
    await start(api, session_id, "until [ -e go ]; do sleep 0.05; done", exec_id="deaf", stdin=True)
    writer = asyncio.create_task(write(api, session_id, "deaf", 0, bytes(MEBIBYTE)))
    await asyncio.wait([writer], timeout=0.3)
    assert not writer.done()
    await run(api, session_id, "touch go")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(10):
            await writer
    assert reason(caught.value) == "EXEC_ENDED"


async def test_close_ends_terminals(api: Api, session_id: str) -> None:
    """Closing a session ends what waits at its terminals."""
    await start(api, session_id, ["bash", "-i"], exec_id="sh", terminal=SCREEN)
    async with watching(api, session_id, "sh") as shell:
        await shell.shows("$ ")
        await close_session(api, session_id)
        assert (await shell.ends()).reason == exec_pb2.EXIT_REASON_SESSION_CLOSED
