"""The console's page about a cluster: two daemons with a real Redis and a real object service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from signal import SIGKILL
from typing import Any

import grpc
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from sandboxd.access.token_file import hash_of, line
from sandboxd_proto.v1 import cluster_service_pb2 as pb
from sandboxd_proto.v1 import cluster_service_pb2_grpc, session_service_pb2
from tests.cluster.servers import RedisServer, running_redis
from tests.console.conftest import CALLERS
from tests.console.tab import Tab, opened_tab, until
from tests.docker.commands import run, start
from tests.docker.daemon_process import DaemonProcess, served
from tests.ports import free_port
from tests.snapshots.object_server import BUCKET, object_server

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("patient")]

LEASE = 15
"""Seconds: so long that a busy machine does not lose a worker."""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture(scope="module")
def objects() -> Iterator[str]:
    with object_server() as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def workers(
    redis: RedisServer,
    objects: str,
    tokens: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[dict[str, DaemonProcess]]:
    """Both ask for tokens; `a` has a console."""
    keys = Path(tmp_path_factory.mktemp("keys"))
    (keys / "cluster").write_text("c" * 64)
    (keys / "snapshots").write_text("5" * 64)
    (keys / "tokens").write_text(
        "\n".join(line(caller, hash_of(tokens[who])) for who, caller in CALLERS.items())
    )
    async with AsyncExitStack() as stack:
        found = {}
        for name, console_port in (("a", free_port()), ("b", 0)):
            daemon = DaemonProcess(
                HOST="127.0.0.1",
                PORT=str(free_port()),
                WORKER_ID=name,
                REDIS_HOST="127.0.0.1",
                REDIS_PORT=str(redis.port),
                SANDBOXD_CLUSTER_KEY_FILE=str(keys / "cluster"),
                SANDBOXD_SNAPSHOT_KEY_FILE=str(keys / "snapshots"),
                SANDBOXD_SNAPSHOT_STORE=f"s3://{BUCKET}/console",
                SANDBOXD_SNAPSHOT_STORE_ENDPOINT=objects,
                AWS_ACCESS_KEY_ID="test",
                AWS_SECRET_ACCESS_KEY="test",
                SANDBOXD_LEASE_SECONDS=str(LEASE),
                SANDBOXD_GRACE_SECONDS="60",
                SANDBOXD_TOKENS_FILE=str(keys / "tokens"),
                SANDBOXD_CONSOLE_PORT=str(console_port),
                POOL_SIZE="1",
                MAX_POOL_SIZE="6",
            )
            found[name] = await stack.enter_async_context(served(daemon))
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, workers: dict[str, DaemonProcess]) -> AsyncIterator[Tab]:
    """The page, opened from the navigation by the host."""
    async with opened_tab(browser, workers["a"]) as tab:
        await tab.log_in()
        await tab.page.click("nav >> text=Cluster")
        await tab.page.wait_for_selector("h1 >> text=Cluster")
        yield tab
        assert tab.complaints == [], await tab.violations()


async def open_thread(daemon: DaemonProcess, thread: str) -> str:
    """Opened as a client does it: while workers have still to report, it asks again."""
    request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id=thread)
    async with daemon.api() as api:

        async def look() -> str:
            try:
                opened = await api.sessions.OpenSession(request, timeout=60)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                return ""
            return str(opened.session.session_id)

        return str(await until(look, bool, f"a session of {thread}"))


async def drain(daemon: DaemonProcess, *, cancel: bool = False) -> None:
    async with daemon.api() as api:
        cluster = cluster_service_pb2_grpc.ClusterServiceStub(api.channel)
        async for _ in cluster.DrainWorker(pb.DrainWorkerRequest(cancel=cancel), timeout=120):
            pass


async def shows(tab: Tab, selector: str, text: str) -> str:
    """Wait for a text in an element that is drawn again and again."""

    async def look() -> str:
        return " ".join(await tab.page.locator(selector).all_inner_texts())

    return str(await until(look, lambda seen: text in seen, f"{text!r} in {selector}"))


async def test_workers_and_places_of_sessions(tab: Tab, workers: dict[str, DaemonProcess]) -> None:
    """Each worker has its row, which follows what it does; a session is found by its id, and an id
    that nobody has gets the daemon's sentence."""
    page = tab.page
    for name, daemon in workers.items():
        await shows(tab, f"[data-worker={name}]", "0 of 6")
        row = await shows(tab, f"[data-worker={name}]", "default")
        assert "ready" in row
        assert f"127.0.0.1:{daemon.environment['PORT']}" in row
        assert ("serves this page" in row) == (name == "a")
        assert await page.get_attribute(f"[data-worker={name}] .dot", "class") == "dot good"
    await drain(workers["b"])
    await shows(tab, "[data-worker=b]", "draining")
    session_id = await open_thread(workers["b"], "found")
    await shows(tab, "[data-worker=a]", "1 of 6")
    await drain(workers["b"], cancel=True)
    await shows(tab, "[data-worker=b]", "ready")
    await page.locator("main").focus()
    await page.keyboard.press("/")
    await tab.type(session_id)
    await page.keyboard.press("Enter")
    facts = await shows(tab, ".found", "Worker")
    assert f"127.0.0.1:{workers['a'].environment['PORT']}" in facts
    assert "Parked\nno" in facts
    await page.fill("[aria-label='Id of a session']", "ses_none")
    await page.click("role=button[name=Find]")
    problem = await shows(tab, ".found", "ses_none")
    assert "Worker" not in problem
    await page.fill("[aria-label='Id of a session']", session_id)
    await page.click("role=button[name=Find]")
    await page.click(f".found a >> text={session_id}")
    await page.wait_for_selector("section.session")
    await tab.close_sessions()


async def test_drain_is_followed_and_taken_back(
    tab: Tab, workers: dict[str, DaemonProcess]
) -> None:
    """Nothing happens before a person has confirmed. Idle sessions leave, one with a command stays
    until it ends; taken back, the worker is ready and the command still runs. A second drain, that
    goes on while another page is shown, ends with nothing left."""
    page = tab.page
    await drain(workers["b"])
    idle, busy = [await open_thread(workers["a"], thread) for thread in ("idle", "busy")]
    async with workers["a"].api() as api:
        await start(api, busy, "until [ -e go ]; do sleep 0.1; done", timeout=300)
        await shows(tab, "[data-worker=a]", "2 of 6")

        await page.click("role=button[name=Drain]")
        await page.wait_for_selector("dialog >> text=No other worker is ready")
        await page.click("dialog >> role=button[name=Cancel]")
        await drain(workers["b"], cancel=True)
        await shows(tab, "[data-worker=b]", "ready")
        assert "ready" in await page.inner_text("[data-worker=a]")

        await page.click("role=button[name=Drain]")
        await page.wait_for_selector("dialog >> text=takes no new sessions")
        assert await page.query_selector("dialog >> text=No other worker") is None
        await page.click("dialog button.danger")
        await shows(tab, ".drain", "1 moved, 1 left, 0 failed, 1 command running")
        await shows(tab, "[data-worker=a]", "draining")
        await page.fill("[aria-label='Id of a session']", idle)
        await page.click("role=button[name=Find]")
        await shows(tab, ".found", "any worker can open it")
        await page.click("role=button[name='Take sessions again']")
        await shows(tab, "[data-worker=a]", "ready")
        await until(lambda: page.inner_text(".drain"), lambda text: not text, "no progress")

        await page.click("role=button[name=Drain]")
        await page.click("dialog button.danger")
        await shows(tab, ".drain", "0 moved, 1 left, 0 failed, 1 command running")
        await page.click("nav >> text=Doctor")
        await page.wait_for_selector("h1 >> text=Doctor")
        await run(api, busy, "touch go")
    await page.click("nav >> text=Cluster")
    await shows(tab, ".drain", "1 moved, 0 left, 0 failed, 0 commands running")
    await shows(tab, ".drain", "the worker can be stopped")
    assert await page.query_selector("role=button[name=Drain]") is None
    await page.reload()
    await shows(tab, ".drain", "This tab does not move")
    await page.click("role=button[name='Take sessions again']")
    await shows(tab, "[data-worker=a]", "ready")


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_page_is_accessible(
    scheme: Any, width: int, browser: Browser, workers: dict[str, DaemonProcess]
) -> None:
    """axe finds nothing, nothing scrolls sideways, and Tab reaches every control."""
    size: Any = {"width": width, "height": 844}
    async with opened_tab(browser, workers["a"], color_scheme=scheme, viewport=size) as tab:
        await tab.log_in()
        await tab.page.goto(f"{tab.origin}/#/cluster")
        await tab.page.fill("[aria-label='Id of a session']", "ses_none")
        await tab.page.click("role=button[name=Find]")
        await shows(tab, ".found", "ses_none")
        await tab.check_accessible("cluster")
        await tab.page.locator("main").focus()
        seen = []
        for _ in range(4):
            await tab.page.keyboard.press("Tab")
            seen.append(
                await tab.page.evaluate(
                    "() => document.activeElement.ariaLabel || document.activeElement.innerText"
                )
            )
        assert seen == ["Workers", "Id of a session", "Find", "Drain"]
        await tab.page.keyboard.press("Enter")
        await tab.page.wait_for_selector("dialog")
        await tab.check_accessible("the question")
        assert await tab.violations() == []
        assert tab.complaints == []


async def test_scopes(
    browser: Browser, workers: dict[str, DaemonProcess], tokens: dict[str, str]
) -> None:
    """A read-only token sees the page without the drain; that of a user does not see it, and reads
    the daemon's refusal at its address."""
    async with opened_tab(browser, workers["a"]) as tab:
        page = tab.page
        for who in ("board", "ada"):
            await page.goto(tab.origin)
            await page.fill("input[type=password]", tokens[who])
            await page.click("role=button[name='Log in']")
            await page.wait_for_selector("header")
            if who == "board":
                await page.click("nav >> text=Cluster")
                await shows(tab, "[data-worker=b]", "ready")
                assert await page.query_selector("h2 >> text=Drain") is None
                await page.click("text=Log out")
            else:
                await page.goto(f"{tab.origin}/#/cluster")
                await shows(tab, "main [role=alert]", "admin")
                assert "Cluster" not in await page.inner_text("nav")
                assert await page.query_selector("[data-worker]") is None


async def test_redis_away_and_worker_lost(
    tab: Tab, redis: RedisServer, workers: dict[str, DaemonProcess]
) -> None:
    """While the directory does not answer, the page says so and keeps what it knew, and a page that
    is loaded then still has it. A killed worker is shown as lost when its lease is over."""
    page = tab.page
    await shows(tab, "[data-worker=b]", "ready")
    redis.pause()
    try:
        await page.wait_for_selector("main [role=alert]")
        assert await page.query_selector("[data-worker=b]") is not None
        await page.reload()
        await page.wait_for_selector("main [role=alert]")
        await page.wait_for_selector("nav >> text=Cluster")
    finally:
        redis.resume()
    await page.wait_for_selector("main [role=alert]", state="detached")
    await workers["b"].signal(SIGKILL)
    row = await shows(tab, "[data-worker=b]", "lost")
    assert "ended" in row
    assert await page.get_attribute("[data-worker=b] .dot", "class") == "dot bad"
    await workers["b"].start()
    await shows(tab, "[data-worker=b]", "ready")
