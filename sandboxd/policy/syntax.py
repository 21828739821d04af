"""Parses a command into a tree, or says why it is not understood.

The grammar is tree-sitter's, not bash's own, and the two differ in details. So the tree is checked
against the text: bash has to agree about every part that the parser skipped, every comment and
every here-document. In doubt, the command is not understood.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from sandboxd.policy.decision import Rule
from sandboxd.policy.inert import Compacted

MAX_SYNTAX_BYTES = 4096
MAX_MARKS = 512
"""Limits of what is parsed, without quoted data. Many marks make parsing slow: the worst text found
within both limits takes 120 ms."""
MARK_WORK = 16
"""Work of a mark, if that of most bytes is 1."""
BLANK_WORK = 4
MAX_UNCOMPACTED_WORK = 512
COMPACTED_PER_WORK = 16
"""Characters that are compacted with the work of parsing one."""
MAX_COMMAND_BYTES = 2 << 20

_MARKS = b"|&;<>(){}[]$`=!\"'#\\\n*?~"
_LANGUAGE = Language(tree_sitter_bash.language())
_SUBSTITUTION = re.compile(rb"`|\$[({\[]|[<>]\(")
_TEXT_SUBSTITUTION = re.compile(rb"`|\$[({\[]")
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_CONTINUATION = re.compile(rb"\\\n")
_EMPTY_CONTINUED = re.compile(rb"(?<!\\)\n[ \t]*\\\n")
_ODD_CHARACTER = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f\x85\xa0\u1680\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]"
)
_VARIABLE = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*(\[|\Z)")
_WORD_ENDS = b" \t\n;&|"
"""Characters that always end a word. In `a=(1)# x` the parenthesis is part of a word, and so is the
rest."""
_BEFORE_COMMENTS = b" \t\n;&|()<>`"
_HEREDOC_START = re.compile(r"(?:'([\w.-]+)'|\"([\w.-]+)\"|([\w.-]+))", re.ASCII)
_QUOTED = frozenset({"raw_string", "ansi_c_string", "comment"})
_SPACED = frozenset({"command", "declaration_command", "unset_command"})
_ONE_LINE = _SPACED | {"redirected_statement", "file_redirect"}
_C_FOR = "c_style_for_statement"
_TIGHT = frozenset(
    {"concatenation", "expansion", "simple_expansion", "translated_string", "variable_assignment"}
)
_TEXT_LEAVES = frozenset({"string_content", "heredoc_body", "heredoc_content"})
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_STAND_INS = {2: "¿", 3: "¿x", 4: "¿¿"}
"""Stand-ins by size of the character in bytes, so that offsets in the text do not change."""


class NotUnderstood(Exception):
    """The command cannot be checked."""

    def __init__(self, rule: Rule, why: str, instead: str = "") -> None:
        super().__init__(why)
        self.rule = rule
        self.why = why
        self.instead = instead


class Step(NamedTuple):
    """A node and its ancestors."""

    node: Node
    parent: Step | None


class Script(NamedTuple):
    """A parsed command."""

    root: Node
    source: bytes
    stash: Mapping[str, str]

    def bytes_of(self, node: Node) -> bytes:
        """The source of a node. `node.text` may hold stand-ins."""
        return self.source[node.start_byte : node.end_byte]

    def text_of(self, node: Node) -> str:
        return self.bytes_of(node).decode(errors="replace")

    def heredoc_is_quoted(self, start: Node) -> bool:
        return self.bytes_of(start)[:1] in (b"'", b'"')

    def steps(self) -> Iterator[Step]:
        """All nodes, in the order of the text."""
        waiting = [Step(self.root, None)]
        while waiting:
            step = waiting.pop()
            yield step
            waiting.extend(Step(child, step) for child in reversed(step.node.children))


def parse(command: str, charge: Callable[[int], None]) -> Script:
    """Parse a command; NotUnderstood if bash might parse it differently.

    The work is announced to `charge` before it is done.
    """
    if len(command) > MAX_COMMAND_BYTES:
        raise _too_long()
    charge(len(command) // COMPACTED_PER_WORK)
    source = command.encode(errors="replace")
    stash: Mapping[str, str] = {}
    if len(source) + MARK_WORK * _marks(source) > MAX_UNCOMPACTED_WORK:
        compacted = Compacted(command)
        source, stash = compacted.text.encode(errors="replace"), compacted.stash
    marks = _marks(source)
    if len(source) > MAX_SYNTAX_BYTES or marks > MAX_MARKS:
        raise _too_long()
    charge(len(source) + MARK_WORK * marks + BLANK_WORK * source.count(b" "))
    # A new parser each time: a parser cannot be shared between threads.
    root = Parser(_LANGUAGE).parse(parsable(source)).root_node
    if root.has_error:
        raise NotUnderstood(
            Rule.UNPARSABLE,
            "The command is not valid shell syntax, or cannot be checked.",
            "Check quotes and brackets, or write it in a simpler way.",
        )
    script = Script(root, source, stash)
    _Verification(script).run()
    return script


def _marks(source: bytes) -> int:
    return len(source) - len(source.translate(None, _MARKS))


def parsable(source: bytes) -> bytes:
    """Replace every character beyond ASCII by a stand-in.

    The grammar calls C's `isdigit` on what follows a `{`, which is undefined above 255: a character
    of a high plane crashes the process. To bash all such characters are parts of a word without a
    meaning, and so is the stand-in.
    """
    if source.isascii():
        return source
    return _NOT_ASCII.sub(
        lambda match: _STAND_INS[len(match[0].encode())], source.decode()
    ).encode()


def heredoc_span(source: bytes, start: Node, end: Node) -> tuple[int, int]:
    """The range from the line after the operator to the line with the delimiter."""
    return source.find(b"\n", start.end_byte) + 1, source.rfind(b"\n", 0, end.start_byte) + 1


class _Verification:
    """Checks that bash sees what the parser saw."""

    def __init__(self, script: Script) -> None:
        self._source = script.source
        self._script = script
        self._texts: list[tuple[int, int]] = []
        self._placeholders = 0
        self._end = 0

    def run(self) -> None:
        for node, above in self._script.steps():
            if node.type == "string":
                self._texts.append((node.start_byte, node.end_byte))
            if node.type == "heredoc_redirect":
                self._heredoc(node)
            elif node.type == "command_substitution":
                self._backquotes(node)
            elif node.type in _ONE_LINE:
                self._one_line(node)
            elif node.type in _TIGHT and not (above and above.node.type == _C_FOR):
                self._tight(node)
                if node.type == "variable_assignment":
                    self._assigned(node)
            if not node.child_count:
                self._leaf(node)
        self._gap(len(self._source))
        if self._placeholders != len(self._script.stash):
            raise _unclear("where its long quoted texts end")

    def _leaf(self, node: Node) -> None:
        if node.start_byte > self._end:
            self._gap(node.start_byte, node.type)
        self._end = max(self._end, node.end_byte)
        text = self._script.bytes_of(node)
        if text[-1:] == b"$" and self._source[node.end_byte : node.end_byte + 2] == b"\\\n":
            raise _unclear("what is substituted in it")
        before = self._source[node.start_byte - 1 : node.start_byte]
        if node.type == "comment":
            if before and before not in _WORD_ENDS:
                raise _unclear("whether `#` begins a comment")
        elif text[:1] == b"#" and node.type == "word" and (before in _BEFORE_COMMENTS):
            raise _unclear("whether `#` begins a comment")
        if node.type in _QUOTED or node.type in _TEXT_LEAVES:
            self._placeholder(node, text)
        else:
            self._odd(text)
            if len(text) > 1 and b"\n" in _CONTINUATION.sub(b"", text):
                raise _unclear("where its lines end")
        if node.type not in _QUOTED and node.is_named:
            self._hidden(text, is_text=node.type in _TEXT_LEAVES)

    def _hidden(self, text: bytes, *, is_text: bool) -> None:
        if len(text) < 2 or not (b"$" in text or _SUBSTITUTION.search(text)):
            return
        if is_text and text.decode(errors="replace").strip() in self._script.stash:
            return
        pattern = _TEXT_SUBSTITUTION if is_text else _SUBSTITUTION
        if pattern.search(_without_escapes(text)):
            raise _unclear("what is substituted in it")

    def _placeholder(self, node: Node, text: bytes) -> None:
        if not self._script.stash or node.type == "comment":
            return
        inner = text[1:-1] if node.type == "raw_string" else text.strip()
        if inner.decode(errors="replace") in self._script.stash:
            self._placeholders += 1

    def _one_line(self, node: Node) -> None:
        """Check that the words of a command are separate and on one line."""
        for left, right in itertools.pairwise(node.children):
            between = self._source[left.end_byte : right.start_byte]
            if b"\n" in _CONTINUATION.sub(b"", between):
                raise _unclear("where its lines end")
            if not between and node.type in _SPACED:
                kinds = left.type + right.type
                is_assignment = "variable_assignment" in kinds or node.type != "command"
                if is_assignment and "_redirect" not in kinds:
                    raise _unclear("where its words end")

    def _tight(self, node: Node) -> None:
        """Check that nothing separates the parts of a word."""
        # In ${x:- y} a space is literal; at the beginning, newer shells run what follows.
        parts = node.children[:2] if node.type == "expansion" else node.children
        for left, right in itertools.pairwise(parts):
            if left.end_byte != right.start_byte:
                raise _unclear("where its words end")

    def _assigned(self, node: Node) -> None:
        """To bash, `0A=1/bin/x` is the name of a program."""
        name = node.child_by_field_name("name")
        if name is None or not _VARIABLE.match(self._script.bytes_of(name)):
            raise _unclear("whether it assigns a variable or runs a program")

    def _gap(self, end: int, before: str = "") -> None:
        gap = self._source[self._end : end]
        before_gap = self._source[self._end - 1 : self._end] or b"\n"
        if _EMPTY_CONTINUED.search(before_gap + gap) and not self._is_in_text(self._end, end):
            # What follows is at the beginning of a line; the grammar does not always see that.
            raise NotUnderstood(
                Rule.UNPARSABLE, "An empty line is continued.", "Remove its backslash."
            )
        if gap[:1] == b"\\" and gap[-1:] == b"\n":
            raise NotUnderstood(
                Rule.UNPARSABLE,
                "A line is continued in the middle of a word.",
                "Put a space before the backslash at the end of a line, or use one line.",
            )
        rest = _CONTINUATION.sub(b"", gap).strip(b" \t\n")
        if not rest or (rest == b"-" and before in ("<<", "<<-") and gap[:1] in b" \t"):
            return  # the grammar drops a `-` that is the last word before a here-document
        start = end - len(gap.lstrip(b" \t\n"))
        if not self._is_in_text(start, end):
            self._odd(rest)
            raise _unclear(f"what `{rest.decode(errors='replace')}` means")
        if _TEXT_SUBSTITUTION.search(_without_escapes(gap)):
            raise _unclear("what is substituted in it")

    def _is_in_text(self, start: int, end: int) -> bool:
        return any(first <= start and end <= last for first, last in self._texts)

    def _odd(self, text: bytes) -> None:
        if text.isalnum():
            return
        match = _ODD_CHARACTER.search(text.decode(errors="replace"))
        if match:
            raise NotUnderstood(
                Rule.UNPARSABLE,
                f"The command contains the character U+{ord(match[0]):04X} outside of quotes.",
                "Use spaces and newlines only, or quote it.",
            )

    def _backquotes(self, node: Node) -> None:
        text = self._script.bytes_of(node)
        if text[:1] == b"`" and b"\\" in text:
            raise NotUnderstood(
                Rule.UNPARSABLE,
                "A backslash within backquotes is ambiguous.",
                "Use $( ) instead of backquotes.",
            )

    def _heredoc(self, node: Node) -> None:
        parts = {child.type: child for child in node.children}
        start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
        match = _HEREDOC_START.fullmatch(self._script.text_of(start)) if start else None
        if start is None or end is None or match is None:
            raise _unclear("where its here-document ends", "Use a plain delimiter such as 'EOF'.")
        delimiter = (match[1] or match[2] or match[3]).encode()
        strip = b"\t" if "<<-" in parts else b""
        first, last = heredoc_span(self._source, start, end)
        lines = self._source[first:].split(b"\n")
        inside = self._source[first:last].count(b"\n")
        ends = [line.lstrip(strip) if strip else line for line in lines[: inside + 1]]
        body = parts.get("heredoc_body")
        texts = ("heredoc_body", "heredoc_end")
        others = [child for child in node.children if child.type not in texts]
        is_there = others[-1].end_byte < first and (
            body is None
            or body.child_count > 0
            or not self._source[first : body.start_byte].strip(b" \t\n")
        )
        if delimiter in ends[:-1] or ends[-1] != delimiter or not 0 < first <= last or not is_there:
            raise _unclear(
                "where its here-document ends", "Put its delimiter on a line of its own."
            )
        self._texts.append((first, last))


def _without_escapes(text: bytes) -> bytes:
    """Join continued lines as bash does, and replace escaped characters."""
    return _ESCAPE.sub(lambda match: b"" if match[1] == b"\n" else b"_", text)


def _too_long() -> NotUnderstood:
    return NotUnderstood(
        Rule.TOO_COMPLEX,
        f"Without quoted data, the command has more than {MAX_SYNTAX_BYTES} bytes, or more than "
        f"{MAX_MARKS} marks such as brackets: too many to check.",
        "Split it, or put data into single quotes or a here-document with a quoted delimiter "
        "(<<'EOF').",
    )


def _unclear(what: str, instead: str = "Write it in a simpler way.") -> NotUnderstood:
    return NotUnderstood(Rule.UNPARSABLE, f"It is not clear {what}.", instead)
