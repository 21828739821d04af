"""The policy that the clients ask for by default, and what a refusal looks like to a person."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from sandboxd.config import Config
from sandboxd_client import (
    EnvironmentMismatchError,
    PolicyError,
    SandboxError,
    SessionNotFoundError,
)
from sandboxd_client.integrations import AsyncBashTool, BashTool
from sandboxd_client.methods.sessions import OPEN_SESSION
from tests.fakes import settings as settings_for_tests
from tests.fakes.guest import FakeGuests
from tests.sdk.faces import Face
from tests.sdk.test_auto_retry import DONE, client_on

THREAD = {"user_id": "ada", "thread_id": "42"}
REFUSED = "rm x"
OWN_LINES = 1
"""Most lines of the SDK in a traceback: the method of a sync class that was called."""


@pytest.fixture
def config(short_dir: Path) -> Config:
    return settings_for_tests.without_policy(settings_for_tests.of_daemon(short_dir))


@pytest.fixture(params=["async", "sync"])
async def face(
    request: pytest.FixtureRequest, start_daemon: Callable[..., Awaitable[Any]], guests: FakeGuests
) -> Face:
    """One way to use the SDK with a daemon whose operator has set no policy."""
    daemon = await start_daemon()
    url = f"unix:{daemon.config.api_socket}"
    return Face(request.param, request.param == "sync", {"server_url": url})


async def bash(face: Face, **settings: Any) -> str:
    """The error with which a bash tool answers to a command that `strict` refuses; empty if it was
    run."""
    async with AsyncBashTool(**face.where, **settings) as tool:
        if not face.is_sync:
            return (await tool.execute_bash_command(REFUSED, **THREAD)).get("error", "")
    with BashTool(**face.where, **settings) as tool:
        answer = await asyncio.to_thread(tool.execute_bash_command, REFUSED, **THREAD)
        return answer.get("error", "")


async def test_client_opens_new_sessions_with_strict(face: Face) -> None:
    """Unless its caller names another policy; a sandbox is opened with that of the daemon."""
    async with face.client() as client:
        info = await client.get_or_create_session(**THREAD)
        assert info.command_policy == "strict"
        with pytest.raises(PolicyError):
            await client.execute(REFUSED)
    async with face.client() as client:
        info = await client.get_or_create_session(**THREAD, command_policy="open")
        assert info.command_policy == "open"
        await client.execute(REFUSED)
    async with await face.open("ada", "44") as sandbox:
        assert sandbox.info.command_policy == "open"
        await sandbox.commands.run(REFUSED)


async def test_bash_tool_opens_new_sessions_with_strict(face: Face) -> None:
    """And with another policy where it is named; then a session with `strict` is not the same."""
    assert "forbidden-command" in await bash(face)
    assert "not 'open'" in await bash(face, command_policy="open")
    async with await face.open(*THREAD.values()) as sandbox:
        await sandbox.kill()
    assert not await bash(face, command_policy="open")


@pytest.mark.parametrize("first", ["sandbox", "client"])
async def test_clients_attach_to_sessions_of_each_other(face: Face, first: str) -> None:
    """Nobody is refused for a policy that he did not name, and the session keeps its own."""
    policy = "open" if first == "sandbox" else "strict"
    async with face.client() as client:

        async def attach(how: str, **named: str) -> str:
            if how == "client":
                return str((await client.get_or_create_session(**THREAD, **named)).command_policy)
            async with await face.open(*THREAD.values(), **named) as sandbox:
                return str(sandbox.info.command_policy)

        for how in (first, "client", "sandbox"):
            assert await attach(how) == policy
            if how != first:
                assert await attach(how, command_policy=policy) == policy
        for how in ("client", "sandbox"):
            with pytest.raises(EnvironmentMismatchError, match="command_policy"):
                await attach(how, command_policy="strict" if policy == "open" else "open")
        assert bool(await bash(face)) == (policy == "strict")


async def test_session_that_is_gone_is_opened_again_with_its_policy() -> None:
    """Also one that the daemon does not remember: what was named for it once is its default."""
    client, transport = await client_on(SessionNotFoundError("gone"), DONE)
    info = client._threads["ada", "42"][0]
    info.command_policy = "open"
    await client.execute("x")

    first, again = transport.requests(OPEN_SESSION)
    assert [one.default_command_policy for one in (first, again)] == ["strict", "open"]
    assert {first.command_policy, again.command_policy} == {""}


# --- what a person sees ---


def own_lines(error: BaseException) -> list[str]:
    """The functions of the SDK in a traceback."""
    found: list[str] = []
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals["__name__"].startswith("sandboxd_client"):
            found.append(step.tb_frame.f_code.co_name)
        step = step.tb_next
    return found


@pytest.mark.parametrize("policy", [None, "strict"])
async def test_refusal_is_short_and_says_what_to_do(face: Face, policy: str | None) -> None:
    """Rule and `command_policy=` in the message, no lines from within the SDK, no error before it,
    whether the daemon refuses or the client."""
    async with face.client(policy=policy) as client:
        await client.get_or_create_session(**THREAD)
        with pytest.raises(PolicyError) as caught:
            await client.execute(REFUSED)

    assert "(rule forbidden-command)" in str(caught.value)
    assert "command_policy=" in str(caught.value)
    assert len(own_lines(caught.value)) <= OWN_LINES * face.is_sync
    assert "another exception" not in "".join(traceback.format_exception(caught.value))


async def test_every_typed_error_of_a_method_is_short(face: Face) -> None:
    """A wrong argument, a session that is gone, a daemon that is not there, and the bash tool's."""
    async with face.client() as client:
        await client.get_or_create_session(**THREAD)
        async with AsyncBashTool(**face.where) as tool:
            calls = [
                lambda: client.execute(5),
                lambda: client.get_session("ses_none"),
                lambda: client.sandbox.files.read("../x"),
                lambda: face.open("ada", "43", environment="none"),
                lambda: tool.execute(REFUSED, **THREAD),
                lambda: Face("none", face.is_sync, {"server_url": "unix:/nowhere"}).open("a", "b"),
            ]
            for call in calls:
                with pytest.raises(SandboxError) as caught:
                    await call()
                assert len(own_lines(caught.value)) <= OWN_LINES


async def test_lines_of_a_callback_stay(face: Face) -> None:
    """They are the caller's own, although the SDK called them."""

    def refuse(command: object) -> None:
        raise PolicyError("Use awk.")

    async with face.client(policy=refuse) as client:
        await client.get_or_create_session(**THREAD)
        with pytest.raises(PolicyError, match=r"^Use awk\.$") as caught:
            await client.execute("echo x")

    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "refuse"
    assert len(own_lines(caught.value)) <= OWN_LINES


async def test_log_has_the_whole_traceback(face: Face, caplog: pytest.LogCaptureFixture) -> None:
    """For whoever looks for a fault in the SDK."""
    with caplog.at_level(logging.DEBUG, "sandboxd_client"):
        async with face.client() as client:
            await client.get_or_create_session(**THREAD)
            with suppress(PolicyError):
                await client.execute(REFUSED)

    assert "in _answer" in caplog.text
