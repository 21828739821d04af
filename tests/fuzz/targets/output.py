"""Output of commands, as it is kept, shown and searched."""

from __future__ import annotations

import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sandboxd.errors import InvalidRequest
from sandboxd.guest.frames import Stream
from sandboxd.spool import SearchQuery, Spool, SpoolBudget, SpoolSettings
from sandboxd.spool.settings import MIN_FILE_BYTES, MIN_MEMORY_BYTES
from tests.fuzz.target import Run, Target

MEMORY = Path("/dev/shm")
OUT = Stream.STDOUT
PIECES = (8192, 1000, 100, 17)


class Kept:
    """A spool so small that the middle of an input is dropped."""

    def __init__(self, directory: Path) -> None:
        self._settings = SpoolSettings(
            directory=directory, memory_bytes=MIN_MEMORY_BYTES, max_bytes=MIN_FILE_BYTES
        )

    def show(self, data: bytes) -> Hashable:
        """Keep what follows the first line, search it for that, and show it in some sizes."""
        head, _, output = data.partition(b"\n")
        first = head[0] if head else 0
        size = PIECES[first % len(PIECES)]
        spool = Spool(self._settings, "s-e", SpoolBudget(1 << 30))
        try:
            for begin in range(0, len(output), size):
                spool.append(OUT, output[begin : begin + size])
            assert spool.length(OUT) == len(output)
            for max_bytes in (1, 10, 100, 1000 + first):
                for collapse in (False, True):
                    self._check_preview(spool, max_bytes, collapse=collapse)
            self._check_reads(spool, output)
            return self._search(spool, head[1:].decode(errors="replace")), first % 4
        finally:
            spool.delete()

    def _check_preview(self, spool: Spool, max_bytes: int, *, collapse: bool) -> None:
        shown = spool.preview(OUT, max_bytes=max_bytes, collapse=collapse)
        assert len(shown.head) + len(shown.tail) <= max_bytes
        assert shown.omitted_bytes >= 0
        assert shown.omitted_lines >= 0
        if not collapse:
            seen = len(shown.head) + len(shown.tail) + shown.omitted_bytes
            assert seen == spool.length(OUT)

    def _check_reads(self, spool: Spool, output: bytes) -> None:
        """Every byte is where it was written, or dropped."""
        offset = 0
        while offset < len(output):
            piece = spool.read(OUT, offset, 4096)
            assert piece.offset == offset + piece.skipped
            assert piece.data == output[piece.offset : piece.offset + len(piece.data)]
            assert piece.data or piece.skipped
            offset = piece.offset + len(piece.data)

    def _search(self, spool: Spool, pattern: str) -> Hashable:
        try:
            query = SearchQuery(pattern=pattern, max_matches=5, before_lines=1, after_lines=1)
            found = spool.search(query)
        except InvalidRequest as error:
            return error.problem[:30]
        assert len(found.matches) <= 5
        return len(found.matches), found.stopped_by


@contextmanager
def keeping() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="sbx-fuzz-", dir=MEMORY) as name:
        kept = Kept(Path(name))

        async def run(data: bytes) -> Hashable:
            return kept.show(data)

        yield run


OUTPUT = Target(
    name="output",
    open=keeping,
    seeds=[
        b"0line\nfirst line\nsecond line\n",
        b"1^x+\n" + b"x\n" * 3000,
        b"2(a|b)*c\n" + b"\x1b[31mred\x1b[0m\r\n10%\r20%\r100%\nab\b\bcd\n",
        b"3.\n" + "é€😀".encode() * 400 + b"\xff\xfe\n",
        b"0a\n" + b"\x1b]0;title\x07\x1bP1;2q\x1b\\" + b"long " * 3000 + b"\nend",
        b"1\\bend\\b\n" + bytes(5000) + b"\nend\n",
    ],
    words=[
        *(b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b\\", b"\x07", b"\r", b"\b", b"\n", b"\r\n", b"\x1b"),
        *(b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"(?i)", b".*", b"{1000}", b"(", b"\\pL"),
    ],
    max_bytes=32 << 10,
)
