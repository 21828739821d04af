"""Words of a command, as bash would see them after it has taken the quotes away."""

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
    """What it is, if it is literal; otherwise how it is written."""
    is_literal: bool = True
    may_split: bool = False
    """Whether it may become several words, or none."""
    is_quoted: bool = False
    """Whether anything in it is quoted or escaped: then it is no reserved word."""

    def starts_like_an_option(self) -> bool:
        return not self.is_literal or self.text.startswith("-")


UNKNOWN = Word("$(...)", is_literal=False, may_split=True)
"""A word that comes from somewhere else."""

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
    """The word that a node of the tree stands for."""
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
        return "@" not in script.text_of(part)  # "$@" and "${a[@]}" are as many words as there are
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
    """The body of an unquoted here-document without expansions, as its reader gets it."""
    return re.sub(r"\\([$`\\\n])", _unescaped, text)


def ansi_unquoted(text: str) -> str | None:
    r"""What `$'...'` stands for; None if it holds something that bash may read otherwise."""
    result = _ANSI.sub(_ansi, text)
    return None if "\0" in result else result


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _ansi(match: re.Match[str]) -> str:
    letter, octal, two, four, eight, control = match.groups()
    if letter:
        return _ANSI_LETTERS.get(letter, letter)
    if control:
        return "\0"  # rare enough to be refused
    number = int(octal, 8) & 0xFF if octal else int(two or four or eight, 16)
    return chr(number) if number < 0x80 else "\ufffd"
