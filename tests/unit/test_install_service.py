"""`sandboxd install-service`, into a system in a directory."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from sandboxd.cli.install_service import SETTINGS_PATH, UNIT_PATH, install_service, unit_text

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "deploy/systemd/sandboxd.service"
PROGRAM = Path("/opt/sandboxd/bin/sandboxd")
OWN_MOUNTS = re.compile(
    "(ProtectSystem|ProtectHome|PrivateTmp|PrivateDevices|PrivateMounts|ProtectKernel.*|ProtectProc"
    "|ProtectControlGroups|ProtectHostname|ProtectClock|Read(Write|Only)Paths|InaccessiblePaths"
    "|TemporaryFileSystem|Bind.*Paths|DynamicUser|RootDirectory|MountFlags)="
)
"""What would hide the daemon's mounts from the engine."""


def invoke(root: Path, *arguments: str) -> str:
    done = CliRunner().invoke(
        install_service, ["--root", str(root), "--program", str(PROGRAM), *arguments]
    )
    assert done.exit_code == 0, done.output
    return done.output


def is_enabled(root: Path) -> bool:
    return (root / "etc/systemd/system/multi-user.target.wants/sandboxd.service").is_symlink()


def test_install_writes_enables_and_does_nothing_twice(tmp_path: Path) -> None:
    """The first run installs, the second finds everything as it should be."""
    invoke(tmp_path)
    unit, settings = tmp_path / UNIT_PATH, tmp_path / SETTINGS_PATH
    assert f"ExecStart={PROGRAM} serve\n" in unit.read_text()
    assert settings.exists()
    assert is_enabled(tmp_path)
    settings.write_text("# mine\n")
    before = unit.stat().st_mtime_ns

    assert "up to date" in invoke(tmp_path)
    assert unit.stat().st_mtime_ns == before
    assert settings.read_text() == "# mine\n"
    assert [path.name for path in unit.parent.glob(".*")] == []


def test_changed_unit_is_replaced(tmp_path: Path) -> None:
    """An upgrade that brings another unit, or moved the program, takes effect."""
    invoke(tmp_path)
    (tmp_path / UNIT_PATH).write_text("[Service]\n")
    invoke(tmp_path)

    assert (tmp_path / UNIT_PATH).read_text() == unit_text(PROGRAM)


def test_dry_run_shows_all_and_changes_nothing(tmp_path: Path) -> None:
    """What it prints is the unit and each step."""
    shown = invoke(tmp_path, "--dry-run", "--now")

    assert unit_text(PROGRAM) in shown
    assert "systemctl restart sandboxd.service" in shown
    assert list(tmp_path.iterdir()) == []


def test_uninstall_leaves_settings_and_can_be_repeated(tmp_path: Path) -> None:
    """The unit goes, what an operator wrote stays."""
    invoke(tmp_path)
    invoke(tmp_path, "--uninstall")
    assert not (tmp_path / UNIT_PATH).exists()
    assert not is_enabled(tmp_path)
    assert (tmp_path / SETTINGS_PATH).exists()

    assert "is not installed" in invoke(tmp_path, "--uninstall")


@pytest.mark.parametrize("program", ["sandboxd", "/opt/my programs/sandboxd", "/opt/%h/sandboxd"])
def test_program_that_systemd_would_misread_is_refused(program: str, tmp_path: Path) -> None:
    """A relative path, or one with words or specifiers in it, is told before anything is done."""
    arguments = ["--root", str(tmp_path), "--program", program]
    done = CliRunner().invoke(install_service, arguments)

    assert done.exit_code == 1
    assert program in done.output
    assert list(tmp_path.iterdir()) == []


def test_unit_in_the_repository_is_the_one_that_is_installed() -> None:
    """Who copies the file by hand gets what the command writes."""
    assert SHOWN.read_text() == unit_text(PROGRAM)


def test_unit_leaves_the_daemon_in_the_mounts_of_the_host() -> None:
    """No setting gives it a mount namespace, in which the engine would not see its disks."""
    assert [line for line in SHOWN.read_text().splitlines() if OWN_MOUNTS.match(line)] == []


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """It is free of unknown or misplaced settings; how exposed it is stays what it was."""
    unit = tmp_path / "sandboxd.service"
    unit.write_text(unit_text(Path("/bin/true")))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=58", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    (score,) = re.findall(r"exposure level .*: ([\d.]+)", rated.stdout)
    print(f"unit: exposure {score} of 10 by systemd-analyze security")
    assert rated.returncode == 0, rated.stdout
