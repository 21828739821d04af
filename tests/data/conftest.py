from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.rig import Database, running_database


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    directory = tmp_path_factory.mktemp("files")
    for path in (directory, *directory.parents[:3]):
        Path(path).chmod(Path(path).stat().st_mode | 0o011)
    with running_database(directory) as database:
        yield database
