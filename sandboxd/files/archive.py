"""Archives as they are asked for and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from sandboxd.files.entries import LeftOut
from sandboxd.files.paths import FilePath

MAX_TOLD = 1000
"""Members left out that are told one by one."""


class Compression(IntEnum):
    """Numbers as in the protos."""

    NONE = 1
    GZIP = 2
    ZSTD = 3


@dataclass(frozen=True, kw_only=True)
class TarSpec:
    path: FilePath
    compression: Compression = Compression.NONE
    replace: bool = True


@dataclass(frozen=True, kw_only=True)
class TarUnpacked:
    extracted: int
    extracted_bytes: int
    refused: Sequence[LeftOut]
    refused_count: int


@dataclass(frozen=True, kw_only=True)
class TarMade:
    members: int
    skipped: Sequence[LeftOut]
    skipped_count: int
