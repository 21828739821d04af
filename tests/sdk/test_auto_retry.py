"""A session that has ended is opened again once, and only where that is safe."""

from __future__ import annotations

import pytest

from sandboxd_client import (
    AsyncSandboxClient,
    ConnectionLostError,
    SandboxLostError,
    SessionClosedError,
    SessionError,
    SessionExpiredError,
    SessionNotFoundError,
    SessionRecreatedError,
    SessionReturningError,
)
from sandboxd_client.connection import Connection
from sandboxd_client.methods.execs import RUN
from sandboxd_client.methods.sessions import OPEN_SESSION
from sandboxd_proto.v1 import exec_service_pb2, session_pb2, session_service_pb2
from tests.sdk.scripted import TIMEOUTS, Answer, Scripted, exited

DONE = exec_service_pb2.RunResponse(exec_id="e1", exit=exited().exited)


def opened(incarnation: int, outcome: str) -> session_service_pb2.OpenSessionResponse:
    session = session_pb2.Session(
        session_id="ses_1",
        incarnation=incarnation,
        state=session_pb2.SESSION_STATE_ACTIVE,
        workspace_dir="/workspace",
    )
    return session_service_pb2.OpenSessionResponse(
        session=session,
        outcome=session_service_pb2.OpenOutcome.Value(f"OPEN_OUTCOME_{outcome}"),
        workspace_kept=True,
    )


async def client_on(*runs: Answer) -> tuple[AsyncSandboxClient, Scripted]:
    """A client with an open session, whose commands are answered so."""
    answers = {
        "OpenSession": [opened(1, "CREATED"), opened(2, "RECREATED")],
        "Run": list(runs),
    }
    transport = Scripted(answers)
    client = AsyncSandboxClient()
    client._connection = Connection(transport, TIMEOUTS)
    await client.get_or_create_session("ada", "42", timeout_minutes=5)
    return client, transport


@pytest.mark.parametrize(
    "error", [SessionExpiredError, SandboxLostError, SessionRecreatedError, SessionNotFoundError]
)
async def test_command_is_run_in_the_reopened_session(error: type[SessionError]) -> None:
    """It never began in the old one. The result says so, the new incarnation is asked for, and the
    session keeps its idle time."""
    client, transport = await client_on(error("gone"), DONE)

    result = await client.execute("x")

    assert result.session is not None
    assert (result.session.status, result.session.workspace_kept) == ("recreated", True)
    assert [one.incarnation for one in transport.requests(RUN)] == [1, 2]
    first, again = transport.requests(OPEN_SESSION)
    assert first == again
    assert transport.tries(RUN) == ["", "1"]
    assert transport.tries(OPEN_SESSION) == ["", ""]


async def test_command_waits_for_a_session_that_is_not_back_yet() -> None:
    """After a restart of the daemon the call is repeated: nothing was done, and nothing is lost."""
    client, transport = await client_on(SessionReturningError("soon"), DONE)

    await client.execute("x")

    assert len(transport.requests(RUN)) == 2
    assert len(transport.requests(OPEN_SESSION)) == 1


async def test_second_end_is_an_error() -> None:
    """It is opened once, not for ever."""
    client, transport = await client_on(SessionExpiredError("gone"))

    with pytest.raises(SessionExpiredError):
        await client.execute("x")

    assert len(transport.requests(RUN)) == 2


async def test_command_that_may_have_begun_is_not_run_again() -> None:
    """The answer was lost and then the sandbox: nobody knows what it did, so it is told."""
    client, transport = await client_on(ConnectionLostError("cut"), SandboxLostError("gone"), DONE)

    with pytest.raises(SandboxLostError) as caught:
        await client.execute("x")

    assert caught.value.may_have_begun
    assert len(transport.requests(OPEN_SESSION)) == 1


async def test_session_that_was_closed_stays_closed() -> None:
    """Somebody wanted it so."""
    client, transport = await client_on(SessionClosedError("closed"), DONE)

    with pytest.raises(SessionClosedError):
        await client.execute("x")

    assert len(transport.requests(OPEN_SESSION)) == 1
