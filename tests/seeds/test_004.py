"""Document 004: environments, the workspace, and the configuration of a session as JSON."""

from __future__ import annotations

import re

import pytest

from sandboxd_client import SandboxClient
from tests.seeds.conftest import Documents
from tests.seeds.document import Document


@pytest.fixture
def summary(document: Documents) -> Document:
    return document("004")


def test_the_workspace_has_its_three_directories(summary: Document, client: SandboxClient) -> None:
    """And an agent may write to two of them."""
    named = re.findall(r"── (\w+)/", summary.text(2))
    for name in named:
        done = client.execute(f"cd /workspace/{name} && touch made")
        assert done["exit_code"] == (name == "project_files"), done
    assert len(named) == 3
