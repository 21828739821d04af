"""The variables of a context, without running anything of the user's code."""

from __future__ import annotations

from typing import Any

from . import records
from .records import Forms, Variable
from .summaries import cut, length_of, size_of, summary, type_name

MAX_LISTED = 1000


def is_listed(name: Any) -> bool:
    """Names with two underscores are the language's, except the result."""
    if type(name) is not str:
        return False
    return name == "__result__" or (not name.startswith("__") and name != "_")


def describe(name: str, value: Any) -> Variable:
    return Variable(
        cut(name), type_name(value), summary(value), None, 0, size_of(value), length_of(value)
    )


def listing(names: dict[str, Any]) -> bytes:
    """One ANSWER of command 0 with the variables."""
    listed = [name for name in names if is_listed(name)]
    variables = [describe(name, names[name]) for name in listed[:MAX_LISTED]]
    left_out = len(listed) - len(variables)
    return records.answer(0, Forms.VARIABLES, records.variables(variables) + records.u64(left_out))
