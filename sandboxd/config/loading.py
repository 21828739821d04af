"""Settings as they hold: flag before environment before file before default."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sandboxd.config.catalogue import BY_VARIABLE, SETTINGS, Kind, Setting
from sandboxd.config.definition import Config
from sandboxd.config.environment import (
    FILE_VARIABLE,
    unknown_variables,
    variables_set,
    without_effect,
)
from sandboxd.config.file import DEFAULT_FILE, SettingsFile
from sandboxd.config.origins import Given, Origin, Problem

_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]+\b")
_DEFAULT = Origin("default")
MAX_SHOWN = 80
"""Characters of a value that is told to be wrong."""


class ConfigInvalid(Exception):
    """Settings that cannot hold, with every problem that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda one: one.origin.line or math.inf)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Settings, and where each of them comes from."""

    config: Config
    file: Path | None
    origins: Mapping[str, Origin]
    warnings: Sequence[Problem]


def load(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Loaded:
    """Read all settings, or raise ConfigInvalid with all that is wrong.

    `flags` are texts by the names of the settings. Without a file, the one that the environment
    names is read, or the usual one if it is there.
    """
    environment = os.environ if environment is None else environment
    path = file or _usual_file(environment)
    read = SettingsFile(path) if path else None
    given = _given(flags or {}, environment, read)
    problems = [*(read.problems if read else ()), *unknown_variables(environment)]
    try:
        config = Config.model_validate({name: one.value for name, one in given.items()})
    except ValidationError as error:
        raise ConfigInvalid([*problems, *_explained(error, given)]) from None
    if problems:
        raise ConfigInvalid(problems)
    return Loaded(
        config=config,
        file=path,
        origins={name: _origin(name, given) for name in SETTINGS},
        warnings=list(without_effect(environment)),
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


def _explained(error: ValidationError, given: Mapping[str, Given]) -> Iterator[Problem]:
    """Each value that is refused, then what the others contradict among themselves."""
    refused = {setting.name: one for one in error.errors() if (setting := _about(one))}
    for name, detail in refused.items():
        text = _correction(SETTINGS[name], given[name].value, detail)
        yield Problem(given[name].origin, text)
    if refused:
        rest = {name: one.value for name, one in given.items() if name not in refused}
        try:
            Config.model_validate(rest)
        except ValidationError as second:
            error = second
        else:
            return
    for detail in error.errors():
        if _about(detail) is None:
            yield from _contradictions(detail, given, refused)


def _about(detail: ErrorDetails) -> Setting | None:
    """The setting that an error is about; none if it is about several."""
    if not detail["loc"]:
        return None
    name = str(detail["loc"][0])
    return BY_VARIABLE.get(name) or SETTINGS[name]


def _correction(setting: Setting, value: Any, detail: ErrorDetails) -> str:
    inside = ".".join(map(str, (setting.key, *detail["loc"][1:])))
    if detail["type"] == "value_error" and setting.kind is not Kind.SIZE:
        return f"{inside}: {detail['msg'].removeprefix('Value error, ')}"
    if inside != setting.key:
        return f"{inside}: {detail['msg']}"
    shown = "" if value is None else _short(setting.shown(value))
    return f"{inside}: {shown!r} is not accepted; write {setting.accepts}"


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
            continue  # with the value corrected it may be gone
        seen = ", ".join(f"{SETTINGS[name].key} is {_seen(name, given)}" for name in names)
        yield Problem(_DEFAULT, f"{sentence} ({seen})" if seen else sentence)


def _seen(name: str, given: Mapping[str, Given]) -> str:
    setting = SETTINGS[name]
    if name not in given:
        return f"{setting.in_toml(setting.default)} by default"
    return f"{_short(setting.shown(given[name].value))} by {given[name].origin}"
