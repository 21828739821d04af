"""awk and sed have languages of their own, which can run commands too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandboxd.policy.words import Word
from sandboxd.policy.wrappers import Options, Unclear, words_of

MAX_PROGRAM_CHARACTERS = 16 << 10
_TOO_LONG = "its program is too long to be checked; make it shorter, or use python3"

_AWK = Options(
    flags="bcCghILMnNOPrsStV",
    valued="Fvefil",
    long_flags=words_of(
        "characters-as-bytes traditional posix re-interval sandbox bignum csv non-decimal-data "
        "optimize lint version"
    ),
    long_valued=frozenset({"field-separator", "assign", "source"}),
    ends_at_variables=True,
)
_SED = Options(
    flags="nErsuz",
    valued="efl",
    long_flags=words_of(
        "quiet silent regexp-extended separate unbuffered null-data sandbox posix debug in-place"
    ),
    long_valued=frozenset({"expression", "line-length", "file"}),
    ends_at_variables=True,
)


def problem(name: str, args: Sequence[Word]) -> str:
    """Why the program in the arguments may run commands; empty if it cannot."""
    if name in ("awk", "gawk", "mawk", "nawk"):
        return _awk(args)
    if name == "sed":
        return _sed(args)
    if name == "sort" and any(one.is_literal and one.text.startswith("--c") for one in args):
        return _sort(args)
    return ""


def _sort(args: Sequence[Word]) -> str:
    options = [one.text.partition("=")[0] for one in args if one.is_literal]
    if any(len(one) > 3 and "--compress-program".startswith(one) for one in options):
        return "--compress-program runs a program"
    return ""


def _awk(args: Sequence[Word]) -> str:
    options, rest = _AWK.read(args)
    programs: list[Word] = []
    for letter, value in options:
        if letter in ("f", "i", "l"):
            return "the program is in a file and cannot be seen; write it in single quotes"
        if letter in ("e", "source") and value is not None:
            programs.append(value)
    if not programs:
        programs = rest[:1]
    for program in programs:
        if not program.is_literal:
            return (
                "its program is put together at run time; write it in single quotes and pass "
                'values with -v name="$value"'
            )
        if len(program.text) > MAX_PROGRAM_CHARACTERS:
            return _TOO_LONG
        if _awk_runs_commands(program.text):
            return "system(), pipes and indirect calls in awk run commands; use pipes of the shell"
    return ""


_AWK_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<word>\w+)|(?P<step>\+\+|--)|(?P<other>.)""",
    re.DOTALL,
)
_AWK_REGEX = re.compile(r"/(?>[^/\\\n\[]|\\.|\[\^?+\]?+(?>\[:\w+:\]|[^\]\\\n]|\\.)*+\])++/")
_AWK_OPERAND_FOLLOWS = frozenset("(,{};!~&|?:=+-*%<>^\n")
_AWK_KEYWORDS = frozenset({"return", "print", "printf", "in", "else", "do", "case", "getline"})


def _awk_runs_commands(program: str) -> bool:
    place, before = 0, "\n"
    while place < len(program):
        if program[place] == "/" and (before in _AWK_OPERAND_FOLLOWS or before in _AWK_KEYWORDS):
            regex = _AWK_REGEX.match(program, place)
            if regex is None:
                return True
            place, before = regex.end(), "regex"
            continue
        token = _AWK_TOKEN.match(program, place)
        if token is None or token[0] in ("system", "@", '"'):
            return True
        if token[0] == "|":
            if program[place : place + 2] != "||":
                return True
            place += 1
        place += len(token[0])
        if token.lastgroup not in ("blank", "comment"):
            before = token[0]
    return False


def _sed(args: Sequence[Word]) -> str:
    options, operands = _sed_options(args)
    if any(letter in ("f", "file") for letter, _ in options):
        return "the script is in a file and cannot be seen; write it in single quotes"
    given = [value for letter, value in options if letter in ("e", "expression") and value]
    scripts = given or operands[:1]
    if not all(script.is_literal for script in scripts):
        return "its script is put together at run time; write it in single quotes"
    whole = "\n".join(script.text for script in scripts)
    if len(whole) > MAX_PROGRAM_CHARACTERS:
        return _TOO_LONG
    if _sed_runs_commands(whole):
        return "the command and the flag `e` of sed run commands; use pipes of the shell"
    return ""


def _sed_options(args: Sequence[Word]) -> tuple[list[tuple[str, Word | None]], list[Word]]:
    """GNU sed takes options after its operands as well."""
    options: list[tuple[str, Word | None]] = []
    operands: list[Word] = []
    rest = [Word("-n") if _is_in_place(one) else one for one in args]
    while rest:
        found, rest = _SED.read(rest)
        options += found
        while rest and (not rest[0].starts_like_an_option() or rest[0].text == "-"):
            operands.append(rest.pop(0))
        if rest and not rest[0].is_literal:
            if rest[0].may_split:
                raise Unclear(rest[0].text)
            operands.append(rest.pop(0))
    return options, operands


def _is_in_place(word: Word) -> bool:
    """-i takes a suffix in the same word."""
    return word.is_literal and re.match(r"-[nErsuz]*i", word.text) is not None


_SED_ADDRESS = re.compile(
    r"(?:\d+(?:~\d+)?|\$|[+~]\d+|/(?>[^/\\\n\[]|\\.|\[\^?+\]?+[^\]\n]*+\])*+/[IM]*"
    r"|\\([^\\\n])(?:(?!\1)[^\\\n]|\\.)*\1[IM]*)",
    re.DOTALL,
)
_SED_BLANK = re.compile(r"[ \t\n;]*")


def _sed_runs_commands(script: str) -> bool:
    """Also True for a script that is not understood."""
    place = 0
    while True:
        place = _end(_SED_BLANK, script, place)
        place = _after_addresses(script, place)
        if place >= len(script):
            return False
        after = _after_sed_command(script, place)
        if after is None:
            return True
        place = after


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place


def _after_addresses(script: str, place: int) -> int:
    place = _end(_SED_ADDRESS, script, place)
    place = _end(re.compile(r"[ \t]*,[ \t]*"), script, place)
    place = _end(_SED_ADDRESS, script, place)
    return _end(re.compile(r"[ \t!]*"), script, place)


def _after_sed_command(script: str, place: int) -> int | None:
    letter = script[place]
    if letter in "sy":
        return _after_substitution(script, place)
    if letter in ":btT":
        return _end(re.compile(r"[ \t]*[^\s;}]*"), script, place + 1)
    if letter in "#rRwWaic":
        # To the end of the line: a label, a file, or text, which a backslash continues.
        return _end(re.compile(r"(?:[^\n\\]|\\.)*", re.DOTALL), script, place)
    if letter in "{}=dDgGhHlnNpPxzFqQ":
        return _end(re.compile(r"[ \t]*\d*[ \t]*"), script, place + 1)
    return None


def _after_substitution(script: str, place: int) -> int | None:
    mark = script[place + 1 : place + 2]
    if not mark or mark in "\\\n" or mark.isalnum():
        return None
    part = rf"(?:(?!{re.escape(mark)})[^\\]|\\.)*"
    match = re.compile(
        rf"{re.escape(mark)}{part}{re.escape(mark)}{part}{re.escape(mark)}", re.DOTALL
    ).match(script, place + 1)
    if match is None:
        return None
    flags = re.compile(r"[gpIiMm0-9]*(?P<file>w[^\n]*)?[ \t]*(?=[\n;}#]|$)").match(
        script, match.end()
    )
    return flags.end() if flags else None
