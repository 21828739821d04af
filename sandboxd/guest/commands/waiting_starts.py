"""Commands for which there was no process yet."""

import time
from collections.abc import Iterator, Mapping

from ..frames import ExecState, Kind
from .request import label_of, size_of

WAIT_SECONDS = 5.0
"""On a host that is overloaded it may well take so long."""
RETRY_SECONDS = 0.02
ROOM_SECONDS = 1.0
"""After which leftovers of earlier commands have to go, and between two times that they do."""
MAX_WAITING = 64
MAX_WAITING_CHARACTERS = 8 << 20
"""Of all requests together: the guest has little memory."""


class WaitingStart:
    """A command that was asked for and does not run yet."""

    def __init__(self, channel: int, request: Mapping[str, object]) -> None:
        self.channel = channel
        self.request = request
        self.label = label_of(request)
        self.size = size_of(request)
        self.since = time.monotonic()
        self._give_up_at = self.since + WAIT_SECONDS
        self._make_room_at = self.since + ROOM_SECONDS
        self.tries = 0
        """How often a context for it did not come to be."""
        self.is_attached = True
        """Whether the daemon at the other end of this connection has asked for it. Otherwise it is
        not tried, as it could not be reported that it cannot be started."""
        self.is_resumed = False
        """Whether that is another daemon than the one it came from."""
        self._frames: list[tuple[int, bytes]] = []

    def resume(self) -> None:
        self.is_attached = self.is_resumed = True
        self._give_up_at = time.monotonic() + WAIT_SECONDS

    def keep(self, kind: int, payload: bytes) -> None:
        """Input is bounded by its window, the rest here: of signals one of each is kept, as the
        kernel does, and of sizes the last."""
        if kind == Kind.RESIZE:
            self._frames = [kept for kept in self._frames if kept[0] != kind]
        elif kind != Kind.INPUT:
            self._frames = [kept for kept in self._frames if kept != (kind, payload)]
        self._frames.append((kind, payload))

    def kept(self) -> Iterator[tuple[int, bytes]]:
        """What came for it meanwhile, in order."""
        yield from self._frames

    @property
    def is_overdue(self) -> bool:
        return self.is_attached and time.monotonic() >= self._give_up_at

    def needs_room(self) -> bool:
        """Whether it has waited so long, since it began or was given room, that it should be."""
        now = time.monotonic()
        if now < self._make_room_at:
            return False
        self._make_room_at = now + ROOM_SECONDS
        return True

    def state(self) -> ExecState:
        return ExecState(None, 0, 0, self.label)


class WaitingStarts(list[WaitingStart]):
    """First come, first served; bounded. A list: on every turn it is asked whether it is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._retry_at = 0.0

    @property
    def next_try_at(self) -> float:
        is_any = any(waited.is_attached for waited in self)
        return self._retry_at if is_any else float("inf")

    @property
    def is_full(self) -> bool:
        size = sum(waited.size for waited in self)
        return len(self) >= MAX_WAITING or size >= MAX_WAITING_CHARACTERS

    def get(self, channel: int) -> WaitingStart | None:
        return next((waited for waited in self if waited.channel == channel), None)

    def keep(self, kind: int, channel: int, payload: bytes) -> bool:
        """Keep a frame for one that waits; False if it is for another."""
        waited = self.get(channel)
        if waited is not None:
            waited.keep(kind, payload)
        return waited is not None

    def add(self, waited: WaitingStart) -> None:
        """Behind those that came before it, also when it was tried in vain."""
        self.append(waited)
        self.sort(key=lambda waited: waited.since)
        self._retry_at = time.monotonic() + RETRY_SECONDS

    def take(self, channel: int) -> WaitingStart | None:
        waited = self.get(channel)
        if waited is not None:
            self.remove(waited)
        return waited

    def take_due(self) -> WaitingStart | None:
        """The one to be tried now, if it is time."""
        if self.next_try_at > time.monotonic():
            return None
        first = next(waited for waited in self if waited.is_attached)
        self.remove(first)
        return first

    def take_overdue(self) -> list[WaitingStart]:
        overdue = [waited for waited in self if waited.is_overdue]
        self[:] = [waited for waited in self if waited not in overdue]
        return overdue
