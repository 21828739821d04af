"""The result of a check."""

from __future__ import annotations

import enum
from dataclasses import dataclass

MAX_SHOWN = 60


class Rule(enum.StrEnum):
    """Why a command is refused."""

    FORBIDDEN_COMMAND = "forbidden-command"
    NOT_ON_ALLOW_LIST = "not-on-allow-list"
    FORBIDDEN_PATTERN = "forbidden-pattern"
    FORBIDDEN_WRITE = "forbidden-write"
    GUARDED_VARIABLE = "guarded-variable"
    NETWORK = "network"
    DYNAMIC = "dynamic"
    """Which command runs is known only at run time."""
    UNSEEN = "unseen"
    """It runs commands that cannot be seen: a script, input, a program in another language."""
    UNPARSABLE = "unparsable"
    TOO_COMPLEX = "too-complex"
    UNDEFINED_POLICY = "undefined-policy"
    """The configuration no longer has the policy of the session."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason to refuse a command."""

    rule: Rule
    command: str
    """The offending part of the command, as written or as bash would see it; shortened."""
    problem: str
    """Sentence that says what is wrong."""
    instead: str = ""
    """Sentence that says what to do instead."""

    def __str__(self) -> str:
        return f"{self.problem} {self.instead}".strip()


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a command may run, and if not, why."""

    findings: tuple[Finding, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.findings

    @property
    def explanation(self) -> str:
        """All findings as text; empty if there are none."""
        return " ".join(str(finding) for finding in self.findings)


ALLOWED = Decision()


def shown(text: str) -> str:
    """Part of a command, shortened and printable, for a sentence."""
    flat = " ".join(text.split())
    printable = "".join(letter if letter.isprintable() else "?" for letter in flat)
    return printable if len(printable) <= MAX_SHOWN else printable[: MAX_SHOWN - 3] + "..."
