"""The filesystems that disks are copied from, with an exact number of free bytes and files."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from sandboxd.workspaces import loop_mount
from sandboxd.workspaces.layout import AGENT_WORKSPACE, OUTPUTS, PROJECT_FILES, Layout

SLACK_BYTES = 32 << 10
"""Free bytes beyond the size, which the filesystem needs to store one file of that size."""

WORKSPACE = "workspace"
"""The directory of a workspace disk that is bound into a sandbox."""
TMP, VAR_TMP = "tmp", "var_tmp"
"""The directories of a temporary disk that are bound into a sandbox."""
OWNED_BY_SANDBOX = (OUTPUTS,)
"""Directories that belong to commands. The others belong to root below a sticky directory, so that
commands cannot rename them."""

_RESERVE = ".reserve"  # not bound into sandboxes; its files use up what must not be free
_FORMAT = 2  # to be increased whenever new disks are to be different
_BLOCK = 4096
_BLOCKS_PER_GROUP = 32768
_INODES_PER_BLOCK = 16
_OWN_INODES = 11 + 6  # the filesystem's, and those made here
# All are named, so that the host's mke2fs.conf changes nothing. There is no journal, because disks
# need not survive a power cut.
_FEATURES = (
    "none,dir_index,dir_nlink,ext_attr,extent,extra_isize,filetype,flex_bg,huge_file,large_file,"
    "sparse_super"
)
_MKFS_SECONDS = 30


class TemplateFailed(Exception):
    """The template cannot be made; the text says why."""


def file_name(*, size_bytes: int, max_files: int, layout: Layout | None) -> str:
    """Name of the template of workspace disks, or of temporary disks, which have no layout."""
    # How much is free in an empty filesystem depends on the kernel.
    kind = layout or "temporary"
    return f"template-{_FORMAT}-{kind}-{size_bytes}-{max_files}-{platform.release()}"


def build(
    image: Path, mount_point: Path, *, size_bytes: int, max_files: int, layout: Layout | None
) -> None:
    """Make a sparse template. After an error, the caller removes the file."""
    free_blocks = _blocks(size_bytes + SLACK_BYTES)
    _make_filesystem(image, blocks=_room_for(free_blocks, max_files), inodes=max_files)
    with loop_mount.attached(image, mount_point):
        _lay_out(mount_point, layout)
        _leave_free(mount_point, blocks=free_blocks, files=max_files)
    with image.open("rb") as file:
        os.fsync(file.fileno())  # a template that has its name must be whole


def is_fresh(mount_point: Path, *, size_bytes: int, max_files: int) -> bool:
    """Whether a mounted disk has exactly as much free as a new one must have."""
    free = os.statvfs(mount_point)
    return (free.f_bavail, free.f_favail) == (_blocks(size_bytes + SLACK_BYTES), max_files)


def _blocks(size_bytes: int) -> int:
    return -(-size_bytes // _BLOCK)


def _room_for(free_blocks: int, max_files: int) -> int:
    """Blocks of a filesystem that certainly has this many free; the surplus is used up later."""
    groups = free_blocks // _BLOCKS_PER_GROUP + 1
    used = (max_files + _OWN_INODES) // _INODES_PER_BLOCK + 32 * groups + 64
    reserved_by_the_kernel = min((free_blocks + used) // 48, 4096)
    return free_blocks + used + reserved_by_the_kernel


def _make_filesystem(image: Path, *, blocks: int, inodes: int) -> None:
    command = [
        *("mke2fs", "-q", "-F", "-t", "ext4", "-O", _FEATURES),
        *("-b", str(_BLOCK), "-I", str(_BLOCK // _INODES_PER_BLOCK)),
        *("-N", str(inodes + _OWN_INODES), "-m", "0"),
        # With the same UUID, disks would look like one disk to the host.
        *("-U", "clear", "-e", "remount-ro"),
        # The kernel must have nothing to initialise in the background.
        *("-E", "nodiscard,lazy_itable_init=0,root_owner=0:0"),
        *(str(image), str(blocks)),
    ]
    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MKFS_SECONDS,
            check=True,
        )
    except FileNotFoundError:
        raise TemplateFailed("mke2fs is not installed (package e2fsprogs)") from None
    except subprocess.TimeoutExpired:
        raise TemplateFailed(f"mke2fs did not end within {_MKFS_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        message = error.stderr.decode(errors="replace").strip()[-300:]
        raise TemplateFailed(f"mke2fs failed: {message}") from None


def _lay_out(root: Path, layout: Layout | None) -> None:
    root.chmod(0o700)  # keeps the host's users out while it is mounted there
    _make_directory(root / _RESERVE, 0o700)
    if layout is None:
        for name in (TMP, VAR_TMP):
            _make_directory(root / name, 0o1777)
        return
    _make_directory(root / WORKSPACE, 0o1777)
    for name in (PROJECT_FILES, OUTPUTS):
        _make_directory(root / WORKSPACE / name, 0o755)
    if layout == Layout.SHARED:
        (root / WORKSPACE / AGENT_WORKSPACE).symlink_to(".")
    else:
        _make_directory(root / WORKSPACE / AGENT_WORKSPACE, 0o1777)


def _make_directory(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)  # whatever the umask is


def _leave_free(root: Path, *, blocks: int, files: int) -> None:
    """Use up what is free beyond the limits: inodes by empty files, blocks by a large file."""
    with (root / _RESERVE / "blocks").open("wb") as filler:
        surplus_files = os.statvfs(root).f_favail - files
        for number in range(surplus_files):
            (root / _RESERVE / str(number)).touch(exist_ok=False)
        filled = 0
        # More than one round, because the extents of the filler may take a block.
        for _ in range(8):
            surplus = os.statvfs(root).f_bavail - blocks
            filled += surplus
            if surplus_files < 0 or filled < 0:
                break
            if surplus == 0:
                return
            if surplus > 0:
                os.posix_fallocate(filler.fileno(), 0, filled * _BLOCK)
            else:
                filler.truncate(filled * _BLOCK)
    raise TemplateFailed("the filesystem does not leave as much free as it should")
