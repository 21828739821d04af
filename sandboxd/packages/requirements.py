"""Requested packages of Python: names with versions and extras."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from sandboxd.errors import InvalidRequest
from sandboxd.packages.package import NotListed, Package, unacceptable

MAX_EXTRAS = 10


class PythonPackage(NamedTuple):
    name: NormalizedName
    extras: frozenset[NormalizedName]
    versions: SpecifierSet

    def __str__(self) -> str:
        extras = f"[{','.join(sorted(self.extras))}]" if self.extras else ""
        return f"{self.name}{extras}{self.versions}"

    def within(self, listed: PythonPackage) -> PythonPackage:
        if missing := sorted(self.extras - listed.extras):
            raise NotListed(f"without the extra {missing[0]}")
        return self._replace(versions=self.versions & listed.versions)


def parse(text: str) -> PythonPackage:
    """One package as in `pandas`, `plotly>=5` or `uvicorn[standard]==0.30.*`."""
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
    return PythonPackage(
        canonicalize_name(requirement.name),
        frozenset(map(canonicalize_name, requirement.extras)),
        requirement.specifier,
    )


def lines(packages: Iterable[Package]) -> str:
    """The packages as a file of requirements."""
    return "".join(f"{package}\n" for package in packages)


def _unacceptable(text: str, problem: str) -> InvalidRequest:
    return unacceptable(text, problem, examples="`pandas`, `plotly>=5` or `uvicorn[standard]`")
