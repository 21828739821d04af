"""The guest's program, put where sandboxes mount it from."""

from __future__ import annotations

from importlib.util import cache_from_source
from pathlib import Path

import sandboxd.guest
from sandboxd.sandboxes.guest_install import install_guest

SOURCE = Path(sandboxd.guest.__file__).parent


def test_every_module_is_there_and_compiled(tmp_path: Path) -> None:
    """A guest finds all of its program, with nothing left to compile on a read-only mount."""
    installed = install_guest(tmp_path)

    for module in SOURCE.rglob("*.py"):
        copy = installed / module.relative_to(SOURCE)
        assert copy.read_bytes() == module.read_bytes()
        assert Path(cache_from_source(str(copy))).exists()


def test_a_version_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """A daemon that starts again changes nothing under the sandboxes that still run."""
    installed = install_guest(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in installed.rglob("*")}

    assert install_guest(tmp_path) == installed
    assert {path: path.stat().st_mtime_ns for path in installed.rglob("*")} == before
    assert list((tmp_path / "guest").iterdir()) == [installed]
