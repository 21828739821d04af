"""What may run: the profiles `strict` and `open`, and what a profile is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LISTED = _names(
    "awk basename bc cat comm cut date diff dirname echo file find grep head jq ls python python3 "
    "sed sort stat tail tee tr uniq wc"
)
"""The tools of data analysis: what agents are told they have."""
COMPANIONS = _names(
    "b2sum base32 base64 cksum cmp column diff3 df du egrep expand expr factor fgrep fmt fold gawk "
    "id join mawk md5sum mkdir nl nproc numfmt od paste pr readlink realpath rev seq sha1sum "
    "sha224sum sha256sum sha384sum sha512sum shuf sleep sum tac touch tsort uname unexpand "
    "which whoami xxd yes zcat"
)
"""Others of their kind: they read and print, or make an empty file or directory."""
BUILTINS = _names(
    ": [ [[ break builtin cd command continue declare dirs eval exec exit export false getopts "
    "jobs let local mapfile popd printf pushd pwd read readarray readonly return set shift test "
    "times trap true type typeset umask unset wait"
)
"""What the shell itself does, and nobody else is harmed by."""
WRAPPERS = _names("bash dash env nice nohup sh stdbuf time timeout xargs")
"""They run another command, which is checked in its turn."""
FORBIDDEN = _names("rm mv dd curl wget ssh sudo chmod chown")
"""What agents are told they must not use."""

GUARDED = _names(
    "BASHOPTS BASH_ALIASES BASH_CMDS BASH_ENV BASH_LOADABLES_PATH ENV EXECIGNORE GLOBIGNORE PATH "
    "PROMPT_COMMAND PS0 PS1 PS2 PS4 PYTHONSTARTUP SHELL SHELLOPTS"
)
"""Variables that change what a command's name means, or hold commands."""
GUARDED_PREFIXES = ("LD_", "BASH_FUNC_")


def is_guarded(variable: str) -> bool:
    return variable in GUARDED or variable.startswith(GUARDED_PREFIXES)


INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "rm": "Leave the file, or empty it with `: > FILE`; the files API removes files, and all "
        "go with the session.",
        "mv": "Copy it with `cat OLD > NEW`; the files API moves files.",
        "dd": "Use `head -c N` or `tail -c +N`.",
        "curl": "There is no network; upload the data through the files API.",
        "wget": "There is no network; upload the data through the files API.",
        "ssh": "There is no network; everything runs in this sandbox.",
        "sudo": "Run the command without it; nothing here needs another user.",
        "chmod": "Run a script through its interpreter, as in `python3 SCRIPT`.",
        "chown": "Files belong to you already.",
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
        "pip": "Packages are part of the environment; ask for it to be prepared with them.",
        "pip3": "Packages are part of the environment; ask for it to be prepared with them.",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may run. Without an allow-list everything may that is not forbidden."""

    name: str
    allow: frozenset[str] | None = None
    """Names of programs and builtins, and absolute paths; None means any."""
    forbid: frozenset[str] = frozenset()
    """Names that never run, wherever the program is."""
    forbid_patterns: tuple[str, ...] = ()
    """Shell patterns of whole command lines, such as `git push*`."""
    forbid_writes: tuple[str, ...] = ()
    """Shell patterns of files that redirections must not write to."""
    inline_code: bool = True
    """Whether interpreters other than shells take code from the command: `python3 -c`."""
    instead: Mapping[str, str] = field(default_factory=lambda: INSTEAD)
    """For a command that is refused: a sentence that says what to do."""

    @property
    def checks_nothing(self) -> bool:
        return (
            self.allow is None
            and self.inline_code
            and not (self.forbid or self.forbid_patterns or self.forbid_writes)
        )

    @property
    def examples(self) -> str:
        """What is allowed, for a sentence."""
        names = sorted((self.allow or frozenset()) - BUILTINS - WRAPPERS - COMPANIONS)
        return ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")


STRICT = Policy(name="strict", allow=LISTED | COMPANIONS | BUILTINS | WRAPPERS, forbid=FORBIDDEN)
OPEN = Policy(name="open")
