"""Shells of a session that carry their state from one command to the next."""

from __future__ import annotations

import signal

from sandboxd_proto.v1 import exec_pb2
from tests.docker.commands import list_execs, run, send_signal, start, wait, watching
from tests.docker.daemon_process import Api

STATE = (
    "mkdir -p 'a b'; cd 'a b'; export WORD='x  y'; twice() { echo \"$1$1\"; }; "
    "set -o pipefail; shopt -s nullglob"
)
LOOK = (
    'pwd; echo "$WORD"; twice z; shopt -po pipefail; shopt -p nullglob; '
    'false | true; echo "code $?"'
)
SEEN = b"/workspace/a b\nx  y\nzz\nset -o pipefail\nshopt -s nullglob\ncode 1\n"


async def look(api: Api, session_id: str, shell_name: str = "main") -> bytes:
    answer = await run(api, session_id, LOOK, shell_name=shell_name)
    return answer.stdout.data + answer.stderr.data


async def set_state(api: Api, session_id: str) -> None:
    answer = await run(api, session_id, STATE, shell_name="main")
    assert answer.exit.code == 0
    assert not answer.stderr.data


async def test_state_carries_over(api: Api, session_id: str) -> None:
    """Directory, exported variables, functions and options of one command hold for the next."""
    await set_state(api, session_id)

    assert await look(api, session_id) == SEEN
    assert await look(api, session_id) == SEEN


async def test_state_survives_exit(api: Api, session_id: str) -> None:
    """`exit` ends the command with its code, not the shell; what it changed is kept."""
    await set_state(api, session_id)
    answer = await run(api, session_id, "export WORD=changed; exit 3", shell_name="main")

    assert answer.exit.code == 3
    assert await look(api, session_id) == SEEN.replace(b"x  y", b"changed")


async def test_state_survives_a_timeout(api: Api, session_id: str) -> None:
    """A command that times out leaves its shell usable, as it was before."""
    await set_state(api, session_id)
    answer = await run(api, session_id, "sleep 100", shell_name="main", timeout=0.5)

    assert answer.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert await look(api, session_id) == SEEN


async def test_state_survives_a_kill(api: Api, session_id: str) -> None:
    """A command that is killed, from outside or by itself, leaves its shell usable."""
    await set_state(api, session_id)
    await start(api, session_id, "echo up; sleep 100", exec_id="long", shell_name="main")
    async with watching(api, session_id, "long") as long:
        await long.shows("up")
        await send_signal(api, session_id, "long", signal.SIGKILL)
        ended = await long.ends()
    assert ended.signal == signal.SIGKILL
    assert await look(api, session_id) == SEEN

    assert (await run(api, session_id, "kill -9 $$", shell_name="main")).exit.signal == 9
    assert await look(api, session_id) == SEEN


async def test_shells_keep_apart(api: Api, session_id: str) -> None:
    """Another name is another shell, and a command without a name has no part in either."""
    await set_state(api, session_id)
    other = await run(api, session_id, 'pwd; echo "[$WORD]"; cd /; WORD=1', shell_name="other")
    plain = await run(api, session_id, 'pwd; echo "[$WORD]"')

    assert other.stdout.data == plain.stdout.data == b"/workspace\n[]\n"
    assert await look(api, session_id) == SEEN


async def test_request_wins_for_its_own_command(api: Api, session_id: str) -> None:
    """Variables of a request hold for its command only."""
    await set_state(api, session_id)
    once = await run(api, session_id, 'echo "$WORD"', shell_name="main", env={"WORD": "once"})

    assert once.stdout.data == b"once\n"
    assert await look(api, session_id) == SEEN


async def test_commands_of_a_shell_queue(api: Api, session_id: str) -> None:
    """The second command of a shell waits for the first, seen as QUEUED, then runs; commands
    elsewhere do not wait."""
    first = "until [ -e go ]; do sleep 0.02; done; cd /; echo first >> /workspace/order"
    second = "pwd; echo second >> /workspace/order"
    begun = await start(api, session_id, first, exec_id="first", shell_name="main")
    waits = await start(api, session_id, second, exec_id="second", shell_name="main")
    listed = await list_execs(api, session_id)
    elsewhere = await run(api, session_id, "touch go; echo at once", shell_name="other")
    ended = await wait(api, session_id, "second")
    order = await run(api, session_id, "cat order")

    assert begun.state == exec_pb2.EXEC_STATE_RUNNING
    assert waits.state == exec_pb2.EXEC_STATE_QUEUED
    assert {name: one.state for name, one in listed.items()} == {
        "first": exec_pb2.EXEC_STATE_RUNNING,
        "second": exec_pb2.EXEC_STATE_QUEUED,
    }
    assert elsewhere.stdout.data == b"at once\n"
    assert ended.exit.code == 0
    assert ended.shell_name == "main"
    assert order.stdout.data == b"first\nsecond\n"


async def test_many_queued_commands_run_in_order(api: Api, session_id: str) -> None:
    """Commands of one shell run one after the other, in the order they came."""
    await run(api, session_id, "export N=0", shell_name="main")
    for number in range(20):
        line = 'echo "$N" >> numbers; export N=$((N + 1))'
        await start(api, session_id, line, exec_id=f"n{number}", shell_name="main")
    await wait(api, session_id, "n19")
    numbers = await run(api, session_id, "cat numbers")

    assert numbers.stdout.data == b"".join(b"%d\n" % number for number in range(20))
