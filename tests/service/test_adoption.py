"""A daemon that goes and comes back: sessions stay, and commands do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from sandboxd.config import Config, EnvironmentTable
from sandboxd.daemon import adoption
from sandboxd.daemon.composition import Daemon, running
from sandboxd.errors import EngineFailed
from sandboxd.execs import exec as execs
from sandboxd.execs import host_kill
from sandboxd.execs.exec import Exec
from sandboxd.execs.session_execs import SessionExecs
from sandboxd.guest import frames
from sandboxd.guest.frames import Kind
from sandboxd.isolation.meter import Usage
from sandboxd.link import GuestLink
from sandboxd.sessions import returning
from sandboxd_proto.v1 import code_service_pb2 as code_pb
from sandboxd_proto.v1 import exec_pb2, session_pb2, session_service_pb2
from tests.cancellation.invariants import Tasks, free_uids
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import LastingEngine
from tests.fakes.guest import Command, FakeGuest, FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, duration, events, refused, stdout_of

MIB = 1 << 20
WAYS = ["stop", "crash"]


class World:
    """An engine with guests, and one daemon after the other."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config: Config = settings_for_tests.of_daemon(directory).model_copy(
            update={"keep_sessions": True, "pool_size": 0}
        )
        self.engine = LastingEngine()
        self.guests = FakeGuests(self.engine)
        self._monkeypatch = monkeypatch

    @asynccontextmanager
    async def daemon(self, way: str = "stop") -> AsyncIterator[tuple[Daemon, Api]]:
        """A daemon that ends in this way and leaves no task; a crash writes nothing down."""
        tasks = Tasks()
        async with Api(self.config.api_socket) as api:
            async with running(self.config, engine=self.engine, maker=self.guests.maker) as daemon:
                yield daemon, api
                await api.channel.close()
                if way == "crash":
                    self._monkeypatch.setattr(SessionExecs, "persist", lambda _: None)
            self._monkeypatch.undo()
        for guest in self.guests.by_container.values():
            if guest.is_alive:
                await guest.disconnected.wait()
        await tasks.are_as_before()

    @asynccontextmanager
    async def next_daemon(self) -> AsyncIterator[tuple[Daemon, Api]]:
        self.guests.dial_again()
        async with self.daemon() as (daemon, api):
            yield daemon, api


@pytest.fixture
async def world(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World(short_dir, monkeypatch)
    yield world
    await world.guests.aclose()


async def written(api: Api, session_id: str, exec_id: str, count: int) -> None:
    call = api.attach(session_id, exec_id)
    seen = 0
    while seen < count:
        seen += sum(len(event.stdout.data) for event in (await call.read()).events)
    call.cancel()


@pytest.mark.parametrize("way", WAYS)
async def test_session_and_command_go_on(way: str, world: World) -> None:
    """Id, incarnation and sandbox stay; a reader goes on at the next byte; the end is told."""
    async with world.daemon(way) as (_, api):
        before = (await api.open()).session
        line = "echo before; cat; echo after"
        pid = (await api.start(before.session_id, line, "e1", stdin=True)).exec.pid
        await api.write(before.session_id, "e1", 0, b"one ")
        await written(api, before.session_id, "e1", 11)
    containers = world.engine.live
    async with world.next_daemon() as (_, api):
        opened = await api.open()
        assert opened.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED
        session = opened.session
        assert (session.session_id, session.incarnation) == (before.session_id, 1)
        assert world.engine.live == containers
        again = await api.start(session.session_id, line, "e1", stdin=True)
        assert (again.already_started, again.exec.pid) == (True, pid)
        call = api.attach(session.session_id, "e1", stdout_offset=11)
        assert await api.write(session.session_id, "e1", 4, b"two\n", eof=True) == 8
        data, status = await stdout_of(call)
        whole, _ = await stdout_of(api.attach(session.session_id, "e1"))
        new = await api.run(session.session_id, "echo new")

    assert (data, status.code) == (b"two\nafter\n", 0)
    assert whole == b"before\none two\nafter\n"
    assert new.stdout.data == b"new\n"
    assert len(world.guests.commands) == 2


async def test_environment_policy_and_variables_outlive_the_daemon(
    world: World, tmp_path: Path
) -> None:
    """A session of another environment is adopted by its own, with the policy it had asked for. A
    policy that the next daemon does not have refuses everything: it gives no other rights."""
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM x")
    world.config = world.config.model_copy(
        update={
            "environments": {"small": EnvironmentTable(dockerfile=dockerfile)},
            "policies": {"careful": {"extends": "open", "forbid": ["err"]}},
        }
    )
    async with world.daemon() as (_, api):
        asked = {"environment": "small", "environment_config": {"env_vars": {"A": "1"}}}
        careful = await api.open(command_policy="careful", build_wait=duration(30), **asked)
        plain = await api.open(thread="t2", **asked)
    containers = world.engine.live
    async with world.next_daemon() as (daemon, api):
        again = (await api.open(command_policy="careful", **asked)).session
        with refused(grpc.StatusCode.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED"):
            await api.run(again.session_id, "err x")
        await api.run(again.session_id, "echo x")
        assert (again.session_id, again.environment) == (careful.session.session_id, "small")
        assert [pool.in_use for pool in daemon.pools.figures] == [0, 2]
        assert world.engine.live == containers
    world.config = world.config.model_copy(update={"policies": {}})
    async with world.next_daemon() as (_, api):
        with refused(grpc.StatusCode.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED") as refusal:
            await api.run(careful.session.session_id, "echo x")
        assert refusal.info.metadata["rule"] == "undefined-policy"
        assert (await api.get(careful.session.session_id)).command_policy == "careful"
        await api.run(plain.session.session_id, "err x")


@pytest.mark.parametrize("way", WAYS)
async def test_command_that_ended_meanwhile_is_told(way: str, world: World) -> None:
    """Its output and its end are those that happened while nobody was there."""
    async with world.daemon(way) as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, f"echo begin; sleep; flood {MIB // 4}; exit 3", "e1")
        await written(api, session_id, "e1", 6)
    (command,) = world.guests.commands
    command.steps.pop(0)
    command.guest.advance(command)
    assert command.exited is not None
    async with world.next_daemon() as (_, api):
        data, status = await stdout_of(api.attach(session_id, "e1"))
        await eventually(lambda: not command.guest.ended)

    assert (len(data), status.code) == (6 + MIB // 4, 3)


@pytest.mark.parametrize("way", WAYS)
async def test_ended_command_is_remembered(way: str, world: World) -> None:
    """Whether it was written down or is still known to the guest: it runs once, and is told."""
    async with world.daemon(way) as (_, api):
        session_id = await api.open_id()
        first = await api.run(session_id, "echo kept; exit 4", exec_id="e1")
    async with world.next_daemon() as (_, api):
        again = await api.run(session_id, "echo kept; exit 4", exec_id="e1")
        listed = (await api.list_execs(session_id)).execs

    assert (again.stdout, again.exit.code) == (first.stdout, 4)
    assert [(one.exec_id, one.command) for one in listed] == [("e1", "echo kept; exit 4")]
    assert len(world.guests.commands) == 1


ENDED_BY_THE_DAEMON = {
    "timeout": exec_pb2.EXIT_REASON_TIMED_OUT,
    "no_output_timeout": exec_pb2.EXIT_REASON_NO_OUTPUT_TIMEOUT,
    "caller": exec_pb2.EXIT_REASON_CANCELLED,
}


async def begin_to_end(api: Api, session_id: str, why: str) -> None:
    """Have a command that the daemon ends for this reason."""
    if why == "caller":
        call = asyncio.ensure_future(api.run(session_id, "sleep", exec_id="e1"))
        while not (await api.list_execs(session_id)).execs:
            await asyncio.sleep(0.002)
        call.cancel()
    else:
        await api.start(session_id, "sleep", "e1", **{why: 0.05})


@pytest.mark.parametrize("why", ENDED_BY_THE_DAEMON)
async def test_reason_of_an_end_outlives_the_daemon(why: str, world: World) -> None:
    """A command that a daemon had ended before it died ended for the reason that daemon had, not by
    a signal that nobody sent."""
    async with world.daemon("crash") as (_, api):
        session_id = await api.open_id()
        await begin_to_end(api, session_id, why)
        command = await world.guests.wait_for("sleep")
        await eventually(lambda: command.exited is not None)
    async with world.next_daemon() as (daemon, api):
        ended = await api.wait(session_id, "e1")
        daemon.sessions.get(session_id).execs.persist()
        await eventually(lambda: not command.guest.ended)

    assert ended.exit.reason == ENDED_BY_THE_DAEMON[why]
    assert [path.suffix for path in (world.config.state_dir / "execs").iterdir()] == [".end"]


@pytest.mark.parametrize("why", ENDED_BY_THE_DAEMON)
async def test_end_that_a_dead_daemon_had_begun_is_brought_about(
    why: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon ends a command that the last one died over, for the same reason."""
    monkeypatch.setattr(GuestLink, "kill", lambda *_: None)
    monkeypatch.setattr(host_kill, "STEP_SECONDS", 60.0)
    monkeypatch.setattr(host_kill, "LIMIT_SECONDS", 60.0)
    async with world.daemon("crash") as (_, api):
        session_id = await api.open_id()
        await begin_to_end(api, session_id, why)
        command = await world.guests.wait_for("sleep")
        await eventually(lambda: any((world.config.state_dir / "execs").iterdir()))
    monkeypatch.undo()
    assert command.is_running
    async with world.next_daemon() as (_, api):
        ended = await api.wait(session_id, "e1")

    assert (ended.exit.reason, command.kills) == (ENDED_BY_THE_DAEMON[why], 1)


@pytest.mark.parametrize("way", WAYS)
async def test_sweep_that_a_daemon_had_begun_is_brought_about(
    way: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon sweeps what ran out of memory under the last one, which did not live to see
    it swept, and reports it as that."""
    starved = Usage(1, 0.5, 2, oom_kills=1, refused_forks=0)
    world.guests.answers_sweeps = False
    async with world.daemon(way) as (_, api):
        monkeypatch.setattr(Exec, "_used", lambda _: starved)
        session_id = await api.open_id()
        await api.start(session_id, "exit 1", "e1")
        command = await world.guests.wait_for("exit 1")
        await eventually(lambda: command.guest.sweeps == [command.channel])
    world.guests.answers_sweeps = True
    async with world.next_daemon() as (_, api):
        ended = await api.wait(session_id, "e1")

    assert command.guest.sweeps == [command.channel] * 2
    assert (ended.exit.reason, ended.exit.code) == (exec_pb2.EXIT_REASON_OUT_OF_MEMORY, 1)
    assert "What it had started was ended" in ended.exit.hint


async def test_persisted_command_is_remembered_from_disk(world: World) -> None:
    """What was released by the guest comes back from the daemon's own files."""
    async with world.daemon() as (daemon, api):
        session_id = await api.open_id()
        await api.run(session_id, "echo kept; err oops; exit 4", exec_id="e1")
        daemon.sessions.get(session_id).execs.persist()
        (command,) = world.guests.commands
        await eventually(lambda: not command.guest.ended)
    async with world.next_daemon() as (_, api):
        ended = await api.wait(session_id, "e1")
        found = await api.search(session_id, "e1", "oops")
        data, status = await stdout_of(api.attach(session_id, "e1"))

    assert (data, status.code, ended.stderr_bytes) == (b"kept\n", 4, 5)
    assert [one.line for one in found.matches] == [b"oops"]


async def test_stop_does_not_end_what_its_callers_wait_for(world: World) -> None:
    """A caller loses its stream with the daemon, not its command, and calls again."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        call = api.exec(session_id, "echo begin; sleep", exec_id="e1")
        await call.read()
    command = world.guests.command("echo begin; sleep")
    assert (command.kills, command.is_running) == (0, True)
    async with world.next_daemon() as (_, api):
        again = api.exec(session_id, "echo begin; sleep", exec_id="e1")
        assert (await again.read()).events[1].stdout.data == b"begin\n"
        await api.signal(session_id, "e1", 2)
        assert [event async for event in events(again)][-1].exited.signal == 2


@pytest.mark.parametrize("exec_id", ["", "e1"])
async def test_command_whose_caller_does_not_come_back_is_ended(
    exec_id: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once where nobody can ask for it, otherwise when the time to attach is over."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        call = asyncio.ensure_future(api.run(session_id, "sleep", exec_id=exec_id))
        command = await world.guests.wait_for("sleep")
    await asyncio.wait([call])
    assert command.is_running
    monkeypatch.setattr(execs, "REATTACH_SECONDS", 0.05)
    async with world.next_daemon() as (daemon, api):
        await eventually(lambda: command.kills == 1)
        await eventually(lambda: daemon.sessions.exec_state.quotas.running_execs == 0)
        assert (await api.get(session_id)).state == session_pb2.SESSION_STATE_ACTIVE
        await eventually(lambda: not command.guest.running)


def replaced(label: bytes) -> Callable[[Command], bytes]:
    return lambda _: label


FORGERIES: dict[str, Callable[[Command], bytes]] = {
    "garbage": replaced(b"\xff" * 100),
    "no seal": lambda command: command.label[32:],
    "changed": lambda command: command.label.replace(b'"e1"', b'"e2"'),
    "empty": replaced(b""),
    "longest": replaced(b"0" * frames.MAX_LABEL),
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_forged_label_is_not_believed(forgery: str, world: World) -> None:
    """What a guest made up is ended as nobody's, and the session goes on."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "sleep", "e1")
        command = await world.guests.wait_for("sleep")
    label = FORGERIES[forgery](command)
    world.guests.welcome = lambda guest: _says(guest, {command.channel: label})
    async with world.next_daemon() as (daemon, api):
        await eventually(lambda: command.kills == 1)
        for exec_id in ("e1", "e2"):
            with refused(grpc.StatusCode.NOT_FOUND, "EXEC_NOT_FOUND"):
                await api.wait(session_id, exec_id)
        assert (await api.run(session_id, "echo fine")).stdout.data == b"fine\n"
        assert daemon.sessions.exec_state.quotas.running_execs == 0


def _says(guest: FakeGuest, labels: dict[int, bytes]) -> None:
    for channel, label in labels.items():
        state = guest.running[channel].state._replace(label=label)
        guest.say(frames.encode_state(channel, state))
    guest.say(frames.encode(Kind.READY))


async def test_label_shown_twice_counts_once(world: World) -> None:
    """A guest cannot make one command into two, and nothing is counted twice."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "sleep", "e1")
        await api.start(session_id, "stubborn", "e2")
        first, second = [await world.guests.wait_for(line) for line in ("sleep", "stubborn")]
    second.is_stubborn = False
    world.guests.welcome = lambda guest: _says(
        guest, {first.channel: first.label, second.channel: first.label}
    )
    async with world.next_daemon() as (daemon, api):
        await eventually(lambda: second.kills == 1)
        assert [one.exec_id for one in (await api.list_execs(session_id)).execs] == ["e1"]
        assert daemon.sessions.exec_state.quotas.running_execs == 1


async def test_label_of_another_sandbox_is_not_believed(world: World) -> None:
    """A label that a neighbour was given is worth nothing."""
    async with world.daemon() as (_, api):
        one, two = [await api.open_id(thread=name) for name in ("t1", "t2")]
        await api.start(one, "sleep", "e1")
        await api.start(two, "echo mine; sleep", "e2")
        first = await world.guests.wait_for("sleep")
        second = await world.guests.wait_for("echo mine; sleep")
    first.request["label"], second.request["label"] = (
        second.request["label"],
        first.request["label"],
    )
    async with world.next_daemon() as (_, api):
        await eventually(lambda: first.kills == second.kills == 1)
        for session_id in (one, two):
            assert not (await api.list_execs(session_id)).execs


async def test_guest_that_does_not_come_back_is_a_lost_session(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its grace time the session says so, its container goes, and it can be opened again."""
    world.config = world.config.model_copy(update={"grace_seconds": 0.1})
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
    monkeypatch.setattr(adoption, "LOOK_SECONDS", 0.1)
    (container,) = world.engine.live
    async with world.daemon() as (daemon, api):
        await eventually(lambda: not daemon.sessions.are_returning)
        assert (await api.get(session_id)).state == session_pb2.SESSION_STATE_LOST
        await world.engine.wait_until(lambda: container not in world.engine.live)
        again = await api.open()
        assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert (again.session.session_id, again.session.incarnation) == (session_id, 2)


async def test_containers_are_listed_once_for_all_sessions(world: World) -> None:
    """A start with many sessions asks the engine no more than one with few."""
    async with world.daemon() as (_, api):
        for number in range(3):
            await api.open_id(f"t{number}")
    before = world.engine.calls["list_containers"]
    async with world.next_daemon() as (daemon, _):
        # Once to adopt, and once for the sweep.
        await eventually(lambda: world.engine.calls["list_containers"] >= before + 2)
        assert world.engine.calls["list_containers"] == before + 2
        assert daemon.sessions.active_count == 3


async def test_calls_wait_for_their_session(world: World) -> None:
    """A call about a session that is not back yet is answered when it is; a new session need not
    wait for it, gets another uid, and the sweep leaves the container alone."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "echo begin; sleep", "e1")
        await written(api, session_id, "e1", 6)
    (container,) = world.engine.live
    async with world.daemon() as (daemon, api):
        early = [
            asyncio.ensure_future(call)
            for call in (
                api.run(session_id, "echo early"),
                api.open(),
                api.list_execs(session_id),
                api.read(session_id, "e1"),
            )
        ]
        await api.open_id(thread="new")
        await world.engine.wait_until(lambda: world.engine.calls["list_containers"] > 2)
        assert daemon.sessions.are_returning
        assert not any(call.done() for call in early)
        assert container in world.engine.live
        assert len({world.engine.specs[live].uid for live in world.engine.live}) == 2
        world.guests.dial_again()
        ran, opened, listed, output = await asyncio.gather(*early)

    assert ran.stdout.data == b"early\n"
    assert opened.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED
    assert "e1" in [execution.exec_id for execution in listed.execs]
    assert output.data == b"begin\n"


async def test_call_does_not_wait_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused for now, with the time to try again; the session is not lost by that."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
    monkeypatch.setattr(returning, "WAIT_SECONDS", 0.05)
    async with world.daemon() as (_, api):
        for call in (
            lambda: api.run(session_id, "true"),
            lambda: api.open(),
            lambda: api.reset(session_id),
            lambda: api.touch(session_id),
        ):
            with refused(grpc.StatusCode.UNAVAILABLE, "SESSION_RETURNING"):
                await call()
        monkeypatch.undo()
        world.guests.dial_again()
        assert (await api.run(session_id, "echo back")).stdout.data == b"back\n"


async def test_what_a_busy_engine_fails_is_repeated(world: World) -> None:
    """An engine that answers late costs no session: the guest dials again."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
    busy = EngineFailed("The engine did not answer in time.", retry_after_seconds=1.0)
    world.engine.fail_once("list_containers", busy)
    world.engine.fail_once("inspect", busy)
    inspected = world.engine.calls["inspect"]
    async with world.next_daemon() as (_, api):
        (guest,) = world.guests.by_container.values()
        await eventually(lambda: world.engine.calls["inspect"] > inspected)
        await guest.disconnected.wait()
        world.guests.dial_again()
        assert (await api.run(session_id, "echo back")).stdout.data == b"back\n"
        assert (await api.get(session_id)).incarnation == 1


async def test_session_that_is_closed_before_it_is_back(world: World) -> None:
    """Its sandbox goes as soon as it is found, and its uid can be used again."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
    async with world.daemon() as (_, api):
        assert (await api.close(session_id)).state == session_pb2.SESSION_STATE_CLOSED
        world.guests.dial_again()
        await world.engine.wait_until(lambda: not world.engine.live)
        assert world.guests.uids is not None
        await eventually(
            lambda: free_uids(world.guests.uids) == world.config.sandbox_uid_count  # type: ignore[arg-type]
        )


async def test_sessions_that_are_not_back_at_a_stop_are_left_too(world: World) -> None:
    """A daemon that is stopped right after its start leaves them to the next one."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "sleep", "e1")
    async with world.daemon() as (daemon, _):
        assert daemon.sessions.are_returning
    async with world.next_daemon() as (_, api):
        assert (await api.run(session_id, "echo back")).stdout.data == b"back\n"
        assert [one.exec_id for one in (await api.list_execs(session_id)).execs] == ["e1"]


async def test_plain_stop_ends_sessions_that_are_not_back(world: World) -> None:
    """One that keeps no sessions leaves no container, adopted or not."""
    async with world.daemon() as (_, api):
        await api.open_id()
    world.config = world.config.model_copy(update={"keep_sessions": False})
    async with world.daemon() as (daemon, _):
        assert daemon.sessions.are_returning
    assert not world.engine.live


async def test_sessions_that_are_not_back_count_in_the_pool(world: World) -> None:
    """No more sandboxes are started than there may be in all."""
    world.config = world.config.model_copy(update={"max_pool_size": 1, "open_wait_seconds": 0.1})
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
    async with world.daemon() as (_, api):
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "POOL_EXHAUSTED"):
            await api.open(thread="new")
        world.guests.dial_again()
        await api.run(session_id, "true")
        await api.close(session_id)
        await api.open_id(thread="new")


async def test_guest_that_is_gone_again_before_the_start_is_over(world: World) -> None:
    """A guest that dies right after its greeting costs its session, not the daemon's start."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "sleep", "e1")
        await world.guests.wait_for("sleep")

    def ready_and_gone(guest: FakeGuest) -> None:
        guest.ready()
        guest.is_alive = False
        guest.leave()

    world.guests.welcome = ready_and_gone
    async with world.next_daemon() as (daemon, api):
        await eventually(lambda: daemon.sessions.active_count == 0)
        assert (await api.get(session_id)).state == session_pb2.SESSION_STATE_LOST
        world.guests.welcome = FakeGuest.ready
        assert (await api.open()).session.incarnation == 2


async def test_uids_of_adopted_sandboxes_are_taken_and_come_back(world: World) -> None:
    """No new sandbox gets the uid of one that goes on; a closed session gives its own back."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
    async with world.next_daemon() as (_, api):
        await api.open_id(thread="t2")
        uids = [spec.uid for spec in map(world.engine.specs.__getitem__, world.engine.live)]
        assert len(set(uids)) == 2
        assert world.guests.uids is not None
        assert free_uids(world.guests.uids) == world.config.sandbox_uid_count - 2
        for one in (await api.list()).sessions:
            await api.close(one.session_id)
        await world.engine.wait_until(lambda: not world.engine.live)
        await eventually(
            lambda: free_uids(world.guests.uids) == world.config.sandbox_uid_count  # type: ignore[arg-type]
        )
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
            await api.run(session_id, "true")


async def test_many_sessions_come_back_together(world: World) -> None:
    """Each with its own command, through several daemons."""
    async with world.daemon() as (_, api):
        ids = [await api.open_id(thread=f"t{n}") for n in range(4)]
        for n, session_id in enumerate(ids):
            await api.start(session_id, f"echo {n}; sleep", "e1")
    for _ in range(3):
        async with world.next_daemon() as (daemon, api):
            for n, session_id in enumerate(ids):
                assert (await api.read(session_id, "e1")).data == f"{n}\n".encode()
            assert daemon.sessions.exec_state.quotas.running_execs == 4
    assert len(world.engine.live) == 4


async def test_shell_of_an_adopted_command_still_queues(world: World) -> None:
    """A command for a named shell waits for the one that the earlier daemon started there."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "sleep", "e1", shell_name="main")
        await world.guests.wait_for("sleep")
    async with world.next_daemon() as (_, api):
        started = await api.start(session_id, "echo next", "e2", shell_name="main")
        assert started.exec.state == exec_pb2.EXEC_STATE_QUEUED
        await api.signal(session_id, "e1", 9)
        assert (await api.wait(session_id, "e2")).exit.code == 0


async def test_ended_and_running_command_of_a_shell_are_both_adopted(world: World) -> None:
    """The end of one that came while no daemon was there does not start the next one again."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        await api.start(session_id, "echo first", "e1", shell_name="main")
        await api.wait(session_id, "e1")
        await api.start(session_id, "sleep", "e2", shell_name="main")
        await world.guests.wait_for("sleep")
    async with world.next_daemon() as (_, api):
        assert (await api.wait(session_id, "e1")).exit.code == 0
        await api.signal(session_id, "e2", 9)
        assert (await api.wait(session_id, "e2")).exit.signal == 9
        assert (await api.run(session_id, "echo next", shell_name="main")).stdout.data == b"next\n"
    assert len(world.guests.commands) == 3


async def test_context_and_its_run_go_on(world: World) -> None:
    """The next daemon knows the contexts, their settings and generation, and the run under way."""
    async with world.daemon() as (_, api):
        session_id = await api.open_id()
        made = code_pb.CreateContextRequest(session_id=session_id, name="work", cwd="sub")
        await api.code.CreateContext(made)
        run = code_pb.RunCodeRequest(
            session_id=session_id, code="echo begun; sleep", context="work", exec_id="e1"
        )
        await api.code.StartCode(run)
        await written(api, session_id, "e1", 6)
    async with world.next_daemon() as (_, api):
        assert (await api.code.CreateContext(made)).already_exists
        assert (await api.code.StartCode(run)).already_started
        request = code_pb.InterruptContextRequest(session_id=session_id, context="work")
        assert (await api.code.InterruptContext(request)).interrupted
        await api.wait(session_id, "e1")
        ended = await api.code.GetCodeRun(
            code_pb.GetCodeRunRequest(session_id=session_id, exec_id="e1")
        )
        assert ended.status == code_pb.CODE_STATUS_INTERRUPTED
        assert ended.stdout.data == b"begun\n"
        assert (ended.context.name, ended.context.generation) == ("work", 1)
        assert ended.context.cwd == "sub"
