"""Envoy with the files of deploy/envoy, on ports of loopback that the kernel chooses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.deploy.tools import DEPLOY, installed, write_clusters
from tests.deploy.worker import Worker
from tests.fakes.waiting import eventually

LIMIT_SECONDS = 60.0
ENVOY = DEPLOY / "envoy"
_script = write_clusters()


class Router:
    def __init__(self, directory: Path, admin: str) -> None:
        self.directory = directory
        self._admin = admin
        self.port = 0

    async def ask(self, path: str) -> Any:
        """What Envoy itself says, as JSON."""
        async with aiohttp.ClientSession() as session, session.get(self._admin + path) as answer:
            return json.loads(await answer.text())

    async def get(self, path: str) -> int:
        """The status of a request of HTTP/1.1 to the API."""
        url = f"http://localhost:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.status

    async def use(self, *workers: Worker, tls: Any = None) -> None:
        """Write the list of workers, and wait until Envoy has read it."""
        before = await self._updates()
        write(self.directory, workers, tls)
        await self.until(lambda now: now > before, self._updates)

    async def _updates(self) -> int:
        stats = await self.ask("/stats?format=json&filter=cluster_manager.cds.update_success")
        return sum(one.get("value", 0) for one in stats["stats"])

    @staticmethod
    async def until(is_so: Any, look: Any) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LIMIT_SECONDS
        while not is_so(await look()):
            assert loop.time() < deadline, "Envoy did not come to this in time"
            await asyncio.sleep(0.02)


def write(directory: Path, workers: Sequence[Worker], tls: Any = None) -> None:
    named = {one.name: _script.Endpoint("127.0.0.1", one.port) for one in workers}
    content = _script.clusters(named, tls=tls)
    # Health checks often, so that tests do not wait for them.
    assert content.count('"5s"') == 2
    _script.replace(directory / "clusters" / "clusters.json", content.replace('"5s"', '"0.1s"'))


@asynccontextmanager
async def running(
    directory: Path,
    workers: Sequence[Worker],
    *,
    listeners: str = "listeners.yaml",
    tls: Any = None,
) -> AsyncIterator[Router]:
    """The configuration as it is, but for places: directory, address and ports."""
    (directory / "clusters").mkdir()
    for name in ("envoy.yaml", listeners):
        text = (ENVOY / name).read_text().replace("/etc/envoy", str(directory))
        text = text.replace("listeners.yaml", listeners).replace("0.0.0.0", "127.0.0.1")
        for port in ("8000", "8443", "9901"):
            text = text.replace(f"port_value: {port}", "port_value: 0")
        (directory / name).write_text(text)
    write(directory, workers, tls)
    admin = directory / "admin"
    log = directory / "log"
    process = await asyncio.create_subprocess_exec(
        installed("envoy") / "envoy" / "_bin" / "envoy",
        *("-c", directory / "envoy.yaml", "--admin-address-path", admin),
        *("--disable-hot-restart", "--concurrency", "1", "--log-path", log),
    )
    try:
        # The file is written at once, but not created and written at once.
        await eventually(lambda: _text(admin) != "", timeout_seconds=LIMIT_SECONDS)
        router = Router(directory, f"http://{admin.read_text()}")
        await Router.until(bool, lambda: _found_port(router))
        yield router
    except AssertionError as error:
        error.add_note(log.read_text()[-4000:] if log.exists() else "Envoy wrote no log")
        raise
    finally:
        process.kill()
        await process.wait()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def _found_port(router: Router) -> bool:
    listeners = (await router.ask("/listeners?format=json")).get("listener_statuses", [])
    for listener in listeners:
        router.port = listener["local_address"]["socket_address"]["port_value"]
    return bool(router.port)
