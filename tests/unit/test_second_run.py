"""Tests that fail by chance are listed, and the list bites."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
from pathlib import Path

def test_now_and_then():
    tried = Path("tried")
    if not tried.exists():
        tried.touch()
        raise AssertionError

def test_never():
    assert False
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    plugin = ["-p", "tests.second_run", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *arguments],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_listed_test_is_not_tried_again(tmp_path: Path) -> None:
    """What passes when it is tried again is added to the list; from then on it fails there, even if
    it would pass."""
    (tmp_path / "test_program.py").write_text(PROGRAM)
    (tmp_path / "chance.txt").write_text("# A comment\n")

    run(tmp_path, "--failures=failures")
    again = run(tmp_path, "--again=failures", "--chance=chance.txt")

    assert "1 failed, 1 passed" in again.stdout
    listed = (tmp_path / "chance.txt").read_text()
    assert listed == "# A comment\ntest_program.py::test_now_and_then\n"

    once_more = run(tmp_path, "--again=failures", "--chance=chance.txt")

    assert "it failed by chance before" in once_more.stdout
    assert once_more.returncode == 1
    assert (tmp_path / "chance.txt").read_text() == listed
