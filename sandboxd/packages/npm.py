"""Command lines of npm."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from sandboxd.environments.addresses import credentials, without_credentials

MANIFEST, LOCK, CONFIG = "package.json", "package-lock.json", "npmrc"
PRELOADED = "preloaded.cjs"
CACHE, TEMPORARY = "cache", "tmp"
_DAY_SECONDS = 86400
_FETCH_MILLISECONDS = 30_000


class Places(NamedTuple):
    """Paths as the confined worker sees them."""

    command: Sequence[str]
    """Node.js and npm."""
    area: str
    """The directory that it may write to."""


def resolve(places: Places, *, min_age_days: float) -> Sequence[str]:
    """Find versions for the manifest, and write the lock. Dependencies come from the registry, or
    not at all."""
    newest: Sequence[str] = ()
    if min_age_days:
        day = time.gmtime(time.time() - min_age_days * _DAY_SECONDS)
        newest = ("--before", time.strftime("%Y-%m-%dT00:00:00Z", day))
    return (
        *(*places.command, "install", "--package-lock-only", "--ignore-scripts", *newest),
        *("--allow-git", "none", "--allow-remote", "none"),
        *("--allow-file", "none", "--allow-directory", "none"),
        *("--omit", "dev", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress"),
        *("--no-omit-lockfile-registry-resolved", "--lockfile-version", "3"),
        *("--fetch-retries", "1", "--fetch-retry-mintimeout", "500"),
        *("--fetch-retry-maxtimeout", "500"),
        *("--fetch-timeout", str(_FETCH_MILLISECONDS), "--maxsockets", "4"),
        *("--prefix", places.area, "--cache", f"{places.area}/{CACHE}"),
        *("--userconfig", f"{places.area}/{CONFIG}", "--globalconfig", f"{places.area}/none"),
        *("--logs-max", "0", "--no-color", "--loglevel", "error"),
    )


def preloaded(node_version: str) -> str:
    """A script that runs before npm, which then prefers packages for this version of Node.js.

    It would take its own, and has no option for another. The change comes after npm has checked
    that it can run with the version that it really has.
    """
    change = f"Object.defineProperty(process, 'version', {{value: 'v{node_version}.0'}})"
    return f"setImmediate(() => {change});\n"


def config(registry: str) -> str:
    """The file that sets npm up. The registry is not an argument: those are visible to the whole
    host."""
    address = urlsplit(registry)
    plain = f"{without_credentials(address).rstrip('/')}/"
    known = credentials(address)
    secret = f"{plain[len(address.scheme) + 1 :]}:_auth={known}\n" if known else ""
    return f"registry={plain}\n{secret}"


def environment(places: Places, inherited: Mapping[str, str]) -> Mapping[str, str]:
    """Variables of npm."""
    # Node.js has certificates of its own, and reads these files only if it is told to.
    has_certificates = {"SSL_CERT_FILE", "SSL_CERT_DIR"} & inherited.keys()
    return {
        **inherited,
        "HOME": places.area,
        "PATH": "",
        "TMPDIR": f"{places.area}/{TEMPORARY}",
        "NODE_OPTIONS": "--use-openssl-ca" if has_certificates else "",
        "UV_THREADPOOL_SIZE": "2",
    }
