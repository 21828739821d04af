"""The content of files, as chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sandboxd.snapshots.contract import ChunkRef, Hole, Piece
from sandboxd.snapshots.packs import CHUNK_BYTES, PackWriter, unplaced
from sandboxd.workspaces.ext4 import BLOCK, Image, Inode, Run, runs_of

Known = Callable[[bytes, int], ChunkRef | None]
"""Finds a chunk that is stored already, by digest and size."""


@dataclass
class Kept:
    """How much content was seen while a snapshot was taken."""

    known_bytes: int = 0
    new_bytes: int = 0


class ContentReader:
    """Reads files from an image and stores the chunks that are new."""

    def __init__(self, image: Image, writer: PackWriter, known: Known) -> None:
        self._image = image
        self._writer = writer
        self._known = known
        self.kept = Kept()

    def pieces_of(self, file: Inode) -> tuple[Piece, ...]:
        """The whole content of a file. Holes are not read, however large they are."""
        if file.size == 0:
            return ()
        pieces: list[Piece] = []
        position = 0
        for start, runs in _grouped(runs_of(self._image, file), file.size):
            if start > position:
                pieces.append(Hole(start - position))
            end = min(start + CHUNK_BYTES, file.size)
            pieces.append(self._keep(self._read(start, end, runs)))
            position = end
        if position < file.size:
            pieces.append(Hole(file.size - position))
        return tuple(pieces)

    def _read(self, start: int, end: int, runs: list[Run]) -> bytearray:
        data = bytearray(end - start)
        view = memoryview(data)
        for first, block, count in runs:
            begin = max(first * BLOCK, start)
            stop = min((first + count) * BLOCK, end)
            if begin < stop:
                place = view[begin - start : stop - start]
                self._image.read_into(place, block, begin - first * BLOCK)
        return data

    def _keep(self, data: bytearray) -> ChunkRef:
        digest = hashlib.sha256(data).digest()
        if self._writer.has(digest):
            return unplaced(digest, len(data))
        known = self._known(digest, len(data))
        if known is not None:
            self.kept.known_bytes += len(data)
            return known
        self._writer.add(digest, data)
        self.kept.new_bytes += len(data)
        return unplaced(digest, len(data))


def _grouped(runs: list[Run], size: int) -> Iterator[tuple[int, list[Run]]]:
    """The runs of each chunk that has any, with the position of the chunk in the file."""
    groups: dict[int, list[Run]] = {}
    per_chunk = CHUNK_BYTES // BLOCK
    for run in runs:
        last = min(run.first + run.length - 1, (size - 1) // BLOCK)
        for number in range(run.first // per_chunk, last // per_chunk + 1):
            groups.setdefault(number, []).append(run)
    for number in sorted(groups):
        yield number * CHUNK_BYTES, groups[number]
