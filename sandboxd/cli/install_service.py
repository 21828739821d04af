"""`sandboxd install-service`: install the daemon as a systemd service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import click

from sandboxd.config.template import template

UNIT = "sandboxd.service"
UNIT_PATH = Path("etc/systemd/system") / UNIT
SETTINGS_PATH = Path("etc/sandboxd/config.toml")
SYSTEMCTL_SECONDS = 60.0
STOP_SECONDS = 120.0
"""Longer than the unit's stop timeout."""
_PLAIN = re.compile(r"[\w./+-]+", re.ASCII)
"""systemd reads quotes, spaces and percent signs in its own way."""


@click.command("install-service")
@click.option("--dry-run", is_flag=True, help="Only show the unit and what would be done.")
@click.option("--now", is_flag=True, help="Also start the service, or restart it.")
@click.option("--uninstall", is_flag=True, help="Stop and remove the service; all data is kept.")
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    default=Path(sys.executable).with_name("sandboxd"),
    show_default="this one",
    help="The sandboxd program that the service starts.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/"),
    help="Install into the system in this directory, such as an image.",
)
def install_service(dry_run: bool, now: bool, uninstall: bool, program: Path, root: Path) -> None:
    """Install the daemon of this environment as a systemd service.

    Writes the unit and, if there is none, a settings file with the defaults, and enables the
    service. Running it again changes only what differs.
    """
    steps = _Steps(root, is_dry=dry_run)
    try:
        if uninstall:
            _uninstall(steps)
        else:
            _install(steps, unit_text(program), start=now)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}; run it as root") from None


def unit_text(program: Path) -> str:
    """The unit that starts this program."""
    if not program.is_absolute() or not _PLAIN.fullmatch(str(program)):
        raise click.ClickException(
            f"{program} is not a valid program path: use an absolute path of letters, digits, "
            "dots and dashes"
        )
    template = resources.files("sandboxd.cli").joinpath(UNIT).read_text()
    return template.replace("@PROGRAM@", str(program))


def _install(steps: _Steps, unit: str, *, start: bool) -> None:
    if steps.is_dry:
        click.echo(unit)
    is_new_unit = steps.write(UNIT_PATH, unit, mode=0o644)
    if not steps.exists(SETTINGS_PATH):
        # The token file belongs into the same directory.
        steps.write(SETTINGS_PATH, template(), mode=0o640, directory_mode=0o750)
    if is_new_unit and steps.is_live:
        steps.systemctl("daemon-reload")
    steps.systemctl("enable", UNIT)
    if start:
        steps.systemctl("restart", UNIT, seconds=STOP_SECONDS)
    elif not steps.is_dry:
        click.echo(
            f"start it with: systemctl start {UNIT}; read its log with: journalctl -u {UNIT}"
        )


def _uninstall(steps: _Steps) -> None:
    if not steps.exists(UNIT_PATH):
        click.echo(f"nothing to do: {UNIT} is not installed")
        return
    if steps.is_live:
        steps.systemctl("disable", "--now", UNIT, seconds=STOP_SECONDS)
    else:
        steps.systemctl("disable", UNIT)
    steps.remove(UNIT_PATH)
    if steps.is_live:
        steps.systemctl("daemon-reload")


class _Steps:
    """Changes to a system; each prints a line, and a dry run only prints."""

    def __init__(self, root: Path, *, is_dry: bool) -> None:
        self._root = root
        self.is_dry = is_dry

    @property
    def is_live(self) -> bool:
        """Whether this is the running system and not one in a directory."""
        return self._root == Path("/")

    def exists(self, path: Path) -> bool:
        return (self._root / path).exists()

    def write(self, path: Path, text: str, *, mode: int, directory_mode: int = 0o755) -> bool:
        """Write a file atomically; False if it is already up to date."""
        target = self._root / path
        if target.exists() and target.read_text() == text:
            click.echo(f"/{path} is up to date")
            return False
        click.echo(f"write /{path}")
        if not self.is_dry:
            target.parent.mkdir(mode=directory_mode, parents=True, exist_ok=True)
            unfinished = target.with_name(f".{target.name}.{os.getpid()}")
            unfinished.write_text(text)
            unfinished.chmod(mode)
            unfinished.rename(target)
        return True

    def remove(self, path: Path) -> None:
        click.echo(f"remove /{path}")
        if not self.is_dry:
            (self._root / path).unlink()

    def systemctl(self, *arguments: str, seconds: float = SYSTEMCTL_SECONDS) -> None:
        click.echo(f"systemctl {' '.join(arguments)}")
        if not self.is_dry:
            _run(["systemctl", *self._where, *arguments], seconds)

    @property
    def _where(self) -> Sequence[str]:
        return () if self.is_live else (f"--root={self._root}",)


def _run(command: Sequence[str], seconds: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        raise click.ClickException(
            "systemctl was not found: this system does not run systemd"
        ) from None
    except subprocess.TimeoutExpired:
        raise click.ClickException(
            f"`{' '.join(command)}` did not finish within {seconds:g} s"
        ) from None
    if done.returncode != 0:
        raise click.ClickException(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
