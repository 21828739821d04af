"""What a command has started does not outlive it when it runs out of memory."""

from __future__ import annotations

from sandboxd_proto.v1 import exec_pb2
from tests.docker.code import LOST, RAISED, run_code, value_of
from tests.docker.commands import attach, run, start, write
from tests.docker.daemon_process import Api

SWEPT = "What it had started was ended"
POOL = """
import os, signal
for _ in range(6):
    read, write = os.pipe()
    if not os.fork():
        held = bytearray(b"x") * (30 << 20)
        os.write(write, b"x")
        while True:
            signal.pause()
    os.read(read, 1)
grown = bytearray(b"x") * (300 << 20)
"""
"""A pool of six workers whose parent then takes more than there is."""
NEEDS_150_MB = ["python3", "-c", "held = bytearray(b'x') * (150 << 20)"]
LARGEST_KB = "ps -eo rss= | sort -n | tail -1"
ALIVE = "kill -0 $(cat {}) && echo alive"
DETACHED = "setsid sleep 100 >/dev/null 2>&1 & echo $! >{}"


async def test_next_command_has_the_memory(api: Api, session_id: str) -> None:
    """The workers of a pool that grew too large end with it, before its end is reported, and the
    hint says so: a command that fits alone fits every time."""
    for _ in range(3):
        grown = await run(api, session_id, ["python3", "-c", POOL], timeout=60)
        left = await run(api, session_id, LARGEST_KB)
        following = await run(api, session_id, NEEDS_150_MB, timeout=60)

        assert grown.exit.reason == exec_pb2.EXIT_REASON_OUT_OF_MEMORY
        assert SWEPT in grown.exit.hint
        assert int(left.stdout.data) < 30 << 10
        assert (following.exit.reason, following.exit.code) == (exec_pb2.EXIT_REASON_EXITED, 0)


async def test_others_are_spared(api: Api, session_id: str) -> None:
    """A command that runs beside it, and what an earlier one left running on purpose, live on; what
    it detached itself does not."""
    await run(api, session_id, DETACHED.format("outputs/earlier"))
    await start(api, session_id, "read line; echo got $line", exec_id="beside", stdin=True)
    line = f"{DETACHED.format('outputs/own')}; exec python3 -c '{POOL}'"
    grown = await run(api, session_id, line, timeout=60)
    earlier = await run(api, session_id, ALIVE.format("outputs/earlier"))
    own = await run(api, session_id, ALIVE.format("outputs/own"))
    await write(api, session_id, "beside", 0, b"on\n")
    beside = await attach(api, session_id, "beside")

    assert grown.exit.reason == exec_pb2.EXIT_REASON_OUT_OF_MEMORY
    assert earlier.stdout.data == b"alive\n"
    assert own.exit.code != 0
    assert (beside.exit.code, beside.stdout) == (0, b"got on\n")


async def test_named_shell_goes_on(api: Api, session_id: str) -> None:
    """The shell in which it ran out of memory keeps its state, and what earlier commands of it left
    running."""
    before = f"cd outputs; export WORD=kept; {DETACHED.format('earlier')}"
    await run(api, session_id, before, shell_name="main")
    line = f"{DETACHED.format('own')}; python3 -c '{POOL}'"
    grown = await run(api, session_id, line, shell_name="main", timeout=60)
    look = f"pwd; echo $WORD; {ALIVE.format('earlier')}; {ALIVE.format('own')}"
    found = await run(api, session_id, look, shell_name="main")

    assert grown.exit.reason == exec_pb2.EXIT_REASON_OUT_OF_MEMORY
    assert grown.exit.code == 137
    assert found.stdout.data == b"/workspace/outputs\nkept\nalive\n"


async def test_child_that_was_killed_counts_if_the_command_failed(
    api: Api, session_id: str
) -> None:
    """A command that fails because the kernel killed a child of it is swept as well; one that
    succeeds all the same keeps what it left running."""
    bomb = "python3 -c 'bytearray(b\"x\") * (400 << 20)'"
    failed = await run(
        api, session_id, f"{DETACHED.format('outputs/of_failed')}; {bomb}; exit 1", timeout=60
    )
    of_failed = await run(api, session_id, ALIVE.format("outputs/of_failed"))
    managed = await run(
        api, session_id, f"{DETACHED.format('outputs/of_managed')}; {bomb}; exit 0", timeout=60
    )
    of_managed = await run(api, session_id, ALIVE.format("outputs/of_managed"))

    assert (failed.exit.reason, failed.exit.code) == (exec_pb2.EXIT_REASON_OUT_OF_MEMORY, 1)
    assert of_failed.exit.code != 0
    assert (managed.exit.reason, managed.exit.code) == (exec_pb2.EXIT_REASON_EXITED, 0)
    assert SWEPT not in managed.exit.hint
    assert of_managed.stdout.data == b"alive\n"


async def test_run_of_code_leaves_nothing(api: Api, session_id: str) -> None:
    """A context that is killed for its memory takes the processes of its code along."""
    grown = await run_code(api, session_id, POOL)
    left = await run(api, session_id, LARGEST_KB)
    following = await run(api, session_id, NEEDS_150_MB, timeout=60)

    assert (grown.status, grown.exit.reason) == (LOST, exec_pb2.EXIT_REASON_OUT_OF_MEMORY)
    assert SWEPT in grown.exit.hint
    assert int(left.stdout.data) < 30 << 10
    assert following.exit.code == 0


async def test_context_that_lives_on_keeps_its_variables(api: Api, session_id: str) -> None:
    """Code that fails because the kernel killed a child of it loses what it has started, and not
    its variables."""
    sleep = "subprocess.Popen(['sleep', '100'], start_new_session={})"
    bomb = "subprocess.run(['python3', '-c', 'bytearray(b\"x\") * (400 << 20)'], check=True)"
    code = f"import subprocess\nnear, far = {sleep.format(False)}, {sleep.format(True)}\n{bomb}"
    grown = await run_code(api, session_id, code)
    polled = await value_of(api, session_id, "[near.poll(), far.poll()]")

    assert (grown.status, grown.exit.reason) == (RAISED, exec_pb2.EXIT_REASON_OUT_OF_MEMORY)
    assert SWEPT in grown.exit.hint
    assert polled == [-9, -9]
