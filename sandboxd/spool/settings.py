"""Settings of spools."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sandboxd.spool.store import Disk

PAGE = 4096
MIN_MEMORY_BYTES = PAGE
MIN_FILE_BYTES = 4 * PAGE


@dataclass(frozen=True, kw_only=True)
class SpoolSettings:
    directory: Path
    """Directory of the files, made with the first of them; only the daemon may write to it."""
    memory_bytes: int = 64 * 1024
    """Bytes of a stream that are held in memory before it is written to disk."""
    max_bytes: int = 64 * 1024 * 1024
    """Bytes of a stream that are kept on disk; beyond them the middle is dropped."""
    disk: Disk = field(default_factory=Disk)

    def __post_init__(self) -> None:
        if self.memory_bytes < MIN_MEMORY_BYTES:
            raise ValueError(f"memory_bytes must be at least {MIN_MEMORY_BYTES}")
        if self.max_bytes < max(MIN_FILE_BYTES, self.memory_bytes):
            raise ValueError(f"max_bytes must be at least {MIN_FILE_BYTES} and memory_bytes")
