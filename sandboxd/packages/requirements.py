"""Requests for packages: names with versions and extras, and nothing that leads elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from sandboxd.errors import InvalidRequest, quoted

FIELD = "packages"
MAX_PACKAGES = 50
MAX_CHARACTERS = 200
MAX_EXTRAS = 10


class Package(NamedTuple):
    """One requested package."""

    name: NormalizedName
    extras: frozenset[NormalizedName]
    versions: SpecifierSet

    def __str__(self) -> str:
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return f"{self.name}{extras}{self.versions}"


def parse_all(texts: Sequence[str]) -> Sequence[Package]:
    """The requested packages, sorted by name; InvalidRequest names what is not accepted.

    Two requests that mean the same have the same result.
    """
    if len(texts) > MAX_PACKAGES:
        raise InvalidRequest(
            FIELD, f"must have at most {MAX_PACKAGES} packages, and has {len(texts)}"
        )
    packages: dict[str, Package] = {}
    for text in texts:
        package = parse(text)
        if package.name in packages:
            raise InvalidRequest(FIELD, f"{package.name} is named twice; name each package once")
        packages[package.name] = package
    return [packages[name] for name in sorted(packages)]


def parse(text: str) -> Package:
    """One package as in `pandas`, `plotly>=5` or `uvicorn[standard]==0.30.*`."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidRequest(
            FIELD, f"{quoted(text[:20])}...: must have at most {MAX_CHARACTERS} characters"
        )
    if not text.isascii() or not text.isprintable():
        raise _unacceptable(text, "contains characters that no package name has")
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise _unacceptable(text, "is not a package name with optional extras and versions") from (
            None
        )
    if requirement.url is not None:
        raise _unacceptable(text, "names an address, and packages come from the index only")
    if requirement.marker is not None:
        raise _unacceptable(text, "has a condition, which the environment would decide")
    if any(version.operator == "===" for version in requirement.specifier):
        raise _unacceptable(text, "uses ===; use == instead")
    if len(requirement.extras) > MAX_EXTRAS:
        raise _unacceptable(text, f"has more than {MAX_EXTRAS} extras")
    return Package(
        canonicalize_name(requirement.name),
        frozenset(map(canonicalize_name, requirement.extras)),
        requirement.specifier,
    )


def lines(packages: Iterable[Package]) -> str:
    """The packages as a file of requirements."""
    return "".join(f"{package}\n" for package in packages)


def _unacceptable(text: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        FIELD,
        f"{quoted(text)} {problem}; write it like `pandas`, `plotly>=5` or `uvicorn[standard]`",
    )
