"""Locks: exactly which wheels a set of packages consists of."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from sandboxd.packages.requirements import Package
from sandboxd.packages.target import Target

BUILD_VERSION = 1
"""To be increased whenever the same wheels are to become another set."""
MAX_WHEELS = 300
MAX_LOCK_BYTES = 4 << 20
_SHA256 = re.compile("[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,240}\.whl", re.ASCII)


class LockUnusable(ValueError):
    """The resolver's answer is not a list of wheels from the index; the text says why."""


class Wheel(NamedTuple):
    name: str
    version: str
    url: str
    sha256: str
    size_bytes: int
    """As the index announces it; 0 if it does not."""

    @property
    def file_name(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


class Lock(NamedTuple):
    """Wheels by name. Their hashes say what they are, their addresses only where they were."""

    wheels: Sequence[Wheel]

    def key(self, target: Target) -> str:
        """Names the set of these wheels for a target: same key, same files."""
        parts = [
            *(str(BUILD_VERSION), *target),
            *(f"{wheel.name}=={wheel.version} {wheel.sha256}" for wheel in self.wheels),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]

    @property
    def announced_bytes(self) -> int:
        return sum(wheel.size_bytes for wheel in self.wheels)

    def requirements(self) -> str:
        """The lock as a file of requirements with hashes."""
        return "".join(
            f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in self.wheels
        )


def request_key(packages: Sequence[Package], target: Target) -> str:
    """Names a request for packages on a target, before its versions are known."""
    parts = [*target, *map(str, packages)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def parse_pylock(text: str) -> Lock:
    """Read a lock in the format of PEP 751; LockUnusable unless each package is one wheel with an
    address and a hash."""
    try:
        listed = tomllib.loads(text).get("packages", [])
    except tomllib.TOMLDecodeError as error:
        raise LockUnusable(f"the lock is not TOML: {error}") from None
    if len(listed) > MAX_WHEELS:
        raise LockUnusable(
            f"{len(listed)} packages are needed, more than the {MAX_WHEELS} that are allowed"
        )
    wheels = [_wheel(entry) for entry in listed]
    if len({wheel.name for wheel in wheels}) < len(wheels):
        raise LockUnusable("a package is listed twice")
    return Lock(sorted(wheels))


def dumps(lock: Lock) -> str:
    return json.dumps([wheel._asdict() for wheel in lock.wheels])


def loads(text: str) -> Lock:
    """The opposite of `dumps`; ValueError or TypeError for anything else."""
    return Lock([Wheel(**fields) for fields in json.loads(text)])


def _wheel(entry: Any) -> Wheel:
    name = canonicalize_name(str(entry.get("name", "")))
    wheels = entry.get("wheels", [])
    if len(wheels) != 1:
        raise LockUnusable(f"{name} has no wheel for this environment")
    (listed,) = wheels
    wheel = Wheel(
        name,
        str(entry.get("version", "")),
        str(listed.get("url", "")),
        str(listed.get("hashes", {}).get("sha256", "")),
        int(listed.get("size", 0)),
    )
    if urlsplit(wheel.url).scheme not in ("http", "https"):
        raise LockUnusable(f"{name} does not come from the index")
    if not _SHA256.fullmatch(wheel.sha256):
        raise LockUnusable(f"the index has no SHA-256 of {name}")
    if not _is_named_after(wheel):
        raise LockUnusable(f"the wheel of {name} is named like that of another package or version")
    return wheel


def _is_named_after(wheel: Wheel) -> bool:
    if not _FILE_NAME.fullmatch(wheel.file_name):
        return False
    try:
        name, version, *_ = parse_wheel_filename(wheel.file_name)
        return (name, version) == (wheel.name, Version(wheel.version))
    except (InvalidWheelFilename, InvalidVersion):
        return False
