"""What a command leaves of a named shell, or writes in its place, in the memory of PID 1."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandboxd.guest.commands import named_shell
from sandboxd.guest.commands.named_shell import MAX_NAMES, MAX_SHELLS, MAX_STATE, NamedShells

MOST_FOR_ONE = 4 << 20
MOST_FOR_ALL = 32 << 20
"""Half of what a sandbox has for its guest."""
PARTS = [b"a:b", b"c:d", b"a:b", b"c:d", b"/workspace\n", b"", b"", b"", b"complete", b""]
ROOM = MAX_STATE - 200


def written(*, options: bytes = b"a:b", variables: bytes = b"") -> bytes:
    """A state with these options and variables."""
    return b"\0".join((*PARTS[:2], options, *PARTS[3:5], variables, *PARTS[6:]))


class Saving(named_shell.Saving):
    """A state that has left its shell."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.given = ()
        self.descriptor = -1
        self._received = bytearray(data)


@contextmanager
def within(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
        assert peak < most
    finally:
        tracemalloc.stop()


def many(line: bytes) -> bytes:
    return b"".join(line % number for number in range(ROOM // (len(line) + 4)))


@pytest.mark.parametrize(
    "variables",
    [
        b"declare -ax A=(" + b"x" * ROOM + b")\n",
        b"declare -ax A=(" + b")" * ROOM + b")\n",
        b"declare -ax A=(" + b"''" * (ROOM // 2) + b")\n",
        b"declare -ax A=(" + b"''" * (ROOM // 2) + b"\n",
        b'declare -x A="' + b"\\x" * (ROOM // 2) + b'"\n',
        b'declare -x A="' + b"\\x" * (ROOM // 2) + b"\n",
    ],
    ids=["long", "parentheses", "strings", "open", "escapes", "open string"],
)
def test_reading_a_state_takes_little_memory(variables: bytes) -> None:
    """However large and strange it is, about as much as its text."""
    saved = written(variables=variables)
    with within(MOST_FOR_ONE):
        named_shell.parse(saved)


@pytest.mark.parametrize(
    "saved",
    [
        written(variables=many(b"declare -x v%x\n")),
        written(options=many(b":o%x")),
        written(variables=b'declare -x A="' + b"x" * ROOM + b'"\n'),
    ],
    ids=["variables", "options", "one large one"],
)
def test_all_shells_together_take_little_memory(saved: bytes) -> None:
    """As many shells as there may be, each left in the worst state, do not use up what the guest
    has."""
    shells = NamedShells()
    with within(MOST_FOR_ALL):
        for number in range(MAX_SHELLS):
            shells.keep(Saving(f"shell{number}", saved))
            shells.settle(["PATH"])


def test_number_of_names_is_limited() -> None:
    """A state with more is not kept, and with fewer it is."""
    shells = NamedShells()
    enough = b"".join(b'declare -x v%d="1"\n' % number for number in range(MAX_NAMES - 50))

    assert shells.keep(Saving("shell", written(variables=enough)))
    state = shells.get("shell", [])
    assert state is not None
    assert len(state.variables) == MAX_NAMES - 50
    assert not shells.keep(Saving("shell", written(variables=2 * enough)))
    assert shells.get("shell", []) == state


@pytest.mark.parametrize("saved", [b"", b"\0", b"\0" * 5, b"\0" * 20, b"complete\0"])
def test_incomplete_state_is_not_kept(saved: bytes) -> None:
    """A shell that was killed leaves nothing, or a part."""
    shells = NamedShells()

    assert shells.keep(Saving("shell", saved))
    assert shells.get("shell", []) is None
