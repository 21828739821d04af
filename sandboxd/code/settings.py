"""Settings of contexts, for all sessions of a daemon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sandboxd.errors import InvalidRequest, quoted

OPEN, STRICT = "open", "strict"
"""Built-in policies: everything, or what the runner's own lists allow."""
BUILT_IN_POLICIES: Mapping[str, Mapping[str, object]] = {OPEN: {}, STRICT: {"name": STRICT}}
MEBIBYTE = 1 << 20


class Limits(NamedTuple):
    """Limits of contexts. Memory, CPU and threads are for all contexts of a session together."""

    memory_bytes: int = 256 * MEBIBYTE
    cpu_percent: int = 50
    open_files: int = 100
    threads: int = 10
    """Threads and processes for each context, besides its first."""
    timeout_seconds: float = 30.0
    """Time of a run that does not ask for another."""


SETTINGS = {
    "memory_bytes": "SANDBOXD_CODE_MEMORY",
    "cpu_percent": "SANDBOXD_CODE_CPU_PERCENT",
    "open_files": "SANDBOXD_CODE_OPEN_FILES",
    "threads": "SANDBOXD_CODE_THREADS",
    "timeout_seconds": "SANDBOXD_CODE_TIMEOUT_SECONDS",
}
"""Where an operator sets each limit."""


@dataclass(frozen=True, kw_only=True)
class CodeSettings:
    limits: Limits = field(default_factory=Limits)
    max_contexts: int = 8
    """Contexts of one session."""
    policies: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Policies by name, as the runner takes them, besides the built-in ones."""
    policy: str = OPEN
    """Policy of contexts that ask for no other."""
    preload: Sequence[str] = ()
    """Modules that the parent of contexts imports ahead."""

    def policy_of(self, name: str) -> Mapping[str, object]:
        """InvalidRequest unless the configuration has it."""
        known = {**BUILT_IN_POLICIES, **self.policies}
        if name not in known:
            raise InvalidRequest(
                "policy",
                f"this daemon has no code policy {quoted(name)}; it has {', '.join(sorted(known))}",
            )
        return known[name]

    def limits_of(self, asked: Limits) -> Limits:
        """The asked limits, with the daemon's own in place of 0; InvalidRequest above those."""
        found = []
        for name, most in self.limits._asdict().items():
            value = getattr(asked, name)
            if value > most:
                raise InvalidRequest(
                    f"limits.{name}",
                    f"must be at most {most}, the {SETTINGS[name]} of this daemon; ask for less, "
                    "or have the operator raise it",
                )
            found.append(value or most)
        return Limits(*found)
