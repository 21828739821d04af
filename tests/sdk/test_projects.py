"""Projects in each of the SDK's four ways, on real sandboxes."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from sandboxd_client import (
    FileExistsInSandboxError,
    FileTypeNotAllowedError,
    InvalidRequestError,
    MissingFileError,
    ProjectMismatchError,
    ProjectNotFoundError,
    ProtectedPathError,
)
from tests.sdk.faces import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_project_and_its_files(face: Face, thread: str, tmp_path: Path) -> None:
    """Created, filled, listed, read and deleted; the results are dicts with attributes."""
    user = f"ada-{face.name}"
    async with face.client() as client:
        projects = client.projects
        made = await projects.create(user, "book")
        assert (made["project_id"], made.files) == ("book", 0)
        source = tmp_path / "numbers.csv"
        source.write_bytes(b"a,b\n1,2\n" * 200_000)
        seen: list[int] = []
        stored = await projects.upload(user, "book", source, on_progress=seen.append)
        assert (stored["name"], stored.mime_type, stored.status) == (
            "numbers.csv",
            "text/csv",
            "created",
        )
        assert sum(seen) == stored.size_bytes == source.stat().st_size
        assert stored.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
        again = await projects.upload(user, "book", source)
        assert (again.name, again.status) == ("numbers.csv", "unchanged")
        other = await projects.write(user, "book", "numbers.csv", "other")
        assert other.name == "numbers (1).csv"
        with pytest.raises(FileExistsInSandboxError):
            await projects.write(user, "book", "numbers.csv", "third", on_conflict="fail")
        replaced = await projects.write(
            user, "book", "numbers.csv", b"third", on_conflict="replace"
        )
        assert replaced.status == "replaced"
        assert await projects.read(user, "book", "numbers.csv") == b"third"
        path = await projects.download(user, "book", "numbers (1).csv", tmp_path)
        assert path == str(tmp_path / "numbers (1).csv")
        assert (tmp_path / "numbers (1).csv").read_text() == "other"
        assert [file.name for file in await projects.list_files(user, "book")] == [
            "numbers (1).csv",
            "numbers.csv",
        ]
        assert [(one.project_id, one.files) for one in await projects.list(user)] == [("book", 2)]
        usage = await projects.usage(user)
        assert (usage.projects, usage.files, usage.size_bytes) == (1, 2, 10)
        assert (await projects.delete_file(user, "book", "numbers.csv")).size_bytes == 5
        assert (await projects.delete(user, "book")).files == 1
        assert await projects.list(user) == []


async def test_errors_of_projects_are_typed(face: Face, tmp_path: Path) -> None:
    """And a download that fails leaves no file behind."""
    user = f"eve-{face.name}"
    async with face.client() as client:
        projects = client.projects
        with pytest.raises(ProjectNotFoundError):
            await projects.get(user, "none")
        with pytest.raises(ProjectNotFoundError):
            await face.open(user, "thread", project="none")
        await projects.create(user, "book")
        with pytest.raises(FileTypeNotAllowedError) as caught:
            await projects.write(user, "book", "setup.exe", b"MZ\0")
        assert isinstance(caught.value, PermissionError)
        with pytest.raises(InvalidRequestError):
            await projects.write(user, "book", "../up.txt", b"x")
        with pytest.raises(InvalidRequestError, match="on_conflict"):
            await projects.write(user, "book", "a.txt", b"x", on_conflict="maybe")
        with pytest.raises(MissingFileError):
            await projects.download(user, "book", "none.txt", tmp_path / "none.txt")
        assert os.listdir(tmp_path) == []


async def test_a_sandbox_on_a_project(face: Face, thread: str) -> None:
    """It sees the files, cannot write to them, and keeps them when it is reset."""
    user = f"bob-{face.name}"
    async with face.client() as client:
        await client.projects.create(user, "book")
        await client.projects.write(user, "book", "a.txt", "hello")
        sandbox = await face.open(user, thread, project="book")
        assert sandbox.info.project_id == "book"
        assert (await sandbox.commands.run("cat project_files/a.txt")).stdout == "hello"
        with pytest.raises(ProtectedPathError, match="belongs to the project"):
            await sandbox.files.write("project_files/b.txt", "x")
        with pytest.raises(ProjectMismatchError):
            await face.open(user, thread, project="other")
        await client.get_or_create_session(user, thread, project="book")
        await client.reset_session()
        assert (await client.execute("cat project_files/a.txt")).stdout == "hello"
        await sandbox.aclose()


async def test_a_session_that_expired_is_opened_again_on_its_project(
    face: Face, thread: str
) -> None:
    """By the next command."""
    user = f"cyd-{face.name}"
    async with face.client() as client:
        await client.projects.create(user, "book")
        await client.projects.write(user, "book", "a.txt", "hello")
        opened = await client.get_or_create_session(
            user, thread, project="book", timeout_minutes=0.02
        )
        while (await client.get_session(opened.session_id)).state != "expired":
            await asyncio.sleep(0.05)

        again = await client.execute("cat project_files/a.txt")

        assert (again.stdout, again.session.project_id) == ("hello", "book")
