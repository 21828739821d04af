"""Document 001: the client in both modes, a bash tool, settings, errors, types of results."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandboxd.config import Config, ConfigInvalid, load
from sandboxd.policy import STRICT, check
from sandboxd_client import NoSessionError, SandboxClient
from tests.deploy.settings import check as checked_settings
from tests.seeds.conftest import Documents, local_settings
from tests.seeds.document import Document, is_a, setting, settings_of

DATA = '{"data": [1,2,3]}'
pytestmark = pytest.mark.usefixtures("local_mode")


@pytest.fixture
def guide(document: Documents) -> Document:
    """With what its examples take as given."""
    return document(
        "001",
        SandboxClient=SandboxClient,
        logger=logging.getLogger("program"),
        command="ls",
        MAX_TOTAL_FILES=1000,
        MAX_WORKSPACE_SIZE_MB=500,
    )


@pytest.fixture
def client(guide: Document, request: pytest.FixtureRequest) -> Any:
    """That of remote mode, in a session of the test's own."""
    guide.run(5)
    client = guide.names["client"]
    client.get_or_create_session(user_id="ada", thread_id=request.node.name)
    return client


def test_quick_start_in_local_mode(guide: Document, short_dir: Path) -> None:
    """As a separate program: no daemon runs before, none is left behind, and it prints what its
    comments say, without a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", guide.text(2)],
        env={**os.environ, **local_settings(short_dir)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("6\n\nTotal files: 1\n", "", 0)


def test_quick_start_in_remote_mode(guide: Document) -> None:
    """The same calls with a server."""
    assert "project_files" in guide.run(3)


def test_settings_are_those_of_the_daemon(guide: Document) -> None:
    """Each line is a setting with that value. What opens the daemon to others is refused, with the
    settings that it needs for that; a daemon inside a program has the rest."""
    for block in (9, 23, 24):
        given = settings_of(guide.text(block))
        if {"HOST", "REDIS_HOST"} & given.keys():
            with pytest.raises(ConfigInvalid) as refused:
                load(environment=given)
            for host, needed in {"HOST": "TOKENS_FILE", "REDIS_HOST": "CLUSTER_KEY_FILE"}.items():
                assert re.search(rf"{host}.* SANDBOXD_{needed}", str(refused.value))
                del given[host]
        config = checked_settings(given)
        for name, value in given.items():
            field, _ = setting(name)
            assert getattr(config, field) == getattr(Config(**{field: value}), field)
    guide.run(4)
    limits = guide.names["client"].get_or_create_session("ada", "limits").limits
    assert (limits.memory_bytes, limits.cpu_millis) == (256 << 20, 250)


def test_bash_tool(guide: Document, tmp_path: Path) -> None:
    """All its methods, in local mode; the file of the example is there."""
    with SandboxClient(mode="local") as client:
        client.get_or_create_session("user123", "conversation_abc")
        client.upload_file_from_bytes("input.json", DATA.encode())
        assert guide.run(6) == "Exit code: 0\nOutput: 3\n"
    tool, who = guide.names["bash_tool"], {"user_id": "user123", "thread_id": "conversation_abc"}
    assert tool.execute("jq '.data | length' missing.json", **who)["exit_code"] == 2
    (tmp_path / "report.csv").write_text("a,b\n")
    uploaded = tool.upload_file(str(tmp_path / "report.csv"), **who)
    downloaded = tool.download_file("report.csv", **who, local_path=str(tmp_path / "back.csv"))
    listed = tool.list_files(**who)
    assert Path(downloaded).read_text() == "a,b\n"
    assert is_a(uploaded, guide.value(34))
    assert is_a(listed, guide.value(33))
    assert is_a(downloaded, guide.value(35))
    assert is_a(tool.client.execute("ls"), guide.value(32))
    assert "report.csv" in [file["name"] for file in listed["files"]]

    tool.cleanup_session()

    tool.execute("true", **who)
    assert "report.csv" not in tool.execute("ls", **who)["stdout"]
    tool.cleanup_session("conversation_abc")


def test_the_new_prompt_is_true(guide: Document, client: Any) -> None:
    """Its example workflow works."""
    lines = [line.partition(". ")[2] for line in guide.text(8).splitlines()]
    create, use = (line for line in lines if line.startswith(("echo ", "jq ")))
    assert client.execute(create)["exit_code"] == 0
    assert client.execute(use)["stdout"] == "6\n"


@pytest.mark.parametrize(
    ("command", "logged"),
    [("ls", ""), ("grep x project_files/none", ""), ("curl example.com", "Invalid command: ")],
)
def test_errors(
    guide: Document, client: Any, command: str, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A command that fails is a result; one that is refused is a ValueError."""
    guide.run(15, command=command)
    assert "".join(caplog.messages).startswith(logged)
    assert bool(caplog.messages) == bool(logged)


def test_files(guide: Document, client: Any, tmp_path: Path) -> None:
    """Up, through a command, down; then the usage of the workspace."""
    (tmp_path / "data.csv").write_text("".join(f"{n}\n" for n in range(10)))
    client.execute("echo done > output.csv")
    guide.run(16)
    assert guide.names["result"]["stdout"] == "0\n1\n2\n3\n4\n"
    assert (tmp_path / "output.csv").read_text() == "done\n"
    files, size = guide.run(18).splitlines()
    assert (files, size.startswith("Size: 0.00 MB / ")) == ("Files: 2/1000", True)


def test_sessions(guide: Document, client: Any) -> None:
    """Opened and used as the examples do, and closed by hand and by the context manager."""
    for block in (13, 21, 22, 31):
        guide.run(block)
    assert guide.names["result"]["exit_code"] == 0
    session_id = client.session_id
    guide.run(17)
    assert client.get_session(session_id).state == "closed"


def test_local_mode_wherever_it_is_recommended(guide: Document) -> None:
    """Without an HTTP server; files persist; a client without a session says what to do."""
    guide.run(26)
    guide.run(29)
    assert guide.names["result"]["stdout"] == "6\n"
    with pytest.raises(NoSessionError, match="No active session"):
        guide.run(27)


def test_lists_of_commands_are_those_of_the_policy(guide: Document) -> None:
    """What the document allows may run, and what it forbids may not."""
    guide.run(25)
    allowed = guide.text(19).replace("\n", " ").split(", ")
    allowed += [name for name in guide.names["ALLOWED_COMMANDS"] if name is not ...]
    forbidden = guide.text(20).split(", ")
    assert [name for name in allowed if not check([name, "x"], STRICT).allowed] == []
    assert [name for name in forbidden if check([name, "x"], STRICT).allowed] == []
