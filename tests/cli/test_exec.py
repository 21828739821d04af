"""`sandboxd exec`, `ps`, `logs` and `attach`: streams, input, signals and exit codes go through."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.cli.command_line import CommandLine
from tests.fakes.guest import FakeGuests


async def test_output_and_exit_code_are_those_of_the_command(sandboxd: CommandLine) -> None:
    """Each stream comes out where it belongs, and nothing is added to it."""
    await sandboxd("session", "open", "ada", "42")
    ran = await sandboxd("exec", "ada/42", "echo hello; err oops; exit 7")

    assert (ran.code, ran.stdout, ran.stderr) == (7, "hello\n", "oops\n")


async def test_one_word_is_a_line_and_several_are_a_program(
    sandboxd: CommandLine, guests: FakeGuests
) -> None:
    """Several words reach the program as they are, options and all."""
    await sandboxd("exec", "ada/42", "echo a b")
    await sandboxd("exec", "ada/42", "--", "echo", "-n", "a b")
    await sandboxd("exec", "-w", "/tmp", "-e", "A=1", "ada/42", "true", "--url")

    requests = [one.request for one in guests.commands]
    assert requests[0]["shell"] == "echo a b"
    assert requests[1]["argv"] == ["echo", "-n", "a b"]
    assert requests[2]["argv"] == ["true", "--url"]
    assert (requests[2]["cwd"], requests[2]["env"]["A"]) == ("/tmp", "1")


@pytest.mark.parametrize(("line", "code"), [("signal 9", 137), ("signal 15", 143), ("exit 0", 0)])
async def test_a_signal_is_told_as_shells_do(sandboxd: CommandLine, line: str, code: int) -> None:
    """128 + n, so that scripts see what they would see without a sandbox."""
    assert (await sandboxd("exec", "ada/42", line)).code == code


async def test_a_time_out_is_124_with_a_word_about_it(sandboxd: CommandLine) -> None:
    """As timeout(1) has it."""
    ran = await sandboxd("exec", "--timeout", "0.2", "ada/42", "echo begun; sleep")

    assert (ran.code, ran.stdout) == (124, "begun\n")
    assert "0.2 s" in ran.stderr


@pytest.mark.parametrize("line", ["die", "refuse no such directory"])
async def test_a_fault_of_sandboxd_is_not_taken_for_the_commands(
    sandboxd: CommandLine, line: str
) -> None:
    """A lost sandbox or a command that cannot be started is 125."""
    ran = await sandboxd("exec", "ada/42", line)

    assert ran.code == 125
    assert ran.stderr.startswith("sandboxd: ")


async def test_what_is_piped_in_reaches_the_command(sandboxd: CommandLine) -> None:
    """All of it and its end, also more than fits into one message."""
    data = b"0123456789abcdef" * 150_000
    ran = await sandboxd("exec", "ada/42", "cat; exit 3", stdin=data)

    assert ran.code == 3
    assert ran.stdout.encode() == data


async def test_without_input_a_command_sees_its_end_at_once(sandboxd: CommandLine) -> None:
    """With -n nothing is read, so that a loop over lines keeps its input."""
    async with sandboxd.started("exec", "-n", "ada/42", "cat; echo done") as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.read() == b"done\n"
            assert await process.wait() == 0


async def test_the_result_as_a_document(sandboxd: CommandLine) -> None:
    """For programs: one document, and still the exit code of the command."""
    ran = await sandboxd("exec", "--json", "ada/42", "echo hello; exit 2")

    assert ran.code == 2
    assert '"stdout": "hello\\n"' in ran.stdout
    assert '"exit_code": 2' in ran.stdout


async def test_output_comes_as_it_is_written(sandboxd: CommandLine) -> None:
    """Not when the command has ended."""
    async with sandboxd.started("exec", "ada/42", "echo first; sleep") as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"first\n"
        assert process.returncode is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_signals_go_to_the_command(
    sandboxd: CommandLine, guests: FakeGuests, number: signal.Signals
) -> None:
    """Ctrl-C ends the command, not only the one who watches it; what it does then is told."""
    async with sandboxd.started("exec", "ada/42", "echo begun; sleep") as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            await process.stdout.readline()
            process.send_signal(number)
            assert await process.wait() == 128 + number

    assert [one for one, _ in guests.command("echo begun; sleep").signals] == [number]


async def test_a_session_that_is_opened_for_a_command_is_named(sandboxd: CommandLine) -> None:
    """A typing error would leave a session behind that nobody knows of."""
    first = await sandboxd("exec", "nobody/1", "echo hello")
    second = await sandboxd("exec", "nobody/1", "echo hello")

    assert (first.stdout, second.stdout) == ("hello\n", "hello\n")
    assert "nobody/1 had no session; opened ses_" in first.stderr
    assert second.stderr == ""


async def test_a_command_in_the_background_has_a_time_limit_and_says_so(
    sandboxd: CommandLine,
) -> None:
    """Unless it was given one."""
    started = await sandboxd("exec", "-d", "ada/42", "sleep")
    limited = await sandboxd("exec", "-d", "--timeout", "60", "ada/42", "sleep")

    assert "--timeout SECONDS" in started.stderr
    assert "--timeout" not in limited.stderr


async def test_a_command_in_the_background_is_found_and_watched_again(
    sandboxd: CommandLine, guests: FakeGuests
) -> None:
    """Its id goes to standard output; ps, logs and attach take it."""
    exec_id = (await sandboxd("exec", "-d", "ada/42", "echo one; err two; cat")).stdout.strip()
    await sandboxd("exec", "ada/42", "echo short")

    running = (await sandboxd("ps", "ada/42", "--json")).document
    everything = await sandboxd("ps", "-a", "ada/42")
    assert [one["exec_id"] for one in running] == []  # its input ended, and so did it
    assert len(everything.stdout.splitlines()) == 3
    assert "exited (0)" in everything.stdout

    logged = await sandboxd("logs", "ada/42", exec_id)
    attached = await sandboxd("attach", "ada/42", exec_id)
    assert (logged.code, logged.stdout, logged.stderr) == (0, "one\n", "two\n")
    assert (attached.code, attached.stdout, attached.stderr) == (0, "one\n", "two\n")


async def test_leaving_a_command_does_not_end_it(sandboxd: CommandLine, guests: FakeGuests) -> None:
    """Ctrl-C in attach or logs -f is for the one who watches."""
    exec_id = (await sandboxd("exec", "-d", "ada/42", "echo one; sleep")).stdout.strip()
    for words in (("attach", "ada/42", exec_id), ("logs", "-f", "ada/42", exec_id)):
        async with sandboxd.started(*words) as process:
            assert process.stdout is not None
            async with asyncio.timeout(30):
                assert await process.stdout.readline() == b"one\n"
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130

    assert guests.command("echo one; sleep").is_running
    assert (await sandboxd("logs", "ada/42", exec_id)).stdout == "one\n"


async def test_attach_can_begin_at_the_end_and_returns_the_exit_code(
    sandboxd: CommandLine, guests: FakeGuests
) -> None:
    """With --tail only what comes from then on."""
    line = "echo early; sleep"
    exec_id = (await sandboxd("exec", "-d", "ada/42", line)).stdout.strip()
    command = guests.command(line)
    async with sandboxd.started("attach", "--tail", "ada/42", exec_id) as process:
        assert process.stdout is not None
        first = asyncio.create_task(process.stdout.readline())
        async with asyncio.timeout(30):
            while not first.done():
                command.steps[:0] = ["echo late"]
                command.guest.advance(command)
                await asyncio.wait([first], timeout=0.05)
            command.steps[:] = ["exit 5"]
            command.guest.advance(command)
            rest = await process.stdout.read()
            code = await process.wait()

    assert first.result() == b"late\n"
    assert b"early" not in rest
    assert code == 5


async def test_the_last_lines_of_a_log(sandboxd: CommandLine) -> None:
    """Of each stream, counted as tail(1) does."""
    line = "; ".join([f"echo line {n}" for n in range(20)] + ["err oops", "err again"])
    exec_id = (await sandboxd("exec", "-d", "ada/42", line)).stdout.strip()

    two = await sandboxd("logs", "--tail", "2", "ada/42", exec_id)
    many = await sandboxd("logs", "--tail", "1000", "ada/42", exec_id)
    none = await sandboxd("logs", "--tail", "0", "ada/42", exec_id)

    assert (two.stdout, two.stderr) == ("line 18\nline 19\n", "oops\nagain\n")
    assert len(many.stdout.splitlines()) == 20
    assert (none.stdout, none.stderr) == ("", "")


async def test_what_cannot_be_done_is_told(sandboxd: CommandLine) -> None:
    """No terminal for -t, no command, no such exec: each with its code."""
    await sandboxd("session", "open", "ada", "42")
    no_terminal = await sandboxd("exec", "-it", "ada/42")
    no_command = await sandboxd("exec", "ada/42")
    no_exec = await sandboxd("logs", "ada/42", "exe_none")
    no_attach = await sandboxd("attach", "ada/42", "exe_none")

    assert [one.code for one in (no_terminal, no_command, no_exec, no_attach)] == [2, 2, 3, 125]
    assert "terminal" in no_terminal.stderr


async def test_commands_are_killed(sandboxd: CommandLine, guests: FakeGuests) -> None:
    """One by its id, with any signal; or all that run."""
    ids = [
        (await sandboxd("exec", "-d", "ada/42", f"echo {n}; sleep")).stdout.strip()
        for n in range(4)
    ]

    asked = await sandboxd("kill", "-s", "term", "ada/42", ids[0])
    killed = await sandboxd("kill", "ada/42", ids[1])
    again = await sandboxd("kill", "ada/42", ids[1])
    all_others = await sandboxd("kill", "--all", "ada/42")

    assert [one.code for one in (asked, killed, again, all_others)] == [0, 0, 0, 0]
    assert "had already ended" in again.stderr
    signals = [guests.command(f"echo {n}; sleep").signals[0][0] for n in range(4)]
    assert signals == [signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGKILL]
    assert (await sandboxd("ps", "-q", "ada/42")).stdout == ""


async def test_kill_says_what_it_needs(sandboxd: CommandLine) -> None:
    """A command or --all, a signal that exists, a command that exists."""
    await sandboxd("session", "open", "ada", "42")
    for words, code in (
        (("ada/42",), 2),
        (("--all", "ada/42", "exe_1"), 2),
        (("-s", "NONSENSE", "ada/42", "exe_1"), 2),
        (("-s", "99", "ada/42", "exe_1"), 2),
        (("ada/42", "exe_none"), 3),
    ):
        assert (await sandboxd("kill", *words)).code == code


async def test_log_of_the_newest_command(sandboxd: CommandLine) -> None:
    """Without an id; a session that has run nothing says so."""
    await sandboxd("session", "open", "ada", "42")
    nothing = await sandboxd("logs", "ada/42")
    await sandboxd("exec", "ada/42", "echo first")
    await sandboxd("exec", "ada/42", "echo second")

    assert nothing.code == 3
    assert "no command" in nothing.stderr
    assert (await sandboxd("logs", "ada/42")).stdout == "second\n"
