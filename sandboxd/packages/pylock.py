"""Locks of Python packages, as uv writes them."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from sandboxd.environments.addresses import split
from sandboxd.packages.lock import Archive, Lock, LockUnusable, check_count

_SHA256 = re.compile("[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,240}\.whl", re.ASCII)


def parse_pylock(text: str) -> Lock:
    """Read a lock in the format of PEP 751; LockUnusable unless each package is one wheel with an
    address and a hash."""
    try:
        listed = tomllib.loads(text).get("packages", [])
    except tomllib.TOMLDecodeError as error:
        raise LockUnusable(f"the lock is not TOML: {error}") from None
    check_count(len(listed))
    wheels = [_wheel(entry) for entry in listed]
    if len({wheel.name for wheel in wheels}) < len(wheels):
        raise LockUnusable("a package is listed twice")
    return Lock(sorted(wheels))


def requirements(lock: Lock) -> str:
    """The lock as a file of requirements with hashes."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash={wheel.digest}\n" for wheel in lock.archives
    )


def _wheel(entry: Any) -> Archive:
    name = canonicalize_name(str(entry.get("name", "")))
    wheels = entry.get("wheels", [])
    if len(wheels) != 1:
        raise LockUnusable(f"{name} has no wheel for this environment")
    (listed,) = wheels
    sha256 = str(listed.get("hashes", {}).get("sha256", ""))
    wheel = Archive(
        name,
        str(entry.get("version", "")),
        str(listed.get("url", "")),
        f"sha256:{sha256}",
        int(listed.get("size", 0)),
    )
    if split(wheel.url).scheme not in ("http", "https"):
        raise LockUnusable(f"{name} does not come from the index")
    if not _SHA256.fullmatch(sha256):
        raise LockUnusable(f"the index has no SHA-256 of {name}")
    if not _is_named_after(wheel):
        raise LockUnusable(f"the wheel of {name} is named like that of another package or version")
    return wheel


def _is_named_after(wheel: Archive) -> bool:
    if not _FILE_NAME.fullmatch(wheel.file_name):
        return False
    try:
        name, version, *_ = parse_wheel_filename(wheel.file_name)
        return (name, version) == (wheel.name, Version(wheel.version))
    except (InvalidWheelFilename, InvalidVersion):
        return False
