"""Dataclasses whose methods are generated when a class is first used.

To generate them takes Python up to half a millisecond for each class, and a program uses few of
them. From its first use on, such a class is a dataclass like any other.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as record

__all__ = ["Record", "record"]

_lock = threading.RLock()
_marked: set[type] = set()
"""Classes with the decorator."""
_options: dict[type, dict[str, bool]] = {}
"""Arguments of `dataclass` for those of them that were not used yet."""


class _OnAccess:
    """An attribute of the class, not of its instances, that a dataclass has."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        _complete(owner)
        for kind in owner.__mro__:
            found = kind.__dict__.get(self._name, self)
            if found is not self:
                return found
        raise AttributeError(f"{owner.__name__} has no {self._name}")


class _Signature:
    """Lets `inspect` see the parameters of the generated constructor."""

    def __get__(self, instance: object, owner: type) -> None:
        _complete(owner)


class Record:
    """Base of the classes that `@record` marks.

    These methods serve a class until it has its own. They stay beneath those, so that a thread that
    comes while another one generates them finds either and fails with neither.
    """

    if not TYPE_CHECKING:
        __dataclass_fields__ = _OnAccess()
        __dataclass_params__ = _OnAccess()
        __match_args__ = _OnAccess()
        __signature__ = _Signature()

        def __init__(self, *arguments: object, **named: object) -> None:
            _complete(type(self)).__init__(self, *arguments, **named)

        # An instance that was copied or unpickled has had no call of __init__.

        def __repr__(self) -> str:
            return _complete(type(self)).__repr__(self)

        def __eq__(self, other: object) -> bool:
            return _complete(type(self)).__eq__(self, other)

        def __hash__(self) -> int:
            return _complete(type(self)).__hash__(self)

        def __setattr__(self, name: str, value: object) -> None:
            _complete(type(self)).__setattr__(self, name, value)

        def __delattr__(self, name: str) -> None:
            _complete(type(self)).__delattr__(self, name)


if not TYPE_CHECKING:

    def record(*, frozen, kw_only=False):
        """As `dataclass`, of which the type checkers take it for; only frozen classes, since those
        get all the methods that `Record` has."""
        assert frozen

        def marked(kind):
            _marked.add(kind)
            _options[kind] = {"frozen": frozen, "kw_only": kw_only}
            return kind

        return marked


def _complete(kind: type) -> Any:
    """Generate the methods of a class and of its bases, and return the class whose methods hide
    those of `Record`; `kind` may be a class of the user that inherits from it."""
    with _lock:
        for one in reversed(kind.__mro__):
            options = _options.pop(one, None)
            if options is not None:
                from dataclasses import dataclass

                dataclass(**options)(one)
    return next((one for one in kind.__mro__ if one in _marked), object)
