"""`sandboxd config`: show and check the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sandboxd.cli.settings import SettingsCommand, config_option, load_or_exit
from sandboxd.config import Loaded
from sandboxd.config.catalogue import SETTINGS
from sandboxd.config.definition import TABLES
from sandboxd.config.origins import Origin
from sandboxd.config.template import template


@click.group()
def config() -> None:
    """Show and check the settings."""


@config.command()
def default() -> None:
    """Print a settings file with every setting, commented out."""
    click.echo(template(), nl=False)


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def check(file: Path | None) -> None:
    """Report every problem in FILE (or the default file) and in the environment.

    Exit code 0 if there is none, 1 if there are some, 2 if the file cannot be read.
    """
    loaded = load_or_exit(file)
    for warning in loaded.warnings:
        click.echo(f"warning: {warning}", err=True)
    n_set = sum(origin.kind != "default" for origin in loaded.origins.values())
    click.echo(f"ok: {loaded.file or 'no file'}, {n_set} of {len(SETTINGS)} settings are set")


@config.command()
@config_option
@click.argument("name", type=click.Choice(list(SETTINGS)), metavar="NAME")
def get(config_file: Path | None, name: str) -> None:
    """Print the value of one setting, for scripts; empty if it has none."""
    value = SETTINGS[name].shown(getattr(load_or_exit(config_file).config, name))
    click.echo("" if value is None else str(value))


@config.command(cls=SettingsCommand)
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--changed", "only_changed", is_flag=True, help="Omit the defaults.")
def show(config_file: Path | None, as_json: bool, only_changed: bool, **flags: Any) -> None:
    """Print the settings that `sandboxd serve` would use, and the source of each.

    Secrets are masked. Exit codes as for check.
    """
    loaded = load_or_exit(config_file, flags)
    names = [
        name
        for name, origin in loaded.origins.items()
        if not only_changed or origin.kind != "default"
    ]
    click.echo(as_document(loaded, names) if as_json else as_table(loaded, names))


def as_table(loaded: Loaded, names: list[str]) -> str:
    rows = {name: _row(loaded, name) for name in names}
    first = max((len(row[0]) for row in rows.values()), default=0)
    second = max((len(row[1]) for row in rows.values()), default=0)
    lines = []
    for table in TABLES:
        of_table = [row for name, row in rows.items() if SETTINGS[name].table == table]
        if of_table:
            lines += [
                f"[{table}]",
                *(f"{a:<{first}}  {b:<{second}}  {c}" for a, b, c in of_table),
                "",
            ]
    return "\n".join([*lines, f"file: {loaded.file or 'none'}"])


def as_document(loaded: Loaded, names: list[str]) -> str:
    settings = [
        {
            "name": name,
            "table": SETTINGS[name].table,
            "value": SETTINGS[name].shown(getattr(loaded.config, name)),
            "from": _from(loaded.origins[name]),
        }
        for name in names
    ]
    file = str(loaded.file) if loaded.file else None
    return json.dumps({"file": file, "settings": settings}, indent=2, default=str)


def _row(loaded: Loaded, name: str) -> tuple[str, str, str]:
    setting = SETTINGS[name]
    return name, setting.in_toml(getattr(loaded.config, name)), str(loaded.origins[name])


def _from(origin: Origin) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": origin.kind}
    if origin.name:
        found["name"] = origin.name
    if origin.line is not None:
        found["line"] = origin.line
    return found
