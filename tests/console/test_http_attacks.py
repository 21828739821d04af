"""Attacks on the API over HTTP from a real browser, on a daemon without tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.test_attacks import Foreign, foreign
from tests.docker.daemon_process import running_daemon
from tests.ports import free_port

__all__ = ["foreign"]  # a fixture
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("patient")]

TRIES = """async (url) => {
  const results = {};
  const attempt = async (name, work) => {
    try { results[name] = await work(); } catch (error) { results[name] = "failed"; }
  };
  const json = JSON.stringify({ user_id: "eve", thread_id: "1" });
  const type = (value) => ({ "Content-Type": value });
  const post = (path, options) => fetch(url + path, { method: "POST", body: json, ...options });
  const text = async (answer) => (await answer).text();
  await attempt("read", () => text(fetch(url + "/v1/sessions")));
  const blind = { mode: "no-cors" };
  await attempt("blind read", async () => (await fetch(url + "/v1/sessions", blind)).type);
  await attempt("json", () => text(post("/v1/sessions", { headers: type("application/json") })));
  const plain = { ...blind, headers: type("text/plain") };
  await attempt("plain", () => text(post("/v1/sessions", plain)));
  await attempt("seed", () => text(post("/sandbox/x/start", { mode: "no-cors" })));
  const form = new FormData();
  form.append("file", new Blob(["x"]), "eve.txt");
  await attempt("multipart", () => text(post("/files/upload/p", { mode: "no-cors", body: form })));
  await attempt("beacon", async () => navigator.sendBeacon(url + "/v1/sessions", json) && "sent");
  await attempt("delete", () => text(fetch(url + "/v1/sessions/x", { method: "DELETE" })));
  const put = { method: "PUT", body: "x" };
  await attempt("put", () => text(fetch(url + "/v1/sessions/x/files/y", put)));
  await attempt("socket", () => new Promise((resolve) => {
    const socket = new WebSocket(url.replace("http", "ws") + "/v1/code/debug");
    socket.onopen = () => resolve("open");
    socket.onerror = () => resolve("failed");
  }));
  await attempt("events", () => new Promise((resolve) => {
    const source = new EventSource(url + "/v1/figures");
    source.onopen = () => resolve("open");
    source.onerror = () => { source.close(); resolve("failed"); };
  }));
  await attempt("script", () => new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = url + "/v1/sessions";
    script.onload = () => resolve("loaded");
    script.onerror = () => resolve("failed");
    document.body.append(script);
  }));
  const classic = document.createElement("form");
  classic.method = "post"; classic.action = url + "/v1/sessions"; classic.target = "frame";
  classic.enctype = "text/plain";
  classic.innerHTML = `<input name='{"user_id": "eve", "thread_id": "' value='1"}'>`;
  const frame = document.createElement("iframe");
  frame.name = "frame";
  document.body.append(frame, classic);
  const loaded = new Promise((resolve) => { frame.onload = resolve; });
  classic.submit();
  await loaded;
  return results;
}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address() -> AsyncIterator[str]:
    address = f"127.0.0.1:{free_port()}"
    async with running_daemon(SANDBOXD_HTTP_ADDRESS=address, POOL_SIZE="1"):
        yield address


async def _kept(address: str) -> Mapping[str, Any]:
    """What there would be if anything had been done."""
    async with aiohttp.ClientSession(f"http://{address}") as session:
        sessions = await (await session.get("/v1/sessions")).json()
        project = await session.get("/v1/projects/p/files?user_id=default")
        return {"sessions": sessions["sessions"], "project": project.status}


@pytest.mark.parametrize("way", ["other site", "rebound name"])
async def test_a_page_changes_and_reads_nothing(
    way: str, address: str, browser: Browser, foreign: Foreign
) -> None:
    """A page of another site, and one whose name was pointed at this host: a plain fetch, a form, a
    form with a file, a beacon, a script, events and sockets all fail, and nothing was done."""
    page = await (await browser.new_context()).new_page()
    foreign.page = "<p>hello</p>"
    target = f"http://{address}"
    if way == "rebound name":
        target = f"http://rebound.test:{address.rpartition(':')[2]}"
        answer = await page.goto(f"{target}/v1/sessions")
        assert answer is not None
        assert answer.status == 421
    else:
        await page.goto(foreign.origin)
    tried: dict[str, str] = await page.evaluate(TRIES, target)
    await page.context.close()
    for name, result in tried.items():
        is_refused = result in ("failed", "opaque", "", "sent") or "Misdirected" in result
        assert is_refused, (name, result)
        assert "sessionId" not in result
    assert tried["socket"] == tried["events"] == "failed"
    assert await _kept(address) == {"sessions": [], "project": 404}


async def test_the_page_about_the_api_needs_no_network(address: str, browser: Browser) -> None:
    """/docs is shown with all routes, and asks for nothing else."""
    page = await (await browser.new_context()).new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    await page.goto(f"http://{address}/docs")
    assert await page.locator("details").count() > 200
    await page.locator("#ExecService_Run summary").click()
    assert await page.locator("#ExecService_Run table").is_visible()
    await page.context.close()
    assert [url for url in asked if not url.endswith("/docs")] == []
    assert complaints == []
