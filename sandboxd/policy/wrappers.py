"""Commands that run other commands, and how their arguments name them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sandboxd.policy.words import UNKNOWN, Word

Option: TypeAlias = tuple[str, Word | None]
"""Letter or long name of an option, and its value."""

_AFTER_DASHES = "Put `--` before words that are not known beforehand, as in `xargs sort --`."
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=", re.ASCII)
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "rbash", "mksh"})
_DESCRIBES_ITSELF = frozenset({"bash", "env", "nice", "nohup", "sed", "stdbuf", "timeout", "xargs"})


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(slots=True)
class Inside:
    """What a wrapper runs."""

    commands: list[Sequence[Word]] = field(default_factory=list)
    scripts: list[Word] = field(default_factory=list)
    """Arguments that are shell scripts."""
    reads_input: bool = False
    """Whether it runs its standard input."""
    unseen: str = ""
    """What it runs that cannot be checked."""
    instead: str = "Write the commands themselves, or use python3 SCRIPT."
    """What to do instead of running what is unseen."""
    variables: list[str] = field(default_factory=list)
    """Variables that it sets for the command."""


class Unclear(Exception):
    """What runs is not clear from the words; the text is the unclear word."""

    def __init__(self, word: str, instead: str = "Use plain options, and quote variables.") -> None:
        super().__init__(word)
        self.instead = instead


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a program. Any other option makes the command unclear."""

    flags: str = ""
    valued: str = ""
    """Letters that take a value, in the same word or the next."""
    long_flags: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    """Long options that take a value, after `=` or as the next word."""
    is_number_a_flag: bool = False
    ends_at_variables: bool = False
    """Whether a quoted variable counts as an operand, although it might hold an option."""

    def read(self, args: Sequence[Word]) -> tuple[list[Option], list[Word]]:
        """The options, each with its value, and the words from the first operand on."""
        found: list[Option] = []
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

    def read_all(self, args: Sequence[Word]) -> tuple[list[Option], list[Word]]:
        """The options and the operands of a program that accepts options after operands."""
        found: list[Option] = []
        operands: list[Word] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word.is_literal and word.text == "--":
                return found, operands + rest
            if not word.may_be_an_option():
                operands.append(word)
            elif not word.is_literal:
                if word.may_split or not self.ends_at_variables:
                    raise Unclear(word.text, _AFTER_DASHES)
                operands.append(word)
            elif word.text.startswith("--"):
                self._long(word, rest, found)
            else:
                self._short(word, rest, found)
        return found, operands

    def _long(self, word: Word, rest: list[Word], found: list[Option]) -> None:
        name, equals, value = word.text[2:].partition("=")
        if name in self.long_valued:
            found.append((name, Word(value) if equals else _next(word, rest)))
        elif name in self.long_flags:
            found.append((name, Word(value) if equals else None))
        else:
            raise Unclear(word.text)

    def _short(self, word: Word, rest: list[Word], found: list[Option]) -> None:
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


def only_describes_itself(name: str, args: Sequence[Word]) -> bool:
    """Whether the program only prints its help or its version."""
    is_alone = len(args) == 1 and args[0].is_literal
    return name in _DESCRIBES_ITSELF and is_alone and args[0].text in ("--help", "--version")


def inside(name: str, args: Sequence[Word]) -> Inside | None:
    """What the command runs; None if it is not a wrapper. Raises Unclear if that is not certain."""
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
_START_FILES = "start files such as ~/.bashrc"
_WITHOUT_START_FILES = "Use `bash -c` without -i, -l and --login."
_SET_LETTERS = frozenset("abefhmnptuvxBCEPT")
_SET_NAMES = words_of(
    "allexport braceexpand errexit errtrace functrace hashall monitor noclobber noexec noglob "
    "notify nounset physical pipefail posix privileged verbose xtrace"
)
_SHOPT_NAMES = words_of("dotglob failglob globstar inherit_errexit nocaseglob nullglob")
_SET_INSTEAD = "Use -e, -u, -x, -f and -o pipefail only, and put `--` before other words."
_COMMAND = Options(flags="pvV")
_EXEC = Options(flags="cl", valued="a")
_JOBS = Options(flags="lnprsx")
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
    if not letters.isdisjoint(("i", "l", "login")):
        return Inside(unseen=_START_FILES, instead=_WITHOUT_START_FILES)
    for letter, value in options:
        _check_shell_option(letter, value)
    if "c" in letters:
        return Inside(scripts=[rest[0]]) if rest else Inside(unseen="a missing script")
    if rest and "s" not in letters:
        return Inside(unseen=f"the script {rest[0].text}")
    return Inside(reads_input=True)


def _check_shell_option(letter: str, value: Word | None) -> None:
    """Refuse what changes how a shell reads commands: -k, history, and what is not known."""
    if letter in ("o", "O"):
        names = _SET_NAMES if letter == "o" else _SHOPT_NAMES
        if value is None or not value.is_literal or value.text not in names:
            raise Unclear(f"-{letter} {value.text if value else ''}", _SET_INSTEAD)
    elif letter in ("k", "H"):
        raise Unclear(f"-{letter}", _SET_INSTEAD)


def _set(args: Sequence[Word]) -> Inside:
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if not word.is_literal:
            if word.may_be_an_option():
                raise Unclear(word.text, _SET_INSTEAD)
            break
        if word.text in ("--", "-") or word.text[:1] not in ("-", "+"):
            break
        letters = word.text[1:]
        if letters.endswith("o"):
            letters = letters[:-1]
            if rest:
                _check_shell_option("o", rest.pop(0))
        if not _SET_LETTERS.issuperset(letters):
            raise Unclear(word.text, _SET_INSTEAD)
    return Inside()


def _exec(args: Sequence[Word]) -> Inside:
    options, rest = _EXEC.read(args)
    for letter, value in options:
        # A shell whose name begins with `-` is a login shell.
        if letter == "l" or (value is not None and value.starts_like_an_option()):
            return Inside(unseen=_START_FILES, instead="Use `exec` without -l and -a.")
    return _command(rest)


def _jobs(args: Sequence[Word]) -> Inside:
    options, rest = _JOBS.read(args)
    return _command(rest) if ("x", None) in options else Inside()


def _env(args: Sequence[Word]) -> Inside:
    options, rest = _ENV.read(args)
    split = [value for letter, value in options if letter in ("S", "split-string")]
    if split:
        # Its quoting only resembles the shell's, so only plain words are accepted.
        text = split[0]
        if len(split) > 1 or text is None or not re.fullmatch(r"[\w ./=,:+-]+", text.text):
            raise Unclear("-S")
        rest = [Word(word) for word in text.text.split()] + rest
        return _env(rest)
    if rest and rest[0].text == "-" and rest[0].is_literal:
        rest = rest[1:]
    return _command(rest, takes_variables=True)


def _xargs(args: Sequence[Word]) -> Inside:
    # -i and -l, which take values in the same word only, are not supported.
    options, rest = _XARGS.read(args)
    if not rest:
        return Inside()  # it runs echo
    replaced = [value.text for letter, value in options if letter == "I" and value is not None]
    if replaced:
        return Inside(commands=[[_from_input(word, replaced[-1]) for word in rest]])
    return Inside(commands=[[*rest, UNKNOWN]])


def _from_input(word: Word, mark: str) -> Word:
    if mark not in word.text:
        return word
    is_input = word.text.startswith(mark)
    return Word(word.text, is_literal=False, may_split=is_input, is_input=is_input)


def _replaced(words: Sequence[Word], mark: str) -> list[Word]:
    return [Word(word.text, is_literal=False) if mark in word.text else word for word in words]


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
            found.commands.append(_replaced(_find_command(words), "{}"))
        elif word.text == "-delete":
            found.commands.append([Word("rm"), Word("-- (find -delete)")])
        elif word.text in _FIND_WRITES and words:
            found.commands.append([Word("tee"), words[0]])
    return found


def _find_command(words: list[Word]) -> list[Word]:
    """Take the words of an action's command, and what ends it: `;`, or `+` behind `{}`."""
    command: list[Word] = []
    may_have_ended = False
    while words:
        word = words.pop(0)
        if word.text == ";" or (word.text == "+" and command and command[-1].text == "{}"):
            break
        if may_have_ended and word.text in _FIND_ACTIONS | _FIND_WRITES | {"-delete"}:
            raise Unclear(word.text, "Write the `;` that ends -exec itself, as in `\\;`.")
        may_have_ended |= not word.is_literal
        command.append(word)
    return command


def _check_find_word(word: Word, after: Sequence[Word]) -> None:
    """Refuse a variable that could stand for -exec; values and paths may be variables."""
    if word.is_pattern() and (word.text[0] not in "*?[{" or "." in word.text or "/" in word.text):
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
    "set": _set,
    "exec": _exec,
    "jobs": _jobs,
}
