"""Builtins that set variables whose names they get as words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandboxd.policy.words import Word
from sandboxd.policy.wrappers import Options

_READ = Options(flags="ers", valued="adinNptu", ends_at_variables=True)
_MAPFILE = Options(flags="t", valued="dnOsuCc", ends_at_variables=True)
_OPTIONS: Mapping[str, tuple[Options, str]] = {
    "read": (_READ, "a"),
    "mapfile": (_MAPFILE, ""),
    "readarray": (_MAPFILE, ""),
}
"""Options, and the letter of the one that takes a name; operands are names too."""
BUILTINS = frozenset({*_OPTIONS, "getopts", "printf", "wait"})


def names(builtin: str, args: Sequence[Word]) -> list[Word]:
    """The words that name variables. Raises Unclear if that is not certain."""
    if builtin == "getopts":
        return list(args[1:2])
    if builtin == "printf":
        return _after_option("v", args[:2])
    if builtin == "wait":
        return _after_option("p", args)
    options, letter = _OPTIONS[builtin]
    found, operands = options.read(args)
    return [*operands, *(value for name, value in found if name == letter and value is not None)]


def _after_option(letter: str, args: Sequence[Word]) -> list[Word]:
    """The value of an option, in the same word or the next, wherever the option is."""
    found: list[Word] = []
    for place, word in enumerate(args):
        if not word.text.startswith("-"):
            continue
        if not word.is_literal:
            found.append(word)
        elif letter in word.text:
            name = word.text.partition(letter)[2]
            found += [Word(name)] if name else args[place + 1 : place + 2]
    return found
