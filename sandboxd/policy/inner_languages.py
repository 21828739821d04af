"""Programs in the languages of awk and sed, which can run commands too."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandboxd.policy.words import Word
from sandboxd.policy.wrappers import Options, words_of

PROGRAMS = words_of("awk gawk mawk nawk sed")
MAX_PROGRAM_CHARACTERS = 16 << 10
_TOO_LONG = "its program is too long to check; shorten it, or use python3"

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
    """Why the arguments may make this program run commands; empty if they cannot."""
    if name == "sed":
        return _sed(args)
    return _awk(args) if name in PROGRAMS else ""


def _awk(args: Sequence[Word]) -> str:
    options, rest = _AWK.read(args)
    programs: list[Word] = []
    for letter, value in options:
        if letter in ("f", "i", "l"):
            return "the program is in a file and cannot be checked; write it in single quotes"
        if letter in ("e", "source") and value is not None:
            programs.append(value)
    if not programs:
        programs = rest[:1]
    for program in programs:
        if not program.is_literal:
            return (
                "its program is known only at run time; write it in single quotes and pass "
                'values with -v name="$value"'
            )
        if len(program.text) > MAX_PROGRAM_CHARACTERS:
            return _TOO_LONG
        if _awk_runs_commands(program.text):
            return "system(), pipes and indirect calls in awk run commands; use pipes of the shell"
    return ""


_AWK_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")"""
    r"""|(?P<word>\w+)|(?P<other>\+\+|--|\|\||.)""",
    re.DOTALL,
)
_AWK_REGEX = re.compile(r"/(?>[^/\\\n\[]|\\.|\[\^?+\]?+(?>\[:\w+:\]|[^\]\\\n]|\\.)*+\])++/")
_AWK_NAIVE_REGEX = re.compile(r"/(?>[^/\\\n]|\\.)++/")
"""The same for an awk to which brackets mean nothing here; both have to agree."""
_AWK_OPERAND_FOLLOWS = frozenset("(,{};!~&|?:=+-*%<>^$\n") | words_of(
    "return print printf in else do case getline exit delete statement"
)
_AWK_BEFORE_STATEMENTS = words_of("if while for switch")
_AWK_AMBIGUOUS = words_of("length /")
"""What may end an operand or come before one, so that `/` may be either."""


def _awk_runs_commands(program: str) -> bool:
    """Whether a program may run commands; also True for one that is not understood."""
    place, before = 0, "\n"
    openings: list[str] = []
    while place < len(program):
        if program[place] == "/" and before in _AWK_OPERAND_FOLLOWS:
            regex = _AWK_REGEX.match(program, place)
            naive = _AWK_NAIVE_REGEX.match(program, place)
            if regex is None or naive is None or regex.end() != naive.end():
                return True
            place, before = regex.end(), "regex"
            continue
        token = _AWK_TOKEN.match(program, place)
        if token is None or _awk_token_runs_commands(token, before):
            return True
        place = token.end()
        if token.lastgroup in ("blank", "comment"):
            continue
        if token[0] == "(":
            openings.append(before)
        # What follows `if (...)` is a statement, and so may begin with a regular expression.
        closes_condition = token[0] == ")" and openings and openings.pop() in _AWK_BEFORE_STATEMENTS
        before = "statement" if closes_condition else token[0]
    return False


def _awk_token_runs_commands(token: re.Match[str], before: str) -> bool:
    if token[0] == "/":
        return before in _AWK_AMBIGUOUS
    return token[0] in ("system", "@", '"', "|")


def _sed(args: Sequence[Word]) -> str:
    options, operands = _SED.read_all([Word("-n") if _is_in_place(word) else word for word in args])
    if any(letter in ("f", "file") for letter, _ in options):
        return "the script is in a file and cannot be checked; write it in single quotes"
    given = [value for letter, value in options if letter in ("e", "expression") and value]
    scripts = given or operands[:1]
    if not all(script.is_literal for script in scripts):
        return "its script is known only at run time; write it in single quotes"
    whole = "\n".join(script.text for script in scripts)
    if len(whole) > MAX_PROGRAM_CHARACTERS:
        return _TOO_LONG
    if _sed_runs_commands(whole):
        return "the command and the flag `e` of sed run commands; use pipes of the shell"
    return ""


def _is_in_place(word: Word) -> bool:
    """Whether this is `-i`, which takes a suffix in the same word."""
    return word.is_literal and re.match(r"-[nErsuz]*i", word.text) is not None


_SED_LINE = re.compile(r"\d+(?:~\d+)?|\$|[+~]\d+")
_SED_BLANK = re.compile(r"[ \t\n;]*")
_SED_TO_LINE_END = re.compile(r"[^\n]*")
_SED_TEXT = re.compile(r"(?:[^\n\\]|\\.)*", re.DOTALL)
"""To the end of a line that a backslash does not continue."""
_SED_BRACKETS = r"\[\^?+\]?+(?>\[[:.=]\w{1,16}[:.=]\]|[^\]\n]){0,256}+\]"
_SED_FLAGS = re.compile(r"[gpIiMm0-9]*(?:w[^\n]*)?[ \t]*(?=[\n;}#]|$)")


class _SedNotUnderstood(Exception):
    pass


def _sed_runs_commands(script: str) -> bool:
    """Whether a script may run commands; also True for one that is not understood."""
    place = 0
    try:
        while True:
            place = _end(_SED_BLANK, script, place)
            place = _after_addresses(script, place)
            if place >= len(script):
                return False
            place = _after_sed_command(script, place)
    except _SedNotUnderstood:
        return True


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place


def _after_addresses(script: str, place: int) -> int:
    place = _after_address(script, place)
    place = _end(re.compile(r"[ \t]*,[ \t]*"), script, place)
    place = _after_address(script, place)
    return _end(re.compile(r"[ \t!]*"), script, place)


def _after_address(script: str, place: int) -> int:
    if script.startswith("/", place):
        place = _after_part(script, place + 1, "/")
    elif script.startswith("\\", place):
        place = _after_part(script, place + 2, script[place + 1 : place + 2])
    else:
        return _end(_SED_LINE, script, place)
    return _end(re.compile(r"[IM]*"), script, place)


def _after_sed_command(script: str, place: int) -> int:
    letter = script[place]
    if letter in "sy":
        return _after_substitution(script, place)
    if letter in ":btT":
        return _end(re.compile(r"[ \t]*[^\s;}]*"), script, place + 1)
    if letter in "#rRwW":
        return _end(_SED_TO_LINE_END, script, place)
    if letter in "aic":
        return _end(_SED_TEXT, script, place)
    if letter in "{}=dDgGhHlnNpPxzFqQ":
        return _end(re.compile(r"[ \t]*\d*[ \t]*"), script, place + 1)
    raise _SedNotUnderstood


def _after_substitution(script: str, place: int) -> int:
    mark = script[place + 1 : place + 2]
    after_pattern = _after_part(script, place + 2, mark, is_pattern=script[place] == "s")
    after = _after_part(script, after_pattern, mark, is_pattern=False)
    flags = _SED_FLAGS.match(script, after)
    if flags is None:
        raise _SedNotUnderstood
    return flags.end()


def _after_part(script: str, place: int, mark: str, *, is_pattern: bool = True) -> int:
    """The place after a part that ends with a mark.

    Versions of sed differ in whether a mark within brackets ends a pattern: both have to agree.
    """
    if not mark or mark in "\\\n[" or mark.isalnum():
        raise _SedNotUnderstood
    end = re.escape(mark)
    plain = re.compile(rf"(?>[^\\\n{end}]|\\.)*+{end}", re.DOTALL).match(script, place)
    if plain is None:
        raise _SedNotUnderstood
    if is_pattern and "[" in plain[0]:
        bracketed = re.compile(rf"(?>[^\\\n\[{end}]|\\.|{_SED_BRACKETS})*+{end}", re.DOTALL).match(
            script, place
        )
        if bracketed is None or bracketed.end() != plain.end():
            raise _SedNotUnderstood
    return plain.end()
