"""The Docker Engine as any program would use it: plain HTTP, one blocking call at a time."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

LABEL = "sandboxd.bench"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def _connect() -> http.client.HTTPConnection:
    url = urlsplit(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
    if url.scheme == "unix":
        return _UnixConnection(url.path)
    return http.client.HTTPConnection(url.hostname or "127.0.0.1", url.port or 2375)


class EngineError(Exception):
    """The engine refused; the message is its own."""


class Engine:
    """One persistent connection, as in a client library."""

    def __init__(self, label: str = "") -> None:
        """With the label of another, its containers are ours, too."""
        self._connection = _connect()
        self._token = label.partition("=")[2] or secrets.token_hex(6)

    @property
    def label(self) -> str:
        """What containers of this run have, so that none is left and no other is removed."""
        return f"{LABEL}={self._token}"

    def close(self) -> None:
        self._connection.close()

    def version(self) -> str:
        return str(self._ask("GET", "/version")["Version"])

    def containers(self, label: str) -> list[str]:
        """Ids of all containers with a label, whatever their state."""
        filters = quote(json.dumps({"label": [label]}))
        answer = self._ask("GET", f"/containers/json?all=true&filters={filters}")
        return [entry["Id"] for entry in answer]

    def first_pid(self, container: str) -> int:
        return int(self._ask("GET", f"/containers/{container}/json")["State"]["Pid"])

    @contextmanager
    def container(self, image: str) -> Iterator[str]:
        """A container that does nothing, to exec in."""
        config = {
            "Image": image,
            "Cmd": ["sleep", "infinity"],
            "Labels": {LABEL: self._token},
            "HostConfig": {"NetworkMode": "none"},
        }
        container = self._ask("POST", "/containers/create", config)["Id"]
        try:
            self._ask("POST", f"/containers/{container}/start")
            yield container
        finally:
            self._ask("DELETE", f"/containers/{container}?force=true&v=true")

    def exec(self, container: str, command: str) -> float:
        """Seconds of a `docker exec`: create, start, read to the end, get the exit code."""
        began = time.perf_counter()
        config = {
            "Cmd": ["bash", "-c", command],
            "AttachStdout": True,
            "AttachStderr": True,
        }
        exec_id = self._ask("POST", f"/containers/{container}/exec", config)["Id"]
        # The engine closes this connection at the end of the output.
        stream = _connect()
        try:
            _send(stream, "POST", f"/exec/{exec_id}/start", {"Detach": False, "Tty": False})
            stream.getresponse().read()
        finally:
            stream.close()
        code = self._ask("GET", f"/exec/{exec_id}/json")["ExitCode"]
        seconds = time.perf_counter() - began
        if code != 0:
            raise EngineError(f"{command!r} ended with {code}")
        return seconds

    def run(self, image: str, command: Sequence[str]) -> float:
        """Seconds from `docker run` to the first byte of output."""
        began = time.perf_counter()
        with subprocess.Popen(
            ["docker", "run", "--rm", "--network=none", f"--label={self.label}", image, *command],
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            first = process.stdout.read(1)
            seconds = time.perf_counter() - began
        if not first or process.returncode != 0:
            raise EngineError(f"docker run ended with {process.returncode}")
        return seconds

    def unpack(self, container: str, directory: str, archive: bytes) -> None:
        """What `docker cp` into a container does."""
        self._request("PUT", f"/containers/{container}/archive?path={quote(directory)}", archive)

    def pack(self, container: str, path: str) -> bytes:
        """What `docker cp` out of a container does: a tar archive."""
        return self._request("GET", f"/containers/{container}/archive?path={quote(path)}")

    def remove_leftovers(self) -> None:
        """Remove what an interrupted `run` left; only our containers have our token."""
        self.remove(self.label)

    def remove(self, label: str) -> None:
        """Remove all containers with a label."""
        for container in self.containers(label):
            self._ask("DELETE", f"/containers/{container}?force=true&v=true")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = self._request(method, path, body)
        return json.loads(data) if data else None

    def _request(self, method: str, path: str, body: object = None) -> bytes:
        try:
            _send(self._connection, method, path, body)
            response = self._connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()  # it is opened again for the next request
            raise EngineError(f"the Docker Engine does not answer ({error!r})") from error
        if response.status >= 400:
            raise EngineError(f"{method} {path}: {data.decode(errors='replace').strip()}")
        return data


def _send(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None
) -> None:
    """A body of bytes is an archive, every other is sent as JSON."""
    if isinstance(body, bytes):
        connection.request(method, path, body, {"Content-Type": "application/x-tar"})
        return
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"Content-Type": "application/json"})
