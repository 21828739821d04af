"""Locks of Python packages, as uv writes them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from sandboxd.environments.addresses import split
from sandboxd.packages.lock import Archive, Lock, LockUnusable, check_count
from sandboxd.packages.target import Target

_BUILD = re.compile("[0-9]+")
_OLD_NAMES = {17: ["manylinux2014"], 12: ["manylinux2010"], 5: ["manylinux1"]}
"""Of `manylinux_2_N`."""
_OLDEST_GLIBC = 5
_SHA256 = re.compile("sha256:[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+!-]{0,240}\.whl", re.ASCII)


def parse_pylock(text: str, target: Target) -> Lock:
    """Read a lock in the format of PEP 751; LockUnusable unless each package has a wheel for the
    target, with an address and a hash. uv lists all that fit; the one made for it most is taken,
    as an installer would."""
    try:
        listed = tomllib.loads(text).get("packages", [])
    except tomllib.TOMLDecodeError as error:
        raise LockUnusable(f"the lock is not TOML: {error}") from None
    check_count(len(listed))
    tags = tuple(_tags(target))
    wheels = [_wheel(entry, tags) for entry in listed]
    if len({wheel.name for wheel in wheels}) < len(wheels):
        raise LockUnusable("a package is listed twice")
    return Lock(sorted(wheels))


def requirements(lock: Lock) -> str:
    """The lock as a file of requirements with hashes."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash={wheel.digest}\n" for wheel in lock.archives
    )


def _wheel(entry: Any, tags: Sequence[Tag]) -> Archive:
    name = canonicalize_name(str(entry.get("name", "")))
    version = str(entry.get("version", ""))
    offered = (_archive(name, version, listed) for listed in entry.get("wheels", []))
    ranked = [(rank, wheel) for wheel in offered if (rank := _rank(wheel, tags)) is not None]
    if not ranked:
        raise LockUnusable(f"{name} has no wheel for this environment")
    wheel = min(ranked, key=lambda one: one[0])[1]
    if split(wheel.url).scheme not in ("http", "https"):
        raise LockUnusable(f"{name} does not come from the index")
    if not _SHA256.fullmatch(wheel.digest):
        raise LockUnusable(f"the index has no SHA-256 of {name}")
    if not _is_named_after(wheel):
        raise LockUnusable(f"the wheel of {name} is named like that of another package or version")
    return wheel


def _archive(name: str, version: str, listed: Any) -> Archive:
    digest = f"sha256:{listed.get('hashes', {}).get('sha256', '')}"
    return Archive(name, version, str(listed.get("url", "")), digest, int(listed.get("size", 0)))


def _rank(wheel: Archive, tags: Sequence[Tag]) -> tuple[int, int] | None:
    """How well a wheel fits, the least is the best, and of equal ones the last build; None if it
    does not fit. A name can stand for more tags than one would want to list."""
    parts = wheel.file_name.removesuffix(".whl").split("-")
    if not _FILE_NAME.fullmatch(wheel.file_name) or len(parts) not in (5, 6):
        return None
    pythons, abis, platforms = (frozenset(part.split(".")) for part in parts[-3:])
    build = _BUILD.match(parts[2]) if len(parts) == 6 else None
    for rank, tag in enumerate(tags):
        if tag.platform in platforms and tag.abi in abis and tag.interpreter in pythons:
            return rank, -int(build[0]) if build else 0
    return None


def _tags(target: Target) -> Iterator[Tag]:
    """Those of wheels that the target can use, the best first."""
    major, minor = map(int, target.version.split("."))
    version, python = (major, minor), f"cp{major}{minor}"
    machine, _, newest = target.platform.partition("-manylinux_2_")
    platforms = [
        f"{name}_{machine}"
        for glibc in range(int(newest), _OLDEST_GLIBC - 1, -1)
        for name in (f"manylinux_2_{glibc}", *_OLD_NAMES.get(glibc, ()))
    ]
    yield from cpython_tags(version, [python], platforms)
    yield from compatible_tags(version, python, platforms)


def _is_named_after(wheel: Archive) -> bool:
    if not _FILE_NAME.fullmatch(wheel.file_name):
        return False
    try:
        name, version, *_ = parse_wheel_filename(wheel.file_name)
        return (name, version) == (wheel.name, Version(wheel.version))
    except (InvalidWheelFilename, InvalidVersion):
        return False
