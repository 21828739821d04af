"""Environments and policies of sessions in each of the SDK's four ways, on real sandboxes."""

from __future__ import annotations

import pytest

from sandboxd_client import (
    EnvironmentMismatchError,
    EnvironmentNotFoundError,
    InvalidRequestError,
    PolicyError,
)
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_session_says_what_it_is_made_from(face: Face, thread: str) -> None:
    """Environment, policy and added variables are those that were asked for."""
    async with await face.open(
        "ada",
        thread,
        environment="default",
        command_policy="strict",
        env_vars={"COLOUR": "blue", "SIZE": "small"},
        env={"SIZE": "large"},
        build_wait=1.0,
    ) as sandbox:
        assert (sandbox.info.environment, sandbox.info.command_policy) == ("default", "strict")
        assert sandbox.info.packages == []
        ran = await sandbox.commands.run("echo $COLOUR $SIZE")
        assert ran.stdout == "blue large\n"
        with pytest.raises(PolicyError, match="`strict`"):
            await sandbox.commands.run("rm x")
        await sandbox.kill()


async def test_an_open_session_keeps_what_it_is_made_from(face: Face, thread: str) -> None:
    """Anything else is refused; what is not named stays."""
    async with await face.open("ada", thread, env_vars={"A": "1"}) as sandbox:
        for other in (
            {"environment": "python3.11"},
            {"env_vars": {"A": "2"}},
            {"command_policy": "strict"},
        ):
            with pytest.raises(EnvironmentMismatchError):
                await face.open("ada", thread, **other)
        async with await face.open("ada", thread) as same:
            assert same.session_id == sandbox.session_id
        await sandbox.kill()


async def test_unknown_names_are_refused(face: Face, thread: str) -> None:
    """With those that the daemon has."""
    with pytest.raises(EnvironmentNotFoundError, match="default"):
        await face.open("ada", thread, environment="large")
    with pytest.raises(InvalidRequestError, match="strict"):
        await face.open("ada", thread, command_policy="lax")
