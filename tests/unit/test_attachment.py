"""Attaching directories to a mount namespace, and what a host that forbids it is reported as."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOENT, ENOTDIR, ESRCH
from pathlib import Path

import pytest

from sandboxd.isolation.attachment import AttachFailed, Attachment, Way, attach, find_possibility
from sandboxd.isolation.host_process import HostProcess

DEADLINE_SECONDS = 30


@contextmanager
def other_namespace() -> Iterator[HostProcess]:
    """A process with its own copy of the mount table; it ends when its input does."""
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo ready; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        held = HostProcess(process.pid)
        yield held
        held.close()
    finally:
        process.communicate(timeout=DEADLINE_SECONDS)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A directory with a file, and an empty one."""
    source, target = (tmp_path / "source").resolve(), (tmp_path / "target").resolve()
    source.mkdir()
    target.mkdir()
    (source / "file").write_text("from the host")
    return source, target


def seen(process: HostProcess, directory: Path) -> list[str]:
    return os.listdir(f"/proc/{process.pid}/root{directory}")


def has_mounts(directory: Path) -> bool:
    """Whether this process sees a mount of something below the directory, or on it."""
    return str(directory) in Path("/proc/self/mountinfo").read_text()


def test_only_the_other_namespace_gets_the_mount(places: tuple[Path, Path]) -> None:
    """The process sees the directory; this one has no mount of it, and its own directory."""
    source, target = places
    working_directory = Path.cwd()

    with other_namespace() as process:
        process.attach([Attachment(source, str(target))])

        assert seen(process, target) == ["file"]
        (source / "later").touch()
        assert set(seen(process, target)) == {"file", "later"}
        mounts = Path(f"/proc/{process.pid}/mountinfo").read_text().splitlines()
        (line,) = [line for line in mounts if line.split()[4] == str(target)]
        assert {"ro", "nosuid", "nodev"} <= set(line.split()[5].split(","))
        assert line.split()[6] == "-"  # neither shared with another mount nor a slave of one
        assert not has_mounts(source.parent)
        assert list(target.iterdir()) == []

    assert Path.cwd() == working_directory


def test_several_directories_are_attached_at_once(places: tuple[Path, Path]) -> None:
    """The second one may be inside the first."""
    source, target = places
    (source / "inner").mkdir()
    other = source.parent / "other"
    other.mkdir()
    (other / "deep").touch()

    with other_namespace() as process:
        process.attach([Attachment(source, str(target)), Attachment(other, str(target / "inner"))])

        assert seen(process, target / "inner") == ["deep"]


def test_the_last_of_two_on_one_target_is_seen(places: tuple[Path, Path]) -> None:
    """A second attachment covers the first."""
    source, target = places
    other = source.parent / "other"
    other.mkdir()

    with other_namespace() as process:
        process.attach([Attachment(source, str(target))])
        process.attach([Attachment(other, str(target))])

        assert seen(process, target) == []


def test_a_target_behind_a_link_is_refused(places: tuple[Path, Path]) -> None:
    """A link in the path would let whoever made it choose the place."""
    source, target = places
    link = target.parent / "link"
    link.symlink_to(target)
    magic = f"/proc/self/cwd{target}"

    with other_namespace() as process:
        for path in (str(link), f"{link}/", magic):
            with pytest.raises(AttachFailed) as caught:
                process.attach([Attachment(source, path)])
            assert caught.value.errno == ENOTDIR, path
        assert seen(process, target) == []


def test_what_does_not_exist_cannot_be_attached(places: tuple[Path, Path]) -> None:
    """The error says which step failed."""
    source, target = places

    with other_namespace() as process:
        with pytest.raises(
            AttachFailed, match=r"cannot mount on .*missing: No such file"
        ) as caught:
            process.attach([Attachment(source, str(target / "missing"))])
        assert caught.value.errno == ENOENT
        with pytest.raises(AttachFailed, match="cannot make a detached mount: No such file"):
            process.attach([Attachment(target / "missing", str(target))])


def test_a_process_that_has_ended_gets_nothing(places: tuple[Path, Path]) -> None:
    """Not even if another one has its pid by now."""
    source, target = places
    with other_namespace() as process:
        pidfd = os.pidfd_open(process.pid)
    try:
        with pytest.raises(AttachFailed, match="No such process"):
            attach(pidfd, [Attachment(source, str(target))])
    finally:
        os.close(pidfd)
    with pytest.raises(AttachFailed) as caught:  # it is closed
        process.attach([Attachment(source, str(target))])
    assert caught.value.errno == ESRCH


def test_no_thread_and_no_file_is_left(places: tuple[Path, Path]) -> None:
    """Failures close what they opened."""
    source, target = places
    with other_namespace() as process:
        before = sorted(os.listdir("/proc/self/fd"))
        process.attach([Attachment(source, str(target))])
        with pytest.raises(AttachFailed):
            process.attach([Attachment(source, "/does/not/exist")])
        assert sorted(os.listdir("/proc/self/fd")) == before
    assert not [thread for thread in threading.enumerate() if thread.name == "attach"]


def test_this_host_allows_it(tmp_path: Path) -> None:
    """The trial leaves no mount and no directory."""
    assert find_possibility(tmp_path).way is Way.ATTACHED

    assert not has_mounts(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("capability", "step"),
    [("sys_chroot", "enter a mount namespace"), ("sys_admin", "make a mount namespace")],
)
def test_a_host_that_forbids_it_is_noticed(capability: str, step: str, tmp_path: Path) -> None:
    """Without a capability that it needs the other way is taken, and the step is named."""
    program = (
        "import sys; from pathlib import Path\n"
        "from sandboxd.isolation.attachment import find_possibility\n"
        "found = find_possibility(Path(sys.argv[1]))\n"
        "print(found.way, found.problem, sep='|')"
    )
    drop = ("--bounding-set", f"-{capability}", "--inh-caps", f"-{capability}")

    done = subprocess.run(
        ["setpriv", *drop, sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )

    assert done.stdout == f"bound at start|cannot {step}: Operation not permitted\n"
    assert list(tmp_path.iterdir()) == []
