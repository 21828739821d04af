"""Command lines of uv, and what its complaints mean."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sandboxd.errors import (
    PackageIndexUnreachable,
    PackagesBuildFailed,
    PackagesNotResolved,
    PackagesTooLarge,
    SandboxdError,
)
from sandboxd.packages.target import Target

REQUEST, PYLOCK, LOCKED = "request.in", "pylock.toml", "locked.txt"
WHEELS, UNPACKED, CACHE, TEMPORARY = "wheels", "unpacked", "cache", "tmp"
_DAY_SECONDS = 86400
_MAX_WHY = 500
_FULL = re.compile(r"No space left on device|File too large|os error (28|27)\b|SIGXFSZ")
_UNREACHABLE = re.compile(
    r"[Ff]ailed to (fetch|download)|error sending request|dns error|[Cc]onnection (refused|reset)"
    r"|operation timed out|Could not connect"
)
_UNRESOLVED = re.compile(r"No solution found|Failed to resolve|not found in the package registry")
_ADDRESS = re.compile(r"\b[a-z+]+://\S+")


class Places(NamedTuple):
    """Paths as the confined worker sees them."""

    uv: str
    python: str
    """Any Python, for uv to ask; packages may be for another version."""
    area: str
    """The directory that it may write to."""


def resolve(places: Places, target: Target, *, min_age_days: float) -> Sequence[str]:
    """Find wheels for the request, and write the lock."""
    newest: Sequence[str] = ()
    if min_age_days:
        day = time.gmtime(time.time() - min_age_days * _DAY_SECONDS)
        newest = ("--exclude-newer", time.strftime("%Y-%m-%dT00:00:00Z", day))
    return (
        *(places.uv, "pip", "compile", f"{places.area}/{REQUEST}"),
        *("--format", PYLOCK, "--output-file", f"{places.area}/{PYLOCK}"),
        *("--no-header", "--no-annotate", "--quiet", *newest),
        *_for(places, target),
    )


def unpack(places: Places, target: Target) -> Sequence[str]:
    """Install the wheels that were fetched, and nothing else."""
    return (
        *(places.uv, "pip", "install", "--requirements", f"{places.area}/{LOCKED}"),
        *("--target", f"{places.area}/{UNPACKED}", "--require-hashes", "--no-deps"),
        *("--no-index", "--offline", "--find-links", f"{places.area}/{WHEELS}"),
        *("--link-mode", "hardlink", "--quiet"),
        *_for(places, target),
    )


def _for(places: Places, target: Target) -> Sequence[str]:
    return (
        *("--only-binary", ":all:", "--no-config", "--no-python-downloads", "--no-progress"),
        *("--python-version", target.python, "--python-platform", target.platform),
        *("--python", places.python, "--cache-dir", f"{places.area}/{CACHE}"),
        *("--color", "never"),
    )


def environment(places: Places, inherited: Mapping[str, str], index: str) -> Mapping[str, str]:
    """Variables of uv. The index is not an argument: those are visible to the whole host."""
    return {
        **inherited,
        "HOME": places.area,
        "PATH": "",
        "TMPDIR": f"{places.area}/{TEMPORARY}",
        "UV_DEFAULT_INDEX": index,
        "UV_KEYRING_PROVIDER": "disabled",
        "UV_CONCURRENT_DOWNLOADS": "4",
        "UV_CONCURRENT_INSTALLS": "2",
        "UV_HTTP_TIMEOUT": "30",
        "RAYON_NUM_THREADS": "2",
        "TOKIO_WORKER_THREADS": "2",
    }


def explain(complaint: str, *, max_bytes: int) -> SandboxdError:
    """The error that a complaint of uv stands for."""
    if _FULL.search(complaint):
        return PackagesTooLarge("unpacked", f"{max_bytes >> 20} MiB")
    why = _shortened(complaint)
    if _UNRESOLVED.search(complaint):
        return PackagesNotResolved(why)
    if _UNREACHABLE.search(complaint):
        return PackageIndexUnreachable(why)
    return PackagesBuildFailed(why)


def _shortened(complaint: str) -> str:
    """One line without addresses, which may contain credentials, and without drawings."""
    plain = _ADDRESS.sub("(address)", complaint)
    words = " ".join(re.sub(r"[^ -~]|^\s*error:", " ", plain).split())
    return words if len(words) <= _MAX_WHY else words[:_MAX_WHY] + "..."
