"""Records of execs that outlive the daemon: labels kept by guests, and files about their ends."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import structlog

from sandboxd.execs.ending import ExitStatus, Reason
from sandboxd.execs.exec import ExecDetails
from sandboxd.guest.frames import MAX_LABEL
from sandboxd.isolation.meter import Usage

log = structlog.get_logger()

T = TypeVar("T")

_FIELDS = ExecDetails._fields
_SEAL_CHARACTERS = 32
_SUFFIX = ".end"
_REASON_SUFFIX = f"{_SUFFIX}.reason"
_MAX_FILE = 64 * 1024
_MAX_REASON = 64
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a record raises that is not as it was written."""
_MAX_NUMBER = 1 << 53
_MAX_NUMBERS = {"code": 255, "signal": 64, "peak_processes": 1 << 22, "done": 3}


class Labels:
    """Seals details of execs, so that the guest that keeps them cannot change them."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def load(cls, state_dir: Path) -> Labels:
        """Use the secret of this state directory; create it at the first use."""
        path = state_dir / "labels.secret"
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_bytes(secrets.token_bytes(32))
            fresh.rename(path)
        return cls(path.read_bytes())

    def seal(self, details: ExecDetails, sandbox_id: str) -> str:
        text = json.dumps(details, separators=(",", ":"))
        if len(text) + _SEAL_CHARACTERS > MAX_LABEL:
            return self.seal(_shortened(details), sandbox_id)
        return self._seal(text, sandbox_id) + text

    def open(self, label: bytes, sandbox_id: str) -> ExecDetails | None:
        """The details, if a daemon of this state directory sealed them for this sandbox."""
        text = self.open_text(label, sandbox_id)
        if text is None:
            return None
        try:
            # Earlier releases knew fewer fields, the first ones.
            return _made(ExecDetails, dict(zip(_FIELDS, json.loads(text), strict=False)))
        except _DAMAGED:
            return None  # sealed by a release with other fields

    def seal_text(self, text: str, sandbox_id: str) -> str:
        """A text that the guest keeps, sealed likewise."""
        return self._seal(text, sandbox_id) + text

    def open_text(self, label: bytes, sandbox_id: str) -> str | None:
        """The text, if a daemon of this state directory sealed it for this sandbox."""
        sealed = label.decode(errors="replace")
        seal, text = sealed[:_SEAL_CHARACTERS], sealed[_SEAL_CHARACTERS:]
        is_ours = hmac.compare_digest(seal.encode(), self._seal(text, sandbox_id).encode())
        return text if is_ours else None

    def _seal(self, text: str, sandbox_id: str) -> str:
        message = f"{sandbox_id} {text}".encode(errors="surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()[:_SEAL_CHARACTERS]


def _shortened(details: ExecDetails) -> ExecDetails:
    return details._replace(command=details.command[: len(details.command) // 2])


def key_prefix(key: str) -> str:
    """The part of a key that all execs of a session have."""
    return f"{key.partition('-')[0]}-"


class ExecRecords:
    """Files about execs: why the daemon is ending one, and how it ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._found: dict[str, list[Path]] | None = None
        """Files that the sweep left, by prefix: one look at the directory serves all sessions."""

    def save_reason(self, key: str, reason: Reason) -> None:
        """Record why an exec is about to be ended: its guest reports only that it was killed, and
        perhaps to the next daemon."""
        try:
            self._reason_path(key).write_text(reason.name)
        except OSError as error:
            log.warning("exec.reason_not_recorded", error=str(error))

    def load_reason(self, key: str) -> Reason | None:
        """Why an earlier daemon was ending an exec; None if it was not."""
        try:
            with self._reason_path(key).open() as file:
                return Reason[file.read(_MAX_REASON)]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            log.warning("exec.record_unreadable", error=str(error))
            return None

    def save(self, key: str, details: ExecDetails, status: ExitStatus) -> None:
        record = {
            "facts": details._asdict(),
            "status": {
                **status._asdict(),
                "reason": status.reason.name,
                "usage": status.usage._asdict() if status.usage else None,
            },
        }
        path = self._path(key)
        unfinished = path.with_name(path.name + ".part")
        try:
            unfinished.write_text(json.dumps(record))
            unfinished.rename(path)
            self._reason_path(key).unlink(missing_ok=True)
        except OSError as error:
            # Readers find it until the daemon restarts.
            log.warning("exec.not_recorded", error=str(error))

    def load(self, prefix: str) -> Iterator[tuple[str, ExecDetails, ExitStatus]]:
        """All records whose key has this prefix; behind a sweep, those that it found."""
        if self._found is None:
            paths = list(self._directory.glob(f"{prefix}*{_SUFFIX}"))
        else:
            paths = [path for path in self._found.pop(prefix, ()) if path.suffix == _SUFFIX]
        for path in sorted(paths):
            try:
                with path.open() as file:
                    record = json.loads(file.read(_MAX_FILE))
                yield (
                    path.name.removesuffix(_SUFFIX),
                    _made(ExecDetails, record["facts"]),
                    _status(record),
                )
            except (OSError, *_DAMAGED) as error:
                log.warning("exec.record_unreadable", error=str(error))

    def delete(self, key: str) -> None:
        for path in (self._path(key), self._reason_path(key)):
            path.unlink(missing_ok=True)

    def sweep(self, prefixes: tuple[str, ...]) -> None:
        """Delete all records whose key has none of these prefixes."""
        self._found = {prefix: [] for prefix in prefixes}
        for path in self._directory.glob(f"*{_SUFFIX}*"):
            if (found := self._found.get(key_prefix(path.name))) is not None:
                found.append(path)
            else:
                path.unlink(missing_ok=True)

    def delete_all(self, prefix: str) -> None:
        """Delete all records whose key has this prefix."""
        for path in self._directory.glob(f"{prefix}*{_SUFFIX}*"):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"

    def _reason_path(self, key: str) -> Path:
        return self._directory / f"{key}{_REASON_SUFFIX}"


def _status(record: dict[str, Any]) -> ExitStatus:
    fields = dict(record["status"])
    usage = fields.pop("usage")
    reason = Reason[fields.pop("reason")]
    used = _made(Usage, usage) if usage else None
    return _made(ExitStatus, {**fields, "reason": reason, "usage": used})


def _made(kind: type[T], fields: Mapping[str, Any]) -> T:
    """An object of a record; TypeError or ValueError if a field cannot be what was recorded."""
    types = get_type_hints(kind)
    for name, value in fields.items():
        expected = types.get(name, str)
        is_number = isinstance(value, int | float)
        if not isinstance(value, expected | int if _takes_float(expected) else expected):
            raise TypeError(f"{name} is of a wrong type")
        if is_number and not 0 <= value <= _MAX_NUMBERS.get(name, _MAX_NUMBER):
            raise ValueError(f"{name} is out of range")
    return kind(**fields)


def _takes_float(expected: Any) -> bool:
    return expected is float or float in get_args(expected)
