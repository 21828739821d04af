"""Egress: what a sandbox reaches through its door, and everything that it does not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox, EgressNotAllowedError, InvalidRequestError
from sandboxd_proto.v1 import door_service_pb2, door_service_pb2_grpc
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.docker.web_site import SECRET, WebSite, web_site
from tests.ports import free_port
from tests.scale import SCALE

IMAGE = "sandboxd/test-fetching:latest"
BYPASS = Path(__file__).parent / "inside" / "bypass.py"
WAIT_SECONDS = 60

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WebSite]:
    async with web_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon(site: WebSite) -> AsyncIterator[DaemonProcess]:
    async with running_daemon(
        CONTAINER_IMAGE=IMAGE,
        POOL_SIZE="2",
        SANDBOXD_EGRESS_MB="64",
        SANDBOXD_ENVIRONMENTS=json.dumps(
            {"open": {"image": IMAGE, "egress": [f"allowed.test:{site.tls_port}"]}}
        ),
        **site.settings(),
    ) as daemon:
        yield daemon


@asynccontextmanager
async def sandbox(
    daemon: DaemonProcess, egress: Sequence[str] | None = None, **given: str
) -> AsyncIterator[AsyncSandbox]:
    url = f"unix:{daemon.socket}"
    async with await AsyncSandbox.create(server_url=url, egress=egress, **given) as made:
        yield made


async def said(made: AsyncSandbox, command: str, timeout: float = 60) -> str:
    result = await made.commands.run(command, timeout=timeout)
    return f"{result.stdout}{result.stderr}"


async def test_pip_and_git_work_through_the_door(daemon: DaemonProcess, site: WebSite) -> None:
    """Both speak TLS to servers with certificates of a private CA, end to end."""
    rules = [f"index.test:{site.tls_port}", f"git.test:{site.tls_port}"]
    async with sandbox(daemon, rules) as made:
        await made.files.write("ca.pem", site.ca_file.read_bytes())
        index = f"https://index.test:{site.tls_port}/simple/"
        pip = f"pip install -q --cert ca.pem --index-url {index} --target lib greeting"
        assert "hello from the index" in await said(
            made, f"{pip} && PYTHONPATH=lib python3 -c 'import greeting'"
        )
        repository = f"https://git.test:{site.tls_port}/repo.git"
        clone = f"GIT_SSL_CAINFO=$PWD/ca.pem git clone -q {repository}"
        assert "hello from git" in await said(made, f"{clone} && cat repo/README")
        egress = await made.egress.get()
        assert egress.connections >= 2
        assert egress.bytes_in > 1000
        assert not egress.denied


async def test_no_attempt_gets_past_the_rules(daemon: DaemonProcess, site: WebSite) -> None:
    """Every attempt is refused, those that the proxy judges are counted, and the victim gets no
    connection."""
    tls, plain, victim = site.tls_port, site.plain_port, site.victim_port
    names = ("inside", "mapped", "six", "translated", "meta", "private", "shared")
    rules = [
        f"allowed.test:{tls}",
        f"*.wide.test:{tls}",
        f"GET+POST plain.test:{plain}",
        *(f"{name}.test:{victim}" for name in names),
        "other.door",
        "site.door",
    ]
    async with sandbox(daemon, rules) as made:
        await made.files.write("bypass.py", BYPASS.read_bytes())
        result = await made.commands.run(f"python3 bypass.py {tls} {plain} {victim}", timeout=300)
        report = json.loads(result.stdout or result.stderr)
        reached = {
            name: outcome
            for name, outcome in report["outcomes"].items()
            if not outcome.startswith("refused")
        }
        assert not reached
        assert len(report["outcomes"]) > 120
        assert site.victims == 0
        egress = await made.egress.get()
        assert sum(egress.denied.values()) == report["judged"]
        assert {"host", "port", "method", "address", "name", "protocol"} <= set(egress.denied)


async def test_a_denial_says_which_rule_and_what_to_do(
    daemon: DaemonProcess, site: WebSite
) -> None:
    """In the answer, where programs show it; in GetEgress; and in the audit log."""
    async with sandbox(daemon, ["example.com"]) as made:
        text = await said(made, "curl -s http://evil.example.org/")
        assert "the host evil.example.org is not on the list of this session (example.com)" in text
        assert "sandboxd egress set" in text
        pip = "pip install --target lib --retries 1 --index-url https://evil.example.org/simple x"
        assert "evil.example.org is not on the list" in await said(made, pip)
        denial = (await made.egress.get()).recent_denials[0]
        assert (denial.rule, denial.host, denial.port) == ("host", "evil.example.org", 80)
        audit = (daemon.directory / "state" / "audit").glob("*")
        lines = "".join(file.read_text() for file in audit if file.is_file())
        assert '"egress.denied"' in lines
        assert "evil.example.org" in lines


async def test_a_session_without_rules_has_no_door(daemon: DaemonProcess) -> None:
    """Neither a listener nor variables."""
    async with sandbox(daemon) as made:
        assert await said(made, "env | grep -i proxy; cat /proc/net/tcp | grep -c :0C38") == "0\n"
        assert await said(made, "curl -sS --max-time 5 http://example.com/ | head -c 1") != ""
        assert (await made.egress.get()).proxy_url == ""
        assert not await made.ports.list()


async def test_rules_change_while_the_session_runs(daemon: DaemonProcess, site: WebSite) -> None:
    """A door opens, its rules change, a connection that is no longer allowed ends, it closes."""
    address = f"http://plain.test:{site.plain_port}"
    async with sandbox(daemon) as made:
        info = await made.egress.set([f"plain.test:{site.plain_port}"])
        assert info.proxy_url == "http://127.0.0.1:3128"
        assert '"path": "/echo"' in await said(made, f"curl -s {address}/echo")
        slow = await made.commands.run(
            f"curl -s {address}/slow; echo ended", background=True, timeout=300
        )
        async with asyncio.timeout(WAIT_SECONDS):
            while (await made.egress.get()).bytes_in < 500:
                await asyncio.sleep(0.05)
        await made.egress.set(["example.com"])
        assert "ended" in (await slow.wait()).stdout[-20:]
        assert "not on the list" in await said(made, f"curl -s {address}/echo")
        await made.egress.set([])
        assert await said(made, "env | grep -i proxy") == ""
        assert not (await made.egress.get()).rules


async def test_rules_of_an_environment_and_of_a_caller(
    daemon: DaemonProcess, site: WebSite
) -> None:
    """Sessions of an environment have its rules; bad rules are refused."""
    async with sandbox(daemon, environment="open") as made:
        assert (await made.egress.get()).rules == (f"allowed.test:{site.tls_port}",)
        curl = f"curl -s --cacert ca.pem https://allowed.test:{site.tls_port}/echo"
        await made.files.write("ca.pem", site.ca_file.read_bytes())
        assert '"path": "/echo"' in await said(made, curl)
    for rule in ("http://example.com", "*", "a b c", "example.com:0", "*.com", "[::1%lo]:1"):
        if rule != "*":
            with pytest.raises(InvalidRequestError):
                async with sandbox(daemon, [rule]):
                    pass


async def test_bytes_of_a_session_are_limited(daemon: DaemonProcess, site: WebSite) -> None:
    """A download beyond the limit is cut, and the next request is refused."""
    async with sandbox(daemon, [f"plain.test:{site.plain_port}"]) as made:
        address = f"http://plain.test:{site.plain_port}"
        await said(made, f"curl -s -o /dev/null {address}/big?megabytes=100", timeout=120)
        egress = await made.egress.get()
        assert egress.bytes_in <= (64 << 20) + (1 << 20)
        assert egress.denied == {"limit": 1}
        assert "as many bytes as it may" in await said(made, f"curl -s {address}/echo")


async def test_an_upstream_gets_the_secret_and_the_sandbox_does_not(
    daemon: DaemonProcess, site: WebSite
) -> None:
    """The daemon adds it, also against a header of the client, and stars out what a server
    repeats. It is in no log."""
    async with sandbox(daemon, ["site.door"]) as made:
        site.seen.clear()
        text = await said(made, "curl -si -H 'Authorization: mine' http://site.door/hello?x=1")
        assert site.seen[0]["Authorization"] == f"Bearer {SECRET}"
        assert '"path": "/api/hello?x=1"' in text
        assert SECRET not in text
        assert "X-Repeated: *" in text
        body = await said(made, "seq 1000 | curl -s -T - http://site.door/put")
        assert "1000\\n" in body
        assert SECRET not in await said(made, "env; cat /proc/*/environ 2>/dev/null")
        status = await said(
            made,
            "for i in $(seq 30); do curl -so /dev/null -w '%{http_code} ' http://site.door/; done",
        )
        assert "429" in status
        assert "200" in status
    logs = [daemon.log, *(daemon.directory / "state" / "audit").glob("*")]
    assert not any(SECRET in file.read_text() for file in logs if file.is_file())


async def test_a_path_that_leads_up_does_not_reach_the_upstream(
    daemon: DaemonProcess, site: WebSite
) -> None:
    async with sandbox(daemon, ["site.door"]) as made:
        site.seen.clear()
        text = await said(made, "curl -si http://site.door/../echo --path-as-is")
        assert "the path leads up" in text
        assert site.seen == []


async def test_a_redirect_within_an_upstream_leads_to_its_door(
    daemon: DaemonProcess, site: WebSite
) -> None:
    """The client gets the redirect, the daemon follows none, and who follows it comes to the same
    upstream, with the secret."""
    own = f"https://upstream.test:{site.tls_port}/api/there?x=1"
    async with sandbox(daemon, ["site.door"]) as made:
        for to in (own, "/api/there?x=1", "there?x=1"):
            site.seen.clear()
            text = await said(made, f"curl -si 'http://site.door/redirect?to={quote(to, safe='')}'")
            assert text.startswith("HTTP/1.1 307 ")
            assert "\nLocation: http://site.door/there?x=1\r" in text
            assert "\nLink: <http://site.door/there?x=1>; rel=next\r" in text
            assert len(site.seen) == 1
        followed = await said(
            made, f"curl -sL 'http://site.door/redirect?to={quote(own, safe='')}'"
        )
        assert '"path": "/api/there?x=1"' in followed
        assert site.seen[-1]["Authorization"] == f"Bearer {SECRET}"
        assert SECRET not in followed


async def test_a_redirect_out_of_an_upstream_goes_through_the_rules_without_the_secret(
    daemon: DaemonProcess, site: WebSite
) -> None:
    """Also if the upstream is hostile, and puts the secret into the address, or points to this
    host, to a metadata server, to its own host outside of its path or to the same without TLS."""
    plain, victim = f"plain.test:{site.plain_port}", site.victim_port
    rules = ["site.door", plain, f"inside.test:{victim}", f"meta.test:{victim}", "169.254.169.254"]
    async with sandbox(daemon, rules) as made:

        async def followed(to: str) -> str:
            place = f"http://site.door/redirect?to={quote(to, safe='')}"
            return await said(made, f"curl -siL --noproxy '' --max-time 30 '{place}'")

        site.seen.clear()
        text = await followed(f"http://{plain}/echo?token=SECRET&more=Bearer%20SECRET")
        stars = "*" * len(SECRET)
        assert f'"path": "/echo?token={stars}&more=*********{stars}"' in text
        assert [SECRET in str(headers) for headers in site.seen] == [True, False]
        assert SECRET not in text
        for to, why in (
            (f"http://inside.test:{victim}/", "is not a public address"),
            (f"http://meta.test:{victim}/", "is not a public address"),
            ("http://169.254.169.254/latest/meta-data/", "is not a public address"),
            (f"http://127.0.0.1:{victim}/", "is not on the list"),
            (f"//evil.test:{victim}/SECRET", "is not on the list"),
            ("/echo", "is not on the list"),
            (f"http://upstream.test:{site.plain_port}/api/there", "is not on the list"),
            ("https://upstream.test.evil.test/api/there", "is not on the list"),
        ):
            site.seen.clear()
            text = await followed(to)
            assert "HTTP/1.1 307 " in text
            assert why in text, to
            assert SECRET not in text
            assert len(site.seen) == 1
        assert site.victims == 0
    logs = [daemon.log, *(daemon.directory / "state" / "audit").glob("*")]
    assert not any(SECRET in file.read_text() for file in logs if file.is_file())


async def test_a_token_asks_only_for_what_it_may(site: WebSite, tmp_path: Path) -> None:
    """What the operator allows everyone, and what the token's line adds; nothing beyond."""
    from sandboxd.access.token_file import hash_of, new_token

    token = new_token()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ada user:ada sha256:{hash_of(token)} egress=mine.example.com\n")
    tokens.chmod(0o600)
    async with running_daemon(
        **site.settings(),
        SANDBOXD_TOKENS_FILE=str(tokens),
        HOST="127.0.0.1",
        PORT=str(port := free_port()),
        POOL_SIZE="1",
    ):
        url = f"127.0.0.1:{port}"

        async def opened(thread: str, rules: Sequence[str]) -> AsyncSandbox:
            return await AsyncSandbox.open("ada", thread, server_url=url, token=token, egress=rules)

        allowed = [f"b.wide.test:{site.tls_port}", "mine.example.com"]
        async with await opened("one", allowed) as made:
            assert (await made.egress.get()).rules == tuple(sorted(allowed))
            with pytest.raises(EgressNotAllowedError, match="other"):
                await made.egress.set(["other.example.com"])
        for rule in ("*", "wide.test", f"*.wide.test:{site.tls_port + 1}", "site.door"):
            with pytest.raises(EgressNotAllowedError):
                await opened("two", [rule])


TRANSITIONS = """
import socket, time
last = None
while True:
    try:
        socket.create_connection(("127.0.0.1", 3128), 5).close()
        now = "open"
    except OSError:
        now = "closed"
    if now != last:
        with open("states", "a") as file:
            file.write(now + " ")
        last = now
    time.sleep(0.02)
"""


def _port_is_taken() -> bool:
    """Whether a command of ours listens on the proxy's port, as the host sees it."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"--bind\x00127.0.0.1\x003128" in (process / "cmdline").read_bytes():
                table = (process / "net" / "tcp").read_text().splitlines()
                uid = process.stat().st_uid
                if any(":0C38" in line and " 0A " in line and f" {uid} " in line for line in table):
                    return True
        except OSError:
            continue
    return False


async def test_doors_survive_the_death_of_the_daemon(site: WebSite) -> None:
    """They are closed while there is none, open again after adoption, with the changed rules; and
    one whose port a command took meanwhile is missing in that session only."""
    async with running_daemon(CONTAINER_IMAGE=IMAGE, **site.settings()) as daemon:
        url = f"unix:{daemon.socket}"
        rules = [f"plain.test:{site.plain_port}"]
        curl = f"curl -s http://plain.test:{site.plain_port}/echo"
        one = await AsyncSandbox.open("ada", "one", server_url=url, egress=["example.com"])
        two = await AsyncSandbox.open("ada", "two", server_url=url, egress=rules)
        await one.egress.set(rules)
        await one.files.write("watch.py", TRANSITIONS)
        watch = await one.commands.run("python3 watch.py", background=True, timeout=600)
        taker = await two.commands.run(
            "until python3 -m http.server --bind 127.0.0.1 3128 2>/dev/null; do sleep 0.05; done",
            background=True,
            timeout=600,
        )
        async with asyncio.timeout(WAIT_SECONDS):
            while not await one.files.exists("states"):
                await asyncio.sleep(0.05)
        await daemon.signal(signal.SIGKILL)
        async with asyncio.timeout(WAIT_SECONDS):
            while not _port_is_taken():
                await asyncio.sleep(0.05)
        await daemon.start()
        async with asyncio.timeout(WAIT_SECONDS):
            while (await one.files.read("states")).split() != ["open", "closed", "open"]:
                await asyncio.sleep(0.1)
        assert '"path": "/echo"' in await said(one, curl)
        problem = (await two.egress.get()).problem
        assert "has taken 127.0.0.1:3128" in problem
        async with daemon.api() as api:
            stub = door_service_pb2_grpc.DoorServiceStub(api.channel)
            listed = await stub.ListDoors(
                door_service_pb2.ListDoorsRequest(session_id=two.session_id)
            )
            assert [(door.name, door.address) for door in listed.doors] == [("egress", "")]
        await taker.kill()
        await watch.kill()
        for made in (one, two):
            await made.kill()
            await made.aclose()


async def test_doors_leave_no_descriptors(daemon: DaemonProcess, site: WebSite) -> None:
    """The daemon has as many open files after many sessions with doors as before."""
    rules = [f"plain.test:{site.plain_port}"]

    async def once() -> None:
        async with sandbox(daemon, rules) as made:
            await made.commands.run(f"curl -s http://plain.test:{site.plain_port}/echo")

    async def many(count: int) -> None:
        for _ in range(0, count, 4):
            await asyncio.gather(*(once() for _ in range(4)))

    def sockets() -> int:
        """Sockets of sandboxes: the pool may be of any size, and a link is one socket each."""
        directory = Path(f"/proc/{daemon.pid}/fd")
        found = 0
        for file in directory.iterdir():
            try:
                found += os.readlink(file).startswith("socket:")
            except OSError:
                continue
        return found

    await many(4)
    await daemon.wait_until_warm()
    before = sockets()
    await many(max(8, int(24 * SCALE)))
    async with asyncio.timeout(WAIT_SECONDS):
        while sockets() > before:
            await daemon.wait_until_warm()
            await asyncio.sleep(0.1)
