"""A package index on a port of this machine, with whatever packages a test wants."""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.fakes.wheels import WheelFile

ENDLESS_CHUNK = bytes(1 << 16)


class PackageIndex:
    """Serves the simple API in its JSON form, to whoever has the credentials, if it has any.
    `on_missing` may make a package when it is asked for; `endless` names files whose download never
    ends."""

    def __init__(self, credentials: str = "") -> None:
        """With `USER:PASSWORD`, or nothing."""
        self._credentials = credentials
        self._files: dict[str, dict[str, WheelFile]] = {}
        self.on_missing: Callable[[str], WheelFile | None] = lambda _: None
        self.endless: set[str] = set()
        self.requests: Counter[str] = Counter()
        """How often each path was asked for."""
        self._server = _Server(self)

    @property
    def url(self) -> str:
        before = f"{self._credentials}@" if self._credentials else ""
        return f"http://{before}127.0.0.1:{self._server.server_port}/simple"

    def is_known(self, authorization: str) -> bool:
        pair = base64.b64encode(self._credentials.encode()).decode()
        return not self._credentials or authorization == f"Basic {pair}"

    def add(self, *files: WheelFile) -> None:
        for file in files:
            name = file.file_name.split("-")[0].replace("_", "-").lower()
            self._files.setdefault(name, {})[file.file_name] = file

    @contextmanager
    def serving(self) -> Iterator[PackageIndex]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def file(self, name: str, file_name: str) -> WheelFile | None:
        return self._files.get(name, {}).get(file_name)

    def page(self, name: str) -> bytes | None:
        """What it says about a package; None if it has none of this name."""
        if name not in self._files and (made := self.on_missing(name)) is not None:
            self.add(made)
        if name not in self._files:
            return None
        files = [
            {
                "filename": file.file_name,
                "url": f"/files/{name}/{file.file_name}",
                "hashes": {"sha256": file.sha256},
                "core-metadata": bool(file.metadata),
            }
            for file in self._files[name].values()
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": files}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, index: PackageIndex) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.index = index


class _Handler(BaseHTTPRequestHandler):
    @property
    def _index(self) -> PackageIndex:
        assert isinstance(self.server, _Server)
        return self.server.index

    def do_GET(self) -> None:
        index = self._index
        index.requests[self.path] += 1
        if not index.is_known(self.headers.get("Authorization", "")):
            self._send(None, "text/plain", status=401)
            return
        kind, name, *rest = unquote(self.path).strip("/").split("/")
        if kind == "simple":
            self._send(index.page(name), "application/vnd.pypi.simple.v1+json")
            return
        file = index.file(name, rest[0].removesuffix(".metadata"))
        if rest[0].endswith(".metadata"):
            self._send(file.metadata if file else None, "text/plain")
        elif rest[0] in index.endless:
            self._send_for_ever()
        else:
            self._send(file.data if file else None, "application/octet-stream")

    def _send(self, body: bytes | None, kind: str, *, status: int = 404) -> None:
        self.send_response(status if body is None else 200)
        self.send_header("WWW-Authenticate", "Basic")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def _send_for_ever(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(ENDLESS_CHUNK)
        except OSError:
            pass  # nobody listens any more

    def log_message(self, *_: object) -> None: ...
