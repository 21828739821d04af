"""What users of other SDKs try first, and what can be changed in an open session."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from sandboxd_client import InvalidRequestError, SessionClosedError, SessionNotFoundError
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_names_of_other_sdks_lead_to_the_same(face: Face) -> None:
    """Ids, facts and figures of a sandbox."""
    async with await face.create(timeout=120, envs={"GREETING": "hello"}) as sandbox:
        assert sandbox.sandbox_id == sandbox.session_id
        assert sandbox.info.idle_timeout_seconds == 120
        assert (await sandbox.get_info()).session_id == sandbox.session_id
        assert await sandbox.is_running()
        assert (await sandbox.get_metrics()).workspace_bytes >= 0
        assert (await sandbox.commands.run("echo $GREETING")).stdout == "hello\n"
        ran = await sandbox.commands.run("echo $GREETING", envs={"GREETING": "bye"})
        assert ran.stdout == "bye\n"

        assert (await sandbox.get_info()).workspace_kept
        assert not (await sandbox.kill()).workspace_kept
        assert not await sandbox.is_running()


async def test_times_are_given_with_their_unit(face: Face, thread: str) -> None:
    """In minutes or in seconds; both at once is refused, and so is neither."""
    async with await face.open("ada", thread, timeout_minutes=2) as sandbox:
        assert sandbox.info.idle_timeout_seconds == 120
        assert (await sandbox.set_timeout(minutes=1)).idle_timeout_seconds == 60
        assert (await sandbox.set_timeout(seconds=90)).idle_timeout_seconds == 90
        assert sandbox.info.idle_timeout_seconds == 90
        for times in ({}, {"timeout": 5}, {"minutes": 1, "seconds": 60}):
            with pytest.raises(InvalidRequestError):
                await sandbox.set_timeout(**times)
    with pytest.raises(InvalidRequestError, match="timeout_minutes and timeout"):
        await face.open("ada", thread, timeout_minutes=1, timeout=60)


async def test_sandboxes_are_listed_and_killed_by_id(face: Face, thread: str) -> None:
    """Without an object of them: by user, thread and labels, active ones unless asked otherwise."""
    first = await face.open("lister", f"{thread} 1", metadata={"of": thread})
    second = await face.open("lister", f"{thread} 2", metadata={"of": thread})
    for sandbox in (first, second):
        await sandbox.aclose()
    ids = [first.session_id, second.session_id]

    assert [one.session_id for one in await face.list(metadata={"of": thread})] == ids
    assert (await face.kill(ids[0])).state == "closed"

    assert [one.session_id for one in await face.list(metadata={"of": thread})] == ids[1:]
    listed = await face.list(user_id="lister", metadata={"of": thread}, state=None)
    assert [one.state for one in listed] == ["closed", "active"]
    await face.kill(ids[1])
    with pytest.raises(SessionNotFoundError):
        await face.kill("ses_none")


async def test_labels_are_changed(face: Face, thread: str) -> None:
    """Set, replaced and removed; a session that was closed says so."""
    async with await face.create(metadata={"team": "red", "draft": "1"}) as sandbox:
        changed = await sandbox.update_metadata({"team": "blue", "turn": thread, "draft": None})

        assert changed.metadata == {"team": "blue", "turn": thread}
        assert sandbox.info.metadata == changed.metadata
        found = await face.list(metadata={"turn": thread})
        assert [one.session_id for one in found] == [sandbox.session_id]
        await sandbox.kill()
        with pytest.raises(SessionClosedError, match="open a new one"):
            await sandbox.update_metadata({"team": "green"})


async def test_paths_of_the_client_may_be_path_objects(
    face: Face, thread: str, tmp_path: Path
) -> None:
    """On both sides of a transfer."""
    (tmp_path / "local.txt").write_text("hello")
    async with face.client() as client:
        await client.get_or_create_session("ada", thread)
        await client.upload_file(tmp_path / "local.txt", PurePosixPath("data/one.txt"))
        await client.upload_file_from_bytes(PurePosixPath("data/two.txt"), b"bye")
        there = await client.download_file(PurePosixPath("data/two.txt"), tmp_path / "back.txt")

        assert there.read_bytes() == b"bye"
        names = [file["name"] for file in (await client.list_files())["files"]]
        assert {"data/one.txt", "data/two.txt"} <= set(names)
