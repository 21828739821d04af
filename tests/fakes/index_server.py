"""What package indexes of all kinds have in common: a server on a port of this machine."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self
from urllib.parse import unquote

ENDLESS_CHUNK = bytes(1 << 16)


class Answer(NamedTuple):
    body: bytes
    content_type: str


class IndexServer:
    """Answers whoever has the credentials, if it has any. `endless` names files whose download
    never ends, `announced` the sizes of files that it lies about."""

    def __init__(self, credentials: str = "") -> None:
        """With `USER:PASSWORD`, or nothing."""
        self.credentials = credentials
        self.endless: set[str] = set()
        self.announced: dict[str, int] = {}
        self.requests: Counter[str] = Counter()
        """How often each path was asked for."""
        self._server = _Server(self)

    def answer(self, path: str) -> Answer | None:
        """What is at a path; None if nothing is."""
        raise NotImplementedError

    @property
    def root(self) -> str:
        """Its address with its credentials."""
        before = f"{self.credentials}@" if self.credentials else ""
        return f"http://{before}127.0.0.1:{self._server.server_port}"

    def is_known(self, authorization: str) -> bool:
        pair = base64.b64encode(self.credentials.encode()).decode()
        return not self.credentials or authorization == f"Basic {pair}"

    @contextmanager
    def serving(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, index: IndexServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.index = index


class _Handler(BaseHTTPRequestHandler):
    @property
    def _index(self) -> IndexServer:
        assert isinstance(self.server, _Server)
        return self.server.index

    def do_GET(self) -> None:
        index = self._index
        index.requests[self.path] += 1
        if not index.is_known(self.headers.get("Authorization", "")):
            self._send(None, status=401)
            return
        path = unquote(self.path)
        if path.rpartition("/")[2] in index.endless:
            self._send_for_ever()
        else:
            self._send(index.answer(path))

    def _send(self, answer: Answer | None, *, status: int = 404) -> None:
        body = answer.body if answer else b""
        length = self._index.announced.get(self.path.rpartition("/")[2], len(body))
        self.send_response(200 if answer else status)
        self.send_header("WWW-Authenticate", "Basic")
        self.send_header("Content-Type", answer.content_type if answer else "text/plain")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def _send_for_ever(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(ENDLESS_CHUNK)
        except OSError:
            pass  # nobody listens any more

    def log_message(self, *_: object) -> None: ...
