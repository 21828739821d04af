"""A tab of a browser with the console in it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from sandboxd_proto.v1 import session_service_pb2
from tests.docker.daemon_process import DaemonProcess

WAIT_MS = 60_000
VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.refusals = [];
new MutationObserver(() => {
  for (const notice of document.querySelectorAll(".notices .bad"))
    window.refusals.push(notice.innerText);
}).observe(document, { subtree: true, childList: true });
"""
SCREEN = """() => {
  const box = document.querySelector(".terminal-box");
  if (!box || !box.terminal) return "";
  const buffer = box.terminal.buffer.active;
  const lines = [];
  for (let number = 0; number < buffer.length; number++)
    lines.push(buffer.getLine(number).translateToString(true));
  return lines.join("\\n").trimEnd();
}"""


class Tab:
    """A page of the console, and the daemon that serves it."""

    def __init__(
        self, page: Page, daemon: DaemonProcess, address: str = "http://127.0.0.1"
    ) -> None:
        self.page = page
        self.daemon = daemon
        self.port = int(daemon.environment["SANDBOXD_CONSOLE_PORT"])
        self.origin = f"{address}:{self.port}"
        self.complaints: list[str] = []
        """What the browser has reported as an error."""
        self.expects_errors = False
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(WAIT_MS)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not self.expects_errors:
            self.complaints.append(message.text)

    def link(self) -> str:
        command = [sys.executable, "-m", "sandboxd", "console"]
        url = f"unix:{self.daemon.socket}"
        done = subprocess.run(
            command,
            env={**os.environ, "SANDBOXD_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.strip()

    async def log_in(self) -> None:
        await self.page.goto(await asyncio.to_thread(self.link))
        await self.page.wait_for_selector("header")

    async def open_session(self, thread: str, *, user: str = "me", tab: str = "terminal") -> str:
        """Start a session by the API, and show it; returns its id."""
        async with self.daemon.api() as api:
            opened = await api.sessions.OpenSession(
                session_service_pb2.OpenSessionRequest(user_id=user, thread_id=thread), timeout=60
            )
        session_id: str = opened.session.session_id
        await self.show(session_id, tab)
        return session_id

    async def show(self, *place: str) -> None:
        await self.page.goto(f"{self.origin}/#/session/{'/'.join(place)}")
        await self.page.wait_for_selector("section.session")
        if place[-1] == "terminal":
            await self.page.wait_for_selector(".terminal-box[data-live=yes]")

    async def close_sessions(self) -> None:
        async with self.daemon.api() as api:
            listed = await api.sessions.ListSessions(
                session_service_pb2.ListSessionsRequest(state=1), timeout=60
            )
            for session in listed.sessions:
                await api.sessions.CloseSession(
                    session_service_pb2.CloseSessionRequest(session_id=session.session_id),
                    timeout=60,
                )

    async def type(self, text: str) -> None:
        await self.page.keyboard.type(text)

    async def screen(self) -> str:
        text: str = await self.page.evaluate(SCREEN)
        return text

    async def shows(self, text: str) -> str:
        """Wait for a text on the terminal's screen."""
        return await until(self.screen, lambda screen: text in screen, f"{text!r} on the screen")

    async def terminal_size(self) -> list[int]:
        """Rows and columns."""
        size: list[int] = await self.page.evaluate(
            """() => {
              const { terminal } = document.querySelector(".terminal-box");
              return [terminal.rows, terminal.cols];
            }"""
        )
        return size

    async def output(self) -> str:
        return await self.page.inner_text(".output")

    async def run(self, command: str) -> str:
        """Run a command on the page for that; returns the line about its end."""
        await self.page.click("role=tab[name=Run]")
        return await self.ended(await self.start(command))

    async def start(self, command: str) -> str:
        """Start a command; returns its id."""
        before = await self.page.get_attribute(".run", "data-exec")
        await self.page.fill("[aria-label=Command]", command)
        await self.page.click("role=button[name=Run]")
        return str(
            await until(
                lambda: self.page.get_attribute(".run", "data-exec"),
                lambda now: now != before,
                "a new command",
            )
        )

    async def ended(self, exec_id: str) -> str:
        """Wait for the end of a command; returns the line about it."""
        await self.page.wait_for_selector(f".run[data-exec='{exec_id}'][data-ended=true]")
        return await self.page.inner_text(".exit")

    async def violations(self) -> list[str]:
        found: list[str] = await self.page.evaluate("() => window.violations")
        return found

    async def refusals(self) -> list[str]:
        """What the page has complained about since it was loaded."""
        found: list[str] = await self.page.evaluate("() => window.refusals")
        return found

    async def file_names(self) -> list[str]:
        found: list[str] = await self.page.eval_on_selector_all(
            ".tree [data-path]", "(items) => items.map((item) => item.dataset.path)"
        )
        return [path.rpartition("/")[2] for path in found]

    async def notice(self) -> str:
        return await self.page.inner_text(".notices")

    async def check_accessible(self, what: str) -> None:
        """axe finds nothing on the page as it is, and nothing scrolls sideways."""
        axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
        await self.page.evaluate(f"() => {{ {axe} }}")
        found = await self.page.evaluate(
            """async () => {
              const { violations } = await axe.run(document, { resultTypes: ["violations"] });
              const shown = (one) => one.nodes.map((node) => node.html).join(" | ");
              return violations.map((one) => `${one.id}: ${shown(one)}`);
            }"""
        )
        assert found == [], what
        sideways = await self.page.evaluate(
            "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        assert not sideways, what

    async def drop_paths(self, *paths: Path) -> None:
        """Drop files and directories of this machine onto the panel, as a desktop does."""
        session = await self.page.context.new_cdp_session(self.page)
        box = await self.page.locator(".files").bounding_box()
        assert box is not None
        dragged = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            place = {"x": box["x"] + 40, "y": box["y"] + 100}
            await session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": dragged})
        await session.detach()

    async def drop(self, files: dict[str, str]) -> None:
        """Drop files with these contents onto the panel."""
        transfer = await self.page.evaluate_handle(
            """(files) => {
              const transfer = new DataTransfer();
              for (const [name, text] of Object.entries(files))
                transfer.items.add(new File([text], name));
              return transfer;
            }""",
            files,
        )
        await self.page.dispatch_event(".files", "drop", {"dataTransfer": transfer})


@asynccontextmanager
async def profile(directory: Path, *flags: str) -> AsyncIterator[Page]:
    """A page of a browser that keeps what it learns, as that of a person: only such a browser
    connects and looks names up ahead of time."""
    async with async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            directory,
            executable_path="/usr/bin/chromium",
            args=["--no-sandbox", "--disable-gpu", *flags],
            ignore_default_args=["--disable-background-networking"],
            viewport={"width": 1280, "height": 800},
        )
        yield context.pages[0]
        await context.close()


@asynccontextmanager
async def opened_tab(
    browser: Browser, daemon: DaemonProcess, *, address: str = "http://127.0.0.1", **options: Any
) -> AsyncIterator[Tab]:
    options.setdefault("viewport", {"width": 1280, "height": 800})
    context = await browser.new_context(**options)
    await context.add_init_script(VIOLATIONS)
    tab = Tab(await context.new_page(), daemon, address)
    try:
        yield tab
    finally:
        await context.close()


async def until(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], what: str) -> Any:
    """Look until it holds; returns what was seen then."""
    seen = None
    try:
        async with asyncio.timeout(WAIT_MS / 1000):
            while not holds(seen := await look()):
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"never came: {what}; last seen: {json.dumps(seen)[-1500:]}") from None
    return seen
