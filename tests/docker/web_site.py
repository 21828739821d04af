"""Servers on loopback that sandboxes are to reach, or not: a site with TLS and without, and a
victim that no attempt may reach."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import shutil
import ssl
import subprocess
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from aiohttp import web

NAMES = ("allowed.test", "a.wide.test", "plain.test", "index.test", "git.test", "upstream.test")
VICTIM = b"VICTIM"
SECRET = "s3cret-of-the-operator-4711"


@dataclass
class WebSite:
    """What a test needs to know of the servers."""

    directory: Path
    tls_port: int = 0
    plain_port: int = 0
    victim_port: int = 0
    victims: int = 0
    """Connections that the victim got."""
    seen: list[dict[str, str]] = field(default_factory=list)
    """Headers of the requests that the site got."""

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def secret_file(self) -> Path:
        return self.directory / "secret"

    async def echo(self, request: web.Request) -> web.Response:
        """Repeat the request, its secrets included."""
        headers = dict(request.headers)
        self.seen.append(headers)
        body = await request.read()
        said = {"path": request.path_qs, "headers": headers, "body": body.decode("latin-1")}
        return web.json_response(said, headers={"X-Repeated": headers.get("Authorization", "")})

    async def redirect(self, request: web.Request) -> web.Response:
        """Redirect to what the query says, with the secret in it if it is asked for."""
        self.seen.append(dict(request.headers))
        secret = request.headers.get("Authorization", "").removeprefix("Bearer ")
        to = request.query["to"].replace("SECRET", secret)
        return web.Response(status=307, headers={"Location": to, "Link": f"<{to}>; rel=next"})

    async def index(self, request: web.Request) -> web.FileResponse:
        return web.FileResponse(self.directory / "files" / "simple" / "greeting" / "index.html")

    def settings(self) -> dict[str, str]:
        """Of a daemon that may reach the site, and nothing else on this host."""
        fixed = [f"{name}=127.0.0.1" for name in (*NAMES, "inside.test", "victim.test")]
        fixed += ["meta.test=169.254.169.254", "private.test=10.0.0.1", "shared.test=100.64.0.1"]
        fixed += ["mapped.test=::ffff:127.0.0.1", "six.test=::1", "translated.test=64:ff9b::7f00:1"]
        upstream = {
            "url": f"https://upstream.test:{self.tls_port}/api",
            "secret_file": str(self.secret_file),
            "ca_file": str(self.ca_file),
            "requests_per_minute": 20,
        }
        return {
            "SANDBOXD_EGRESS_HOSTS": ",".join(fixed),
            "SANDBOXD_EGRESS_PRIVATE": f"127.0.0.1:{self.tls_port},127.0.0.1:{self.plain_port}",
            "SANDBOXD_EGRESS_ALLOW": f"*.wide.test:{self.tls_port}",
            "SANDBOXD_UPSTREAMS": json.dumps({"site": upstream}),
        }


@asynccontextmanager
async def web_site(directory: Path) -> AsyncIterator[WebSite]:
    site = WebSite(directory)
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(site.ca_file))
    site.secret_file.write_text(SECRET + "\n")
    _make_index(directory / "files")
    _make_repository(directory / "files")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(*NAMES).configure_cert(context)
    application = web.Application(client_max_size=64 << 20)
    for path in ("/redirect", "/api/redirect"):
        application.router.add_route("*", path, site.redirect)
    application.router.add_route("*", "/api/{rest:.*}", site.echo)
    application.router.add_route("*", "/echo", site.echo)
    application.router.add_get("/big", _big)
    application.router.add_get("/slow", _slow)
    application.router.add_get("/simple/greeting/", site.index)
    application.router.add_static("/", directory / "files")
    runner = web.AppRunner(application, access_log=None, handle_signals=False)
    await runner.setup()
    victim = await asyncio.start_server(lambda *pair: _victim(site, *pair), "127.0.0.1", 0)
    try:
        for tls in (context, None):
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        site.tls_port, site.plain_port = (address[1] for address in runner.addresses)
        site.victim_port = victim.sockets[0].getsockname()[1]
        yield site
    finally:
        victim.close()
        await runner.cleanup()


async def _big(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(int(request.query.get("megabytes", "1"))):
        await response.write(bytes(1 << 20))
    return response


async def _slow(request: web.Request) -> web.StreamResponse:
    """Says something ten times a second, until the client goes."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"still here\n")
        await asyncio.sleep(0.1)


async def _victim(
    site: WebSite, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    site.victims += 1
    writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + VICTIM)
    writer.close()


def _make_index(files: Path) -> None:
    """An index of one package, as pip reads it."""
    place = files / "simple" / "greeting"
    place.mkdir(parents=True)
    wheel = io.BytesIO()
    info = "greeting-1.0.dist-info"
    contents = {
        "greeting.py": "print('hello from the index')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    name = "greeting-1.0-py3-none-any.whl"
    (place / name).write_bytes(wheel.getvalue())
    digest = hashlib.sha256(wheel.getvalue()).hexdigest()
    (place / "index.html").write_text(f'<a href="{name}#sha256={digest}">{name}</a>')


def _make_repository(files: Path) -> None:
    """A repository that a static server can serve."""
    work, bare = files / "work", files / "repo.git"
    work.mkdir()
    (work / "README").write_text("hello from git\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (
        ["init", "-q", "-b", "main", "."],
        ["add", "README"],
        [*identity, "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", "-C", str(work), *command], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(bare)], check=True)
    subprocess.run(["git", "-C", str(bare), "update-server-info"], check=True)
    shutil.rmtree(work)
