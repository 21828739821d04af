"""The sync and the async face under one: tests are written once, with `await`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sandboxd_client
from sandboxd_client import AsyncSandbox, AsyncSandboxClient, Sandbox, SandboxClient


@dataclass(frozen=True)
class Face:
    """One way to use the SDK: sync or async, on a daemon in this process or another."""

    name: str
    is_sync: bool
    where: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that lead to the daemon."""

    def client(self, **settings: Any) -> Any:
        kind = SandboxClient if self.is_sync else AsyncSandboxClient
        return awaitable(kind(**{**self.where, **settings}))

    async def create(self, **settings: Any) -> Any:
        return await self._made("create", **settings)

    async def open(self, user: str, thread: str, **settings: Any) -> Any:
        return await self._made("open", user, thread, **settings)

    async def connect(self, session_id: str) -> Any:
        return await self._made("connect", session_id)

    async def list(self, **filters: Any) -> Any:
        return await self._made("list", **filters)

    async def kill(self, session_id: str) -> Any:
        return await self._made("kill", session_id)

    async def _made(self, how: str, *arguments: Any, **settings: Any) -> Any:
        kind = Sandbox if self.is_sync else AsyncSandbox
        make = getattr(kind, how)
        if self.is_sync:
            make = partial(asyncio.to_thread, make)
        return awaitable(await make(*arguments, **{**self.where, **settings}))


def awaitable(thing: Any) -> Any:
    """An object of the sync face as one of the async; anything else as it is."""
    kind = type(thing)
    twin = getattr(sandboxd_client, f"Async{kind.__name__}", None)
    return _Awaitable(thing, twin) if twin is not None else thing


class _Awaitable:
    """Calls the methods that the async face has as coroutines in a thread."""

    def __init__(self, thing: Any, twin: type) -> None:
        self._thing = thing
        self._twin = twin

    def __getattr__(self, name: str) -> Any:
        mine = getattr(self._thing, "close" if name == "aclose" else name)
        theirs = inspect.unwrap(inspect.getattr_static(self._twin, name))
        if not inspect.iscoroutinefunction(theirs):
            return (lambda *a, **k: awaitable(mine(*a, **k))) if callable(mine) else awaitable(mine)

        async def call(*arguments: Any, **named: Any) -> Any:
            return awaitable(await asyncio.to_thread(mine, *arguments, **named))

        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            setattr(self._thing, name, value)

    async def __aenter__(self) -> _Awaitable:
        await asyncio.to_thread(self._thing.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._thing.__exit__, *error)

    def __aiter__(self) -> _Awaitable:
        return self

    async def __anext__(self) -> Any:
        item = await asyncio.to_thread(next, self._thing, None)
        if item is None:
            raise StopAsyncIteration
        return item
