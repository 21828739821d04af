"""Where tests put their files."""

from __future__ import annotations

import os
import shutil

_MEMORY, _DISK = "/dev/shm", "/tmp"
_ROOM = 2 << 30


def quick_directory() -> str:
    """In memory, if there is room: what uses fakes would mostly wait for the disk."""
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM
    return _MEMORY if has_room else _DISK
