"""The store of a cluster in Redis, alone or behind sentinels; the only module that speaks to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.scripts import READING, all_scripts
from sandboxd.cluster.settings import ClusterSettings, RedisSettings
from sandboxd.cluster.store import StoreUnavailable
from sandboxd.lost_connections import ConnectionClosed, closed_as_lost
from sandboxd.tasks import cancel_kept


def redis_directory(cluster: ClusterSettings, redis: RedisSettings) -> SharedDirectory:
    """A directory for this worker; it connects when it is started."""
    return SharedDirectory(RedisStore(redis, cluster.name), cluster)


class RedisStore:
    def __init__(
        self, settings: RedisSettings, name: str, scripts: Mapping[str, str] | None = None
    ) -> None:
        self._settings = settings
        self._key = "{" + name + "}"
        texts = scripts if scripts is not None else all_scripts()
        self._scripts = {
            script: (text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
            for script, text in texts.items()
        }
        # The pool of the sentinel client raises at its limit instead of waiting.
        self._places = asyncio.Semaphore(settings.connections)
        self._sentinel: Sentinel | None = None
        self._redis = self._connect()

    async def run(
        self, script: str, common: Mapping[str, object], arguments: Mapping[str, object]
    ) -> bytes:
        with cancel_kept():
            return await self._answer(script, common, arguments)

    async def _answer(
        self, script: str, common: Mapping[str, object], arguments: Mapping[str, object]
    ) -> bytes:
        try:
            async with asyncio.timeout(self._settings.call_seconds), self._places:
                reply = await self._run(script, json.dumps(common), json.dumps(arguments))
        except TimeoutError:
            raise StoreUnavailable("Redis did not answer in time") from None
        except AttributeError as error:
            # A connection that the client closed, after a failover, while it used it.
            raise StoreUnavailable("Redis failed: the connection was lost") from error
        except (RedisError, OSError) as error:
            # What follows describes the client, for its authors.
            why = str(error).partition(" : <")[0] or type(error).__name__
            raise StoreUnavailable(f"Redis failed: {why}") from error
        if not isinstance(reply, bytes):
            raise StoreUnavailable("Redis gave a reply of another kind")
        return reply

    async def aclose(self) -> None:
        sentinels = self._sentinel.sentinels if self._sentinel is not None else ()
        # Whatever is wrong with a connection, it is not used again.
        with suppress(TimeoutError, RedisError, OSError):
            async with asyncio.timeout(self._settings.call_seconds):
                for client in (self._redis, *sentinels):
                    await client.aclose()

    async def _run(self, script: str, *arguments: str) -> object:
        text, digest = self._scripts[script]
        replicas = 0 if script in READING else self._settings.replicas
        try:
            return await self._send(replicas, "EVALSHA", digest, 1, self._key, *arguments)
        except NoScriptError:
            return await self._send(replicas, "EVAL", text, 1, self._key, *arguments)

    async def _send(self, replicas: int, *sent: str | int) -> object:
        # The pool gives out connections that were lost, and so do the clients of sentinels. Nothing
        # was sent on one, and the next use of it connects anew.
        for _ in range(len(self._settings.sentinels) + 1):
            with suppress(ConnectionClosed), closed_as_lost():
                return await self._send_once(replicas, *sent)
        with closed_as_lost():
            return await self._send_once(replicas, *sent)

    async def _send_once(self, replicas: int, *sent: str | int) -> object:
        if not replicas:
            return await cast("Any", self._redis).execute_command(*sent)
        wait_ms = int(self._settings.call_seconds * 500)
        # On one connection: WAIT is about what was written on its own.
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*sent)
            pipeline.execute_command("WAIT", replicas, wait_ms)
            replies = await pipeline.execute()
        if cast("int", replies[1]) < replicas:
            raise StoreUnavailable("Redis has too few replicas at the moment")
        return cast("object", replies[0])

    def _connect(self) -> Redis:
        settings = self._settings
        # Scripts are not repeated by the client: only the caller knows what a repetition means.
        options: dict[str, Any] = {
            "socket_timeout": settings.call_seconds,
            "socket_connect_timeout": settings.call_seconds,
            "retry": Retry(NoBackoff(), 0),
            "db": settings.database,
            "username": settings.username or None,
            "password": settings.password or None,
        }
        tls: dict[str, Any] = {"ssl": True, "ssl_ca_certs": settings.ca_file or None}
        if settings.sentinels:
            self._sentinel = cast("Any", Sentinel)(
                list(settings.sentinels),
                sentinel_kwargs={
                    "socket_timeout": settings.call_seconds / 4,
                    "socket_connect_timeout": settings.call_seconds / 4,
                    "retry": Retry(NoBackoff(), 0),
                    "username": settings.sentinel_username or None,
                    "password": settings.sentinel_password or None,
                    **(tls if settings.is_tls else {}),
                },
                **options,
                **(tls if settings.is_tls else {}),
            )
            return cast("Redis", self._sentinel.master_for(settings.primary_name))
        if settings.socket_path:
            options |= {
                "connection_class": UnixDomainSocketConnection,
                "path": settings.socket_path,
            }
        else:
            options |= {"host": settings.host, "port": settings.port}
            if settings.is_tls:
                options |= {
                    "connection_class": SSLConnection,
                    "ssl_ca_certs": settings.ca_file or None,
                }
        pool = BlockingConnectionPool(
            max_connections=settings.connections, timeout=settings.call_seconds, **options
        )
        return Redis.from_pool(pool)
