"""What may run: the content of a profile, and the profiles `strict` and `open`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LISTED = _names(
    "awk basename bc cat comm cut date diff dirname echo file find grep head jq ls python python3 "
    "rg sed sort stat tail tee tr uniq wc"
)
"""The tools of data analysis that agents are promised."""
COMPANIONS = _names(
    "b2sum base32 base64 cksum cmp column diff3 df du egrep expand expr factor fgrep fmt fold gawk "
    "id join mawk md5sum mkdir nl nproc numfmt od paste pr readlink realpath rev seq sha1sum "
    "sha224sum sha256sum sha384sum sha512sum shuf sleep sum tac touch tsort uname unexpand "
    "sandboxd-sql which whoami xxd yes zcat"
)
"""Similar tools: they read and print, or make an empty file or directory. What sandboxd-sql does is
limited by the session's data sources."""
BUILTINS = _names(
    ": [ [[ break builtin cd command continue declare dirs eval exec exit export false getopts "
    "jobs let local mapfile popd printf pushd pwd read readarray readonly return set shift test "
    "times trap true type typeset umask unset wait"
)
"""Harmless builtins of the shell."""
WRAPPERS = _names("bash dash env nice nohup sh stdbuf time timeout xargs")
"""Programs that run another command, which is checked as well."""
FORBIDDEN = _names("rm mv dd curl wget ssh sudo chmod chown")
"""Programs that agents must not use."""

GUARDED = _names(
    "BASHOPTS BASH_ALIASES BASH_CMDS BASH_ENV BASH_LOADABLES_PATH ENV EXECIGNORE GLOBIGNORE PATH "
    "PROMPT_COMMAND PS0 PS1 PS2 PS4 PYTHONSTARTUP RIPGREP_CONFIG_PATH SHELL SHELLOPTS SSH2_CLIENT "
    "SSH_CLIENT"
)
"""Variables that change what a command's name means, or hold commands. With SSH_CLIENT, bash reads
~/.bashrc."""
GUARDED_PREFIXES = ("LD_", "BASH_FUNC_")
_GUARDED_NAME = rf"(?:{'|'.join(sorted(GUARDED))}|(?:{'|'.join(GUARDED_PREFIXES)})\w*)\b"
_GUARDED_ASSIGNMENT = re.compile(
    rf"(?:\+\+|--)\s?({_GUARDED_NAME})"
    rf"|(?<![\w${{])({_GUARDED_NAME})\s{{0,9}}(?:\[[^\]]{{0,99}}\]\s{{0,9}})?"
    r"(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))",
    re.ASCII,
)


def is_guarded(variable: str) -> bool:
    return variable in GUARDED or variable.startswith(GUARDED_PREFIXES)


def assigns_guarded(expression: str) -> str:
    """The guarded variable that an arithmetic expression sets; empty if there is none."""
    match = _GUARDED_ASSIGNMENT.search(expression)
    return (match[1] or match[2]) if match else ""


INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "rm": "Leave the file, or empty it with `: > FILE`; the files API removes files, and all "
        "files are deleted with the session.",
        "mv": "Copy it with `cat OLD > NEW`; the files API moves files.",
        "dd": "Use `head -c N` or `tail -c +N`.",
        "curl": "There is no network; upload the data through the files API.",
        "wget": "There is no network; upload the data through the files API.",
        "ssh": "There is no network; everything runs in this sandbox.",
        "sudo": "Run the command without it; nothing here needs another user.",
        "chmod": "Run a script through its interpreter, as in `python3 SCRIPT`.",
        "chown": "Files already belong to you.",
        "cp": "Use `cat FROM > TO`.",
        "perl": "Use python3, awk or sed.",
        "node": "Use python3.",
        "ruby": "Use python3.",
        "vi": "Use sed, or write the file with cat and a here-document.",
        "vim": "Use sed, or write the file with cat and a here-document.",
        "nano": "Use sed, or write the file with cat and a here-document.",
        "more": "Use cat, head or tail.",
        "less": "Use cat, head or tail.",
        "source": "Write the commands themselves.",
        ".": "Write the commands themselves.",
        "pip": "Packages are part of the environment; ask for one that has them.",
        "pip3": "Packages are part of the environment; ask for one that has them.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may run. Without an allow-list, everything that is not forbidden may."""

    name: str
    allow: frozenset[str] | None = None
    """Names of programs and builtins, and absolute paths; None means any."""
    forbid: frozenset[str] = frozenset()
    """Names of programs that may not run from any directory."""
    forbid_patterns: tuple[str, ...] = ()
    """Shell patterns of forbidden command lines, such as `git push*`."""
    forbid_writes: tuple[str, ...] = ()
    """Shell patterns of files that redirections must not write to."""
    inline_code: bool = True
    """Whether interpreters other than shells may take code from the command: `python3 -c`."""
    instead: Mapping[str, str] = field(default_factory=lambda: INSTEAD)
    """Sentences by refused command that say what to do instead."""

    @property
    def checks_nothing(self) -> bool:
        return (
            self.allow is None
            and self.inline_code
            and not (self.forbid or self.forbid_patterns or self.forbid_writes)
        )

    @property
    def examples(self) -> str:
        """Names of allowed programs, for a sentence."""
        names = sorted((self.allow or frozenset()) - BUILTINS - WRAPPERS - COMPANIONS)
        return ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")


STRICT = Policy(name="strict", allow=LISTED | COMPANIONS | BUILTINS | WRAPPERS, forbid=FORBIDDEN)
STRICT_NODE = replace(
    STRICT, name="strict-node", allow=(STRICT.allow or _names("")) | _names("node tsc tsx")
)
"""What takes the place of `strict` in environments with Node.js."""
OPEN = Policy(name="open")
