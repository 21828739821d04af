"""Runs of code through kills of the daemon."""

from __future__ import annotations

import asyncio
import signal

from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2
from tests.docker.code import OK, code_request, contexts_of, ended_code, value_of
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_lifecycle import open_session

RUNS, KILLS, AT_ONCE = 200, 3, 6
CODE = """
import time
ran = globals().get("ran", [])
print("begin {n}", flush=True)
time.sleep(0.01)
ran.append({n})
debug("log {n}")
print("end {n}")
{n} * 2
"""


async def start_until_it_is(daemon: DaemonProcess, session_id: str, n: int) -> None:
    """Start a run, again and again until a daemon has answered: the id makes it run once."""
    request = code_request(session_id, CODE.format(n=n), exec_id=f"run-{n}", context=f"c{n % 3}")
    while True:
        try:
            async with daemon.api() as api:
                await api.code.StartCode(request, timeout=10)
                await api.execs.WaitExec(
                    exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id=f"run-{n}"),
                    timeout=30,
                )
                return
        except Exception:
            await asyncio.sleep(0.05)


async def test_200_runs_through_3_kills_of_the_daemon() -> None:
    """Each ran once, all results are there, and the variables are intact."""
    async with running_daemon(SANDBOXD_MAX_RUNNING_EXECS="64") as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
        places = asyncio.Semaphore(AT_ONCE)
        done = 0

        async def one(n: int) -> None:
            nonlocal done
            async with places:
                await start_until_it_is(daemon, session_id, n)
                done += 1

        work = [asyncio.ensure_future(one(n)) for n in range(RUNS)]
        for kill in range(1, KILLS + 1):
            while done < kill * RUNS // (KILLS + 1):
                await asyncio.sleep(0.01)
            await daemon.signal(signal.SIGKILL)
            await daemon.start()
        async with asyncio.timeout(240):
            await asyncio.gather(*work)
        async with daemon.api() as api:
            await _all_are_there(api, session_id)


async def _all_are_there(api: Api, session_id: str) -> None:
    for n in range(RUNS):
        ended = await ended_code(api, session_id, f"run-{n}")
        assert (ended.status, ended.result.json) == (OK, str(2 * n)), ended
        assert ended.stdout.data == f"begin {n}\nend {n}\n".encode()
        assert [log.message for log in ended.logs] == [f"log {n}"]
    for c in range(3):
        ran = await value_of(api, session_id, "ran", context=f"c{c}")
        assert sorted(ran) == list(range(c, RUNS, 3))
    contexts = await contexts_of(api, session_id)
    assert {context.generation for context in contexts.values()} == {1}


async def test_kill_in_the_middle_of_a_run_loses_no_byte() -> None:
    """The next daemon goes on with output, events, deadline and context of a run."""
    loop = "for n in range(100):\n    print(n)\n    debug(n)\n    time.sleep(0.02)"
    code = f"x = 41\nimport time\n{loop}"
    async with running_daemon() as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            made = pb.CreateContextRequest(session_id=session_id, name="kept", env={"A": "b"})
            await api.code.CreateContext(made)
            await api.code.StartCode(
                code_request(session_id, code, exec_id="long", context="kept"), timeout=60
            )
        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        async with daemon.api() as api:
            ended = await ended_code(api, session_id, "long")
            assert ended.status == OK
            assert ended.stdout.data == b"".join(b"%d\n" % n for n in range(100))
            assert len(ended.logs) == 100
            value = "[x, __import__('os').environ['A']]"
            assert await value_of(api, session_id, value, context="kept") == [41, "b"]
            again = await api.code.CreateContext(made)
            assert again.already_exists
