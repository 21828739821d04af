"""Locks of npm packages, as npm writes them."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sandboxd.environments.addresses import origin, split, without_credentials
from sandboxd.packages.lock import Archive, Lock, LockUnusable, check_count
from sandboxd.packages.target import NpmPlatform

MAX_ENTRIES = 3000
"""Of all platforms; those of the others are left out."""
MAX_DEPTH = 16
"""Packages within packages."""
_TOP = "node_modules/"
_WORD = "[A-Za-z0-9~-][A-Za-z0-9._~-]{0,213}"
_NAME = re.compile(rf"(@{_WORD}/)?{_WORD}", re.ASCII)
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}(-[0-9A-Za-z.-]{1,100})?(\+[0-9A-Za-z.-]{1,100})?")
_SHA512_BYTES = 64


class NpmLock(NamedTuple):
    lock: Lock
    with_scripts: Sequence[str]
    """Packages that would run a script when npm installs them; here it is not run."""


def parse_package_lock(text: str, *, registry: str, platform: NpmPlatform) -> NpmLock:
    """Read a lock of version 3; LockUnusable unless each package that this platform needs is one
    archive of the registry, with a place and a hash."""
    entries = _entries(text)
    left_out: list[str] = []
    archives: dict[str, Archive] = {}
    with_scripts: list[str] = []
    # Those that contain others come before them.
    for path in sorted(entries):
        place, entry = _place(path), entries[path]
        if _is_below(place, left_out):
            continue
        if not _fits(entry, platform):
            if entry.get("optional") is not True:
                raise LockUnusable(f"{_name(place)} is not for {platform}")
            left_out.append(place)
        elif entry.get("inBundle") is True:
            if not _is_below(place, archives):
                raise LockUnusable(f"{_name(place)} is said to be part of no package")
        else:
            archives[place] = _archive(place, entry, registry)
            if entry.get("hasInstallScript"):
                with_scripts.append(archives[place].name)
    check_count(len(archives))
    return NpmLock(Lock(sorted(archives.values())), sorted(set(with_scripts)))


def _entries(text: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        lock = json.loads(text)
        version, entries = lock["lockfileVersion"], dict(lock["packages"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LockUnusable("the lock is not one of npm") from None
    if version != 3 or not all(isinstance(entry, dict) for entry in entries.values()):
        raise LockUnusable("the lock is not one of npm")
    if len(entries) > MAX_ENTRIES:
        raise LockUnusable(f"{len(entries)} packages are listed, more than {MAX_ENTRIES}")
    entries.pop("", None)  # what was asked for
    return entries


def _place(path: str) -> str:
    """Where a package is, below the directory of all packages."""
    names = path.removeprefix(_TOP).split(f"/{_TOP}")
    if not path.startswith(_TOP) or not all(map(_NAME.fullmatch, names)):
        raise LockUnusable("a package would be in a place that is not one of a package")
    if len(names) > MAX_DEPTH:
        raise LockUnusable(f"packages contain each other more than {MAX_DEPTH} times")
    return path.removeprefix(_TOP)


def _name(place: str) -> str:
    return place.rpartition(f"/{_TOP}")[2]


def _is_below(place: str, others: Iterable[str]) -> bool:
    return any(place.startswith(f"{other}/{_TOP}") for other in others)


def _archive(place: str, entry: Mapping[str, Any], registry: str) -> Archive:
    # Under another name, if a package asks for it so.
    name, version = str(entry.get("name", _name(place))), str(entry.get("version", ""))
    if not _NAME.fullmatch(name):
        raise LockUnusable("a package has a name that is not one of npm")
    if not _VERSION.fullmatch(version):
        raise LockUnusable(f"{name} has no version")
    address = split(str(entry.get("resolved", "")))
    if entry.get("link") or origin(address) != origin(split(registry)):
        raise LockUnusable(f"{name} does not come from the registry")
    return Archive(
        name,
        version,
        without_credentials(address),
        f"sha512:{_sha512(name, str(entry.get('integrity', '')))}",
        place=place,
    )


def _sha512(name: str, integrity: str) -> str:
    for word in integrity.split():
        algorithm, _, encoded = word.partition("-")
        if algorithm == "sha512":
            try:
                digest = base64.b64decode(encoded.partition("?")[0], validate=True)
            except binascii.Error:
                break
            if len(digest) == _SHA512_BYTES:
                return digest.hex()
    raise LockUnusable(f"the registry has no SHA-512 of {name}")


def _fits(entry: Mapping[str, Any], platform: NpmPlatform) -> bool:
    return all(
        _includes(entry.get(field), value)
        for field, value in (("os", platform.os), ("cpu", platform.cpu), ("libc", platform.libc))
    )


def _includes(filters: Any, value: str) -> bool:
    """Whether a filter of npm lets a value pass: named, or not excluded."""
    words = [filters] if isinstance(filters, str) else list(filters or ())
    if not all(isinstance(word, str) for word in words):
        raise LockUnusable("the lock is not one of npm")
    if f"!{value}" in words:
        return False
    wanted = [word for word in words if not word.startswith("!")]
    return not wanted or value in wanted or "any" in wanted
