"""Files of packages: archives are checked before they are unpacked, trees after it."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

import pytest

from sandboxd.packages import tree
from sandboxd.packages.archive_check import ArchiveTooLarge, ArchiveUnsafe, check_wheel
from sandboxd.packages.tree import TreeTooLarge, TreeUnsafe
from tests.fakes.wheels import Entry, a_wheel, zipped

MIB = 1 << 20


# --- archives ---


def check(directory: Path, data: bytes, *, max_bytes: int = MIB, max_files: int = 100) -> None:
    path = directory / "x.whl"
    path.write_bytes(data)
    check_wheel(path, max_bytes=max_bytes, max_files=max_files)


def test_wheel_is_accepted_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(a_wheel("good", entries=[Entry("good/data.bin", bytes(1000))]).data)

    unpacked, files = check_wheel(path, max_bytes=MIB, max_files=100)

    assert files == 5
    assert 1000 < unpacked < 2000


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (Entry("../../../up.txt"), "leads out of the package"),
        (Entry("bad/../../up.txt"), "leads out of the package"),
        (Entry("bad-1.0.data/data/../../up.txt"), "leads out of the package"),
        (Entry("/etc/cron.d/absolute"), "leads out of the package"),
        (Entry("bad/.."), "leads out of the package"),
        (Entry("bad\\..\\..\\up.txt"), "read differently"),
        (Entry("bad//twice.py"), "read differently"),
        (Entry("./bad.py"), "read differently"),
        (Entry("bad/\x1b[31m.py"), "control characters"),
        (Entry("bad/" + "x" * 1100), "too long"),
        (Entry("bad/link", b"/etc/passwd", stat.S_IFLNK | 0o777), "symbolic link"),
        (Entry("bad/pipe", b"", stat.S_IFIFO | 0o644), "neither a file nor a directory"),
        (Entry("bad/disk", b"", stat.S_IFBLK | 0o644), "neither a file nor a directory"),
        (Entry("bad/root", b"", stat.S_IFREG | 0o4755), "set-id bit"),
        (Entry("bad/group", b"", stat.S_IFREG | 0o2755), "set-id bit"),
    ],
)
def test_archive_with_what_no_package_needs_is_refused(
    tmp_path: Path, entry: Entry, problem: str
) -> None:
    with pytest.raises(ArchiveUnsafe, match=problem):
        check(tmp_path, zipped([Entry("bad/__init__.py"), entry]))


def test_name_that_is_cut_at_a_null_byte_is_refused(tmp_path: Path) -> None:
    data = zipped([Entry("bad/cut.py?.txt")]).replace(b"cut.py?", b"cut.py\x00")

    with pytest.raises(ArchiveUnsafe, match="read differently"):
        check(tmp_path, data)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """Programs differ in which of the two they unpack."""
    with pytest.raises(ArchiveUnsafe, match="two files of one name"):
        check(tmp_path, zipped([Entry("a.py", b"1"), Entry("a.py", b"2")]))


@pytest.mark.parametrize("data", [b"", b"not a zip file", zipped([Entry("a.py")])[:-10]])
def test_what_is_not_an_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ArchiveUnsafe, match="not a zip file"):
        check(tmp_path, data)


def test_encrypted_archive_is_refused(tmp_path: Path) -> None:
    data = bytearray(zipped([Entry("a.py", b"secret")], zipfile.ZIP_STORED))
    data[data.index(b"PK\x01\x02") + 8] |= 1

    with pytest.raises(ArchiveUnsafe, match="encrypted"):
        check(tmp_path, bytes(data))


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    """A small file may unpack to a thousand times its size."""
    bomb = zipped([Entry("zeros.bin", bytes(2 * MIB))])
    assert len(bomb) < 10_000

    with pytest.raises(ArchiveTooLarge, match="2 MiB when unpacked"):
        check(tmp_path, bomb)
    with pytest.raises(ArchiveTooLarge, match="101 files"):
        check(tmp_path, zipped([Entry(f"{n}.py") for n in range(101)]))


# --- trees ---


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A tree as uv leaves it."""
    root = tmp_path / "unpacked"
    (root / "numpy").mkdir(parents=True)
    (root / "numpy" / "__init__.py").write_text("x = 1\n")
    (root / "bin").mkdir()
    (root / ".lock").write_text("")
    program = root / "bin" / "f2py"
    program.write_text("#!/srv/daemon/venv/bin/python3\nprint('hello')\n")
    program.chmod(0o777)
    return root


def copy(source: Path, *, max_bytes: int = MIB, max_files: int = 100) -> Path:
    target = source.parent / "set"
    tree.copy(source, target, max_bytes=max_bytes, max_files=max_files, programs="bin")
    return target


def test_copy_belongs_to_the_daemon_and_can_be_changed_by_nobody(unpacked: Path) -> None:
    os.chmod(unpacked / "numpy", 0o777)

    made = copy(unpacked)

    for path in (made, *made.rglob("*")):
        found = path.lstat()
        assert (found.st_uid, found.st_mode & 0o7222) == (os.geteuid(), 0)
    assert (made / "numpy" / "__init__.py").read_text() == "x = 1\n"
    assert stat.S_IMODE((made / "bin" / "f2py").stat().st_mode) == 0o555
    assert stat.S_IMODE((made / "numpy" / "__init__.py").stat().st_mode) == 0o444


def test_copy_shares_no_file_with_the_build(unpacked: Path) -> None:
    """What is written to the build later does not reach a set."""
    os.link(unpacked / "numpy" / "__init__.py", unpacked / "numpy" / "other.py")

    made = copy(unpacked)
    (unpacked / "numpy" / "__init__.py").write_text("changed\n")

    assert (made / "numpy" / "__init__.py").read_text() == "x = 1\n"
    assert (made / "numpy" / "other.py").stat().st_nlink == 1


def test_scripts_run_with_the_python_of_the_sandbox(unpacked: Path) -> None:
    """The path of the host's Python would not work inside, and is nobody's business."""
    (unpacked / "bin" / "shell").write_text("#!/bin/sh\necho python\n")
    (unpacked / "numpy" / "tool.py").write_text("#!/srv/python3\n")

    made = copy(unpacked)

    assert (made / "bin" / "f2py").read_text() == "#!/usr/bin/env python3\nprint('hello')\n"
    assert (made / "bin" / "shell").read_text() == "#!/bin/sh\necho python\n"
    assert (made / "numpy" / "tool.py").read_text() == "#!/srv/python3\n"


def test_what_only_uv_needs_is_left_out(unpacked: Path) -> None:
    assert sorted(path.name for path in copy(unpacked).iterdir()) == ["bin", "numpy"]


def test_links_are_refused(unpacked: Path) -> None:
    (unpacked / "numpy" / "shadow").symlink_to("/etc/shadow")

    with pytest.raises(TreeUnsafe, match=r"numpy/shadow' is a symbolic link"):
        copy(unpacked)


def test_linked_directory_is_not_entered(unpacked: Path) -> None:
    (unpacked / "etc").symlink_to("/etc")

    with pytest.raises(TreeUnsafe, match="symbolic link"):
        copy(unpacked)


def test_pipes_are_refused_and_not_opened(unpacked: Path) -> None:
    """To open a pipe that nobody writes to could block for ever."""
    os.mkfifo(unpacked / "numpy" / "pipe")

    with pytest.raises(TreeUnsafe, match="neither a file nor a directory"):
        copy(unpacked)


def test_set_id_bits_are_refused(unpacked: Path) -> None:
    (unpacked / "bin" / "f2py").chmod(0o4755)

    with pytest.raises(TreeUnsafe, match="set-id bit"):
        copy(unpacked)


def test_copy_is_bounded(unpacked: Path) -> None:
    """In bytes, in files and in depth, with no more than that written."""
    (unpacked / "large.bin").write_bytes(bytes(2 * MIB))
    with pytest.raises(TreeTooLarge, match="more than 1 MiB"):
        copy(unpacked)
    written = sum(path.stat().st_size for path in (unpacked.parent / "set").rglob("*"))
    assert written <= MIB

    tree.delete(unpacked.parent / "set")
    with pytest.raises(TreeTooLarge, match="more than 3 files"):
        copy(unpacked, max_bytes=100 * MIB, max_files=3)

    tree.delete(unpacked.parent / "set")
    (unpacked / "/".join("d" * 70)).mkdir(parents=True)
    with pytest.raises(TreeUnsafe, match="64 directories deep"):
        copy(unpacked, max_bytes=100 * MIB)


def test_size_of_a_copy_counts_blocks(unpacked: Path) -> None:
    """Small files and directories take whole blocks of the host's disk."""
    size = tree.copy(unpacked, unpacked.parent / "set", max_bytes=MIB, max_files=100)

    assert size.files == 5  # with directories
    assert size.size_bytes >= 5 * 512
