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
    cost: str = ""
    """A sentence about what a set may take, for those who ask for more than is listed."""

    @classmethod
    def of(
        cls, policy: str, listed: Mapping[PackageKind, Sequence[str]], cost: str = ""
    ) -> AllowedPackages:
        lists = {kind: _parsed(kind, texts) for kind, texts in listed.items()}
        return cls(PackagePolicy(policy), lists, cost)

    def check(self, kind: PackageKind, packages: Sequence[Package]) -> Sequence[Package]:
        """The packages with the operator's limits on their versions; PackagesNotAllowed names
        those that are not allowed."""
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
                self._check_names(kind, [package.name for package in packages])
                return [self._narrowed(kind, package) for package in packages]

    def _check_names(self, kind: PackageKind, names: Sequence[str]) -> None:
        listed, setting = self.listed.get(kind, ()), SETTINGS[kind]
        known = {entry.name for entry in listed}
        if missing := [name for name in names if name not in known]:
            raise PackagesNotAllowed(
                f"The operator's list does not have {', '.join(missing)}; use what it has "
                f"({_shown(listed)}), or ask the operator to add more to {setting}, or to allow "
                f"all with {_OPEN}.{self.cost}",
                package=", ".join(missing),
            )

    def _narrowed(self, kind: PackageKind, package: Package) -> Package:
        listed, setting = self.listed.get(kind, ()), SETTINGS[kind]
        (entry,) = (entry for entry in listed if entry.name == package.name)
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
