"""Requests for packages: names with versions, and nothing that leads elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import InvalidRequest, quoted
from sandboxd.packages import npm_requests, requirements
from sandboxd.packages.package import FIELD, MAX_CHARACTERS, Package

MAX_PACKAGES = 50
_GRAMMARS: Mapping[PackageKind, Callable[[str], Package]] = {
    PackageKind.PYTHON: requirements.parse,
    PackageKind.NPM: npm_requests.parse,
}


def parse_all(kind: PackageKind, texts: Sequence[str]) -> Sequence[Package]:
    """The requested packages, sorted by name; InvalidRequest names what is not accepted.

    Two requests that mean the same have the same result.
    """
    check_bounds(texts)
    packages: dict[str, Package] = {}
    for text in texts:
        package = parse(kind, text)
        if package.name in packages:
            raise InvalidRequest(FIELD, f"{package.name} is named twice; name each package once")
        packages[package.name] = package
    return [packages[name] for name in sorted(packages)]


def parse(kind: PackageKind, text: str) -> Package:
    return _GRAMMARS[kind](text)


def normal(kind: PackageKind, texts: Sequence[str]) -> tuple[str, ...]:
    """The one form of a request that is kept and compared."""
    return tuple(map(str, parse_all(kind, texts)))


def check_bounds(texts: Sequence[str]) -> None:
    """InvalidRequest for what no kind of package looks like."""
    if len(texts) > MAX_PACKAGES:
        raise InvalidRequest(
            FIELD, f"must have at most {MAX_PACKAGES} packages, and has {len(texts)}"
        )
    for text in texts:
        if len(text) > MAX_CHARACTERS:
            raise InvalidRequest(
                FIELD, f"{quoted(text[:20])}...: must have at most {MAX_CHARACTERS} characters"
            )
        if not text.isascii() or not text.isprintable():
            raise InvalidRequest(
                FIELD, f"{quoted(text)} contains characters that no package name has"
            )
