"""Reads the filesystems that we make, from their image files, without mounting them.

What is read was written by the kernel at the wish of commands. Nothing in it is believed: every
number is checked before it is used, nothing recurses, and what is not understood is refused.
"""

from __future__ import annotations

from sandboxd.workspaces.ext4.attributes import attributes_of
from sandboxd.workspaces.ext4.damage import Damaged
from sandboxd.workspaces.ext4.directory import NameType, names_in
from sandboxd.workspaces.ext4.extents import Run, runs_of
from sandboxd.workspaces.ext4.image import BLOCK, ROOT, Image, Tables
from sandboxd.workspaces.ext4.inode import Inode, InodeType, parse_inode
from sandboxd.workspaces.ext4.links import target_of

__all__ = [
    "BLOCK",
    "ROOT",
    "Damaged",
    "Image",
    "Inode",
    "InodeType",
    "NameType",
    "Run",
    "Tables",
    "attributes_of",
    "names_in",
    "parse_inode",
    "runs_of",
    "target_of",
]
