"""A PostgreSQL server for the tests that need one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.postgres_cluster import running_cluster


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with running_cluster() as conninfo:
        yield conninfo
