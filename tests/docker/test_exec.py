"""Commands in real containers."""

from __future__ import annotations

import asyncio
import hashlib

import grpc
import pytest

from sandboxd_proto.v1 import exec_pb2
from tests.docker.commands import exec_request, run, stream
from tests.docker.daemon_process import Api

# What a user sees must be what `bash -c` shows, warm shell or not.
SAME_AS_BASH = [
    "echo hi",
    "no_such_command",
    "if",
    "echo a\nif",
    "echo ) b",
    "cat <<E\nhere\nE",
    "cat <<E\nunfinished",
    'echo "$0 $- $LINENO $_ $BASH_SUBSHELL $SHLVL [$BASH_EXECUTION_STRING]"',
    "echo $PWD ${OLDPWD-unset}; cd -; cd /; cd -",
    "declare -p OLDPWD BASH_ENV",
    "kill -9 $$",
    "sh -c 'kill -15 $$'",
    "sh -c 'kill -15 $$'; echo after",
    "exit 300",
    "false",
    "set -o; shopt; trap",
    "jobs; fg",
    "env | sort",
    "ls /proc/self/fd",
    "cat; echo eof",
    "ulimit -a",
    "umask",
    "exec 3>&1; echo to three >&3",
    "echo ${BASH_SOURCE[@]} ${FUNCNAME[@]}",
    "set -e; false; echo never",
    "printf 'a\\0b'",
    "echo $'\\xff\\xfe'",
    "alias x=y; x",
    "shopt -s expand_aliases\nalias x='echo aliased'\nx",
    "f() { return 7; }; f",
    "trap 'echo bye' EXIT; echo hi",
    "python3 -c 'import sys; print(sys.stdin.read(), sys.argv)'",
    "readonly A=1; A=2; echo $?",
    "echo `echo nested $(echo deep)`",
    "((1/0))",
    "x=$(exit 3); echo $?",
    "wait; echo $!",
    "   ",
    "# only a comment\n",
    "ps -o args= -p $$; true",
    "ps -o comm= -p $$; true",
    "echo $BASH $BASH_VERSION $MACHTYPE",
    "echo ~ ~root ~nobody ~$USER ~no-such-user",
    "x=grün; echo ${#x} ${x^^} ${x:3:1}; [[ $x == gr?n ]] && echo matches",
    "locale; printf '%(%A %B)T\\n' 0; printf '%.2f\\n' 1,5 2.5",
    "LC_ALL=C; x=grün; echo ${#x}",
    "echo 'ü' | tr a-z A-Z; printf '%q\\n' 'ü b'; printf '%b' '\\u00fc\\n'",
    "compgen -b; compgen -k; enable -p; help type",
    "exec bash -c 'echo $BASH; ps -o comm= -p $$; true'",
    "echo a > /dev/tcp/127.0.0.1/1",
    "time -p true 2>/dev/null; times >/dev/null; echo $EUID $GROUPS $HOSTNAME $OSTYPE",
    "echo hello | while read word; do echo $word; done; echo ${PIPESTATUS[@]}",
    "coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x",
    "mapfile -t a < <(seq 3); echo ${a[@]}; printf -v b '%05d' 7; echo $b",
    'echo "' + "x" * 20_000 + '" | wc -c',
]


@pytest.mark.parametrize("command", [c for c in SAME_AS_BASH if c.strip()], ids=lambda c: c[:30])
async def test_shell_form_is_bash_dash_c(api: Api, session_id: str, command: str) -> None:
    """A command line behaves to the letter as `bash -c` of the same image does."""
    ours = await run(api, session_id, command)
    theirs = await run(api, session_id, ["bash", "-c", command])

    assert ours.stdout.data == theirs.stdout.data
    assert ours.stderr.data == theirs.stderr.data
    assert ours.exit.WhichOneof("outcome") == theirs.exit.WhichOneof("outcome")
    assert (ours.exit.code, ours.exit.signal) == (theirs.exit.code, theirs.exit.signal)


async def test_files_stay_for_the_next_command(api: Api, session_id: str) -> None:
    """What one command writes, the next one reads."""
    await run(api, session_id, "echo kept > note.txt")

    assert (await run(api, session_id, "cat /workspace/note.txt")).stdout.data == b"kept\n"


async def test_argv_is_passed_without_a_shell(api: Api, session_id: str) -> None:
    """Words reach the program as they are."""
    words = ["a b", "$HOME", "'", '"', "\\", "*", "", "\n", "ü"]
    answer = await run(api, session_id, ["printf", "%s|", *words])

    assert answer.stdout.data.decode() == "".join(f"{word}|" for word in words)


@pytest.mark.parametrize(
    "name", ["PLAIN", "lower", "PATH", "BASH_ENV", "UID", "with.dot", "LC_ALL"]
)
async def test_environment_reaches_the_command(api: Api, session_id: str, name: str) -> None:
    """Any variable can be set, also those that bash treats in its own way."""
    value = "C" if name == "LC_ALL" else "/bin:/usr/bin" if name == "PATH" else "it's $HOME\n"
    answer = await run(
        api,
        session_id,
        ["python3", "-c", f"import os; print(os.environ[{name!r}])"],
        env={name: value},
    )

    assert answer.stdout.data.decode() == value + "\n"


async def test_cwd_is_relative_to_the_workspace(api: Api, session_id: str) -> None:
    """A relative directory counts from the workspace, an absolute one is taken as it is."""
    await run(api, session_id, "mkdir -p 'a b/c'")

    assert (await run(api, session_id, "pwd", cwd="a b/c")).stdout.data == b"/workspace/a b/c\n"
    assert (await run(api, session_id, ["pwd"], cwd="/usr")).stdout.data == b"/usr\n"


@pytest.mark.parametrize(
    ("command", "cwd", "says"),
    [
        ("true", "missing", "no directory"),
        (["no-such-program"], "", "no program 'no-such-program' in PATH"),
        (["/etc/hostname"], "", "not an executable"),
        (["./missing"], "", "no program './missing'"),
    ],
)
async def test_what_cannot_start_is_refused(
    api: Api, session_id: str, command: str | list[str], cwd: str, says: str
) -> None:
    """A missing directory or program is a typed refusal that names it, not an exit code."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await run(api, session_id, command, cwd=cwd)

    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert says in str(caught.value.details())


async def test_short_command_answers_in_one_message(api: Api, session_id: str) -> None:
    """`started`, output and `exited` of a short command come together."""
    messages = []
    while 1 not in messages and len(messages) < 50:
        streamed = await stream(api, session_id, "echo hi")
        assert streamed.stdout == b"hi\n"
        messages.append(streamed.messages)

    assert 1 in messages


async def test_output_arrives_whole_and_in_order(api: Api, session_id: str) -> None:
    """Not a byte of either stream is lost, doubled or moved, and the totals agree."""
    program = (
        "import sys\n"
        "for i in range(200000):\n"
        "    (sys.stdout if i % 3 else sys.stderr).write(f'{i}\\n')\n"
    )
    streamed = await stream(api, session_id, ["python3", "-c", program])
    expected = [
        b"".join(b"%d\n" % i for i in range(200000) if bool(i % 3) == out) for out in (1, 0)
    ]

    assert bytes(streamed.stdout) == expected[0]
    assert bytes(streamed.stderr) == expected[1]
    assert streamed.exit.stdout_bytes == len(expected[0])
    assert streamed.exit.stderr_bytes == len(expected[1])


async def test_large_output_is_streamed_unchanged(api: Api, session_id: str) -> None:
    """64 MiB of random bytes arrive with the checksum they were sent with."""
    command = (
        "python3 -c 'import os,sys,hashlib\nh=hashlib.sha256()\n"
        "for _ in range(64):\n b=os.urandom(1<<20);h.update(b);sys.stdout.buffer.write(b)\n"
        "sys.stdout.flush();print(h.hexdigest(),file=sys.stderr)'"
    )
    streamed = await stream(api, session_id, command)

    assert hashlib.sha256(streamed.stdout).hexdigest() == streamed.stderr.decode().strip()


async def test_run_keeps_both_ends_of_large_output(api: Api, session_id: str) -> None:
    """Run returns the beginning and the end and counts what it left out."""
    answer = await run(api, session_id, "seq 1 1000000", max_output_bytes=1000)
    full = "".join(f"{i}\n" for i in range(1, 1000001)).encode()

    assert answer.stdout.data == full[:500] + full[-500:]
    assert answer.stdout.omitted_at == 500
    assert answer.stdout.omitted_bytes == len(full) - 1000
    assert answer.exit.stdout_bytes == len(full)


async def test_timeout_ends_the_whole_tree_and_keeps_output(api: Api, session_id: str) -> None:
    """After a timeout nothing of the command lives on, not even what left its session."""
    command = (
        "echo before; sleep 98765 & setsid sleep 98765 & (setsid sleep 98765 &) & "
        "env -i setsid --fork sleep 98765; trap '' TERM INT; sleep 98765"
    )
    answer = await run(api, session_id, command, timeout=0.5)
    left = await run(api, session_id, "pgrep -fc 'sleep 98765'")

    assert answer.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert answer.stdout.data == b"before\n"
    assert "0.5 s" in answer.exit.hint
    assert left.stdout.data == b"0\n"


async def test_timeout_spares_other_commands(api: Api, session_id: str) -> None:
    """One command's timeout leaves its neighbours and earlier background processes alone."""
    await run(api, session_id, "setsid sleep 54321 > /dev/null 2>&1 &")
    neighbour = asyncio.create_task(run(api, session_id, "sleep 1.5 & wait; echo done"))
    timed_out = await run(api, session_id, "setsid sleep 98765 & sleep 98765", timeout=0.4)
    survivor = await neighbour
    # One program each: it replaces the shell, whose own command line would match too.
    gone = await run(api, session_id, "pgrep -fc 'sleep 98765'")
    kept = await run(api, session_id, "pgrep -fc 'sleep 54321'")

    assert timed_out.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert (survivor.stdout.data, survivor.exit.code) == (b"done\n", 0)
    assert (gone.stdout.data, kept.stdout.data) == (b"0\n", b"1\n")


@pytest.mark.alone
async def test_fork_bomb_is_ended_at_its_deadline(api: Api, session_id: str) -> None:
    """A fork bomb that ignores signals times out like anything else, and the session goes on."""
    bomb = "trap '' TERM HUP INT; f() { f | f & }; f; sleep 1000"
    answer = await run(api, session_id, bomb, timeout=1.0)
    after = await run(api, session_id, "echo usable; ps -e --no-headers | wc -l")

    assert answer.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert after.stdout.data.startswith(b"usable\n")


async def test_background_process_does_not_hold_the_command_open(api: Api, session_id: str) -> None:
    """A command ends with its first process, even when a child keeps its output open."""
    async with asyncio.timeout(5):
        answer = await run(api, session_id, "sleep 77777 & echo started")
    left = await run(api, session_id, "pgrep -fc 'sleep 77777'")

    assert answer.stdout.data == b"started\n"
    assert left.stdout.data == b"1\n"


async def test_noisy_command_does_not_starve_a_quiet_one(api: Api, session_id: str) -> None:
    """While one command floods a reader that does not read, another answers at once."""
    call = api.execs.Exec(exec_request(session_id, "yes", timeout=20))
    await call.read()
    answers = [await run(api, session_id, "echo quiet") for _ in range(5)]
    call.cancel()

    assert [answer.stdout.data for answer in answers] == [b"quiet\n"] * 5


async def test_many_commands_at_once_keep_apart(api: Api, session_id: str) -> None:
    """Commands that run at the same time each get their own output and code."""
    answers = await asyncio.gather(
        *(run(api, session_id, f"sleep 0.05; echo {i}; exit {i}") for i in range(24))
    )

    assert [answer.stdout.data for answer in answers] == [b"%d\n" % i for i in range(24)]
    assert [answer.exit.code for answer in answers] == list(range(24))


async def test_cancelled_call_ends_its_command(api: Api, session_id: str) -> None:
    """A caller that goes away takes its command along, unless it asked for it to stay."""
    killed = api.execs.Exec(exec_request(session_id, "sleep 31337"))
    kept = api.execs.Exec(
        exec_request(session_id, "sleep 31338", on_disconnect="ON_DISCONNECT_KEEP_RUNNING")
    )
    await killed.read()
    await kept.read()
    killed.cancel()
    kept.cancel()
    async with asyncio.timeout(10):
        while (await run(api, session_id, "pgrep -fc 'sleep 31337'")).stdout.data != b"0\n":
            pass
    left = await run(api, session_id, "pgrep -fc 'sleep 31338'")

    assert left.stdout.data == b"1\n"


async def test_killed_waiting_shell_is_replaced(api: Api, session_id: str) -> None:
    """A command that kills every process it may does not break the next one."""
    await run(api, session_id, "kill -9 -1")

    assert (await run(api, session_id, "echo still here")).stdout.data == b"still here\n"


async def test_orphans_are_reaped(api: Api, session_id: str) -> None:
    """Processes that lost their parents leave no zombies."""
    await run(api, session_id, "for i in $(seq 50); do (sleep 0.01 &) ; done")
    async with asyncio.timeout(10):
        while True:
            states = (await run(api, session_id, "ps -e -o stat= | grep -c Z")).stdout.data
            if states == b"0\n":
                break


async def test_quick_succession_loses_nothing(api: Api, session_id: str) -> None:
    """Commands one right after the other, before a shell waits again, each say what they should."""
    for number in range(150):
        expected = b"%d\n" % number
        line = await run(api, session_id, f"echo {number} > f; echo {number}")
        words = await stream(api, session_id, ["cat", "f"])
        both = await asyncio.gather(
            run(api, session_id, ["echo", str(number)]), run(api, session_id, f"echo {number}")
        )

        assert line.stdout.data == expected, line
        assert words.stdout == expected, words
        assert [one.stdout.data for one in both] == [expected, expected], both


async def test_command_that_kills_what_it_sees_harms_nobody_else(api: Api, session_id: str) -> None:
    """Killing every process over and over, also shells that just start, does not end the guest."""
    killers = [run(api, session_id, "while :; do kill -9 -1; done", timeout=2) for _ in range(20)]
    ends = await asyncio.gather(*killers, return_exceptions=True)
    refused = [end for end in ends if isinstance(end, BaseException)]
    assert all("was not started" in str(end) for end in refused)

    assert (await run(api, session_id, "echo alive")).stdout.data == b"alive\n"


async def test_slow_reader_of_an_ended_command_costs_no_time(api: Api, session_id: str) -> None:
    """A command that has ended waits for its reader without using the CPU, and loses nothing."""
    call = api.execs.Exec(exec_request(session_id, "head -c 30000000 /dev/zero; echo end"))
    first = await call.read()
    before = await run(api, session_id, "cut -d' ' -f14,15 /proc/1/stat")
    await asyncio.sleep(1)
    after = await run(api, session_id, "cut -d' ' -f14,15 /proc/1/stat")
    received = sum(len(event.stdout.data) for event in first.events)
    while message := await call.read():
        received += sum(len(event.stdout.data) for event in message.events)

    spent = sum(map(int, after.stdout.data.split())) - sum(map(int, before.stdout.data.split()))
    assert received == 30000004
    assert spent < 30  # hundredths of a second, of one that it was left alone
