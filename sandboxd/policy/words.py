"""Words of a command, as bash sees them after it has removed the quotes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

    from sandboxd.policy.syntax import Script


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    text: str
    """Value of a literal word; otherwise the word as written."""
    is_literal: bool = True
    may_split: bool = False
    """Whether it may expand to several words, or to none."""
    is_quoted: bool = False
    """Whether any of it is quoted or escaped; then it is not a reserved word."""
    is_input: bool = False
    """Whether it begins with what a wrapper reads from its input."""

    def starts_like_an_option(self) -> bool:
        return not self.is_literal or self.text.startswith("-")

    def may_be_an_option(self) -> bool:
        """Whether it is an option, or may expand to one; `data/*` and `./"$x"` cannot."""
        if self.is_literal:
            return self.text.startswith("-") and self.text != "-"
        return self.is_input or _CERTAIN_START.match(self.text) is None

    def is_pattern(self) -> bool:
        """Whether it stands for names of files, or for alternatives, and for nothing else."""
        is_variable = self.is_input or "$" in self.text or "`" in self.text
        return self.may_split and not is_variable


UNKNOWN = Word("$(...)", is_literal=False, may_split=True, is_input=True)
"""A word whose value is known only at run time."""

_CERTAIN_START = re.compile(r"[A-Za-z0-9_./]")
_ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
_ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_ANSI = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})"
    r"|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)
_ANSI_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_MAY_EXPAND = re.compile(r"(?<!\\)(?:\\\\)*(?:[*?\[]|[@!+]\()")
_OPENING_BRACE = re.compile(r"(?<!\\)(?:\\\\)*\{")
_IN_BRACES = re.compile(r",|\.\.")
_UNQUOTED = frozenset({"word", "number", "variable_name", "test_operator", "extglob_pattern"})


def fold(node: Node, script: Script) -> Word:
    """The word of a node of the tree."""
    parts = node.children if node.type == "concatenation" else [node]
    written = script.text_of(node)
    folded = [_fold_part(part, script) for part in parts]
    literal = [text for text in folded if text is not None]
    if len(literal) < len(folded):
        quoted = all(_cannot_split(part, script) for part in parts)
        return Word(written, is_literal=False, may_split=not quoted, is_quoted=True)
    bare = "".join(
        script.text_of(part) for part in parts if part.type in _UNQUOTED or not part.is_named
    )
    if _MAY_EXPAND.search(bare) or (_OPENING_BRACE.search(bare) and _IN_BRACES.search(written)):
        return Word(written, is_literal=False, may_split=True)
    return Word("".join(literal), is_quoted="\\" in bare or len(bare) < len(written))


def _cannot_split(part: Node, script: Script) -> bool:
    if part.type == "string":
        return "@" not in script.text_of(part)  # "$@" and "${a[@]}" may be several words
    if part.type in _UNQUOTED:
        return _MAY_EXPAND.search(script.text_of(part)) is None
    return part.type in ("raw_string", "ansi_c_string", "process_substitution", "translated_string")


def _fold_part(part: Node, script: Script) -> str | None:
    if part.type in _UNQUOTED or not part.is_named:
        return _ESCAPED.sub(_unescaped, script.text_of(part))
    if part.type == "raw_string":
        inner = script.text_of(part)[1:-1]
        return script.stash.get(inner, inner)
    if part.type == "ansi_c_string":
        return ansi_unquoted(script.text_of(part)[2:-1])
    if part.type == "string" and all(
        child.type in ('"', "string_content") for child in part.children
    ):
        inner = script.text_of(part)[1:-1]
        return _ESCAPED_IN_QUOTES.sub(_unescaped, script.stash.get(inner, inner))
    return None


def heredoc_text(text: str) -> str:
    """The body of an unquoted here-document without expansions, as the command reads it."""
    return re.sub(r"\\([$`\\\n])", _unescaped, text)


def ansi_unquoted(text: str) -> str | None:
    r"""The value of `$'...'`; None if bash may read it differently."""
    result = _ANSI.sub(_ansi, text)
    return None if "\0" in result else result


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _ansi(match: re.Match[str]) -> str:
    letter, octal, two, four, eight, control = match.groups()
    if letter:
        return _ANSI_LETTERS.get(letter, letter)
    if control:
        return "\0"  # refused: it is rare
    number = int(octal, 8) & 0xFF if octal else int(two or four or eight, 16)
    return chr(number) if number < 0x80 else "\ufffd"
