"""Paths in sessions, as given on the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sandboxd.cli.failure import USAGE, Failure
from sandboxd.cli.target import SESSION_ID

_REMOTE = re.compile(rf"({SESSION_ID.pattern}|[^/:.][^/:]*/[^/:]+):(.*)", re.DOTALL)


@dataclass(frozen=True)
class RemotePlace:
    """A path in the workspace of a session."""

    session: str
    path: str
    """Relative to the workspace, or absolute below it."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """SESSION:PATH; None for anything else. A local path can begin with ./ or /."""
        match = _REMOTE.fullmatch(text)
        return cls(match[1], match[2]) if match else None

    @classmethod
    def parse_all(cls, words: Sequence[str]) -> list[Self]:
        """SESSION:PATH..., or a SESSION and its PATH...; a SESSION alone is its workspace."""
        if cls.parse(words[0]) is None:
            session, *paths = words
            return [cls(session, path) for path in paths or [""]]
        places = []
        for word in words:
            if (place := cls.parse(word)) is None:
                raise Failure(f"{word!r} must be SESSION:PATH, like the first one", USAGE)
            places.append(place)
        return places

    @property
    def is_directory(self) -> bool:
        """Whether the path is written as a directory."""
        return self.path in ("", ".") or self.path.endswith(("/", "/."))
