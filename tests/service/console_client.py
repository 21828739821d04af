"""A page of the console, without a browser."""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import aiohttp
from google.protobuf.message import Message
from google.rpc import status_pb2

from sandboxd.console import socket as frames
from sandboxd.console.bodies import FIRST

SECONDS = aiohttp.ClientTimeout(60)
Answer = TypeVar("Answer", bound=Message)


class Refused(Exception):
    """A call ended with this status."""

    def __init__(self, status: bytes) -> None:
        self.status = status_pb2.Status.FromString(status)
        super().__init__(self.status.message)


class Browser:
    """Requests of a browser to one console."""

    def __init__(
        self, port: int, *, address: str = "http://127.0.0.1", tls: ssl.SSLContext | None = None
    ) -> None:
        self.port = port
        self.origin = f"{address}:{port}"
        self._tls = tls or True
        self._pages: list[Page] = []
        self.key = ""

    async def __aenter__(self) -> Browser:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self._session = aiohttp.ClientSession(self.origin, timeout=SECONDS, connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for page in self._pages:
            await page.socket.close()
        await self._session.close()

    async def request(
        self, method: str, path: str, **options: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        headers |= options.pop("headers", {})
        async with self._session.request(method, path, headers=headers, **options) as answer:
            return answer.status, answer.headers, await answer.read()

    async def log_in(self, **given: str) -> int:
        """With `code` or `token`; returns the HTTP status."""
        async with self._session.post("/login", json=given) as answer:
            if answer.status == 200:
                self.key = (await answer.json())["key"]
            return answer.status

    async def follow(self, link: str) -> int:
        return await self.log_in(code=link.partition("#code=")[2])

    async def open(self, *, says_hello: bool = True, **headers: str | None) -> Page:
        """A header that is None is not sent."""
        headers.setdefault("Origin", self.origin)
        sent = {name: value for name, value in headers.items() if value is not None}
        page = Page(await self._session.ws_connect("/socket", headers=sent, max_msg_size=0))
        self._pages.append(page)
        if says_hello:
            await page.socket.send_bytes(frames.HEAD.pack(frames.HELLO, 0) + self.key.encode())
        return page

    async def upload(self, path: str, header: Message, data: bytes) -> tuple[int, bytes]:
        first = base64.b64encode(header.SerializeToString()).decode()
        status, _, body = await self.request(
            "PUT", f"/upload/{path}", data=io.BytesIO(data), headers={FIRST: first}
        )
        return status, body

    async def ticket(self, path: str, request: Message, name: str = "f") -> str:
        status, _, body = await self.request(
            "POST", f"/ticket/{path}?name={name}", data=request.SerializeToString()
        )
        assert status == 200, body
        return body.decode().split('"')[3]


class Page:
    """The socket of a page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self._last = 0
        self.taken = 0

    async def send(self, kind: int, number: int, rest: bytes = b"") -> None:
        await self.socket.send_bytes(frames.HEAD.pack(kind, number) + rest)

    async def begin(self, path: str, request: Message, kind: int = frames.OPEN) -> int:
        self._last += 1
        name = f"/sandboxd.v1.{path}".encode()
        message = request.SerializeToString()
        await self.send(kind, self._last, frames.PATH_SIZE.pack(len(name)) + name + message)
        return self._last

    async def frame(self) -> tuple[int, int, bytes]:
        """The next frame; ConnectionError with the close code if there is none."""
        async with asyncio.timeout(60):
            received = await self.socket.receive()
        if received.type is not aiohttp.WSMsgType.BINARY:
            raise ConnectionError(self.socket.close_code)
        kind, number = frames.HEAD.unpack_from(received.data)
        return kind, number, received.data[frames.HEAD.size :]

    async def messages(
        self, number: int, answer: type[Answer], *, takes: bool = True
    ) -> AsyncIterator[Answer]:
        """The answers of one call, while no other is under way."""
        pieces = b""
        while True:
            kind, of_call, rest = await self.frame()
            if kind == frames.HELLO or of_call != number:
                continue
            if kind == frames.END:
                if rest:
                    raise Refused(rest)
                return
            self.taken += len(rest)
            if takes:
                await self.send(frames.CREDIT, number, frames.AMOUNT.pack(len(rest)))
            pieces += rest
            if kind == frames.MESSAGE:
                yield answer.FromString(pieces)
                pieces = b""

    async def call(self, path: str, request: Message, answer: type[Answer]) -> Answer:
        (got,) = [
            message async for message in self.messages(await self.begin(path, request), answer)
        ]
        return got
