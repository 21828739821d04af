"""One greedy user beside a polite one, for everything that users share."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from sandboxd.access import HOST, Access, Caller, CallPlaces, Logins, Quotas, Scope
from sandboxd.access.shares import (
    CALLS,
    COMPARISONS,
    CONSOLE_PAGES,
    DOCUMENT_BYTES,
    EGRESS_CONNECTIONS,
    IMPORTS,
    LOGIN_CODES,
    LOGINS,
    LOOKUPS,
    OUTPUT_BYTES,
    PACKAGE_BUILDS,
    POLICY_CHECKS,
    PREVIEW_CONNECTIONS,
    PROJECT_WORK,
    RUNNING_EXECS,
    SESSIONS,
    SHARES,
    SNAPSHOT_WORK,
    TICKETS,
    Held,
    NoPlace,
    Share,
    evicted,
)
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.access.turns import Turns
from sandboxd.config import Config
from sandboxd.console.bodies import DOCUMENT_OVERHEAD
from sandboxd.console.site import LOGIN_TRIES, Console, ConsoleSettings
from sandboxd.daemon.settings import user_limits
from sandboxd.doors.addresses import Resolver
from sandboxd.doors.previews import MAX_SILENT, PortUse, Previews
from sandboxd.errors import PoolExhausted, SandboxdError
from sandboxd.execs.long_checks import LongChecks
from sandboxd.policy import STRICT
from sandboxd.projects.projects import Projects, ProjectSettings
from sandboxd.sessions.egress import SessionEgress
from sandboxd.snapshots.contract import Line
from sandboxd.snapshots.opening import Place, open_snapshots
from sandboxd.spool import SpoolBudget
from sandboxd.tasks import Tasks
from sandboxd_proto.v1 import file_service_pb2
from tests.ports import free_port
from tests.service.console_client import Browser
from tests.unit.project_rig import LIMITS
from tests.unit.test_package_sets import Rig as PackageRig
from tests.unit.test_package_sets import an_order

CALLERS = {
    "eve": Caller(name="eve", scope=Scope.USER, user_id="eve"),
    "ada": Caller(name="ada", scope=Scope.USER, user_id="ada"),
    "host": HOST,
}


class Resource:
    """Something that users share, as a user meets it."""

    unit = 1
    """How much one of it counts."""

    async def take(self, who: str) -> bool:
        """Take one more; False if that is refused."""
        raise NotImplementedError

    async def held(self, who: str) -> int:
        """How many are still good."""
        raise NotImplementedError


async def done(result: Any) -> Any:
    return await result if isinstance(result, Awaitable) else result


@dataclass
class Counted(Resource):
    """Places: what was taken stays."""

    take_place: Callable[[str], Any]
    unit: int = 1
    taken: Counter[str] = field(default_factory=Counter)

    async def take(self, who: str) -> bool:
        try:
            await done(self.take_place(who))
        except (SandboxdError, NoPlace, ConnectionError):
            return False
        self.taken[who] += 1
        return True

    async def held(self, who: str) -> int:
        return self.taken[who]


@dataclass
class Kept(Resource):
    """Keys of things that give way to others."""

    make: Callable[[str], Any]
    is_good: Callable[[str, str], Any]
    unit: int = 1
    keys: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    async def take(self, who: str) -> bool:
        self.keys[who].append(await done(self.make(who)))
        return True

    async def held(self, who: str) -> int:
        return sum([bool(await done(self.is_good(who, key))) for key in self.keys[who]])


@dataclass
class Stage:
    """Where the things are that users share."""

    directory: Path
    stack: AsyncExitStack

    def logins(self) -> Logins:
        path = self.directory / "tokens"
        callers = [caller for caller in CALLERS.values() if caller is not HOST]
        path.write_text("\n".join(line(one, hash_of(new_token())) for one in callers))
        path.chmod(0o600)
        return Logins(self.directory / "logins.json", Access(path))

    async def browsers(self) -> Mapping[str, Browser]:
        """Pages of a console, for both users and the host."""
        logins, port = self.logins(), free_port()
        console = Console(ConsoleSettings("127.0.0.1", port), cast(Any, NoCalls()), logins)
        await self.stack.enter_async_context(console)
        found = {}
        for who, caller in CALLERS.items():
            found[who] = await self.stack.enter_async_context(Browser(port))
            assert await found[who].log_in(code=logins.new_code(caller)) == 200
        return found


class NoCalls:
    """Of a console whose calls are of no interest."""

    def begin(self, *_: object, **__: object) -> None:
        raise web.HTTPNotImplemented


async def calls(_: Stage) -> Resource:
    places = CallPlaces(total=CALLS.total)
    return Counted(lambda who: places.take(CALLERS[who]))


async def sessions(stage: Stage) -> Resource:
    quotas = users_quotas(stage)
    taken: Counter[str] = Counter()

    def take(who: str) -> None:
        quotas.check_sessions(taken[who] + 1)
        if taken.total() == SESSIONS.total:
            raise PoolExhausted("all sandboxes are in sessions")
        taken[who] += 1

    return Counted(take)


def users_quotas(stage: Stage) -> Quotas:
    """Of a daemon with tokens, whose operator has chosen no limits."""
    return Quotas(user_limits(Config(tokens_file=stage.directory / "tokens")))


async def running_execs(stage: Stage) -> Resource:
    quotas = users_quotas(stage)

    def take(who: str) -> None:
        quotas.check_exec(who)
        quotas.add_exec(who)

    return Counted(take)


async def output_bytes(stage: Stage) -> Resource:
    """Each takes a piece of what is kept."""
    total = SpoolBudget(OUTPUT_BYTES.total)
    limit = users_quotas(stage).limits.spool_bytes
    of = {who: SpoolBudget(limit, total) for who in CALLERS}
    unit = 64 << 20

    def take(who: str) -> None:
        if not of[who].reserve(unit, at_least=unit):
            raise ConnectionError

    return Counted(take, unit=unit)


async def console_pages(stage: Stage) -> Resource:
    browsers = await stage.browsers()

    async def open_page(who: str) -> None:
        await (await browsers[who].open()).frame()

    return Counted(open_page)


async def console_logins(stage: Stage) -> Resource:
    logins = stage.logins()
    return Kept(
        lambda who: logins.redeem(logins.new_code(CALLERS[who])) or "",
        lambda _, key: logins.find(key) is not None,
    )


async def login_codes(stage: Stage) -> Resource:
    logins = stage.logins()
    return Kept(
        lambda who: logins.new_code(CALLERS[who]), lambda _, code: logins.redeem(code) is not None
    )


async def tickets(stage: Stage) -> Resource:
    browsers = await stage.browsers()

    async def make(who: str) -> str:
        request = file_service_pb2.DownloadFileRequest()
        return await browsers[who].ticket("sandboxd.v1.FileService/DownloadFile", request)

    async def is_good(who: str, ticket: str) -> bool:
        return (await browsers[who].request("GET", f"/download/{ticket}"))[0] != 410

    return Kept(make, is_good)


async def documents(stage: Stage) -> Resource:
    browsers = await stage.browsers()

    async def make(who: str) -> str:
        html = bytes((1 << 20) - DOCUMENT_OVERHEAD)
        _, _, body = await browsers[who].request("POST", "/document", data=html)
        return str(json.loads(body)["ticket"])

    async def is_good(who: str, ticket: str) -> bool:
        frame = {"Sec-Fetch-Dest": "iframe"}
        return (await browsers[who].request("GET", f"/document/{ticket}", headers=frame))[0] == 200

    return Kept(make, is_good, unit=1 << 20)


async def egress_connections(_: Stage) -> Resource:
    places = SessionEgress()._places
    return Counted(places.take)


async def lookups(_: Stage) -> Resource:
    resolver = Resolver()
    turns = {who: resolver.turns_of(who) for who in CALLERS}

    def take(who: str) -> Awaitable[bool]:
        if turns[who].locked():
            raise ConnectionError
        return turns[who].acquire()

    return Counted(take)


async def preview_connections(stage: Stage) -> Resource:
    return (await previews_of(stage))[0]


async def previews_of(stage: Stage) -> tuple[Resource, int]:
    """With their port."""
    reached: list[str] = []

    @asynccontextmanager
    async def reach(session_id: str, *_: object) -> AsyncIterator[PortUse]:
        reached.append(session_id)
        await asyncio.Event().wait()
        yield cast(PortUse, None)

    served = Previews(reach)
    stage.stack.push_async_callback(served.aclose)
    made = {who: await served.create(who, 1, 80, seconds=600, user_id=who) for who in CALLERS}

    async def connect(who: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        stage.stack.callback(writer.close)
        before = len(reached)
        host = f"{made[who].token}.localhost:{served.port}"
        writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = asyncio.ensure_future(reader.read())
        while not answer.done() and len(reached) == before:
            await asyncio.sleep(0)
        if answer.done():
            raise ConnectionError(answer.result())
        answer.cancel()

    return Counted(connect), served.port


async def policy_checks(_: Stage) -> Resource:
    return waiting(LongChecks(STRICT)._turns)


async def comparisons(stage: Stage) -> Resource:
    snapshots = open_snapshots(Place(directory=stage.directory / "snapshots"))
    stage.stack.push_async_callback(snapshots.close)
    return waiting(snapshots._diffs)


async def snapshot_work(stage: Stage) -> Resource:
    snapshots = open_snapshots(Place(directory=stage.directory / "snapshots"))
    stage.stack.push_async_callback(snapshots.close)
    return waiting(snapshots._threads.turns)


async def project_work(stage: Stage) -> Resource:
    projects = await Projects.open(
        ProjectSettings(
            directory=stage.directory, limits=LIMITS, allowed_types=["*"], reserve_bytes=0
        )
    )
    stage.stack.push_async_callback(projects.aclose)
    return waiting(projects._threads.turns)


async def package_builds(stage: Stage) -> Resource:
    rig = PackageRig(stage.directory, builds_per_user_and_hour=100)
    stage.stack.push_async_callback(rig.sets.aclose)
    rig.builder.gate.clear()
    numbers = count()
    return Counted(
        lambda who: rig.sets.find_or_build(an_order(f"package{next(numbers)}"), user_id=who)
    )


async def imports(stage: Stage) -> Resource:
    snapshots = open_snapshots(Place(directory=stage.directory / "snapshots"))
    stage.stack.push_async_callback(snapshots.close)
    tasks = Tasks()
    stage.stack.push_async_callback(tasks.end)
    begun: list[str] = []

    async def take(who: str) -> None:
        may_go_on = asyncio.get_running_loop().create_future()

        async def archive() -> AsyncIterator[bytes]:
            may_go_on.set_result(None)
            await asyncio.Event().wait()
            yield b""

        async def run() -> None:
            try:
                line = Line(user_id=who, name=f"ses_{len(begun)}")
                await snapshots.import_archive(line, archive(), max_bytes=1, max_entries=1)
            except SandboxdError as refusal:
                may_go_on.set_exception(refusal)

        begun.append(who)
        tasks.spawn(run(), "import")
        await may_go_on

    return Counted(take)


def waiting(turns: Turns) -> Resource:
    """A place in a queue that does not move."""
    while turns.take_now(f"somebody {turns.used}"):
        pass
    tasks = []

    async def wait(who: str) -> None:
        task = asyncio.ensure_future(turns.take(who))
        tasks.append(task)
        await asyncio.sleep(0)
        if task.done():
            await task

    return Counted(wait)


RESOURCES: Mapping[str, Callable[[Stage], Awaitable[Resource]]] = {
    CALLS.name: calls,
    SESSIONS.name: sessions,
    RUNNING_EXECS.name: running_execs,
    OUTPUT_BYTES.name: output_bytes,
    CONSOLE_PAGES.name: console_pages,
    LOGINS.name: console_logins,
    LOGIN_CODES.name: login_codes,
    TICKETS.name: tickets,
    DOCUMENT_BYTES.name: documents,
    EGRESS_CONNECTIONS.name: egress_connections,
    PREVIEW_CONNECTIONS.name: preview_connections,
    LOOKUPS.name: lookups,
    POLICY_CHECKS.name: policy_checks,
    COMPARISONS.name: comparisons,
    IMPORTS.name: imports,
    SNAPSHOT_WORK.name: snapshot_work,
    PROJECT_WORK.name: project_work,
    PACKAGE_BUILDS.name: package_builds,
}


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(tmp_path, stack)


@pytest.mark.parametrize("share", SHARES, ids=lambda share: share.name)
async def test_one_user_does_not_use_up_what_all_share(share: Share, stage: Stage) -> None:
    """However much a greedy user takes: it is a share at most, a polite one and the host keep what
    they have, and get more."""
    resource = await RESOURCES[share.name](stage)
    assert await resource.take("ada")
    assert await resource.take("host")
    refused = 0
    for _ in range(share.total // resource.unit + 10):
        refused += not await resource.take("eve")
        if refused == 3:
            break

    assert await resource.take("ada")
    assert await resource.take("host")
    assert 0 < await resource.held("eve") * resource.unit <= share.per_user
    assert await resource.held("ada") == 2
    assert await resource.held("host") == 2


@pytest.mark.parametrize("share", SHARES, ids=lambda share: share.name)
def test_share_leaves_something_to_others(share: Share) -> None:
    """A single user has at most half of anything, and several leave what is kept."""
    assert share.per_user <= share.total // 2
    assert share.kept < share.total


def test_many_users_leave_what_is_kept() -> None:
    """Things that give way give way to the host, and of users' the greediest first."""
    share = Share(name="things", total=10, per_user=4, kept=2)
    held = [Held(f"{user}{n}", user) for user in ("a", "b") for n in range(4)]

    assert evicted(share, held, "c") == ["a0"]
    assert evicted(share, held, "a") == ["a0"]
    assert evicted(share, held, None) == []
    hosts = [Held("h0", None), Held("h1", None)]
    assert evicted(share, [*hosts, *held], None) == ["a0"]
    assert evicted(share, [*hosts, *held], "c") == ["a0"]
    assert evicted(share, [Held(f"h{n}", None) for n in range(10)], None) == ["h0"]


async def test_failed_logins_do_not_lock_out_a_right_token(tmp_path: Path) -> None:
    """Who guesses is told to wait; who has a token gets in, from the same address."""
    token, port, path = new_token(), free_port(), tmp_path / "tokens"
    path.write_text(line(CALLERS["ada"], hash_of(token)))
    path.chmod(0o600)
    logins = Logins(tmp_path / "logins.json", Access(path))
    settings = ConsoleSettings("127.0.0.1", port)
    async with Console(settings, cast(Any, NoCalls()), logins), Browser(port) as browser:
        tries = [await browser.log_in(token="guess") for _ in range(LOGIN_TRIES + 1)]
        assert tries[-1] == 429
        assert await browser.log_in(token=token) == 200


async def test_silent_connections_do_not_shut_out_previews(stage: Stage) -> None:
    """They have a budget of their own, from which the oldest goes first."""
    resource, port = await previews_of(stage)
    silent = []
    for _ in range(2 * MAX_SILENT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stage.stack.callback(writer.close)
        silent.append(reader)

    assert await resource.take("ada")
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            assert await silent[0].read() == b""
    assert not silent[-1].at_eof()
