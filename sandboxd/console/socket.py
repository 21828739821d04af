"""The socket of a page: all of its calls, over one WebSocket.

Binary frames: kind (u8), number of the call (u32, chosen by the page), rest. Big-endian.

    0 HELLO       page; first frame: the key of the login
    1 OPEN        page; u16 size of the path, `/sandboxd.v1.Service/Method`, first message
    2 MESSAGE     both; a message, or its last piece
    3 HALF_CLOSE  page; no more messages
    4 CANCEL      page; the call is of no more interest
    5 CREDIT      page; u32: bytes that it has taken
    6 END         daemon; nothing if all is well, else a google.rpc.Status
    7 PIECE       daemon; a piece of a message, of which more follows
    8 PASSIVE     page; like OPEN, for a read that is no use of its session

A call may send INITIAL_CREDIT bytes that the page has not taken. So a page that stops reading stops
the command that writes, and one call does not hold up another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from struct import Struct

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from sandboxd.access import Caller
from sandboxd.access.shares import NoPlace
from sandboxd.service.in_process import CallRefused, Conversation, InProcessCalls, NoSuchMethod

log = structlog.get_logger()

HELLO, OPEN, MESSAGE, HALF_CLOSE, CANCEL, CREDIT, END, PIECE, PASSIVE = range(9)
HEAD = Struct("!BI")
PATH_SIZE = Struct("!H")
AMOUNT = Struct("!I")
INITIAL_CREDIT = 1 << 20
MAX_CREDIT = 16 << 20
MAX_FRAME_IN = 4 << 20
MAX_FRAME_OUT = 256 << 10
MAX_CALLS = 64
HELLO_SECONDS = 5.0
HEARTBEAT_SECONDS = 20.0
SEND_SECONDS = 60.0
"""How long a page may take nothing at all before its socket is closed."""
UNAUTHENTICATED = 4401
"""Close code for a key that is not valid."""
PROTOCOL_ERROR = 4400
PASSIVE_METADATA = (("sandboxd-passive", "1"),)


class BadFrame(Exception):
    """The page does not keep to the protocol; the text says where."""


class PageSocket:
    """Serves one page."""

    def __init__(
        self,
        calls: InProcessCalls,
        find_caller: Callable[[str], Caller | None],
        peer: str,
        admit: Callable[[Caller], AbstractContextManager[None]],
    ) -> None:
        """`admit` gives the page of a caller its place, or raises NoPlace."""
        self._calls = calls
        self._find_caller = find_caller
        self.peer = peer
        self._socket = web.WebSocketResponse(
            heartbeat=HEARTBEAT_SECONDS, max_msg_size=MAX_FRAME_IN, compress=False
        )
        self._admit = admit
        self._place = ExitStack()
        self.key = ""
        """Of its login, once it has said which."""
        self._running: dict[int, _Call] = {}
        self._transport: asyncio.Transport | None = None

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        self._transport = request.transport
        await self._socket.prepare(request)
        try:
            if await self._greet():
                async for frame in self._socket:
                    if frame.type is not WSMsgType.BINARY:
                        raise BadFrame("frames are binary")
                    await self._take(frame.data)
        except BadFrame as error:
            await self._socket.close(code=PROTOCOL_ERROR, message=str(error).encode())
        finally:
            self._place.close()
            await self._end_all()
        return self._socket

    def abort(self) -> None:
        """Without a word: it has not said who it is."""
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """The daemon stops: the page connects again."""
        await self._socket.close(code=WSCloseCode.GOING_AWAY, message=b"the daemon stops")

    async def _greet(self) -> bool:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                first = await self._socket.receive()
        except TimeoutError:
            first = None
        if first is not None and first.type is WSMsgType.BINARY:
            kind, _ = _head(first.data)
            if kind == HELLO:
                self.key = first.data[HEAD.size :].decode(errors="replace")
                caller = self._find_caller(self.key)
                if caller is not None:
                    return await self._take_place(caller)
        await self._socket.close(code=UNAUTHENTICATED, message=b"log in again")
        return False

    async def _take_place(self, caller: Caller) -> bool:
        try:
            self._place.enter_context(self._admit(caller))
        except NoPlace as error:  # the page connects again after a while
            await self._socket.close(code=WSCloseCode.TRY_AGAIN_LATER, message=str(error).encode())
            return False
        await self._socket.send_bytes(HEAD.pack(HELLO, 0))
        return True

    async def _take(self, frame: bytes) -> None:
        kind, number = _head(frame)
        rest = frame[HEAD.size :]
        if kind in (OPEN, PASSIVE):
            await self._open(number, rest, is_passive=kind == PASSIVE)
            return
        call = self._running.get(number)
        if call is None:
            return  # it has ended, and the page does not know yet
        if kind == MESSAGE:
            await call.conversation.put(rest)
        elif kind == HALF_CLOSE:
            await call.conversation.put(None)
        elif kind == CANCEL:
            call.task.cancel()
        elif kind == CREDIT:
            call.grant(_unpack(AMOUNT, rest))
        else:
            raise BadFrame(f"a page does not send frames of kind {kind}")

    async def _open(self, number: int, rest: bytes, *, is_passive: bool) -> None:
        if number in self._running:
            raise BadFrame(f"call {number} is under way")
        if len(self._running) >= MAX_CALLS:
            raise BadFrame(f"more than {MAX_CALLS} calls are under way")
        caller = self._find_caller(self.key)
        if caller is None:  # the token was withdrawn
            await self._socket.close(code=UNAUTHENTICATED, message=b"log in again")
            return
        size = _unpack(PATH_SIZE, rest[: PATH_SIZE.size])
        path = rest[PATH_SIZE.size : PATH_SIZE.size + size].decode(errors="replace")
        metadata = PASSIVE_METADATA if is_passive else ()
        try:
            conversation = self._calls.begin(path, caller, peer=self.peer, metadata=metadata)
        except NoSuchMethod:
            raise BadFrame("this daemon has no such method; load the page again") from None
        await conversation.put(rest[PATH_SIZE.size + size :])
        self._running[number] = _Call(self, number, conversation)

    async def send(self, kind: int, number: int, data: bytes | memoryview = b"") -> None:
        """ConnectionError if the page is gone, or takes nothing for too long."""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._socket.send_bytes(b"".join((HEAD.pack(kind, number), data)))
        except TimeoutError:
            self._socket_is_stuck()
            raise ConnectionError("the page takes nothing") from None

    def _socket_is_stuck(self) -> None:
        for call in self._running.values():
            call.task.cancel()

    def forget(self, number: int) -> None:
        self._running.pop(number, None)

    async def _end_all(self) -> None:
        tasks: Sequence[asyncio.Task[None]] = [call.task for call in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class _Call:
    """One call of a page."""

    def __init__(self, page: PageSocket, number: int, conversation: Conversation) -> None:
        self._page = page
        self._number = number
        self.conversation = conversation
        self._credit = INITIAL_CREDIT
        self._is_granted = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"console call {number}")

    def grant(self, amount: int) -> None:
        self._credit = min(self._credit + amount, MAX_CREDIT)
        self._is_granted.set()

    async def _run(self) -> None:
        try:
            async for message in self.conversation.responses():
                await self._send(message)
            await self._page.send(END, self._number)
        except CallRefused as refused:
            await self._end_badly(refused.status)
        except ConnectionError:
            pass  # the page is gone, and with it everyone who could read this
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.error("console.call_failed", exc_info=error)
            await self._end_badly(b"")
        finally:
            self._page.forget(self._number)

    async def _end_badly(self, status: bytes) -> None:
        try:
            await self._page.send(END, self._number, status or _INTERNAL)
        except ConnectionError:
            pass  # the page is gone

    async def _send(self, message: bytes) -> None:
        pieces = memoryview(message)
        while len(pieces) > MAX_FRAME_OUT:
            await self._send_piece(PIECE, pieces[:MAX_FRAME_OUT])
            pieces = pieces[MAX_FRAME_OUT:]
        await self._send_piece(MESSAGE, pieces)

    async def _send_piece(self, kind: int, data: memoryview) -> None:
        while self._credit <= 0:
            self._is_granted.clear()
            await self._is_granted.wait()
        self._credit -= len(data)
        await self._page.send(kind, self._number, data)


_INTERNAL = b"\x08\x0d"
"""A google.rpc.Status with the code INTERNAL."""


def _head(frame: bytes) -> tuple[int, int]:
    if len(frame) < HEAD.size:
        raise BadFrame("a frame is too short")
    kind, number = HEAD.unpack_from(frame)
    return kind, number


def _unpack(form: Struct, data: bytes) -> int:
    if len(data) != form.size:
        raise BadFrame("a frame has the wrong size")
    (number,) = form.unpack(data)
    return int(number)
