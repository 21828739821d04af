"""Pydantic AI's own checks of a workspace backend, on the workspace of sandboxd."""

from __future__ import annotations

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from sandboxd_client.integrations.pydantic_ai import SandboxdWorkspace


@pytest.fixture
def anyio_backend():
    return "asyncio"


class TestSandboxdWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self):
        workspace = SandboxdWorkspace()
        yield workspace
        if workspace.ref is not None:
            await workspace.kill()

    @pytest.fixture
    def destructive_backend(self):
        return SandboxdWorkspace

    @pytest.fixture
    def fresh_backend(self):
        return SandboxdWorkspace

    @pytest.fixture
    def attach_backend(self):
        return SandboxdWorkspace

    @pytest.fixture
    def destroy_environment(self):
        return lambda backend: backend.kill()
