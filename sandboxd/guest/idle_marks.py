"""Which workers wait for a request: each notes it in a page that it shares with PID 1."""

import mmap

PLACES = 64
"""More than there are workers at once; one that finds no place does not stay."""


class IdleMarks:
    """A mark for each place. A worker that works is never marked; one that is marked may have got a
    request this moment, so whoever kills it must expect that."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, PLACES)
        self._free = list(range(PLACES))

    def take(self) -> int | None:
        """A place for another worker; None if there is none."""
        if not self._free:
            return None
        place = self._free.pop()
        self._page[place] = 0
        return place

    def give_back(self, place: int) -> None:
        """Its worker is gone."""
        self._free.append(place)

    def is_set(self, place: int) -> bool:
        return self._page[place] != 0

    def set(self, place: int, is_idle: bool) -> None:
        self._page[place] = is_idle
