"""Options of `commands.run`, on real sandboxes, the same on all faces."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandboxd_client import CommandNotStartableError, InvalidRequestError
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALTERNATING = 'for i in 1 2 3; do echo "out $i"; echo "err $i" >&2; done'
IN_ORDER = "".join(f"out {n}\nerr {n}\n" for n in (1, 2, 3))
MIB = 1 << 20


async def test_merged_streams_keep_their_order(face: Face, thread: str) -> None:
    """With `merge_stderr` the result has one text, however the command is run."""
    async with await face.open("ada", thread) as sandbox:
        heard: list[str] = []
        ways: list[dict[str, Any]] = [{}, {"on_stdout": heard.append}, {"shell": "main"}]
        for way in ways:
            result = await sandbox.commands.run(ALTERNATING, merge_stderr=True, **way)
            assert (result.stdout, result.stderr) == (IN_ORDER, "")
        assert "".join(heard) == IN_ORDER

        command = await sandbox.commands.run(ALTERNATING, merge_stderr=True, background=True)
        assert (await command.wait()).stdout == IN_ORDER
        shell = sandbox.shell("main")
        assert (await shell.run(ALTERNATING, merge_stderr=True)).stdout == IN_ORDER
        apart = await sandbox.commands.run(ALTERNATING)
        assert apart.stderr == "err 1\nerr 2\nerr 3\n"
        await sandbox.kill()


@pytest.mark.parametrize("background", [False, True])
async def test_failed_start_has_a_kind(background: bool, face: Face, thread: str) -> None:
    """It is raised by `run`, also for a background command, and programs can tell why."""
    async with await face.open("ada", thread) as sandbox:
        await sandbox.files.write("text", "not a program")
        cases: dict[str, dict[str, Any]] = {
            "no_program": {"command": ["no-such-program"]},
            "not_executable": {"command": ["./text"]},
            "no_directory": {"command": "true", "cwd": "/no/such/directory"},
        }
        for kind, arguments in cases.items():
            with pytest.raises(CommandNotStartableError) as caught:
                await sandbox.commands.run(**arguments, background=background)
            assert (caught.value.kind, caught.value.retry_after_seconds) == (kind, None)

        with pytest.raises(CommandNotStartableError) as caught:
            await sandbox.pty.create(["no-such-program"])
        assert caught.value.kind == "no_program"
        await sandbox.kill()


async def test_background_command_has_no_input_by_default(face: Face, thread: str) -> None:
    """A program that reads its input ends; `stdin=True` opens it, and a text begins it."""
    async with await face.open("ada", thread) as sandbox:
        command = await sandbox.commands.run("cat; echo end", background=True)
        assert (await command.wait(timeout=10)).stdout == "end\n"
        with pytest.raises(InvalidRequestError, match="without `stdin`"):
            await command.send_stdin("x")

        for given in (True, "hello "):
            command = await sandbox.commands.run("cat", background=True, stdin=given)
            await command.send_stdin("world")
            await command.close_stdin()
            assert (await command.wait(timeout=10)).stdout in ("world", "hello world")

        with pytest.raises(InvalidRequestError, match="background=True"):
            await sandbox.commands.run("cat", stdin=True)
        assert (await sandbox.commands.run("cat", stdin=False)).stdout == ""
        await sandbox.kill()


async def test_result_holds_as_much_output_as_the_caller_wants(face: Face, thread: str) -> None:
    """More than the daemon returns at once is read on; less is cut there; the middle is counted."""
    line = "seq 400000; seq 300000 >&2"
    stdout = "".join(f"{n}\n" for n in range(1, 400001))
    stderr = "".join(f"{n}\n" for n in range(1, 300001))
    async with await face.open("ada", thread) as sandbox:
        for options in ({}, {"on_stdout": lambda text: None}):
            whole = await sandbox.commands.run(line, max_output_bytes=10 * MIB, **options)
            assert (whole.stdout, whole.stderr) == (stdout, stderr)
            assert (whole.stdout_omitted_bytes, whole.stderr_omitted_bytes) == (0, 0)

            for size in (1000, 3 * MIB // 2):
                part = await sandbox.commands.run(line, max_output_bytes=size, **options)
                assert len(part.stdout_bytes) == len(part.stderr_bytes) == size
                assert part.stdout_omitted_bytes == len(stdout) - size
                head, tail = part.stdout_bytes[: size // 2], part.stdout_bytes[size // 2 :]
                assert stdout.encode().startswith(head)
                assert stdout.encode().endswith(tail)

        command = await sandbox.commands.run(line, max_output_bytes=10 * MIB, background=True)
        assert (await command.wait()).stdout == stdout
        with pytest.raises(InvalidRequestError, match="at least 1"):
            await sandbox.commands.run("true", max_output_bytes=0)
        await sandbox.kill()


async def test_timeout_of_0_is_the_longest(face: Face, thread: str) -> None:
    """It is what the session's limits call the longest; a longer one is refused."""
    async with await face.open("ada", thread) as sandbox:
        longest = sandbox.info.limits.max_exec_timeout.seconds
        assert (await sandbox.commands.run("echo done", timeout=0)).stdout == "done\n"
        command = await sandbox.commands.run("sleep 60", timeout=0, background=True)
        assert await sandbox.commands.list(running=True)
        assert (await command.info()).state == "running"
        with pytest.raises(InvalidRequestError, match=f"to {longest} seconds"):
            await sandbox.commands.run("true", timeout=longest + 1)
        await command.kill()
        await sandbox.kill()


async def test_background_command_has_a_process_number(face: Face, thread: str) -> None:
    """It is the number that commands in the sandbox see, for who started it and who lists it."""
    async with await face.open("ada", thread) as sandbox:
        command = await sandbox.commands.run("echo $$; exec sleep 60", background=True)
        async with asyncio.timeout(10):
            while not (seen := (await command.read_output()).data):
                await asyncio.sleep(0.02)
        assert command.pid == int(seen)
        (listed,) = await sandbox.commands.list(running=True)
        again = await sandbox.commands.connect(command.exec_id)
        assert listed.pid == again.pid == command.pid

        found = await sandbox.commands.run(f"kill -TERM {command.pid}")
        assert found.exit_code == 0
        assert (await command.wait(timeout=10)).signal == 15
        await sandbox.kill()


async def test_large_commands(face: Face, thread: str) -> None:
    """As many arguments, and as long a line, as the kernel takes at all."""
    async with await face.open("ada", thread) as sandbox:
        words = ["x" * 100_000] * 18
        count = await sandbox.commands.run(["bash", "-c", 'echo "$#"', "name", *words])
        assert count.stdout == "18\n"
        line = await sandbox.commands.run(f"wc -c <<'EOF'\n{'x' * 1_900_000}\nEOF")
        assert line.stdout == "1900001\n"
        with pytest.raises(InvalidRequestError):
            await sandbox.commands.run("x" * (2 * MIB))
        await sandbox.kill()
