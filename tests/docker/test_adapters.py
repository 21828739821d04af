"""Each adapter for a framework does what the framework calls, checked without the framework."""

from __future__ import annotations

import pytest

from tests.docker.daemon_process import DaemonProcess
from tests.integrations import adapter_checks, stand_ins


@pytest.mark.parametrize("framework", stand_ins.FRAMEWORKS)
@pytest.mark.asyncio(loop_scope="session")
async def test_an_adapter_does_what_its_framework_calls(
    framework: str, shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands, files, errors and time-outs work, and the sandbox ends with the adapter."""
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{shared_daemon.socket}")
    stand_ins.put_in_place(framework, monkeypatch)

    await adapter_checks.run(framework)
