"""The web console: what its page costs, and a call through its socket next to one by gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks import daemon as daemons
from benchmarks.client import Client, CommandFailed
from benchmarks.daemon import Daemon, free_port
from benchmarks.engine import Engine
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group
from sandboxd_proto.v1 import (
    admin_service_pb2,
    exec_service_pb2,
    file_service_pb2,
)
from tests.service.console_client import Browser, Page

GRPC = "Run, TCP"
SOCKET = "Run, the console's socket"
PAGE = "GET of the page"


async def console(engine: Engine, *, rounds: int, seconds: float) -> Group:
    """The table; `of_grpc` compares calls of the same method."""
    async with with_console(engine) as (daemon, browser):
        session = await daemon.client.open("console")
        over_tcp = Client(daemon.tcp_target)
        page = await browser.open()

        async def load() -> float:
            began = time.perf_counter()
            status, _, _ = await browser.request("GET", "/")
            taken = time.perf_counter() - began
            if status != 200:
                raise CommandFailed(f"the console answered with {status}")
            return taken

        contestants = [
            Contestant(name=GRPC, call=lambda: over_tcp.run(session, "true")),
            Contestant(name=SOCKET, call=lambda: _run(page, session)),
            Contestant(name=PAGE, call=load),
        ]
        samples = await race(contestants, rounds=rounds, seconds=seconds)
        await over_tcp.close()
    rows = {name: milliseconds(taken, 50, 95) for name, taken in samples.items()}
    rows[SOCKET]["of_grpc"] = median(samples[SOCKET]) / median(samples[GRPC])
    return Group("the console, `true`", rows)


@asynccontextmanager
async def with_console(engine: Engine) -> AsyncIterator[tuple[Daemon, Browser]]:
    """A daemon that serves the console, and a browser that is logged in."""
    port = free_port()
    settings = {"SANDBOXD_CONSOLE_PORT": str(port)}
    async with (
        daemons.running(pool_size=1, max_pool_size=4, engine=engine, settings=settings) as daemon,
        Browser(port) as browser,
    ):
        await daemon.wait_until_warm()
        if await browser.follow(await daemon.client.console_link()) != 200:
            raise CommandFailed("the console refused its own link")
        yield daemon, browser


@asynccontextmanager
async def watching(browser: Browser, session: str) -> AsyncIterator[None]:
    """Pages that follow the charts of the daemon and the files of a session, as people do."""
    figures, files = await browser.open(), await browser.open()
    begun = [
        (
            figures,
            await figures.begin(
                "AdminService/WatchFigures", admin_service_pb2.WatchFiguresRequest()
            ),
            admin_service_pb2.WatchFiguresResponse,
        ),
        (
            files,
            await files.begin(
                "FileService/WatchFiles",
                file_service_pb2.WatchFilesRequest(session_id=session, recursive=True),
            ),
            file_service_pb2.WatchFilesResponse,
        ),
    ]
    seen = [asyncio.Event() for _ in begun]

    async def read(number: int) -> None:
        page, call, answer = begun[number]
        async for _ in page.messages(call, answer):
            seen[number].set()

    readers = [asyncio.create_task(read(number)) for number in range(len(begun))]
    try:
        async with asyncio.timeout(30):
            await seen[0].wait()
        yield
        for reader in readers:
            if reader.done():
                raise CommandFailed(f"a page of the console stopped watching: {reader!r}")
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


async def _run(page: Page, session: str) -> float:
    request = exec_service_pb2.ExecRequest(session_id=session, shell="true")
    began = time.perf_counter()
    answer = await page.call("ExecService/Run", request, exec_service_pb2.RunResponse)
    taken = time.perf_counter() - began
    if answer.exit.code:
        raise CommandFailed(f"`true` ended with {answer.exit.code}")
    return taken
