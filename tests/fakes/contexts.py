"""Contexts of a fake guest: a name, a generation, and how many runs there were."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from sandboxd.guest.frames import ContextPhase, ContextRun, ContextState, Ending


@dataclass
class FakeContext:
    label: bytes
    generation: int = 1
    runs: int = 0
    lost: tuple[Ending, int] | None = None


@dataclass
class FakeContexts:
    """All contexts of a guest by name."""

    by_name: dict[str, FakeContext] = field(default_factory=dict)

    def begin(self, request: dict[str, Any]) -> ContextRun | None:
        """The context of a run; None if it is not on the generation that was asked for."""
        asked = request["context"]
        known = self.by_name.get(asked["name"])
        label = str(asked.get("label", "")).encode()
        context = known or FakeContext(label)
        if known is not None and known.lost is not None:
            context = replace(FakeContext(label), generation=known.generation + 1)
        if asked.get("generation", 0) not in (0, context.generation):
            return None
        self.by_name[asked["name"]] = context
        context.runs += request["options"].get("mode") not in ("state", "check")
        return ContextRun(context.generation, context.runs)

    def lose(self, name: str, ending: Ending, value: int) -> None:
        if name in self.by_name:
            self.by_name[name].lost = (ending, value)

    def drop(self, name: str, is_forgotten: bool) -> None:
        self.lose(name, Ending.SIGNAL, 9)
        if is_forgotten:
            self.by_name.pop(name, None)

    def describe(self, name: str) -> ContextState:
        context = self.by_name.get(name)
        if context is None:
            return ContextState(name, 0, 0, ContextPhase.ABSENT, Ending.CODE, 0, b"", b"")
        phase = ContextPhase.LOST if context.lost else ContextPhase.IDLE
        ending, value = context.lost or (Ending.CODE, 0)
        return ContextState(
            name,
            context.generation,
            context.runs,
            phase,
            ending,
            value,
            b"",
            context.label,
            "3.11.0",
        )
