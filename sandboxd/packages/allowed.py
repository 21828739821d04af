"""Which packages sessions may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import InvalidRequest, PackagesNotAllowed
from sandboxd.packages.package import NotListed, Package
from sandboxd.packages.requests import parse

MAX_SHOWN = 60
"""Names of allowed packages that a refusal lists."""
SETTINGS = {
    PackageKind.PYTHON: "SANDBOXD_PACKAGES_ALLOW",
    PackageKind.NPM: "SANDBOXD_PACKAGES_ALLOW_NPM",
}
"""The settings with the operator's lists."""
_OPEN = "SANDBOXD_PACKAGES_POLICY=open"


class PackagePolicy(StrEnum):
    OFF = "off"
    """Sessions get no packages."""
    LISTED = "listed"
    """Only those that the operator lists. What they depend on comes with them."""
    OPEN = "open"
    """Whatever the index has."""


class InvalidAllowList(ValueError):
    """An entry of an operator's list is not a package; the text names both."""


@dataclass(frozen=True)
class AllowedPackages:
    """The operator's rule."""

    policy: PackagePolicy
    listed: Mapping[PackageKind, Sequence[Package]] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: str, listed: Mapping[PackageKind, Sequence[str]]) -> AllowedPackages:
        lists = {kind: _parsed(kind, texts) for kind, texts in listed.items()}
        return cls(PackagePolicy(policy), lists)

    def check(self, kind: PackageKind, packages: Sequence[Package]) -> Sequence[Package]:
        """The packages with the operator's limits on their versions; PackagesNotAllowed names the
        first one that is not allowed."""
        match self.policy:
            case PackagePolicy.OPEN:
                return packages
            case PackagePolicy.OFF:
                raise PackagesNotAllowed(
                    "Sessions of this daemon cannot ask for packages (SANDBOXD_PACKAGES_POLICY is "
                    "off); use what its environment has.",
                    package=packages[0].name,
                )
            case PackagePolicy.LISTED:
                return [self._narrowed(kind, package) for package in packages]

    def _narrowed(self, kind: PackageKind, package: Package) -> Package:
        listed, setting = self.listed.get(kind, ()), SETTINGS[kind]
        entries = [entry for entry in listed if entry.name == package.name]
        if not entries:
            raise PackagesNotAllowed(
                f"The package {package.name} is not on the operator's list; use one of "
                f"{_shown(listed)}, or ask the operator to add it to {setting}, or to allow all "
                f"with {_OPEN}.",
                package=package.name,
            )
        (entry,) = entries
        try:
            return package.within(entry)
        except NotListed as error:
            raise PackagesNotAllowed(
                f"The operator's list has {package.name} {error}; leave it out, or ask the "
                f"operator to add it to {setting}, or to allow all with {_OPEN}.",
                package=package.name,
            ) from None


def _parsed(kind: PackageKind, texts: Sequence[str]) -> Sequence[Package]:
    try:
        return [parse(kind, text) for text in texts]
    except InvalidRequest as error:
        raise InvalidAllowList(f"{SETTINGS[kind]}: {error.problem}") from None


def _shown(listed: Sequence[Package]) -> str:
    names = [entry.name for entry in listed]
    more = [f"{len(names) - MAX_SHOWN} more"] if len(names) > MAX_SHOWN else []
    return ", ".join([*names[:MAX_SHOWN], *more]) or "(the list is empty)"
