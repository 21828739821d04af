"""Settings on the command line: a flag for each, generated from the definition."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click

from sandboxd.cli.target import Target
from sandboxd.config import Config, ConfigInvalid, Loaded, load
from sandboxd.config.catalogue import SETTINGS, Kind, Setting
from sandboxd.config.definition import TABLES
from sandboxd.config.file import DEFAULT_FILE, FileUnreadable
from sandboxd_client.settings import UNIX_SCHEME

INVALID_CODE = 1
UNREADABLE_CODE = 2
_METAVARS = {
    Kind.WHOLE: "N",
    Kind.NUMBER: "NUMBER",
    Kind.SIZE: "SIZE",
    Kind.PATH: "PATH",
    Kind.LIST: "A,B",
    Kind.TABLE: "JSON",
}

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Settings file; also SANDBOXD_CONFIG. [default: {DEFAULT_FILE} if it exists]",
)


socket_option = click.option(
    "--socket", "socket_path", type=click.Path(path_type=Path), help="Unix socket of the API."
)


def daemon_of(target: Target, socket_path: Path | None, config: Config) -> Target:
    """The daemon that is named; otherwise that of the settings, whose socket may be anywhere."""
    named = target.url or (f"{UNIX_SCHEME}{socket_path}" if socket_path else None)
    url = named or os.environ.get("SANDBOXD_URL") or f"{UNIX_SCHEME}{config.api_socket}"
    return replace(target, url=url)


class _SettingOption(click.Option):
    """The flag of a setting; the help lists it in the section of its table."""

    def __init__(self, setting: Setting) -> None:
        names = [setting.flag, setting.name]
        if setting.kind is Kind.SWITCH:
            names[0] = f"{setting.flag}/--no-{setting.flag[2:]}"
        self.section = setting.table
        super().__init__(
            names,
            default=None,
            help=f"{setting.description} [{_default(setting)}environment: {setting.variable}]",
            metavar="|".join(setting.choices) or _METAVARS.get(setting.kind, "TEXT"),
            type=bool if setting.kind is Kind.SWITCH else str,
        )


class SettingsCommand(click.Command):
    """A command with a flag for every setting, in a section for each table of the file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += [_SettingOption(setting) for setting in SETTINGS.values()]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            **{name: [] for name in TABLES},
        }
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record is not None:
                section = option.section if isinstance(option, _SettingOption) else "Options"
                sections[section].append(record)
        for name, records in sections.items():
            title = f"{TABLES[name].about} [{name}]" if name in TABLES else name
            with formatter.section(title):
                formatter.write_dl(records)


def _default(setting: Setting) -> str:
    if setting.default is None or setting.has_varying_default:
        return ""
    return f"default: {setting.in_toml(setting.default)}; "


def load_or_exit(file: Path | None, flags: Mapping[str, Any] | None = None) -> Loaded:
    """The settings; if they have problems, print all of them and exit."""
    given = {name: _text(value) for name, value in (flags or {}).items() if value is not None}
    try:
        return load(flags=given, file=file)
    except (ConfigInvalid, FileUnreadable) as error:
        explain_and_exit(error)


def explain_and_exit(error: ConfigInvalid | FileUnreadable) -> NoReturn:
    click.echo(
        f"sandboxd: {error}" if isinstance(error, FileUnreadable) else _listed(error), err=True
    )
    sys.exit(UNREADABLE_CODE if isinstance(error, FileUnreadable) else INVALID_CODE)


def _listed(error: ConfigInvalid) -> str:
    count = len(error.problems)
    head = f"sandboxd: {'one problem' if count == 1 else f'{count} problems'} with the settings:"
    problems = (f"  {problem}" for problem in error.problems)
    warnings = (f"warning: {warning}" for warning in error.warnings)
    return "\n".join([head, *problems, *warnings])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
