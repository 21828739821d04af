"""Commands that run other commands, and how each names what it runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sandboxd.policy.words import UNKNOWN, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "rbash", "mksh"})


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(slots=True)
class Inside:
    """What a wrapper runs."""

    commands: list[Sequence[Word]] = field(default_factory=list)
    scripts: list[Word] = field(default_factory=list)
    """Texts that are shell commands themselves."""
    reads_input: bool = False
    """Whether it runs what it reads from its standard input."""
    unseen: str = ""
    """What it runs that cannot be seen here."""
    variables: list[str] = field(default_factory=list)
    """What it sets for the command."""


class Unclear(Exception):
    """The words do not tell what runs; the text says which word."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a program. One that is not named here makes the command unclear."""

    flags: str = ""
    valued: str = ""
    """Letters that take a value, in the same word or the next."""
    long_flags: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    """Long options that take a value; after `=`, or as the next word."""
    is_number_a_flag: bool = False
    ends_at_variables: bool = False
    """Whether a quoted variable is taken as an operand, though it might hold an option."""

    def read(self, args: Sequence[Word]) -> tuple[list[tuple[str, Word | None]], list[Word]]:
        """The options, each with its value, and the words from the first that is none."""
        found: list[tuple[str, Word | None]] = []
        rest = list(args)
        while rest and rest[0].starts_like_an_option():
            word = rest[0]
            if not word.is_literal and (word.may_split or not self.ends_at_variables):
                raise Unclear(word.text)
            if not word.is_literal or word.text == "-":
                break
            rest.pop(0)
            if word.text == "--":
                break
            if word.text.startswith("--"):
                self._long(word, rest, found)
            elif not (self.is_number_a_flag and word.text[1:].isdigit()):
                self._short(word, rest, found)
        return found, rest

    def _long(self, word: Word, rest: list[Word], found: list[tuple[str, Word | None]]) -> None:
        name, equals, value = word.text[2:].partition("=")
        if name in self.long_valued:
            found.append((name, Word(value) if equals else _next(word, rest)))
        elif name in self.long_flags:
            found.append((name, Word(value) if equals else None))
        else:
            raise Unclear(word.text)

    def _short(self, word: Word, rest: list[Word], found: list[tuple[str, Word | None]]) -> None:
        letters = word.text[1:]
        for place, letter in enumerate(letters):
            if letter in self.valued:
                value = letters[place + 1 :]
                found.append((letter, Word(value) if value else _next(word, rest)))
                return
            if letter not in self.flags:
                raise Unclear(word.text)
            found.append((letter, None))


def _next(option: Word, rest: list[Word]) -> Word:
    if not rest or rest[0].may_split:
        raise Unclear(option.text)
    return rest.pop(0)


def inside(name: str, args: Sequence[Word]) -> Inside | None:
    """What the command runs; None if it is no wrapper. Unclear if its words do not tell."""
    if name in SHELLS:
        return _shell(args)
    if name in _SPECIAL:
        return _SPECIAL[name](args)
    if name in _SIMPLE:
        options, operands, takes_variables = _SIMPLE[name]
        _, rest = options.read(args)
        return _command(rest, operands, takes_variables=takes_variables)
    return None


def _command(rest: list[Word], operands: int = 0, *, takes_variables: bool = False) -> Inside:
    found = Inside()
    for _ in range(operands):
        if rest and rest.pop(0).may_split:
            raise Unclear("a word that may be several")
    while takes_variables and rest:
        match = _ASSIGNMENT.match(rest[0].text)
        if match is None:
            break
        if rest.pop(0).may_split:
            raise Unclear("a word that may be several")
        found.variables.append(match[1])
    if rest:
        found.commands.append(rest)
    return found


_SIMPLE: Mapping[str, tuple[Options, int, bool]] = {
    "builtin": (Options(), 0, False),
    "chroot": (
        Options(long_flags=words_of("skip-chdir"), long_valued=words_of("userspec groups")),
        1,
        False,
    ),
    "coproc": (Options(), 0, False),
    "doas": (Options(flags="Lns", valued="Cu"), 0, False),
    "exec": (Options(flags="cl", valued="a"), 0, False),
    "flock": (
        Options(flags="sxeunoFv", valued="wE", long_flags=words_of("nonblock verbose close")),
        1,
        False,
    ),
    "ionice": (Options(flags="t", valued="cn"), 0, False),
    "nice": (
        Options(valued="n", long_valued=words_of("adjustment"), is_number_a_flag=True),
        0,
        False,
    ),
    "nohup": (Options(), 0, False),
    "setsid": (Options(flags="cfw", long_flags=words_of("ctty fork wait")), 0, False),
    "stdbuf": (Options(valued="ioe", long_valued=words_of("input output error")), 0, False),
    "sudo": (
        Options(
            flags="AbEHnPSkKis",
            valued="CDghpRrTtUu",
            long_flags=words_of("preserve-env login shell non-interactive stdin"),
            long_valued=words_of("user group host chdir"),
        ),
        0,
        True,
    ),
    "time": (Options(flags="apvqV", valued="fo"), 0, False),
    "timeout": (
        Options(
            flags="v",
            valued="ks",
            long_flags=words_of("foreground preserve-status verbose"),
            long_valued=words_of("kill-after signal"),
        ),
        1,
        False,
    ),
    "unshare": (Options(flags="muinpUCTrfc"), 0, False),
    "busybox": (Options(), 0, False),
    "toybox": (Options(), 0, False),
}

_ENV = Options(
    flags="i0v",
    valued="uCS",
    long_flags=words_of("ignore-environment null debug"),
    long_valued=words_of("unset chdir split-string"),
)
_XARGS = Options(
    flags="0rtpxo",
    valued="aEIdLnPs",
    long_flags=words_of("null no-run-if-empty verbose interactive exit open-tty"),
    long_valued=words_of("arg-file delimiter max-args max-procs max-chars max-lines"),
)
_SHELL = Options(
    flags="cilsxevnufhmpartkBCEHPT",
    valued="oO",
    long_flags=words_of("norc noprofile login posix noediting verbose"),
)
_COMMAND = Options(flags="pvV")
_WATCH = Options(
    flags="bcdegtpx",
    valued="n",
    long_flags=words_of("beep color errexit chgexit no-title precise exec"),
    long_valued=words_of("interval"),
)
_SCRIPT = Options(
    flags="aefq",
    valued="cEIOBTm",
    long_flags=words_of("append return flush quiet"),
    long_valued=words_of("command log-in log-out log-io log-timing"),
)
_SU = Options(
    flags="lmp", valued="cgGs", long_flags=words_of("login"), long_valued=words_of("command shell")
)
_SSH = Options(flags="46AaCfGgKkMNnqsTtVvXxYy", valued="BbcDEeFIiJLlmOopQRSWw")


def _shell(args: Sequence[Word]) -> Inside:
    # `+x` turns an option off.
    normal = [
        Word("-" + arg.text[1:]) if arg.is_literal and re.match(r"\+[a-zA-Z]", arg.text) else arg
        for arg in args
    ]
    options, rest = _SHELL.read(normal)
    letters = {letter for letter, _ in options}
    if "c" in letters:
        return Inside(scripts=[rest[0]]) if rest else Inside(unseen="a missing script")
    if rest and "s" not in letters:
        return Inside(unseen=f"the script {rest[0].text}")
    return Inside(reads_input=True)


def _env(args: Sequence[Word]) -> Inside:
    options, rest = _ENV.read(args)
    split = [value for letter, value in options if letter in ("S", "split-string")]
    if split:
        # Its quoting is nearly the shell's; near is not enough for anything but plain words.
        text = split[0]
        if len(split) > 1 or text is None or not re.fullmatch(r"[\w ./=,:+-]+", text.text):
            raise Unclear("-S")
        rest = [Word(one) for one in text.text.split()] + rest
        return _env(rest)
    if rest and rest[0].text == "-" and rest[0].is_literal:
        rest = rest[1:]
    return _command(rest, takes_variables=True)


def _xargs(args: Sequence[Word]) -> Inside:
    # -i and -l take their values in the same word only, and are not needed.
    options, rest = _XARGS.read(args)
    if not rest:
        return Inside()  # runs echo
    replaced = [value.text for letter, value in options if letter == "I" and value is not None]
    if replaced:
        return Inside(commands=[_replaced(rest, replaced[-1])])
    return Inside(commands=[[*rest, UNKNOWN]])


def _replaced(words: Sequence[Word], mark: str) -> list[Word]:
    return [Word(one.text, is_literal=False) if mark in one.text else one for one in words]


def _eval(args: Sequence[Word]) -> Inside:
    rest = list(args)
    if rest and rest[0].text == "--":
        rest.pop(0)
    if not all(word.is_literal for word in rest):
        return Inside(scripts=[UNKNOWN])
    return Inside(scripts=[Word(" ".join(word.text for word in rest))])


def _command_builtin(args: Sequence[Word]) -> Inside:
    options, rest = _COMMAND.read(args)
    if any(letter in "vV" for letter, _ in options):
        return Inside()
    return _command(rest)


def _source(args: Sequence[Word]) -> Inside:
    return Inside(unseen=f"the file {args[0].text}") if args else Inside()


def _trap(args: Sequence[Word]) -> Inside:
    _, rest = Options(flags="lp").read(args)
    if len(rest) < 2 or rest[0].text == "-":
        return Inside()
    return Inside(scripts=[rest[0]])


def _watch(args: Sequence[Word]) -> Inside:
    _, rest = _WATCH.read(args)
    return _eval(rest)


def _script_command(args: Sequence[Word]) -> Inside:
    options, _ = _SCRIPT.read(args)
    commands = [value for letter, value in options if letter in ("c", "command") and value]
    return Inside(scripts=commands) if commands else Inside(reads_input=True)


def _su(args: Sequence[Word]) -> Inside:
    options, _ = _SU.read(args)
    commands = [value for letter, value in options if letter in ("c", "command") and value]
    return Inside(scripts=commands) if commands else Inside(reads_input=True)


def _ssh(args: Sequence[Word]) -> Inside:
    _, rest = _SSH.read(args)
    return _eval(rest[1:]) if len(rest) > 1 else Inside(reads_input=True)


def _parallel(args: Sequence[Word]) -> Inside:
    return Inside(unseen="commands made from its input")


_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})


def _find(args: Sequence[Word]) -> Inside:
    found = Inside()
    words = list(args)
    while words:
        word = words.pop(0)
        if not word.is_literal:
            _check_find_word(word, words)
        elif word.text in _FIND_ACTIONS:
            command: list[Word] = []
            while words and words[0].text not in (";", "+"):
                command.append(words.pop(0))
            found.commands.append(_replaced(command, "{}"))
        elif word.text == "-delete":
            found.commands.append([Word("rm"), Word("-- (find -delete)")])
        elif word.text in _FIND_WRITES and words:
            found.commands.append([Word("tee"), words[0]])
    return found


def _check_find_word(word: Word, after: Sequence[Word]) -> None:
    """A value or a path may be a variable, but not one that could be -exec and what follows."""
    is_pattern = word.may_split and "$" not in word.text and "`" not in word.text
    if is_pattern and (word.text[0] not in "*?[{" or "." in word.text or "/" in word.text):
        return
    follows = after[0] if after else None
    could_be_command = follows is not None and not (
        follows.is_literal and follows.text[:1] in ("-", "(", ")", "!", "", "/", ".")
    )
    if word.may_split or could_be_command:
        raise Unclear(word.text)


_SPECIAL: Mapping[str, Callable[[Sequence[Word]], Inside]] = {
    "env": _env,
    "xargs": _xargs,
    "eval": _eval,
    "command": _command_builtin,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "watch": _watch,
    "script": _script_command,
    "su": _su,
    "ssh": _ssh,
    "parallel": _parallel,
    "find": _find,
}
