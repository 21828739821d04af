"""Fetches the archives of a lock and checks them.

Runs in the confined worker, with nothing but the standard library. Reports with lines of JSON.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sandboxd.environments.addresses import request_for
from sandboxd.packages.archive_check import check_wheel
from sandboxd.packages.work_report import Refused, TooLarge, for_each, report

_CHUNK_BYTES = 256 << 10
_REPORT_SECONDS = 0.2
_TRIES = 3
_PAUSE_SECONDS = 0.5
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class FetchFailed(Refused):
    """An archive cannot be had."""


class WrongHash(Refused):
    """An archive is not the one that was locked."""


class Limits(NamedTuple):
    archive_bytes: int
    """All archives together, as they are transferred."""
    unpacked_bytes: int
    files: int
    idle_seconds: float
    """How long the index may send nothing."""


class Fetcher:
    """Fetches one archive after the other into a directory."""

    def __init__(self, directory: Path, limits: Limits, *, index: str) -> None:
        self._directory = directory
        self._limits = limits
        self._index = index
        self._reported_at = 0.0
        self._fetched = 0
        """Bytes of all archives so far."""
        self._unpacked = 0
        self._files = 0
        # Only these: the usual opener also reads files of the host.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPDefaultErrorHandler,
            _Redirects,
            urllib.request.HTTPErrorProcessor,
        ):
            self._opener.add_handler(handler())

    def fetch(self, archive: Mapping[str, Any]) -> None:
        """Fetch one archive, and check it if it is a wheel; the errors of this module, or of
        `archive_check`."""
        path = self._directory / archive["file_name"]
        before = self._fetched
        for attempt in range(1, _TRIES + 1):
            self._fetched = before
            try:
                self._transfer(archive, path)
                break
            except (OSError, http.client.HTTPException) as error:
                if getattr(error, "errno", None) in _FULL:
                    raise TooLarge("more than fits on the disk for building") from None
                if attempt == _TRIES or _is_final(error):
                    raise FetchFailed(_reason(error)) from None
                time.sleep(_PAUSE_SECONDS * attempt)
        if path.suffix == ".whl":
            self._check_wheel(path)

    def _check_wheel(self, path: Path) -> None:
        limits = self._limits
        unpacked, files = check_wheel(
            path,
            max_bytes=limits.unpacked_bytes - self._unpacked,
            max_files=limits.files - self._files,
        )
        self._unpacked += unpacked
        self._files += files

    def _transfer(self, archive: Mapping[str, Any], path: Path) -> None:
        request = request_for(archive["url"], index=self._index)
        algorithm, _, expected = archive["digest"].partition(":")
        digest = hashlib.new(algorithm)
        with (
            self._opener.open(request, timeout=self._limits.idle_seconds) as response,
            path.open("wb") as file,
        ):
            self._check_size(_announced(response.headers.get("Content-Length")))
            while chunk := response.read(_CHUNK_BYTES):
                self._check_size(len(chunk))
                self._fetched += len(chunk)
                digest.update(chunk)
                file.write(chunk)
                self._show(archive["name"])
        if digest.hexdigest() != expected:
            raise WrongHash

    def _check_size(self, more: int) -> None:
        if self._fetched + more > self._limits.archive_bytes:
            raise TooLarge(f"more than {self._limits.archive_bytes >> 20} MiB to download")

    def _show(self, name: str) -> None:
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            report({"fetching": name, "bytes": self._fetched})


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https, and leaves credentials behind."""

    def redirect_request(self, *args: Any) -> urllib.request.Request | None:
        request = super().redirect_request(*args)
        if request is not None:
            if urlsplit(request.full_url).scheme not in ("http", "https"):
                return None
            request.remove_header("Authorization")
        return request


def run(job: Mapping[str, Any]) -> int:
    """Fetch every archive of a job."""
    fetcher = Fetcher(Path(job["directory"]), Limits(**job["limits"]), index=job["index"])
    return for_each(job["archives"], fetcher.fetch)


def _announced(length: str | None) -> int:
    return int(length) if length and length.isascii() and length.isdigit() else 0


def _is_final(error: Exception) -> bool:
    """Whether another attempt would end the same way."""
    return isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500


def _reason(error: Exception) -> str:
    """What went wrong, without the address, which may contain credentials."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the index answers with status {error.code}"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    strerror = getattr(inner, "strerror", None)
    return str(strerror or type(inner).__name__)
