"""posix_spawn that lets other threads run meanwhile.

Python's own holds the interpreter until the new program is loaded. The new process is a command's,
with the limits of commands: where they have used up memory or processor time, that takes long, and
the guest would stand still with it.
"""

import ctypes
import os
import signal
from collections.abc import Iterable, Mapping, Sequence

_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
"""From spawn.h."""
_ACTIONS_BYTES, _ATTRIBUTES_BYTES, _SIGSET_BYTES = 128, 512, 128
"""At least what they take in glibc, on every architecture: 80, 336, 128."""

_libc = ctypes.CDLL(None)
for _name in (
    "posix_spawn",
    "posix_spawn_file_actions_init",
    "posix_spawn_file_actions_destroy",
    "posix_spawn_file_actions_addopen",
    "posix_spawn_file_actions_adddup2",
    "posix_spawnattr_init",
    "posix_spawnattr_destroy",
    "posix_spawnattr_setflags",
    "posix_spawnattr_setsigmask",
    "posix_spawnattr_setsigdefault",
):
    getattr(_libc, _name).restype = ctypes.c_int


def posix_spawn(
    path: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    file_actions: Iterable[Sequence[object]],
    setsigdef: Iterable[signal.Signals],
) -> int:
    """Start a program as the leader of a session of its own, with no signal blocked.

    Otherwise as os.posix_spawn.
    """
    actions = ctypes.create_string_buffer(_ACTIONS_BYTES)
    attributes = ctypes.create_string_buffer(_ATTRIBUTES_BYTES)
    _checked(_libc.posix_spawn_file_actions_init(actions))
    try:
        _checked(_libc.posix_spawnattr_init(attributes))
        try:
            _add_actions(actions, file_actions)
            _set_attributes(attributes, setsigdef)
            pid = ctypes.c_int()
            words = _vector(argv)
            variables = _vector([f"{name}={value}" for name, value in env.items()])
            _checked(
                _libc.posix_spawn(
                    ctypes.byref(pid), os.fsencode(path), actions, attributes, words, variables
                )
            )
            return pid.value
        finally:
            _libc.posix_spawnattr_destroy(attributes)
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)


def _add_actions(buffer: object, actions: Iterable[Sequence[object]]) -> None:
    for kind, *arguments in actions:
        if kind == os.POSIX_SPAWN_OPEN:
            descriptor, path, flags, mode = arguments
            assert isinstance(path, str)
            _checked(
                _libc.posix_spawn_file_actions_addopen(
                    buffer, descriptor, os.fsencode(path), flags, mode
                )
            )
        elif kind == os.POSIX_SPAWN_DUP2:
            _checked(_libc.posix_spawn_file_actions_adddup2(buffer, *arguments))
        else:
            raise ValueError("only opening and duplicating is known here")


def _set_attributes(buffer: object, defaults: Iterable[signal.Signals]) -> None:
    flags = ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)
    _checked(_libc.posix_spawnattr_setflags(buffer, flags))
    _checked(_libc.posix_spawnattr_setsigmask(buffer, _signal_set(())))
    _checked(_libc.posix_spawnattr_setsigdefault(buffer, _signal_set(defaults)))


def _signal_set(signals: Iterable[signal.Signals]) -> ctypes.Array[ctypes.c_char]:
    bits = sum(1 << (number - 1) for number in signals)
    return ctypes.create_string_buffer(bits.to_bytes(_SIGSET_BYTES, "little"), _SIGSET_BYTES)


def _vector(words: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [os.fsencode(word) for word in words]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _checked(number: int) -> None:
    """These calls return their error instead of setting it."""
    if number != 0:
        raise OSError(number, os.strerror(number))
