"""Command lines of uv."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sandboxd.packages.target import Target

REQUEST, PYLOCK, LOCKED = "request.in", "pylock.toml", "locked.txt"
CACHE, TEMPORARY = "cache", "tmp"
_DAY_SECONDS = 86400


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


def unpack(places: Places, target: Target, *, wheels: str, unpacked: str) -> Sequence[str]:
    """Install the wheels that were fetched, and nothing else; with the names of directories in the
    area."""
    return (
        *(places.uv, "pip", "install", "--requirements", f"{places.area}/{LOCKED}"),
        *("--target", f"{places.area}/{unpacked}", "--require-hashes", "--no-deps"),
        *("--no-index", "--offline", "--find-links", f"{places.area}/{wheels}"),
        *("--link-mode", "hardlink", "--quiet"),
        *_for(places, target),
    )


def _for(places: Places, target: Target) -> Sequence[str]:
    return (
        *("--only-binary", ":all:", "--no-config", "--no-python-downloads", "--no-progress"),
        *("--python-version", target.version, "--python-platform", target.platform),
        *("--python", places.python, "--cache-dir", f"{places.area}/{CACHE}"),
        *("--color", "never"),
    )


def environment(places: Places, inherited: Mapping[str, str], index: str) -> Mapping[str, str]:
    """Variables of uv. The index is not an argument: those are visible to the whole host. Without
    one, uv uses its own default."""
    return {
        **inherited,
        **({"UV_DEFAULT_INDEX": index} if index else {}),
        "HOME": places.area,
        "PATH": "",
        "TMPDIR": f"{places.area}/{TEMPORARY}",
        "UV_KEYRING_PROVIDER": "disabled",
        "UV_CONCURRENT_DOWNLOADS": "4",
        "UV_CONCURRENT_INSTALLS": "2",
        "UV_HTTP_TIMEOUT": "30",
        "RAYON_NUM_THREADS": "2",
        "TOKIO_WORKER_THREADS": "2",
    }
