"""Which addresses the daemon connects to for a sandbox, and how names become addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias
from weakref import WeakValueDictionary

from sandboxd.access.shares import LOOKUPS

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOKUP_SECONDS = 8.0
MAX_ADDRESSES = 8
"""Addresses of one name that are tried."""
_FORBIDDEN: Sequence[Network] = [
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # metadata of Azure, on a public address
        "192.0.0.0/24",  # of protocols; metadata of Oracle
        "::/96",  # IPv4 in IPv6
        "64:ff9b::/96",  # translated to IPv4
        "64:ff9b:1::/48",
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "5f00::/16",
        "fec0::/10",
    )
]
_EXCEPTION = re.compile(r"(\[[0-9A-Fa-f:./]+\]|[0-9A-Fa-f:./]+?)(?::([0-9]{1,5}))?", re.ASCII)


class Unresolved(Exception):
    """A name has no address; the text says why."""


@dataclass(frozen=True)
class PrivateNetwork:
    """Addresses that are not public, and that the operator lets sessions reach nevertheless."""

    network: Network
    port: int | None
    """None means every port."""

    @classmethod
    def parse(cls, text: str) -> PrivateNetwork:
        """`10.1.0.0/16`, `10.1.2.3:8443`, `[fd00::/8]:443`; ValueError."""
        match = _EXCEPTION.fullmatch(text)
        try:
            if match is None:
                raise ValueError
            network = ipaddress.ip_network(match[1].strip("[]"))
        except ValueError:
            raise ValueError(
                f"{text!r} is not an address or a network, such as 10.1.0.0/16, 10.1.2.3:8443 or "
                "[fd00::1]:443"
            ) from None
        port = int(match[2]) if match[2] else None
        if network.is_loopback and port is None:
            raise ValueError(f"{text!r} would open all ports of this host; name one")
        return cls(network, port)

    def includes(self, address: Address, port: int) -> bool:
        is_inside = address.version == self.network.version and address in self.network
        return is_inside and self.port in (None, port)


class AddressRules:
    """Public addresses of other hosts, and those that the operator has named."""

    def __init__(self, private: Sequence[PrivateNetwork] = ()) -> None:
        self._private = private

    def problem(self, text: str, port: int) -> str:
        """Why the daemon does not connect there; empty if it does."""
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(network.includes(address, port) for network in self._private):
            return ""
        if not _is_public(address):
            return "is not a public address"
        if is_own(str(address)):
            return "is an address of the host itself"
        return ""


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    return not any(
        address.version == network.version and address in network for network in _FORBIDDEN
    )


def is_own(address: str) -> bool:
    """Whether packets to it would come from itself. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return False  # there is no way to it
        return bool(probe.getsockname()[0] == address)


class Resolver:
    """Looks names up in threads of its own: a slow name server delays nothing else."""

    def __init__(self, fixed: Mapping[str, str] | None = None) -> None:
        """With addresses of names that are not looked up."""
        self._fixed = fixed or {}
        self._threads: ThreadPoolExecutor | None = None
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By user: one whose names take long delays nobody else's."""

    def turns_of(self, user_id: str) -> asyncio.Semaphore:
        return self._turns.setdefault(user_id, asyncio.Semaphore(LOOKUPS.per_user))

    async def find(self, host: str, user_id: str | None = None) -> Sequence[str]:
        """Addresses of a host in its normal form, for a user or for the daemon; Unresolved."""
        if (fixed := self._fixed.get(host)) is not None:
            return [fixed]
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            pass
        turns = asyncio.Semaphore() if user_id is None else self.turns_of(user_id)
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                found = await self._look_up(host, turns)
        except TimeoutError:
            raise Unresolved("the name server did not answer in time") from None
        except (OSError, UnicodeError) as error:
            raise Unresolved(getattr(error, "strerror", None) or "it has no address") from None
        return list(dict.fromkeys(found))[:MAX_ADDRESSES]

    async def _look_up(self, host: str, turns: asyncio.Semaphore) -> Sequence[str]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LOOKUPS.total, "look-up")
        await turns.acquire()
        loop = asyncio.get_running_loop()

        def look_up() -> Sequence[str]:
            try:
                # A name that ends with a dot is not completed with the host's search domains.
                found = socket.getaddrinfo(f"{host}.", None, type=socket.SOCK_STREAM)
                return [str(address[0]) for *_, address in found]
            finally:
                # Only now: a thread goes on although nobody waits for it any more.
                loop.call_soon_threadsafe(turns.release)

        try:
            work = self._threads.submit(look_up)
        except RuntimeError:
            turns.release()
            raise Unresolved("the daemon is stopping") from None
        try:
            return await asyncio.wrap_future(work)
        finally:
            if work.cancelled():  # before it began
                turns.release()

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
