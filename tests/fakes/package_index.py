"""A package index on a port of this machine, with whatever packages a test wants."""

from __future__ import annotations

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
    """Serves the simple API in its JSON form. `on_missing` may make a package when it is asked
    for; `endless` names files whose download never ends."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, WheelFile]] = {}
        self.on_missing: Callable[[str], WheelFile | None] = lambda _: None
        self.endless: set[str] = set()
        self.requests: Counter[str] = Counter()
        """How often each path was asked for."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/simple"

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

    def _page(self, name: str) -> bytes | None:
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

    def _handler(index) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requests[self.path] += 1
                kind, name, *rest = unquote(self.path).strip("/").split("/")
                if kind == "simple":
                    self._send(index._page(name), "application/vnd.pypi.simple.v1+json")
                elif rest[0].endswith(".metadata"):
                    described = index._files[name][rest[0].removesuffix(".metadata")]
                    self._send(described.metadata, "text/plain")
                elif rest[0] in index.endless:
                    self._send_for_ever()
                else:
                    file = index._files.get(name, {}).get(rest[0])
                    self._send(file.data if file else None, "application/octet-stream")

            def _send(self, body: bytes | None, kind: str) -> None:
                self.send_response(200 if body is not None else 404)
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

        return Handler
