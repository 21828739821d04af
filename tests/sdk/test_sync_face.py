"""The sync face: calls from threads, callbacks in them, Ctrl-C, and the end of the process."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandboxd_client
from sandboxd_client.portal import Portal, here
from tests.docker.daemon_process import RUNTIME

PAIRS = [name for name in sandboxd_client.__all__ if f"Async{name}" in sandboxd_client.__all__]


@pytest.mark.parametrize("name", PAIRS)
def test_both_faces_have_the_same_methods(name: str) -> None:
    """Names, parameters, defaults and documentation; nothing is there on one side alone."""
    names = {"__aenter__": "__enter__", "__aexit__": "__exit__", "aclose": "close"}
    names |= {"__aiter__": "__iter__", "__anext__": "__next__"}
    ours, theirs = getattr(sandboxd_client, name), getattr(sandboxd_client, f"Async{name}")
    expected = {names.get(one, one): value for one, value in vars(theirs).items()}
    public = {one for one in expected if not one.startswith("_") or one in names.values()}

    assert public == {one for one in vars(ours) if not one.startswith("_") or one in names.values()}
    for one in public:
        mine, other = inspect.getattr_static(ours, one), expected[one]
        if inspect.isfunction(mine):
            parameters = inspect.signature(mine).parameters.values()
            wanted = inspect.signature(other).parameters.values()
            assert [(p.name, p.kind, p.default) for p in parameters] == [
                (p.name, p.kind, p.default) for p in wanted
            ]
            assert bool(mine.__doc__) == bool(other.__doc__)


def test_callback_runs_in_the_thread_that_waits() -> None:
    """Not in the loop's, where it would hold up every other call; and its answer goes back."""
    portal = Portal()

    async def work() -> tuple[int, object]:
        return threading.get_ident(), await here(lambda: threading.get_ident())()

    loop_thread, callback_thread = portal.call(work())

    assert callback_thread == threading.get_ident() != loop_thread


def test_callback_may_call_again() -> None:
    """A callback that uses the SDK itself does not wait for itself."""
    portal = Portal()

    async def inner() -> str:
        return "inner"

    async def outer() -> object:
        return await here(lambda: portal.call(inner()))()

    assert portal.call(outer()) == "inner"


@pytest.fixture
def can_be_interrupted() -> Iterator[None]:
    """Ctrl-C raises, also in a process that was started in the background and ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("can_be_interrupted")
def test_interrupted_call_is_cancelled() -> None:
    """Ctrl-C ends what was waited for, and its cleaning up, before it is raised."""
    portal = Portal()
    ended: list[str] = []

    async def work() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        portal.call(work())

    assert ended == ["cleaned up"]


def test_call_interrupted_before_it_begins_returns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled before its first step does not run; its caller is told as well."""
    portal, waited = Portal(), []
    release = threading.Event()

    def interrupted(mailbox: Any, timeout: float | None) -> None:
        if timeout is None:
            raise KeyboardInterrupt
        release.set()
        waited.append(mailbox.get(timeout=timeout))

    monkeypatch.setattr("sandboxd_client.portal._run_errands", interrupted)
    portal.loop.call_soon_threadsafe(release.wait, 10)  # so that begin and cancel are one turn

    async def work() -> None:
        raise AssertionError("it must not begin")

    with pytest.raises(KeyboardInterrupt):
        portal.call(work())
    assert waited == [None]


def test_calls_from_many_threads_do_not_wait_for_each_other() -> None:
    """One loop serves them all at once."""
    portal = Portal()
    together = asyncio.Barrier(8)

    async def work() -> int:
        async with asyncio.timeout(10):
            return await together.wait()

    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(portal.call(work()))) for _ in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert sorted(answers) == list(range(8))


def test_child_after_a_fork_has_a_loop_of_its_own() -> None:
    """The thread is not there in the child, so it gets a new one."""
    program = """
import os
from sandboxd_client.portal import portal
async def number(): return 7
assert portal.call(number()) == 7
child = os.fork()
if child == 0:
    os._exit(portal.call(number()))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_process_that_never_closes_its_client_ends_cleanly(short_dir: Path) -> None:
    """Programs keep a client in a global; with a daemon in the process, its containers go too."""
    program = f"""
from sandboxd_client import SandboxClient
client = SandboxClient(mode="local", local_settings=dict(
    state_dir="{short_dir}/state", run_dir="{short_dir}/run", guest_runtime="{RUNTIME}",
    pool_size=1, max_workspace_mb=16, command_policy="open"))
client.get_or_create_session(user_id="ada", thread_id="42")
print(client.execute("echo hello")["stdout"])
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=90
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n\n", "")
    instance = (short_dir / "state" / "instance").read_text()
    listed = ["docker", "ps", "-aq", "--filter", f"label=sandboxd.instance={instance}"]
    assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout == ""
