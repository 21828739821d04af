"""What a check finds."""

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
    """Which command runs is only known when it does."""
    UNSEEN = "unseen"
    """It runs commands that are not in front of us: a script, input, a program's own language."""
    UNPARSABLE = "unparsable"
    TOO_COMPLEX = "too-complex"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that speaks against a command."""

    rule: Rule
    command: str
    """The part that it is about, as it was written or as bash would see it; shortened."""
    problem: str
    """A sentence: what is wrong."""
    instead: str = ""
    """A sentence: what is allowed."""

    def __str__(self) -> str:
        return f"{self.problem} {self.instead}".strip()


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a command may run, and what speaks against it."""

    findings: tuple[Finding, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.findings

    @property
    def explanation(self) -> str:
        """Every finding in words; empty when there is none."""
        return " ".join(str(finding) for finding in self.findings)


ALLOWED = Decision()


def shown(text: str) -> str:
    """A part of a command, fit to be repeated in a sentence."""
    flat = " ".join(text.split())
    printable = "".join(one if one.isprintable() else "?" for one in flat)
    return printable if len(printable) <= MAX_SHOWN else printable[: MAX_SHOWN - 3] + "..."
