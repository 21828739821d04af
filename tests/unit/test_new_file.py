"""Files of a workspace as they appear."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxd.guest.files import new_file
from sandboxd.guest.files.area import Area
from sandboxd.guest.files.new_file import NewFile

SCRIPT = b"#!/bin/sh\nexit 7\n"


@pytest.fixture(params=["without a name", "with a temporary name"])
def area(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Area]:
    """On a filesystem with unnamed files, and on one without."""
    if request.param == "with a temporary name":
        monkeypatch.setattr(new_file.os, "O_TMPFILE", os.O_DIRECTORY | os.O_WRONLY)
    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield Area(root, os.fsencode(tmp_path))
    os.close(root)


@contextmanager
def _written(area: Area, name: bytes, *, replace: bool) -> Iterator[None]:
    with NewFile(area, area.root) as file:
        file.write(SCRIPT)
        file.commit(name, 0o755, replace=replace)
        yield


def test_file_can_be_executed_as_soon_as_it_has_its_name(area: Area, tmp_path: Path) -> None:
    """Nobody has it open for writing then, so no command finds it busy."""
    with _written(area, b"run", replace=False):
        assert subprocess.run([tmp_path / "run"], check=False).returncode == 7
    with _written(area, b"run", replace=True):
        assert subprocess.run([tmp_path / "run"], check=False).returncode == 7

    assert os.listdir(tmp_path) == ["run"]


def _keep_replacing(area: Area) -> None:
    while True:
        with _written(area, b"run", replace=True):
            pass


def test_replaced_file_is_never_busy(area: Area, tmp_path: Path) -> None:
    """A script that is executed while it is replaced runs each time, the old one or the new."""
    with _written(area, b"run", replace=False):
        pass
    first = (tmp_path / "run").stat().st_mtime_ns
    # Not a thread: what this process starts would inherit the file that is being written.
    writer = multiprocessing.get_context("fork").Process(target=_keep_replacing, args=(area,))
    writer.start()
    try:
        codes = {subprocess.run([tmp_path / "run"], check=False).returncode for _ in range(200)}
        is_replaced = (tmp_path / "run").stat().st_mtime_ns != first
    finally:
        writer.kill()
        writer.join()

    assert codes == {7}
    assert is_replaced
