"""Commands that run and end whether or not someone looks, and what is kept of them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from tests.docker.commands import (
    attach,
    attach_request,
    close_session,
    exec_request,
    host_processes,
    list_execs,
    read_output,
    run,
    send_signal,
    start,
    wait,
    watching,
)
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_churn import resident_kb
from tests.docker.test_lifecycle import eventually, open_session, reason

LEADER = exec_service_pb2.SIGNAL_TARGET_LEADER
GROUP = exec_service_pb2.SIGNAL_TARGET_GROUP
STDOUT = exec_pb2.OUTPUT_STREAM_STDOUT


async def test_server_in_the_background(api: Api, session_id: str) -> None:
    """A command that goes on is started, listed, looked at, left, found again and ended."""
    server = "trap 'echo bye; exit 9' TERM; while :; do echo tick; sleep 0.05; done"
    started = await start(api, session_id, server, exec_id="server", timeout=100)
    listed = (await list_execs(api, session_id))["server"]
    async with (
        watching(api, session_id, "server") as first,
        watching(api, session_id, "server") as second,
    ):
        await first.shows("tick\ntick\n")
        first.leave()
        await send_signal(api, session_id, "server", signal.SIGTERM, LEADER)
        await second.shows("bye\n")
        ended = await second.ends()
    waited = await wait(api, session_id, "server")

    assert started.state == listed.state == exec_pb2.EXEC_STATE_RUNNING
    assert listed.command == server
    assert (ended.code, ended.reason) == (9, exec_pb2.EXIT_REASON_EXITED)
    assert waited.exit == ended
    assert waited.stdout_bytes == len(second.streamed.stdout)
    assert (await attach(api, session_id, "server")).stdout == second.streamed.stdout


async def test_signal_to_the_leader_or_to_the_group(api: Api, session_id: str) -> None:
    """A signal reaches the first process alone or its whole group, as asked."""
    line = (
        """bash -c 'trap "echo wrong" USR1; trap "echo child" TERM; echo ready; """
        """while :; do sleep 0.05; done' & """
        """trap 'echo leader' USR1; trap 'echo leader too' TERM; echo ready; """
        """while :; do sleep 0.05; done"""
    )
    await start(api, session_id, line, exec_id="pair", timeout=60)
    async with watching(api, session_id, "pair") as pair:
        await pair.shows("ready\n")
        await pair.shows("ready\n")
        await send_signal(api, session_id, "pair", signal.SIGUSR1, LEADER)
        await pair.shows("leader\n")
        await send_signal(api, session_id, "pair", signal.SIGTERM, GROUP)
        output = pair.streamed.stdout
        async with asyncio.timeout(10):
            while not (b"leader too\n" in output and b"child\n" in output):
                await pair.read()
        await send_signal(api, session_id, "pair", signal.SIGKILL)
        ended = await pair.ends()

    assert b"wrong" not in output
    assert ended.signal == signal.SIGKILL
    assert ended.reason == exec_pb2.EXIT_REASON_SIGNALLED


async def test_same_id_starts_once(api: Api, session_id: str) -> None:
    """The same id and content is the same exec, however it is started; other content is refused."""
    request = exec_request(session_id, "echo once | tee -a ran", exec_id="one")
    first = await api.execs.StartExec(request, timeout=10)
    again = await api.execs.StartExec(request, timeout=10)
    answer = await api.execs.Run(request, timeout=10)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await start(api, session_id, "echo twice", exec_id="one")

    assert (first.already_started, again.already_started) == (False, True)
    assert answer.stdout.data == b"once\n"
    assert reason(caught.value) == "EXEC_CONFLICT"
    assert (await run(api, session_id, "cat ran")).stdout.data == b"once\n"


async def test_unknown_exec(api: Api, session_id: str) -> None:
    """An id that the session does not have is told as such."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await wait(api, session_id, "nobody")

    assert reason(caught.value) == "EXEC_NOT_FOUND"


async def test_straggler_does_not_hold_the_exec_open(api: Api, session_id: str) -> None:
    """A process that left the command's session and keeps its output open lives on, but the exec
    ends; closing the session ends the straggler too."""
    await start(api, session_id, "setsid sleep 43210.125 & echo started", exec_id="leaves")
    async with asyncio.timeout(10):
        streamed = await attach(api, session_id, "leaves")

    assert streamed.stdout == b"started\n"
    assert streamed.exit.code == 0
    assert len(host_processes("43210.125")) == 1
    await close_session(api, session_id)
    await eventually(lambda: _gone("43210.125"))


async def test_close_ends_what_runs(api: Api, session_id: str) -> None:
    """Closing a session ends its background commands, and those who wait for them are told."""
    await start(api, session_id, "sleep 43210.25", exec_id="runs", timeout=100)
    waiting = asyncio.create_task(attach(api, session_id, "runs"))
    await eventually(lambda: _there("43210.25"))
    await close_session(api, session_id)

    assert (await waiting).exit.reason == exec_pb2.EXIT_REASON_SESSION_CLOSED
    await eventually(lambda: _gone("43210.25"))


async def _there(word: str) -> bool:
    return bool(host_processes(word))


async def _gone(word: str) -> bool:
    return not host_processes(word)


async def test_three_kinds_of_time(api: Api, session_id: str) -> None:
    """The time of a call, the time of WaitExec and the silence of a command are three things:
    only the last one ends the command."""
    await start(
        api, session_id, "echo a; sleep 100", exec_id="quiet", timeout=60, no_output_timeout=1.5
    )
    waited = await wait(api, session_id, "quiet", timeout=0.2)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in api.execs.AttachExec(attach_request(session_id, "quiet"), timeout=0.2):
            pass
    after = (await list_execs(api, session_id))["quiet"]
    ended = await wait(api, session_id, "quiet")

    assert waited.state == after.state == exec_pb2.EXEC_STATE_RUNNING
    assert not waited.HasField("exit")
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert ended.exit.reason == exec_pb2.EXIT_REASON_NO_OUTPUT_TIMEOUT
    assert "1.5 s" in ended.exit.hint
    assert (await attach(api, session_id, "quiet")).stdout == b"a\n"


async def test_output_keeps_a_command_alive(api: Api, session_id: str) -> None:
    """A command that writes now and then does not reach its no-output timeout."""
    line = "for i in 1 2 3 4 5 6 7 8; do echo $i >&$((1 + i % 2)); sleep 0.2; done"
    await start(api, session_id, line, exec_id="slow", no_output_timeout=1)

    assert (await wait(api, session_id, "slow")).exit.reason == exec_pb2.EXIT_REASON_EXITED


@pytest.mark.parametrize("reader", ["one that stops reading", "nobody"])
async def test_endless_output_is_bounded(reader: str) -> None:
    """10 GB of output do not grow the daemon, whoever reads, and the deadline is kept."""
    async with running_daemon(POOL_SIZE="1") as daemon, daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        await run(api, session_id, "true")
        before = peak = resident_kb(daemon.pid)
        line = "yes | head -c 10000000000"
        await start(api, session_id, line, exec_id="yes", timeout=3)
        call = api.execs.AttachExec(attach_request(session_id, "yes"), timeout=60)
        if reader == "nobody":
            call.cancel()
        else:
            await call.read()
        ended = asyncio.create_task(wait(api, session_id, "yes"))
        async with asyncio.timeout(3 + 5):
            while not ended.done():
                await asyncio.wait([ended], timeout=0.05)
                peak = max(peak, resident_kb(daemon.pid))
        call.cancel()
        exit_status = (await ended).exit

        print(
            f"10 GB to {reader}: {exit_status.stdout_bytes / 1e6:.0f} MB written, "
            f"daemon grew by {(peak - before) / 1024:.1f} MB"
        )
        assert exit_status.reason == exec_pb2.EXIT_REASON_TIMED_OUT
        assert peak - before < 64 * 1024


LINES = 1_333_334
LINE_BYTES = 15
TOTAL = LINES * LINE_BYTES
SPOOL_BYTES = 4 << 20


def written(offset: int, count: int) -> bytes:
    """What the exec wrote from that byte on."""
    first = offset // LINE_BYTES
    last = min((offset + count) // LINE_BYTES + 1, LINES)
    text = b"".join(b"line %09d\n" % number for number in range(first + 1, last + 1))
    begin = offset - first * LINE_BYTES
    return text[begin : begin + count]


class Kept(NamedTuple):
    """An ended exec that wrote 20 MB, of which 4 MiB are kept."""

    api: Api
    session_id: str
    exit: exec_pb2.ExitStatus

    async def read(self, offset: int, **fields: int) -> exec_service_pb2.ReadOutputResponse:
        return await read_output(self.api, self.session_id, "much", offset=offset, **fields)

    async def search(self, pattern: str, **fields: Any) -> list[exec_pb2.OutputMatch]:
        request = exec_service_pb2.SearchOutputRequest(
            session_id=self.session_id, exec_id="much", pattern=pattern, **fields
        )
        answer = await self.api.execs.SearchOutput(request, timeout=30)
        assert answer.complete
        return list(answer.matches)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def small_spools() -> AsyncIterator[tuple[DaemonProcess, str, exec_pb2.ExitStatus]]:
    """A daemon that keeps little, with a session in which `much` has ended."""
    async with running_daemon(POOL_SIZE="1", SANDBOXD_SPOOL_BYTES="4m") as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            line = f"echo begun >&2; seq -f 'line %09.0f' 1 {LINES}; echo done >&2"
            await start(api, session_id, line, exec_id="much")
            ended = await wait(api, session_id, "much")
        yield daemon, session_id, ended.exit


@pytest.fixture
async def kept(
    small_spools: tuple[DaemonProcess, str, exec_pb2.ExitStatus],
) -> AsyncIterator[Kept]:
    daemon, session_id, ended = small_spools
    async with daemon.api() as api:
        yield Kept(api, session_id, ended)


async def test_dropped_output_is_counted(kept: Kept) -> None:
    """The end of a command that wrote more than is kept says how much was dropped."""
    held = TOTAL - kept.exit.stdout_dropped_bytes

    print(f"kept output: {held} of {TOTAL} bytes")
    assert kept.exit.code == 0
    assert kept.exit.stdout_bytes == TOTAL
    assert SPOOL_BYTES * 3 // 4 < held <= SPOOL_BYTES
    assert kept.exit.stderr_dropped_bytes == 0


async def test_late_reader_is_told_of_the_gap(kept: Kept) -> None:
    """A late stream has the beginning, one gap at its place, and the end, and nothing else."""
    streamed = await attach(kept.api, kept.session_id, "much")
    (gap,) = streamed.gaps

    assert gap.stream == STDOUT
    assert gap.bytes == kept.exit.stdout_dropped_bytes
    assert streamed.stdout[: gap.offset] == written(0, gap.offset)
    after = gap.offset + gap.bytes
    assert streamed.stdout[gap.offset :] == written(after, TOTAL - after)
    assert streamed.stderr == b"begun\ndone\n"
    assert streamed.exit == kept.exit


async def test_kept_output_is_read_by_position(kept: Kept) -> None:
    """Any position can be read; one in the gap answers with what comes after, and says so."""
    beginning = await kept.read(0)
    assert beginning.data == written(0, 64 << 10)
    assert (beginning.offset, beginning.dropped_bytes) == (0, 0)
    assert beginning.total_bytes == TOTAL
    assert beginning.ended

    middle = TOTAL // 2
    around = await kept.read(middle, max_bytes=1000)
    assert around.dropped_bytes == around.offset - middle > 0
    assert around.data == written(around.offset, 1000)

    last = await kept.read(TOTAL - 100, max_bytes=1 << 20)
    assert last.data == written(TOTAL - 100, 100)
    assert (await kept.read(TOTAL)).data == b""


async def test_search_counts_dropped_lines(kept: Kept) -> None:
    """Lines are found in what is kept, numbered as they were written, with their neighbours."""
    (early,) = await kept.search("^line 000001000$")
    (late,) = await kept.search("33333[3]$", context_lines=1, stream=STDOUT)
    (other,) = await kept.search("^d.ne$")

    assert (early.line_number, early.offset) == (1000, 999 * LINE_BYTES)
    assert (late.line_number, late.offset) == (1_333_333, 1_333_332 * LINE_BYTES)
    assert late.line == b"line 001333333"
    assert list(late.before) == [b"line 001333332"]
    assert list(late.after) == [b"line 001333334"]
    assert (other.stream, other.line_number) == (exec_pb2.OUTPUT_STREAM_STDERR, 2)
    assert await kept.search(f"^line {LINES // 2:09d}$") == []


async def test_preview_has_both_ends(kept: Kept) -> None:
    """A preview is small, begins and ends as the output does, in whole lines, and counts."""
    request = exec_service_pb2.PreviewOutputRequest(
        session_id=kept.session_id, exec_id="much", max_bytes=1000
    )
    preview = await kept.api.execs.PreviewOutput(request, timeout=10)
    out = preview.stdout

    assert 900 < len(out.head) + len(out.tail) <= 1000
    assert out.head == written(0, len(out.head))
    assert out.tail == written(TOTAL - len(out.tail), len(out.tail))
    assert len(out.head) % LINE_BYTES == len(out.tail) % LINE_BYTES == 0
    assert out.omitted_bytes == TOTAL - len(out.head) - len(out.tail)
    assert out.total_bytes == TOTAL
    assert (preview.stderr.head, preview.stderr.omitted_bytes) == (b"begun\ndone\n", 0)


async def test_gap_in_front_of_a_running_command(kept: Kept) -> None:
    """Who comes to a command that runs is told of the gap and then gets what is written."""
    line = f"seq -f 'line %09.0f' 1 {LINES}; touch all; until [ -e go ]; do sleep 0.05; done"
    await start(kept.api, kept.session_id, line, exec_id="live")
    await eventually(lambda: _has(kept, "all"))
    async with watching(kept.api, kept.session_id, "live") as live:
        await live.shows(f"line {LINES:09d}\n")
        await run(kept.api, kept.session_id, "touch go")
        ended = await live.ends()
    (gap,) = live.streamed.gaps

    assert ended.stdout_dropped_bytes == gap.bytes
    assert len(live.streamed.stdout) + gap.bytes == TOTAL


async def _has(kept: Kept, file: str) -> bool:
    return (await run(kept.api, kept.session_id, ["test", "-e", file])).exit.code == 0
