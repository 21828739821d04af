"""The user that handles packages of strangers."""

from __future__ import annotations

import os
from functools import cached_property

from sandboxd.isolation.uids import UidRange


class BuildUser:
    """A uid for all builds of this daemon, which no sandbox gets, whatever a build leaves running.

    Without root it is the daemon's own.
    """

    def __init__(self, uids: UidRange) -> None:
        self._uids = uids

    @cached_property
    def uid(self) -> int:
        """Taken at the first use, and never given back."""
        return self._uids.take() if os.geteuid() == 0 else os.geteuid()
