"""Attacks on the console from a browser: foreign pages, and what sandboxes write."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser

from tests.console.tab import Tab, opened_tab, profile, until
from tests.docker.daemon_process import DaemonProcess
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("patient")]

HOSTILE_NAME = "<img src=x onerror=alert(1)>.txt"
TURNED_NAME = "evil‮txt.exe"


class Foreign:
    """A site of someone else on another port, and what reached it."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.port = port
        self.reached: list[str] = []
        self.page = ""

    async def serve(self, request: web.Request) -> web.Response:
        self.reached.append(f"{request.method} {request.path_qs}")
        return web.Response(text=self.page, content_type="text/html")

    async def seen(self) -> list[str]:
        return self.reached


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def foreign() -> AsyncIterator[Foreign]:
    site = Foreign(free_port())
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", site.serve)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", site.port).start()
    yield site
    await runner.cleanup()


async def put(tab: Tab, name: str, data: bytes) -> None:
    """Have a command make a file."""
    line = f"echo {base64.b64encode(data).decode()} | base64 -d > \"$(printf %b '{octal(name)}')\""
    assert "exit 0" in await tab.run(line)


def octal(name: str) -> str:
    return "".join(f"\\0{byte:o}" for byte in name.encode())


# --- foreign pages ---


async def test_foreign_page_cannot_call_connect_or_frame(
    tab: Tab, browser: Browser, foreign: Foreign, daemon: DaemonProcess
) -> None:
    """Also with a key that is valid: requests, sockets, scripts and frames all fail."""
    key = await tab.page.evaluate("() => sessionStorage.getItem('sandboxd.key')")
    async with opened_tab(browser, daemon) as other:
        other.expects_errors = True
        foreign.page = f'<iframe src="{tab.origin}/"></iframe>'
        await other.page.goto(foreign.origin)
        tried: Mapping[str, Any] = await other.page.evaluate(
            """async ([origin, key]) => {
              const results = {};
              const headers = { Authorization: `Bearer ${key}` };
              const attempt = async (name, work) => {
                try { results[name] = await work(); } catch (error) { results[name] = "failed"; }
              };
              const send = (path, options) => fetch(origin + path, { method: "POST", ...options });
              await attempt("fetch", async () => (await send("/document", { headers })).status);
              const blind = { mode: "no-cors" };
              await attempt("no-cors", async () => (await send("/login", blind)).type);
              await attempt("socket", () => new Promise((resolve) => {
                const socket = new WebSocket(origin.replace("http", "ws") + "/socket");
                socket.onopen = () => resolve("open");
                socket.onerror = () => resolve("failed");
              }));
              await attempt("script", () => new Promise((resolve) => {
                const script = document.createElement("script");
                script.src = `${origin}/assets/main.js`;
                script.onload = () => resolve("loaded");
                script.onerror = () => resolve("failed");
                document.body.append(script);
              }));
              const kept = sessionStorage.getItem("sandboxd.key");
              await attempt("storage", async () => kept ?? "failed");
              return results;
            }""",
            [tab.origin, key],
        )
        frame = next(frame for frame in other.page.frames if frame != other.page.main_frame)
        shown = await frame.query_selector("header, .login")
    assert tried == {
        "fetch": "failed",
        "no-cors": "failed",
        "socket": "failed",
        "script": "failed",
        "storage": "failed",
    }
    assert shown is None


async def test_rebound_name_does_not_reach_the_console(
    tab: Tab, browser: Browser, daemon: DaemonProcess
) -> None:
    """A name that an attacker points at this host gets neither the page nor a socket."""
    async with opened_tab(browser, daemon) as other:
        other.expects_errors = True
        answer = await other.page.goto(f"http://rebound.test:{tab.port}/")
        assert answer is not None
        assert answer.status == 421
        tried = await other.page.evaluate(
            """async () => {
              const socket = new WebSocket(location.origin.replace("http", "ws") + "/socket");
              const opened = await new Promise((resolve) => {
                socket.onopen = () => resolve("open");
                socket.onerror = () => resolve("failed");
              });
              const login = await fetch("/login", { method: "POST", body: "{}" });
              return [opened, login.status];
            }"""
        )
        assert tried == ["failed", 421]


async def test_nothing_is_kept_where_others_can_read_it(tab: Tab) -> None:
    """No cookie, nothing in the storage that tabs share, no code in the address."""
    assert await tab.page.context.cookies() == []
    kept = await tab.page.evaluate("() => JSON.stringify(localStorage)")
    key = await tab.page.evaluate("() => sessionStorage.getItem('sandboxd.key')")
    assert key
    assert key not in kept
    assert "code=" not in tab.page.url


# --- what sandboxes write ---


async def test_hostile_names_are_text(tab: Tab) -> None:
    """A name is never markup, and what turns the direction of text is shown as it is."""
    await tab.open_session("<b onmouseover=alert(1)>", user="<script>alert(1)</script>", tab="run")
    for name in (HOSTILE_NAME, TURNED_NAME):
        await put(tab, name, b"x")
    tree = await until(
        lambda: tab.page.inner_text(".tree"),
        lambda tree: HOSTILE_NAME in tree and "evil" in tree,
        "both files",
    )
    assert "evil\\xe2\\x80\\xaetxt.exe" in tree  # as the daemon names what cannot be seen
    assert "\u202e" not in tree
    assert await tab.page.query_selector(".tree img") is None
    assert "<script>alert(1)</script>" in await tab.page.inner_text("h1")
    assert await tab.violations() == []


async def test_markup_cannot_be_assigned(tab: Tab) -> None:
    """Wherever a mistake may be: the browser refuses strings where markup is made."""
    tab.expects_errors = True
    refused = await tab.page.evaluate(
        """() => ["innerHTML", "outerHTML", "srcdoc"].map((name) => {
          const element = document.createElement(name === "srcdoc" ? "iframe" : "div");
          document.body.append(element);
          try { element[name] = "<img src=x onerror=alert(1)>"; return "assigned"; }
          catch (error) { return error.name; }
        })"""
    )
    assert refused == ["TypeError"] * 3
    ran = await tab.page.evaluate(
        """() => {
          const element = document.createElement("p");
          try { element.setAttribute("onclick", "window.ran = 1"); } catch (error) {}
          element.setAttribute("style", "position: fixed");
          document.body.append(element);
          element.click();
          return [window.ran ?? null, getComputedStyle(element).position];
        }"""
    )
    assert ran == [None, "static"]


async def test_hostile_html_stays_in_its_frame(tab: Tab, foreign: Foreign) -> None:
    """No scripts unless someone asks; with them neither the console nor a network is in reach."""
    await tab.open_session("html", tab="run")
    page = tab.page
    foreign.reached.clear()
    out = foreign.origin
    hostile = f"""<h1>shown</h1><img src="{out}/img"><link rel=stylesheet href="{out}/css">
    <form action="{out}/form" id=f></form><meta http-equiv=refresh content="1;url={out}/refresh">
    <script>
      document.title = "ran";
      const told = [];
      const attempt = (name, work) => {{
        try {{ told.push(name + ":" + work()); }} catch (e) {{ told.push(name + ":no"); }}
      }};
      attempt("parent", () => parent.document.title);
      attempt("storage", () => sessionStorage.length);
      attempt("cookie", () => document.cookie);
      attempt("top", () => {{ top.location = "{out}/top"; return "set"; }});
      attempt("popup", () => window.open("{out}/popup") === null ? "no" : "open");
      fetch("{out}/fetch").catch(() => 0);
      navigator.sendBeacon("{out}/beacon");
      try {{ new WebSocket("{out.replace("http", "ws")}/socket"); }} catch (e) {{}}
      document.getElementById("f").submit();
      document.body.insertAdjacentHTML("beforeend", "<p id=told>" + told.join(" ") + "</p>");
    </script>"""
    await put(tab, "page.html", hostile.encode())
    tab.expects_errors = True
    await page.click("[data-path$='page.html'] .name")
    await page.click("role=tab[name=Page]")
    frame = page.frame_locator(".untrusted iframe")
    await frame.locator("text=shown").wait_for()
    assert await frame.locator("#told").count() == 0
    await page.click("text=run scripts in this result")
    await page.click("dialog >> text=Run >> nth=-1")
    told = await frame.locator("#told").inner_text()
    assert "parent:no" in told
    assert "storage:no" in told
    assert "cookie:no" in told
    await asyncio.sleep(2)  # the refresh, if it were to happen, has happened
    assert foreign.reached == []
    assert page.url.startswith(tab.origin)


LINKS = "preconnect dns-prefetch preload modulepreload prefetch prerender stylesheet icon manifest"
WAYS = [
    *(f'<link rel={rel} as=image href="{{}}">' for rel in LINKS.split()),
    '<LINK REL=preconnect HREF="{}">',
    '<link\nrel=preconnect href="{}">',
    '<noscript><p title="</noscript><link rel=preconnect href={}>"></noscript>',
    '<svg><link xmlns="http://www.w3.org/1999/xhtml" rel=preconnect href="{}"/></svg>',
    '<div><template shadowrootmode=open><link rel=preconnect href="{}"></template></div>',
    '<iframe srcdoc="&lt;link rel=preconnect href={}>"></iframe>',
    '<iframe src="data:text/html,<link rel=preconnect href={}>"></iframe>',
    *(f'<{tag} src="{{}}"></{tag}>' for tag in ("iframe", "embed", "img", "audio", "video")),
    *('<object data="{}"></object>', '<img srcset="{} 1x">', '<video poster="{}"></video>'),
    '<img src="data:image/svg+xml,<svg xmlns=%22http://www.w3.org/2000/svg%22>'
    '<image href=%22{}%22/></svg>">',
    '<video src="data:application/vnd.apple.mpegurl,%23EXTM3U%0A%23EXTINF:9,%0A{}%0A"></video>',
    '<svg><image href="{0}"/><use href="{0}#a"/><feImage href="{0}"/></svg>',
    '<style>@import "{0}"; @font-face{{font-family:f;src:url({0})}} p{{font-family:f}}</style><p>f',
    '<p style="background:url({0});cursor:url({0}),auto;mask:url({0}#m)">p',
    '<meta http-equiv=x-dns-prefetch-control content=on><a href="{}">link</a>',
    *('<meta http-equiv=refresh content="0;url={}">', '<meta http-equiv=Link content="<{}>">'),
    '<script type=speculationrules>{{"prefetch":[{{"urls":["{}"]}}]}}</script>',
    '<script src="{}"></script>',
]
"""How HTML without scripts makes browsers connect, or look names up."""


RTC = (
    "new RTCPeerConnection({{iceServers: [{{urls: 'stun:{0}'}}]}})"
    ".createOffer({{offerToReceiveAudio: true}}).then((o) => p.setLocalDescription(o));"
)
CONNECTS = "const l = document.createElement('link'); l.rel = '%s'; l.href = 'http://{0}/';"
SCRIPTS = [
    *(CONNECTS % rel + "document.head.append(l);" for rel in ("preconnect", "dns-prefetch")),
    f"const p = {RTC}",
    "fetch('http://{0}/').catch(() => 0);",
    "new WebSocket('ws://{0}/');",
    "new WebTransport('https://{0}/');",
    "navigator.sendBeacon('http://{0}/');",
    "open('http://{0}/');",
    "document.body.insertAdjacentHTML('beforeend', `<img src='http://{0}/'>`);",
]
"""The same with scripts, which this browser is kept from as well."""


async def test_shown_html_makes_no_packet(
    daemon: DaemonProcess, foreign: Foreign, tmp_path: Path
) -> None:
    """A name that is looked up is enough to carry data out. The browser's own log shows all that
    it asked of the network; a page of another site is the proof that it would show these."""
    log = tmp_path / "network.json"
    made = [f"<body>{way}" for way in WAYS]
    made += [f"<body><script>{{{{ {script} }}}}</script>" for script in SCRIPTS]
    names = [f"way-{number}.out.test" for number in range(len(made))]
    hostile = [
        way.format(name if number >= len(WAYS) else f"http://{name}/")
        for number, (way, name) in enumerate(zip(made, names, strict=True))
    ]
    foreign.page = (
        '<link rel=preconnect href="http://control.out.test/">'
        "<script>fetch('http://later.out.test/').catch(() => fetch('/last'))</script>"
    )
    foreign.reached.clear()
    async with profile(tmp_path / "profile", f"--log-net-log={log}") as page:
        tab = Tab(page, daemon)
        await tab.log_in()
        await tab.open_session("packets", tab="run")
        tab.expects_errors = True
        for file, parts in (("still", hostile[: len(WAYS)]), ("lively", hostile[len(WAYS) :])):
            await put(tab, f"{file}.html", "".join(["<h1>shown</h1>", *parts]).encode())
            await page.click(f"[data-path$='{file}.html'] .name")
            await page.click("role=tab[name=Page]")
            if file == "lively":
                await page.click("text=run scripts in this result")
                await page.click("dialog >> text=Run >> nth=-1")
            frame = page.frame_locator(".untrusted iframe")
            await frame.locator("text=shown").wait_for(state="attached")
        await tab.close_sessions()
        await page.goto(foreign.origin)
        await until(foreign.seen, lambda found: "GET /last" in found, "the control")
    text = log.read_text()
    assert "control.out.test" in text
    assert [way for way, name in zip(made, names, strict=True) if name in text] == []


async def test_document_is_not_a_page(tab: Tab, browser: Browser, daemon: DaemonProcess) -> None:
    """Opened by itself it is refused, so that it cannot take what it shows elsewhere."""
    key = await tab.page.evaluate("() => sessionStorage.getItem('sandboxd.key')")
    ticket = await tab.page.evaluate(
        """async (key) => {
          const headers = { Authorization: `Bearer ${key}` };
          const answer = await fetch("/document", { method: "POST", headers, body: "<b>x</b>" });
          return (await answer.json()).ticket;
        }""",
        key,
    )
    async with opened_tab(browser, daemon) as other:
        other.expects_errors = True
        answer = await other.page.goto(f"{tab.origin}/document/{ticket}")
        assert answer is not None
        assert answer.status == 403


async def test_pictures_do_not_run_scripts(tab: Tab) -> None:
    """An SVG is shown in the frame for untrusted content."""
    await tab.open_session("svg", tab="run")
    svg = (
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>parent.ran = 1</script>'
        b'<text y="20">svg</text></svg>'
    )
    await put(tab, "x.svg", svg)
    tab.expects_errors = True
    await tab.page.click("[data-path$='x.svg'] .name")
    await tab.page.click("role=tab[name=Page]")
    await tab.page.frame_locator(".untrusted iframe").locator("text=svg").wait_for()
    assert await tab.page.evaluate("() => window.ran") is None


async def test_escapes_of_a_terminal_reach_nothing_else(tab: Tab) -> None:
    """Neither the clipboard nor the title of the page; a script is no link."""
    await tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await tab.open_session("escapes")
    await tab.page.evaluate("() => navigator.clipboard.writeText('mine')")
    await tab.type("printf '\\e]52;c;ZXZpbA==\\a\\e]0;evil\\a\\e]2;evil\\a\\e[21t'; echo done\n")
    await tab.shows("\ndone")
    assert await tab.page.title() == "sandboxd"
    assert await tab.page.evaluate("() => navigator.clipboard.readText()") == "mine"
    await tab.type("clear; printf '\\e]8;;javascript:alert(1)\\aclick\\e]8;;\\a\\n'\n")
    await tab.shows("click")
    box = await tab.page.locator(".xterm-screen").bounding_box()
    assert box is not None
    await tab.page.mouse.click(box["x"] + 12, box["y"] + 8)
    assert await tab.page.query_selector("dialog[open]") is None


async def test_paste_cannot_leave_its_brackets(tab: Tab) -> None:
    """Control characters are removed, and several lines ask first."""
    await tab.open_session("paste")
    await tab.page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.setData("text/plain", "echo one\\u001b[201~\\necho two\\n");
          const target = document.querySelector(".terminal-box textarea");
          target.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
        }"""
    )
    await tab.page.wait_for_selector("dialog >> text=lines")
    await tab.page.click("dialog >> text=Cancel")
    await tab.page.locator(".terminal-box textarea").focus()
    await tab.type("echo three\n")
    screen = await tab.shows("\nthree")
    assert "one" not in screen


# --- people ---


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
async def test_pages_are_accessible(
    scheme: Any, width: int, height: int, browser: Browser, daemon: DaemonProcess
) -> None:
    """axe finds nothing on any page, no policy is violated, nothing scrolls sideways. On a phone
    the bar is one line, from which every page can be reached."""
    async with opened_tab(
        browser, daemon, color_scheme=scheme, viewport={"width": width, "height": height}
    ) as tab:
        await tab.log_in()
        page = tab.page
        session_id = await tab.open_session("axe", tab="code")
        await page.click("role=button[name=Run]")
        await page.wait_for_selector(".cell .value")
        await tab.check_accessible("a cell")
        await page.click("role=tab[name=Snapshots]")
        await page.click("role=button[name='Take a snapshot']")
        await tab.check_accessible("a question")
        await page.click("dialog >> text=Take >> nth=-1")
        await tab.run("echo hi > f.txt; echo out; false")
        await page.click("role=tab[name=Snapshots]")
        await page.click(".line >> text=#1")
        await page.click("role=button[name='Against the present']")
        await page.wait_for_selector(".diff >> text=+hi")
        await tab.check_accessible("a snapshot")
        await page.click("[data-path$='f.txt'] .name")
        await page.wait_for_selector(".cm-content")
        await page.goto(f"{tab.origin}/#/sessions")
        await page.click("text=Project, packages, variables, policy")
        await tab.check_accessible("the form that starts a session")
        if width == 390:
            bar = await page.locator("header").bounding_box()
            assert bar
            assert bar["height"] < 50
            await page.click("header .menu")
            for link in await page.locator("nav a").all():
                await link.click(trial=True)
            await tab.check_accessible("the menu")
        pages = [
            f"session/{session_id}/{part}"
            for part in ("terminal", "run", "code", "history", "turns", "ports", "about")
        ]
        pages += ["overview", "sessions", "projects", "environments", "data", "cluster", "audit"]
        for place in (*pages, "doctor", "login"):
            if place == "login":
                await tab.page.click("text=Log out")
                await tab.page.wait_for_selector("input[type=password]")
            else:
                await tab.page.goto(f"{tab.origin}/#/{place}")
                await tab.page.wait_for_selector("main section:not([aria-busy])")
            await tab.check_accessible(place)
        assert await tab.violations() == []
        assert tab.complaints == []
        await tab.close_sessions()


async def test_first_page_is_small(tab: Tab) -> None:
    """What an admin sees first, with all that it loads, is below 100 kB on the wire. If a chunk is
    gone, because the daemon is another one, the page says so."""
    page = tab.page
    await page.wait_for_selector("figure .u-wrap")
    loaded = await page.evaluate(
        """() => performance.getEntries()
          .filter((entry) => entry.encodedBodySize !== undefined)
          .map((entry) => [entry.name.replace(location.origin, ""), entry.encodedBodySize])"""
    )
    size = sum(size for _, size in loaded)
    print(f"console: {size} bytes to the first page, {len(loaded)} requests (goal: 100000)")
    assert size < 100_000, loaded
    tab.expects_errors = True
    await page.route("**/assets/session*.js", lambda route: route.abort())
    await page.goto(f"{tab.origin}/#/session/none")
    await page.wait_for_selector("role=button[name='Load again']")


async def test_keyboard_reaches_everything(tab: Tab) -> None:
    """Tab walks through the page, Esc Esc leaves the terminal, letters go to pages."""
    page = tab.page
    await tab.open_session("keys")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await until(
        lambda: page.evaluate("() => document.activeElement.tagName"),
        lambda name: name == "MAIN",
        "the focus outside of the terminal",
    )
    seen = set()
    for _ in range(40):
        await page.keyboard.press("Tab")
        seen.add(
            await page.evaluate(
                "() => document.activeElement.innerText?.trim() || document.activeElement.ariaLabel"
            )
        )
        if await page.evaluate("() => document.activeElement.closest('.terminal') !== null"):
            await page.keyboard.press("Escape")
            await page.keyboard.press("Escape")
            await page.click("role=tab[name=About]")
    assert {"Reset", "Stop", "Upload"} <= seen
    await page.locator("main").focus()
    await page.keyboard.press("g")
    await page.keyboard.press("a")
    await page.wait_for_selector("h1 >> text=Audit")
    await page.keyboard.press("?")
    await page.wait_for_selector("dialog >> text=leave the terminal")
