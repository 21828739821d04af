"""What a spool may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sandboxd.spool.disk import Disk

PAGE = 4096
MIN_MEMORY_BYTES = PAGE
MIN_FILE_BYTES = 4 * PAGE


@dataclass(frozen=True, kw_only=True)
class SpoolSettings:
    directory: Path
    """Made when the first file is; nobody else may write to it."""
    memory_bytes: int = 64 * 1024
    """What a stream holds in memory before it goes to disk."""
    max_bytes: int = 64 * 1024 * 1024
    """What is kept of a stream on disk; beyond it the middle is dropped."""
    disk: Disk = field(default_factory=Disk)

    def __post_init__(self) -> None:
        if self.memory_bytes < MIN_MEMORY_BYTES:
            raise ValueError(f"memory_bytes is at least {MIN_MEMORY_BYTES}")
        if self.max_bytes < max(MIN_FILE_BYTES, self.memory_bytes):
            raise ValueError(f"max_bytes is at least {MIN_FILE_BYTES}, and at least memory_bytes")
