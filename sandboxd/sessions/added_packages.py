"""The packages of sessions: which set each has, and what shows it in a sandbox."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from sandboxd.environments.environment import Environment
from sandboxd.errors import InvalidRequest
from sandboxd.isolation.attachment import Attachment
from sandboxd.packages.packages import Packages
from sandboxd.packages.store import PackageSet
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sessions.book import SessionBook
from sandboxd.sessions.session import Session


class AddedPackages:
    """Finds the sets of sessions. A session without packages has none."""

    def __init__(self, packages: Packages | None) -> None:
        """None for a daemon that cannot add packages."""
        self._packages = packages

    def start_sweeping(self, in_use: Callable[[], Collection[str]]) -> None:
        """From now on, when all sessions are known, sets that none of them uses may be deleted."""
        if self._packages is not None:
            self._packages.sets.start_sweeping(in_use)

    async def find(self, environment: Environment, record: SessionRecord) -> PackageSet | None:
        """The set that a session has, or the one for its packages if that is gone.

        PackagesNotReady if there is none; `prepare` waits for it.
        """
        if not record.packages:
            return None
        if self._packages is None:
            raise InvalidRequest("packages", "this daemon cannot add packages to a session")
        return await self._packages.find(
            environment, record.packages, key=record.package_set, user_id=record.user_id
        )

    @contextmanager
    def held(self, found: PackageSet | None) -> Iterator[Sequence[Attachment]]:
        """What shows a set, which is kept until the session is known to have it."""
        if found is None or self._packages is None:
            yield ()
            return
        with self._packages.sets.held(found):
            yield (self._packages.attachment(found),)


def sets_in_use(sessions: SessionBook[Session]) -> Collection[str]:
    """Keys of the sets of all sessions that are open, or that can still come back."""
    states = (SessionState.ACTIVE, SessionState.LOST, SessionState.PARKED)
    return {
        session.record.package_set for session in sessions if session.record.state in states
    } - {""}
