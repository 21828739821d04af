"""Run: the same command, one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd_proto.v1 import exec_pb2
from tests.fakes.guest import FakeGuests
from tests.service.client import Api, refused

StartDaemon = Callable[..., Awaitable[Daemon]]


async def test_run_answers_with_output_and_exit(api: Api) -> None:
    """Both streams and the end of the command, in one message."""
    answer = await api.run(await api.open_id(), "echo out; err oops; exit 7", exec_id="e1")

    assert answer.exec_id == "e1"
    assert (answer.stdout.data, answer.stderr.data) == (b"out\n", b"oops\n")
    assert (answer.exit.code, answer.exit.reason) == (7, exec_pb2.EXIT_REASON_EXITED)
    assert (answer.stdout.omitted_bytes, answer.stderr.omitted_bytes) == (0, 0)


async def test_run_hands_the_request_to_the_guest_as_it_is(api: Api, guests: FakeGuests) -> None:
    """Words, directory and environment arrive unchanged."""
    words = ["echo", "a b", "$HOME", "\u00e9\n'\""]
    await api.run(await api.open_id(), argv=words, cwd="sub/dir", env={"A": "b=c", "E": ""})

    request = guests.commands[-1].request
    assert request == {
        "shell": None,
        "argv": words,
        "cwd": "sub/dir",
        "env": {"A": "b=c", "E": ""},
        "timeout": request["timeout"],
    }


@pytest.mark.parametrize(("asked", "kept"), [(1000, 1000), (1, 1), (0, 1 << 20)])
async def test_run_caps_output_and_counts_the_rest(asked: int, kept: int, api: Api) -> None:
    """Beyond the cap the middle is left out, and the count is exact."""
    answer = await api.run(await api.open_id(), "flood 3000000", max_output_bytes=asked)

    assert len(answer.stdout.data) == kept
    assert answer.stdout.omitted_bytes == 3_000_000 - kept
    assert answer.stdout.omitted_at == kept - kept // 2
    assert answer.exit.stdout_bytes == 3_000_000


async def test_run_that_times_out_is_an_answer(api: Api) -> None:
    """A time-out is a result with what there was, not an error."""
    answer = await api.run(await api.open_id(), "echo partial; err why; sleep", timeout=0.05)

    assert answer.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert (answer.stdout.data, answer.stderr.data) == (b"partial\n", b"why\n")


async def test_timeout_of_a_command_has_a_default(start_daemon: StartDaemon) -> None:
    """A command that names none is ended by the daemon's."""
    daemon = await start_daemon(default_exec_seconds=0.05)
    async with Api(daemon.config.api_socket) as api:
        answer = await api.run(await api.open_id(), "sleep")

    assert answer.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT


async def test_run_in_a_sandbox_that_dies_is_an_answer(api: Api) -> None:
    """The output up to the loss is kept."""
    answer = await api.run(await api.open_id(), "echo before; die")

    assert answer.exit.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST
    assert answer.exit.WhichOneof("outcome") is None


async def test_exec_id_runs_once(api: Api, guests: FakeGuests) -> None:
    """A repeat under the same id gets the answer of the first, and other content is refused, also
    while the first runs."""
    session_id = await api.open_id()
    first = await api.run(session_id, "echo once; exit 3", exec_id="same")
    assert await api.run(session_id, "echo once; exit 3", exec_id="same") == first
    running = asyncio.ensure_future(api.run(session_id, "sleep", exec_id="long"))
    await guests.wait_for("sleep")
    for exec_id in ("same", "long"):
        with refused(grpc.StatusCode.ALREADY_EXISTS, "EXEC_CONFLICT") as refusal:
            await api.run(session_id, "true", exec_id=exec_id)
        assert "new id" in refusal.message
        assert refusal.info.metadata["execId"] == exec_id

    assert len(guests.commands) == 2
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("asked", [1, 2, 1000])
@pytest.mark.parametrize("line", ["true", "echo hi", "flood 3000000"])
async def test_run_with_an_id_answers_as_one_without(line: str, asked: int, api: Api) -> None:
    """Whether output is kept for later readers does not change the answer."""
    session_id = await api.open_id()
    plain = await api.run(session_id, line, max_output_bytes=asked)
    kept = await api.run(session_id, line, max_output_bytes=asked, exec_id="mine")

    assert (kept.stdout, kept.stderr) == (plain.stdout, plain.stderr)
    assert kept.exit.stdout_bytes == plain.exit.stdout_bytes


async def test_streams_are_merged_on_request(api: Api, guests: FakeGuests) -> None:
    """The guest is asked for it, except for a terminal, which has one stream anyway."""
    session_id = await api.open_id()
    for n, fields in enumerate(({}, {"merge_stderr": True}, {"merge_stderr": False})):
        await api.run(session_id, f"echo {n}", **fields)
    await api.start(session_id, "echo t", merge_stderr=True, terminal=exec_pb2.Terminal())

    asked = [command.request.get("merge_stderr", False) for command in guests.commands]
    assert asked == [False, True, False, False]


async def test_timeout_of_0_is_the_longest(api: Api, guests: FakeGuests) -> None:
    """As the session's limits have it; without a timeout it is the default."""
    session_id = await api.open_id()
    await api.run(session_id, "echo longest", timeout=0)
    await api.run(session_id, "echo default")

    limits = (await api.get(session_id)).limits
    asked = [command.request["timeout"] for command in guests.commands]
    assert asked == [limits.max_exec_timeout.seconds, limits.default_exec_timeout.seconds]


async def test_exec_id_of_another_session_is_free(api: Api) -> None:
    """Ids are unique in their session, not beyond."""
    for thread in ("t1", "t2"):
        await api.run(await api.open_id(thread=thread), "true", exec_id="same")


async def test_incarnation_that_is_not_current_is_refused(api: Api) -> None:
    """A caller that knows another sandbox is told before anything runs."""
    session_id = await api.open_id()
    await api.run(session_id, "true", incarnation=1)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_RECREATED") as refusal:
        await api.run(session_id, "true", incarnation=2)

    assert refusal.info.metadata["incarnation"] == "1"
    assert "restore what is gone" in refusal.message


async def test_commands_at_once_are_limited(start_daemon: StartDaemon, guests: FakeGuests) -> None:
    """One too many is refused with a time to try again, and tells nothing to the guest."""
    daemon = await start_daemon(max_running_execs=2)
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        running = [asyncio.ensure_future(api.run(session_id, "sleep")) for _ in range(2)]
        await guests.engine.wait_until(lambda: len(guests.commands) == 2)
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "EXEC_LIMIT_REACHED") as refusal:
            await api.run(session_id, "true")
        await api.close(session_id)
        answers = await asyncio.gather(*running)

    assert "wait for one to end" in refusal.message
    assert len(guests.commands) == 2
    assert {answer.exit.reason for answer in answers} == {exec_pb2.EXIT_REASON_SESSION_CLOSED}


@pytest.mark.parametrize("line", ["signal 25", "exit 153"])
async def test_a_file_that_became_too_large_is_told(line: str, api: Api) -> None:
    """A command that the kernel ended for that, or its shell's word for it, has a hint that says
    what to do; other signals do not."""
    told = (await api.run(await api.open_id(), line)).exit.hint
    other = (await api.run(await api.open_id(), "signal 11")).exit.hint

    assert "single file" in told
    assert "smaller files" in told
    assert "did not send" not in told
    assert "did not send" in other
