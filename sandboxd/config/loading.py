"""Effective settings: a flag overrides the environment, then the file, then the default."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sandboxd.config.catalogue import BY_VARIABLE, SETTINGS, Kind, Setting
from sandboxd.config.definition import Config, DataSourceTable, EnvironmentTable, UpstreamTable
from sandboxd.config.environment import FILE_VARIABLE, ignored_variables, variables_set
from sandboxd.config.file import DEFAULT_FILE, SettingsFile
from sandboxd.config.origins import Given, Origin, Problem, nearest

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_DEFAULT = Origin("default")
MAX_SHOWN = 80
"""Characters of an invalid value that are repeated."""


class ConfigInvalid(Exception):
    """The settings are invalid: every problem that was found, and what may have caused it."""

    def __init__(self, problems: Sequence[Problem], warnings: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.origin.line or math.inf)
        self.warnings = warnings
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Settings, and the origin of each."""

    config: Config
    file: Path | None
    origins: Mapping[str, Origin]
    warnings: Sequence[Problem]


def load(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    without: Collection[str] = (),
) -> Loaded:
    """Read all settings, or raise ConfigInvalid with all problems.

    `flags` are texts by name of the setting. Without `file`, the file that the environment names is
    read, or the default file if it exists. Settings named by `without` are not looked at.
    """
    environment = os.environ if environment is None else environment
    path = file or _usual_file(environment)
    read = SettingsFile(path) if path else None
    given = {
        name: entry
        for name, entry in _given(flags or {}, environment, read).items()
        if name not in without
    }
    problems = read.problems if read else []
    warnings = list(ignored_variables(environment))
    try:
        config = Config.model_validate({name: entry.value for name, entry in given.items()})
    except ValidationError as error:
        raise ConfigInvalid([*problems, *_explained(error, given, read)], warnings) from None
    if problems:
        raise ConfigInvalid(problems, warnings)
    return Loaded(
        config=config,
        file=path,
        origins={name: _origin(name, given) for name in SETTINGS},
        warnings=warnings,
    )


def _usual_file(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get(FILE_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def _given(
    flags: Mapping[str, str], environment: Mapping[str, str], file: SettingsFile | None
) -> Mapping[str, Given]:
    given: dict[str, Given] = {}
    if file is not None:
        given.update(file.values)
    for name, variable in variables_set(environment).items():
        value = SETTINGS[name].from_text(environment[variable])
        given[name] = Given(value, Origin("environment", variable))
    for name, text in flags.items():
        setting = SETTINGS[name]
        given[name] = Given(setting.from_text(text), Origin("flag", setting.flag_for(text)))
    return given


def _origin(name: str, given: Mapping[str, Given]) -> Origin:
    return given[name].origin if name in given else _DEFAULT


def _explained(
    error: ValidationError, given: Mapping[str, Given], file: SettingsFile | None
) -> Iterator[Problem]:
    """A problem for each invalid value, then for each contradiction among the others."""
    refused: dict[str, ErrorDetails] = {}
    for detail in error.errors():
        setting = _about(detail)
        if setting is None or (setting.name in refused and len(detail["loc"]) == 1):
            continue
        refused[setting.name] = detail
        origin = given[setting.name].origin
        if file is not None and origin.kind == "file":
            origin = file.origin_of(_key(setting, detail)) or origin
        yield Problem(origin, _correction(setting, given[setting.name].value, detail))
    if refused:
        rest = {name: entry.value for name, entry in given.items() if name not in refused}
        try:
            Config.model_validate(rest)
        except ValidationError as second:
            error = second
        else:
            return
    for detail in error.errors():
        if _about(detail) is None:
            yield from _contradictions(detail, given, refused)


_TABLES: Mapping[str, type[BaseModel]] = {
    "data_sources": DataSourceTable,
    "environments": EnvironmentTable,
    "upstreams": UpstreamTable,
}
"""What tables of the file, by setting, consist of."""


def _about(detail: ErrorDetails) -> Setting | None:
    """The setting that an error is about; None if it is about several."""
    if not detail["loc"]:
        return None
    name = str(detail["loc"][0])
    return BY_VARIABLE.get(name) or SETTINGS[name]


def _correction(setting: Setting, value: Any, detail: ErrorDetails) -> str:
    inside = _key(setting, detail)
    if detail["type"] == "value_error" and setting.kind is not Kind.SIZE:
        return f"{inside}: {detail['msg'].removeprefix('Value error, ')}"
    if detail["type"] == "extra_forbidden":
        known = list(_TABLES[setting.name].model_fields)
        near = nearest(str(detail["loc"][-1]), known)
        return f"{inside}: unknown key; " + (
            f"did you mean {near}?" if near else f"the keys are {', '.join(known)}"
        )
    if inside != setting.key:
        return f"{inside}: {detail['msg']}"
    shown = "" if value is None else _short(setting.shown(value))
    return f"{inside}: {shown!r} is not accepted; write {setting.accepts}"


def _key(setting: Setting, detail: ErrorDetails) -> str:
    """The key of the file that an error is about."""
    return ".".join(map(str, (setting.key, *detail["loc"][1:])))


def _short(value: Any) -> Any:
    return value if len(text := str(value)) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _contradictions(
    detail: ErrorDetails, given: Mapping[str, Given], refused: Mapping[str, object]
) -> Iterator[Problem]:
    for sentence in detail["msg"].removeprefix("Value error, ").split("\n"):
        names = dict.fromkeys(
            BY_VARIABLE[word].name for word in _VARIABLE.findall(sentence) if word in BY_VARIABLE
        )
        if refused.keys() & names.keys():
            continue  # it may disappear once the value is corrected
        seen = ", ".join(f"{SETTINGS[name].key} is {_seen(name, given)}" for name in names)
        yield Problem(_DEFAULT, f"{sentence} ({seen})" if seen else sentence)


def _seen(name: str, given: Mapping[str, Given]) -> str:
    setting = SETTINGS[name]
    if name not in given:
        return f"{setting.in_toml(setting.default)} by default"
    return f"{_short(setting.shown(given[name].value))} by {given[name].origin}"
