"""Which packages sessions may ask for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxd.errors import InvalidRequest, PackagesNotAllowed
from sandboxd.packages.requirements import Package, parse

MAX_SHOWN = 60
"""Names of allowed packages that a refusal lists."""


class PackagePolicy(StrEnum):
    OFF = "off"
    """Sessions get no packages."""
    LISTED = "listed"
    """Only those that the operator lists. What they depend on comes with them."""
    OPEN = "open"
    """Whatever the index has."""


class InvalidAllowList(ValueError):
    """An entry of the operator's list is not a package; the text names it."""


@dataclass(frozen=True)
class AllowedPackages:
    """The operator's rule."""

    policy: PackagePolicy
    listed: Sequence[Package] = field(default=())

    @classmethod
    def of(cls, policy: str, listed: Sequence[str]) -> AllowedPackages:
        try:
            return cls(PackagePolicy(policy), [parse(text) for text in listed])
        except InvalidRequest as error:
            raise InvalidAllowList(error.problem) from None

    def check(self, packages: Sequence[Package]) -> Sequence[Package]:
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
                return [self._narrowed(package) for package in packages]

    def _narrowed(self, package: Package) -> Package:
        entries = [entry for entry in self.listed if entry.name == package.name]
        if not entries:
            raise PackagesNotAllowed(
                f"The package {package.name} is not on the operator's list; use one of "
                f"{self._shown}, or ask the operator to add it to SANDBOXD_PACKAGES_ALLOW.",
                package=package.name,
            )
        (entry,) = entries
        if missing := sorted(package.extras - entry.extras):
            raise PackagesNotAllowed(
                f"The operator's list has {package.name} without the extra {missing[0]}; leave it "
                "out, or ask the operator to add it to SANDBOXD_PACKAGES_ALLOW.",
                package=package.name,
            )
        return package._replace(versions=package.versions & entry.versions)

    @property
    def _shown(self) -> str:
        names = [entry.name for entry in self.listed]
        more = [f"{len(names) - MAX_SHOWN} more"] if len(names) > MAX_SHOWN else []
        return ", ".join([*names[:MAX_SHOWN], *more]) or "(the list is empty)"
