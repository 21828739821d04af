"""Features of a command that are harmless alone, but not together.

Bash evaluates data: in `x='a[$(rm y)]'; echo $((x))` arithmetic runs the command in a subscript.
The text may be assembled from several strings, so its parts are looked for in all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sandboxd.policy.profile import assigns_guarded

_SUBSTITUTION = re.compile(r"\$\(|`|<\(")
_EXPANSION = re.compile(r"[$`]|\\0*(?:44|140)|\\(?:x|u0*|U0*)(?:24|60)")
"""What begins a substitution, also as an escape of printf and echo."""
_OPENING = re.compile(r"[({`]|\\0*(?:50|173|140)|\\(?:x|u0*|U0*)(?:28|60|7[bB])")
_VALUE = re.compile(r"[A-Za-z_$`]")
INTEGERS = frozenset({"HISTCMD", "OPTIND", "RANDOM", "SECONDS", "SRANDOM", "LINENO", "BASHPID"})
"""Variables whose values bash evaluates when they are set."""


@dataclass(slots=True)
class Signs:
    """What was noticed in one command and in the scripts within it."""

    evaluates: bool = False
    """Whether the values of variables are evaluated: arithmetic, subscripts, names in variables."""
    subscripts: bool = False
    """Whether a subscript is more than a number or a word."""
    arrays: bool = False
    compounds: bool = False
    """Whether a declaration may take a value for a list: declare -a x="$y"."""
    substitution: str = ""
    """Text with a whole substitution that is not evaluated where it is."""
    expansion: str = ""
    """Text with the beginning of one."""
    opening: bool = False
    """Whether there is text with what may follow such a beginning."""
    brackets: bool = False
    guarded: str = ""
    """A variable that text would set if it were evaluated: PATH=1."""
    option_values: bool = False
    """Values that look like options: X=-exec."""
    option_readers: list[str] = field(default_factory=list)
    """Commands that get a variable and have options that run something: find . "$X"."""

    @property
    def unclear(self) -> str:
        hidden = self.substitution or (self.expansion if self.opening else "")
        is_evaluated = self.subscripts or (self.evaluates and self.brackets)
        if hidden and (is_evaluated or (self.compounds and self.arrays)):
            return hidden
        return self.option_readers[0] if self.option_values and self.option_readers else ""

    @property
    def assigned(self) -> str:
        """The guarded variable that evaluated text would set."""
        return self.guarded if self.evaluates else ""

    def notice_text(self, text: str, *, is_whole: bool) -> None:
        """Notice literal text, which a variable may hold; or the program of an interpreter, which
        is noticed only if it has all parts (`is_whole`)."""
        self.brackets |= "[" in text
        if _SUBSTITUTION.search(text):
            self.substitution = text
        if is_whole:
            return
        self.opening |= _OPENING.search(text) is not None
        if _EXPANSION.search(text):
            self.expansion = text
        self.guarded = self.guarded or assigns_guarded(text)

    def notice_evaluated(self, expression: str) -> None:
        """Notice an arithmetic expression, which is harmless if it consists of numbers."""
        self.evaluates |= _VALUE.search(expression) is not None
