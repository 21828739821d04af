"""What `engine.contract` promises, asked of the fake and of Docker alike.

What is asked of Docker needs a Docker Engine and the sandbox image, and fails without.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import aiodocker
import pytest
import pytest_asyncio
from aiohttp import web

from sandboxd.engine.contract import (
    BindMount,
    Container,
    ContainerId,
    ContainerSpec,
    Engine,
    ImageId,
    RegistrySilent,
    TmpfsMount,
)
from sandboxd.engine.docker import DEFAULT_URL, DockerEngine, EngineTimeouts
from sandboxd.errors import EngineFailed, EngineUnreachable, ImageNotFound
from tests.fakes.engine import FakeEngine
from tests.fakes.waiting import eventually

pytestmark = pytest.mark.asyncio

IMAGE = "sandbox-secure:latest"
FOREVER = ("/bin/sleep", "infinity")
EXITING = ("/bin/bash", "-c", "exit 0")
FAILING = ("/bin/bash", "-c", "exit 7")
ENGINE_SOCKET = DEFAULT_URL.removeprefix("unix://")
NO_CONTAINER = ContainerId("0" * 64)
NO_IMAGE = ImageId("sha256:" + "f" * 64)
PATIENCE_SECONDS = 30.0
MIB = 1024 * 1024

Labels = Mapping[str, str]

both = pytest.mark.parametrize("kind", ["fake", "docker"])


class ExitingEngine(FakeEngine):
    """A fake whose containers know the command `exit`."""

    def __init__(self) -> None:
        super().__init__(on_start=self._obey)

    async def _obey(self, spec: ContainerSpec, container: Container) -> None:
        if spec.argv in (EXITING, FAILING):
            self.exit_codes[container.id] = int(spec.argv[-1].split()[-1])
            self.lose(container.id)


class Rig(Protocol):
    """An engine whose connection can be disturbed."""

    @property
    def engine(self) -> Engine: ...

    async def disconnect(self) -> None: ...

    async def reconnect(self) -> None: ...

    def hold_answers(self) -> None: ...

    async def wait_until_answer_is_held(self) -> None: ...


class FakeRig:
    def __init__(self) -> None:
        self.engine = FakeEngine()

    async def disconnect(self) -> None:
        self.engine.go_away()

    async def reconnect(self) -> None:
        self.engine.come_back()

    def hold_answers(self) -> None:
        self.engine.gates["create.answer"] = asyncio.Event()

    async def wait_until_answer_is_held(self) -> None:
        await self.engine.wait_until(lambda: len(self.engine.live) == 1)


class DockerRig:
    """Docker behind a socket of our own, which can vanish, reappear, or keep answers back."""

    def __init__(self, path: Path, *, timeouts: EngineTimeouts) -> None:
        self.engine = DockerEngine(url=f"unix://{path}", timeouts=timeouts)
        self._path = path
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._may_answer = asyncio.Event()
        self._may_answer.set()
        self._held_answers = 0

    async def disconnect(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self._server = None
        self._path.unlink()
        for writer in self._writers:
            writer.close()
        if self._connections:
            await asyncio.wait(self._connections, timeout=PATIENCE_SECONDS)

    async def reconnect(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    def hold_answers(self) -> None:
        self._may_answer.clear()
        self._held_answers = 0

    def release_answers(self) -> None:
        self._may_answer.set()

    async def wait_until_answer_is_held(self) -> None:
        await self.wait_until_answers_are_held(1)

    async def wait_until_answers_are_held(self, count: int) -> None:
        await eventually(lambda: self._held_answers >= count, timeout_seconds=PATIENCE_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        engine_reader, engine_writer = await asyncio.open_unix_connection(ENGINE_SOCKET)
        self._writers |= {writer, engine_writer}
        relays = (
            asyncio.create_task(self._relay(reader, engine_writer, is_answer=False)),
            asyncio.create_task(self._relay(engine_reader, writer, is_answer=True)),
        )
        try:
            await asyncio.wait(relays, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for relay in relays:
                relay.cancel()
            await asyncio.gather(*relays, return_exceptions=True)
            writer.close()
            engine_writer.close()
            self._writers -= {writer, engine_writer}
            self._connections.discard(connection)

    async def _relay(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await source.read(65536):
            if is_answer:
                self._held_answers += 1
                await self._may_answer.wait()
            sink.write(data)
            await sink.drain()


@pytest.fixture
def labels() -> Labels:
    return {"sandboxd.instance": f"test-{secrets.token_hex(6)}", "sandboxd.role": "contract"}


@asynccontextmanager
async def swept(labels: Labels) -> AsyncIterator[None]:
    """Leave no container of this test behind, whatever its other labels are."""
    instance = {"sandboxd.instance": labels["sandboxd.instance"]}
    try:
        yield
    finally:
        async with aclosing(DockerEngine(url=None, timeouts=EngineTimeouts())) as sweeper:
            for container in await sweeper.list_containers(instance):
                await sweeper.remove(container.id)


@pytest_asyncio.fixture
async def docker(labels: Labels) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(url=None, timeouts=EngineTimeouts())
    async with swept(labels), aclosing(engine):
        yield engine


@pytest_asyncio.fixture
async def engine(kind: str, labels: Labels) -> AsyncIterator[Engine]:
    if kind == "fake":
        yield ExitingEngine()
        return
    engine = DockerEngine(url=None, timeouts=EngineTimeouts())
    async with swept(labels), aclosing(engine):
        yield engine


@asynccontextmanager
async def docker_rig(
    directory: Path, labels: Labels, *, timeouts: EngineTimeouts
) -> AsyncIterator[DockerRig]:
    rig = DockerRig(directory / "engine.sock", timeouts=timeouts)
    await rig.reconnect()
    async with swept(labels), aclosing(rig.engine):
        try:
            yield rig
        finally:
            await rig.disconnect()


@pytest_asyncio.fixture
async def rig(kind: str, labels: Labels, tmp_path: Path) -> AsyncIterator[Rig]:
    if kind == "fake":
        yield FakeRig()
        return
    async with docker_rig(tmp_path, labels, timeouts=EngineTimeouts()) as rig:
        yield rig


@asynccontextmanager
async def temporary_tag() -> AsyncIterator[str]:
    tag = f"sandboxd-test-{secrets.token_hex(6)}:built"
    try:
        yield tag
    finally:
        async with aiodocker.Docker(url=DEFAULT_URL) as client:
            with suppress(aiodocker.DockerError):  # the build may have failed
                await client.images.delete(tag, force=True)


@pytest_asyncio.fixture
async def docker_tag() -> AsyncIterator[str]:
    async with temporary_tag() as tag:
        yield tag


@pytest_asyncio.fixture
async def tag(kind: str) -> AsyncIterator[str]:
    if kind == "fake":
        yield "sandboxd-test:built"
        return
    async with temporary_tag() as tag:
        yield tag


@pytest.fixture
def shared_directory(tmp_path: Path) -> Path:
    (tmp_path / "fact").write_text("42")
    tmp_path.chmod(0o755)
    return tmp_path


@pytest_asyncio.fixture
async def raw_docker() -> AsyncIterator[aiodocker.Docker]:
    """For what the contract does not show."""
    async with aiodocker.Docker(url=DEFAULT_URL) as client:
        yield client


async def a_spec(engine: Engine, labels: Labels, *, argv: Sequence[str] = FOREVER) -> ContainerSpec:
    return ContainerSpec(
        name=f"sandboxd-test-{secrets.token_hex(6)}",
        image=await engine.image_id(IMAGE),
        argv=argv,
        labels=labels,
        uid=20_042,
        hostname="sandbox",
        memory_bytes=64 * MIB,
        pids=32,
        cpu_quota_us=0,
        nofile=512,
        max_file_bytes=8 << 20,
        network_mode="none",
        runtime=None,
    )


async def create(engine: Engine, labels: Labels, *, argv: Sequence[str] = FOREVER) -> ContainerId:
    return await engine.create(await a_spec(engine, labels, argv=argv))


async def inspect(engine: Engine, container_id: ContainerId) -> Container:
    container = await engine.inspect(container_id)
    assert container is not None
    return container


def is_a_process(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def run_to_its_end(engine: Engine, spec: ContainerSpec) -> Container:
    container_id = await engine.create(spec)
    await engine.start(container_id)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (container := await inspect(engine, container_id)).is_running:
            await asyncio.sleep(0.02)
    return container


async def exit_code(engine: Engine, spec: ContainerSpec, raw_docker: aiodocker.Docker) -> int:
    container = await run_to_its_end(engine, spec)
    shown = await raw_docker.containers.container(container.id).show()
    code: int = shown["State"]["ExitCode"]
    return code


@both
async def test_created_container_does_not_run(engine: Engine, labels: Labels) -> None:
    """Creating a container starts nothing."""
    spec = await a_spec(engine, labels)

    container = await inspect(engine, await engine.create(spec))

    assert (container.name, container.labels) == (spec.name, labels)
    assert (container.is_running, container.pid) == (False, 0)


@both
async def test_started_container_has_a_process(engine: Engine, labels: Labels) -> None:
    """A running container tells the host pid of its first process."""
    container_id = await create(engine, labels)

    await engine.start(container_id)

    container = await inspect(engine, container_id)
    assert container.is_running
    assert is_a_process(container.pid)


@both
async def test_starting_twice_starts_once(engine: Engine, labels: Labels) -> None:
    """Starting a container that runs changes nothing."""
    container_id = await create(engine, labels)
    await engine.start(container_id)
    first = await inspect(engine, container_id)

    await engine.start(container_id)

    assert await inspect(engine, container_id) == first


@both
async def test_starting_an_unknown_container_fails(engine: Engine) -> None:
    """A container that is gone cannot be started, and the caller is told."""
    with pytest.raises(EngineFailed):
        await engine.start(NO_CONTAINER)


@both
@pytest.mark.parametrize(("argv", "code"), [(EXITING, 0), (FAILING, 7)])
async def test_waiting_returns_the_exit_code(
    engine: Engine, labels: Labels, argv: Sequence[str], code: int
) -> None:
    """Whether the container has ended by then or not."""
    container_id = await create(engine, labels, argv=argv)
    await engine.start(container_id)

    assert await engine.wait(container_id, seconds=PATIENCE_SECONDS) == code
    assert await engine.wait(container_id, seconds=PATIENCE_SECONDS) == code


@both
async def test_container_that_does_not_end_is_not_waited_for_any_longer(
    engine: Engine, labels: Labels
) -> None:
    container_id = await create(engine, labels)
    await engine.start(container_id)

    with pytest.raises(EngineFailed):
        await engine.wait(container_id, seconds=0.2)
    with pytest.raises(EngineFailed):
        await engine.wait(NO_CONTAINER, seconds=PATIENCE_SECONDS)


@both
async def test_removed_container_is_gone(engine: Engine, labels: Labels) -> None:
    """Removing ends a running container and leaves nothing of it."""
    container_id = await create(engine, labels)
    await engine.start(container_id)

    await engine.remove(container_id)

    assert await engine.inspect(container_id) is None
    assert await engine.list_containers(labels) == []


@both
async def test_removing_again_is_fine(engine: Engine, labels: Labels) -> None:
    """Removing what is gone, or never was, is not an error."""
    container_id = await create(engine, labels)
    await engine.remove(container_id)

    await engine.remove(container_id)
    await engine.remove(NO_CONTAINER)


@both
async def test_racing_removals_all_return_after_the_end(engine: Engine, labels: Labels) -> None:
    """Every one of several removals returns only when the container is gone."""
    container_id = await create(engine, labels)
    await engine.start(container_id)

    async def remove_and_look() -> Container | None:
        await engine.remove(container_id)
        return await engine.inspect(container_id)

    assert await asyncio.gather(*(remove_and_look() for _ in range(8))) == [None] * 8


@both
async def test_unknown_container_is_none(engine: Engine) -> None:
    """Inspecting what does not exist says so without an error."""
    assert await engine.inspect(NO_CONTAINER) is None


@both
async def test_listing_finds_containers_in_every_state(engine: Engine, labels: Labels) -> None:
    """Containers that never ran, run, or have ended are all listed."""
    never_ran = await create(engine, labels)
    runs = await create(engine, labels)
    await engine.start(runs)
    ended = await run_to_its_end(engine, await a_spec(engine, labels, argv=EXITING))

    listed = {container.id: container for container in await engine.list_containers(labels)}

    assert set(listed) == {never_ran, runs, ended.id}
    assert [id_ for id_, container in listed.items() if container.is_running] == [runs]
    assert all(container.labels == labels for container in listed.values())
    assert all(container.name for container in listed.values())


@both
async def test_listing_needs_every_label(engine: Engine, labels: Labels) -> None:
    """Containers of others, who share only some of the labels, are not listed."""
    await create(engine, labels)

    assert len(await engine.list_containers(labels)) == 1
    assert await engine.list_containers({**labels, "sandboxd.role": "other"}) == []
    assert await engine.list_containers({**labels, "sandboxd.session": "s"}) == []


@both
async def test_ended_container_has_no_process(engine: Engine, labels: Labels) -> None:
    """A container whose program has ended stays until it is removed, without a process."""
    ended = await run_to_its_end(engine, await a_spec(engine, labels, argv=EXITING))

    assert (ended.is_running, ended.pid) == (False, 0)


@both
async def test_image_id_stands_for_itself(engine: Engine) -> None:
    """The id behind a name is accepted wherever a name is."""
    image = await engine.image_id(IMAGE)

    assert image.startswith("sha256:")
    assert await engine.image_id(image) == image


@both
@pytest.mark.parametrize(
    "reference", ["no-such-image:latest", NO_IMAGE, "", "../info", "a/../../info", "a b", "x?y#z"]
)
async def test_unknown_image_is_not_found(engine: Engine, reference: str) -> None:
    """A name without an image, or that can be no name, is not found and never pulled."""
    with pytest.raises(ImageNotFound):
        await engine.image_id(reference)


@both
async def test_file_of_an_image_can_be_read(engine: Engine, labels: Labels) -> None:
    """What is there is read whole, what is not there is empty, and no container is left."""
    image = await engine.image_id(IMAGE)
    name = f"sandboxd-test-{secrets.token_hex(6)}"
    accounts = await engine.read_file(image, "/etc/passwd", name=name, labels=labels)
    nothing = await engine.read_file(image, "/etc/nothing", name=name, labels=labels)
    directory = await engine.read_file(image, "/etc", name=name, labels=labels)

    assert accounts.startswith(b"root:x:0:0:")
    assert (nothing, directory) == (b"", b"")
    assert await engine.list_containers(labels) == []
    with pytest.raises(ImageNotFound):
        await engine.read_file(NO_IMAGE, "/etc/passwd", name=name, labels=labels)


@both
async def test_volumes_of_an_image_are_known(engine: Engine) -> None:
    """The sandbox image asks for none; one that is not there is not found."""
    assert list(await engine.volumes(await engine.image_id(IMAGE))) == []
    with pytest.raises(ImageNotFound):
        await engine.volumes(NO_IMAGE)


@both
async def test_create_without_its_image_says_so(engine: Engine, labels: Labels) -> None:
    """A container whose image has been deleted is told apart from other failures."""
    spec = replace(await a_spec(engine, labels), image=NO_IMAGE)

    with pytest.raises(ImageNotFound):
        await engine.create(spec)

    assert await engine.list_containers(labels) == []


@both
async def test_name_belongs_to_one_container(engine: Engine, labels: Labels) -> None:
    """A second container of the same name is refused."""
    spec = await a_spec(engine, labels)
    await engine.create(spec)

    with pytest.raises(EngineFailed):
        await engine.create(spec)


@both
async def test_info_describes_the_engine(engine: Engine) -> None:
    """The engine names itself, its versions and its runtimes."""
    info = await engine.info()

    assert all((info.name, info.version, info.api_version, info.storage_driver))
    assert info.cgroup_version in ("1", "2")
    assert info.default_runtime in info.runtimes


@both
async def test_closed_engine_is_unreachable(engine: Engine) -> None:
    """Closing is final and may be repeated."""
    await engine.aclose()
    await engine.aclose()

    with pytest.raises(EngineUnreachable):
        await engine.info()


@both
async def test_build_gives_the_name_to_a_new_image(
    engine: Engine, tmp_path: Path, tag: str
) -> None:
    """A build tells its progress line by line and leaves an image under its name."""
    (tmp_path / "Dockerfile.small").write_text(
        f"FROM {IMAGE}\nARG COLOUR\nLABEL colour=$COLOUR\nCOPY fact /fact\n"
    )
    (tmp_path / "fact").write_text("42")

    lines = [
        line
        async for line in engine.build_image(
            context=tmp_path,
            dockerfile="Dockerfile.small",
            tag=tag,
            build_args={"COLOUR": "blue"},
        )
    ]

    assert any(line.startswith("Step 1/") for line in lines)
    assert not any("\n" in line for line in lines)
    assert await engine.image_id(tag) != await engine.image_id(IMAGE)


@both
async def test_image_can_be_inspected_tagged_and_removed(
    engine: Engine, tmp_path: Path, tag: str
) -> None:
    """A build leaves its labels; a name that is removed does not take the image of another name
    with it, and removing it twice is fine."""
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nENV A=1\n")
    async for _ in engine.build_image(
        context=tmp_path,
        dockerfile="Dockerfile",
        tag=tag,
        build_args={},
        labels={"colour": "blue"},
        use_cache=False,
    ):
        pass
    built = await engine.inspect_image(tag)
    assert built is not None
    assert (built.id, built.labels["colour"]) == (await engine.image_id(tag), "blue")
    assert built.size_bytes > 0
    assert built.created_at > 0
    second = f"{tag}-second"
    await engine.tag_image(built.id, tag=second)
    for _ in range(2):
        await engine.remove_image(tag)
    assert await engine.inspect_image(tag) is None
    again = await engine.inspect_image(second)
    assert again is not None
    assert (again.id, list(again.tags)) == (built.id, [second])
    await engine.prune_images({"colour": "blue"})
    assert await engine.inspect_image(built.id) is not None, "it has a name"
    await engine.remove_image(second)
    assert await engine.inspect_image(built.id) is None


@both
@pytest.mark.parametrize("reference", ["no/such:image", "..", "a b", ""])
async def test_unknown_image_is_inspected_as_none(engine: Engine, reference: str) -> None:
    """Whatever is asked for, it is no error and no other path of the engine."""
    assert await engine.inspect_image(reference) is None


@both
async def test_registry_that_does_not_have_the_image_is_silent(engine: Engine) -> None:
    """Refused at once, without the address of anything in the text."""
    pulling = engine.pull_image("127.0.0.1:9/no/image:1", first_sign_seconds=20.0)
    with pytest.raises(RegistrySilent, match="no registry"):
        await anext(pulling)


@both
@pytest.mark.parametrize("missing", ["context", "Dockerfile"])
async def test_build_without_its_files_fails(engine: Engine, tmp_path: Path, missing: str) -> None:
    """A build that lacks its context or its Dockerfile fails before it yields anything."""
    context = tmp_path / "absent" if missing == "context" else tmp_path
    build = engine.build_image(
        context=context, dockerfile="Dockerfile", tag="sandboxd-test:never", build_args={}
    )

    with pytest.raises(EngineFailed) as failed:
        await anext(build)

    assert str(tmp_path) not in failed.value.message


@both
async def test_calls_fail_during_an_outage_and_work_after_it(rig: Rig, labels: Labels) -> None:
    """An engine that went away is reported as such; once it is back, the next call works."""
    before = await create(rig.engine, labels)

    await rig.disconnect()
    with pytest.raises(EngineUnreachable) as unreachable:
        await rig.engine.list_containers(labels)
    await rig.reconnect()

    assert unreachable.value.retry_after_seconds
    assert [found.id for found in await rig.engine.list_containers(labels)] == [before]


@both
async def test_cancelled_create_is_found_by_its_labels(rig: Rig, labels: Labels) -> None:
    """A container whose creator was cancelled before the answer can still be swept."""
    spec = await a_spec(rig.engine, labels)
    rig.hold_answers()
    creating = asyncio.create_task(rig.engine.create(spec))
    await rig.wait_until_answer_is_held()

    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating

    async with other_connection(rig) as engine:
        assert [found.name for found in await engine.list_containers(labels)] == [spec.name]


@asynccontextmanager
async def other_connection(rig: Rig) -> AsyncIterator[Engine]:
    if isinstance(rig, FakeRig):
        yield rig.engine
        return
    async with aclosing(DockerEngine(url=None, timeouts=EngineTimeouts())) as engine:
        yield engine


async def test_absent_engine_is_reported_at_once(tmp_path: Path) -> None:
    """Without a socket there is nothing to wait for."""
    engine = DockerEngine(url=f"unix://{tmp_path}/nothing.sock", timeouts=EngineTimeouts())

    async with aclosing(engine), asyncio.timeout(1.0):
        with pytest.raises(EngineUnreachable) as unreachable:
            await engine.info()

    assert str(tmp_path) not in unreachable.value.message


async def test_engine_can_appear_after_the_first_call(tmp_path: Path) -> None:
    """A daemon that was there before its engine needs no restart."""
    socket = tmp_path / "late.sock"
    async with aclosing(DockerEngine(url=f"unix://{socket}", timeouts=EngineTimeouts())) as engine:
        with pytest.raises(EngineUnreachable):
            await engine.image_id(IMAGE)

        async with scripted_engine(socket, api_version="1.41"):
            assert await engine.image_id(IMAGE) == NO_IMAGE


async def test_engine_of_another_release_is_understood_after_an_outage(tmp_path: Path) -> None:
    """An engine that was upgraded while away is spoken to in its new version."""
    socket = tmp_path / "engine.sock"
    async with aclosing(DockerEngine(url=f"unix://{socket}", timeouts=EngineTimeouts())) as engine:
        async with scripted_engine(socket, api_version="1.41"):
            assert await engine.image_id(IMAGE) == NO_IMAGE
        with pytest.raises(EngineUnreachable):
            await engine.image_id(IMAGE)

        async with scripted_engine(socket, api_version="1.52"):
            assert await engine.image_id(IMAGE) == NO_IMAGE


@asynccontextmanager
async def scripted_engine(socket: Path, *, api_version: str) -> AsyncIterator[None]:
    """Something that speaks one version of the API and knows one image."""

    async def version(request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": api_version})

    async def image(request: web.Request) -> web.Response:
        if request.match_info["version"] != f"v{api_version}":
            return web.json_response({"message": "client version is too old"}, status=400)
        return web.json_response({"Id": NO_IMAGE})

    application = web.Application()
    application.router.add_get("/version", version)
    application.router.add_get("/{version}/images/{name}/json", image)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        yield
    finally:
        await runner.cleanup()


async def test_engine_elsewhere_is_refused() -> None:
    """An engine that cannot be on this host is a mistake of the configuration."""
    with pytest.raises(ValueError, match="unix://"):
        DockerEngine(url="ssh://user@elsewhere", timeouts=EngineTimeouts())


async def test_late_answer_fails_the_call(labels: Labels, tmp_path: Path) -> None:
    """An engine that hangs costs a call no more than its deadline."""
    timeouts = EngineTimeouts(call_seconds=0.3)
    async with docker_rig(tmp_path, labels, timeouts=timeouts) as rig:
        rig.hold_answers()

        async with asyncio.timeout(2.0):
            with pytest.raises(EngineFailed, match=r"did not answer within 0\.3 s"):
                await rig.engine.inspect(NO_CONTAINER)


async def test_more_calls_than_a_hundred_wait_side_by_side(labels: Labels, tmp_path: Path) -> None:
    """Many slow calls do not use up the connections of the others."""
    async with docker_rig(tmp_path, labels, timeouts=EngineTimeouts()) as rig:
        container_id = await create(rig.engine, labels)
        rig.hold_answers()
        calls = [asyncio.create_task(inspect(rig.engine, container_id)) for _ in range(120)]
        await rig.wait_until_answers_are_held(120)
        rig.release_answers()

        assert {container.id for container in await asyncio.gather(*calls)} == {container_id}


async def test_registry_that_says_nothing_is_given_up_soon(docker: DockerEngine) -> None:
    """The limit is for its first sign, not for the download; nothing is left pulling."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel connects, nobody answers
        port = silent.getsockname()[1]
        pulling = docker.pull_image(f"127.0.0.1:{port}/a/b:1", first_sign_seconds=0.3)
        with pytest.raises(RegistrySilent, match=r"within 0\.3 s"):
            await anext(pulling)


async def test_root_filesystem_can_be_imported(docker: DockerEngine, tmp_path: Path) -> None:
    """A tar file becomes an image with its command."""
    (tmp_path / "fact").write_text("42")
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.add(tmp_path / "fact", arcname="fact")
    async with temporary_tag() as tag:
        await docker.import_image(tmp_path / "root.tar", tag=tag, command="bash")
        info = await docker.inspect_image(tag)
        assert info is not None
        name = f"sandboxd-test-{secrets.token_hex(4)}"
        content = await docker.read_file(info.id, "/fact", name=name, labels={})

    assert content == b"42"


async def test_failed_build_step_is_named(docker: DockerEngine, tmp_path: Path) -> None:
    """Whoever builds an image learns which step failed and how, whatever it printed before."""
    noise = "head -c 200000 /dev/zero"  # the engine sends each byte as six, without a newline
    (tmp_path / "Dockerfile").write_text(
        f"FROM {IMAGE}\nRUN {noise}; echo; echo to-be-seen; exit 3\n"
    )
    lines: list[str] = []

    async def build() -> None:
        async for line in docker.build_image(
            context=tmp_path, dockerfile="Dockerfile", tag="sandboxd-test:never", build_args={}
        ):
            lines.append(line)

    with pytest.raises(EngineFailed) as failed:
        await build()

    assert "Step 2/2 : RUN" in failed.value.message
    assert "non-zero code: 3" in failed.value.message
    assert "to-be-seen" in lines


async def test_build_uses_the_network_of_the_host_and_its_arguments(
    docker: DockerEngine, tmp_path: Path, docker_tag: str
) -> None:
    """A build step reaches what the host reaches, and sees its arguments."""
    (tmp_path / "Dockerfile").write_text(
        f'FROM {IMAGE}\nARG NETWORK\nRUN [ "$(readlink /proc/self/ns/net)" = "$NETWORK" ]\n'
    )

    async for _ in docker.build_image(
        context=tmp_path,
        dockerfile="Dockerfile",
        tag=docker_tag,
        build_args={"NETWORK": os.readlink("/proc/self/ns/net")},
    ):
        pass


@pytest_asyncio.fixture
async def wilful_image(docker: DockerEngine, tmp_path: Path, docker_tag: str) -> ImageId:
    """An image with wishes of its own."""
    (tmp_path / "Dockerfile").write_text(
        f"FROM {IMAGE}\nLABEL test={docker_tag}\n"  # no other test removes its layers meanwhile
        "USER root\nWORKDIR /elsewhere\nVOLUME /data\n"
        'ENTRYPOINT ["/bin/false"]\nCMD ["junk"]\nHEALTHCHECK --interval=1s CMD true\n'
    )
    async for _ in docker.build_image(
        context=tmp_path, dockerfile="Dockerfile", tag=docker_tag, build_args={}
    ):
        pass
    return await docker.image_id(docker_tag)


async def test_image_has_no_say_in_how_it_runs(
    wilful_image: ImageId, docker: DockerEngine, labels: Labels, raw_docker: aiodocker.Docker
) -> None:
    """User, program, directory and health check are those of the spec, whatever the image says."""
    spec = replace(await a_spec(docker, labels), image=wilful_image)
    container_id = await docker.create(spec)
    await docker.start(container_id)

    shown = await raw_docker.containers.container(container_id).show()
    await docker.remove(container_id)

    assert (shown["Path"], shown["Args"]) == (FOREVER[0], list(FOREVER[1:]))
    assert (shown["Config"]["User"], shown["Config"]["WorkingDir"]) == ("20042:20042", "/workspace")
    assert "Health" not in shown["State"]


async def test_removed_container_takes_its_volumes_along(
    wilful_image: ImageId, docker: DockerEngine, labels: Labels, raw_docker: aiodocker.Docker
) -> None:
    """A volume that an image declares does not outlive the container it was made for."""
    spec = replace(await a_spec(docker, labels), image=wilful_image)
    container_id = await docker.create(spec)
    shown = await raw_docker.containers.container(container_id).show()
    (volume,) = (mount["Name"] for mount in shown["Mounts"])

    await docker.remove(container_id)

    with pytest.raises(aiodocker.DockerError, match="no such volume"):
        await raw_docker._query_json(f"volumes/{volume}")


async def test_volumes_that_an_image_asks_for_are_known(
    wilful_image: ImageId, docker: DockerEngine, labels: Labels
) -> None:
    """Each is named; a mount of ours in its place means that no volume is made."""
    assert await docker.volumes(wilful_image) == ["/data"]


async def test_filter_of_system_calls_is_the_one_given(
    docker: DockerEngine, labels: Labels, raw_docker: aiodocker.Docker
) -> None:
    """A profile in the spec takes the place of the engine's own."""
    deny = {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [deny]}
    argv = ("/bin/bash", "-c", "mkdir /tmp/x 2>&1 | grep -q 'not supported' && exit 42")
    spec = replace(await a_spec(docker, labels, argv=argv), seccomp=json.dumps(profile))

    assert await exit_code(docker, spec, raw_docker) == 42


async def test_write_limit_of_a_device_is_handed_on(
    docker: DockerEngine, labels: Labels, raw_docker: aiodocker.Docker
) -> None:
    """The engine knows the limit by the device it was given for."""
    device = "/dev/loop0"
    spec = replace(await a_spec(docker, labels), write_bytes_per_second={device: 5 * MIB})
    container_id = await docker.create(spec)
    shown = await raw_docker.containers.container(container_id).show()

    limit = {"Path": device, "Rate": 5 * MIB}
    assert shown["HostConfig"]["BlkioDeviceWriteBps"] == [limit]


async def test_container_beyond_its_memory_is_killed(
    docker: DockerEngine, labels: Labels, raw_docker: aiodocker.Docker
) -> None:
    """The memory limit of the spec ends a program that exceeds it."""
    hungry = ("/bin/bash", "-c", 'x=$(head -c 200000000 /dev/zero | tr "\\0" x)')

    spec = await a_spec(docker, labels, argv=hungry)

    assert await exit_code(docker, spec, raw_docker) == 137


async def test_settings_that_only_the_host_can_see(
    docker: DockerEngine, labels: Labels, raw_docker: aiodocker.Docker
) -> None:
    """Swap, logs, restarts and helpers are off, and the engine's own masks stay in place."""
    container_id = await create(docker, labels)

    shown = await raw_docker.containers.container(container_id).show()

    host: dict[str, Any] = shown["HostConfig"]
    assert host["MemorySwap"] == host["Memory"] == 64 * MIB
    assert host["LogConfig"]["Type"] == "none"
    assert host["RestartPolicy"]["Name"] == "no"
    assert (host["Privileged"], host["AutoRemove"], host["Init"]) == (False, False, False)
    assert (host["IpcMode"], host["CgroupnsMode"]) == ("private", "private")
    assert (host["NetworkMode"], host["CpuQuota"]) == ("none", 0)
    assert "/proc/kcore" in host["MaskedPaths"]
    assert "/proc/sys" in host["ReadonlyPaths"]


SHELL_FUNCTIONS = (
    "limit() { cat /sys/fs/cgroup/$1 2>/dev/null || cat /sys/fs/cgroup/$2; }; "
    'mount_of() { grep -- " $1 " /proc/self/mountinfo; }; '
)
# Each runs inside the container; the name of the first that is not true is in the exit code.
HARDENING = {
    "no capability in any set": "! grep ^Cap /proc/self/status | grep -qv 0000000000000000",
    "no new privileges": "grep -q '^NoNewPrivs:.1$' /proc/self/status",
    "system calls are filtered": "grep -q '^Seccomp:.2$' /proc/self/status",
    "own user": '[ "$(id -u) $(id -g) $(id -G)" = "20042 20042 20042" ]',
    "the program is PID 1": "[ $$ = 1 ]",
    "starts in the workspace": '[ "$PWD" = /workspace ]',
    "host name": '[ "$(cat /proc/sys/kernel/hostname)" = sandbox ]',
    "no input": '[ "$(readlink -f /proc/1/fd/0)" = /dev/null ]',
    "root is read-only": "mount_of / | grep -q ' / ro,' && ! touch /etc/x 2>/dev/null",
    "bind is shown": '[ "$(cat /shared/fact)" = 42 ]',
    "a writable bind is writable": "touch /writable/x && rm /writable/x",
    "bind is read-only": "mount_of /shared | grep -q ' /shared ro,' && ! touch /shared/x",
    "later mounts of the host stay out": "! mount_of /shared | grep -q shared:",
    "scratch may not run programs": "cp /bin/true /tmp/t && ! /tmp/t",
    "scratch flags": "mount_of /tmp | grep nosuid | grep nodev | grep -q noexec",
    "scratch is bounded in bytes": "! head -c 2000000 /dev/zero >/tmp/big && rm /tmp/big",
    "scratch is bounded in files": (
        "! ( for i in $(seq 100); do : >/tmp/f$i || exit 1; done ) && rm /tmp/f*"
    ),
    "workspace may run programs": "cp /bin/true /workspace/t && /workspace/t",
    "workspace flags": "mount_of /workspace | grep nosuid | grep -q nodev",
    "workspace belongs to the user": '[ "$(stat -c %u:%g /workspace)" = 20042:20042 ]',
    # runc gives a mount point that the image already has the mode it had there.
    "mode of a new mount point": '[ "$(stat -c %u:%g:%a /fresh)" = 20042:20042:710 ]',
    "nothing else is writable": (
        "! find / -xdev -writable ! -type l 2>/dev/null"
        " | grep -vx -e /tmp -e /workspace -e /fresh -e /writable | grep -q ."
    ),
    "open files": '[ "$(ulimit -Sn) $(ulimit -Hn)" = "512 512" ]',
    "single files": '[ "$(ulimit -Sf) $(ulimit -Hf)" = "8192 8192" ]',
    "no core files": '[ "$(ulimit -Sc) $(ulimit -Hc)" = "0 0" ]',
    "processes": "[ $(limit pids/pids.max pids.max) = 32 ]",
    "memory": "[ $(limit memory/memory.limit_in_bytes memory.max) = 67108864 ]",
    "CPU": "limit cpu/cpu.cfs_quota_us cpu.max | grep -q '^50000'",
    "shared memory": '[ "$(($(stat -f -c "%b * %S" /dev/shm)))" = 16777216 ]',
    "cgroup does not name the container": "! grep -qv ':/$' /proc/self/cgroup",
    "no nameserver of the host": "[ ! -s /etc/resolv.conf ]",
    "no network interface": "! grep : /proc/net/dev | grep -qv lo:",
    "masked path": '[ -z "$(cat /proc/version)" ]',
    "read-only path": "mount_of /proc/bus | grep -q ' /proc/bus ro,'",
}


def a_tmpfs(target: str, *, mode: int, executable: bool) -> TmpfsMount:
    return TmpfsMount(
        target=target,
        size_bytes=MIB,
        max_files=64,
        uid=20_042,
        mode=mode,
        executable=executable,
    )


async def test_hardening_is_in_force_inside(
    docker: DockerEngine,
    labels: Labels,
    raw_docker: aiodocker.Docker,
    shared_directory: Path,
    tmp_path: Path,
) -> None:
    """Seen from inside, a container is confined in every way its spec and the engine promise."""
    writable = tmp_path / "writable"
    writable.mkdir()
    writable.chmod(0o777)
    checks = (f"{{ {check}; }} || exit {code}" for code, check in enumerate(HARDENING.values(), 10))
    script = SHELL_FUNCTIONS + "\n" + "\n".join(checks)
    spec = replace(
        await a_spec(docker, labels, argv=("/bin/bash", "-c", script)),
        cpu_quota_us=50_000,
        binds=[
            BindMount(source=shared_directory, target="/shared"),
            BindMount(source=writable, target="/writable", writable=True),
        ],
        tmpfs=[
            a_tmpfs("/tmp", mode=0o1777, executable=False),
            a_tmpfs("/workspace", mode=0o700, executable=True),
            a_tmpfs("/fresh", mode=0o710, executable=False),
        ],
        masked_paths=["/proc/version"],
        readonly_paths=["/proc/bus"],
    )

    code = await exit_code(docker, spec, raw_docker)

    broken = dict(enumerate(HARDENING, 10)).get(code)
    assert broken is None, broken
    assert code == 0
