"""The web console in a real browser, with real sandboxes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import signal
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.async_api import Browser, FilePayload

from sandboxd.console.socket import (
    HEAD,
    HELLO,
    INITIAL_CREDIT,
    MAX_FRAME_OUT,
    OPEN,
    PATH_SIZE,
)
from sandboxd_proto.v1 import exec_service_pb2, file_service_pb2, session_service_pb2
from tests.console.tab import Tab, opened_tab, until
from tests.data.rig import running_database
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("patient")]

MIB = 1 << 20
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


# --- logins ---


async def test_login_by_token(
    browser: Browser, guarded: tuple[DaemonProcess, Path], tokens: dict[str, str]
) -> None:
    """A wrong token is refused with words; the right one opens the console, a reload keeps it, a
    log-out does not."""
    daemon, _ = guarded
    async with opened_tab(browser, daemon) as tab:
        tab.expects_errors = True  # the browser reports a refusal as a failed request
        page = tab.page
        await page.goto(tab.origin)
        await page.fill("input[type=password]", "sbx_wrong")
        await page.click("role=button[name='Log in']")
        await page.wait_for_selector("role=alert >> text=does not know the token")
        await page.fill("input[type=password]", tokens["ops"])
        await page.click("role=button[name='Log in']")
        await page.wait_for_selector("header >> text=ops (admin)")
        await page.reload()
        await page.wait_for_selector("header >> text=ops (admin)")
        await page.click("text=Log out")
        await page.wait_for_selector("input[type=password]")
        await page.reload()
        await page.wait_for_selector("input[type=password]")


async def test_link_works_once(tab: Tab, browser: Browser, daemon: DaemonProcess) -> None:
    """Also in a tab that shows the login page. A second browser with the same link has to log in,
    and in the first one it ends no login; the code is not in the address."""
    link = await asyncio.to_thread(tab.link)
    async with opened_tab(browser, daemon) as first, opened_tab(browser, daemon) as second:
        first.expects_errors = second.expects_errors = True
        await first.page.goto(first.origin)
        await first.page.wait_for_selector("input[type=password]")
        await first.page.goto(link)
        await first.page.wait_for_selector("header")
        assert "code" not in first.page.url
        await second.page.goto(link)
        await second.page.wait_for_selector("role=alert >> text=was used")
        await first.page.goto(link)
        await first.page.wait_for_selector(".notices >> text=was used")
        assert await first.page.query_selector("header") is not None
        await first.page.goto(await asyncio.to_thread(tab.link))
        await first.page.wait_for_function("() => window.refusals.length === 0")  # a fresh page
        await first.page.wait_for_selector("header")


async def test_scopes_decide_what_is_shown(
    browser: Browser, guarded: tuple[DaemonProcess, Path], tokens: dict[str, str]
) -> None:
    """A read-only token sees sessions and history and no buttons; a user sees its own sessions; a
    token that is withdrawn ends the login at its next call."""
    daemon, path = guarded
    async with daemon.api() as api:
        ids = {}
        for user in ("ada", "bob"):
            opened = await api.sessions.OpenSession(
                session_service_pb2.OpenSessionRequest(user_id=user, thread_id="t"), timeout=60
            )
            ids[user] = opened.session.session_id
    async with opened_tab(browser, daemon) as tab:
        tab.expects_errors = True
        page = tab.page

        async def log_in(who: str) -> None:
            await page.goto(tab.origin)
            await page.fill("input[type=password]", tokens[who])
            await page.click("role=button[name='Log in']")
            await page.wait_for_selector("header")

        await log_in("ada")
        await page.wait_for_selector(f"[data-session={ids['ada']}]")
        assert await page.query_selector(f"[data-session={ids['bob']}]") is None
        assert "Overview" not in await page.inner_text("nav")
        await page.click("text=Log out")

        await log_in("board")
        await page.goto(f"{tab.origin}/#/sessions")
        await page.wait_for_selector(f"[data-session={ids['bob']}]")
        assert await page.query_selector("text=Start") is None
        await page.goto(f"{tab.origin}/#/session/{ids['ada']}")
        await page.wait_for_selector("section.session")
        tabs = await page.eval_on_selector_all(
            "[role=tab]", "(all) => all.map((one) => one.innerText)"
        )
        assert tabs == ["History", "About"]
        assert await page.query_selector(".files") is None
        await page.click("text=Log out")

        await log_in("ada")
        kept = path.read_text()
        path.write_text("\n".join(kept.splitlines()[:1]))
        assert daemon.process is not None
        daemon.process.send_signal(signal.SIGHUP)
        await page.wait_for_selector("role=alert >> text=has ended")
        path.write_text(kept)
        daemon.process.send_signal(signal.SIGHUP)


# --- sessions ---


async def test_start_reset_and_stop(tab: Tab) -> None:
    """Each does what it says; a reset keeps the session and shows the next incarnation."""
    page = tab.page
    await page.goto(f"{tab.origin}/#/sessions")
    await page.fill("[aria-label=Thread]", "life")
    await page.click("role=button[name=Start]")
    await page.wait_for_selector(".terminal-box[data-live=yes]")
    await page.click("role=tab[name=Run]")
    assert "exit 0" in await tab.run("touch made")
    await until(tab.file_names, lambda names: "made" in names, "the file")
    session_id = (await page.evaluate("() => location.hash")).split("/")[2]
    await page.wait_for_selector(".head .dot.good")
    async with tab.daemon.api() as api:
        kept = file_service_pb2.WriteTextRequest(
            session_id=session_id, path="project_files/kept.txt", text="kept"
        )
        await api.files.WriteText(kept, timeout=60)
    await page.click("role=button[name=Reset]")
    await page.click("dialog >> text=Reset >> nth=-1")
    await page.wait_for_selector("[data-incarnation] >> text=2")
    await until(tab.file_names, lambda names: names and "made" not in names, "a fresh workspace")
    await page.click("[data-path$='/project_files'] .name")
    await until(tab.file_names, lambda names: "kept.txt" in names, "the project's file")
    await page.click("role=button[name=Stop]")
    await page.click("dialog button.danger")
    await page.wait_for_selector(".head >> text=closed")
    await page.wait_for_selector(".head .dot:not(.good)")
    await page.goto(f"{tab.origin}/#/sessions")
    await page.wait_for_selector("tr >> text=closed")


async def test_flow_of_a_project(tab: Tab) -> None:
    """A project, its files, a session on it that is started with variables and a policy, a command,
    code that is uploaded beside it, a reset and a stop, one step after the other."""
    page = tab.page
    await create_project(tab, "flow")
    await page.set_input_files(
        "[aria-label='Files to upload']", files=[given("data.csv", "1\n2\n")]
    )
    await page.wait_for_selector("td >> text=data.csv")

    await page.goto(f"{tab.origin}/#/sessions")
    await page.fill("[aria-label=Thread]", "flow")
    await page.click("text=Project, packages, variables, policy")
    await page.get_by_label("Project").select_option("flow")
    await page.get_by_label("Command policy").fill("open")
    await page.get_by_label("Variables").fill("GREETING=hello there")
    await page.click("role=button[name=Start]")
    await page.wait_for_selector(".head .state:has(.dot.good) >> text=active")
    await page.wait_for_selector(".head >> text=policy open")

    await page.click("role=tab[name=Run]")
    assert "exit 0" in await tab.run("ls /workspace/project_files; touch made")
    assert await tab.output() == "data.csv\n"

    code = "import os; print(os.environ['GREETING'])"
    await page.set_input_files(
        "[aria-label='Files to upload to the project']", files=[given("test.py", code)]
    )
    await page.wait_for_selector("[data-path='/workspace/project_files/test.py']")
    assert "exit 0" in await tab.run("python /workspace/project_files/test.py")
    assert await tab.output() == "hello there\n"
    await page.click("[data-path='/workspace/project_files/test.py'] .name")
    await page.click(".cm-content")
    await page.keyboard.press("Control+End")
    await tab.type("; print(6 * 7)")
    await page.keyboard.press("Control+s")
    await page.wait_for_selector(".notices >> text=Saved")
    await tab.run("python /workspace/project_files/test.py")
    assert await tab.output() == "hello there\n42\n"
    await page.click("role=button[name='Delete data.csv']")
    await page.click("dialog button.danger")
    await until(tab.file_names, lambda names: "data.csv" not in names, "a deleted file")

    await page.click("role=button[name=Reset]")
    await page.click("dialog >> text=Reset >> nth=-1")
    await page.wait_for_selector("[data-incarnation] >> text=2")
    assert "exit 0" in await tab.run("ls project_files; test ! -e made")
    assert await tab.output() == "test.py\n"

    await page.click("role=button[name=Stop]")
    await page.wait_for_selector("dialog >> text=but not those of its project")
    await page.click("dialog button.danger")
    await page.wait_for_selector(".head .state:has(.dot:not(.good)) >> text=closed")
    async with tab.daemon.api() as api:
        assert (await api.status()).active_sessions == 0
    await page.goto(f"{tab.origin}/#/projects")
    await page.click(".entry >> text=flow")
    await page.wait_for_selector("td >> text=test.py")
    await page.click("role=button[name='Start a session']")
    await page.wait_for_selector(".head .dot.good")
    assert await tab.refusals() == []


async def create_project(tab: Tab, name: str) -> None:
    await tab.page.goto(f"{tab.origin}/#/projects")
    await tab.page.click("role=button[name='New project']")
    await tab.page.fill("dialog input", name)
    await tab.page.click("dialog >> text=Create >> nth=-1")


def given(name: str, text: str) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": text.encode()}


async def test_configuration_is_pasted(tab: Tab) -> None:
    """As JSON, whole or without its environment. What is wrong with it is said, and nothing is
    started; packages that are not allowed are refused with the settings that would allow them."""
    page = tab.page
    await page.goto(f"{tab.origin}/#/sessions")
    await page.click("text=Project, packages, variables, policy")
    config = {"packages": ["tensorflow", "keras"], "env_vars": {"DEBUG": "1"}}
    whole = {"environment_type": "python3.11", "environment_config": config}
    json_field = page.get_by_label("Or a configuration as JSON")
    await json_field.fill(json.dumps(whole))
    assert await page.input_value("[aria-label=Environment]") == "python3.11"
    assert await page.get_by_label("Packages").input_value() == "tensorflow keras"
    assert await page.get_by_label("Variables").input_value() == "DEBUG=1"
    await page.click("role=button[name=Start]")
    refusal = await page.inner_text("[role=alert]")
    for word in ("keras", "SANDBOXD_PACKAGES_ALLOW", "SANDBOXD_PACKAGES_POLICY=open"):
        assert word in refusal
    for text, said in (
        ("{", "This is not JSON"),
        ('{"package": []}', "packages and env_vars"),
        ('{"env_vars": {"DEBUG": 1}}', "DEBUG in env_vars is not a text"),
    ):
        await json_field.fill(text)
        await page.click("role=button[name=Start]")
        await page.wait_for_selector(f"[role=alert] >> text={said}")
    await json_field.fill(json.dumps(config | {"packages": []}))
    await page.click("role=button[name=Start]")
    await page.wait_for_selector("section.session")
    await page.click("role=tab[name=Run]")
    await tab.run("echo $DEBUG")
    assert await tab.output() == "1\n"


async def test_list_is_filtered_and_walked_by_keys(tab: Tab) -> None:
    """Active sessions come first, each with its age. The slash goes to the filter, j and k move,
    Enter opens."""
    page = tab.page
    for thread in ("alpha", "beta", "gone"):
        await tab.open_session(thread, tab="run")
    await page.click("role=button[name=Stop]")
    await page.click("dialog button.danger")
    await page.wait_for_selector(".head >> text=closed")
    await page.goto(f"{tab.origin}/#/sessions")
    await page.wait_for_selector("tr:has-text('gone') >> text=closed")
    rows = await page.locator("tbody tr").all_inner_texts()
    assert ["beta" in rows[0], "alpha" in rows[1], "gone" in rows[2]] == [True] * 3
    assert re.search(r"\d (ms|s|min)\b", await page.locator("tbody td.age").first.inner_text())
    await page.keyboard.press("/")
    await tab.type("beta")
    await until(
        lambda: page.locator("tbody tr").count(), lambda count: count == 1, "one session left"
    )
    await page.fill("[data-filter]", "")
    await page.locator("main").focus()
    await page.keyboard.press("j")
    await page.wait_for_selector("tbody tr:nth-child(2)[aria-selected=true]")
    await page.keyboard.press("k")
    await page.wait_for_selector("tbody tr:nth-child(1)[aria-selected=true]")
    await page.keyboard.press("Enter")
    await page.wait_for_selector("section.session")


# --- commands ---


async def test_output_is_shown_while_the_command_runs(tab: Tab) -> None:
    """The first output is in the page before the end; both streams are told apart."""
    await tab.open_session("live", tab="run")
    page = tab.page
    exec_id = await tab.start(
        "echo first; echo oops >&2; until [ -e go ]; do sleep 0.05; done; echo last"
    )
    await page.wait_for_selector(".output >> text=first")
    assert await page.inner_text(".output .stderr") == "oops\n"
    assert await page.query_selector(".exit strong") is None
    await tab.drop({"go": ""})
    assert "exit 0" in await tab.ended(exec_id)
    assert await tab.output() == "first\noops\nlast\n"


async def test_end_is_shown_with_the_output(tab: Tab) -> None:
    """All of it is in the page as soon as the end is."""
    await tab.open_session("end", tab="run")
    await tab.page.evaluate(
        """() => {
          window.atEnd = [];
          const run = document.querySelector(".run");
          const look = () => {
            const output = run.querySelector(".output").textContent;
            if (run.dataset.ended === "true") window.atEnd.push(output);
          };
          new MutationObserver(look).observe(run, { attributeFilter: ["data-ended"] });
        }"""
    )
    for number in range(5):
        await tab.run(f"echo {number}")

    assert await tab.page.evaluate("() => window.atEnd") == [f"{n}\n" for n in range(5)]


@pytest.mark.parametrize(
    ("command", "seconds", "told"),
    [
        ("exit 3", "", "exit 3"),
        ("kill -9 $$", "", "signal 9"),
        ("sleep 100", "1", "timed out"),
        ("python3 -c \"x = 'a' * 10**9\"", "", "out of memory"),
    ],
)
async def test_endings_tell_the_truth(command: str, seconds: str, told: str, tab: Tab) -> None:
    """How it ended, with what it used and, where there is one, a hint."""
    await tab.open_session("ends", tab="run")
    if seconds:
        await tab.page.fill("input[type=number]", seconds)
    ended = await tab.run(command)
    assert told in ended
    assert "peak" in ended


async def test_interrupt_and_kill(tab: Tab) -> None:
    """The first is as Ctrl-C, the second cannot be refused."""
    await tab.open_session("signals", tab="run")
    page = tab.page
    for line, button in (("sleep 1000", "Interrupt"), ("trap '' INT; sleep 1000", "Kill")):
        exec_id = await tab.start(line)
        await page.click(f"role=button[name={button}]")
        assert "signal" in await tab.ended(exec_id)


async def test_much_output_arrives_whole_while_the_page_answers(
    tab: Tab, daemon: DaemonProcess
) -> None:
    """More than 20 MB are counted to the last byte. The page draws and takes clicks after each
    portion: neither a frame nor a click waits for more than the credit of a call."""
    session_id = await tab.open_session("much", tab="run")
    page = tab.page
    part = "yes 0123456789abcdef | head -c"
    await page.fill("input[type=number]", "200")
    exec_id = await tab.start(f"until [ -e go ]; do {part} 1000000; done; {part} 20000000")
    await page.wait_for_selector(".output[data-total]")
    await page.evaluate(
        """() => {
          const output = document.querySelector(".output");
          const total = () => Number(output.dataset.total);
          window.seen = { frames: [], clicks: [] };
          const frame = () => {
            window.seen.frames.push([performance.now(), total()]);
            requestAnimationFrame(frame);
          };
          requestAnimationFrame(frame);
          document.querySelector("header button[title]").addEventListener("click", (event) =>
            window.seen.clicks.push([event.timeStamp, performance.now(), total()]));
        }"""
    )
    for _ in range(5):
        await page.click("header button[title]")
    await tab.drop({"go": ""})
    assert "exit 0" in await tab.ended(exec_id)
    async with daemon.api() as api:
        listed = await api.execs.ListExecs(
            exec_service_pb2.ListExecsRequest(session_id=session_id), timeout=30
        )
    written = int(listed.execs[0].stdout_bytes)
    assert written >= 20_000_000
    await until(
        lambda: page.get_attribute(".output", "data-total"),
        lambda seen: int(seen) == written,
        "all bytes",
    )
    seen = await page.evaluate("() => window.seen")
    portion = INITIAL_CREDIT + MAX_FRAME_OUT
    totals = [total for _, total in seen["frames"]]
    assert max(after - before for before, after in pairwise(totals)) <= portion
    assert len(seen["clicks"]) == 5
    for clicked, _, total in seen["clicks"]:
        drawn = [at for time, at in seen["frames"] if time <= clicked]
        assert total - max(drawn, default=0) <= 2 * portion  # one being drawn, one after it
    waits = sorted(handled - clicked for clicked, handled, _ in seen["clicks"])
    print(f"console: {written} bytes shown, a click waited {waits[2]:.0f} ms (goal: 200)")


async def test_page_that_does_not_read_stops_the_command(tab: Tab, daemon: DaemonProcess) -> None:
    """Output that nobody takes is not sent on: the daemon does not grow."""
    session_id = await tab.open_session("unread", tab="run")
    page = tab.page
    await tab.start("yes | head -c 300M; touch done")
    await page.wait_for_selector(".output[data-total]")
    before = memory_of(daemon.pid)
    await page.evaluate("() => { window.requestAnimationFrame = () => 0; }")

    async def written() -> int:
        async with daemon.api() as api:
            listed = await api.execs.ListExecs(
                exec_service_pb2.ListExecsRequest(session_id=session_id), timeout=30
            )
        return int(listed.execs[0].stdout_bytes)

    async def still() -> bool:
        count = await written()
        await asyncio.sleep(1)
        return count == await written()

    await until(still, bool, "a command that stands still")
    count = await written()
    grown = memory_of(daemon.pid) - before
    print(f"console: a page that does not read stops a command after {count >> 20} MiB")
    assert count < 300 * MIB
    assert grown < 64 * MIB
    await page.reload()


def memory_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) << 10


# --- terminals ---


async def test_terminal_is_a_terminal(tab: Tab) -> None:
    """Typing, Ctrl-C, full-screen programs, colours, and the size of its window."""
    await tab.open_session("tty")
    await tab.type("echo $((6*7)); stty size\n")
    await tab.shows("42")
    await tab.type("sh -c 'echo sta''rted; exec sleep 1000'\n")
    await tab.shows("started")
    await tab.page.keyboard.press("Control+c")
    await tab.type("echo after\n")
    await tab.shows("\nafter")
    await tab.type("top; echo left $((6*7))\n")
    await tab.shows("load average")
    await tab.type("q")
    await tab.shows("left 42")  # when it ends, top discards what was typed meanwhile
    await tab.type("clear; printf '\\e[38;2;%d;0;0mr%s\\e[0m\\n' 255 ed\n")
    await tab.shows("red")
    await tab.page.wait_for_function(  # it is drawn a moment later
        """() => [...document.querySelectorAll(".xterm-rows span")].some((span) =>
          span.textContent === "red" && getComputedStyle(span).color === "rgb(255, 0, 0)")"""
    )
    await tab.type("clear; yes 0123456789abcdef | head -c 3000000; echo; echo flooded $((6*7))\n")
    await tab.shows("flooded 42")
    before = await tab.terminal_size()
    await tab.page.set_viewport_size({"width": 1000, "height": 700})
    size = await until(tab.terminal_size, lambda now: now[1] < before[1], "a narrower terminal")
    # The new size reaches the shell a moment after the page has it.
    await tab.type("while :; do clear; stty size; sleep 0.2; done\n")
    await tab.shows(f"{size[0]} {size[1]}")
    await tab.page.keyboard.press("Control+c")
    await tab.page.set_viewport_size({"width": 1280, "height": 800})


async def test_terminal_survives_a_reload(tab: Tab) -> None:
    """The same shell with the same screen; what the replay asks of the terminal is not typed."""
    await tab.open_session("reload")
    await tab.type("x=kept; printf '\\e[6n\\e[c\\e[>c'; echo shown\n")
    await tab.shows("shown")
    await tab.page.keyboard.press("Enter")
    await tab.type("clear; echo ready\n")
    await tab.shows("ready")
    await tab.page.reload()
    await tab.page.wait_for_selector(".terminal-box[data-live=yes]")
    await tab.type("echo [$x]\n")
    screen = await tab.shows("[kept]")
    assert "$ echo [$x]\n" in screen + "\n"


async def test_terminal_survives_the_daemon(tab: Tab, daemon: DaemonProcess) -> None:
    """kill -9 under a running loop: no line is lost or doubled, typing goes on, no reload."""
    await tab.open_session("survivor")
    lines = 60
    await tab.type(f"clear; for i in $(seq {lines}); do echo line-$i-; sleep 0.05; done\n")
    await tab.shows("line-5-")
    await tab.page.evaluate("() => { window.isSamePage = true; }")
    killed = time.monotonic()
    await daemon.signal(signal.SIGKILL)
    tab.expects_errors = True  # the browser reports attempts to connect
    await tab.page.wait_for_selector("header >> text=reconnecting")
    await daemon.start()
    await tab.page.wait_for_selector("header >> text=live")
    live = time.monotonic() - killed
    screen = await tab.shows(f"line-{lines}-")
    await tab.type("echo typed again\n")
    await tab.shows("\ntyped again")
    tab.expects_errors = False
    assert re.findall(r"^line-(\d+)-", screen, re.M) == [str(n) for n in range(1, lines + 1)]
    assert await tab.page.evaluate("() => window.isSamePage")
    print(f"console: a terminal is live {live:.1f} s after kill -9, {lines} lines once each")


async def test_stopped_session_is_told_and_started(tab: Tab, daemon: DaemonProcess) -> None:
    """After a stop of the daemon its page and the list say that its files are kept, and how long;
    Start goes on with them."""
    session_id = await tab.open_session("stopped", tab="run")
    await tab.run("echo hello > kept.txt")
    tab.expects_errors = True  # the browser reports attempts to connect
    await daemon.stop()
    await daemon.start()
    await tab.page.wait_for_selector("header >> text=live")
    await tab.page.wait_for_selector(".head >> text=stopped, files kept")
    pane = await tab.page.inner_text(".pane")
    assert re.search(
        "files kept: the daemon was stopped.*its files are deleted in [0-9]+ min", pane
    )
    await tab.page.goto(f"{tab.origin}/#/sessions")
    row = f"tr[data-session={session_id}]"
    await tab.page.wait_for_selector(f"{row} >> text=stopped, files kept")
    await tab.page.click(f"{row} a")
    await tab.page.click(".head >> role=button[name=Start]")
    await tab.page.wait_for_selector("[data-path$='kept.txt']")
    tab.expects_errors = False


async def test_two_tabs_share_a_terminal(tab: Tab, browser: Browser, daemon: DaemonProcess) -> None:
    """Both see it, and no byte of either is lost."""
    session_id = await tab.open_session("shared")
    async with opened_tab(browser, daemon) as other:
        await other.log_in()
        await other.show(session_id, "terminal")
        await asyncio.gather(tab.type("echo aaaaaaaaaaaa;"), other.type("echo bbbbbbbbbbbb;"))
        for one in (tab, other):
            await until(one.screen, has_both, "what both have typed")


def has_both(screen: str) -> bool:
    typed = screen.partition("$")[2]
    return (typed.count("a"), typed.count("b")) == (12, 12)


async def test_strict_policy_gives_a_prompt(
    browser: Browser, guarded: tuple[DaemonProcess, Path], tokens: dict[str, str]
) -> None:
    """Where an interactive shell is not allowed, lines run in a shell that keeps its directory, and
    a refusal names the rule."""
    daemon, _ = guarded
    async with opened_tab(browser, daemon) as tab:
        page = tab.page
        await page.goto(tab.origin)
        await page.fill("input[type=password]", tokens["ops"])
        await page.click("role=button[name='Log in']")
        await page.wait_for_selector("header")
        await tab.open_session("strict", tab="")
        await page.wait_for_selector(".prompt")
        for line in ("mkdir d", "cd d", "pwd", "curl example.org"):
            await page.fill("[aria-label=Command]", line)
            await page.keyboard.press("Enter")
            await page.wait_for_selector("[aria-label=Command]:enabled")
        text = await tab.output()
        assert "/workspace/d\n" in text
        assert "curl" in text.split("$ curl example.org")[1]
        await tab.close_sessions()


# --- files ---


async def test_files_are_dropped_downloaded_and_deleted(tab: Tab) -> None:
    """Several at once arrive whole; the download has the name and the bytes; a deletion asks."""
    page = tab.page
    await tab.open_session("files", tab="run")
    odd = "sp ace\"quo'te-ünï.txt"
    await tab.drop({"a.txt": "alpha", "b.txt": "beta" * 100_000, odd: "odd"})
    await until(
        tab.file_names, lambda names: {"a.txt", "b.txt", odd} <= set(names), "the dropped files"
    )
    assert "exit 0" in await tab.run(
        "test $(wc -c < b.txt) = 400000 && mkdir -p dir/sub && touch dir/x"
    )
    await page.hover("[data-path$='.txt'] >> nth=-1")
    async with page.expect_download() as download:
        await page.click(f"role=button[name='Download {odd}']".replace("'te", "\\'te"))
    saved = await download.value
    assert saved.suggested_filename.startswith("sp ace")
    assert (await saved.path()).read_text() == "odd"
    await page.click("role=button[name='Delete a.txt']")
    await page.click("dialog button.danger")
    await until(tab.file_names, lambda names: "a.txt" not in names, "a deleted file")
    await page.click("role=button[name='Delete dir']")
    await page.click("dialog >> text=Cancel")
    assert "dir" in await tab.file_names()
    await page.click("role=button[name='Delete dir']")
    await page.click("dialog button.danger")
    await until(tab.file_names, lambda names: "dir" not in names, "a deleted directory")


async def test_dropped_folder_arrives_whole(tab: Tab, tmp_path: Path) -> None:
    """With the directories in it, also empty ones, and progress that moves; so does a folder that
    is chosen in a dialog."""
    page = tab.page
    folder = tmp_path / "folder"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "empty").mkdir()
    for number in range(30):
        (folder / "deep" / f"f{number}.txt").write_text(f"{number}")
    (folder / "deep" / "deeper" / "large.bin").write_bytes(bytes(range(256)) * 20_000)
    for path in (tmp_path, *folder.rglob("*"), folder):
        path.chmod(0o755)
    await tab.open_session("folder", tab="run")
    session = await page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 4 * MIB}
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", slow)
    await page.evaluate(
        """() => {
          window.progress = [];
          new MutationObserver(() => {
            const bar = document.querySelector(".batch progress");
            const text = document.querySelector(".batch")?.textContent;
            if (bar) window.progress.push([bar.value, bar.max, text]);
          }).observe(document.querySelector(".files"), {
            subtree: true, childList: true, attributes: true, characterData: true,
          });
        }"""
    )
    await tab.drop_paths(folder)
    await page.wait_for_selector(".batch")
    await page.wait_for_selector(".batch", state="detached")
    await session.detach()
    await tab.run(
        "find folder -type f | wc -l; find folder -type d | sort; "
        "sha256sum < folder/deep/deeper/large.bin"
    )
    found = await tab.output()
    assert found.startswith("31\nfolder\nfolder/deep\nfolder/deep/deeper\nfolder/empty\n")
    content = (folder / "deep" / "deeper" / "large.bin").read_bytes()
    assert hashlib.sha256(content).hexdigest() in found
    seen = await page.evaluate("() => window.progress")
    parts = [value / limit for value, limit, _ in seen]
    assert parts == sorted(parts)
    assert len({part for part in parts if 0 < part < 1}) > 1
    assert any("of 31 files" in text for _, _, text in seen)

    await page.set_input_files("[aria-label='Folder to upload']", folder / "deep")
    await until(tab.file_names, lambda names: "deep" in names, "the folder that was chosen")
    await page.wait_for_selector(".batch", state="detached")
    await tab.run("find deep -type f | wc -l")
    assert await tab.output() == "31\n"


async def test_odd_names_are_shown_and_handled(tab: Tab) -> None:
    """Newlines, escapes and bytes that are no text: listed without doing anything, opened,
    downloaded and deleted as what they are."""
    page = tab.page
    await tab.open_session("odd", tab="run")
    await tab.run(
        r"""printf one > $'new\nline.txt'; printf two > $'bad\xff.txt';"""
        r"""printf esc > $'\e[31mred.txt';"""
        r"""mkdir $'d\nir\xfe'; printf three > $'d\nir\xfe/in\tner.txt'; touch $'new' line.txt"""
    )
    names = {"new\\x0aline.txt": "one", "bad\\xff.txt": "two", "\\x1b[31mred.txt": "esc"}
    directory, inner = "d\\x0air\\xfe", "in\\x09ner.txt"
    await until(
        tab.file_names, lambda seen: {*names, directory, "new"} <= set(seen), "the odd names"
    )
    await page.get_by_role("treeitem", name=directory, exact=True).locator(".name").click()
    await until(tab.file_names, lambda seen: inner in seen, "what is in the directory")
    for name, text in {**names, inner: "three"}.items():
        async with page.expect_download() as download:
            await page.get_by_role("button", name=f"Download {name}", exact=True).click()
        saved = await download.value
        assert "\n" not in saved.suggested_filename
        assert (await saved.path()).read_text() == text
    await page.get_by_role("treeitem", name="bad\\xff.txt", exact=True).locator(".name").click()
    await page.wait_for_selector(".cm-content >> text=two")
    for name in names:
        await page.get_by_role("button", name=f"Delete {name}", exact=True).click()
        await page.click("dialog button.danger")
    await page.get_by_role("button", name=f"Delete {directory}", exact=True).click()
    await page.click("dialog button.danger")
    await until(tab.file_names, lambda seen: not {*names, directory} & set(seen), "the deletions")
    await tab.run(r"ls -d new line.txt; ls -b | grep -F '\' || echo no other")
    assert await tab.output() == "line.txt\nnew\nno other\n"


async def test_upload_that_does_not_fit_says_why(tab: Tab) -> None:
    """Nothing of it is left."""
    await tab.open_session("full", tab="run")
    tab.expects_errors = True
    await tab.run("head -c 50M /dev/zero > filler")
    transfer = await tab.page.evaluate_handle(
        """() => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([new Uint8Array(40 << 20)], "large"));
          return transfer;
        }"""
    )
    await tab.page.dispatch_event(".files", "drop", {"dataTransfer": transfer})
    why = await tab.page.inner_text(".transfers .bad")
    assert "space" in why or "full" in why
    assert "large" not in await tab.file_names()
    tab.expects_errors = False


async def test_editor_saves_and_does_not_overwrite_unseen(tab: Tab) -> None:
    """Ctrl-S writes the file, also where the editor has the whole window; one that a command
    changed meanwhile is shown and asked about."""
    page = tab.page
    await tab.open_session("edit", tab="run")
    await tab.run("echo old > note.txt")
    await page.click("[data-path$='note.txt'] .name")
    await page.wait_for_selector(".cm-content")
    await page.click("role=button[name=Enlarge]")
    await until(editor_width(tab), lambda width: width > 1200, "an editor as wide as the window")
    await page.click(".cm-content")
    await page.keyboard.press("Control+End")
    await tab.type("new\n")
    await page.wait_for_selector("text=Not saved")
    await page.keyboard.press("Control+s")
    await page.wait_for_selector(".notices >> text=Saved")
    await page.keyboard.press("Escape")
    await until(editor_width(tab), lambda width: width < 640, "an editor beside the command")
    await tab.run("cat note.txt")
    assert await tab.output() == "old\nnew\n"
    await tab.run("echo other > note.txt")
    await page.click(".cm-content")
    await tab.type("mine")
    await page.keyboard.press("Control+s")
    await page.wait_for_selector("dialog .output >> text=other")
    await page.click("dialog >> text=Cancel")
    await tab.run("cat note.txt")
    assert await tab.output() == "other\n"


def editor_width(tab: Tab) -> Callable[[], Awaitable[int]]:
    return lambda: tab.page.evaluate("() => document.querySelector('.editor').clientWidth")


async def test_editor_keeps_bytes_that_were_not_edited(tab: Tab) -> None:
    """Line ends and a byte order mark stay, and what is not saved survives another theme; bytes
    that are no text are not opened."""
    page = tab.page
    await tab.open_session("bytes", tab="run")
    await tab.run(r"printf '\xef\xbb\xbfone\r\ntwo\r\n' > dos.txt; printf 'caf\xe9' > latin.txt")
    await page.click("[data-path$='dos.txt'] .name")
    await page.click(".cm-content")
    await page.keyboard.press("Control+End")
    await tab.type("three")
    await page.wait_for_selector("text=Not saved")
    await page.click("role=button[name='Switch between dark and light']")
    await page.wait_for_selector(".cm-content >> text=three")
    await page.click(".cm-content")
    await page.keyboard.press("Control+s")
    await page.wait_for_selector(".notices >> text=Saved")
    await tab.run("od -An -tx1 dos.txt | tr -d ' '")
    written = b"\xef\xbb\xbfone\r\ntwo\r\nthree".hex()
    assert (await tab.output()).replace("\n", "") == written
    await page.click("[data-path$='latin.txt'] .name")
    await page.wait_for_selector(".opened >> text=not UTF-8 text")


async def test_previews(tab: Tab) -> None:
    """A picture, a table, a tree and Markdown. A picture that is too large is not decoded; of deep
    values and long tables only a part is drawn; a large file is not loaded."""
    page = tab.page
    await tab.open_session("previews", tab="run")
    bomb = PNG[:16] + (1 << 16).to_bytes(4) * 2 + PNG[24:]
    for name, data in {
        "p.png": PNG,
        "bomb.png": bomb,
        "t.csv": b'a,b\n1,"x,y"\n',
        "j.json": b'{"k": [1, 2]}',
        "deep.json": b"[" * 20_000 + b"]" * 20_000,
        "fake.png": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "m.md": b"# Title\n\n- one **bold** <b>x</b>\n\n[a](javascript:alert(1))\n",
    }.items():
        await tab.run(f"echo {base64.b64encode(data).decode()} | base64 -d > {name}")
    await page.click("[data-path$='/p.png'] .name")
    await page.wait_for_function("() => document.querySelector('img.picture')?.naturalWidth === 1")
    await page.click("[data-path$='bomb.png'] .name")
    await page.wait_for_selector("text=pixels")
    await page.click("[data-path$='t.csv'] .name")
    await page.click("role=tab[name=Table]")
    await page.wait_for_selector("td >> text=x,y")
    await page.click("[data-path$='j.json'] .name")
    await page.click("role=tab[name=Tree]")
    await page.wait_for_selector(".preview >> text=k:")
    await page.click("[data-path$='fake.png'] .name")
    await page.wait_for_selector("text=no picture that is known")
    await tab.run("seq 5000 > long.csv; head -c 2M /dev/zero > large.txt")
    await page.click("[data-path$='long.csv'] .name")
    await page.click("role=tab[name=Table]")
    await page.wait_for_selector(".preview td >> text=999")
    assert await page.locator(".preview tr").count() <= 1001
    await page.click("[data-path$='deep.json'] .name")
    await page.click("role=tab[name=Tree]")
    await page.wait_for_selector(".opened >> text=deep")
    assert await page.locator(".preview details").count() <= 51
    await page.click("[data-path$='large.txt'] .name")
    await page.wait_for_selector(".opened >> text=Download it instead")
    await page.click("[data-path$='m.md'] .name")
    await page.click("role=tab[name=Markdown]")
    await page.wait_for_selector(".markdown li >> text=<b>x</b>")
    assert await page.query_selector(".markdown a") is None


# --- history, code, snapshots ---

TABLE = """type("T", (), {"_repr_html_": lambda self: "<table border=1><tr><td>cell"})()"""


async def test_history_has_every_command(tab: Tab) -> None:
    """With its end, and its output as long as it is kept."""
    page = tab.page
    await tab.open_session("past", tab="run")
    for command in ("echo one", "exit 7"):
        await tab.run(command)
    await page.click("role=tab[name=History]")
    await page.wait_for_selector(".history >> text=exit 7")
    await page.click(".history >> text=echo one")
    await page.wait_for_selector(".kept .output >> text=one")


async def test_code_cells_and_debugger(tab: Tab) -> None:
    """Values and variables of a context, nothing where there is none, tables that look as the page
    does, and stepping through code."""
    page = tab.page
    await tab.open_session("cells", tab="code")
    await page.click(".cm-content")

    async def write(code: str) -> None:
        await page.keyboard.press("Control+a")
        await tab.type(code)

    await write("z = 5")
    await page.keyboard.press("Control+Enter")
    await page.wait_for_selector(".variables >> text=z")
    assert (await page.inner_text(".cell")).split()[:5] == ["z", "=", "5", "exit", "0"]
    tab.expects_errors = True  # the frame runs no script, also not those of this test
    await write(TABLE)
    await page.keyboard.press("Control+Enter")
    cell = page.frame_locator(".cell iframe").locator("td")
    assert await cell.evaluate("(cell) => getComputedStyle(cell).borderLeftWidth") == "0px"
    frame = await page.locator(".cell iframe").bounding_box()
    assert frame
    assert frame["height"] < 140
    tab.expects_errors = False
    await write("x = 20\ny = x + 1\ny * 2")
    await page.click("role=button[name=Run]")
    await page.wait_for_selector(".cell .value >> text=42")
    await page.wait_for_selector(".variables >> text=21")
    await page.click("role=button[name=Debug]")
    await page.wait_for_selector(".debugger [data-line='1']")
    await page.click("role=button[name='Step over']")
    await page.wait_for_selector(".debugger [data-line='2']")
    await page.click("role=button[name=Continue]")
    await page.wait_for_selector(".debugger", state="detached")


async def test_snapshots_are_compared_restored_and_forked(tab: Tab) -> None:
    """What changed is shown; going back brings the file back, without a complaint and with one
    snapshot of before, also with a terminal that goes on writing; a fork is another session."""
    page = tab.page
    await tab.open_session("turns")
    await page.click("role=tab[name=Run]")
    await tab.run("echo before > f.txt")

    async def take() -> None:
        await page.click("role=tab[name=Snapshots]")
        await page.click("role=button[name='Take a snapshot']")
        await page.click("dialog >> text=Take >> nth=-1")

    await take()
    await page.wait_for_selector(".line >> text=#1")
    await page.click("role=tab[name=Run]")
    await tab.run("echo after > f.txt")
    await take()
    await page.click(".line >> text=#2")
    await page.click("role=button[name='What changed']")
    await page.wait_for_selector(".diff >> text=+after")
    await page.click("role=tab[name=Terminal]")
    await page.wait_for_selector(".terminal-box[data-live=yes]")
    await tab.type("echo writing; while sleep 0.01; do echo x >> log; done\n")
    await tab.shows("\nwriting")
    await page.click("role=tab[name=Snapshots]")
    await page.click(".line >> text=#1")
    await page.click("role=button[name='Go back']")
    await page.click("dialog button.danger")
    await page.wait_for_selector("[data-incarnation] >> text=2")
    await page.click("role=tab[name=Run]")
    await tab.run("cat f.txt")
    assert await tab.output() == "before\n"
    await page.wait_for_selector("[data-path$='f.txt']")
    assert await tab.refusals() == []
    await page.click("role=tab[name=Snapshots]")
    await page.wait_for_selector(".line >> text=before rewind")
    assert await page.locator(".line >> text=before rewind").count() == 1
    await page.click(".line >> text=#2")
    await page.click("role=button[name=Fork]")
    await page.click("dialog >> text=Fork >> nth=-1")
    await page.wait_for_selector("h1 >> text=turns-fork")


async def test_ports_have_a_preview(tab: Tab) -> None:
    """A server that a command starts is listed, and opens under an origin of its own."""
    page = tab.page
    await tab.open_session("ports", tab="run")
    server = "echo hello from inside > index.html; exec python3 -m http.server 8123"
    await tab.start(server)
    await page.click("role=tab[name=Ports]")
    async with page.context.expect_page() as opened:
        await page.click("role=button[name='Open preview']")
    preview = await opened.value
    await preview.wait_for_selector("text=hello from inside")
    assert not preview.url.startswith(tab.origin)
    assert await preview.evaluate("() => window.opener") is None


# --- the daemon ---


async def test_pages_of_the_daemon(tab: Tab) -> None:
    """Charts have their past after a reload; environments, projects, audit and doctor show what the
    daemon has."""
    page = tab.page
    await tab.open_session("shown", tab="run")
    await page.goto(f"{tab.origin}/#/overview")
    points = await until(
        lambda: page.get_attribute(".chart", "data-points"),
        lambda count: int(count or 0) >= 3,
        "points",
    )
    await page.reload()
    await until(
        lambda: page.get_attribute(".chart", "data-points") if points else None,
        lambda count: int(count or 0) >= int(points),
        "the past",
    )
    await page.goto(f"{tab.origin}/#/environments")
    await page.wait_for_selector(".entry >> text=default")
    await page.goto(f"{tab.origin}/#/audit")
    await page.wait_for_selector(".audit >> text=session.opened")
    await page.click("role=button[name=Verify]")
    await page.wait_for_selector("text=The chain is whole")
    await page.goto(f"{tab.origin}/#/doctor")
    await page.wait_for_selector("td >> text=in force")
    await create_project(tab, "p1")
    await page.set_input_files(
        "input[type=file]", files=[{"name": "f.csv", "mimeType": "text/csv", "buffer": b"a,b\n"}]
    )
    await page.wait_for_selector("td >> text=f.csv")


async def test_daemon_alone_has_no_page_of_a_cluster(tab: Tab) -> None:
    """It is not among the pages; who goes there by its address reads why."""
    page = tab.page
    await page.goto(f"{tab.origin}/#/cluster")
    await page.wait_for_selector(".empty >> text=This daemon is alone")
    await page.wait_for_selector("nav >> text=Data")
    assert "Cluster" not in await page.inner_text("nav")
    assert await page.query_selector("main button") is None


async def test_environment_is_built_with_progress(tab: Tab) -> None:
    """The page follows the steps of a build to its end; a session can then be started in it, and
    the image can be deleted. A build that fails says at which step."""
    page = tab.page
    await page.goto(f"{tab.origin}/#/environments")
    await page.evaluate(
        """() => {
          window.progress = [];
          new MutationObserver(() => {
            const bar = document.querySelector("progress[aria-label=Build]");
            if (bar) window.progress.push([bar.value, bar.parentElement.textContent]);
          }).observe(document.querySelector("main"), {
            subtree: true, childList: true, attributes: true, characterData: true,
          });
        }"""
    )
    broken = page.locator("li", has_text="broken")
    await broken.locator("button.entry").click()
    await broken.get_by_role("button", name="Build", exact=True).click()
    await broken.locator(".kept >> text=it lacks a part").wait_for()
    row = page.locator("li", has_text="greeting")
    await page.evaluate("() => { window.progress = []; }")
    await row.locator("button.entry >> text=not built").click()
    await row.get_by_role("button", name="Build", exact=True).click()
    await row.locator("progress").first.wait_for()
    await row.locator("button.entry >> text=ready").wait_for()
    seen = await page.evaluate("() => window.progress")
    parts = [part for part, _ in seen]
    assert parts == sorted(parts)
    assert len(set(parts)) > 1
    assert any(text.strip() for _, text in seen)
    await page.goto(f"{tab.origin}/#/sessions")
    await page.fill("[aria-label=Thread]", "built")
    await page.select_option("[aria-label=Environment]", "greeting")
    await page.click("role=button[name=Start]")
    await page.wait_for_selector(".head >> text=environment greeting")
    await page.click("role=tab[name=Run]")
    assert "exit 0" in await tab.run("grep -E '^[0-9a-f]{16}$' /etc/greeting")
    await page.click("role=button[name=Stop]")
    await page.click("dialog button.danger")
    await page.wait_for_selector(".head >> text=closed")
    await page.goto(f"{tab.origin}/#/environments")
    await row.locator("button.entry").click()
    await row.get_by_role("button", name="Delete image").click()
    await page.click("dialog button.danger")
    await row.locator("button.entry >> text=not built").wait_for()


async def test_data_page(tab: Tab) -> None:
    """Tables with their columns, a statement with its rows, a refusal in words, and a log of both;
    whole numbers and hostile values are shown as they are."""
    page = tab.page
    await page.goto(f"{tab.origin}/#/data")
    await page.click("aside summary >> text=users")
    await page.wait_for_selector("aside details[open] >> text=primary key")
    assert "secrets" not in await page.inner_text("aside")
    await page.click("aside details[open] >> text=Select from it")
    await page.click("role=button[name=Query]")
    await page.wait_for_selector(".exit >> text=100 rows")
    await page.wait_for_selector("td >> text='user 99'")
    await query(tab, "select 9007199254740993 as n, '<img src=x onerror=alert(1)>' as m, null as o")
    cells = await page.locator(".preview td").all_inner_texts()
    assert cells[:2] == ["9007199254740993", "<img src=x onerror=alert(1)>"]
    assert await page.query_selector(".preview img") is None
    await query(
        tab,
        "with recursive c(n) as (select 1 union all select n+1 from c limit 2000) select n from c",
    )
    await page.wait_for_selector(".exit >> text=There are more rows")
    await page.fill("[aria-label=Statement]", "delete from users")
    await page.keyboard.press("Control+Enter")
    await page.wait_for_selector(".notices .bad")
    await page.wait_for_selector(".history .bad >> text=not allowed")
    log = await page.inner_text(".history")
    assert "delete from users" in log
    assert log.count("a look at the tables") == 1


async def query(tab: Tab, sql: str) -> None:
    """Send a statement, and wait for its answer."""
    await tab.page.fill("[aria-label=Statement]", sql)
    await tab.page.click("role=button[name=Query]")
    await tab.page.wait_for_selector(f".history >> text={sql[:30]}")


async def test_data_page_of_postgresql(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Schemas, comments and references of tables; a write changes what the source allows."""
    directory = tmp_path_factory.mktemp("postgresql")
    with running_database(directory) as database:
        settings: dict[str, object] = {"engine": "postgresql", "writes": ["public.documents"]}
        for role, setting in (("reader", "dsn_file"), ("writer", "write_dsn_file")):
            file = directory / f"{role}.dsn"
            file.write_text(database.as_(role))
            file.chmod(0o600)
            settings[setting] = str(file)
        async with (
            running_daemon(
                SANDBOXD_CONSOLE_PORT=str(free_port()),
                SANDBOXD_DATA_SOURCES=json.dumps({"docs": settings}),
                POOL_SIZE="0",
            ) as daemon,
            opened_tab(browser, daemon) as tab,
        ):
            await tab.log_in()
            page = tab.page
            await page.click("nav >> text=Data")
            await page.click("aside summary >> text=public.documents")
            await page.wait_for_selector("aside details[open] >> text=What users wrote")
            await page.wait_for_selector("aside details[open] >> text=→ users.id")
            await query(tab, "update documents set processed = true where id = 7")
            await page.wait_for_selector(".exit >> text=1 row changed")
            await query(tab, "select id, processed from documents where id = 7")
            assert await page.locator(".preview td").all_inner_texts() == ["7", "true"]
            assert tab.complaints == []
        assert database.execute("SELECT processed FROM documents WHERE id = 7") == [(True,)]


async def test_many_streams_and_a_call_beside_them(
    tab: Tab, browser: Browser, daemon: DaemonProcess
) -> None:
    """Eight commands are followed over one socket of the browser, and a call beside them answers;
    the page itself goes on as well."""
    session_id = await tab.open_session("streams", tab="run")
    page = tab.page
    calls = [
        exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id=f"s{number}")
        for number in range(8)
    ]
    opened = [
        frame_of(number, "ExecService/AttachExec", call.SerializeToString())
        for number, call in enumerate(calls)
    ]
    async with daemon.api() as api:
        for number in range(8):
            request = exec_service_pb2.ExecRequest(
                session_id=session_id,
                exec_id=f"s{number}",
                shell="while sleep 0.1; do echo x; done",
            )
            await api.execs.StartExec(request, timeout=60)
    whoami = frame_of(8, "SessionService/WhoAmI", b"")
    key = await page.evaluate("() => sessionStorage.getItem('sandboxd.key')")
    hello = HEAD.pack(HELLO, 0) + key.encode()
    answered = await page.evaluate(
        """async (frames) => {
          const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
          const socket = new WebSocket(location.origin.replace("http", "ws") + "/socket");
          socket.binaryType = "arraybuffer";
          await new Promise((resolve) => (socket.onopen = resolve));
          const answered = new Set();
          const all = new Promise((resolve) => {
            socket.onmessage = ({ data }) => {
              const view = new DataView(data);
              if (view.getUint8(0) === 2) answered.add(view.getUint32(1));
              if (answered.size === 9) resolve();
            };
          });
          for (const frame of frames) socket.send(bytes(frame));
          await all;
          socket.close();
          return [...answered].sort();
        }""",
        [base64.b64encode(frame).decode() for frame in (hello, *opened, whoami)],
    )
    assert answered == list(range(9))
    assert "exit 0" in await tab.run("true")


def frame_of(number: int, method: str, message: bytes) -> bytes:
    """The first frame of a call."""
    path = f"/sandboxd.v1.{method}".encode()
    return HEAD.pack(OPEN, number) + PATH_SIZE.pack(len(path)) + path + message


async def test_open_page_does_not_keep_a_session(browser: Browser) -> None:
    """A tab that only shows files lets the session expire. Before the first one, the console says
    what to do next."""
    async with (
        running_daemon(
            SANDBOXD_CONSOLE_PORT=str(free_port()),
            SESSION_TIMEOUT_MINUTES=str(4 / 60),
            CLEANUP_INTERVAL_SECONDS="1",
        ) as daemon,
        opened_tab(browser, daemon) as tab,
    ):
        await tab.log_in()
        for place in ("overview", "sessions"):
            await tab.page.goto(f"{tab.origin}/#/{place}")
            await tab.page.wait_for_selector('.steps pre >> text=Sandbox.open("me", "first")')
            await tab.check_accessible(place)
        assert "sandboxd token create" in await tab.page.inner_text(".steps")
        await tab.page.click("role=button[name='Copy a link']")
        await tab.page.wait_for_selector(".notices >> text=Copied")
        await tab.open_session("idle", tab="run")
        await tab.page.wait_for_selector(".tree [data-path]")
        await tab.page.wait_for_selector(".head >> text=expired")
