"""The token file: one line for each caller, with a hash and never a token.

::

    # name   scope      key
    ci       user:ada   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    ops      admin      cert:ops.example.org
    grafana  read-only  sha256:...
    build    user:bob   sha256:...  policies=strict,open egress=*.example.com,example.org:8443

A scope may name one user: `user:ada`, `read-only:ada`. Special characters in the name of a user or
of a certificate are percent-encoded: `user:ada%20lovelace`. `policies=` lists the command policies
that the caller may ask for; `policies=*` allows all of them. `egress=` lists hosts that the caller
may let sessions reach, beyond what everyone may; `egress=*` allows all of them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from sandboxd.access.caller import ANY_POLICY, HOST, UNKNOWN, Caller, Scope

PREFIX = "sbx_"
"""Prefix of every token, so that scanners notice a leaked one."""
MAX_FILE_BYTES = 4 << 20
WRITABLE_BY_OTHERS = 0o022
NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
RESERVED_NAMES = frozenset({HOST.name, UNKNOWN.name, "daemon"})
"""Names in the audit log for callers on the socket, unknown callers, and the daemon itself."""
NAME_RULE = "a name has 1 to 64 letters, digits or . _ @ -"
POLICIES = "policies="
EGRESS = "egress="
_POLICY = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_EGRESS_RULE = re.compile(r"\*|(\*\.)?[a-z0-9._\[\]:-]{1,253}?(:[0-9]{1,5}(\+[0-9]{1,5})*)?")
_SHA256 = re.compile("[0-9a-f]{64}")
KeyKind = Literal["sha256", "cert"]


class TokensInvalid(Exception):
    """The token file cannot be used; the text lists every problem."""


@dataclass(frozen=True)
class _Entry:
    caller: Caller
    kind: KeyKind
    key: str


def new_token() -> str:
    """A token of 256 random bits, which nobody can guess, so that a plain hash protects it."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()


def line(caller: Caller, key: str, *, kind: KeyKind = "sha256") -> str:
    """A line of the file."""
    scope = caller.scope.value
    if caller.user_id is not None:
        scope += f":{_plain(caller.user_id)}"
    policies = f" {POLICIES}{','.join(sorted(caller.policies))}" if caller.policies else ""
    egress = f" {EGRESS}{','.join(caller.egress)}" if caller.egress else ""
    return f"{caller.name} {scope} {kind}:{_plain(key)}{policies}{egress}"


class Access:
    """The callers of a token file. Without one every certificate belongs to an admin."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._tokens: Mapping[str, Caller] = {}
        self._certificates: Mapping[str, Caller] = {}
        self.reload()

    def __len__(self) -> int:
        return len(self._tokens) + len(self._certificates)

    def reload(self) -> None:
        """Read the file again; TokensInvalid leaves the callers as they were."""
        if self._path is None:
            return
        entries = parse(_read(self._path))
        self._tokens = {entry.key: entry.caller for entry in entries if entry.kind == "sha256"}
        self._certificates = {entry.key: entry.caller for entry in entries if entry.kind == "cert"}

    def find_by_token(self, token: str) -> Caller | None:
        # Looked up by its hash, so that the time it takes reveals nothing about any token.
        return self._tokens.get(hash_of(token))

    def find_by_key(self, kind: str, key: str) -> Caller | None:
        """The caller of a line with this kind of key."""
        if kind == "cert":
            return self.find_by_certificate(key)
        return self._tokens.get(key)

    def key_of(self, caller: Caller) -> tuple[KeyKind, str]:
        """The kind of key and the key in the line of a caller."""
        for key, known in self._tokens.items():
            if known == caller:
                return "sha256", key
        return "cert", next(
            (name for name, known in self._certificates.items() if known == caller), caller.name
        )

    def find_by_certificate(self, name: str) -> Caller | None:
        """The caller whose certificate has this common name."""
        if self._path is None:
            return Caller(name=name, scope=Scope.ADMIN)
        return self._certificates.get(name)


def parse(text: str) -> list[_Entry]:
    """The entries of a file; TokensInvalid with every problem in it."""
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
            problems.append(f"line {number}: the name {entry.caller.name!r} is used above")
        if (entry.kind, entry.key) in keys:
            problems.append(f"line {number}: the key is used above")
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
    if len(words) < 3:
        raise ValueError("write a name, a scope and a key; `sandboxd token create` makes a line")
    name, scope, key, *options = words
    egress = [option for option in options if option.startswith(EGRESS)]
    others = [option for option in options if option not in egress]
    if len(others) > 1 or len(egress) > 1:
        raise ValueError(
            "write a name, a scope and a key, then at most one policies= and one egress="
        )
    policies = _policies(others[0]) if others else frozenset()
    if name in RESERVED_NAMES:
        raise ValueError(f"{name} is reserved for the audit log; choose another name")
    if not NAME.fullmatch(name):
        raise ValueError(NAME_RULE)
    caller = _caller(name, scope, policies)
    if egress and caller.scope is not Scope.USER:
        raise ValueError("only a line with the scope user:ID has egress; an admin may ask for all")
    return _Entry(replace(caller, egress=_egress(egress)), *_key(key))


def _egress(options: list[str]) -> tuple[str, ...]:
    """Hosts; what they mean is checked where they are used."""
    rules = tuple(rule for option in options for rule in option.removeprefix(EGRESS).split(","))
    if not all(map(_EGRESS_RULE.fullmatch, rules)):
        raise ValueError(f"write hosts as {EGRESS}*.example.com,example.org:8443 or {EGRESS}*")
    return rules


def _policies(word: str) -> Set[str]:
    names = word.removeprefix(POLICIES).split(",")
    if not word.startswith(POLICIES) or not all(map(_is_policy, names)):
        raise ValueError(f"write the policies as {POLICIES}strict,open or {POLICIES}*")
    return frozenset(names)


def _is_policy(name: str) -> bool:
    return name == ANY_POLICY or _POLICY.fullmatch(name) is not None


def _caller(name: str, scope: str, policies: Set[str]) -> Caller:
    kind, separator, user_id = scope.partition(":")
    user = unquote(user_id) if separator else None
    is_known = kind in set(Scope)
    needs_user = kind == Scope.USER
    if not is_known or user == "" or (needs_user and user is None):
        raise ValueError(
            f"{scope!r} is not a valid scope; write user:ID, read-only, read-only:ID or admin"
        )
    if kind == Scope.ADMIN and user is not None:
        raise ValueError("an admin has no user; write user:ID or admin")
    if policies and kind != Scope.USER:
        raise ValueError(
            "only a line with the scope user:ID has policies; an admin may ask for all of them"
        )
    return Caller(name=name, scope=Scope(kind), user_id=user, policies=policies)


def _key(text: str) -> tuple[KeyKind, str]:
    kind, _, value = text.partition(":")
    if kind == "sha256" and _SHA256.fullmatch(value):
        return "sha256", value
    if kind == "cert" and value:
        return "cert", unquote(value)
    if text.startswith(PREFIX):
        raise ValueError("this is the token itself; revoke it, and write the hash of a new one")
    raise ValueError("write a key as sha256: and 64 hex digits, or cert: and a common name")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TokensInvalid(f"it cannot be read ({error.strerror})") from error
    if mode & WRITABLE_BY_OTHERS:
        raise TokensInvalid("users other than its owner can write to it; run chmod go-w")
    if len(data) > MAX_FILE_BYTES:
        raise TokensInvalid(f"it has more than {MAX_FILE_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise TokensInvalid("it is not UTF-8") from None


def _plain(text: str) -> str:
    return quote(text, safe="@+,:/")
