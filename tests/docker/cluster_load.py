"""Conversations on a cluster, and what they were told: who served them, and what was kept."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from sandboxd_proto.v1 import (
    session_service_pb2,
    snapshot_pb2,
    snapshot_service_pb2,
    snapshot_service_pb2_grpc,
)
from tests.docker.cluster_nodes import Node
from tests.docker.commands import exec_request
from tests.docker.daemon_process import Api

OPEN_SECONDS, RUN_SECONDS, SNAPSHOT_SECONDS = 10.0, 8.0, 10.0
AVOID_SECONDS = 10.0
"""How long a client does without a worker that let it wait in vain."""
PATIENCE = 180.0
STAMP = (
    "cat /tmp/stamp 2>/dev/null || { new=$(mktemp); cat /proc/sys/kernel/random/uuid > $new; "
    "ln $new /tmp/stamp 2>/dev/null; cat /tmp/stamp; }"
)
"""Names the container, whichever command is the first: nothing in /tmp goes anywhere else."""
LOST_CONNECTION = (grpc.StatusCode.UNAVAILABLE, "")
RETRYABLE = {
    (grpc.StatusCode.UNAVAILABLE, "OWNED_ELSEWHERE"),
    (grpc.StatusCode.UNAVAILABLE, "OWNERSHIP_UNKNOWN"),
    (grpc.StatusCode.UNAVAILABLE, "SESSION_RETURNING"),
    (grpc.StatusCode.UNAVAILABLE, "DRAINING"),
    (grpc.StatusCode.UNAVAILABLE, "WORKSPACE_BUSY"),
    (grpc.StatusCode.UNAVAILABLE, "SNAPSHOT_STORE_FAILED"),
    (grpc.StatusCode.UNAVAILABLE, "ENGINE_UNREACHABLE"),
    (grpc.StatusCode.UNAVAILABLE, "ENGINE_FAILED"),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "POOL_EXHAUSTED"),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS"),
    # Open it again.
    (grpc.StatusCode.ABORTED, "SANDBOX_LOST"),
    (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_RECREATED"),
    (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_PARKED"),
    # Of the client's own: a worker that is stopped says nothing.
    (grpc.StatusCode.DEADLINE_EXCEEDED, ""),
    LOST_CONNECTION,
}


class Refusal(NamedTuple):
    code: grpc.StatusCode
    reason: str

    @property
    def is_told(self) -> bool:
        """Whether it says what is wrong, as gRPC does of connections and of the client's own
        deadline."""
        if self.code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
            return False
        return bool(self.reason) or self in _OF_THE_CONNECTION

    @staticmethod
    def of(error: grpc.aio.AioRpcError) -> Refusal:
        status = rpc_status.from_call(error)
        info = error_details_pb2.ErrorInfo()
        for detail in status.details if status is not None else ():
            if detail.Unpack(info):
                return Refusal(error.code(), info.reason)
        return Refusal(error.code(), "")


_OF_THE_CONNECTION = (LOST_CONNECTION, (grpc.StatusCode.DEADLINE_EXCEEDED, ""))


class NotObserved(Exception):
    """The answer says that nobody saw the command end."""


class Line(NamedTuple):
    """What a command writes into the log of its session."""

    session_id: str
    incarnation: int
    number: int
    stamp: str


@dataclass
class Acknowledged:
    """A command that the client got an answer for."""

    sent_at: float
    told_at: float
    line: Line


@dataclass
class Kept:
    """What a session must have after the last snapshot that was acknowledged."""

    session_id: str
    numbers: set[int]
    told_at: float


@dataclass
class Conversation:
    """One client with one thread. It uses any worker, and opens its session after every error."""

    thread: str
    nodes: Sequence[Node]
    random: random.Random
    pause_seconds: float = 0.1
    acknowledged: list[Acknowledged] = field(default_factory=list)
    kept: Kept | None = None
    snapshots: int = 0
    unobserved: int = 0
    opened: int = 0
    closed: int = 0
    moved: list[tuple[float, int]] = field(default_factory=list)
    """When the session was opened on another incarnation, and on which."""
    errors: Counter[Refusal] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    _number: int = 0
    _session_id: str = ""
    _incarnation: int = 0
    _opened_id: str = ""
    _closed_ids: set[str] = field(default_factory=set)
    _last_node: Node | None = None
    _avoided: dict[str, float] = field(default_factory=dict)

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def incarnation(self) -> int:
        return self._incarnation

    async def go_on(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self.step()
            await asyncio.sleep(self.pause_seconds * self.random.uniform(0.5, 1.5))

    async def step(self) -> None:
        """One call, or one and the open before it."""
        try:
            if not self._session_id:
                await self._open()
            what = self.random.random()
            if what < 0.8:
                await self._command()
            elif what < 0.98:
                await self._snapshot()
            else:
                await self._close()
        except grpc.aio.AioRpcError as error:
            self._note(error)
            self._session_id = ""
        except NotObserved:
            self.unobserved += 1
            self._session_id = ""

    async def command_again(self) -> None:
        """A command on the session as it was opened last, without another open."""
        try:
            await self._command()
        except grpc.aio.AioRpcError as error:
            self._note(error)

    async def settle(self) -> None:
        """Go on until every worker has answered for the session, and look at its log."""
        for node in self.nodes:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        await self._open(node)
                        await self._command(node)
                        break
                    except grpc.aio.AioRpcError as error:
                        self._note(error)
                    except NotObserved:
                        self.unobserved += 1
                    await asyncio.sleep(0.2)
        await self._look()

    def _node(self, node: Node | None = None) -> Node:
        now = time.monotonic()
        usable = [one for one in self.nodes if self._avoided.get(one.name, 0.0) < now]
        self._last_node = node or self.random.choice(usable or self.nodes)
        return self._last_node

    async def _open(self, node: Node | None = None) -> None:
        request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id=self.thread)
        api = self._node(node).api
        opened = await api.sessions.OpenSession(request, timeout=OPEN_SECONDS)
        self.opened += 1
        session = opened.session
        before = self._opened_id
        if session.session_id != before and before and before not in self._closed_ids:
            self._fail(f"the thread has {session.session_id}, and {before} was not closed")
        self._opened_id = session.session_id
        is_new = (session.session_id, session.incarnation) != self._last
        self._session_id, self._incarnation = session.session_id, session.incarnation
        if is_new:
            self.moved.append((time.monotonic(), session.incarnation))
            await self._look(node)

    @property
    def _last(self) -> tuple[str, int]:
        if not self.acknowledged:
            return ("", 0)
        line = self.acknowledged[-1].line
        return (line.session_id, line.incarnation)

    async def _run(self, command: str, node: Node | None = None) -> str:
        request = exec_request(self._session_id, command, incarnation=self._incarnation)
        api = self._node(node).api
        answer = await api.execs.Run(request, timeout=RUN_SECONDS)
        if answer.exit.WhichOneof("outcome") != "code":
            raise NotObserved(answer.exit.reason)
        if answer.exit.code:
            self._fail(f"{command} ended with {answer.exit} {answer.stderr.data!r}")
        return bytes(answer.stdout.data).decode()

    async def _command(self, node: Node | None = None) -> None:
        self._number += 1
        number = self._number
        fields = f"{self._session_id} {self._incarnation} {number}"
        sent_at = time.monotonic()
        stamp = await self._run(f's=$({STAMP}); echo "{fields} $s" >> log; echo $s', node)
        line = Line(self._session_id, self._incarnation, number, stamp.strip())
        self.acknowledged.append(Acknowledged(sent_at, time.monotonic(), line))

    async def _snapshot(self) -> None:
        session_id = self._session_id
        numbers = {
            one.line.number
            for one in self.acknowledged
            if one.line[:2] == (session_id, self._incarnation)
        }
        if self.kept is not None and self.kept.session_id == session_id:
            numbers |= self.kept.numbers
        request = snapshot_service_pb2.CreateSnapshotRequest(
            session_id=session_id, incarnation=self._incarnation
        )
        await self._node().snapshots.CreateSnapshot(request, timeout=SNAPSHOT_SECONDS)
        self.snapshots += 1
        self.kept = Kept(session_id, numbers, time.monotonic())

    async def _close(self) -> None:
        request = session_service_pb2.CloseSessionRequest(session_id=self._session_id)
        self._closed_ids.add(self._session_id)
        await self._node().api.sessions.CloseSession(request, timeout=OPEN_SECONDS)
        self.closed += 1
        self._session_id = ""

    async def _look(self, node: Node | None = None) -> None:
        """The log has what the last acknowledged snapshot had, what was acknowledged since it was
        opened, and the lines of one container after those of another, never mixed."""
        incarnation = self._incarnation
        text = await self._run("cat log 2>/dev/null || true", node)
        try:
            lines = [Line(a, int(b), int(c), d) for a, b, c, d in map(str.split, text.splitlines())]
        except ValueError:
            self._fail(f"a line is not whole: {text!r}")
            return
        numbers = [line.number for line in lines]
        if numbers != sorted(set(numbers)):
            self._fail(f"the lines are not in order: {text}")
        places = [(line.incarnation, line.stamp) for line in lines]
        distinct = list(dict.fromkeys(places))
        if places != sorted(places, key=distinct.index) or len({a for a, _ in distinct}) != len(
            distinct
        ):
            self._fail(f"two wrote in one incarnation: {text}")
        if any(line.session_id != self._session_id for line in lines):
            self._fail(f"lines of another session than {self._session_id}: {text}")
        wanted = {
            one.line.number
            for one in self.acknowledged
            if one.line[:2] == (self._session_id, incarnation)
        }
        if self.kept is not None and self.kept.session_id == self._session_id:
            wanted |= self.kept.numbers
        if missing := wanted - set(numbers):
            self._fail(f"incarnation {incarnation} lacks {sorted(missing)}; it has:\n{text}")

    def _note(self, error: grpc.aio.AioRpcError) -> None:
        refusal = Refusal.of(error)
        is_closed = self._session_id in self._closed_ids and refusal.reason in (
            "SESSION_CLOSED",
            "SESSION_NOT_FOUND",
        )
        self.errors[refusal] += 1
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._last_node is not None:
            self._avoided[self._last_node.name] = time.monotonic() + AVOID_SECONDS
        if tuple(refusal) not in RETRYABLE and not is_closed:
            self._fail(f"{refusal} {error.details()}")

    def _fail(self, why: str) -> None:
        self.unexpected.append(f"{time.monotonic():.2f} {self.thread} {self._session_id}: {why}")

    @property
    def seen(self) -> list[Seen]:
        return [
            Seen(one.sent_at, one.told_at, one.line.session_id, one.line.stamp)
            for one in self.acknowledged
        ]

    def two_owners(self) -> list[str]:
        """Where the answers show that two workers served this conversation at once."""
        found = []
        stamps: dict[tuple[str, int], str] = {}
        newest: dict[str, Acknowledged] = {}
        for one in self.acknowledged:
            key = one.line[:2]
            if stamps.setdefault(key, one.line.stamp) != one.line.stamp:
                found.append(f"two containers in {key}: {stamps[key]} {one.line}")
            before = newest.get(one.line.session_id)
            if before is not None and before.line.incarnation > one.line.incarnation:
                found.append(f"{one} after {before}")
            newest[one.line.session_id] = one
        return found


class Seen(NamedTuple):
    """A container that answered for a session."""

    sent_at: float
    told_at: float
    session_id: str
    stamp: str


@dataclass
class Watcher:
    """Asks any worker which container a session is on, beside the client that uses it."""

    load: Sequence[Conversation]
    random: random.Random
    seen: list[Seen] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)

    async def go_on(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await asyncio.sleep(self.random.uniform(0.05, 0.15))
            one = self.random.choice(self.load)
            if not (session_id := one.session_id):
                continue
            request = exec_request(session_id, STAMP)
            node = self.random.choice(one.nodes)
            sent_at = time.monotonic()
            try:
                answer = await node.api.execs.Run(request, timeout=RUN_SECONDS)
            except grpc.aio.AioRpcError as error:
                # The client that uses it counts the others.
                if not Refusal.of(error).is_told:
                    self.untold.append(f"{time.monotonic():.2f} Run of a watcher: {error}")
                continue
            if answer.exit.WhichOneof("outcome") == "code":
                stamp = bytes(answer.stdout.data).decode().strip()
                self.seen.append(Seen(sent_at, time.monotonic(), session_id, stamp))


@dataclass
class Caller:
    """Makes calls of every kind to any worker, several at once, over networks that may be cut."""

    thread: str
    nodes: Sequence[Node]
    random: random.Random
    made: Counter[str] = field(default_factory=Counter)
    """Calls that were answered, by method."""
    refused: Counter[tuple[str, Refusal]] = field(default_factory=Counter)
    untold: list[str] = field(default_factory=list)
    _session_id: str = ""
    _snapshot: int = 0

    async def go_on(self, is_over: asyncio.Event) -> None:
        calls = [self._touch, self._run, self._snapshot_now, self._list, self._restore]
        while not is_over.is_set():
            await self._call(self._open)
            if not self._session_id:
                continue
            await asyncio.gather(*(self._call(call) for call in self.random.sample(calls, 3)))
            if self.random.random() < 0.05:
                await self._call(self._close)

    async def _call(self, call: Callable[[Api], Awaitable[None]]) -> None:
        name = call.__name__.lstrip("_")
        try:
            await call(self.random.choice(self.nodes).clients)
            self.made[name] += 1
        except grpc.aio.AioRpcError as error:
            refusal = Refusal.of(error)
            self.refused[name, refusal] += 1
            if not refusal.is_told:
                self.untold.append(f"{time.monotonic():.2f} {name}: {error}")
            await asyncio.sleep(0.05)

    async def _open(self, api: Api) -> None:
        request = session_service_pb2.OpenSessionRequest(user_id="eve", thread_id=self.thread)
        opened = await api.sessions.OpenSession(request, timeout=OPEN_SECONDS)
        if opened.session.session_id != self._session_id:
            self._session_id, self._snapshot = opened.session.session_id, 0

    async def _touch(self, api: Api) -> None:
        request = session_service_pb2.TouchSessionRequest(session_id=self._session_id)
        await api.sessions.TouchSession(request, timeout=RUN_SECONDS)

    async def _run(self, api: Api) -> None:
        request = exec_request(self._session_id, "date >> log; sleep 0.1")
        await api.execs.Run(request, timeout=RUN_SECONDS)

    async def _list(self, api: Api) -> None:
        await api.sessions.ListSessions(
            session_service_pb2.ListSessionsRequest(), timeout=RUN_SECONDS
        )

    async def _snapshot_now(self, api: Api) -> None:
        request = snapshot_service_pb2.CreateSnapshotRequest(session_id=self._session_id)
        stub = snapshot_service_pb2_grpc.SnapshotServiceStub(api.channel)
        taken = await stub.CreateSnapshot(request, timeout=SNAPSHOT_SECONDS)
        self._snapshot = taken.snapshot.number

    async def _restore(self, api: Api) -> None:
        request = snapshot_service_pb2.RestoreSessionRequest(
            session_id=self._session_id,
            snapshot=snapshot_pb2.SnapshotRef(number=self._snapshot or 1),
        )
        stub = snapshot_service_pb2_grpc.SnapshotServiceStub(api.channel)
        await stub.RestoreSession(request, timeout=SNAPSHOT_SECONDS)

    async def _close(self, api: Api) -> None:
        request = session_service_pb2.CloseSessionRequest(session_id=self._session_id)
        await api.sessions.CloseSession(request, timeout=OPEN_SECONDS)


def went_back(seen: Sequence[Seen]) -> list[str]:
    """Sessions that were on one container, then on another, and then on the first again."""
    first_told: dict[tuple[str, str], float] = {}
    last_sent: dict[tuple[str, str], float] = {}
    for one in seen:
        key = (one.session_id, one.stamp)
        first_told[key] = min(first_told.get(key, one.told_at), one.told_at)
        last_sent[key] = max(last_sent.get(key, one.sent_at), one.sent_at)
    return [
        f"{one} while {stamp} served, from {first_told[session_id, stamp]} to {until}"
        for (session_id, stamp), until in last_sent.items()
        for one in seen
        if one.session_id == session_id
        and one.stamp != stamp
        and one.sent_at > first_told[session_id, stamp]
        and one.told_at < until
    ]
