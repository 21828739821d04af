"""One requested package, of whichever kind."""

from __future__ import annotations

from typing import Protocol, Self

from sandboxd.errors import InvalidRequest, quoted

FIELD = "packages"
MAX_CHARACTERS = 200


class NotListed(ValueError):
    """A package is on the operator's list, but not in this form; the text says what is not."""


class Package(Protocol):
    """A name with versions. Its text is the one form of all requests that mean the same."""

    @property
    def name(self) -> str: ...

    def within(self, listed: Self) -> Self:
        """The package with the limits of an entry of the operator's list; NotListed if that does
        not include it."""


def unacceptable(text: str, problem: str, *, examples: str) -> InvalidRequest:
    return InvalidRequest(FIELD, f"{quoted(text)} {problem}; write it like {examples}")
