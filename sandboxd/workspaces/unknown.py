"""Files that may be a user's but belong to no known session: moved aside, and deleted later.

The records that name them may have been lost, and come back with a backup.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import structlog

log = structlog.get_logger()

DIRECTORY = "unknown"


def move_aside(path: Path) -> None:
    """Move it to the directory of unknown files beside it, where its age counts from now on.

    If that fails, as on a full disk, it stays where it is until the next start.
    """
    aside = path.parent / DIRECTORY
    try:
        aside.mkdir(mode=0o700, exist_ok=True)
        os.utime(path)
        path.rename(aside / path.name)
    except OSError as error:
        log.error("workspace.unknown", kept_as=path.name, error=str(error))
        return
    log.error("workspace.unknown", kept_as=f"{DIRECTORY}/{path.name}")


def outdated(directory: Path, seconds: float) -> tuple[Sequence[Path], float | None]:
    """Unknown files beside those of a directory that are older than this, and the seconds until the
    next one is; None if there is no other."""
    horizon = time.time() - seconds
    times = {path: path.lstat().st_mtime for path in (directory / DIRECTORY).glob("*")}
    later = [changed_at - horizon for changed_at in times.values() if changed_at > horizon]
    old = [path for path, changed_at in times.items() if changed_at <= horizon]
    return old, min(later, default=None)
