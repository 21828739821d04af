"""Settings in a TOML file, with the line of each key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sandboxd.config.catalogue import BY_VARIABLE, SETTINGS, Kind
from sandboxd.config.definition import TABLES
from sandboxd.config.origins import Given, Origin, Problem, nearest

DEFAULT_FILE = Path("/etc/sandboxd/config.toml")
VERSION = 1
VERSION_KEY = "config_version"
MAX_BYTES = 1 << 20
_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w.-]|"[^"]*"|'[^']*')+)\s*=""")
_QUOTES = re.compile(r'"""|' + "'''")


class FileUnreadable(Exception):
    """The file cannot be read; the text says why and what to do."""


class SettingsFile:
    """A settings file: its values and its problems."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Given] = {}
        self.problems: list[Problem] = []
        self._lines: Mapping[str, int] = {}
        text = _read(path)
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.problems.append(Problem(Origin("file", str(path)), f"not valid TOML: {error}"))
            return
        self._lines = lines_of_keys(text)
        self._read_version(document)
        for name, value in document.items():
            self._read_table(name, value)

    def _origin(self, key: str) -> Origin:
        return Origin("file", str(self.path), self._lines.get(key))

    def origin_of(self, key: str) -> Origin | None:
        """The line of a key, or of the nearest table around it; None if that is not known."""
        while key:
            if key in self._lines:
                return self._origin(key)
            key = key.rpartition(".")[0]
        return None

    def _refuse(self, key: str, text: str) -> None:
        self.problems.append(Problem(self._origin(key), f"{key}: {text}"))

    def _read_version(self, document: dict[str, Any]) -> None:
        if not document:
            return
        version = document.pop(VERSION_KEY, None)
        if version is None:
            text = f"the first line must be `{VERSION_KEY} = {VERSION}`"
            self.problems.append(Problem(Origin("file", str(self.path)), text))
        elif version is True or version != VERSION:
            self._refuse(
                VERSION_KEY,
                f"this sandboxd reads version {VERSION}, not {version!r}; "
                "`sandboxd config default` prints a file of that version",
            )

    def _read_table(self, name: str, value: Any) -> None:
        if name not in TABLES:
            self._refuse(name, _advice(name, table=None))
        elif not isinstance(value, dict):
            self._refuse(name, f"this is a table; write [{name}] and its settings below it")
        else:
            named = TABLES[name].named
            for key, inner in value.items():
                if named and isinstance(inner, dict) and key != named:
                    self._read_named_table(named, name, key, inner)
                else:
                    self._read_setting(name, key, inner)

    def _read_named_table(self, setting: str, table: str, name: str, value: Any) -> None:
        """Add a table [table.NAME] to the setting that holds them."""
        before = self.values.get(setting)
        tables = {**(before.value if before else {}), name: value}
        origin = before.origin if before else self._origin(f"{table}.{name}")
        self.values[setting] = Given(tables, origin)

    def _read_setting(self, table: str, name: str, value: Any) -> None:
        key = f"{table}.{name}"
        setting = SETTINGS.get(name)
        if setting is None or setting.table != table:
            self._refuse(key, _advice(name, table=table))
        elif isinstance(value, bool) and setting.kind is not Kind.SWITCH:
            # True would pass as the number one.
            self._refuse(key, f"write {setting.accepts}")
        else:
            given = None if setting.is_nothing(value) else value
            self.values[name] = Given(given, self._origin(key))


def _advice(name: str, *, table: str | None) -> str:
    """What was probably meant by a name that is unknown at this place."""
    if name in SETTINGS:
        return f"it belongs to the table [{SETTINGS[name].table}]"
    if table is None and (meant_table := nearest(name, TABLES)):
        return f"unknown table; did you mean [{meant_table}]?"
    variables = {variable.lower(): setting.name for variable, setting in BY_VARIABLE.items()}
    meant = nearest(name.lower(), [*_settings_of(table), *SETTINGS, *variables])
    meant = variables.get(meant, meant) if meant else None
    if meant is None:
        what = "setting" if table else "table"
        return f"unknown {what}; `sandboxd config default` lists all tables and settings"
    place = "" if SETTINGS[meant].table == table else f" in the table [{SETTINGS[meant].table}]"
    return f"unknown setting; did you mean {meant}{place}?"


def _settings_of(table: str | None) -> Iterator[str]:
    """The settings of a table, which are the likeliest."""
    return (setting.name for setting in SETTINGS.values() if setting.table == table)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(
            f"cannot read {path} ({error.strerror}); name another file with --config or "
            "SANDBOXD_CONFIG, or let this user read it"
        ) from error
    if len(data) > MAX_BYTES:
        raise FileUnreadable(
            f"{path} is larger than {MAX_BYTES >> 20} MiB and not a settings file; name another "
            "file with --config or SANDBOXD_CONFIG"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileUnreadable(
            f"{path} is not valid UTF-8 (byte {error.start}); save it as UTF-8"
        ) from None


def lines_of_keys(text: str) -> Mapping[str, int]:
    """Line of each table and each `table.key`, as far as it can be determined."""
    lines: dict[str, int] = {}
    table, is_in_text = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        begins_in_text = is_in_text
        if len(_QUOTES.findall(line)) % 2:
            is_in_text = not is_in_text
        if begins_in_text:
            continue
        if match := _HEADER.fullmatch(line):
            table = _bare(match[1])
            lines.setdefault(table, number)
        elif match := _KEY.match(line):
            key = _bare(match[1])
            lines.setdefault(f"{table}.{key}" if table else key, number)
    return lines


def _bare(key: str) -> str:
    return re.sub(r"[\"'\s]", "", key)
