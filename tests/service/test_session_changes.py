"""UpdateSession: labels and idle time of an open session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd_proto.v1 import admin_service_pb2, session_pb2
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.service.client import Api, refused
from tests.service.test_history import told

StartDaemon = Callable[..., Awaitable[Daemon]]

INVALID = grpc.StatusCode.INVALID_ARGUMENT


async def test_labels_are_set_and_removed(api: Api) -> None:
    """Others stay; one that is not there is no error; the session is found by the new ones."""
    session_id = (await api.open(metadata={"team": "red", "old": "1"})).session.session_id

    changed = await api.update(
        session_id, metadata={"team": "blue", "turn": "7"}, remove_metadata=["old", "none"]
    )

    assert changed.metadata == {"team": "blue", "turn": "7"}
    assert (await api.get(session_id)).metadata == {"team": "blue", "turn": "7"}
    assert [one.session_id for one in (await api.list(metadata={"turn": "7"})).sessions] == [
        session_id
    ]


async def test_idle_time_counts_from_the_change(api: Api) -> None:
    """What is not named stays: the labels here, the idle time without one."""
    session_id = (await api.open(metadata={"team": "red"}, idle_timeout=900.0)).session.session_id

    await api.update(session_id, metadata={"a": "b"})
    assert (await api.get(session_id)).idle_timeout.seconds == 900
    changed = await api.update(session_id, idle_timeout=90.0)

    assert changed.idle_timeout.seconds == 90
    assert changed.metadata == {"team": "red", "a": "b"}
    assert changed.expire_time.ToSeconds() <= time.time() + 91


async def test_shorter_idle_time_ends_the_session_in_time(api: Api) -> None:
    """Though nothing was due for half an hour."""
    session_id = await api.open_id()

    await api.update(session_id, idle_timeout=1.0)

    async with asyncio.timeout(60):
        while (await api.get(session_id)).state != session_pb2.SESSION_STATE_EXPIRED:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"": "x"}},
        {"metadata": {"k" * 65: "x"}},
        {"metadata": {"k": "x" * 257}},
        {"metadata": {str(n): "" for n in range(33)}},
        {"remove_metadata": [""]},
        {"remove_metadata": ["k" * 65]},
        {"remove_metadata": [str(n) for n in range(33)]},
        {"metadata": {"k": "x"}, "remove_metadata": ["k"]},
        {"idle_timeout": 0.5},
        {"idle_timeout": 8 * 24 * 3600.0},
        {"idle_timeout": -1.0},
    ],
)
async def test_what_is_out_of_bounds_changes_nothing(api: Api, fields: dict[str, Any]) -> None:
    """The same bounds as at the open."""
    session_id = (await api.open(metadata={"k": "1"})).session.session_id

    with refused(INVALID, "INVALID_REQUEST"):
        await api.update(session_id, **fields)

    session = await api.get(session_id)
    assert (session.metadata, session.idle_timeout.seconds) == ({"k": "1"}, 1800)


async def sandboxes_taken(api: Api) -> int:
    pool = (await api.admin.GetStatus(admin_service_pb2.GetStatusRequest())).pool
    return pool.hits + pool.misses


@pytest.mark.parametrize("how", ["update", "attach", "recreate"])
async def test_number_of_labels_is_bounded_over_many_calls(api: Api, how: str) -> None:
    """However they are added; the refusal takes no sandbox, and room can be made."""
    session_id = (await api.open(metadata={f"k{n}": "" for n in range(30)})).session.session_id
    if how == "recreate":
        await api.update(session_id, idle_timeout=1.0)
        async with asyncio.timeout(60):
            while (await api.get(session_id)).state == session_pb2.SESSION_STATE_ACTIVE:
                await asyncio.sleep(0.05)
    taken = await sandboxes_taken(api)
    more = {f"m{n}": "" for n in range(3)}

    with refused(INVALID, "INVALID_REQUEST") as refusal:
        if how == "update":
            await api.update(session_id, metadata=more)
        else:
            await api.open(metadata=more)

    assert "33 labels" in refusal.message
    assert await sandboxes_taken(api) == taken
    if how == "update":
        await api.update(session_id, metadata=more, remove_metadata=["k0"])
        assert len((await api.get(session_id)).metadata) == 32


async def test_environment_of_a_session_is_bounded_over_many_calls(api: Api) -> None:
    """It is kept with the session and sent with every command."""
    for n in range(5):
        await api.open(env={f"V{n}": "x" * 100_000})

    with refused(INVALID, "REQUEST_TOO_LARGE"):
        await api.open(env={"V5": "x" * 100_000})


async def test_session_that_has_ended_is_not_changed(api: Api) -> None:
    """It says why, and one that never was is not found."""
    session_id = await api.open_id()
    await api.close(session_id)

    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
        await api.update(session_id, metadata={"a": "b"})
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await api.update("ses_none", metadata={"a": "b"})


async def test_change_survives_a_reset_and_a_restart(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Also one that is made while the session is being reset."""
    labels = {f"k{n}": "1" for n in range(5)}
    daemon = running(config, engine=engine, maker=guests.maker)
    async with daemon, Api(config.api_socket) as api:
        session_id = await api.open_id()
        changes = (api.update(session_id, metadata={key: "1"}) for key in labels)
        await asyncio.gather(api.reset(session_id), *changes)
        assert (await api.get(session_id)).metadata == labels

    daemon = running(config, engine=engine, maker=guests.maker)
    async with daemon, Api(config.api_socket) as api:
        assert (await api.get(session_id)).metadata == labels


async def test_change_is_in_the_audit_log(api: Api, daemon: Daemon) -> None:
    """Who changed which labels, not their values; a call that changes nothing adds no line."""
    session_id = (await api.open(metadata={"old": "1"})).session.session_id
    await api.update(session_id)
    await api.update(session_id, metadata={"team": "secret"}, remove_metadata=["old"])

    (changed,) = await told(daemon, action="session.changed")

    assert (changed["who"], changed["session"]) == ("host", session_id)
    assert (changed["labels"], changed["removed_labels"]) == (["team"], ["old"])
    assert "secret" not in str(changed)
