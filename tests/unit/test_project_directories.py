"""Directories of project files: made, moved into each other and deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.workspaces.project_directories import ProjectDirectories

DEEP = 3000


@pytest.fixture
def projects(short_dir: Path) -> ProjectDirectories:
    return ProjectDirectories(short_dir / "projects")


def names_in(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def make_deep(top: Path, levels: int) -> None:
    """Directories in each other, deeper than any path can say."""
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    os.close(descriptor)


def test_a_new_one_can_be_read_by_all_and_found_by_none(projects: ProjectDirectories) -> None:
    """Commands have uids of their own, so it is open; what it is in is not."""
    before = os.umask(0o077)
    try:
        path = projects.path(projects.make())
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o7777 == 0o755
    assert path.parent.stat().st_mode & 0o7777 == 0o700
    assert names_in(path) == []


def test_one_that_is_gone_is_made_again(projects: ProjectDirectories) -> None:
    """A session whose directory somebody deleted goes on without its files."""
    project_id = projects.make()
    (projects.path(project_id) / "a").touch()
    assert projects.make(project_id) == project_id
    assert names_in(projects.path(project_id)) == ["a"]
    (projects.path(project_id) / "a").unlink()
    projects.path(project_id).rmdir()

    assert projects.make(project_id) == project_id
    assert projects.path(project_id).is_dir()


@pytest.mark.parametrize("project_id", ["", "..", "../x", "0" * 15, "/etc"])
def test_only_ids_become_paths(project_id: str, projects: ProjectDirectories) -> None:
    """What comes from a registry is not trusted to be a name."""
    with pytest.raises(ValueError, match="not the id"):
        projects.path(project_id)


async def test_files_are_moved_all_at_once(projects: ProjectDirectories) -> None:
    """Files, directories and links arrive as the very same ones."""
    source, target = (projects.path(projects.make()) for _ in range(2))
    (source / "dir").mkdir()
    (source / "dir" / "file").write_text("content")
    (source / "link").symlink_to("dir/file")
    number = (source / "dir" / "file").stat().st_ino
    await projects.move(source.name, target.name)

    assert names_in(source) == []
    assert names_in(target) == ["dir", "link"]
    assert (target / "link").read_text() == "content"
    assert (target / "dir" / "file").stat().st_ino == number


async def test_an_interrupted_move_is_finished_by_another(projects: ProjectDirectories) -> None:
    """A daemon that died half-way has moved some; the next moves the rest, also when all is done
    and the source is gone."""
    source, target = (projects.path(projects.make()) for _ in range(2))
    (source / "late").write_text("late")
    (target / "early").write_text("early")
    for _ in range(2):
        await projects.move(source.name, target.name)
        assert names_in(target) == ["early", "late"]
    await projects.delete(source.name)
    await projects.move(source.name, target.name)

    assert names_in(target) == ["early", "late"]


async def test_a_failed_move_leaves_all_where_it_was(projects: ProjectDirectories) -> None:
    """Half of the files in each of two places would be a loss."""
    source, target = (projects.path(projects.make()) for _ in range(2))
    for name in "abc":
        (source / name).write_text(name)
    (target / "b").mkdir()  # no file replaces a directory
    with pytest.raises(IsADirectoryError):
        await projects.move(source.name, target.name)

    assert names_in(source) == ["a", "b", "c"]
    assert names_in(target) == ["b"]


async def test_delete_takes_any_depth(projects: ProjectDirectories) -> None:
    """A tree deeper than the longest path, and than Python's own calls go, is deleted whole."""
    path = projects.path(projects.make())
    make_deep(path, DEEP)
    (path / "closed").mkdir(mode=0o000)
    await projects.delete(path.name)
    await projects.delete(path.name)

    assert names_in(path.parent) == []


async def test_sweep_leaves_what_is_kept(projects: ProjectDirectories) -> None:
    """At the start everything goes that no session has, half-deleted ones too."""
    kept, stale = projects.make(), projects.make()
    make_deep(projects.path(stale), 10)
    projects.path(stale).rename(projects.path(kept).parent / f"{stale}.trash")
    assert await projects.sweep([kept, ""]) == 1

    assert names_in(projects.path(kept).parent) == [kept]


async def test_sweep_moves_aside_what_has_files(projects: ProjectDirectories) -> None:
    """Directories with files are deleted only when they were unknown for long enough."""
    empty, filled = projects.make(), projects.make()
    (projects.path(filled) / "plan").write_text("text")
    top = projects.path(filled).parent
    assert await projects.sweep([]) == 2
    assert await projects.sweep([]) == 0

    assert names_in(top) == ["unknown"]
    assert (top / "unknown" / filled / "plan").read_text() == "text"
    assert not (top / "unknown" / empty).exists()
    assert await projects.delete_unknown(3600.0) is not None
    assert await projects.delete_unknown(0.0) is None
    assert names_in(top / "unknown") == []
