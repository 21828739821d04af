"""The contract of session registries, for every implementation."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.registry.contract import SessionRecord, SessionRegistry, SessionState

ODD_TEXT = "a'b\"c; DROP TABLE sessions; -- \u00e9\u4e2d\U0001f600"


def a_record(number: int = 1, state: SessionState = SessionState.ACTIVE) -> SessionRecord:
    return SessionRecord(
        session_id=f"ses_{number}",
        user_id=ODD_TEXT,
        thread_id=f"thread {number}",
        state=state,
        incarnation=number,
        created_at=1000.25 + number,
        changed_at=2000.5,
        idle_seconds=60.125,
        metadata={"key": ODD_TEXT, "empty": ""},
        end_reason="it ended" if state != SessionState.ACTIVE else "",
        project_id=f"project {number}" if state == SessionState.ACTIVE else "",
        unmoved_project_id=f"another {number}" if state == SessionState.ACTIVE else "",
        environment=f"environment {number}",
        packages=("numpy", ODD_TEXT),
        env_vars={"A": ODD_TEXT},
        command_policy=f"policy {number}",
    )


@pytest.mark.parametrize("state", SessionState)
async def test_record_comes_back_as_it_was_saved(
    state: SessionState, registry: SessionRegistry
) -> None:
    """Every field survives, whatever characters it holds."""
    record = a_record(state=state)
    await registry.save(record)

    assert await registry.load() == [record]


async def test_later_save_replaces_an_earlier_one(registry: SessionRegistry) -> None:
    """The last save of a session is its only record."""
    await registry.save(a_record())
    await registry.save(a_record(state=SessionState.CLOSED))

    assert [record.state for record in await registry.load()] == [SessionState.CLOSED]


async def test_load_is_in_order_of_creation(registry: SessionRegistry) -> None:
    """Sessions come back oldest first."""
    for number in (3, 1, 2):
        await registry.save(a_record(number))

    assert [record.incarnation for record in await registry.load()] == [1, 2, 3]


async def test_delete_removes_what_is_named_and_nothing_else(registry: SessionRegistry) -> None:
    """Unknown ids are ignored, and an id cannot inject a statement."""
    for number in (1, 2, 3):
        await registry.save(a_record(number))
    await registry.delete(["ses_1", "ses_unknown", "' OR '1'='1"])
    await registry.delete([])

    assert [record.session_id for record in await registry.load()] == ["ses_2", "ses_3"]


async def test_many_saves_at_once_are_all_kept(registry: SessionRegistry) -> None:
    """Racing callers do not lose each other's records."""
    await asyncio.gather(*(registry.save(a_record(number)) for number in range(100)))

    assert len(await registry.load()) == 100
