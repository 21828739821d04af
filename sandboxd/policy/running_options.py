"""Options that make a program run another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sandboxd.policy.words import Word
from sandboxd.policy.wrappers import Unclear


class _Running(NamedTuple):
    option: str
    can_be_short: bool = True
    """Whether the program accepts the beginning of the option's name."""

    def is_meant(self, text: str) -> bool:
        name = text.partition("=")[0]
        if self.can_be_short:
            return len(name) > 2 and self.option.startswith(name)
        return name == self.option


_PROGRAMS: Mapping[str, Sequence[_Running]] = {
    "sort": [_Running("--compress-program")],
    "diff3": [_Running("--diff-program")],
    "rg": [
        _Running("--pre", can_be_short=False),
        _Running("--hostname-bin", can_be_short=False),
    ],
}
PROGRAMS = frozenset(_PROGRAMS)


def problem(name: str, args: Sequence[Word]) -> str:
    """Why the arguments may make this program run another one; empty if they cannot."""
    if name in ("mapfile", "readarray"):
        return _mapfile(args)
    for running in _PROGRAMS.get(name, ()):
        if any(running.is_meant(word.text) for word in _options(args)):
            return f"{running.option} runs a program; use {name} without it"
    return ""


def _options(args: Iterable[Word]) -> list[Word]:
    """The words that are options; Unclear if one may be an option from the input of xargs."""
    found: list[Word] = []
    for word in args:
        if word.is_literal and word.text == "--":
            break
        if word.is_literal:
            found.append(word)
        elif word.may_split and word.may_be_an_option() and not word.is_pattern():
            raise Unclear(word.text, "Put `--` before it, as in `xargs sort --`.")
    return found


def _mapfile(args: Sequence[Word]) -> str:
    if any(word.is_literal and word.text.startswith("-") and "C" in word.text for word in args):
        return "-C runs a callback; use a loop with `while read`"
    return ""
