"""What code can use besides its language: functions and modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from sandboxd.code.settings import OPEN, CodeSettings
from sandboxd.guest.code.database import NO_SOURCE
from sandboxd.guest.code.policy_names import ALLOWED_MODULES, BLOCKED_CALLS


class Function(NamedTuple):
    name: str
    signature: str
    description: str


_ALWAYS = (
    Function(
        "debug",
        "debug(message, level='DEBUG') -> None",
        "Writes a line to the log of the run; levels are DEBUG, INFO, WARNING, ERROR, CRITICAL.",
    ),
    Function(
        "inspect_var",
        "inspect_var(name, value) -> None",
        "Writes type and summary of a value to the log of the run.",
    ),
    Function(
        "get_debug_info",
        "get_debug_info() -> dict",
        "Returns what this run has logged and inspected so far.",
    ),
    Function(
        "display",
        "display(*values) -> None",
        "Displays values in the richest form that they offer, such as HTML or PNG.",
    ),
)
_OF_DATABASE = (
    Function(
        "db_query",
        "db_query(sql, params=None, *, source='', timeout=None, max_rows=None) -> list",
        "Runs one statement with parameters as `:name` and returns its rows as dictionaries.",
    ),
    Function("db_tables", "db_tables(source='') -> list", "Returns the tables that can be read."),
    Function(
        "db_schema",
        "db_schema(table, source='') -> dict",
        "Returns a table with its columns; its text is one line.",
    ),
    Function(
        "db_sources",
        "db_sources() -> list",
        "Returns the data sources of the session, with the tables that can be changed.",
    ),
)
_AWAITED = "It can be awaited or not."


def functions(has_data: bool) -> Sequence[Function]:
    """Those of databases say how a session gets a data source if it has none."""
    note = _AWAITED if has_data else NO_SOURCE
    return [
        *_ALWAYS,
        *(one._replace(description=f"{one.description} {note}") for one in _OF_DATABASE),
    ]


class Rules(NamedTuple):
    """What a policy allows; no modules means all."""

    modules: Sequence[str]
    blocked_calls: Sequence[str]


def rules_of(settings: CodeSettings, policy: str) -> Rules:
    if policy == OPEN:
        return Rules((), ())
    table: Mapping[str, object] = settings.policy_of(policy)
    modules = table.get("allowed_modules", ALLOWED_MODULES)
    calls = table.get("blocked_calls", BLOCKED_CALLS)
    return Rules(sorted(cast(Sequence[str], modules)), sorted(cast(Sequence[str], calls)))
