"""The command line on real sandboxes: terminals, signals, files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.docker.daemon_process import DaemonProcess
from tests.docker.screen import Screen, on_screen


@pytest.fixture
async def sandboxd(shared_daemon: DaemonProcess) -> CommandLine:
    return CommandLine(shared_daemon.socket)


@pytest.fixture
async def session(sandboxd: CommandLine, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    opened = await sandboxd("session", "open", "cli", request.node.name)
    yield opened.stdout.strip()
    await sandboxd("session", "close", opened.stdout.strip())


def terminal(
    sandboxd: CommandLine, *words: str, **size: int
) -> AbstractAsyncContextManager[Screen]:
    environment = {**sandboxd.environment, "TERM": "xterm", "PS1": "$ "}
    return on_screen([sys.executable, "-m", "sandboxd", *words], environment, **size)


async def test_a_shell_in_a_terminal(sandboxd: CommandLine, session: str) -> None:
    """It has our size and follows it, takes Ctrl-C, ends with its code; then all is as before."""
    async with terminal(sandboxd, "exec", "-it", session, rows=33, columns=111) as screen:
        before = screen.modes
        screen.type("stty size; tty\n")
        await screen.shows("33 111")
        await screen.shows("/dev/pts/")

        screen.resize(20, 70)
        await _size_becomes(screen, "20 70")

        # Shown by what is to be interrupted: before it runs, Ctrl-C would be the shell's own.
        screen.type("sh -c 'echo be\"\"gun; exec sleep 1000'\n")
        await screen.shows("begun")
        screen.type("\x03")
        screen.type("echo code=$?\n")
        await screen.shows("code=130")

        screen.type("exit 7\n")
        assert await screen.ends() == 7
        assert screen.modes == before


async def _size_becomes(screen: Screen, wanted: str) -> None:
    """The size is passed on a moment later."""
    screen.type(f"until [ \"$(stty size)\" = '{wanted}' ]; do sleep 0.05; done; echo is so\n")
    await screen.shows("\ris so")


async def test_a_terminal_is_left_and_found_again(sandboxd: CommandLine, session: str) -> None:
    """Ctrl-P Ctrl-Q leaves the shell running; attach goes on where it was."""
    async with terminal(sandboxd, "exec", "-it", session) as screen:
        screen.type("remembered=42; echo ready $((1+1))\n")
        await screen.shows("ready 2")
        before = screen.modes
        screen.type("\x10\x11")
        await screen.shows("sandboxd attach")
        assert await screen.ends() == 0
        assert screen.modes != before  # no longer raw

    (running,) = (await sandboxd("ps", session, "--json")).document
    assert running["has_terminal"]

    async with terminal(
        sandboxd, "attach", session, running["exec_id"], rows=21, columns=71
    ) as screen:
        await screen.shows("ready 2")  # from its beginning
        screen.type("echo is $remembered; stty size\n")
        await screen.shows("is 42")
        await screen.shows("21 71")
        screen.type("exit 5\n")
        assert await screen.ends() == 5


async def test_ctrl_c_twice_ends_what_ignores_it_once(sandboxd: CommandLine, session: str) -> None:
    """The first is the command's to handle, the second is not."""
    line = "trap 'echo not me' INT; echo ready; while :; do sleep 0.1; done"
    async with sandboxd.started("exec", session, line) as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGINT)
            assert await process.stdout.readline() == b"not me\n"
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 137


async def test_a_reader_who_leaves_ends_the_command(sandboxd: CommandLine, session: str) -> None:
    """As in any pipe: nobody writes for ever to nobody."""
    async with sandboxd.started("exec", session, "yes") as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"y\n"
            process.stdout._transport.close()  # type: ignore[attr-defined]
            assert await process.wait() == 141

    assert (await sandboxd("ps", "-q", session)).stdout == ""


async def test_bytes_go_through_as_they_are(sandboxd: CommandLine, session: str) -> None:
    """Any bytes, in both directions, more than any buffer holds."""
    data = random.Random(6).randbytes(5_000_000)
    async with sandboxd.started("exec", session, "cat") as process:
        async with asyncio.timeout(60):
            stdout, stderr = await process.communicate(data)

    assert (process.returncode, stderr) == (0, b"")
    assert hashlib.sha256(stdout).digest() == hashlib.sha256(data).digest()


async def test_directories_are_copied_both_ways(
    sandboxd: CommandLine, session: str, tmp_path: Path
) -> None:
    """Names, content, permissions and links are the same at the end of the round trip."""
    tree = tmp_path / "tree"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "a.txt").write_text("one\n")
    (tree / "sub" / "ünïcode name.bin").write_bytes(bytes(range(256)) * 5000)
    (tree / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "link").symlink_to("a.txt")

    sent = await sandboxd("cp", str(tree), f"{session}:")
    ran = await sandboxd("exec", session, "cd tree && ./run.sh && cat link && find . | wc -l")
    fetched = await sandboxd("cp", f"{session}:tree", str(tmp_path / "back"))

    assert (sent.code, fetched.code) == (0, 0), (sent, fetched)
    assert ran.stdout == "ran\none\n7\n"
    assert _described(tmp_path / "back") == _described(tree)


def _described(directory: Path) -> dict[str, object]:
    def facts(path: Path) -> object:
        if path.is_symlink():
            return os.readlink(path)
        mode = path.stat().st_mode & 0o777
        return (mode, path.read_bytes()) if path.is_file() else mode

    return {str(path.relative_to(directory)): facts(path) for path in directory.rglob("*")}


async def test_where_a_copy_goes(sandboxd: CommandLine, session: str, tmp_path: Path) -> None:
    """As with cp -r: into what is a directory, else under the new name; `/.` is the content."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("f")
    for source, destination in (
        ("d/f", f"{session}:"),
        ("d/f", f"{session}:new/name"),
        ("d/f", f"{session}:outputs"),
        ("d", f"{session}:outputs"),
        ("d", f"{session}:other"),
        ("d/.", f"{session}:content"),
    ):
        copied = await sandboxd("cp", "-q", str(tmp_path / source), destination)
        assert (copied.code, copied.stderr) == (0, "")

    found = (await sandboxd("ls", "-R", f"{session}", "--json")).document
    assert {one["path"] for one in found if one["type"] == "file"} == {
        "f",
        "new/name",
        "outputs/f",
        "outputs/d/f",
        "other/f",
        "content/f",
    }

    (tmp_path / "here").mkdir()
    await sandboxd("cp", f"{session}:f", str(tmp_path / "here"))
    await sandboxd("cp", f"{session}:outputs/d", str(tmp_path / "here"))
    await sandboxd("cp", f"{session}:outputs/.", str(tmp_path / "here"))
    assert {str(one.relative_to(tmp_path / "here")) for one in (tmp_path / "here").rglob("*")} == {
        "f",
        "d",
        "d/f",
    }


async def test_a_copy_that_cannot_be_made_is_told(
    sandboxd: CommandLine, session: str, tmp_path: Path
) -> None:
    """Missing here, missing there, twice remote, too large: a line and a code."""
    (tmp_path / "large").write_bytes(bytes(80 << 20))
    answers = [
        await sandboxd("cp", str(tmp_path / "none"), f"{session}:"),
        await sandboxd("cp", f"{session}:none", str(tmp_path)),
        await sandboxd("cp", f"{session}:a", f"{session}:b"),
        await sandboxd("cp", str(tmp_path / "large"), f"{session}:"),
    ]

    assert [one.code for one in answers] == [1, 3, 2, 1]
    assert all(one.stderr.startswith("sandboxd: ") for one in answers)
    assert "large" not in (await sandboxd("ls", session)).stdout


async def test_a_copy_shows_its_progress_on_a_terminal(
    sandboxd: CommandLine, session: str, tmp_path: Path
) -> None:
    """A bar while it goes, a line when it is done; elsewhere only the line."""
    (tmp_path / "data.bin").write_bytes(random.Random(1).randbytes(30 << 20))
    async with terminal(sandboxd, "cp", str(tmp_path / "data.bin"), f"{session}:") as screen:
        await screen.shows("data.bin  [")
        await screen.shows("30M to ")
        assert await screen.ends() == 0

    piped = await sandboxd("cp", f"{session}:data.bin", str(tmp_path / "back.bin"))
    assert "[" not in piped.stderr
    assert (tmp_path / "back.bin").read_bytes() == (tmp_path / "data.bin").read_bytes()


async def test_names_from_a_sandbox_cannot_steer_the_terminal(
    sandboxd: CommandLine, session: str
) -> None:
    """A file name may hold escape sequences; a listing shows them harmlessly."""
    await sandboxd("exec", session, "touch $'a\\e[31mb'")
    listed = await sandboxd("ls", session)

    assert "\x1b" not in listed.stdout
    assert "31mb" in listed.stdout


@pytest.mark.calm
async def test_top_is_live_on_a_terminal(sandboxd: CommandLine, session: str) -> None:
    """It draws again by itself with what each uses, q leaves it, and the screen is as before."""
    async with terminal(sandboxd, "top", "-d", "0.2", rows=40, columns=160) as screen:
        await screen.shows(f"{session}  cli   test_top_is_live_on_a_terminal  0")
        await sandboxd("exec", "-d", session, "while :; do :; done")
        await screen.shows(f"{session}  cli   test_top_is_live_on_a_terminal  1")
        await screen.shows("%")
        screen.type("q")
        await screen.shows("\x1b[?1049l")
        assert await screen.ends() == 0

    row = await busy_row(sandboxd, session)
    assert row[4] not in ("-", "0%"), row
    assert row[5].endswith(("K", "M"))
    shown = (await sandboxd("session", "show", session, "--json")).document
    assert shown["usage"]["processes"] >= 1
    assert shown["usage"]["cpu_seconds"] > 0


async def busy_row(sandboxd: CommandLine, session: str) -> list[str]:
    told = (await sandboxd("top", "--once")).stdout.splitlines()
    return next(line.split() for line in told if line.startswith(session))


async def test_files_are_made_printed_and_removed(sandboxd: CommandLine, session: str) -> None:
    """mkdir, cat, ls and rm take SESSION:PATH, or SESSION PATH."""
    await sandboxd("exec", session, "mkdir full && echo one > full/a && echo two > full/b")

    made = await sandboxd("mkdir", "-p", f"{session}:deep/er", f"{session}:deep/er")
    printed = await sandboxd("cat", f"{session}:full/a", f"{session}:full/b")
    also = await sandboxd("cat", session, "full/b", "full/a")
    listed = await sandboxd("ls", session, "/workspace/full")
    assert made.code == 0, made.stderr
    assert (printed.stdout, also.stdout) == ("one\ntwo\n", "two\none\n")
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["NAME", "a", "b"]

    full = await sandboxd("rm", f"{session}:full")
    missing = await sandboxd("rm", f"{session}:none")
    everything = await sandboxd("rm", "-r", session)
    removed = await sandboxd("rm", "-rf", session, "full", "deep", "none")
    assert [one.code for one in (full, missing, everything, removed)] == [1, 3, 2, 0]
    assert "remove it recursively" in full.stderr
    left = await sandboxd("ls", f"{session}:")
    assert "full" not in left.stdout
    assert "deep" not in left.stdout


async def test_a_file_goes_through_a_pipe(
    sandboxd: CommandLine, session: str, tmp_path: Path
) -> None:
    """`-` is standard input or output, byte for byte, and never a file of that name."""
    data = random.Random(1).randbytes(3_000_000)

    sent = await sandboxd("cp", "-", f"{session}:data.bin", stdin=data)
    async with sandboxd.started("cp", f"{session}:data.bin", "-") as process:
        received, said = await process.communicate()
    async with sandboxd.started("cat", f"{session}:data.bin") as process:
        assert process.stdout is not None
        await process.stdout.read(1)
        process.stdout._transport.close()  # type: ignore[attr-defined]
        unread = await process.wait()

    assert sent.code == 0, sent.stderr
    assert received == data
    assert (said, unread) == (b"", 141)
    mode = (await sandboxd("ls", session, "data.bin", "--json")).document[0]["permissions"]
    assert mode == "-rw-r--r--"
    directory = await sandboxd("cp", f"{session}:outputs", "-")
    nameless = await sandboxd("cp", "-", f"{session}:", stdin=data)
    assert [directory.code, nameless.code] == [2, 2]
    assert "-" not in os.listdir()


async def test_directories_are_copied_as_cp_r_does(
    sandboxd: CommandLine, session: str, tmp_path: Path
) -> None:
    """The option is there for those who type it."""
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "a.txt").write_text("hello")

    up = await sandboxd("cp", "-r", str(tmp_path / "tree"), f"{session}:")
    down = await sandboxd("cp", "-r", f"{session}:tree", str(tmp_path / "back"))

    assert (up.code, down.code) == (0, 0)
    assert (tmp_path / "back" / "sub" / "a.txt").read_text() == "hello"


async def test_selfcheck_uses_the_daemon_that_is_named(sandboxd: CommandLine) -> None:
    """SANDBOXD_URL leads to it as for every command; what it prints can be pasted."""
    sandboxd.environment["SANDBOXD_CONFIG"] = os.devnull
    checked = await sandboxd("selfcheck")
    looked = await sandboxd("selfcheck", "--no-session")

    assert checked.code == 0, checked.stderr
    assert "hello from Linux" in checked.stdout
    assert looked.code == 0, looked.stderr
    for told in (checked, looked):
        assert f"address    {sandboxd.environment['SANDBOXD_URL']}" in told.stdout
    (line,) = [one for one in looked.stdout.splitlines() if "/python -c" in one]
    assert "sandboxd_client" in line
    pasted = await asyncio.create_subprocess_shell(
        line, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await pasted.communicate()
    assert (pasted.returncode, errors) == (0, b"")
    assert output.strip()


@pytest.mark.parametrize("options", [("--no-session",), ()])
async def test_selfcheck_waits_for_a_daemon(
    sandboxd: CommandLine, shared_daemon: DaemonProcess, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """As long as it may; then it says in words what is missing."""
    sandboxd.environment["SANDBOXD_CONFIG"] = os.devnull
    address = tmp_path / "s.sock"
    sandboxd.environment["SANDBOXD_URL"] = f"unix:{address}"
    nobody = await sandboxd("selfcheck", "--wait", "1", *options)
    async with sandboxd.started("selfcheck", *options) as process:
        os.symlink(shared_daemon.socket, address)
        stdout, stderr = await asyncio.wait_for(process.communicate(), 60)

    assert nobody.code == 1
    assert nobody.stderr == (
        f"sandboxd: not ready after 1 s: There is no daemon at unix:{address} (No such file or "
        "directory); start one, or set SANDBOXD_URL to its address. Over HTTP, for curl, a daemon "
        "is at http://127.0.0.1:8000 unless SANDBOXD_HTTP_ADDRESS says otherwise.\n"
    )
    assert process.returncode == 0, stderr
    assert b"sandboxes warm" in stdout
