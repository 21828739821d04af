"""Processes that fork, as multiprocessing does up to Python 3.13, and use the SDK on both sides."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker.daemon_process import RUNTIME, DaemonProcess

BEGINNING = """
import asyncio, multiprocessing, os, sys, threading, time
from sandboxd_client import AsyncSandbox, ForkedError, Sandbox
URL = os.environ["SANDBOXD_URL"] = sys.argv[1]
fork = multiprocessing.get_context("fork")
"""
LIMIT = 60


async def printed(daemon: DaemonProcess | None, program: str, **environment: str) -> str:
    """What the program prints on both streams; it hangs if a fork does."""
    url = f"unix:{daemon.socket}" if daemon else ""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", BEGINNING + program, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.asyncio(loop_scope="session")
async def test_child_works_after_its_parent_used_the_sdk(sdk_daemon: DaemonProcess) -> None:
    """With sandboxes of its own and with those that it inherits, again and again; the parent goes
    on as well."""
    program = """
def run(number):
    with Sandbox.open("ada", f"child {number}", server_url=URL) as sandbox:
        own = sandbox.commands.run(f"echo own {number}").stdout
    return own + inherited.commands.run(f"echo inherited {number}").stdout

with Sandbox.open("ada", "closed before the fork", server_url=URL) as sandbox:
    sandbox.commands.run("true")
with Sandbox.open("ada", "open during the fork", server_url=URL) as inherited:
    for number in range(2):
        with fork.Pool(2) as pool:
            print(*pool.map(run, [number]))
        print(inherited.commands.run("echo parent").stdout)
"""
    lines = (await printed(sdk_daemon, program)).split("\n")

    assert [line for line in lines if line] == [
        "own 0", "inherited 0", "parent", "own 1", "inherited 1", "parent"
    ]  # fmt: skip


@pytest.mark.asyncio(loop_scope="session")
async def test_child_of_an_asyncio_program_works(sdk_daemon: DaemonProcess) -> None:
    """The fork happens in the thread of the event loop that has the channel."""
    program = """
async def run(thread):
    async with await AsyncSandbox.open("ada", thread, server_url=URL) as sandbox:
        print((await sandbox.commands.run(f"echo {thread}")).stdout, flush=True)
        if thread == "parent":
            child = fork.Process(target=lambda: asyncio.run(run("child")))
            child.start()
            while child.is_alive():
                await asyncio.sleep(0.01)
            assert child.exitcode == 0
            print((await sandbox.commands.run("echo parent")).stdout)

asyncio.run(run("parent"))
"""
    assert (await printed(sdk_daemon, program)).split() == ["parent", "child", "parent"]


@pytest.mark.asyncio(loop_scope="session")
async def test_child_that_ends_as_a_program_does_is_silent(sdk_daemon: DaemonProcess) -> None:
    """It runs what its parent registered for the end of the process, with and without calls."""
    program = """
sandbox = Sandbox.open("ada", "end", server_url=URL)
for uses in (True, False):
    child = os.fork()
    if not child:
        uses and sandbox.commands.run("true")
        break
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    assert await printed(sdk_daemon, program) == ""


@pytest.mark.asyncio(loop_scope="session")
async def test_fork_waits_for_short_calls_of_other_threads(sdk_daemon: DaemonProcess) -> None:
    """Threads of a server are seldom all idle; their calls go on afterwards."""
    program = """
sandbox = Sandbox.open("ada", "busy", server_url=URL)
is_over = threading.Event()
def show():
    print(sandbox.commands.run("echo child").stdout, flush=True)
failures = []
def work():
    try:
        while not is_over.is_set():
            assert sandbox.commands.run("echo thread").stdout == "thread\\n"
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
for one in threads:
    one.start()
for _ in range(5):
    child = fork.Process(target=show)
    child.start()
    child.join()
    assert child.exitcode == 0, child.exitcode
is_over.set()
for one in threads:
    one.join()
assert not failures, failures
"""
    assert (await printed(sdk_daemon, program)).split() == ["child"] * 5


NO_HANDLERS = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
"""gRPC's own handlers start threads in the child, which crash one of three if a call was under way,
before our code runs."""
REPORTING = """
def report():
    begun = time.monotonic()
    for calls in (sandbox.commands.run, ("true",)), (Sandbox.open, ("ada", "2")):
        try:
            calls[0](*calls[1])
        except ForkedError as error:
            assert "spawn" in str(error) and "worker_process_init" in str(error), error
            print("refused", flush=True)
    assert time.monotonic() - begun < 1
    try:
        sandbox.close()
    except ForkedError:
        pass
"""


@pytest.mark.asyncio(loop_scope="session")
async def test_child_that_was_forked_during_a_call_reports_it_at_once(
    sdk_daemon: DaemonProcess,
) -> None:
    """Its gRPC cannot work; the call of the parent ends as if there had been no fork."""
    program = """
sandbox = Sandbox.open("ada", "during a call", server_url=URL)
command = sandbox.commands.run("echo begun; read line; echo $line", background=True, stdin=True)
events = iter(command.stream())
assert next(events).text == "begun\\n"
child = fork.Process(target=report)
child.start()
child.join()
assert child.exitcode == 0
command.send_stdin("ended\\n")
print(next(events).text)
"""
    lines = (await printed(sdk_daemon, REPORTING + program, **NO_HANDLERS)).splitlines()

    assert [line for line in lines if "fork_posix.cc" not in line] == [
        "refused", "refused", "ended", ""
    ]  # fmt: skip


@pytest.mark.asyncio(loop_scope="session")
async def test_fork_during_a_call_never_hangs(sdk_daemon: DaemonProcess) -> None:
    """As gRPC is by default: the child ends, with the error or by a signal, and the parent's call
    goes on."""
    program = """
sandbox = Sandbox.open("ada", "by default", server_url=URL)
command = sandbox.commands.run("echo begun; read line; echo $line", background=True, stdin=True)
events = iter(command.stream())
assert next(events).text == "begun\\n"
for _ in range(5):
    child = fork.Process(target=report)
    child.start()
    child.join()
    assert child.exitcode == 0 or child.exitcode < 0
command.send_stdin("ended\\n")
assert next(events).text == "ended\\n"
"""
    await printed(sdk_daemon, REPORTING + program)


@pytest.mark.asyncio(loop_scope="session")
async def test_child_of_a_program_that_uses_grpc_itself_reports_it_at_once(
    sdk_daemon: DaemonProcess,
) -> None:
    """A channel of other code cannot be closed for it."""
    program = """
from grpc import aio
async def main():
    channel = aio.insecure_channel(URL)
    await channel.channel_ready()
    child = fork.Process(target=report)
    child.start()
    while child.is_alive():
        await asyncio.sleep(0.01)
    assert child.exitcode == 0
    await channel.close()

sandbox = Sandbox.open("ada", "other", server_url=URL)
asyncio.run(main())
"""
    lines = (await printed(sdk_daemon, REPORTING + program, **NO_HANDLERS)).splitlines()

    assert [line for line in lines if "fork_posix.cc" not in line] == ["refused", "refused"]


async def test_child_does_not_wait_for_the_daemon_in_its_parent(short_dir: Path) -> None:
    """A daemon of local mode stays in the process that started it."""
    program = f"""
def run():
    try:
        sandbox.commands.run("true")
    except ForkedError as error:
        print(error, flush=True)

with Sandbox.open("ada", "local", mode="local", local_settings=dict(
    state_dir="{short_dir}/state", run_dir="{short_dir}/run", guest_runtime="{RUNTIME}",
    pool_size=1, max_workspace_mb=16, command_policy="open")) as sandbox:
    sandbox.commands.run("true")
    child = fork.Process(target=run)
    child.start()
    child.join()
    assert child.exitcode == 0
    print(sandbox.commands.run("echo parent").stdout)
"""
    lines = (await printed(None, program)).splitlines()

    assert 'mode="remote"' in lines[0]
    assert lines[1:] == ["parent", ""]


@pytest.mark.asyncio(loop_scope="session")
async def test_child_of_a_child_works(sdk_daemon: DaemonProcess) -> None:
    """With what was opened two processes before; nothing waits for the loops of parents."""
    program = """
sandbox = Sandbox.open("ada", "grandchild", server_url=URL)
def run():
    print(sandbox.commands.run("echo grandchild").stdout, flush=True)
def fork_again():
    begun = time.monotonic()
    child = fork.Process(target=run)
    child.start()
    assert time.monotonic() - begun < 1
    child.join()
    assert child.exitcode == 0
child = fork.Process(target=fork_again)
child.start()
child.join()
assert child.exitcode == 0
"""
    assert await printed(sdk_daemon, program) == "grandchild\n\n"
