"""What surrounds every call of our services: admission, access, and errors.

Wrapped around the methods once, not an interceptor: grpc.aio runs interceptors anew for every call,
which costs more than all of our own code for a short command.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import AsyncIterator, Callable, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from sandboxd.access import Caller, CallPlaces, Scope, only_look
from sandboxd.errors import (
    ExecEnded,
    InvalidRequest,
    SandboxdError,
    Unauthenticated,
    UploadStalled,
)
from sandboxd.observability.calls import Call, current
from sandboxd.observability.journal import MAX_COMMAND
from sandboxd.observability.statistics import Statistics
from sandboxd.service.transport.chunk_messages import chunk_in
from sandboxd.service.transport.cluster import Cluster
from sandboxd.service.transport.entrance import Entrance, Visitor
from sandboxd.service.transport.rules import OVERSEE, PASSIVE_METHODS, RULES
from sandboxd.service.transport.status import internal_status, to_status
from sandboxd.service.wire import Context
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.turn_ids import TURN_METADATA, checked_turn_id, current_turn

if TYPE_CHECKING:
    from sandboxd.observability.traces import Traces

log = structlog.get_logger()

RETRY_METADATA = "sandboxd-retry"
"""Metadata key that clients set on automatic retries."""
PASSIVE_METADATA = "sandboxd-passive"
"""Metadata key of reads that do not keep their session from expiring."""
_AUDITED_FIELDS = {
    "user": "user_id",
    "thread": "thread_id",
    "session": "session_id",
    "exec": "exec_id",
    "command": "shell",
    "path": "path",
    "project": "project_id",
    "name": "name",
}
MAX_AUDITED_ID = 256
"""Characters of an id in the audit log; longer ones are not valid."""
_AUDITED_LENGTHS = dict.fromkeys(_AUDITED_FIELDS, MAX_AUDITED_ID)
_AUDITED_LENGTHS |= {"command": MAX_COMMAND, "path": MAX_COMMAND}
DRAIN_SECONDS = 2.0
"""How long a refused stream is read before it is answered."""
MAX_DRAINS = 4
"""Refused streams of callers without a place that are read at once; each may hold a message."""


class CallGuard:
    """Maps every exception to a status in one place, and limits the number of concurrent calls.

    Without it grpc.aio would send the text of an unexpected exception to the caller.

    Where a caller may be unknown, methods of one message are registered as if they had a stream of
    them: grpc.aio then reads nothing by itself, and nothing is read before the caller is known.
    """

    def __init__(
        self,
        *,
        places: CallPlaces,
        entrance: Entrance | None = None,
        idle_seconds: float = 60.0,
        journal: Journal | None = None,
        statistics: Statistics | None = None,
        traces: Traces | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """`idle_seconds`: how long the caller of an upload may pause. `cluster`: how calls about
        sessions of other workers reach them."""
        self._places = places
        self._entrance = entrance or Entrance()
        self._reads_late = self._entrance.has_rules
        self._idle_seconds = idle_seconds
        self._journal = journal or Journal()
        self._statistics = statistics or Statistics()
        self._traces = traces
        self._cluster = cluster
        self._drains = 0
        """Streams without a place that are being read to be answered."""

    def identify(self, visitor: Visitor, method: str) -> Caller:
        """The caller of a request that did not come over gRPC; Unauthenticated if it is unknown."""
        try:
            return self._entrance.identify(visitor, method)
        except Unauthenticated as error:
            self._journal.on_stranger_refused(error, method, visitor.peer())
            raise

    def check_overseer(self, caller: Caller, method: str) -> None:
        """CallNotPermitted unless the caller may look at what is about all users."""
        self._entrance.check(caller, method, OVERSEE)

    def handler(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """The handler for the calls of a service."""
        handlers = {method.name: self._method(method, servicer) for method in service.methods}
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _method(self, method: MethodDescriptor, servicer: object) -> Any:
        behaviour, name = getattr(servicer, method.name), method.name
        if self._cluster is not None:
            behaviour = self._cluster.routed(method, behaviour)
        allowed = RULES[method.full_name]
        read = _readable(GetMessageClass(method.input_type))
        write = GetMessageClass(method.output_type).SerializeToString
        if method.client_streaming and method.server_streaming:
            conversation = self.conversation(behaviour, name, allowed)
            return grpc.stream_stream_rpc_method_handler(conversation, read, _written_or(write))
        if method.client_streaming:
            upload = self._upload(behaviour, name, allowed)
            return grpc.stream_unary_rpc_method_handler(upload, _chunk_or(read), _written_or(write))
        if method.server_streaming:
            stream = self._stream(behaviour, name, allowed)
            make = grpc.unary_stream_rpc_method_handler
            if self._reads_late:
                make = grpc.stream_stream_rpc_method_handler
            return make(stream, read, _written_or(write))
        unary = self._unary(behaviour, name, allowed)
        make = grpc.unary_unary_rpc_method_handler
        if self._reads_late:
            make = grpc.stream_unary_rpc_method_handler
        return make(unary, read, _written_or(write))

    def _unary(self, behaviour: Any, method: str, allowed: Set[Scope]) -> Any:
        async def serve(request: Any, context: Context) -> Any:
            call = self._begin(context, method)
            try:
                caller = self._enter(call, context)
                if self._reads_late:
                    request = await _read(context)
                self._admit(call, caller, request, allowed)
                response = await behaviour(request, context)
                self._statistics.retries_succeeded += call.is_retry
                return response
            except Exception as error:
                await self._fail(error, context, call, request)
            finally:
                self._end(call)

        return serve

    def _stream(self, behaviour: Any, method: str, allowed: Set[Scope]) -> Any:
        async def serve(request: Any, context: Context) -> AsyncIterator[Any]:
            call = self._begin(context, method)
            try:
                caller = self._enter(call, context)
                if self._reads_late:
                    request = await _read(context)
                self._admit(call, caller, request, allowed)
                async for response in behaviour(request, context):
                    yield response
                self._statistics.retries_succeeded += call.is_retry
            except Exception as error:
                await self._fail(error, context, call, request)
            finally:
                self._end(call)

        return serve

    def _upload(self, behaviour: Any, method: str, allowed: Set[Scope]) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Context) -> Any:
            call = self._begin(context, method)
            upload = _Upload(requests, idle_seconds=self._idle_seconds)
            try:
                caller = self._enter(call, context)
                self._entrance.check(caller, method, allowed)
                response = await behaviour(upload.messages(), context)
                self._statistics.retries_succeeded += call.is_retry
                return response
            except Exception as error:
                if not isinstance(error, UploadStalled):
                    await self._drain(upload, call)
                await self._fail(error, context, call, upload.header)
            finally:
                self._end(call)

        return serve

    def conversation(
        self, behaviour: Any, method: str, allowed: Set[Scope] = frozenset(Scope)
    ) -> Any:
        """A method with streams in both directions."""

        async def serve(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            call = self._begin(context, method)
            is_in = False
            try:
                caller = self._enter(call, context)
                self._entrance.check(caller, method, allowed)
                is_in = True
                async for response in behaviour(requests, context):
                    yield response
            except Exception as error:
                if not is_in:
                    upload = _Upload(requests, idle_seconds=self._idle_seconds)
                    await self._drain(upload, call, to_end=False)
                await self._fail(error, context, call)
            finally:
                self._end(call)

        return serve

    def _begin(self, context: Context, method: str) -> Call:
        """Record the call for logs, figures and traces."""
        call = Call(method)
        current.set(call)
        self._statistics.calls[method] += 1
        metadata = context.invocation_metadata() or ()
        is_passive = False
        for key, value in metadata:
            if key == RETRY_METADATA and not call.is_retry:
                call.is_retry = True
                self._statistics.retries += 1
            elif key == PASSIVE_METADATA:
                is_passive = method in PASSIVE_METHODS
            elif key == TURN_METADATA:
                call.turn_id = str(value)
        only_look(is_passive)
        if self._traces is not None:
            self._traces.begin_call(call, metadata)
        return call

    def _enter(self, call: Call, context: Context) -> Caller:
        """Identify the caller, and take a place for the call."""
        caller = self._entrance.identify(context, call.method)
        self._places.take(caller)
        call.caller = caller
        # In any case: a daemon in the process of its caller serves many calls in one context.
        current_turn.set(checked_turn_id(call.turn_id) if call.turn_id else "")
        return caller

    def _admit(self, call: Call, caller: Caller, request: Any, allowed: Set[Scope]) -> None:
        """Refuse a request that its caller may not make or that cannot be read."""
        call.session_id = getattr(request, "session_id", "")
        call.exec_id = getattr(request, "exec_id", "")
        self._entrance.check(caller, call.method, allowed)
        _check_readable(request)

    def _end(self, call: Call) -> None:
        if call.caller is not None:
            self._places.free(call.caller)
        if self._traces is not None:
            self._traces.end_call(call)

    async def _drain(self, upload: _Upload, call: Call, *, to_end: bool = True) -> None:
        """Read a refused upload, unless too many without a place are being read."""
        if call.caller is not None:
            await upload.drain(to_end=to_end)
        elif self._drains < MAX_DRAINS:
            self._drains += 1
            try:
                await upload.drain(to_end=to_end)
            finally:
                self._drains -= 1

    async def _fail(
        self, error: Exception, context: Context, call: Call, request: Any = None
    ) -> NoReturn:
        try:
            if isinstance(error, aio.InternalError):
                raise error
            await self._answer(error, context, call, request)
        except aio.InternalError:
            # gRPC could not send the status: the way back is cut, and the cancel still on its way.
            raise asyncio.CancelledError from None
        raise AssertionError("abort returned")

    async def _answer(self, error: Exception, context: Context, call: Call, request: Any) -> None:
        method = call.method
        self._statistics.failed_calls[method] += 1
        call.failure = error.reason if isinstance(error, SandboxdError) else "INTERNAL"
        if isinstance(error, aio.AbortError):
            raise error  # the handler has answered already
        if isinstance(error, Unauthenticated):
            self._journal.on_stranger_refused(error, method, context.peer())
            await context.abort_with_status(to_status(error))
        if isinstance(error, SandboxdError):
            log.info("call.refused", method=method, reason=error.reason, message=error.message)
            # The end of a command crosses its input: every other run of a program would count.
            if not isinstance(error, ExecEnded):
                self._journal.on_refused(error, _audited(request))
            await context.abort_with_status(to_status(error))
        error_id = secrets.token_hex(6)
        log.error("call.failed", method=method, error_id=error_id, exc_info=error)
        await context.abort_with_status(internal_status(error_id))


class _Upload:
    """The messages that a caller streams, and the header in the first one."""

    def __init__(self, requests: AsyncIterator[Any], *, idle_seconds: float) -> None:
        self._requests = requests
        self._idle_seconds = idle_seconds
        self.header: Any = None
        """None until the first message arrives."""

    async def messages(self) -> AsyncIterator[Any]:
        """The messages; UploadStalled if the caller pauses for too long."""
        is_first = True
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    request = await anext(self._requests)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise UploadStalled(self._idle_seconds) from None
            _check_readable(request)
            if is_first:
                is_first = False
                self.header = getattr(request, "header", None)
            yield request

    async def drain(self, *, to_end: bool = True) -> None:
        """Let the caller finish sending, for a while: one that is answered earlier gets an internal
        error from grpc.aio instead of the answer.

        If the call was refused before its first message, this reads the header. `to_end`: not only
        the first message; in a conversation the caller may wait for an answer to that.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for request in self._requests:
                    if self.header is None:
                        self.header = getattr(request, "header", None)
                    if not to_end:
                        return


async def _read(context: Context) -> Any:
    """The only message of a caller; None if there is none, or it cannot be decoded."""
    request = await context.read()
    return None if request is aio.EOF else request


def _check_readable(request: Any) -> None:
    if request is None:
        raise InvalidRequest(
            "request",
            "the message is missing or could not be decoded (wrong type, or a string that is not "
            "valid UTF-8); regenerate your stubs",
        )


def _audited(request: Any) -> dict[str, Any]:
    """The fields of a request that the audit log records."""
    named = {word: getattr(request, field, "") for word, field in _AUDITED_FIELDS.items()}
    named["path"] = named["path"] or getattr(request, "path_bytes", b"").decode(errors="replace")
    if words := getattr(getattr(request, "argv", None), "args", ()):
        named["command"] = shlex.join(words[:MAX_COMMAND])
    return {word: value[: _AUDITED_LENGTHS[word]] for word, value in named.items() if value}


def _chunk_or(read: Callable[[bytes], Message | None]) -> Callable[[bytes], object]:
    def read_part(data: bytes) -> object:
        chunk = chunk_in(data)
        return read(data) if chunk is None else chunk

    return read_part


def _written_or(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Serialise a message, unless it is serialised already."""
    return lambda message: message if type(message) is bytes else write(message)


def _readable(request_type: type[Message]) -> Callable[[bytes], Message | None]:
    """Deserialise, or return None: an exception here would reach the caller as it is."""

    def read(data: bytes) -> Message | None:
        try:
            return request_type.FromString(data)
        except DecodeError:
            return None

    return read
