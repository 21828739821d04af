"""Named shells: what one command leaves behind for the next one of the same name.

Before a command, lines that bring back the state are run in its shell; a trap at its end writes the
state to a descriptor that the guest reads. The state is text that bash made of itself, taken apart
only as far as needed: parts end with NUL, which no variable and no function can hold.

Kept are the directory, exported scalars, functions, aliases and options. `exec` and SIGKILL leave
no time to save; the state from before then stays.
"""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

MAX_SHELLS = 64
MAX_STATE = 256 * 1024
MAX_NAMES = 1000
"""Variables and options of a state: each takes far more memory than its bytes, and PID 1 has
little."""
STATE = 60
"""Descriptor in the shell that the state is written to. Scripts seldom use it, and it is below the
lowest limit of open files that can be set."""
MESSAGE = "sandboxd: "
_MARKER = b"complete"
_CHUNK = 1 << 16

# Nothing is ever tried again: to remember where it could be takes 100 times the memory of the text.
_DOUBLE = rb'"(?:[^"\\]++|\\.)*+"'
_SINGLE = rb"'(?:[^'\\]++|\\.)*+'"
_VARIABLE = re.compile(
    rb"declare -(?P<flags>[A-Za-z-]++) (?P<name>[A-Za-z_][A-Za-z0-9_]*+)"
    rb"(?:=(?P<value>" + _DOUBLE + rb"|\$" + _SINGLE + rb"|"
    rb"\((?:[^\"'\n)]++|\)(?!\n)|" + _DOUBLE + rb"|" + _SINGLE + rb")*+\)))?\n",
    re.DOTALL,
)
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_SCALAR_FLAGS = frozenset(b"xriluct-")

# Bash keeps these itself, refuses to assign them, or gives the assignment another meaning.
_OWN_NAMES = frozenset(
    [
        b"DIRSTACK",
        b"EPOCHREALTIME",
        b"EPOCHSECONDS",
        b"EUID",
        b"FUNCNAME",
        b"GROUPS",
        b"LINENO",
        b"OLDPWD",
        b"PPID",
        b"PWD",
        b"RANDOM",
        b"SECONDS",
        b"SHELLOPTS",
        b"SHLVL",
        b"SRANDOM",
        b"UID",
        b"_",
    ]
)
# With these a shell would run nothing, not even what could turn them off again.
_NEVER_SET = frozenset([b"noexec", b"onecmd"])

# First the options of a new shell are told, at the end those of this one: the change is kept. The
# functions run with any options, variables and functions of the user's, hence `builtin` and odd
# names. Ours comes first in a trap of the user's own, so that `exit` in that one does not prevent
# saving, and in an && list, where -e and ERR are not concerned when the status is not 0.
_SAVING = (
    r"""
builtin printf '%s\0%s\0' "$SHELLOPTS" "$BASHOPTS" >&DESCRIPTOR
__sandboxd_save() {
  local __sandboxd_status=$?
  if [[ $BASHPID == "$$" ]]; then
    unset -f trap __sandboxd_save
    {
      builtin printf '%s\0%s\0' "$SHELLOPTS" "$BASHOPTS"
      builtin pwd
      builtin printf '\0'
      builtin declare -px
      builtin printf '\0'
      builtin declare -f
      builtin printf '\0'
      builtin alias -p
      builtin printf '\0complete\0'
    } >&DESCRIPTOR
    exec DESCRIPTOR>&-
  fi
  return $__sandboxd_status
}
trap() {
  { local - __sandboxd_text; builtin set +x; } 2>/dev/null
  if [[ $# == 0 || $1 == -p ]]; then
    __sandboxd_text=$(builtin trap "$@")$'\n' || return
    __sandboxd_text=${__sandboxd_text/"trap -- 'HOOK' EXIT"$'\n'}
    __sandboxd_text=${__sandboxd_text/"'HOOK"$'\n'/"'"}
    [[ $__sandboxd_text == $'\n' ]] || builtin printf '%s' "$__sandboxd_text"
    return 0
  fi
  builtin trap "$@" || return
  if [[ $BASHPID == "$$" ]]; then
    __sandboxd_text=$(builtin trap -p EXIT)
    if [[ ! $__sandboxd_text ]]; then
      builtin trap -- 'HOOK' EXIT
    elif [[ $__sandboxd_text != "trap -- 'HOOK"* ]]; then
      builtin eval "builtin trap -- 'HOOK'\$'\n'${__sandboxd_text#trap -- }"
    fi
  fi
  return 0
}
builtin trap -- 'HOOK' EXIT
""".replace("HOOK", "{ __sandboxd_save && :; } 2>/dev/null")
    .replace("DESCRIPTOR", str(STATE))
    .lstrip()
)


class State(NamedTuple):
    """A shell between two commands."""

    cwd: bytes
    options_on: tuple[bytes, ...]
    """Those of `set -o` that a new shell has not; the next three likewise."""
    options_off: tuple[bytes, ...]
    shopts_on: tuple[bytes, ...]
    shopts_off: tuple[bytes, ...]
    variables: Mapping[bytes, bytes]
    """By name: the line that declares it."""
    unset: frozenset[bytes]
    """Variables that a new shell has and this one has not."""
    old_cwd: bytes | None
    """As bash quotes it."""
    functions: bytes
    aliases: bytes


def parse(saved: bytes) -> State | None:
    """The state that a shell wrote; None unless it is complete."""
    parts = saved.split(b"\0")
    if len(parts) != 10 or parts[8] != _MARKER or parts[9]:
        return None
    new_options, new_shopts, options, shopts = (set(part.split(b":")) for part in parts[:4])
    cwd, variables, functions, aliases = parts[4:8]
    declared = _declarations(variables)
    if declared is None:
        return None
    old = declared.get(b"OLDPWD")
    return State(
        cwd=cwd.removesuffix(b"\n"),
        options_on=tuple(sorted(options - new_options - _NEVER_SET)),
        options_off=tuple(sorted(new_options - options)),
        shopts_on=tuple(sorted(shopts - new_shopts)),
        shopts_off=tuple(sorted(new_shopts - shopts)),
        variables={
            name: match[0].removesuffix(b"\n")
            for name, match in declared.items()
            if not _is_own(name) and _SCALAR_FLAGS.issuperset(match["flags"])
        },
        unset=frozenset(),
        old_cwd=old["value"] if old else None,
        functions=functions,
        aliases=aliases,
    )


def merge(
    before: State | None, after: State, *, given: Collection[str], inherited: Iterable[str]
) -> State:
    """What to keep of `after`: variables that the request gave were for its command only.

    `inherited` are those that a new shell has; what is missing of them was unset.
    """
    names = {os.fsencode(name) for name in given}
    missing = {os.fsencode(name) for name in inherited} - after.variables.keys() - names
    variables = {name: line for name, line in after.variables.items() if name not in names}
    if before is not None:
        variables |= {name: line for name, line in before.variables.items() if name in names}
        missing |= before.unset & names
    return after._replace(
        variables=variables, unset=frozenset(name for name in missing if _is_plain(name))
    )


def set_up(state: State | None, *, given: Collection[str], cwd: str | None) -> bytes:
    """Lines that bring `state` back and have it saved at the end.

    Variables that the request gave win, and so does its directory.
    """
    lines = [_SAVING.encode()]
    if state is not None:
        names = {os.fsencode(name) for name in given}
        gone = sorted(state.unset - names)
        lines += [b"unset -v " + b" ".join(gone)] if gone else []
        lines += [line for name, line in state.variables.items() if name not in names]
        if state.functions:
            # A pattern of theirs may need the option to be read at all.
            lines += [b"shopt -s extglob", b"eval " + _quote(state.functions), b"shopt -u extglob"]
        lines.append(_directory(state))
    if cwd is not None:
        lines.append(b"builtin cd -- " + _quote(os.fsencode(cwd)) + b" || exit 126")
    return b"\n".join(lines) + b"\n"


def last_lines(state: State | None, last_argument: str) -> bytes:
    """What comes after everything else, leaving `last_argument` as $_: options, which would change
    how the rest is read."""
    leave = b": " + _quote(last_argument.encode()) + b"\n"
    if state is None:
        return leave
    lines = [b"builtin eval " + _quote(state.aliases)] if state.aliases else []
    if state.shopts_off:
        lines.append(b"builtin shopt -u " + b" ".join(state.shopts_off))
    if state.shopts_on:
        lines.append(b"builtin shopt -s " + b" ".join(state.shopts_on))
    options = [b"+o " + name for name in state.options_off]
    options += [b"-o " + name for name in state.options_on]
    if options:
        lines.append(b"builtin set " + b" ".join(options))
    lines.append(leave)
    # Traces of what is not theirs stay out of sight.
    return b"{\n" + b"\n".join(lines) + b"} 2>/dev/null\n"


def _directory(state: State) -> bytes:
    told = b"%s is not there any more; the shell is back in %s\\n"
    cwd = _quote(state.cwd)
    # Without a value it is exported nevertheless, as in a new shell.
    old = b"unset -v OLDPWD; export OLDPWD" + (b"=" + state.old_cwd if state.old_cwd else b"")
    return b"if builtin cd -- %s 2>/dev/null; then %s; else\n" % (
        cwd,
        old,
    ) + b"printf '%s' %s \"$PWD\" >&2\nfi" % (MESSAGE.encode() + told, cwd)


def _declarations(text: bytes) -> dict[bytes, re.Match[bytes]] | None:
    found = {}
    position = 0
    while position < len(text):
        match = _VARIABLE.match(text, position)
        if match is None:
            return None
        found[match["name"]] = match
        position = match.end()
    return found


def _has_too_many_names(saved: bytes) -> bool:
    parts = saved.split(b"\0", 6)
    options, variables = parts[:4], parts[5:6]
    count = sum(part.count(b":") for part in options)
    return count + sum(part.count(b"\ndeclare ") for part in variables) >= MAX_NAMES


def _is_own(name: bytes) -> bool:
    return name in _OWN_NAMES or name.startswith((b"BASH", b"__sandboxd"))


def _is_plain(name: bytes) -> bool:
    """Whether bash can have it as a variable of its own choosing."""
    return _NAME.fullmatch(name) is not None and not _is_own(name)


def _quote(text: bytes) -> bytes:
    return os.fsencode(shlex.quote(os.fsdecode(text)))


class Saving:
    """A state on its way out of a shell."""

    def __init__(self, name: str, descriptor: int, given: Collection[str]) -> None:
        os.set_blocking(descriptor, False)
        self.name = name
        self.given = given
        self.descriptor = descriptor
        self._received = bytearray()

    def read(self) -> bool:
        """Take a chunk; False when there is none."""
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if len(self._received) <= MAX_STATE:
            self._received += data
        if not data:
            self.close()
        return bool(data)

    @property
    def is_too_large(self) -> bool:
        return len(self._received) > MAX_STATE

    def finish(self) -> bytes:
        """What its shell, which has ended, wrote of it."""
        # What is there now, and not what stragglers with the descriptor may add for ever.
        for _ in range(2 * MAX_STATE // _CHUNK):
            if self.descriptor < 0 or not self.read():
                break
        self.close()
        return bytes(self._received)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class NamedShells:
    """The states of all named shells of a sandbox."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self._saved: list[tuple[Saving, bytes]] = []
        """Not looked at yet: whoever waits for the command should not wait for that."""

    def get(self, name: str, inherited: Iterable[str]) -> State | None:
        self.settle(inherited)
        return self._states.get(name)

    def has_room_for(self, name: str) -> bool:
        return name in self._states or len(self._states) < MAX_SHELLS

    def keep(self, saving: Saving) -> bool:
        """Take the new state if it is complete; False if it was too large."""
        saved = saving.finish()
        if saving.is_too_large or _has_too_many_names(saved):
            return False
        self._saved.append((saving, saved))
        return True

    def settle(self, inherited: Iterable[str]) -> None:
        """Look at what was saved; `inherited` are the variables of a new shell."""
        for saving, saved in self._saved:
            state = parse(saved)
            if state is not None and self.has_room_for(saving.name):
                before = self._states.get(saving.name)
                self._states[saving.name] = merge(
                    before, state, given=saving.given, inherited=inherited
                )
        self._saved.clear()
