"""TCP ports that programs in a sandbox listen on, as the kernel reports them."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable
from typing import NamedTuple

MAX_BYTES = 1 << 20
"""Of a table of the kernel; a sandbox has room for far fewer sockets."""
_LISTENING = "0A"


class ListeningPort(NamedTuple):
    port: int
    address: str
    """`0.0.0.0` or `::` for all addresses."""


def parse_tcp_table(table: bytes) -> Iterable[ListeningPort]:
    """Listening sockets of /proc/PID/net/tcp or tcp6; lines that make no sense are left out."""
    for line in table.decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        if len(words) > 3 and words[3] == _LISTENING:
            try:
                yield _port(words[1])
            except ValueError:
                continue


def _port(local: str) -> ListeningPort:
    address, _, port = local.partition(":")
    # Words of 32 bits in the order of this machine.
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    number = int(port, 16)
    if len(address) not in (8, 32) or not 0 < number < 65536:
        raise ValueError
    return ListeningPort(number, str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))))


def merged(ports: Iterable[ListeningPort], *, without: Iterable[int] = ()) -> list[ListeningPort]:
    """One line for each port and address, sorted, without ports of doors."""
    doors = set(without)
    return sorted({port for port in ports if port.port not in doors})
