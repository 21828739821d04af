"""Document 004: the directories of a workspace, and the configuration of a session as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from sandboxd_client import PackagesNotAllowedError, SandboxClient
from tests.docker.conftest import BUILD_SECONDS, until_built_by_others
from tests.docker.daemon_process import DaemonProcess
from tests.seeds.conftest import Documents
from tests.seeds.document import Document


@pytest.fixture
def summary(document: Documents) -> Document:
    return document("004")


@pytest.fixture
def client(daemon: DaemonProcess) -> Iterator[SandboxClient]:
    with SandboxClient(server_url=f"unix:{daemon.socket}") as client:
        yield client


def test_the_workspace_has_its_three_directories(summary: Document, client: SandboxClient) -> None:
    """Of which an agent may write to all but that of the uploaded files."""
    named = re.findall(r"── (\w+)/", summary.text(2))
    client.get_or_create_session("ada", "workspace")
    codes = {
        name: client.execute(f"touch /workspace/{name}/made && ls /workspace/{name}")["exit_code"]
        for name in named
    }
    assert codes == {"project_files": 1, "agent_workspace": 0, "outputs": 0}


@pytest.mark.timeout(BUILD_SECONDS + 100)
def test_a_session_is_configured_by_json(summary: Document, client: SandboxClient) -> None:
    """The packages of the example are refused, with what would allow them and what that would cost;
    without them it opens."""
    configuration = json.loads(summary.text(3))
    until_built_by_others(configuration["environment_type"])
    with pytest.raises(PackagesNotAllowedError) as refused:
        client.get_or_create_session("ada", "configured", **configuration)
    for named in ("keras, tensorflow", "SANDBOXD_PACKAGES_POLICY=open", "MiB on the disk"):
        assert named in str(refused.value)

    del configuration["environment_config"]["packages"]
    client.get_or_create_session("ada", "configured", **configuration, build_wait=BUILD_SECONDS)
    assert client.execute("python --version")["stdout"].startswith("Python 3.11.")
    assert client.execute("echo $DEBUG")["stdout"] == "1\n"
