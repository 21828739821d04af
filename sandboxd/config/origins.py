"""Origins of settings, problems with them, and names that were probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple


@dataclass(frozen=True)
class Origin:
    """The origin of a value."""

    kind: Literal["flag", "environment", "file", "default"]
    name: str = ""
    """Name of the flag, the variable or the file."""
    line: int | None = None
    """Line in the file, if it could be determined."""

    def __str__(self) -> str:
        if self.kind == "file" and self.line is not None:
            return f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}" if self.kind == "environment" else self.name or self.kind


class Given(NamedTuple):
    """A value with its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True)
class Problem:
    """One thing to correct; the text says how."""

    origin: Origin
    text: str

    def __str__(self) -> str:
        return self.text if self.origin.kind == "default" else f"{self.origin}: {self.text}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to this one, or has all its words, if any."""
    names = list(known)
    if found := get_close_matches(name, names, n=1, cutoff=0.7):
        return found[0]
    words = set(name.split("_"))
    having = [candidate for candidate in names if words <= set(candidate.split("_"))]
    return min(having, key=len, default=None)
