"""Variables of frames: what has changed since the last stop, within the limits."""

from __future__ import annotations

from typing import Any

from .records import MAX_VARIABLES, Variable
from .state import is_listed
from .summaries import cut, length_of, summary, type_name

_MAX_FRAMES = 500


def local_names(frame: Any) -> dict[str, Any]:
    """Local variables; of the run itself those of the context, without the language's own."""
    found = frame.f_locals
    return {name: value for name, value in list(found.items()) if is_listed(name)}


def shown(name: str, value: Any, previous: str | None = None, handle: int = 0) -> Variable:
    return Variable(
        cut(name), type_name(value), summary(value), previous, handle, 0, length_of(value)
    )


class Known:
    """What was shown of each frame."""

    def __init__(self) -> None:
        self._frames: dict[int, tuple[Any, dict[str, str]]] = {}

    def changes(self, frame: Any, is_top: bool) -> tuple[list[Variable], list[str], int]:
        """New and changed variables, names that are gone, and how many were left out."""
        key, code = (0, None) if is_top else (id(frame), frame.f_code)
        found = self._frames.get(key)
        before = found[1] if found is not None and found[0] is code else {}
        names = local_names(frame)
        now: dict[str, str] = {}
        changed: list[Variable] = []
        left_out = 0
        for name, value in names.items():
            text = summary(value)
            if name not in before or before[name] != text:
                if len(changed) >= MAX_VARIABLES:
                    left_out += 1
                    continue
                changed.append(_variable(name, value, text, before.get(name)))
            now[name] = text
        if len(self._frames) > _MAX_FRAMES:
            self._frames.clear()
        self._frames[key] = (code, now)
        return changed, [name for name in before if name not in names], left_out

    def forget(self, frame: Any) -> None:
        self._frames.pop(id(frame), None)


def _variable(name: str, value: Any, text: str, previous: str | None) -> Variable:
    return Variable(cut(name), type_name(value), text, previous, 0, 0, length_of(value))
