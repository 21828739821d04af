"""What symbolic links lead to."""

from __future__ import annotations

from sandboxd.workspaces.ext4.damage import require
from sandboxd.workspaces.ext4.extents import read_whole
from sandboxd.workspaces.ext4.image import BLOCK, Image
from sandboxd.workspaces.ext4.inode import BODY, Inode


def target_of(image: Image, link: Inode) -> bytes:
    """Short ones are in the inode, longer ones in a block."""
    require(0 < link.size < BLOCK, "a link has an impossible length")
    target = link.body[: link.size] if link.size < BODY else read_whole(image, link, BLOCK)
    require(b"\0" not in target, "a link leads to something that is not a path")
    return target
