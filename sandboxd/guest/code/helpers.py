"""Functions that code can call besides Python's own, and the log of the run."""

from __future__ import annotations

import sys
from time import time
from typing import Any, NoReturn

from . import records
from .channel import Reporter
from .displays import Displays
from .summaries import cut, length_of, summary, type_name

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_ALIASES = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_MAX_MESSAGE = 10_000
_KEPT = 500
"""Log lines and inspected variables that get_debug_info returns."""
_DOOR = b"@sandboxd-data\n"
_OF_DATABASE = ("db_query", "db_tables", "db_schema", "db_sources")


def _level(level: Any) -> str:
    name = str(level).upper()
    name = _ALIASES.get(name, name)
    if name not in LEVELS:
        raise ValueError("unknown level {!r}; there are {}".format(level, ", ".join(LEVELS)))
    return name


class Log:
    """What debug, inspect_var and `logging` wrote in this run."""

    def __init__(self) -> None:
        self.reporter: Reporter | None = None
        self.begin(0)

    def begin(self, number: int) -> None:
        self._number = number
        self._started = time()
        self._entries: list[dict[str, Any]] = []
        self._variables: dict[str, dict[str, Any]] = {}
        self._levels: dict[str, int] = {}

    def write(
        self, message: str, level: str, inspected: tuple[str, str, str] = ("", "", "")
    ) -> None:
        now = time()
        self._levels[level] = self._levels.get(level, 0) + 1
        if len(self._entries) < _KEPT:
            self._entries.append({"time": now, "level": level, "message": message})
        if self.reporter is not None:
            self.reporter.log(records.log(int(now * 1_000_000), level, message, inspected))

    def debug(self, message: Any = "", level: str = "DEBUG") -> None:
        """Write a line to the log of the run; level is DEBUG, INFO, WARNING, ERROR or CRITICAL."""
        self.write(cut(str(message), _MAX_MESSAGE), _level(level))

    def inspect_var(self, name: str, value: Any) -> None:
        """Write type and summary of a value to the log of the run."""
        shown, kind = summary(value), type_name(value)
        entry: dict[str, Any] = {"type": kind, "value": shown}
        if length_of(value) is not None:
            entry["length"] = length_of(value)
        if len(self._variables) < _KEPT:
            self._variables[str(name)] = entry
        self.write(f"{name}: {kind} = {shown}", "DEBUG", (cut(str(name)), shown, kind))

    def get_debug_info(self) -> dict[str, Any]:
        """Return what this run has logged and inspected so far."""
        return {
            "run": self._number,
            "elapsed_seconds": round(time() - self._started, 6),
            "log_count": sum(self._levels.values()),
            "levels": dict(self._levels),
            "logs": [dict(entry) for entry in self._entries],
            "variables": {name: dict(entry) for name, entry in self._variables.items()},
        }

    def follow_logging(self) -> None:
        """Report what `logging` lets pass, without a handler that would change basicConfig."""
        logging = sys.modules.get("logging")
        if logging is None:
            return
        make = logging.getLogRecordFactory()

        def make_and_report(*given: Any, **named: Any) -> Any:
            made = make(*given, **named)
            if self.reporter is not None and made.name != "asyncio":
                self._report(made)
            return made

        logging.setLogRecordFactory(make_and_report)

    def _report(self, made: Any) -> None:
        try:
            level = made.levelname if made.levelname in LEVELS else "INFO"
            self.write(cut(str(made.getMessage()), _MAX_MESSAGE), level)
        except Exception:
            pass  # the user's values do not format; logging itself complains


def _leave(code: Any = None) -> NoReturn:
    """End this run."""
    raise SystemExit(code)


def functions(log: Log, displays: Displays) -> dict[str, Any]:
    """By name. They are builtins for the user's code: `del` and listings do not see them."""

    def display(*values: Any) -> None:
        """Display values in the richest form that they offer."""
        for value in values:
            displays.show(value)

    return {
        "debug": log.debug,
        "inspect_var": log.inspect_var,
        "get_debug_info": log.get_debug_info,
        "display": display,
        "exit": _leave,
        "quit": _leave,
        **{name: _without_source(name) for name in _OF_DATABASE},
        "DatabaseError": NoDataSource,
    }


class NoDataSource(Exception):
    """What stands for DatabaseError where there is no database."""


def _without_source(name: str) -> Any:
    def ask(*_: Any, **__: Any) -> NoReturn:
        raise NoDataSource(
            f"{name} needs a data source, and this session has none. Open the session with "
            "data_sources=[NAME]; a client's data.sources(USER) lists those that the operator has "
            "configured for a user."
        )

    return ask


def database_functions() -> dict[str, Any]:
    """Those of the data door; none if the sandbox has no such door."""
    try:
        with open("/proc/net/unix", "rb") as sockets:
            if _DOOR not in sockets.read(1 << 20):
                return {}
        module = __import__("database", globals(), None, ("helpers",), 1)
    except (ImportError, OSError):
        return {}
    found: dict[str, Any] = module.helpers()
    return found
