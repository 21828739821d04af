"""What the service manager is told, on a socket as systemd has it."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.daemon.notify import ServiceManager


@pytest.fixture(params=["a path", "an abstract name"])
def listener(
    request: pytest.FixtureRequest, short_dir: Path
) -> Iterator[tuple[socket.socket, str]]:
    """A socket that hears datagrams, and its address as it is given to services."""
    is_path = request.param == "a path"
    name = str(short_dir / "notify") if is_path else f"@sandboxd-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(name if is_path else "\0" + name[1:])
        heard.setblocking(False)
        yield heard, name


def lines(heard: socket.socket) -> list[str]:
    return heard.recv(4096).decode().split("\n")


def test_every_state_is_one_datagram(listener: tuple[socket.socket, str]) -> None:
    """Readiness, reloads, signs of life, the status and the stop are told as systemd reads them."""
    heard, name = listener
    manager = ServiceManager.from_environment({"NOTIFY_SOCKET": name})

    manager.ready()
    assert lines(heard) == ["READY=1"]
    manager.reloading()
    reloading, at = lines(heard)
    assert reloading == "RELOADING=1"
    assert int(at.removeprefix("MONOTONIC_USEC=")) > 0
    manager.alive()
    assert lines(heard) == ["WATCHDOG=1"]
    manager.status("all is well\nREADY=1")
    assert lines(heard) == ["STATUS=all is well READY=1"]
    manager.stopping()
    assert lines(heard)[0] == "STOPPING=1"


def test_nothing_is_told_where_nobody_listens(short_dir: Path) -> None:
    """Without a service manager, or with one that is gone, the daemon goes on."""
    ServiceManager.from_environment({}).ready()
    ServiceManager.from_environment({"NOTIFY_SOCKET": str(short_dir / "gone")}).ready()
    assert ServiceManager.from_environment({"WATCHDOG_USEC": "1000000"}).watchdog_seconds is None


@pytest.mark.parametrize(
    ("micros", "whose", "expected"),
    [
        pytest.param("30000000", str(os.getpid()), 30.0, id="our pid"),
        ("30000000", "", 30.0),
        ("30000000", "1", None),
        ("0", "", None),
        ("soon", "", None),
        ("", "", None),
    ],
)
def test_watchdog_is_the_one_that_is_meant_for_us(
    micros: str, whose: str, expected: float | None
) -> None:
    """A watchdog of another process, or none that makes sense, is not ours."""
    environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": micros, "WATCHDOG_PID": whose}

    assert ServiceManager.from_environment(environment).watchdog_seconds == expected
    assert environment == {}
