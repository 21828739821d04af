"""Locks: exactly which archives a set of packages consists of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from sandboxd.environments.addresses import split
from sandboxd.packages.package import Package
from sandboxd.packages.target import Target

BUILD_VERSION = 2
"""To be increased whenever the same archives are to become another set."""
MAX_ARCHIVES = 300
MAX_LOCK_BYTES = 4 << 20


class LockUnusable(ValueError):
    """The resolver's answer is not a list of archives from the index; the text says why."""


class Archive(NamedTuple):
    """A package in one version, as the index has it."""

    name: str
    version: str
    url: str
    digest: str
    """Algorithm and hash in hexadecimal digits, as in `sha256:0a1b...`."""
    size_bytes: int = 0
    """As the index announces it; 0 if it does not."""
    place: str = ""
    """Where it is unpacked, below the directory of the set; empty where its content decides."""

    @property
    def file_name(self) -> str:
        """The name of its file while a set is built: of a wheel, which is part of it, its own."""
        if not self.place:
            return unquote(split(self.url).path.rpartition("/")[2])
        return f"{self.digest.rpartition(':')[2][:64]}.tgz"


class Lock(NamedTuple):
    """Archives by name. Their hashes say what they are, their addresses only where they were."""

    archives: Sequence[Archive]

    def key(self, target: Target) -> str:
        """Names the set of these archives for a target: same key, same files."""
        parts = [
            *(str(BUILD_VERSION), *target),
            *(f"{one.name}=={one.version} {one.digest} {one.place}" for one in self.archives),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    @property
    def announced_bytes(self) -> int:
        return sum(archive.size_bytes for archive in self.archives)


def check_count(count: int) -> None:
    if count > MAX_ARCHIVES:
        raise LockUnusable(
            f"{count} packages are needed, more than the {MAX_ARCHIVES} that are allowed"
        )


def request_key(packages: Sequence[Package], target: Target) -> str:
    """Names a request for packages on a target, before its versions are known."""
    parts = [*target, *map(str, packages)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def dumps(lock: Lock) -> str:
    return json.dumps([archive._asdict() for archive in lock.archives])


def loads(text: str) -> Lock:
    """The opposite of `dumps`; ValueError or TypeError for anything else."""
    return Lock([Archive(**fields) for fields in json.loads(text)])
