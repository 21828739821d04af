"""A context of a session, as the daemon knows it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

from sandboxd.code.settings import Limits
from sandboxd.errors import InvalidRequest, RequestTooLarge
from sandboxd.execs.ending import ExitStatus, Reason
from sandboxd.execs.spec import check_env
from sandboxd.guest.frames import ContextPhase, Ending
from sandboxd.guest.frames import ContextState as GuestContext

MAIN = "main"
"""Name of the context that every session has."""
PYTHON, JAVASCRIPT = "python", "javascript"
LANGUAGES = (PYTHON, JAVASCRIPT)
INTERPRETERS = {PYTHON: "python3", JAVASCRIPT: "node"}
"""Programs that a command policy has to allow for code of a language."""
MAX_ENV_BYTES = 16 << 10
"""Variables of a context, which travel with each start."""
MAX_CWD_BYTES = 4096


class ContextPlan(NamedTuple):
    """What a context is made with."""

    language: str = PYTHON
    cwd: str = ""
    env: Mapping[str, str] = {}
    policy: str = ""
    limits: Limits = Limits(0, 0, 0, 0, 0.0)
    """As they were asked for: 0 means the daemon's own."""

    def check(self) -> None:
        """InvalidRequest unless it can be used."""
        if self.language not in LANGUAGES:
            raise InvalidRequest("language", f"must be one of {', '.join(LANGUAGES)}")
        if "\0" in self.cwd or len(self.cwd.encode()) > MAX_CWD_BYTES:
            raise InvalidRequest("cwd", f"must have at most {MAX_CWD_BYTES} bytes and no NUL")
        check_env(self.env)
        if sum(len(name) + len(value) for name, value in self.env.items()) > MAX_ENV_BYTES:
            raise RequestTooLarge("env", f"must have at most {MAX_ENV_BYTES} bytes in all")

    def difference(self, other: ContextPlan) -> str:
        """Name of the first field that differs; empty if none does."""
        fields = zip(self._fields, self, other, strict=True)
        return next((name for name, ours, theirs in fields if ours != theirs), "")

    def encode(self) -> str:
        return json.dumps([*self[:-1], list(self.limits)], separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> ContextPlan:
        language, cwd, env, policy, limits = json.loads(text)
        return cls(language, cwd, env, policy, Limits(*limits))


class Phase(Enum):
    IDLE = auto()
    BUSY = auto()
    LOST = auto()


@dataclass
class Context:
    """A context. The guest decides which generation there is; this is what was last heard."""

    name: str
    plan: ContextPlan
    policy: str
    """Name of the policy in force."""
    generation: int = 0
    """0 until it has a process."""
    runs: int = 0
    is_lost: bool = False
    lost: ExitStatus | None = None
    """How the process of the previous generation ended, or of this one if it is lost."""
    version: str = ""
    background: bytes = b""
    started_at: float = 0.0
    exec_id: str = field(default="")
    """The run that it is busy with."""

    @property
    def phase(self) -> Phase:
        if self.exec_id:
            return Phase.BUSY
        return Phase.LOST if self.is_lost else Phase.IDLE

    def take(self, state: GuestContext) -> None:
        """Take over what its guest says."""
        self.generation, self.runs = state.generation, state.runs
        self.background = state.background
        self.version = state.version or self.version
        was_lost, self.is_lost = self.is_lost, state.phase is ContextPhase.LOST
        if self.is_lost and not was_lost:
            self.lost = _loss(state)


def _loss(state: GuestContext) -> ExitStatus:
    is_code = state.ending is not Ending.SIGNAL
    what = f"ended with code {state.value}" if is_code else f"was ended by signal {state.value}"
    return ExitStatus(
        reason=Reason.EXITED if is_code else Reason.SIGNALLED,
        duration_seconds=0.0,
        stdout_bytes=0,
        stderr_bytes=0,
        hint=f"The process of the context {what} between two runs; its variables are lost.",
        code=state.value if is_code else None,
        signal=None if is_code else state.value,
    )


def plan_of(text: str) -> ContextPlan | None:
    """The plan in a label; None if a release with other fields sealed it."""
    try:
        return ContextPlan.decode(text)
    except (ValueError, TypeError):
        return None


Settings = dict[str, Any]
"""As the guest's encode_settings takes them."""
