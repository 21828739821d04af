"""A settings file with every setting, its default and its description."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from sandboxd.config.catalogue import SETTINGS
from sandboxd.config.definition import TABLES
from sandboxd.config.file import VERSION, VERSION_KEY

WIDTH = 98
INTRODUCTION = (
    "Settings of sandboxd. Each line shows a default; remove the # to set another value. Flags and "
    "environment variables override this file. `sandboxd config check` reports what is wrong with "
    "it, `sandboxd config show` prints the settings in force and the source of each."
)


def template() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from _comment(INTRODUCTION)
    yield f"{VERSION_KEY} = {VERSION}"
    for name, table in TABLES.items():
        yield ""
        yield from _comment(table.about)
        yield f"[{name}]"
        for setting in SETTINGS.values():
            if setting.table == name:
                yield ""
                yield from _comment(setting.description)
                yield f"# {setting.variable}: {setting.accepts}"
                yield f"#{setting.name} = {setting.in_toml(setting.default)}"


def _comment(text: str) -> Iterator[str]:
    return (f"# {line}" for line in textwrap.wrap(text, WIDTH))
