"""Requested packages of npm: names with ranges of versions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from sandboxd.errors import InvalidRequest
from sandboxd.packages.package import Package, unacceptable

MAX_NAME = 214
MAX_ALTERNATIVES = 8
MAX_COMPARATORS = 8
"""Of one alternative."""
_WORD = "[a-z0-9~-][a-z0-9._~-]*"
_NAME = re.compile(rf"(@{_WORD}/)?{_WORD}", re.ASCII)
_RESERVED = frozenset(["node_modules", "favicon.ico"])
_NUMBER = r"(?:0|[1-9]\d{0,8})"
_PART = rf"(?:{_NUMBER}|[xX*])"
_TAG = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_COMPARATOR = re.compile(
    rf"(?P<operator>>=|<=|>|<|=|~|\^)? ?v?"
    rf"(?P<version>{_PART}(?:\.{_PART}(?:\.{_PART}(?:-{_TAG})?(?:\+{_TAG})?)?)?)",
    re.ASCII,
)
_AFTER_OPERATOR = re.compile(r"(?<=[<>=~^]) +")
_ANY = frozenset(["*", "x", "X"])


class Versions(NamedTuple):
    """A range: a version fits if it meets all comparators of one alternative."""

    alternatives: frozenset[frozenset[str]]

    def __str__(self) -> str:
        return " || ".join(sorted(" ".join(sorted(one)) for one in self.alternatives))

    def __and__(self, other: Versions) -> Versions:
        return Versions(
            frozenset(one | more for one in self.alternatives for more in other.alternatives)
        )


ANY_VERSION = Versions(frozenset([frozenset()]))


class NpmPackage(NamedTuple):
    name: str
    versions: Versions

    def __str__(self) -> str:
        return f"{self.name}@{self.versions}" if str(self.versions) else self.name

    def within(self, listed: NpmPackage) -> NpmPackage:
        return self._replace(versions=self.versions & listed.versions)


def parse(text: str) -> NpmPackage:
    """One package as in `lodash`, `zod@^3` or `@types/node@20.1.0`."""
    name, at, versions = text.strip().rpartition("@")
    if not name:  # there is no `@`, or only that of a scope
        name, at, versions = text.strip(), "", ""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name) or name in _RESERVED:
        raise _unacceptable(text, "is not a package name of npm with optional versions")
    if at and not versions:
        raise _unacceptable(text, "names no version after @")
    return NpmPackage(name, _versions(text, versions) if versions else ANY_VERSION)


def manifest(packages: Iterable[Package]) -> str:
    """The packages as what a project of npm depends on."""
    dependencies = {
        package.name: str(package).removeprefix(package.name).removeprefix("@") or "*"
        for package in packages
    }
    return json.dumps(
        {"name": "sandboxd-set", "version": "0.0.0", "private": True, "dependencies": dependencies}
    )


def _versions(text: str, versions: str) -> Versions:
    alternatives = versions.split("||")
    if len(alternatives) > MAX_ALTERNATIVES:
        raise _unacceptable(text, f"has more than {MAX_ALTERNATIVES} alternatives")
    return Versions(frozenset(_alternative(text, one) for one in alternatives))


def _alternative(text: str, alternative: str) -> frozenset[str]:
    words = _AFTER_OPERATOR.sub("", alternative).split()
    if not words:
        raise _unacceptable(text, "has an empty range of versions")
    if len(words) > MAX_COMPARATORS:
        raise _unacceptable(text, f"has more than {MAX_COMPARATORS} comparators in a range")
    return frozenset(filter(None, (_comparator(text, word) for word in words)))


def _comparator(text: str, word: str) -> str:
    """One comparator in its usual form; empty if every version meets it."""
    found = _COMPARATOR.fullmatch(word)
    if found is None:
        raise _unacceptable(
            text, "has versions that are not a range: no tags, addresses, paths or other names"
        )
    operator, version = found["operator"] or "", found["version"]
    if version in _ANY:
        if operator in ("<", ">"):
            raise _unacceptable(text, "has a range that no version is in")
        return ""
    return f"{operator.removeprefix('=')}{version}"


def _unacceptable(text: str, problem: str) -> InvalidRequest:
    return unacceptable(text, problem, examples="`lodash`, `zod@^3` or `@types/node@>=20 <22`")
