"""The state of a named shell, as its shell writes it, or a command in its place."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random

from sandboxd.guest.commands import named_shell
from tests.fuzz.target import Run, Target

PARTS = (
    b"braceexpand:hashall",
    b"cmdhist:extquote",
    b"braceexpand:errexit",
    b"cmdhist:nullglob",
    b"/workspace\n",
    b'declare -x HOME="/workspace"\ndeclare -rx A="x \\"y\\" \\$z"\ndeclare -x OLDPWD="/"\n'
    b"declare -ax B=([0]=\"1\" [1]='2')\ndeclare -x C=$'a\\nb'\ndeclare -x D\n",
    b"f () \n{ \n    echo hi\n}\n",
    b"alias ll='ls -l'\n",
    b"complete",
    b"",
)


class Written(named_shell.Saving):
    """A state that has left its shell."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.given = {"A": "1"}
        self.descriptor = -1
        self._received = bytearray(data)


@contextmanager
def keeping() -> Iterator[Run]:
    """As the guest does it between two commands, for as many shells as there may be."""
    shells, numbers = named_shell.NamedShells(), count()
    inherited = ["PATH", "HOME"]

    async def run(data: bytes) -> Hashable:
        name = f"shell{next(numbers) % named_shell.MAX_SHELLS}"
        if not shells.keep(Written(name, data)):
            return "too large"
        state = shells.get(name, inherited)
        if state is None:
            return None
        lines = named_shell.set_up(state, given={"A": "1"}, cwd="/workspace/d")
        last = named_shell.last_lines(state, "bash")
        assert b"\0" not in lines + last
        return len(state.variables), len(state.options_on) > 3, bool(state.old_cwd)

    yield run


def completed(data: bytes, random: Random) -> bytes:
    """The same with as many parts as there have to be, the last of them the end."""
    parts = data.split(b"\0")[:8]
    parts += list(PARTS[len(parts) : 8])
    return b"\0".join((*parts, *PARTS[8:]))


SHELL_STATE = Target(
    name="shell-state",
    open=keeping,
    seeds=[b"\0".join(PARTS)],
    words=[
        *(b"declare -x X", b'="', b'"\n', b"=$'", b"'\n", b"=(", b")\n", b"\\", b'\\"', b"\0"),
        *(b"declare -ax Y=(", b'[0]="a" ', b"declare -fx f\n", b":noexec", b"BASH_ENV"),
    ],
    repair=completed,
    max_bytes=named_shell.MAX_STATE,
)
