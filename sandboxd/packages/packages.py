"""Packages for sessions: what is asked for becomes a set that a sandbox can show."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.environments.builds import Build
from sandboxd.environments.environment import Environment
from sandboxd.isolation.attachment import Attachment
from sandboxd.packages import requests
from sandboxd.packages.allowed import AllowedPackages
from sandboxd.packages.installer import Order
from sandboxd.packages.package import Package
from sandboxd.packages.package_sets import PackageSets
from sandboxd.packages.store import PackageSet
from sandboxd.packages.targets import Targets


class Packages:
    """Answers requests for packages, within what the operator allows."""

    def __init__(self, allowed: AllowedPackages, targets: Targets, sets: PackageSets) -> None:
        self._allowed = allowed
        self._targets = targets
        self.sets = sets

    def check(self, environment: Environment, texts: Sequence[str]) -> None:
        """InvalidRequest or PackagesNotAllowed if sessions cannot have these packages; before its
        image is known."""
        if texts:
            self._wanted(environment, texts)

    async def ensure(
        self,
        environment: Environment,
        texts: Sequence[str],
        *,
        user_id: str,
        wait_seconds: float,
    ) -> PackageSet:
        """The set for a request; PackagesNotReady if it takes longer to build than that."""
        order = await self._order(environment, texts)
        return await self.sets.ensure(order, user_id=user_id, wait_seconds=wait_seconds)

    async def find_or_build(
        self, environment: Environment, texts: Sequence[str], *, user_id: str
    ) -> PackageSet | Build[PackageSet]:
        """The set for a request, or its build."""
        order = await self._order(environment, texts)
        return self.sets.find_or_build(order, user_id=user_id)

    async def find(
        self, environment: Environment, texts: Sequence[str], *, key: str, user_id: str
    ) -> PackageSet:
        """The set with this key, if it is there and fits the environment as it is now; otherwise
        the one for the request. PackagesNotReady if that has to be built."""
        known = self.sets.get(key)
        if known is not None and known.target == await self._targets.of(environment):
            return known
        return await self.ensure(environment, texts, user_id=user_id, wait_seconds=0.0)

    def attachment(self, found: PackageSet) -> Attachment:
        """What shows a set in a sandbox."""
        return Attachment(self.sets.path(found), found.target.directory)

    async def _order(self, environment: Environment, texts: Sequence[str]) -> Order:
        packages = self._wanted(environment, texts)
        return Order(packages, environment, await self._targets.of(environment))

    def _wanted(self, environment: Environment, texts: Sequence[str]) -> Sequence[Package]:
        kind = environment.packages
        return self._allowed.check(kind, requests.parse_all(kind, texts))
