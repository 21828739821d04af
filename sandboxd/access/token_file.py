"""The file that says who may call: one line each, with a hash and never a token.

::

    # name   scope      key
    ci       user:ada   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    ops      admin      cert:ops.example.org
    grafana  read-only  sha256:...

A scope may be of one user: `user:ada`, `read-only:ada`. Whatever is not plain in the name of a user
or of a certificate is written as in an address: `user:ada%20lovelace`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from sandboxd.access.caller import HOST, UNKNOWN, Caller, Scope

PREFIX = "sbx_"
"""Of every token, so that one in the wrong place is noticed."""
MAX_FILE_BYTES = 4 << 20
WRITABLE_BY_OTHERS = 0o022
NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
RESERVED_NAMES = frozenset({HOST.name, UNKNOWN.name, "daemon"})
"""In the audit log: who has the socket, who could not be told, and the daemon by itself."""
NAME_RULE = "a name has letters, digits and . _ @ - only, 64 at most"
_SHA256 = re.compile("[0-9a-f]{64}")
KeyKind = Literal["sha256", "cert"]


class TokensInvalid(Exception):
    """The token file cannot be used; the text tells every problem."""


@dataclass(frozen=True)
class _Entry:
    caller: Caller
    kind: KeyKind
    key: str


def new_token() -> str:
    """256 random bits: nothing that could be guessed, so a plain hash keeps it."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()


def line(caller: Caller, key: str, *, kind: KeyKind = "sha256") -> str:
    """A line of the file."""
    scope = caller.scope.value
    if caller.user_id is not None:
        scope += f":{_plain(caller.user_id)}"
    return f"{caller.name} {scope} {kind}:{_plain(key)}"


class Access:
    """The callers of a file, as it was last read. Without one every certificate is an admin's."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._tokens: Mapping[str, Caller] = {}
        self._certificates: Mapping[str, Caller] = {}
        self.reload()

    def __len__(self) -> int:
        return len(self._tokens) + len(self._certificates)

    @property
    def has_tokens(self) -> bool:
        """Whether callers can have tokens at all."""
        return self._path is not None

    def reload(self) -> None:
        """Read the file again; what is wrong with it leaves everything as it was."""
        if self._path is None:
            return
        entries = parse(_read(self._path))
        self._tokens = {one.key: one.caller for one in entries if one.kind == "sha256"}
        self._certificates = {one.key: one.caller for one in entries if one.kind == "cert"}

    def of_token(self, token: str) -> Caller | None:
        # Found by its hash: how long that takes says nothing about any token.
        return self._tokens.get(hash_of(token))

    def of_certificate(self, name: str) -> Caller | None:
        """The caller whose certificate has this common name."""
        if self._path is None:
            return Caller(name=name, scope=Scope.ADMIN)
        return self._certificates.get(name)


def parse(text: str) -> list[_Entry]:
    """The entries of a file, or TokensInvalid with all that is wrong with it."""
    entries: list[_Entry] = []
    problems: list[str] = []
    names: set[str] = set()
    keys: set[tuple[str, str]] = set()
    for number, words in _lines(text):
        try:
            entry = _entry(words)
        except ValueError as error:
            problems.append(f"line {number}: {error}")
            continue
        if entry.caller.name in names:
            problems.append(f"line {number}: there is another {entry.caller.name!r} above")
        if (entry.kind, entry.key) in keys:
            problems.append(f"line {number}: this key is of another line above too")
        names.add(entry.caller.name)
        keys.add((entry.kind, entry.key))
        entries.append(entry)
    if problems:
        raise TokensInvalid("\n".join(problems))
    return entries


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, content in enumerate(text.splitlines(), start=1):
        words = content.partition("#")[0].split()
        if words:
            yield number, words


def _entry(words: list[str]) -> _Entry:
    if len(words) != 3:
        raise ValueError("write a name, a scope and a key; `sandboxd token create` makes a line")
    name, scope, key = words
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} is what the audit log calls others; choose another name")
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    return _Entry(_caller(name, scope), *_key(key))


def _caller(name: str, scope: str) -> Caller:
    kind, separator, user_id = scope.partition(":")
    user = unquote(user_id) if separator else None
    is_known = kind in set(Scope)
    needs_user = kind == Scope.USER
    if not is_known or user == "" or (needs_user and user is None):
        raise ValueError(f"{scope!r} is no scope; write user:ID, read-only, read-only:ID or admin")
    if kind == Scope.ADMIN and user is not None:
        raise ValueError("an admin is of no user; write user:ID or admin")
    return Caller(name=name, scope=Scope(kind), user_id=user)


def _key(text: str) -> tuple[KeyKind, str]:
    kind, _, value = text.partition(":")
    if kind == "sha256" and _SHA256.fullmatch(value):
        return "sha256", value
    if kind == "cert" and value:
        return "cert", unquote(value)
    if text.startswith(PREFIX):
        raise ValueError("this is a token itself; write its hash, and make a new token")
    raise ValueError("write a key as sha256: and 64 hex digits, or cert: and a common name")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TokensInvalid(f"it cannot be read ({error.strerror})") from error
    if mode & WRITABLE_BY_OTHERS:
        raise TokensInvalid("others than its owner may write to it; chmod go-w")
    if len(data) > MAX_FILE_BYTES:
        raise TokensInvalid(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TokensInvalid("it is not UTF-8") from None


def _plain(text: str) -> str:
    return quote(text, safe="@+,:/")
