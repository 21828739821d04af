"""Snapshots go out as tar archives and come in from them, also from hostile ones."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator
from random import Random

import pytest

from sandboxd.errors import InvalidArchive
from sandboxd.snapshots.contract import Line
from sandboxd.snapshots.snapshots import DiskSnapshots
from tests.snapshots import comparison
from tests.snapshots.rig import LINE, UID, Disks, Workspace
from tests.snapshots.test_random_changes import own_all
from tests.snapshots.wild_changes import WildChanges

LIMITS = {"max_bytes": 200 << 20, "max_entries": 3000}


async def pieces(data: bytes, size: int = 70_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def exported(snapshots: DiskSnapshots, number: int) -> bytes:
    return b"".join([part async for part in snapshots.export(LINE, number)])


def archive(*members: tuple[str, bytes, dict[str, object]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data, fields in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def without_special_modes(root: bytes) -> None:
    """What an archive of others may not set: set-id bits and access lists."""
    for path, _names, files in os.walk(root):
        for name in files:
            found = os.path.join(path, name)
            if not os.path.islink(found):
                os.chmod(found, os.stat(found).st_mode & 0o777)
                if "system.posix_acl_access" in os.listxattr(found):
                    os.removexattr(found, "system.posix_acl_access")
        if path != root:
            os.chmod(path, os.stat(path).st_mode & 0o777)


async def test_export_and_import_keep_everything(
    disks: Disks, workspace: Workspace, snapshots: DiskSnapshots
) -> None:
    """What was exported, imported elsewhere and restored is the same, but for modes that archives
    of others may not set."""
    changes = WildChanges(os.fsencode(workspace.path), Random(5))
    changes.some(200)
    own_all(workspace)
    without_special_modes(os.fsencode(workspace.path))
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    data = await exported(snapshots, taken.number)
    elsewhere = Line(user_id="bob", name="imported")
    imported = await snapshots.import_archive(elsewhere, pieces(data), **LIMITS)

    assert imported.content_bytes == taken.content_bytes
    with disks.workspace() as other:
        await snapshots.restore(elsewhere, imported.number, other.descriptor, uid=UID, gid=UID)
        found = comparison.directory(other.descriptor)
        expected = comparison.directory(workspace.descriptor)
        for fixed in (b"project_files", b"agent_workspace", b"outputs"):
            found.pop(fixed, None)
            expected.pop(fixed, None)
        comparison.assert_same(found, expected)
    other.image.unlink()


async def test_export_is_a_tar_archive(workspace: Workspace, snapshots: DiskSnapshots) -> None:
    """Any program that reads tar reads it."""
    (workspace.path / "outputs" / "file.txt").write_text("text")
    os.link(workspace.path / "outputs" / "file.txt", workspace.path / "again")
    taken = await snapshots.take(LINE, workspace.disk)
    assert taken is not None
    with tarfile.open(fileobj=io.BytesIO(await exported(snapshots, taken.number))) as tar:
        by_name = {member.name: member for member in tar.getmembers()}
        linked = tar.extractfile("outputs/file.txt")
        assert linked is not None
        assert linked.read() == b"text"

    assert by_name["outputs/file.txt"].islnk() != by_name["again"].islnk()
    assert by_name["agent_workspace"].issym()


HOSTILE = {
    "absolute path": archive(("/etc/passwd", b"x", {})),
    "path that leads out": archive(("a/../../x", b"x", {})),
    "device": archive(("device", b"", {"type": tarfile.CHRTYPE})),
    "link to nothing": archive(("hard", b"", {"type": tarfile.LNKTYPE, "linkname": "none"})),
    "link to a directory": archive(
        ("d", b"", {"type": tarfile.DIRTYPE}),
        ("hard", b"", {"type": tarfile.LNKTYPE, "linkname": "d"}),
    ),
    "file below a file": archive(("a", b"x", {}), ("a/b", b"x", {})),
    "file below a link": archive(
        ("a", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"}), ("a/b", b"x", {})
    ),
    "directory that becomes a file": archive(("a/b", b"x", {}), ("a", b"x", {})),
    "long name": archive(("n" * 256, b"x", {})),
    "too many attributes": archive(
        ("a", b"x", {"pax_headers": {"SCHILY.xattr.user.a": "v" * 5000}})
    ),
    "half": archive(("a", b"x" * 2000, {}))[:1000],
    "no archive": b"x" * 5000,
    "nothing": b"",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_archive_is_refused(kind: str, snapshots: DiskSnapshots) -> None:
    """It says what is wrong, and no snapshot is made."""
    with pytest.raises(InvalidArchive):
        await snapshots.import_archive(LINE, pieces(HOSTILE[kind]), **LIMITS)
    assert await snapshots.find(LINE) == []


@pytest.mark.parametrize(
    "limits", [{"max_bytes": 1000, "max_entries": 10}, {"max_bytes": 10_000, "max_entries": 2}]
)
async def test_archive_that_is_too_large(limits: dict[str, int], snapshots: DiskSnapshots) -> None:
    """Neither bytes nor members beyond what a workspace has room for."""
    data = archive(*((f"{number}", b"x" * 600, {}) for number in range(3)))
    with pytest.raises(InvalidArchive):
        await snapshots.import_archive(LINE, pieces(data), **limits)


async def test_imported_files_belong_to_commands(disks: Disks, snapshots: DiskSnapshots) -> None:
    """Whatever owner and mode an archive says: no file of root, no set-id bits."""
    data = archive(
        ("project_files/planted", b"x", {}),
        ("evil", b"x", {"uid": 0, "mode": 0o6755}),
        ("agent_workspace", b"", {"type": tarfile.SYMTYPE, "linkname": "/etc"}),
    )
    imported = await snapshots.import_archive(LINE, pieces(data), **LIMITS)
    with disks.workspace() as other:
        await snapshots.restore(LINE, imported.number, other.descriptor, uid=UID, gid=UID)
        found = (other.path / "evil").stat()
        assert (found.st_uid, found.st_mode & 0o7777) == (UID, 0o755)
        assert os.readlink(other.path / "agent_workspace") == "."
        assert os.listdir(other.path / "project_files") == []
    other.image.unlink()
