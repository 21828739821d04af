"""A Docker Engine on this host, through aiodocker."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import aiohttp
import structlog
from aiodocker import Docker, DockerError
from aiodocker.containers import DockerContainer

from sandboxd.engine import docker_errors
from sandboxd.engine.contract import (
    BindMount,
    Container,
    ContainerId,
    ContainerSpec,
    EngineInfo,
    ImageId,
    ImageInfo,
    RegistrySilent,
    TmpfsMount,
)
from sandboxd.errors import EngineFailed, EngineUnreachable, ImageNotFound

log = structlog.get_logger(__name__)

DEFAULT_URL = "unix:///var/run/docker.sock"

# Waiting for a free connection counts against a call's deadline. With aiohttp's default of 100, a
# hundred slow starts would make every inspect and remove fail although the engine is healthy.
# Callers limit how much runs at once; this is only a safety limit below RLIMIT_NOFILE.
_MAX_CONNECTIONS = 512
# Half of the longest line that can be read; a build step without newlines prints long lines.
_READ_BUFFER_BYTES = 512 * 1024
_CPU_PERIOD_US = 100_000
_MAX_FILE_BYTES = 1024 * 1024
# Python's multiprocessing needs /dev/shm for its locks; its content counts as memory.
_SHM_BYTES = 16 * 1024 * 1024
_IMAGE_REFERENCE = re.compile(r"(?!.*\.\.)[A-Za-z0-9][\w.:/@-]{0,511}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class EngineTimeouts:
    """Time limits of calls to the engine."""

    call_seconds: float = 10.0
    start_seconds: float = 30.0
    """Time limit of create and of start."""
    remove_seconds: float = 20.0
    build_seconds: float = 1800.0


@dataclass(frozen=True, kw_only=True)
class _Deadline:
    """One limit for several waits; a generator cannot hold `asyncio.timeout` across its yields."""

    seconds: float
    at: float

    @classmethod
    def after(cls, seconds: float) -> _Deadline:
        return cls(seconds=seconds, at=asyncio.get_running_loop().time() + seconds)


class DockerEngine:
    """Implements `contract.Engine`, with a new connection for every call.

    Without a `url` it uses DOCKER_HOST or the default socket. The engine has to be on this host:
    sandboxes are reached through bind-mounted sockets.
    """

    def __init__(self, *, url: str | None, timeouts: EngineTimeouts) -> None:
        self._url = url or os.environ.get("DOCKER_HOST") or DEFAULT_URL
        if not self._url.startswith(("unix://", "tcp://", "http://")):
            raise ValueError("The URL of the engine must start with unix://, tcp:// or http://.")
        self._timeouts = timeouts
        self._session: aiohttp.ClientSession | None = None
        self._docker: Docker | None = None
        self._is_closed = False
        self._warnings_seen: set[str] = set()

    async def info(self) -> EngineInfo:
        async with self._call("describe itself", self._timeouts.call_seconds) as docker:
            version = await docker.version()
            info = await docker.system.info()
            runc = _component(version, "runc")
            return EngineInfo(
                name=version.get("Platform", {}).get("Name") or "Docker Engine",
                version=version["Version"],
                api_version=version["ApiVersion"],
                cgroup_version=info.get("CgroupVersion", "1"),
                storage_driver=info["Driver"],
                default_runtime=info["DefaultRuntime"],
                runtimes=sorted(info["Runtimes"]),
                security_options=list(info.get("SecurityOptions") or ()),
                live_restore=bool(info.get("LiveRestoreEnabled")),
                runc_version=runc.get("Version") or "",
                runc_package=(runc.get("Details") or {}).get("GitCommit") or "",
            )

    async def create(self, spec: ContainerSpec) -> ContainerId:
        async with self._call(
            "create a sandbox", self._timeouts.start_seconds, image=spec.image
        ) as docker:
            answer = await docker._query_json(
                "containers/create",
                method="POST",
                params={"name": spec.name},
                data=_container_config(spec),
            )
            self._log_warnings(answer.get("Warnings") or ())
            return ContainerId(answer["Id"])

    async def start(self, container_id: ContainerId) -> None:
        async with self._call("start a sandbox", self._timeouts.start_seconds) as docker:
            await docker.containers.container(container_id).start()

    async def inspect(self, container_id: ContainerId) -> Container | None:
        async with self._call("inspect a sandbox", self._timeouts.call_seconds) as docker:
            try:
                answer = await docker.containers.container(container_id).show()
            except DockerError as error:
                if docker_errors.is_missing(error):
                    return None
                raise
            return _inspected(answer)

    async def wait(self, container_id: ContainerId, *, seconds: float) -> int:
        async with self._call("wait for a container", seconds) as docker:
            answer = await docker.containers.container(container_id).wait()
            return int(answer["StatusCode"])

    async def remove(self, container_id: ContainerId) -> None:
        async with self._call("remove a sandbox", self._timeouts.remove_seconds) as docker:
            container = docker.containers.container(container_id)
            try:
                await container.delete(force=True, v=True)
            except DockerError as error:
                if docker_errors.is_removal_in_progress(error):
                    await _wait_until_removed(container)
                elif not docker_errors.is_missing(error):
                    raise

    async def list_containers(self, labels: Mapping[str, str]) -> Sequence[Container]:
        async with self._call("list sandboxes", self._timeouts.call_seconds) as docker:
            answer = await docker._query_json(
                "containers/json", params={"all": True, "filters": _filters(labels)}
            )
            return [_listed(entry) for entry in answer]

    async def image_id(self, reference: str) -> ImageId:
        # The reference becomes part of a URL: anything but a name could change its path.
        if not _IMAGE_REFERENCE.fullmatch(reference):
            raise ImageNotFound(reference)
        async with self._call(
            "look up an image", self._timeouts.call_seconds, image=reference
        ) as docker:
            answer = await docker.images.inspect(reference)
            return ImageId(answer["Id"])

    async def volumes(self, image: ImageId) -> Sequence[str]:
        async with self._call(
            "look up an image", self._timeouts.call_seconds, image=image
        ) as docker:
            answer = await docker.images.inspect(image)
            return sorted((answer.get("Config") or {}).get("Volumes") or ())

    async def read_file(
        self, image: ImageId, path: str, *, name: str, labels: Mapping[str, str]
    ) -> bytes:
        # The engine can read an image only through a container, which is created and never started.
        async with self._call(
            "look into an image", self._timeouts.start_seconds, image=image
        ) as docker:
            config = {"Image": image, "Entrypoint": ["/"], "Labels": dict(labels)}
            created = await docker._query_json(
                "containers/create", method="POST", params={"name": name}, data=config
            )
            container = docker.containers.container(created["Id"])
            try:
                return _first_file(await container.get_archive(path))
            except DockerError as error:
                if docker_errors.is_missing(error):
                    return b""
                raise
            finally:
                await asyncio.shield(container.delete(force=True, v=True))

    async def inspect_image(self, reference: str) -> ImageInfo | None:
        if not _IMAGE_REFERENCE.fullmatch(reference):
            return None
        async with self._call("look up an image", self._timeouts.call_seconds) as docker:
            try:
                return _image_info(await docker.images.inspect(reference))
            except DockerError as error:
                if docker_errors.is_missing(error):
                    return None
                raise

    async def build_image(
        self,
        *,
        context: Path,
        dockerfile: str,
        tag: str,
        build_args: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        use_cache: bool = True,
    ) -> AsyncGenerator[str, None]:
        params: dict[str, str | bool] = {
            "dockerfile": dockerfile,
            "t": tag,
            "buildargs": json.dumps(dict(build_args)),
            "labels": json.dumps(dict(labels or {})),
            "networkmode": "host",
            "nocache": not use_cache,
            "rm": True,
            "forcerm": True,
        }
        deadline = _Deadline.after(self._timeouts.build_seconds)
        with tempfile.TemporaryFile() as archive:
            await _pack(context, archive, deadline=deadline)
            response = await self._open_build(archive, params=params, deadline=deadline)
            try:
                output = _BuildOutput()
                while message := await _next_build_message(response, deadline=deadline):
                    for line in output.lines_of(message):
                        yield line
                for line in output.rest():
                    yield line
            finally:
                response.close()

    async def pull_image(
        self, reference: str, *, first_sign_seconds: float
    ) -> AsyncGenerator[str, None]:
        deadline = _Deadline.after(self._timeouts.build_seconds)
        name, tag = _name_and_tag(reference)
        params = {"fromImage": name, "tag": tag}
        try:
            async with asyncio.timeout(first_sign_seconds):
                response = await self._open_pull(params, deadline)
                # The engine answers at once; the registry's first sign is the first message.
                message = await _next_build_message(response, deadline=deadline)
        except TimeoutError as error:
            raise RegistrySilent(
                f"no registry answered for {reference} within {first_sign_seconds:g} s"
            ) from error
        except EngineFailed as error:
            log.info("registry.silent", image=reference, cause=str(error.__cause__))
            raise RegistrySilent(f"no registry that the engine reaches has {reference}") from error
        try:
            while message is not None:
                if "error" in message:
                    log.info("registry.failed", image=reference, cause=str(message["error"]))
                    raise RegistrySilent(f"the download of {reference} broke off")
                yield _pull_line(message)
                message = await _next_build_message(response, deadline=deadline)
        finally:
            response.close()

    async def import_image(self, archive: Path, *, tag: str, command: str) -> None:
        seconds = self._timeouts.build_seconds
        repository, version = _name_and_tag(tag)
        params = {
            "fromSrc": "-",
            "repo": repository,
            "tag": version,
            "changes": f"CMD {json.dumps([command])}",
        }
        async with self._call("import an image", seconds) as docker:
            with archive.open("rb") as file:
                response = await docker._do_query(
                    "images/create",
                    "POST",
                    params=params,
                    data=file,
                    headers={"Content-Type": "application/x-tar"},
                )
            answer = await response.text()
        if '"error"' in answer:
            raise docker_errors.build_failed(step="import", problem=answer)

    async def tag_image(self, image: str, *, tag: str) -> None:
        repository, version = _name_and_tag(tag)
        async with self._call("tag an image", self._timeouts.call_seconds, image=image) as docker:
            await docker.images.tag(image, repository, tag=version)

    async def remove_image(self, tag: str) -> None:
        async with self._call("remove an image", self._timeouts.remove_seconds) as docker:
            try:
                # By force: containers that use it keep it, without its name.
                await docker.images.delete(tag, force=True)
            except DockerError as error:
                if not docker_errors.is_missing(error):
                    raise

    async def prune_images(self, labels: Mapping[str, str]) -> None:
        filters = {
            "dangling": ["true"],
            "label": [f"{key}={value}" for key, value in labels.items()],
        }
        async with self._call("remove images", self._timeouts.remove_seconds) as docker:
            await docker._query_json(
                "images/prune", method="POST", params={"filters": json.dumps(filters)}
            )

    async def aclose(self) -> None:
        self._is_closed = True
        session, self._session, self._docker = self._session, None, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _call(
        self, doing: str, seconds: float, *, image: str | None = None
    ) -> AsyncIterator[Docker]:
        """Yield the client for one request with a time limit."""
        try:
            with docker_errors.translated(doing, within_seconds=seconds, image=image):
                async with asyncio.timeout(seconds):
                    yield self._client()
        except EngineUnreachable:
            self._forget_api_version()
            raise

    def _client(self) -> Docker:
        if self._is_closed:
            raise docker_errors.connection_closed()
        if self._docker is None:
            self._session, self._docker = _open_client(self._url)
        return self._docker

    def _forget_api_version(self) -> None:
        # The engine that comes back may be another release that refuses the negotiated version.
        if self._docker is not None:
            self._docker.api_version = "auto"

    def _log_warnings(self, warnings: Sequence[str]) -> None:
        # The engine reports here, for each container, that it ignores a limit.
        for warning in set(warnings) - self._warnings_seen:
            self._warnings_seen.add(warning)
            log.warning("engine.warned", warning=warning)

    async def _open_pull(
        self, params: Mapping[str, str], deadline: _Deadline
    ) -> aiohttp.ClientResponse:
        async with self._call("pull an image", deadline.seconds) as docker:
            return await docker._do_query("images/create", "POST", params=params)

    async def _open_build(
        self, archive: IO[bytes], *, params: Mapping[str, str | bool], deadline: _Deadline
    ) -> aiohttp.ClientResponse:
        async with self._call("build an image", deadline.seconds) as docker:
            with docker_errors.build_refusals():
                return await docker._do_query(
                    "build",
                    "POST",
                    params=params,
                    data=archive,
                    headers={"Content-Type": "application/x-tar"},
                )


def _open_client(url: str) -> tuple[aiohttp.ClientSession, Docker]:
    # Connections are not reused: one that dies with the engine while a request is being sent would
    # fail a call that the restarted engine could serve. Opening one takes 0.2 ms.
    connector: aiohttp.BaseConnector
    if url.startswith("unix://"):
        connector = aiohttp.UnixConnector(
            url.removeprefix("unix://"), limit=_MAX_CONNECTIONS, force_close=True
        )
        url = "unix://localhost"
    else:
        connector = aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, force_close=True)
    session = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BUFFER_BYTES)
    return session, Docker(url=url, connector=connector, session=session)


async def _next_build_message(
    response: aiohttp.ClientResponse, *, deadline: _Deadline
) -> dict[str, Any] | None:
    """The next JSON line of a build's progress, None at its end."""
    with docker_errors.translated("build an image", within_seconds=deadline.seconds):
        async with asyncio.timeout_at(deadline.at):
            line = await response.content.readline()
        if not line:
            return None
        message: dict[str, Any] = json.loads(line)
        return message


async def _wait_until_removed(container: DockerContainer) -> None:
    # Another call is removing it. The caller may reuse the uid and the mounts as soon as we return,
    # so we must not return early.
    try:
        answer = await container.wait(condition="removed")
    except DockerError as error:
        if docker_errors.is_missing(error):
            return
        raise
    if problem := answer.get("Error"):
        raise DockerError(500, str(problem))


def _filters(labels: Mapping[str, str]) -> str:
    return json.dumps({"label": [f"{key}={value}" for key, value in labels.items()]})


def _name_and_tag(reference: str) -> tuple[str, str]:
    """Name and tag of an image; a digest is part of the name."""
    name, colon, tag = reference.rpartition(":")
    if "@" in reference:
        return reference, ""
    if not colon or "/" in tag:  # the colon is that of a registry's port
        return reference, "latest"
    return name, tag


def _image_info(answer: Mapping[str, Any]) -> ImageInfo:
    return ImageInfo(
        id=ImageId(answer["Id"]),
        size_bytes=answer["Size"],
        created_at=_seconds(answer["Created"]),
        labels=(answer.get("Config") or {}).get("Labels") or {},
        tags=answer.get("RepoTags") or (),
    )


def _seconds(moment: str) -> float:
    """Seconds since the epoch; the engine writes nanoseconds, which Python does not read."""
    try:
        return datetime.fromisoformat(re.sub(r"\.\d+", "", moment)).timestamp()
    except ValueError:
        return 0.0


def _pull_line(message: Mapping[str, Any]) -> str:
    parts = (message.get("id"), message.get("status"), message.get("progress"))
    return " ".join(str(part) for part in parts if part)


def _component(version: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What the engine reports about one of its components; empty if nothing."""
    components: Sequence[Mapping[str, Any]] = version.get("Components") or ()
    return next((component for component in components if component.get("Name") == name), {})


def _first_file(archive: tarfile.TarFile) -> bytes:
    """The content of an archive's first entry, if that is a file, up to a limit."""
    for member in archive:
        file = archive.extractfile(member) if member.isreg() else None
        return file.read(_MAX_FILE_BYTES) if file else b""
    return b""


def _inspected(answer: Mapping[str, Any]) -> Container:
    state = answer["State"]
    return Container(
        id=ContainerId(answer["Id"]),
        name=answer["Name"].removeprefix("/"),
        labels=answer["Config"]["Labels"] or {},
        is_running=state["Running"],
        pid=state["Pid"],
    )


def _listed(entry: Mapping[str, Any]) -> Container:
    names = entry["Names"] or [""]
    return Container(
        id=ContainerId(entry["Id"]),
        name=names[0].removeprefix("/"),
        labels=entry["Labels"] or {},
        is_running=entry["State"] in ("running", "paused"),
        pid=0,
    )


def _container_config(spec: ContainerSpec) -> dict[str, Any]:
    return {
        "Image": spec.image,
        "Entrypoint": list(spec.argv),
        "Cmd": [],
        "User": f"{spec.uid}:{spec.uid}",
        "WorkingDir": "/workspace",
        "Hostname": spec.hostname,
        "Labels": dict(spec.labels),
        # With NetworkMode none alone, resolv.conf shows the host's nameservers.
        "NetworkDisabled": spec.network_mode == "none",
        # An image's own check would be a `docker exec` into the sandbox every few seconds.
        "Healthcheck": {"Test": ["NONE"]},
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "OpenStdin": False,
        "Tty": False,
        "HostConfig": _host_config(spec),
    }


def _host_config(spec: ContainerSpec) -> dict[str, Any]:
    config = {
        "NetworkMode": spec.network_mode,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": _security_options(spec),
        "CgroupnsMode": "private",
        "IpcMode": "private",
        "ShmSize": _SHM_BYTES,
        # The guest has to be PID 1 itself: only PID 1 is safe from signals from inside.
        "Init": False,
        "AutoRemove": False,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none"},
        "Mounts": [_bind(mount) for mount in spec.binds],
        "Tmpfs": {mount.target: _tmpfs_options(mount) for mount in spec.tmpfs},
        # A list, even an empty one, replaces the engine's default.
        "MaskedPaths": list(spec.masked_paths) or None,
        "ReadonlyPaths": list(spec.readonly_paths) or None,
    }
    if spec.runtime is not None:
        config["Runtime"] = spec.runtime
    return config | _limits(spec)


def _security_options(spec: ContainerSpec) -> list[str]:
    return ["no-new-privileges", *([f"seccomp={spec.seccomp}"] if spec.seccomp else [])]


def _limits(spec: ContainerSpec) -> dict[str, Any]:
    limits: dict[str, Any] = {
        "Memory": spec.memory_bytes,
        "MemorySwap": spec.memory_bytes,
        "PidsLimit": spec.pids,
        "Ulimits": [
            {"Name": "nofile", "Soft": spec.nofile, "Hard": spec.nofile},
            {"Name": "fsize", "Soft": spec.max_file_bytes, "Hard": spec.max_file_bytes},
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
    }
    if spec.write_bytes_per_second:
        limits["BlkioDeviceWriteBps"] = [
            {"Path": device, "Rate": rate} for device, rate in spec.write_bytes_per_second.items()
        ]
    if spec.cpu_quota_us:
        limits |= {"CpuPeriod": _CPU_PERIOD_US, "CpuQuota": spec.cpu_quota_us}
    return limits


def _bind(mount: BindMount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": not mount.writable,
        # Read-only covers only the directory's own filesystem: a filesystem mounted below it would
        # be writable, so it is left out. The engine's default for propagation is private; in its
        # own directory it takes nothing but a slave.
        "BindOptions": {"NonRecursive": True},
    }


def _tmpfs_options(mount: TmpfsMount) -> str:
    # runc 1.1 ignores the mode if the image already has the directory, and keeps its mode.
    return ",".join(
        (
            "rw",
            "nosuid",
            "nodev",
            "exec" if mount.executable else "noexec",
            f"size={mount.size_bytes}",
            f"nr_inodes={mount.max_files}",
            f"uid={mount.uid}",
            f"gid={mount.uid}",
            f"mode={mount.mode:04o}",
        )
    )


async def _pack(context: Path, archive: IO[bytes], *, deadline: _Deadline) -> None:
    """Write the context as a tar file, readable from its start."""
    with docker_errors.translated("build an image", within_seconds=deadline.seconds):
        async with asyncio.timeout_at(deadline.at):
            try:
                await asyncio.to_thread(_write_tar, context, archive)
            except OSError as error:
                raise docker_errors.unreadable_build_context() from error


def _write_tar(context: Path, archive: IO[bytes]) -> None:
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for entry in sorted(context.iterdir()):
            tar.add(entry, arcname=entry.name, filter=_owned_by_root)
    archive.seek(0)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # The user who checked out the sources must not affect the image or its cache.
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


class _BuildOutput:
    """Turns the builder's messages, which may end anywhere, into lines."""

    _LONGEST_LINE = 8192

    def __init__(self) -> None:
        self._partial = ""
        self._step = ""

    def lines_of(self, message: Mapping[str, Any]) -> Iterator[str]:
        """The lines that this message completes; EngineFailed if it reports a failed step."""
        if "error" in message:
            raise docker_errors.build_failed(step=self._step, problem=str(message["error"]))
        if "stream" in message:
            yield from self._split(message["stream"])
        elif "status" in message and not message.get("progressDetail"):
            yield ": ".join(filter(None, (message.get("id"), message["status"])))

    def rest(self) -> Iterator[str]:
        if self._partial:
            yield self._partial

    def _split(self, text: str) -> Iterator[str]:
        *complete, self._partial = (self._partial + text).split("\n")
        if len(self._partial) > self._LONGEST_LINE:
            complete, self._partial = [*complete, self._partial], ""
        for line in complete:
            if line.startswith("Step "):
                self._step = line
            yield line
