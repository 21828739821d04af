"""A server that speaks the protocol of S3, in another process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.snapshots.object_service import ObjectService, ObjectServiceSettings
from tests.ports import free_port

BUCKET = "snapshots"
_START_SECONDS = 60.0


@contextmanager
def object_server() -> Iterator[str]:
    """Its address; it has an empty bucket."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(port, server)
            address = f"http://127.0.0.1:{port}"
            _make_bucket(address)
            yield address
        finally:
            server.kill()


def objects_at(address: str, *, prefix: str = "", call_seconds: float = 20.0) -> ObjectService:
    return ObjectService(
        ObjectServiceSettings(
            bucket=BUCKET,
            prefix=prefix,
            endpoint=address,
            access_key_id="test",
            secret_access_key="test",
            call_seconds=call_seconds,
        )
    )


def _make_bucket(address: str) -> None:
    """By the request itself: the client has no call for it."""
    request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
    with urllib.request.urlopen(request, timeout=_START_SECONDS):
        pass


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < give_up_at, "the server does not start"
            time.sleep(0.02)
