"""Arguments of public methods: one of the wrong type is refused before anything is sent.

The annotations of the methods are the rules; `checked` applies them to a whole class. Otherwise a
wrong argument would surface somewhere in protobuf, without the name of the parameter. Errors of
these methods have tracebacks without our own lines.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from sandboxd_client.errors import ArgumentTypeError, InvalidRequestError
from sandboxd_client.tracebacks import edge

P = ParamSpec("P")
T = TypeVar("T")

MAX_NUMBER = (1 << 63) - 1
"""The largest number in a request."""


class _Rule:
    """What an annotation accepts."""

    def __init__(
        self,
        words: str,
        accepts: Callable[[Any], bool],
        flaw: Callable[[Any], str | None] = lambda value: None,
    ) -> None:
        self.words = words
        """What it accepts, for a message."""
        self.accepts = accepts
        """Whether a value has the right type."""
        self.flaw = flaw
        """What is wrong with a value of the right type, if anything."""

    def problem(self, value: Any) -> str | None:
        if not self.accepts(value):
            kind = "None" if value is None else type(value).__name__
            return f"must be {self.words}, not {kind}"
        return self.flaw(value)


def checked(kind: type[T]) -> type[T]:
    """A class whose constructor and public methods check their arguments by their annotations."""
    for name, member in list(vars(kind).items()):
        if name.startswith("_") and name != "__init__":
            continue
        match member:
            case types.FunctionType():
                setattr(kind, name, _checked(member))
            case classmethod():
                setattr(kind, name, classmethod(_checked(member.__func__)))
            case InstanceOrClass():
                setattr(kind, name, InstanceOrClass(_checked(member.__wrapped__)))
    return kind


def _checked(method: Any) -> Any:
    names: list[str] = []
    defaults: dict[str, object] = {}
    rules: dict[str, _Rule] = {}

    def check(arguments: tuple[object, ...], named: dict[str, object]) -> None:
        if not rules:  # only now: an annotation may name what is defined later in its module
            parameters = inspect.signature(method).parameters
            names[:] = parameters
            defaults.update((name, one.default) for name, one in parameters.items())
            hints = _hints(method)
            rules.update({name: _rule(hints.get(name, Any)) for name in names})
        given = dict(zip(names[1:], arguments[1:], strict=False)) if arguments[1:] else {}
        for name, value in (given | named).items():
            # Most arguments are left out, and the sync classes pass their defaults on.
            if name not in rules or value is defaults[name]:
                continue
            problem = rules[name].problem(value)
            if problem is not None:
                raise ArgumentTypeError(f"{name}: {problem}")

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def coroutine(*arguments: Any, **named: Any) -> Any:
            with edge:
                check(arguments, named)
                return await method(*arguments, **named)

        return coroutine

    @functools.wraps(method)
    def function(*arguments: Any, **named: Any) -> Any:
        with edge:
            check(arguments, named)
            return method(*arguments, **named)

    return function


def _hints(method: Any) -> dict[str, Any]:
    """The annotations of the parameters. That of the answer may name a class that nobody has used
    yet, whose module is then not loaded."""
    given = {name: hint for name, hint in method.__annotations__.items() if name != "return"}
    return typing.get_type_hints(
        types.SimpleNamespace(__annotations__=given), globalns=method.__globals__
    )


def either(**given: T | None) -> T | None:
    """The value of a parameter that has two names, of which a caller may use one."""
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise InvalidRequestError(f"{' and '.join(named)}: give one of them, they mean the same")
    return next(iter(named.values()), None)


class InstanceOrClass(Generic[P, T]):
    """A method that can also be called on the class; `self` is then None."""

    def __init__(self, function: Callable[Concatenate[Any, P], T]) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object | None, owner: type) -> Callable[P, T]:
        bound = functools.partial(self.__wrapped__, instance)
        bound.__doc__ = self.__doc__
        return bound


# --- rules ---


def _rule(hint: Any) -> _Rule:
    """The rule of an annotation. One that cannot be checked at run time accepts everything."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union([_rule(part) for part in parts])
    if origin is typing.Literal:
        return _literal(parts)
    if origin is collections.abc.Callable:
        return _Rule("a function", callable)
    if origin is os.PathLike:
        return _Rule("a path", _is_path)
    if origin is typing.IO:
        return _Rule("an open file", lambda value: hasattr(value, "read"))
    if origin is collections.abc.Mapping:
        return _mapping(*map(_rule, parts))
    if origin is collections.abc.Sequence:
        return _sequence(_rule(parts[0]))
    if origin is not None or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return _PLAIN[Any]
    return _Rule(f"a {hint.__name__}", lambda value: isinstance(value, hint))


def _union(rules: Sequence[_Rule]) -> _Rule:
    def match(value: Any) -> _Rule | None:
        for rule in rules:  # a generator would take twice as long, for every argument
            if rule.accepts(value):
                return rule
        return None

    def flaw(value: Any) -> str | None:
        rule = match(value)
        return rule.flaw(value) if rule else None

    words = " or ".join(rule.words for rule in rules if rule.words)
    return _Rule(words, lambda value: match(value) is not None, flaw)


def _literal(values: Sequence[object]) -> _Rule:
    words = " or ".join(f'"{value}"' for value in values)

    def flaw(value: Any) -> str | None:
        return None if value in values else f"must be {words}, not {value!r:.80}"

    return _Rule(words, lambda value: isinstance(value, str), flaw)


def _mapping(keys: _Rule, values: _Rule) -> _Rule:
    def flaw(value: Any) -> str | None:
        for key, item in value.items():
            if (problem := keys.problem(key)) is not None:
                return f"the key {key!r:.80} {problem}"
            if (problem := values.problem(item)) is not None:
                return f"the value of {key!r:.80} {problem}"
        return None

    words = f"a mapping of {keys.words} to {values.words}"
    return _Rule(words, lambda value: isinstance(value, Mapping), flaw)


def _sequence(items: _Rule) -> _Rule:
    def flaw(value: Any) -> str | None:
        for position, item in enumerate(value):
            if (problem := items.problem(item)) is not None:
                return f"item {position} {problem}"
        return None

    return _Rule(f"a list of {items.words}", _is_sequence, flaw)


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int | numbers.Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | numbers.Real) and not isinstance(value, bool)


def _is_truth_value(value: object) -> bool:
    return isinstance(value, int) and value in (0, 1)


def _flaw_of_text(value: str) -> str | None:
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError:
        return "must be valid Unicode, without lone surrogates"
    return None


def _flaw_of_whole_number(value: int) -> str | None:
    if value < 0:
        return f"must not be negative, but is {value}"
    return None if value <= MAX_NUMBER else f"must be at most {MAX_NUMBER}"


_PLAIN: dict[Any, _Rule] = {
    Any: _Rule("anything", lambda value: True),
    object: _Rule("anything", lambda value: True),
    types.NoneType: _Rule("", lambda value: value is None),
    str: _Rule("text", lambda value: isinstance(value, str), _flaw_of_text),
    bytes: _Rule("bytes", lambda value: isinstance(value, bytes | bytearray | memoryview)),
    int: _Rule(
        "a whole number",
        _is_whole_number,
        _flaw_of_whole_number,
    ),
    float: _Rule(
        "a number",
        _is_number,
        lambda value: None if math.isfinite(value) else f"must be finite, but is {value}",
    ),
    bool: _Rule("True or False", _is_truth_value),
}
