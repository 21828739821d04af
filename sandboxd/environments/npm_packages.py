"""Packages of npm, Node.js among them, unpacked into the layer of an image."""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import shutil
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from sandboxd.environments.addresses import request_for
from sandboxd.environments.parts import Package, Report, SourceUnavailable

log = structlog.get_logger()

MAX_ARCHIVE_BYTES = 256 << 20
MAX_UNPACKED_BYTES = 1 << 30
READ_BYTES = 1 << 20
FIRST_ANSWER_SECONDS = 30.0
DOWNLOAD_SECONDS = 600.0
"""Time limit of one download, however slowly it goes on."""
_PROCESSORS = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}
"""How names of packages with programs end, by the processor that runs them."""


def node_package() -> str:
    return f"node-{_processor()}"


def _processor() -> str:
    processor = _PROCESSORS.get(platform.machine())
    if processor is None:
        raise SourceUnavailable(f"npm has no Node.js for processors of type {platform.machine()}")
    return processor


def fill_npm(lock: Path, directory: Path, report: Report, registry: str) -> Sequence[Package]:
    node = node_package()
    others = tuple({*_PROCESSORS.values()} - {_processor()})
    locked: Mapping[str, Mapping[str, str]] = json.loads(lock.read_text())
    wanted = {name: entry for name, entry in locked.items() if not name.endswith(others)}
    registry, packages = registry.rstrip("/"), []
    for number, (name, entry) in enumerate(wanted.items()):
        version = entry["version"]
        report(number / len(wanted), f"downloading {name} {version}")
        archive = directory / f"{name.replace('/', '+')}.tgz"
        file = f"{name.rpartition('/')[2]}-{version}.tgz"
        request = request_for(f"{registry}/{name}/-/{file}", index=registry)
        _download(request, archive, integrity=entry["integrity"])
        target = directory / ("usr/local" if name == node else f"usr/local/lib/node_modules/{name}")
        # Of Node.js only the program: its headers are of no use without a compiler.
        _unpack_npm(archive, target, only="bin/node" if name == node else None)
        archive.unlink()
        shown = ("program", "node", version) if name == node else ("node", name, version)
        packages.append(Package(*shown))
    return packages


def _download(request: urllib.request.Request, target: Path, *, integrity: str) -> None:
    """Download a file that has this hash; SourceUnavailable otherwise."""
    algorithm, _, expected = integrity.partition("-")
    digest = hashlib.new(algorithm)
    total, give_up_at = 0, time.monotonic() + DOWNLOAD_SECONDS
    try:
        with (
            urllib.request.urlopen(request, timeout=FIRST_ANSWER_SECONDS) as answer,
            target.open("wb") as file,
        ):
            while chunk := answer.read(READ_BYTES):
                total += len(chunk)
                if time.monotonic() > give_up_at:
                    raise TimeoutError
                if total > MAX_ARCHIVE_BYTES:
                    raise SourceUnavailable(
                        f"{target.name} has more than {MAX_ARCHIVE_BYTES >> 20} MiB"
                    )
                digest.update(chunk)
                file.write(chunk)
    except OSError as error:  # also of urllib
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        log.info("environment.not_downloaded", url=request.full_url, error=str(error))
        raise SourceUnavailable(f"the npm registry did not give {target.stem}") from error
    if base64.b64encode(digest.digest()).decode() != expected:
        raise SourceUnavailable(
            f"{target.stem} of the npm registry is not the one of the lock file"
        )


def _unpack_npm(archive: Path, target: Path, *, only: str | None) -> None:
    """Unpack the regular files of an npm package, which are all below one directory."""
    total = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.partition("/")[2]
            if not member.isreg() or not name or (only is not None and name != only):
                continue
            total += member.size
            if total > MAX_UNPACKED_BYTES or ".." in name.split("/") or name.startswith("/"):
                raise SourceUnavailable(
                    f"{archive.stem} of the npm registry is not a valid package"
                )
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None
            with content, path.open("wb") as file:
                shutil.copyfileobj(content, file, READ_BYTES)
            path.chmod(0o755 if member.mode & 0o100 else 0o644)
