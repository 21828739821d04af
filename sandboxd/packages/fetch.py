"""Fetches the wheels of a lock and checks them.

Runs in the confined worker, with nothing but the standard library. Reports with lines of JSON.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import http.client
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from sandboxd.packages.archive_check import ArchiveTooLarge, ArchiveUnsafe, check_wheel

_CHUNK_BYTES = 256 << 10
_REPORT_SECONDS = 0.2
_TRIES = 3
_PAUSE_SECONDS = 0.5
_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


class FetchFailed(Exception):
    """A wheel cannot be had."""


class TooLarge(Exception):
    """The wheels are larger than allowed; the text says how large."""


class WrongHash(Exception):
    """A wheel is not the one that was locked."""


class Limits(NamedTuple):
    wheel_bytes: int
    """All wheels together, as they are transferred."""
    unpacked_bytes: int
    files: int
    idle_seconds: float
    """How long the index may send nothing."""


class Fetcher:
    """Fetches one wheel after the other into a directory."""

    def __init__(
        self,
        directory: Path,
        limits: Limits,
        *,
        index: str,
        report: Callable[[Mapping[str, object]], None],
    ) -> None:
        self._directory = directory
        self._limits = limits
        self._index = urlsplit(index)
        self._report = report
        self._reported_at = 0.0
        self._fetched = 0
        """Bytes of all wheels so far."""
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

    def fetch(self, wheel: Mapping[str, Any]) -> None:
        """Fetch one wheel and check it; the errors of this module, or of `archive_check`."""
        path = self._directory / wheel["file_name"]
        before = self._fetched
        for attempt in range(1, _TRIES + 1):
            self._fetched = before
            try:
                self._transfer(wheel, path)
                break
            except (OSError, http.client.HTTPException) as error:
                if getattr(error, "errno", None) in _FULL:
                    raise TooLarge("more than fits on the disk for building") from None
                if attempt == _TRIES or _is_final(error):
                    raise FetchFailed(_reason(error)) from None
                time.sleep(_PAUSE_SECONDS * attempt)
        limits = self._limits
        unpacked, files = check_wheel(
            path,
            max_bytes=limits.unpacked_bytes - self._unpacked,
            max_files=limits.files - self._files,
        )
        self._unpacked += unpacked
        self._files += files

    def _transfer(self, wheel: Mapping[str, Any], path: Path) -> None:
        request = self._request(wheel["url"])
        digest = hashlib.sha256()
        with (
            self._opener.open(request, timeout=self._limits.idle_seconds) as response,
            path.open("wb") as file,
        ):
            while chunk := response.read(_CHUNK_BYTES):
                self._fetched += len(chunk)
                if self._fetched > self._limits.wheel_bytes:
                    raise TooLarge(f"more than {self._limits.wheel_bytes >> 20} MiB to download")
                digest.update(chunk)
                file.write(chunk)
                self._tell(wheel["name"])
        if digest.hexdigest() != wheel["sha256"]:
            raise WrongHash

    def _tell(self, name: str) -> None:
        now = time.monotonic()
        if now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            self._report({"fetching": name, "bytes": self._fetched})

    def _request(self, url: str) -> urllib.request.Request:
        """With the credentials of the address, or of the index if it is on the same host."""
        headers = {"User-Agent": "sandboxd", "Accept-Encoding": "identity"}
        index, place = self._index, urlsplit(url)
        known = [place, index] if _origin(index) == _origin(place) else [place]
        if given := next((one for one in known if one.username), None):
            pair = f"{unquote(given.username or '')}:{unquote(given.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        plain = place._replace(netloc=place.netloc.rpartition("@")[2])
        return urllib.request.Request(urlunsplit(plain), headers=headers)


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
    """Fetch every wheel of a job; the last line is the outcome."""
    fetcher = Fetcher(
        Path(job["directory"]), Limits(**job["limits"]), index=job["index"], report=_print
    )
    wheels: Sequence[Mapping[str, Any]] = job["wheels"]
    for wheel in wheels:
        try:
            fetcher.fetch(wheel)
        except MemoryError:
            _print({"failed": TooLarge.__name__, "name": wheel["name"], "why": "too many files"})
            return 1
        except (FetchFailed, TooLarge, WrongHash, ArchiveUnsafe, ArchiveTooLarge) as error:
            _print({"failed": type(error).__name__, "name": wheel["name"], "why": str(error)})
            return 1
    _print({"done": len(wheels)})
    return 0


def _origin(address: SplitResult) -> tuple[str, str | None, int | None]:
    return address.scheme, address.hostname, address.port


def _print(line: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


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
