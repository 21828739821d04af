"""The number of lines that ended before an offset, at regular distances."""

from __future__ import annotations

from array import array

MAX_MARKS = 1024
LONG_LINE = 2048
"""Average length from which searching for each newline is faster than counting them."""


def newlines_in(data: bytes | bytearray, start: int, end: int) -> int:
    """The number of newlines. A search reads a few bytes in the time in which a count reads one."""
    count = 0
    for _ in range((end - start) // LONG_LINE):
        found = data.find(b"\n", start, end)
        if found < 0:
            return count
        count, start = count + 1, found + 1
    return count + data.count(b"\n", start, end)


class LineIndex:
    """Marks at multiples of `step`, so that lines keep their numbers when others are dropped.

    The step grows with the length, so there are never many more than MAX_MARKS marks.
    """

    def __init__(self, offset: int, newlines: int, *, step: int) -> None:
        self._step = step
        self._first = -(-offset // step)
        """Number of the first mark; mark `n` is at offset `n * step`."""
        self._counts = array("Q", [newlines] if offset % step == 0 else [])

    def reaches(self, offset: int) -> bool:
        """Whether the first mark at or after `offset` is in the index, or will be."""
        return self._first <= -(-offset // self._step)

    def add(self, offset: int, newlines: int, data: bytes | bytearray) -> int:
        """Index `data`, which begins at `offset` after `newlines`; returns the newlines then."""
        position = 0
        mark = self._step - offset % self._step
        while mark <= len(data):
            newlines += newlines_in(data, position, mark)
            self._counts.append(newlines)
            position, mark = mark, mark + self._step
        newlines += newlines_in(data, position, len(data))
        while len(self._counts) > MAX_MARKS:
            self._thin_out()
        return newlines

    def at_or_after(self, offset: int) -> tuple[int, int] | None:
        """The first mark at or after `offset`, and the newlines before it."""
        number = max(self._first, -(-offset // self._step))
        if number - self._first >= len(self._counts):
            return None
        return number * self._step, self._counts[number - self._first]

    def drop_before(self, offset: int) -> None:
        count = min(-(-offset // self._step) - self._first, len(self._counts))
        if count > 0:
            del self._counts[:count]
            self._first += count

    def widen(self, step: int) -> None:
        """Increase the distance between marks to at least `step`, and to less than twice that."""
        while self._step < step:
            self._thin_out()

    def shift(self, newlines: int) -> None:
        """Count that many more before every mark, or fewer: damaged bytes may hold more newlines
        than were ever written."""
        self._counts = array("Q", [max(0, count + newlines) for count in self._counts])

    def _thin_out(self) -> None:
        self._counts = self._counts[self._first % 2 :: 2]
        self._first = -(-self._first // 2)
        self._step *= 2
