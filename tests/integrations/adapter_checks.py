"""What a framework calls of the adapter for it, one function for each.

Default tests run them with stand-ins for the classes of the frameworks, those of `tests/vendors`
with the frameworks: `python -m tests.integrations.adapter_checks ag2`. Both set SANDBOXD_URL.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path, PurePosixPath

import pytest

from sandboxd_client import AsyncSandbox

FAILING = "cat a.txt; echo no >&2; exit 3"


async def ag2():
    from sandboxd_client.integrations.ag2 import SandboxdSandbox

    async with SandboxdSandbox(env={"GREETING": "hi"}) as sandbox:
        await sandbox.put_file(PurePosixPath("a.txt"), b"kept\n")
        done = await sandbox.exec(["sh", "-c", FAILING])
        assert (done.output, done.exit_code) == ("kept\nno", 3)
        greeted = await sandbox.exec(["sh", "-c", "echo $GREETING $MORE"], env={"MORE": "you"})
        assert greeted.output == "hi you"
        assert (await sandbox.exec(["no-such-program"])).exit_code == 127
        assert (await sandbox.exec(["sleep", "20"], timeout=0.5)).exit_code == 124
        await sandbox.remove_file(PurePosixPath("a.txt"))
        assert (await sandbox.exec(["ls", "a.txt"])).exit_code == 2
        assert (str(sandbox.workdir), sandbox.host_workdir) == ("/workspace", None)
        await raised(ValueError, sandbox.put_file(PurePosixPath("/a.txt"), b""))


async def autogen():
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock

    from sandboxd_client.integrations.autogen import SandboxdCodeExecutor

    async with SandboxdCodeExecutor(timeout=5) as executor:
        token = CancellationToken()
        write = CodeBlock("echo kept > a.txt", "bash")
        read = CodeBlock("print(open('a.txt').read(), end='')", "python")
        fail = CodeBlock("import sys; print('no', file=sys.stderr); sys.exit(3)", "python")
        done = await executor.execute_code_blocks([write, read, fail, read], token)
        assert (done.output, done.exit_code) == ("kept\nno\n", 3)
        endless = [CodeBlock("touch begun; sleep 600", "sh")]
        running = asyncio.ensure_future(executor.execute_code_blocks(endless, token))
        poll = [CodeBlock("until [ -e begun ]; do sleep 0.1; done", "sh")]
        await executor.execute_code_blocks(poll, CancellationToken())
        token.cancel()
        await raised(asyncio.CancelledError, running)
        await executor.restart()
        assert (await executor.execute_code_blocks([read], CancellationToken())).exit_code == 1


async def google_adk():
    from sandboxd_client.integrations.google_adk import SandboxdEnvironment

    environment = SandboxdEnvironment()
    await environment.initialize()
    assert environment.is_initialized
    await environment.write_file(environment.working_dir / "d" / "a.txt", "kept\n")
    await environment.write_file(Path("a.txt"), b"kept\n")
    assert await environment.read_file(Path("d/a.txt")) == b"kept\n"
    done = await environment.execute(FAILING)
    assert (done.stdout, done.stderr, done.exit_code) == ("kept\n", "no\n", 3)
    assert not done.timed_out
    assert (await environment.execute("sleep 20", timeout=0.5)).timed_out
    await raised(FileNotFoundError, environment.read_file(Path("none")))
    await environment.close()
    assert not environment.is_initialized


async def inspect_ai():
    from inspect_ai.util import SandboxUnavailableError, SandboxUserUnsupportedError

    from sandboxd_client.integrations.inspect_ai import SandboxdConfig, SandboxdEnvironment

    config = SandboxdEnvironment.config_deserialize({"env": {"GREETING": "hi"}})
    assert config == SandboxdConfig(env={"GREETING": "hi"})
    environments = await SandboxdEnvironment.sample_init("task", config, {})
    sandbox = environments["default"]
    await sandbox.write_file("d/a.txt", "kept\n")
    assert await sandbox.read_file("d/a.txt") == "kept\n"
    assert await sandbox.read_file("d/a.txt", text=False) == b"kept\n"
    done = await sandbox.exec(["sh", "-c", FAILING], cwd="d")
    assert (done.success, done.returncode) == (False, 3)
    assert (done.stdout, done.stderr) == ("kept\n", "no\n")
    command = ["sh", "-c", "cat; echo $GREETING $MORE"]
    greeted = await sandbox.exec(command, input="oh, ", env={"MORE": "you"})
    assert (greeted.success, greeted.stdout) == (True, "oh, hi you\n")
    assert (await sandbox.exec(["no-such-program"])).returncode == 127
    await raised(TimeoutError, sandbox.exec(["sleep", "20"], timeout=1))
    await raised(FileNotFoundError, sandbox.read_file("none"))
    await raised(IsADirectoryError, sandbox.read_file("d"))
    await raised(PermissionError, sandbox.write_file("/etc/a.txt", "no"))
    await raised(SandboxUserUnsupportedError, sandbox.exec(["id"], user="root"))
    assert "sandboxd exec" in (await sandbox.connection()).command
    await SandboxdEnvironment.cli_cleanup("of another session")
    await SandboxdEnvironment.cli_cleanup(None)
    await raised(SandboxUnavailableError, sandbox.exec(["true"]))
    await SandboxdEnvironment.sample_cleanup("task", config, environments, False)


async def mini_swe_agent():
    await asyncio.to_thread(_mini_swe_agent)


def _mini_swe_agent():
    from minisweagent.exceptions import Submitted

    from sandboxd_client.integrations.mini_swe_agent import SandboxdEnvironment

    with SandboxdEnvironment(env={"GREETING": "hi"}, timeout=1) as environment:
        done = environment.execute({"command": "echo $GREETING > a.txt; " + FAILING})
        assert (done["output"], done["returncode"]) == ("hi\nno\n", 3)
        assert environment.execute({"command": "pwd"}, cwd="/tmp")["output"] == "/tmp\n"
        assert "1 s" in environment.execute({"command": "sleep 20"})["exception_info"]
        refused = environment.execute({"command": "true"}, cwd="/none")
        assert (refused["returncode"], bool(refused["exception_info"])) == (-1, True)
        assert environment.get_template_vars(more=1)["more"] == 1
        assert environment.serialize()["info"]["config"]["environment"]["timeout"] == 1
        word = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        with pytest.raises(Submitted) as submitted:
            environment.execute({"command": f"echo {word}; cat a.txt"})
        assert submitted.value.messages[0]["content"] == "hi\n"


async def openai_agents():
    from agents.sandbox import errors
    from agents.sandbox.manifest import Manifest

    from sandboxd_client.integrations.openai_agents import SandboxdClient, SandboxdOptions

    client = SandboxdClient()
    manifest = Manifest(environment={"value": {"GREETING": "hi"}})
    session = await client.create(manifest=manifest, options=SandboxdOptions())
    await session.start()
    await session.mkdir(Path("d"), parents=True)
    await session.write(Path("d/a.txt"), io.BytesIO(b"kept\n"))
    assert (await session.read(Path("d/a.txt"))).read() == b"kept\n"
    assert await session.read_bounded(Path("d/a.txt"), max_bytes=2) == b"ke"
    done = await session.exec(f"cd d; {FAILING}")
    assert (done.stdout, done.stderr, done.exit_code) == (b"kept\n", b"no\n", 3)
    assert (await session.exec("echo $GREETING")).stdout == b"hi\n"
    assert [(entry.path, entry.kind.value) for entry in await session.ls("d")] == [
        ("/workspace/d/a.txt", "file")
    ]
    asking = "echo $GREETING; read x; echo got $x; sleep 600"
    update = await session.pty_exec_start(asking, tty=True, yield_time_s=0.25)
    said, number = update.output, update.process_id
    update = await session.pty_write_stdin(session_id=number, chars="hello\n", yield_time_s=0.25)
    async with asyncio.timeout(60):
        while b"got hello" not in (said := said + update.output):
            update = await session.pty_write_stdin(session_id=number, chars="", yield_time_s=0.25)
    assert b"hi" in said
    await session.pty_terminate_all()
    await raised(errors.PtySessionNotFoundError, session.pty_write_stdin(session_id=1, chars=""))
    await raised(errors.ExecTimeoutError, session.exec("sleep 20", timeout=0.5))
    await raised(errors.WorkspaceReadNotFoundError, session.read(Path("none")))
    await raised(errors.InvalidManifestPathError, session.read(Path("../etc/passwd")))
    await raised(errors.ConfigurationError, session.exec("id", user="root"))
    with await session.persist_workspace() as archive:
        await session.rm(Path("d"), recursive=True)
        await session.hydrate_workspace(archive)
    assert (await session.read(Path("d/a.txt"))).read() == b"kept\n"
    resumed = await client.resume(session.state)
    await resumed.start()
    assert (await resumed.read(Path("d/a.txt"))).read() == b"kept\n"
    await client.delete(resumed)
    assert not await session.running()
    await session.aclose()


async def pydantic_ai():
    from pydantic_ai.workspaces import WorkspaceTimeoutError, WorkspaceUnavailableError

    from sandboxd_client.integrations.pydantic_ai import SandboxdWorkspace

    workspace = SandboxdWorkspace()
    await workspace.make_dir("d")
    await workspace.write_bytes("d/a.txt", b"kept\n")
    assert await workspace.read_bytes("d/a.txt") == b"kept\n"
    done = await workspace.run(f"cd d; {FAILING}", shell=True)
    assert (done.stdout, done.stderr, done.exit_code) == ("kept\n", "no\n", 3)
    assert (await workspace.run(["echo", "$HOME"])).stdout == "$HOME\n"
    await raised(WorkspaceTimeoutError, workspace.run(["sleep", "20"], timeout=0.5))
    (entry,) = await workspace.list_dir("d")
    assert (entry.path, entry.is_dir, entry.size) == ("/workspace/d/a.txt", False, 5)
    assert (await workspace.stat("d")).is_dir
    again = SandboxdWorkspace(workspace.ref)
    assert await again.exists("d/a.txt")
    await again.remove("d/a.txt")
    assert not await workspace.exists("d/a.txt")
    await raised(FileNotFoundError, workspace.read_bytes("d/a.txt"))
    await workspace.kill()
    await raised(WorkspaceUnavailableError, again.run(["true"]))
    await again.aclose()


async def smolagents():
    await asyncio.to_thread(_smolagents)


def _smolagents():
    from smolagents.utils import AgentError

    from sandboxd_client.integrations.smolagents import SandboxdExecutor

    with SandboxdExecutor() as executor:
        executor.send_tools({"final_answer": object()})
        executor.send_variables({"extra": 7})
        first = executor("print('hi'); kept = extra * 6\nkept")
        assert (first.output, first.is_final_answer) in ((42, False), ("42", False)), first
        assert "hi\n" in first.logs
        with pytest.raises(AgentError, match="ZeroDivisionError"):
            executor("1 / 0")
        last = executor("final_answer({'kept': kept, 'pair': (1, extra)})")
        assert (last.output, last.is_final_answer) == ({"kept": 42, "pair": [1, 7]}, True)


async def strands():
    from strands.sandbox import StreamChunk

    from sandboxd_client.integrations.strands import SandboxdSandbox

    sandbox = SandboxdSandbox()
    await sandbox.write_file("a.txt", b"kept\n")
    assert await sandbox.read_file("a.txt") == b"kept\n"
    *chunks, done = [event async for event in sandbox.execute_streaming(FAILING)]
    assert (done.stdout, done.stderr, done.exit_code) == ("kept\n", "no\n", 3)
    assert all(isinstance(chunk, StreamChunk) for chunk in chunks)
    assert sorted((chunk.stream_type, chunk.data) for chunk in chunks) == [
        ("stderr", "no\n"),
        ("stdout", "kept\n"),
    ]
    code = "import os; print(os.environ['GREETING'], os.getcwd())"
    options = {"env": {"GREETING": "hi"}, "cwd": "/tmp"}
    events = [event async for event in sandbox.execute_code_streaming(code, "python", **options)]
    assert (events[-1].stdout, events[-1].exit_code) == ("hi /tmp\n", 0)
    listed = {info.name: (info.is_dir, info.size) for info in await sandbox.list_files(".")}
    assert listed["a.txt"] == (False, 5)
    await sandbox.remove_file("a.txt")
    await raised(FileNotFoundError, sandbox.read_file("a.txt"))
    await sandbox.aclose()


async def swe_rex():
    from swerex.exceptions import (
        CommandTimeoutError,
        DeploymentNotStartedError,
        NonZeroExitCodeError,
        SessionDoesNotExistError,
    )
    from swerex.runtime.abstract import (
        BashAction,
        CloseBashSessionRequest,
        Command,
        CreateBashSessionRequest,
        ReadFileRequest,
        UploadRequest,
        WriteFileRequest,
    )

    from sandboxd_client.integrations.swe_rex import SandboxdDeployment

    deployment = SandboxdDeployment()
    with pytest.raises(DeploymentNotStartedError):
        _ = deployment.runtime
    await deployment.start()
    runtime = deployment.runtime
    assert (await deployment.is_alive()).is_alive
    await runtime.create_session(CreateBashSessionRequest())
    await runtime.run_in_session(BashAction(command="mkdir d && cd d && export n=1"))
    await runtime.write_file(WriteFileRequest(path="d/a.txt", content="kept\n"))
    assert (await runtime.read_file(ReadFileRequest(path="d/a.txt"))).content == "kept\n"
    action = BashAction(command="cat a.txt; (exit $((n + 1)))", check="silent")
    done = await runtime.run_in_session(action)
    assert (done.output, done.exit_code) == ("kept\n", 2)
    failing = BashAction(command="(exit 1)")
    await raised(NonZeroExitCodeError, runtime.run_in_session(failing))
    slow = BashAction(command="sleep 20", timeout=0.5)
    await raised(CommandTimeoutError, runtime.run_in_session(slow))
    await runtime.close_session(CloseBashSessionRequest())
    await raised(SessionDoesNotExistError, runtime.run_in_session(failing))
    await runtime.upload(UploadRequest(source_path=__file__, target_path="copy.py"))
    command = Command(command=["wc", "-l", "d/a.txt", "copy.py"], check=True)
    assert "1 d/a.txt" in (await runtime.execute(command)).stdout
    await deployment.stop()


async def raised(kind, call):
    with pytest.raises(kind):
        await call


async def run(framework):
    """Run one; it leaves no sandbox."""
    before = {info.session_id for info in await AsyncSandbox.list()}
    await globals()[framework]()
    assert {info.session_id for info in await AsyncSandbox.list()} == before


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
    print(json.dumps("checked"))
