"""Logins of the web console: keys that stand for a caller, and one-time codes to get one.

Only hashes of keys are kept. A login ends with its token: it refers to the token's hash, and finds
its caller anew at each call. The file survives a restart; codes do not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from sandboxd.access.caller import HOST, Caller
from sandboxd.access.shares import LOGIN_CODES, LOGINS, Held, Holder, evicted, holder_of
from sandboxd.access.token_file import Access

log = structlog.get_logger()

KEY_BYTES = 32
IDLE_SECONDS = 12 * 3600.0
"""A login that is not used for this long ends."""
CODE_SECONDS = 60.0
SAVE_SECONDS = 300.0
"""How much later than the file a login may end: its last use is saved that seldom."""
MAX_FILE_BYTES = 1 << 20


class Identity(NamedTuple):
    """What a login stands for: a line of the token file, or the host itself."""

    kind: str
    """`sha256`, `cert` or `host`."""
    key: str = ""


HOST_IDENTITY = Identity("host")


class _Login(NamedTuple):
    identity: Identity
    used_at: float


class _Code(NamedTuple):
    identity: Identity
    holder: Holder
    ends_at: float


class Logins:
    """The logins of one daemon. Times are by the wall clock, because they outlive the daemon."""

    def __init__(self, path: Path, access: Access | None) -> None:
        self._path = path
        self._access = access
        self._logins: dict[str, _Login] = {}
        """By the hash of their keys."""
        self._codes: dict[str, _Code] = {}
        """Hashes of one-time codes."""
        self._saved_at = 0.0

    def load(self) -> None:
        """Read what an earlier daemon has saved; a file that cannot be used ends all logins."""
        try:
            with self._path.open("rb") as file:
                saved = json.loads(file.read(MAX_FILE_BYTES))
            self._logins = {
                str(key): _Login(Identity(str(kind), str(name)), float(used_at))
                for key, (kind, name, used_at) in saved.items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("logins.not_loaded", error=str(error))

    def log_in(self, token: str) -> str | None:
        """A key for the caller with this token; None if there is none."""
        if self._access is None or self._access.find_by_token(token) is None:
            return None
        return self._new_key(Identity("sha256", _hash(token)))

    def new_code(self, caller: Caller) -> str:
        """A code that logs in as this caller, once and soon."""
        now = time.time()
        self._codes = {key: code for key, code in self._codes.items() if code.ends_at > now}
        holder = holder_of(caller)
        held = [Held(key, code.holder) for key, code in self._codes.items()]
        for key in evicted(LOGIN_CODES, held, holder):
            del self._codes[key]
        code = secrets.token_urlsafe(KEY_BYTES)
        self._codes[_hash(code)] = _Code(self._identity_of(caller), holder, now + CODE_SECONDS)
        return code

    def redeem(self, code: str) -> str | None:
        """A key for the caller of this code, which is of no use afterwards; None if it is not
        valid."""
        found = self._codes.pop(_hash(code), None)
        if found is None or found.ends_at <= time.time():
            return None
        return self._new_key(found.identity)

    def find(self, key: str) -> Caller | None:
        """The caller of a login, whose use this is; None if it has ended."""
        hashed, now = _hash(key), time.time()
        login = self._logins.get(hashed)
        if login is None:
            return None
        caller = self._caller_of(login.identity)
        if caller is None or login.used_at + IDLE_SECONDS < now:
            self._forget(hashed)
            return None
        self._logins[hashed] = login._replace(used_at=now)
        if now - self._saved_at > SAVE_SECONDS:
            self._save()
        return caller

    def log_out(self, key: str) -> None:
        self._forget(_hash(key))

    def _new_key(self, identity: Identity) -> str:
        now = time.time()
        self._logins = {
            key: login for key, login in self._logins.items() if login.used_at + IDLE_SECONDS >= now
        }
        by_use = sorted(self._logins.items(), key=lambda item: item[1].used_at)
        held = [Held(key, self._holder_of(login.identity)) for key, login in by_use]
        for hashed in evicted(LOGINS, held, self._holder_of(identity)):
            del self._logins[hashed]
        key = secrets.token_urlsafe(KEY_BYTES)
        self._logins[_hash(key)] = _Login(identity, now)
        self._save()
        return key

    def _forget(self, hashed: str) -> None:
        if self._logins.pop(hashed, None) is not None:
            self._save()

    def _identity_of(self, caller: Caller) -> Identity:
        if caller is HOST or self._access is None:
            return HOST_IDENTITY
        return Identity(*self._access.key_of(caller))

    def _holder_of(self, identity: Identity) -> Holder:
        caller = self._caller_of(identity)
        return identity if caller is None else holder_of(caller)

    def _caller_of(self, identity: Identity) -> Caller | None:
        if identity.kind == HOST_IDENTITY.kind:
            return HOST
        if self._access is None:
            return None
        return self._access.find_by_key(identity.kind, identity.key)

    def _save(self) -> None:
        """A file that cannot be written costs the logins after a restart, nothing else."""
        self._saved_at = time.time()
        content: Mapping[str, tuple[str, str, float]] = {
            key: (*login.identity, login.used_at) for key, login in self._logins.items()
        }
        unfinished = self._path.with_suffix(".new")
        try:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(unfinished, flags, 0o600), "w") as file:
                json.dump(content, file)
            unfinished.replace(self._path)
        except OSError as error:
            log.warning("logins.not_saved", error=str(error))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="backslashreplace")).hexdigest()
