"""Frameworks with an adapter for E2B use sandboxes of a real daemon, unchanged."""

from __future__ import annotations

from pathlib import Path

from tests.docker.gateway import Gateway, gateway
from tests.docker.token_daemon import token_daemon
from tests.vendors.frameworks import ROOM, output_of

FRAMEWORK = "openai-agents"


async def test_the_openai_agents_sdk_with_its_own_client_for_e2b(tmp_path: Path) -> None:
    """Twenty at once: commands, files, and a workspace that is saved and restored."""
    module = "tests.vendors.programs.openai_agents"
    async with token_daemon(tmp_path, **ROOM) as daemon, gateway(daemon) as url:
        environment = Gateway(daemon, url).environment("bob")
        found = await output_of(FRAMEWORK, module, **environment)

    assert found == [[3, str(number), str(number), str(number)] for number in range(20)]
