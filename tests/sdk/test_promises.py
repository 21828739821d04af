"""What the SDK promises holds in each of its four ways, on real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sandboxd_client import (
    CommandFailedError,
    CommandNotStartableError,
    ExecConflictError,
    ExecNotFoundError,
    MissingFileError,
    NoSessionError,
    OutputChunk,
    SandboxError,
    SessionClosedError,
    SessionExpiredError,
    SessionNotFoundError,
    TextNotFoundError,
)
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def until_expired(client: Any, session_id: str) -> None:
    async with asyncio.timeout(20):
        while (await client.get_session(session_id)).state != "expired":
            await asyncio.sleep(0.05)


async def test_files_are_still_there_with_the_next_command(face: Face, thread: str) -> None:
    """Commands of a conversation share their workspace, and another client finds it again."""
    async with face.client() as client:
        opened = await client.get_or_create_session(user_id="ada", thread_id=thread)
        await client.execute("""echo '{"data": [1, 2, 3]}' > data.json""")
        result = await client.execute("jq '.data | add' data.json")
        assert (result["stdout"], opened["status"]) == ("6\n", "created")

        other = face.client()
        again = await other.get_or_create_session(user_id="ada", thread_id=thread)
        assert (again["status"], again["session_id"]) == ("attached", opened["session_id"])
        assert (await other.execute("ls data.json"))["exit_code"] == 0
        await other.aclose()


async def test_result_is_a_dict_and_has_attributes(face: Face, thread: str) -> None:
    """The documented keys, no others, and each as an attribute; details are attributes alone."""
    async with face.client() as client:
        await client.get_or_create_session("ada", thread)
        result = await client.execute("echo out; echo err >&2; exit 3")

    assert set(result) == {"exit_code", "stdout", "stderr", "execution_time_ms"}
    assert (result["exit_code"], result.exit_code) == (3, 3)
    assert (result.stdout, result["stderr"]) == ("out\n", "err\n")
    assert isinstance(result["execution_time_ms"], int)
    assert (result.reason, result.ok, result.session) == ("exited", False, None)
    assert json.loads(json.dumps(result)) == result
    result["uploaded_files"] = []  # as existing tools do


async def test_timeout_is_a_result_with_what_was_written(face: Face, thread: str) -> None:
    """Output up to the limit is kept, and a hint says what to do."""
    async with face.client() as client:
        await client.get_or_create_session("ada", thread)
        result = await client.execute("echo begun; sleep 60", timeout=0.3)

    assert (result.exit_code, result.stdout, result.reason) == (124, "begun\n", "timed_out")
    assert (result["reason"], result["hint"]) == ("timed_out", result.hint)
    assert result.hint in repr(result)
    assert "timeout" in result.hint


async def test_out_of_memory_is_a_result_that_says_so(face: Face, thread: str) -> None:
    """Where it is printed, and in the dict that agents pass on."""
    async with face.client() as client:
        await client.get_or_create_session("ada", thread)
        result = await client.execute("exec python3 -c 'bytearray(4 << 30)'")

    assert (result["exit_code"], result["reason"]) == (137, "out_of_memory")
    assert result["hint"].startswith("Out of memory")
    assert result.hint in repr(result)


async def test_expired_session_is_opened_again_once(face: Face, thread: str) -> None:
    """A command on an expired session runs in a fresh one, and its result tells so."""
    async with face.client() as client:
        opened = await client.get_or_create_session("ada", thread, timeout_minutes=1 / 60)
        await client.execute("touch kept")
        await until_expired(client, opened.session_id)

        result = await client.execute("ls")

        assert "kept" not in result.stdout
        assert result.session.status == "recreated"
        assert (result.session.incarnation, result.session.workspace_kept) == (2, False)
        assert (await client.execute("true")).session is None


async def test_expired_session_is_an_error_without_auto_retry(face: Face, thread: str) -> None:
    """Who does not want a fresh workspace is told."""
    async with face.client() as client:
        opened = await client.get_or_create_session("ada", thread, timeout_minutes=1 / 60)
        await until_expired(client, opened.session_id)

        with pytest.raises(SessionExpiredError) as caught:
            await client.execute("ls", auto_retry=False)

    assert caught.value.reason == "SESSION_EXPIRED"


async def test_errors_have_their_class_and_reason(face: Face, thread: str) -> None:
    """The same fact is the same exception in every way of use."""
    async with await face.open("ada", thread) as sandbox:
        with pytest.raises(ValueError, match="timeout") as invalid:
            await sandbox.commands.run("true", timeout=-1)
        with pytest.raises(CommandNotStartableError) as not_startable:
            await sandbox.commands.run(["/no/such/program"])
        with pytest.raises(ExecNotFoundError):
            await sandbox.commands.connect("never-started")
        await sandbox.commands.run("true", exec_id="one")
        with pytest.raises(ExecConflictError):
            await sandbox.commands.run("false", exec_id="one")
        await sandbox.kill()
        with pytest.raises(SessionClosedError):
            await sandbox.commands.run("true")
    with pytest.raises(SessionNotFoundError):
        await face.connect("ses_000000000000000000000000")

    assert isinstance(invalid.value, SandboxError)
    assert invalid.value.reason == "INVALID_REQUEST"
    assert not_startable.value.reason == "COMMAND_NOT_STARTABLE"


async def test_client_without_a_session_says_what_to_do(face: Face) -> None:
    """Existing code expects a ValueError that names the missing call."""
    async with face.client() as client:
        with pytest.raises(ValueError, match="get_or_create_session"):
            await client.execute("true")
        with pytest.raises(NoSessionError):
            client.thread_id = "never-opened"


async def test_text_arrives_as_it_is_written(face: Face, thread: str) -> None:
    """Callbacks are given every piece of each stream, in order, before the command ends."""
    written: list[str] = []
    complaints: list[str] = []
    async with await face.open("ada", thread) as sandbox:
        result = await sandbox.commands.run(
            "for i in 1 2 3; do echo $i; echo e$i >&2; sleep 0.05; done",
            on_stdout=written.append,
            on_stderr=complaints.append,
        )
        await sandbox.kill()

    assert "".join(written) == result.stdout == "1\n2\n3\n"
    assert "".join(complaints) == result.stderr == "e1\ne2\ne3\n"
    assert len(written) > 1


async def test_failing_callback_ends_the_command(face: Face, thread: str) -> None:
    """Its exception comes out of the call, and nothing runs on."""

    def refuse(text: str) -> None:
        raise KeyError(text)

    async with await face.open("ada", thread) as sandbox:
        with pytest.raises(KeyError, match="begun"):
            await sandbox.commands.run("echo begun; sleep 60", on_stdout=refuse)

        async with asyncio.timeout(10):
            while await sandbox.commands.list(running=True):
                await asyncio.sleep(0.02)
        await sandbox.kill()


async def test_stream_of_a_background_command(face: Face, thread: str) -> None:
    """Events come with positions and text, and after the last one the result is there."""
    async with await face.open("ada", thread) as sandbox:
        command = await sandbox.commands.run("seq 3; sleep 0.1; seq 4 5; exit 7", background=True)
        async with command.stream() as events:
            seen = [event async for event in events]
        assert all(isinstance(event, OutputChunk) for event in seen)
        assert "".join(event.text for event in seen) == "1\n2\n3\n4\n5\n"
        assert seen[0].offset == 0
        assert (events.result.exit_code, command.result.exit_code) == (7, 7)

        again = await sandbox.commands.connect(command.exec_id)
        assert (await again.wait()).stdout == "1\n2\n3\n4\n5\n"
        await sandbox.kill()


async def test_leaving_a_stream_does_not_end_the_command(face: Face, thread: str) -> None:
    """The call ends, the command runs on, and its output can be had again from any position."""
    async with await face.open("ada", thread) as sandbox:
        command = await sandbox.commands.run(
            "echo one; read x; echo two", background=True, stdin=True
        )
        async with command.stream() as events:
            async for event in events:
                assert event.data == b"one\n"
                break

        await command.send_stdin("go\n")
        async with command.stream(stdout_offset=4) as events:
            rest = [event.data async for event in events]
        assert b"".join(rest) == b"two\n"
        await sandbox.kill()


async def test_standard_input(face: Face, thread: str) -> None:
    """Input given at once, and input written piece by piece up to its end."""
    async with await face.open("ada", thread) as sandbox:
        assert (await sandbox.commands.run("sort", stdin="b\na\n")).stdout == "a\nb\n"
        large = "x" * 3_000_000
        assert (await sandbox.commands.run("wc -c", stdin=large)).stdout.strip() == str(len(large))
        assert (await sandbox.commands.run("head -c 1", stdin=large)).stdout == "x"

        command = await sandbox.commands.run("cat", background=True, stdin=True)
        await command.send_stdin("hello ")
        again = await sandbox.commands.connect(command.exec_id)
        await again.send_stdin(b"world")
        await again.close_stdin()
        assert (await command.wait()).stdout == "hello world"
        await sandbox.kill()


async def test_background_command_is_ended_and_waited_for(face: Face, thread: str) -> None:
    """Kill and wait tell the truth; a wait that is over is a TimeoutError and ends nothing."""
    async with await face.open("ada", thread) as sandbox:
        command = await sandbox.commands.run("sleep 60", background=True)
        with pytest.raises(TimeoutError):
            await command.wait(timeout=0.1)
        assert (await command.info()).state == "running"
        assert [one.exec_id for one in await sandbox.commands.list(running=True)] == [
            command.exec_id
        ]

        assert await command.kill()

        result = await command.wait(timeout=10)
        assert (result.exit_code, result.signal, result.reason) == (137, 9, "signalled")
        assert not await command.kill()
        assert not await sandbox.commands.kill(command.exec_id)
        await sandbox.kill()


async def test_check_raises_for_a_failed_command(face: Face, thread: str) -> None:
    """The error has the whole result."""
    async with await face.open("ada", thread) as sandbox:
        with pytest.raises(CommandFailedError, match="no luck") as caught:
            await sandbox.commands.run("echo no luck >&2; exit 5", check=True)
        await sandbox.kill()

    assert caught.value.result.exit_code == 5


async def test_shell_keeps_its_state(face: Face, thread: str) -> None:
    """Directory and variables of a named shell carry over; another shell has its own."""
    async with await face.open("ada", thread) as sandbox:
        shell = sandbox.shell("main")
        await shell.run("cd /tmp; export GREETING=hello")
        assert (await shell.run("echo $GREETING $PWD")).stdout == "hello /tmp\n"
        assert (await sandbox.shell("other").run("echo $GREETING")).stdout == "\n"
        await sandbox.kill()


async def test_terminal(face: Face, thread: str) -> None:
    """A command in a terminal sees its size, reads what is typed, and can be resized."""
    async with await face.open("ada", thread) as sandbox:
        terminal = await sandbox.pty.create("read x; stty size; echo got $x", rows=30, columns=90)
        await terminal.resize(40, 100)
        await terminal.send_stdin("typed\n")
        result = await terminal.wait(timeout=10)
        assert "40 100" in result.stdout
        assert "got typed" in result.stdout
        await sandbox.kill()


async def test_output_is_kept_and_can_be_looked_into(face: Face, thread: str) -> None:
    """Large output comes with its ends; the rest is read by position, searched and previewed."""
    async with await face.open("ada", thread) as sandbox:
        result = await sandbox.commands.run("seq 400000")
        assert result.stdout_omitted_bytes > 0
        assert result.stdout.startswith("1\n2\n")
        assert result.stdout.endswith("\n400000\n")
        assert f"{result.stdout_omitted_bytes} bytes left out" in result.stdout

        command = await sandbox.commands.connect(result.exec_id)
        assert (await command.read_output(offset=4, max_bytes=4)).data == b"3\n4\n"
        (match,) = await command.search_output("^123456$")
        assert (match.line, match.line_number) == ("123456", 123456)
        stdout, _ = await command.preview_output(max_bytes=1000)
        assert stdout.text.startswith("1\n")
        assert stdout.omitted_bytes > 1_000_000
        streamed = await command.wait()
        assert streamed.stdout_omitted_bytes > 0
        assert streamed.stdout.startswith("1\n2\n")
        assert streamed.stdout.endswith("\n400000\n")
        await sandbox.kill()


async def test_created_sandbox_ends_with_its_block(face: Face) -> None:
    """What `create` made is closed for good when it is left; what `open` made stays."""
    async with await face.create(env={"LEVEL": "7"}) as sandbox:
        assert (await sandbox.commands.run("echo $LEVEL")).stdout == "7\n"
        opened = await face.connect(sandbox.session_id)
        assert (await opened.commands.run("echo again")).stdout == "again\n"
        await opened.aclose()
        assert (await sandbox.refresh()).state == "active"
        async with face.client() as client:
            session_id = sandbox.session_id
            await sandbox.kill()
            assert (await client.get_session(session_id)).state == "closed"


async def test_sessions_are_found_by_user(face: Face, thread: str) -> None:
    """A list of what is open, with labels; listing is no use of a session."""
    async with face.client() as client:
        await client.get_or_create_session("grace", thread, metadata={"team": "blue"})
        found = await client.list_sessions(
            user_id="grace", state="active", metadata={"team": "blue"}
        )
        assert [one.thread_id for one in found] == [thread]
        assert (await client.server_status()).active_sessions >= 1


async def test_conversations_of_one_client_do_not_meet(face: Face, thread: str) -> None:
    """Tasks that share a client each work in the session they opened, however they interleave."""
    client = face.client()

    async def converse(name: str) -> str:
        await client.get_or_create_session("ada", f"{thread}{name}"[-200:])
        await client.execute(f"echo {name} > whose")
        await asyncio.sleep(0)
        return str((await client.execute("cat whose")).stdout.strip())

    async with client:
        if face.is_sync:
            # In a thread each, as programs with a sync client do.
            plain = client._thing

            def in_a_thread(name: str) -> str:
                plain.get_or_create_session("ada", f"{thread}{name}"[-200:])
                plain.execute(f"echo {name} > whose")
                return str(plain.execute("cat whose").stdout.strip())

            names = [asyncio.to_thread(in_a_thread, name) for name in "abc"]
        else:
            names = [asyncio.create_task(converse(name)) for name in "abc"]
        assert await asyncio.gather(*names) == ["a", "b", "c"]


async def test_files_go_in_and_out(face: Face, thread: str, tmp_path: Path) -> None:
    """From bytes and from disk, back to disk, with the documented keys."""
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    async with face.client() as client:
        await client.get_or_create_session("ada", thread)
        sent = await client.upload_file(tmp_path / "data.csv", remote_name="input.csv")
        assert sent == {
            "status": "uploaded",
            "filename": "input.csv",
            "path": "/workspace/input.csv",
            "size_bytes": 8,
        }
        await client.upload_file_from_bytes("more/raw.bin", bytes(range(256)) * 8192)
        assert (await client.execute("head -1 input.csv; wc -c < more/raw.bin"))["stdout"] == (
            "a,b\n2097152\n"
        )

        listed = await client.list_files()
        assert set(listed) == {
            "session_id",
            "workspace_dir",
            "files",
            "total_files",
            "total_size_bytes",
        }
        assert listed["session_id"] == client.session_id
        assert (listed.total_files, listed.total_size_bytes) == (2, 8 + 2097152)
        assert [one["name"] for one in listed["files"]] == ["input.csv", "more/raw.bin"]
        assert set(listed["files"][0]) == {"name", "size_bytes", "modified", "permissions"}
        assert listed.files[0].permissions.startswith("-rw-")
        datetime.fromisoformat(listed.files[0].modified)

        path = await client.download_file("more/raw.bin", local_path=tmp_path / "raw.bin")
        assert isinstance(path, str)
        assert path == str(tmp_path / "raw.bin")
        assert (tmp_path / "raw.bin").read_bytes() == bytes(range(256)) * 8192
        with pytest.raises(FileNotFoundError):
            await client.download_file("missing.txt", local_path=tmp_path / "missing.txt")
        assert sorted(os.listdir(tmp_path)) == ["data.csv", "raw.bin"]


async def test_files_of_a_sandbox(face: Face, thread: str) -> None:
    """Write, read, list, look, rename, remove."""
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        written = await files.write("src/main.py", "print('hello')\n")
        assert (written.path, written.type, written["size_bytes"]) == ("src/main.py", "file", 15)
        assert await files.read("src/main.py") == "print('hello')\n"
        assert await files.read("/workspace/src/main.py", format="bytes") == b"print('hello')\n"
        assert await files.exists("src")
        assert not await files.exists("nowhere")
        assert (await files.stat("src")).type == "directory"
        with pytest.raises(FileExistsError):
            await files.write("src/main.py", "other", overwrite=False)
        assert await files.make_dir("data/raw")
        assert not await files.make_dir("data/raw")
        await files.rename("src/main.py", "data/main.py")
        paths = [one.path for one in await files.list("data", recursive=True)]
        assert paths == ["data/main.py", "data/raw"]
        assert await files.remove("data") == 3
        with pytest.raises(MissingFileError) as missing:
            await files.read("data/main.py")
        assert missing.value.reason == "FILE_NOT_FOUND"
        with pytest.raises(PermissionError):
            await files.remove("outputs")
        with pytest.raises(ValueError, match=r"\.\."):
            await files.read("../etc/passwd")
        await sandbox.kill()


async def test_text_is_edited_and_found(face: Face, thread: str) -> None:
    """Exact replacements, lines by number, grep and glob."""
    async with await face.open("ada", thread) as sandbox:
        files = sandbox.files
        await files.write("app/log.txt", "".join(f"line {i}\n" for i in range(1, 101)))
        page = await files.read_lines("app/log.txt", first_line=50, max_lines=2)
        assert (page.text, page.total_lines) == ("line 50\nline 51\n", 100)
        assert await files.edit("app/log.txt", "line 50\n", "fifty\n") == 1
        with pytest.raises(TextNotFoundError):
            await files.edit("app/log.txt", "line 50\n", "again")
        found = await files.grep("fifty", glob="*.txt")
        assert [(one.path, one.line_number, one.line) for one in found.matches] == [
            ("app/log.txt", 50, "fifty")
        ]
        assert found.complete
        assert len((await files.grep(r"^line \d\d$", "app", regex=True)).matches) == 89
        assert [one.path for one in (await files.glob("**/*.txt")).entries] == ["app/log.txt"]
        await sandbox.kill()


async def test_directories_go_in_and_out(face: Face, thread: str, tmp_path: Path) -> None:
    """As one archive each way, with modes; what would leave the directory is left out."""
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (project / "run.sh").chmod(0o755)
    (project / "src" / "large.bin").write_bytes(os.urandom(3_000_000))
    async with await face.open("ada", thread) as sandbox:
        report = await sandbox.files.upload_dir(project, "project")
        assert (report.entries, report.refused) == (3, ())
        assert (await sandbox.commands.run("./project/run.sh")).stdout == "ran\n"
        await sandbox.commands.run("ln -s /etc/passwd project/out; echo hi > project/new")

        report = await sandbox.files.download_dir("project", tmp_path / "back")

        assert [name for name, _ in report.refused] == ["out"]
        back = tmp_path / "back"
        assert sorted(one.name for one in back.iterdir()) == ["new", "run.sh", "src"]
        assert (back / "run.sh").stat().st_mode & 0o111
        sent, returned = project / "src" / "large.bin", back / "src" / "large.bin"
        assert returned.read_bytes() == sent.read_bytes()
        await sandbox.kill()


async def test_changes_are_told_as_they_happen(face: Face, thread: str) -> None:
    """From the moment the block is entered, whoever makes them."""
    async with await face.open("ada", thread) as sandbox:
        await sandbox.files.make_dir("data")
        async with sandbox.files.watch_dir() as changes:
            await sandbox.commands.run("echo hello > data/new.txt")
            change = await anext(changes)
            assert (change.kind, change.path) == ("created", "data/new.txt")
        await sandbox.kill()


async def test_reset_begins_afresh(face: Face, thread: str) -> None:
    """Files and processes are gone, the session is the same, and goes on being used."""
    async with await face.open("ada", thread) as sandbox:
        await sandbox.files.write("junk.txt", "junk")
        session_id = sandbox.session_id

        info = await sandbox.reset()

        assert (info.session_id, info.incarnation) == (session_id, 2)
        assert not await sandbox.files.exists("junk.txt")
        assert (await sandbox.commands.run("echo again")).stdout == "again\n"
        await sandbox.kill()


async def test_upload_to_an_expired_session_opens_it_again(face: Face, thread: str) -> None:
    """As commands do: what is sent is there afterwards."""
    async with face.client() as client:
        opened = await client.get_or_create_session("ada", thread, timeout_minutes=1 / 60)
        await until_expired(client, opened.session_id)

        await client.upload_file_from_bytes("late.txt", b"here")

        assert (await client.execute("cat late.txt"))["stdout"] == "here"
