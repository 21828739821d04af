"""Replaces long quoted text by placeholders before a command is parsed.

Parsing a hostile text of n bytes takes time in the order of n squared and cannot be interrupted, so
only short texts are parsed. Legitimate commands are long because of data: quoted strings and quoted
here-documents. Each is replaced by a short placeholder in the same quotes; the parser has to find
the placeholder at that position, as a string of that kind, or the command is not understood.
"""

from __future__ import annotations

import re

MAX_PLACEHOLDERS = 64
MAX_KEPT_CHARACTERS = 48
"""Longest string that is not replaced."""
_PLAIN = re.compile(r"[^\\'\"`#<\n$]+")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\$`]|\\.)*)"', re.DOTALL)
_WITH_VARIABLES = re.compile(r'"(?:[^"\\$`]|\\.|\$(?![({]))*"', re.DOTALL)
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(?:'([\w.-]+)'|\"([\w.-]+)\")")
_WORD_ENDS = " \t\n;&|()<>"


class Compacted:
    """A command with placeholders in place of long quoted texts."""

    def __init__(self, command: str) -> None:
        self.stash: dict[str, str] = {}
        self._source = command
        self._out: list[str] = []
        self._heredocs: list[tuple[str, bool]] = []
        self._place = 0
        self._compact()
        self.text = "".join(self._out)

    def _compact(self) -> None:
        source, end = self._source, len(self._source)
        while self._place < end:
            match = _PLAIN.match(source, self._place)
            if match:
                self._copy(match.end())
            elif not self._step(source[self._place]):
                # Not understood here; the parser gets the rest unchanged.
                self._copy(end)

    def _step(self, char: str) -> bool:
        place = self._place
        if char == "'":
            return self._string(_SINGLE.match(self._source, place), "'")
        if char == '"':
            match = _DOUBLE.match(self._source, place)
            if match:
                return self._string(match, '"')
            match = _WITH_VARIABLES.match(self._source, place)
            return self._copy(match.end()) if match else False
        if char == "\n":
            return self._line_end()
        if char == "<":
            return self._redirect()
        if char == "#":
            return self._comment()
        if char == "\\":
            return self._copy(place + 2)
        if char == "$":
            match = _ANSI.match(self._source, place)
            return self._copy(match.end() if match else place + 1)
        return False

    def _copy(self, end: int) -> bool:
        self._out.append(self._source[self._place : end])
        self._place = end
        return True

    def _string(self, match: re.Match[str] | None, quote: str) -> bool:
        if match is None or len(self.stash) >= MAX_PLACEHOLDERS:
            return False
        if len(match[1]) > MAX_KEPT_CHARACTERS:
            self._out.append(f"{quote}{self._replaced(match[1])}{quote}")
            self._place = match.end()
            return True
        return self._copy(match.end())

    def _replaced(self, text: str) -> str:
        name = f"sandboxd-{len(self.stash)}-{len(text)}"
        while name in self._source or name in self.stash:
            name += "x"
        self.stash[name] = text
        return name

    def _comment(self) -> bool:
        before = self._source[self._place - 1] if self._place else "\n"
        if before not in _WORD_ENDS:
            return self._copy(self._place + 1)
        end = self._source.find("\n", self._place)
        return self._copy(end if end >= 0 else len(self._source))

    def _redirect(self) -> bool:
        match = _HEREDOC.match(self._source, self._place)
        if match:
            self._heredocs.append((match[2] or match[3], bool(match[1])))
            return self._copy(match.end())
        if self._source.startswith("<<<", self._place):
            return self._copy(self._place + 3)
        # The body of an unquoted here-document may contain substitutions.
        return not self._source.startswith("<<", self._place) and self._copy(self._place + 1)

    def _line_end(self) -> bool:
        self._copy(self._place + 1)
        while self._heredocs:
            delimiter, is_indented = self._heredocs.pop(0)
            tabs = r"\t*" if is_indented else ""
            end = re.compile(rf"^{tabs}{re.escape(delimiter)}$", re.MULTILINE)
            match = end.search(self._source, self._place)
            if match is None or len(self.stash) >= MAX_PLACEHOLDERS:
                return False
            body = self._source[self._place : match.start()]
            if len(body) > MAX_KEPT_CHARACTERS:
                self._out.append(self._replaced(body.removesuffix("\n")) + "\n")
                self._place = match.start()
            self._copy(match.end())
        return True
