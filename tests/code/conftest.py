"""Zygotes for the tests of the runner: one for each Python, shared by a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.code.rig import ContextRig, Zygote


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def context(zygote: Zygote) -> Iterator[ContextRig]:
    made = zygote.context()
    yield made
    made.close()


@pytest.fixture
def strict(zygote: Zygote) -> Iterator[ContextRig]:
    made = zygote.context(policy={"name": "strict"})
    yield made
    made.close()
