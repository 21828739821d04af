"""Replies of the store, checked: what is in it may have been written by another release."""

from __future__ import annotations

import json
from typing import NamedTuple

from sandboxd.cluster.contract import (
    Elsewhere,
    Load,
    Mine,
    Origin,
    Place,
    PlaceState,
    Worker,
    WorkerState,
)
from sandboxd.cluster.store import StoreUnavailable

MOST_BYTES = 16 * 1024 * 1024


class Waits(NamedTuple):
    seconds: float


class Refused(NamedTuple):
    """The worker, or this write, has no standing: `fenced`, `assert`, `stolen`, `collision`."""

    why: str


class Registered(NamedTuple):
    generation: int


class Taken(NamedTuple):
    """Another machine has this id."""


class Renewed(NamedTuple):
    era: str
    number: int
    is_told: bool
    is_settled: bool


class Asserted(NamedTuple):
    era: str
    number: int
    is_settled: bool
    lost: tuple[str, ...]


class Done(NamedTuple):
    pass


class Claimed(NamedTuple):
    """An answer to a claim, and the era it is of."""

    era: str
    answer: Mine | Elsewhere | Waits


class Found(NamedTuple):
    digest: str
    place: Place


class _Fields:
    """Fields of a reply, read from left to right."""

    def __init__(self, values: list[object]) -> None:
        self._values = values
        self._at = 0

    def _next(self) -> object:
        if self._at >= len(self._values):
            raise ValueError("too short")
        self._at += 1
        return self._values[self._at - 1]

    def text(self) -> str:
        value = self._next()
        if not isinstance(value, str):
            raise ValueError("not a text")
        return value

    def whole(self) -> int:
        value = self.text()
        if not value.isascii() or not value.isdigit() or len(value) > 18:
            raise ValueError("not a whole number")
        return int(value)

    def flag(self) -> bool:
        value = self._next()
        if not isinstance(value, bool):
            raise ValueError("not a flag")
        return value

    def texts(self) -> tuple[str, ...]:
        rest = []
        while self._at < len(self._values):
            rest.append(self.text())
        return tuple(rest)

    def lists(self) -> list[_Fields]:
        rest = self._values[self._at :]
        if not all(isinstance(entry, list) for entry in rest):
            raise ValueError("not lists")
        return [_Fields(entry) for entry in rest if isinstance(entry, list)]


def registered(reply: bytes) -> Registered | Taken:
    kind, fields = _open(reply)
    with _malformed(reply):
        if kind == "taken":
            return Taken()
        _expect(kind, "ok")
        return Registered(fields.whole())


def renewed(reply: bytes) -> Renewed | Refused:
    kind, fields = _open(reply)
    with _malformed(reply):
        if kind == "fenced":
            return Refused(kind)
        _expect(kind, "ok")
        return Renewed(fields.text(), fields.whole(), fields.flag(), fields.flag())


def asserted(reply: bytes) -> Asserted | Refused:
    kind, fields = _open(reply)
    with _malformed(reply):
        if kind == "fenced":
            return Refused(kind)
        _expect(kind, "ok")
        return Asserted(fields.text(), fields.whole(), fields.flag(), fields.texts())


def claimed(reply: bytes) -> Claimed | Refused:
    kind, fields = _open(reply)
    with _malformed(reply):
        if kind in ("fenced", "assert", "collision"):
            return Refused(kind)
        era = fields.text()
        if kind == "waits":
            return Claimed(era, Waits(fields.whole() / 1000))
        if kind == "elsewhere":
            session_id, worker, address = fields.text(), fields.text(), fields.text()
            found = Elsewhere(
                session_id=session_id, worker=worker, address=address, epoch=fields.whole()
            )
            return Claimed(era, found)
        _expect(kind, "mine")
        session_id, epoch, head = fields.text(), fields.whole(), fields.text()
        seq, origin = fields.whole(), Origin(fields.text())
        mine = Mine(session_id=session_id, epoch=epoch, head=head, seq=seq, origin=origin)
        return Claimed(era, mine)


def written(reply: bytes) -> Done | Refused:
    """The answer to a commit, a release, a fence or a leave."""
    kind, _ = _open(reply)
    with _malformed(reply):
        if kind in ("fenced", "assert", "stolen", "runs"):
            return Refused(kind)
        _expect(kind, "ok")
        return Done()


def found(reply: bytes) -> Found | None:
    kind, fields = _open(reply)
    with _malformed(reply):
        return _found(kind, fields)


def confirmed(reply: bytes) -> Found | Waits | None:
    kind, fields = _open(reply)
    with _malformed(reply):
        if kind == "waits":
            return Waits(fields.whole() / 1000)
        return _found(kind, fields)


def _found(kind: str, fields: _Fields) -> Found | None:
    if kind == "none":
        return None
    _expect(kind, "place")
    digest, session_id, worker = fields.text(), fields.text(), fields.text()
    address, epoch, state = fields.text(), fields.whole(), PlaceState(fields.text())
    place = Place(
        session_id=session_id,
        worker=worker,
        address=address,
        epoch=epoch,
        state=state,
        head=fields.text(),
        seq=fields.whole(),
    )
    return Found(digest, place)


def workers(reply: bytes) -> list[Worker]:
    kind, fields = _open(reply)
    with _malformed(reply):
        _expect(kind, "workers")
        return sorted((_worker(entry) for entry in fields.lists()), key=lambda worker: worker.id)


def load_text(load: Load) -> str:
    """How a load is written into the store."""
    figures = [load.warm, load.used, load.starting, load.capacity]
    return json.dumps([*figures, sorted(load.environments), sorted(load.package_sets)])


def _worker(fields: _Fields) -> Worker:
    worker_id, address, generation = fields.text(), fields.text(), fields.whole()
    state, lease = WorkerState(fields.text()), fields.whole() / 1000
    return Worker(
        id=worker_id,
        address=address,
        generation=generation,
        state=state,
        lease_seconds=lease,
        version=fields.text(),
        load=_load(fields.text()),
    )


def _load(text: str) -> Load:
    values = json.loads(text)
    if not isinstance(values, list) or len(values) < 6:  # a later release may add some
        raise ValueError("not a load")
    figures, names = values[:4], values[4:6]
    if not all(isinstance(figure, int) and 0 <= figure < 2**31 for figure in figures):
        raise ValueError("not figures")
    for some in names:
        if not isinstance(some, list) or not all(isinstance(name, str) for name in some):
            raise ValueError("not names")
    return Load(
        warm=figures[0],
        used=figures[1],
        starting=figures[2],
        capacity=figures[3],
        environments=frozenset(names[0]),
        package_sets=frozenset(names[1]),
    )


def _open(reply: bytes) -> tuple[str, _Fields]:
    with _malformed(reply):
        if len(reply) > MOST_BYTES:
            raise ValueError("too long")
        values = json.loads(reply)
        if not isinstance(values, list):
            raise ValueError("not a list")
        fields = _Fields(values)
        return fields.text(), fields


def _expect(kind: str, wanted: str) -> None:
    if kind != wanted:
        raise ValueError("of an unknown kind")


class _malformed:  # noqa: N801
    """Turns whatever is wrong with a reply into one error."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (ValueError, RecursionError)):
            shown = self._reply[:100]
            raise StoreUnavailable(f"the store gave a reply that is {error}: {shown!r}") from error
