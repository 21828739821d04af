"""Makes hostile inputs of valid ones."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from random import Random

from tests.fuzz.target import Target

MAX_KEPT_BYTES = 4 << 20
"""Of inputs with outcomes of their own; then further ones replace larger ones."""
MAX_CHANGES = 6
_LAYOUTS = ("B", ">H", ">I", ">Q", "<H", "<I", "<Q")
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 9, 16, 63, 64, 127, 128, 255, 256, 511, 512, 513, 1023, 1024)
_NUMBERS += (4095, 4096, 32767, 32768, 65535, 65536, (1 << 20) - 1, 1 << 20, (1 << 31) - 1)
_NUMBERS += (1 << 31, (1 << 32) - 1, 1 << 32, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_DIGITS = re.compile(rb"[0-9]+")
_TEXTS = (b"", b"0", b"-1", b"1", b"9" * 30, b"\0", b"\n", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80")
_TEXTS += (b"\xf0\x9f\x98\x80", b"..", b"/", b"../", b"{}", b"[]", b"\\", b"%s", b"NaN", b"1e999")

Change = Callable[["Mutation", bytearray], None]


class Mutation:
    """Draws inputs for one target, and learns which are worth changing further."""

    def __init__(self, target: Target, random: Random) -> None:
        self._target = target
        self._random = random
        self._kept: list[bytes] = [*target.seeds, *target.found]
        self._seed_count = len(self._kept)
        self._kept_bytes = 0
        self._seen: set[object] = set()
        self._changes = _WITH_WORDS if target.words else _CHANGES

    @property
    def outcomes(self) -> int:
        return len(self._seen)

    def draw(self) -> bytes:
        data = bytearray(self._random.choice(self._kept))
        for _ in range(self._random.randint(1, MAX_CHANGES)):
            self._random.choice(self._changes)(self, data)
        changed = bytes(data[: self._target.max_bytes])
        # Now and then they stay wrong: that has to be noticed, too.
        if self._target.repair is not None and self._random.random() < 0.85:
            changed = self._target.repair(changed, self._random)[: self._target.max_bytes]
        return changed

    def learn(self, data: bytes, outcome: object) -> None:
        if outcome in self._seen:
            return
        self._seen.add(outcome)
        if self._kept_bytes + len(data) <= MAX_KEPT_BYTES:
            self._kept.append(data)
            self._kept_bytes += len(data)
        elif self._seed_count < len(self._kept):
            number = self._random.randrange(self._seed_count, len(self._kept))
            if len(data) <= len(self._kept[number]):
                self._kept[number] = data

    def span(self, data: Sequence[int], longest: int = 64) -> slice:
        """Somewhere in the data, mostly short."""
        begin = self._random.randrange(len(data) + 1)
        size = self._random.randint(1, longest)
        if self._random.random() < 0.1:
            size = self._random.randint(1, max(1, len(data)))
        return slice(begin, min(len(data), begin + size))

    # --- changes ---

    def flip(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def set(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] = self._random.randrange(256)

    def number(self, data: bytearray) -> None:
        """A number that is close to some limit, in place of what is there."""
        layout = self._random.choice(_LAYOUTS)
        size = struct.calcsize(layout)
        value = self._random.choice(_NUMBERS) % (1 << 8 * size)
        if len(data) >= size:
            struct.pack_into(layout, data, self._random.randrange(len(data) - size + 1), value)

    def insert(self, data: bytearray) -> None:
        begin = self.span(data).start
        data[begin:begin] = self._random.choice(_TEXTS) or self._random.randbytes(
            self._random.randint(1, 16)
        )

    def word(self, data: bytearray) -> None:
        span = self.span(data, 8)
        if self._random.random() < 0.7:
            span = slice(span.start, span.start)
        data[span] = self._random.choice(self._target.words)

    def delete(self, data: bytearray) -> None:
        del data[self.span(data)]

    def double(self, data: bytearray) -> None:
        span = self.span(data)
        data[span.start : span.start] = data[span]

    def repeat(self, data: bytearray) -> None:
        """Much of the same, which shows work that grows faster than the input."""
        piece = bytes(data[self.span(data, 16)])
        if piece:
            room = self._target.max_bytes - len(data)
            count = min(1 << self._random.randrange(15), max(0, room) // len(piece))
            begin = self.span(data).start
            data[begin:begin] = piece * count

    def splice(self, data: bytearray) -> None:
        """A part of another input."""
        other = self._random.choice(self._kept)
        data[self.span(data)] = other[self.span(other, 600)]

    def digits(self, data: bytearray) -> None:
        """A number in text."""
        found = _DIGITS.search(data, self.span(data).start) or _DIGITS.search(data)
        if found is not None:
            value = self._random.choice(_NUMBERS)
            text = b"%o" % value if self._random.random() < 0.3 else b"%d" % value
            data[found.start() : found.start() + self._random.randint(1, 12)] = text

    def cut(self, data: bytearray) -> None:
        del data[self.span(data).start :]


_CHANGES: tuple[Change, ...] = (
    *(Mutation.flip, Mutation.set, Mutation.insert, Mutation.delete, Mutation.double),
    *(Mutation.repeat, Mutation.digits, Mutation.cut),
    *(Mutation.number, Mutation.splice) * 2,
)
"""Some are worth more than others."""
_WITH_WORDS = _CHANGES + (Mutation.word,) * 3
