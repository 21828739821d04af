"""The discrete events: opens, sandboxes that start, restores, parks, and hosts that are lost.

Every session is in one state at a time, and `_move` is the only place that changes it. Turns and
commits are not events: their number follows from the time for which a session is used.
"""

from __future__ import annotations

import heapq
import math
import random
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

from benchmarks.growth.inputs import Fleet, Inputs, Users

CANDIDATES = 3
"""Hosts that are compared for one placement."""


class State(IntEnum):
    PARKED = 0
    OPENING = 1
    LIVE = 2
    LOST = 3
    """Its host is lost; its files are those of the last commit."""
    EXPIRED = 4


class Event(IntEnum):
    ARRIVAL = 0
    """Somebody opens a thread that has no sandbox."""
    PLACE = 1
    """A session looks for a host."""
    STARTED = 2
    """A sandbox of a host is warm."""
    SERVED = 3
    """A session can be used."""
    PARK = 4
    LOSS = 5


@dataclass(slots=True)
class Host:
    used: int = 0
    """Sandboxes with a session, or with one that is being opened."""
    warm: int = 0
    starting: int = 0
    waiting: deque[int] = field(default_factory=deque)
    """Sessions that wait for a sandbox."""
    restoring: int = 0
    to_restore: deque[int] = field(default_factory=deque)
    is_lost: bool = False

    @property
    def sandboxes(self) -> int:
        return self.used + self.warm + self.starting


@dataclass(slots=True)
class Session:
    """One that is being opened, or is live."""

    wanted_at: float
    """When its user asked."""
    until: float
    """Until then its user goes on."""
    is_restored: bool
    """Whether it has files."""
    host: int = -1
    is_reopened: bool = False
    """Whether its host was lost while it was used."""
    committed_at: float = 0.0
    """When it was served; commits follow at equal distances."""


@dataclass
class Result:
    """What was counted."""

    opens: int = 0
    open_ms: array[float] = field(default_factory=lambda: array("d"))
    reopen_ms: array[float] = field(default_factory=lambda: array("d"))
    """From the first try after the fence."""
    misses: int = 0
    """Opens that found no warm sandbox."""
    refused: int = 0
    """Opens for which no candidate had a place."""
    unreachable: int = 0
    """Tries on a host that was lost and not yet known to be."""
    parks: int = 0
    restores: int = 0
    restored_mb: float = 0.0
    turns: float = 0.0
    commits: float = 0.0
    created: int = 0
    lost_live: int = 0
    lost_active: int = 0
    lost_work_seconds: list[float] = field(default_factory=list)
    """Time since the last commit, of the sessions that were in use."""
    served_again_after: float = 0.0
    """Seconds from the loss until the last of these was served."""
    reopens_per_second: dict[int, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=lambda: [0] * len(State))
    used: list[int] = field(default_factory=list)
    """Per host that is left, at the end."""


class Simulation:
    def __init__(
        self,
        fleet: Fleet,
        inputs: Inputs | None = None,
        users: Users | None = None,
        *,
        opens: Iterable[float] | None = None,
    ) -> None:
        """With `opens`, a session is opened at these times, and there are none at first."""
        self.fleet = fleet
        self.inputs = inputs or Inputs()
        self.users = users or Users()
        self.result = Result()
        self.now = 0.0
        self._random = random.Random(fleet.seed)
        self._events: list[tuple[float, int, Event, int, int]] = []
        self._number = 0
        self.hosts = [Host(warm=fleet.warm) for _ in range(fleet.hosts)]
        self._listed = list(range(fleet.hosts))
        """Hosts that are not known to be lost."""
        self.states = bytearray()
        self._megabytes = array("f")
        self._epochs = array("I")
        self._away: list[int] = []
        """Parked and lost sessions."""
        self._sessions: dict[int, Session] = {}
        self._returned_at = math.inf
        self._known_lost_at = math.inf
        self._opens_per_second = 0.0
        if opens is None:
            self._opens_per_second = fleet.opens_per_second(self.users)
            self._fill()
            self._arrive_later()
        else:
            for at in opens:
                self._at(at, Event.ARRIVAL)
        if fleet.lost_hosts:
            self._at(fleet.lost_at, Event.LOSS)
        self._steps = (
            self._arrival,
            self._place,
            self._started,
            self._served,
            self._park,
            self._loss,
        )

    def run(self) -> Result:
        """Until the simulated time is over."""
        while self._events and self._events[0][0] <= self.fleet.seconds:
            self.now, _, event, session, epoch = heapq.heappop(self._events)
            self._steps[event](session, epoch)
        self.now = self.fleet.seconds
        self.result.used = [host.used for host in self.hosts if not host.is_lost]
        return self.result

    def state_of(self, session: int) -> State:
        return State(self.states[session])

    # Sessions

    def _fill(self) -> None:
        """The fleet as it is in the middle of a day: live sessions of every age."""
        users, fleet = self.users, self.fleet
        longest = users.most_active_seconds + users.park_after_seconds
        live = min(fleet.live(users), fleet.sessions, fleet.hosts * (fleet.sandboxes - fleet.warm))
        for number in range(live):
            active = self._active_seconds()
            while self._random.random() > (active + users.park_after_seconds) / longest:
                active = self._active_seconds()  # a long one is met more often than a short one
            age = self._random.random() * (active + users.park_after_seconds)
            session = self._create(State.LIVE)
            host = number % fleet.hosts
            self.hosts[host].used += 1
            self._sessions[session] = Session(
                -age, active - age, is_restored=True, host=host, committed_at=-age
            )
            self._at(active - age + users.park_after_seconds, Event.PARK, session)
        self._park_many(fleet.sessions - live)
        self.result.created = 0

    def _park_many(self, count: int) -> None:
        """As `_create` for each, but fast."""
        first = len(self.states)
        self.states.extend(bytes([State.PARKED]) * count)
        self._megabytes.extend(array("f", bytes(4 * count)))
        self._epochs.extend(array("I", bytes(4 * count)))
        self._away.extend(range(first, first + count))
        self.result.counts[State.PARKED] += count

    def _create(self, state: State) -> int:
        session = len(self.states)
        self.states.append(state)
        self._megabytes.append(0.0)
        self._epochs.append(0)
        self.result.counts[state] += 1
        self.result.created += 1
        return session

    def _move(self, session: int, state: State) -> None:
        self.result.counts[self.states[session]] -= 1
        self.result.counts[state] += 1
        self.states[session] = state
        self._epochs[session] += 1

    def _megabytes_of(self, session: int) -> float:
        """The size of its workspace, which does not change."""
        users = self.users
        if not self._megabytes[session]:
            spread = math.sqrt(2 * math.log(users.mean_megabytes / users.median_megabytes))
            size = users.median_megabytes * math.exp(self._random.gauss(0.0, spread))
            self._megabytes[session] = min(size, users.most_megabytes)
        return self._megabytes[session]

    def _take_away(self) -> int:
        place = self._random.randrange(len(self._away))
        session, self._away[place] = self._away[place], self._away[-1]
        self._away.pop()
        return session

    def _active_seconds(self) -> float:
        users = self.users
        return self._random.uniform(users.least_active_seconds, users.most_active_seconds)

    # Events

    def _at(self, when: float, event: Event, session: int = -1) -> None:
        self._push(when, event, session, self._epochs[session] if session >= 0 else 0)

    def _push(self, when: float, event: Event, session: int, epoch: int) -> None:
        """An event of a session holds for one epoch: it does not count once its state changed."""
        self._number += 1
        heapq.heappush(self._events, (when, self._number, event, session, epoch))

    def _arrive_later(self) -> None:
        self._at(self.now + self._random.expovariate(self._opens_per_second), Event.ARRIVAL)

    def _arrival(self, _session: int, _epoch: int) -> None:
        returns = bool(self._away) and self._random.random() < self.users.returning_share
        if returns:
            session = self._take_away()
            was_lost = self.states[session] == State.LOST
            self._move(session, State.OPENING)
        else:
            session, was_lost = self._create(State.OPENING), False
            if len(self._away) > self.fleet.sessions // 2:
                self._move(self._take_away(), State.EXPIRED)  # the number that is kept stays
        until = self.now + self._active_seconds()
        begun = max(self.now, self._returned_at) if was_lost else self.now
        self._sessions[session] = Session(begun, until, is_restored=returns)
        self.result.opens += 1
        self._at(begun, Event.PLACE, session)
        if self._opens_per_second:
            self._arrive_later()

    def _place(self, number: int, epoch: int) -> None:
        if self._epochs[number] != epoch:
            return
        session = self._sessions[number]
        if self.now >= self._known_lost_at:
            self._known_lost_at = math.inf
            self._listed = [host for host in self._listed if not self.hosts[host].is_lost]
        choices = self._random.sample(self._listed, min(CANDIDATES, len(self._listed)))
        for choice in sorted(choices, key=self._load_of):
            host = self.hosts[choice]
            if host.is_lost:
                self.result.unreachable += 1
                self._at(self.now + self.fleet.connect_seconds, Event.PLACE, number)
                return
            # A warm sandbox becomes the session's; without one, a new one needs a place.
            if host.used + len(host.waiting) < self.fleet.sandboxes:
                session.host = choice
                self._enter(host, number)
                return
        self.result.refused += 1
        del self._sessions[number]
        if session.is_restored:
            self._move(number, State.PARKED)
            self._away.append(number)
        else:
            self._move(number, State.EXPIRED)

    def _load_of(self, number: int) -> int:
        host = self.hosts[number]
        return host.used + len(host.waiting) - min(host.warm, CANDIDATES)

    def _enter(self, host: Host, number: int) -> None:
        if host.warm:
            host.warm -= 1
            host.used += 1
            self._restore(host, number)
        else:
            self.result.misses += 1
            host.waiting.append(number)
        self._refill(self._sessions[number].host)

    def _refill(self, number: int) -> None:
        """Start what is missing, as many at once as is allowed."""
        host = self.hosts[number]
        wanted = self.fleet.warm + len(host.waiting) - host.warm - host.starting
        room = self.fleet.sandboxes - host.sandboxes
        slots = self.inputs.starts_at_once - host.starting
        for _ in range(min(wanted, room, slots)):
            host.starting += 1
            self._push(self.now + self.inputs.start_ms / 1000, Event.STARTED, number, 0)

    def _started(self, number: int, _epoch: int) -> None:
        host = self.hosts[number]
        if host.is_lost:
            return
        host.starting -= 1
        if host.waiting:
            host.used += 1
            self._restore(host, host.waiting.popleft())
        else:
            host.warm += 1
        self._refill(number)

    def _restore(self, host: Host, number: int) -> None:
        """Write its files with a core of the host, if it has any; others wait their turn."""
        session = self._sessions[number]
        fixed = (self.inputs.claim_ms + self.inputs.open_ms) / 1000
        if not session.is_restored:
            self._at(self.now + fixed, Event.SERVED, number)
        elif host.restoring < self.fleet.cores:
            host.restoring += 1
            size = self._megabytes_of(number)
            self.result.restores += 1
            self.result.restored_mb += size
            self._at(self.now + fixed + self.inputs.restore_ms(size) / 1000, Event.SERVED, number)
        else:
            host.to_restore.append(number)

    def _served(self, number: int, epoch: int) -> None:
        if self._epochs[number] != epoch:
            return
        session, result = self._sessions[number], self.result
        host = self.hosts[session.host]
        milliseconds = (self.now - session.wanted_at) * 1000
        if session.is_reopened:
            result.reopen_ms.append(milliseconds)
            result.served_again_after = self.now - self.fleet.lost_at
            second = int(self.now)
            result.reopens_per_second[second] = result.reopens_per_second.get(second, 0) + 1
        else:
            result.open_ms.append(milliseconds)
        if session.is_restored:
            host.restoring -= 1
            if host.to_restore:
                self._restore(host, host.to_restore.popleft())
        self._move(number, State.LIVE)
        self._count_use(session)
        session.committed_at = self.now
        self._at(max(session.until, self.now) + self.users.park_after_seconds, Event.PARK, number)

    def _count_use(self, session: Session) -> None:
        """The turns and commits until it is parked, except the last commit, which is the park's."""
        active = max(session.until - self.now, 0.0)
        self.result.turns += 1 + active // self.users.turn_seconds
        turns_between = self.inputs.commit_seconds / self.users.turn_seconds
        is_dirty = 1 - (1 - self.users.dirty_share) ** turns_between
        self.result.commits += active / self.inputs.commit_seconds * is_dirty

    def _park(self, number: int, epoch: int) -> None:
        if self._epochs[number] != epoch:
            return
        host = self._sessions.pop(number).host
        self.hosts[host].used -= 1
        self.result.parks += 1
        self._move(number, State.PARKED)
        self._away.append(number)
        self._refill(host)

    # Loss of hosts

    def _loss(self, _session: int, _epoch: int) -> None:
        for number in self._random.sample(range(self.fleet.hosts), self.fleet.lost_hosts):
            self.hosts[number] = Host(is_lost=True)
        self._known_lost_at = self.now + self.inputs.lease_seconds
        self._returned_at = self._known_lost_at
        for number in [
            number
            for number, session in self._sessions.items()
            if session.host >= 0 and self.hosts[session.host].is_lost
        ]:
            if self.states[number] == State.OPENING:
                self._open_elsewhere(number)
            else:
                self._lose(number)

    def _open_elsewhere(self, number: int) -> None:
        """Its caller sees the connection break, and tries again."""
        self._sessions[number].host = -1
        self._move(number, State.OPENING)
        self._at(self._returned_at, Event.PLACE, number)  # the lost host may have claimed it

    def _lose(self, number: int) -> None:
        session, result = self._sessions.pop(number), self.result
        result.lost_live += 1
        self._move(number, State.LOST)
        if session.until <= self.now:
            self._away.append(number)
            return
        result.lost_active += 1
        since = (self.now - session.committed_at) % self.inputs.commit_seconds
        result.lost_work_seconds.append(since)
        self._move(number, State.OPENING)
        turn = self.now + self._random.random() * self.users.turn_seconds
        wanted = max(turn, self._returned_at)
        self._sessions[number] = Session(wanted, session.until, is_restored=True, is_reopened=True)
        self._at(wanted, Event.PLACE, number)
