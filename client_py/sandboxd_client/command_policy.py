"""A convenience: commands that the daemon's policy `strict` is certain to refuse are not sent.

The daemon decides. This module checks only plain commands, in which a word can only be the name of
a command; all others are left to the daemon, which parses them with a grammar of bash.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from sandboxd_client.errors import InvalidRequestError, PolicyError

CommandCheck: TypeAlias = Callable[[str | Sequence[str]], object]
"""Receives each command before it is sent. It may raise, preferably a PolicyError."""
CommandPolicy: TypeAlias = Literal["strict"] | CommandCheck

STRICT = "strict"
"""Name of the daemon's policy that the clients which promise it ask for by default."""
_RULE = "forbidden-command"
INSTEAD: Mapping[str, str] = {
    "rm": "Leave the file, or empty it with `: > FILE`; the files API removes files, and all files "
    "are deleted with the session.",
    "mv": "Copy it with `cat OLD > NEW`; the files API moves files.",
    "dd": "Use `head -c N` or `tail -c +N`.",
    "curl": "There is no network; upload the data through the files API.",
    "wget": "There is no network; upload the data through the files API.",
    "ssh": "There is no network; everything runs in this sandbox.",
    "sudo": "Run the command without it; nothing here needs another user.",
    "chmod": "Run a script through its interpreter, as in `python3 SCRIPT`.",
    "chown": "Files already belong to you.",
}
"""Forbidden commands and what to do instead, in the same words as the daemon."""

# No brackets, braces, backslashes, comments or here-documents: in those, a `;` or a name may not be
# what it seems. Nothing matches in two ways, since a model may write any line.
_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t]+)
    | (?P<redirection>&>>?|[<>]&|>>|>\||<>|>|<(?!<))
    | (?P<separator>&&|\|\||\|&|[;|&\n])
    | (?P<word>(?:[\w@%+=:,./~^*?!-]|\$[A-Za-z_]\w*+|'[^']*+'|"(?:[^"$`\\]|\$[A-Za-z_]\w*+)*+")++)
    """,
    re.VERBOSE,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)
_EXPANDED = re.compile(r"[$*?~=]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_BEFORE_COMMANDS = frozenset({"!", "do", "elif", "else", "if", "then", "until", "while"})


def command_check(policy: CommandPolicy | None) -> CommandCheck | None:
    """The check of a policy; InvalidRequestError if the name is not valid."""
    if policy is None or callable(policy):
        return policy
    if policy == STRICT:
        return check_strictly
    raise InvalidRequestError(
        f'policy: {policy!r} is not a valid policy; use "strict", a function or None'
    )


def check_strictly(command: str | Sequence[str]) -> None:
    """Raise the daemon's own PolicyError for a command that the policy `strict` forbids."""
    names = _names(command) if isinstance(command, str) else command[:1]
    for name in map(posixpath.basename, names):
        if name in INSTEAD:
            why = f"`{name}` is forbidden here. {INSTEAD[name]}"
            raise PolicyError(
                f"The policy `{STRICT}` refuses this command (rule {_RULE}): {why}",
                metadata={
                    "policy": STRICT,
                    "rule": _RULE,
                    "command": name,
                    "kind": "policy",
                },
            )


def _names(line: str) -> Sequence[str]:
    """The commands that a plain line runs; nothing if the line is not plain."""
    names: list[str] = []
    is_name_next, is_target_next = True, False
    for kind, text in _tokens(line):
        if kind == "separator":
            is_name_next, is_target_next = True, False
        elif kind == "redirection":
            is_target_next = True
        elif kind == "word" and is_target_next:
            is_target_next = False
        elif kind == "word" and is_name_next:
            if text not in _BEFORE_COMMANDS and not _ASSIGNMENT.match(text):
                names += _literal(text)
                is_name_next = False
        elif not kind:
            return []
    return names


def _literal(word: str) -> list[str]:
    """The word without its quotes, unless it may be an assignment or an expansion."""
    return [] if _EXPANDED.search(word) else [_QUOTED.sub(lambda part: part[0][1:-1], word)]


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    """Kinds and texts of tokens; the kind is empty where the line is not plain."""
    position = 0
    while position < len(line):
        found = _TOKEN.match(line, position)
        if found is None:
            yield "", ""
            return
        yield found.lastgroup or "", found[0]
        position = found.end()
