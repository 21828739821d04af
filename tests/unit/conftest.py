"""Directories of unit tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.directories import quick_directory


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In place of pytest's own, which is on a disk and is kept."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-unit-", dir=quick_directory()))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
