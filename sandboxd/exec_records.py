"""What outlives the daemon of its execs: labels that guests keep, and files about ended ones."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from sandboxd.execs import ExitStatus, Facts, Reason
from sandboxd.guest.frames import MAX_LABEL
from sandboxd.isolation.meter import Usage

log = structlog.get_logger()

_FIELDS = Facts._fields
_SEAL_CHARACTERS = 32
_SUFFIX = ".end"
_MAX_FILE = 64 * 1024


class Labels:
    """Facts about an exec in words that its guest keeps and cannot change."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def of(cls, state_dir: Path) -> Labels:
        """With the secret of this state directory, made at the first use."""
        path = state_dir / "labels.secret"
        if not path.exists():
            fresh = path.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_bytes(secrets.token_bytes(32))
            fresh.rename(path)
        return cls(path.read_bytes())

    def seal(self, facts: Facts, sandbox_id: str) -> str:
        text = json.dumps(facts, separators=(",", ":"))
        if len(text) + _SEAL_CHARACTERS > MAX_LABEL:
            return self.seal(_shortened(facts), sandbox_id)
        return self._seal(text, sandbox_id) + text

    def open(self, label: bytes, sandbox_id: str) -> Facts | None:
        """The facts, if they are ours and about this sandbox."""
        text = label.decode(errors="replace")
        seal, text = text[:_SEAL_CHARACTERS], text[_SEAL_CHARACTERS:]
        if not hmac.compare_digest(seal.encode(), self._seal(text, sandbox_id).encode()):
            return None
        try:
            # A release before this one knew fewer fields, the first ones.
            return Facts(**dict(zip(_FIELDS, json.loads(text), strict=False)))
        except (ValueError, TypeError):
            return None  # of another version of ours

    def _seal(self, text: str, sandbox_id: str) -> str:
        message = f"{sandbox_id} {text}".encode(errors="surrogatepass")
        return hmac.digest(self._secret, message, "sha256").hex()[:_SEAL_CHARACTERS]


def _shortened(facts: Facts) -> Facts:
    return facts._replace(command=facts.command[: len(facts.command) // 2])


class ExecRecords:
    """Files about ended execs, one each, beside their output."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def save(self, key: str, facts: Facts, status: ExitStatus) -> None:
        record = {
            "facts": facts._asdict(),
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
        except OSError as error:
            # Late readers after a restart will not find it; those before do.
            log.warning("exec.not_recorded", error=str(error))

    def load(self, prefix: str) -> Iterator[tuple[str, Facts, ExitStatus]]:
        """All records whose key begins so."""
        for path in sorted(self._directory.glob(f"{prefix}*{_SUFFIX}")):
            try:
                with path.open() as file:
                    record = json.loads(file.read(_MAX_FILE))
                yield path.name.removesuffix(_SUFFIX), Facts(**record["facts"]), _status(record)
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.warning("exec.record_unreadable", error=str(error))

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def sweep(self, prefixes: tuple[str, ...]) -> None:
        """Delete all but those whose key begins with one of these."""
        for path in self._directory.glob(f"*{_SUFFIX}*"):
            if not path.name.startswith(prefixes):
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"


def _status(record: dict[str, Any]) -> ExitStatus:
    fields = dict(record["status"])
    usage = fields.pop("usage")
    reason = Reason[fields.pop("reason")]
    return ExitStatus(**fields, reason=reason, usage=Usage(**usage) if usage else None)
