"""Sandboxes of the OpenAI Agents SDK, driven by its own runner against a real daemon."""

from __future__ import annotations

from typing import Any

from tests.vendors.frameworks import output_of

PROGRAM = "tests.vendors.programs.openai_sandboxes"
FRAMEWORK = "openai-agents"


async def outcome(url: str, scenario: str) -> Any:
    return await output_of(FRAMEWORK, PROGRAM, scenario, SANDBOXD_URL=url)


async def test_the_tools_of_an_agent(url: str) -> None:
    """Patches, commands and a process with a terminal work; the sandbox ends with the run."""
    told = await outcome(url, "tools")

    answers = told["answers"]
    assert len(answers) == 7
    assert "one\nthreenoted\nhi\n" in answers[2]
    assert "code 3" in answers[2], answers[2]
    assert "code 127" in answers[3], answers[3]
    assert "got hello" in answers[5], answers[5]
    assert "write_stdin failed" in answers[6], answers[6]
    assert "data:image/png;base64," in told["seen"], told["seen"]
    assert told["left"] == []


async def test_a_conversation_keeps_its_sandbox(url: str) -> None:
    """The next run finds the files, and the manifest does not overwrite them."""
    told = await outcome(url, "conversation")

    assert told["answer"].endswith("changed\n"), told["answer"]
    assert told["left"] == ["active"]


async def test_a_snapshot_fills_another_sandbox(url: str) -> None:
    """Files, modes and links come back after the first sandbox has ended."""
    told = await outcome(url, "snapshot")

    names = ["agent_workspace", "d", "e", "hard", "odd name", "outputs", "project_files"]
    assert told["found"].splitlines() == ["kept", "700", "/usr/bin/env", "o", "s", *names]
    assert told["is_other"]
    assert told["left"] == []


async def test_a_paused_sandbox_is_parked(url: str) -> None:
    """Its state finds it again with its files, and a client can delete it without starting it."""
    assert await outcome(url, "pause") == {"paused": ["parked"], "found": "kept", "left": []}


async def test_errors_have_the_classes_of_the_framework(url: str) -> None:
    """Each mistake is the documented class, and no sandbox stays behind."""
    told = await outcome(url, "mistakes")

    assert told == {
        "missing": "workspace_read_not_found",
        "directory": "workspace_archive_read_error",
        "outside": "invalid_manifest_path",
        "above": "invalid_manifest_path",
        "link": "invalid_manifest_path",
        "write": "workspace_archive_write_error",
        "granted": "workspace_archive_write_error",
        "type": "workspace_write_type_error",
        "list": "exec_nonzero",
        "remove": "exec_nonzero",
        "slow": "exec_timeout",
        "user": "sandbox_config_invalid",
        "users": "sandbox_config_invalid",
        "port": "exposed_port_unavailable",
        "environment": "workspace_start_error",
        "program": 127,
        "entries": [
            "/workspace/agent_workspace symlink",
            "/workspace/d directory",
            "/workspace/link symlink",
            "/workspace/outputs directory",
            "/workspace/pipe other",
            "/workspace/project_files directory",
        ],
        "marked": True,
        "lost": "exec_transport_error",
        "running": False,
        "manifest": "WorkspaceArchiveWriteError",
    }


async def test_an_exposed_port(url: str) -> None:
    """The endpoint of a port reaches the program that listens on it in the sandbox."""
    told = await outcome(url, "port")

    assert told["answer"].startswith("HTTP/1."), told
    assert told["answer"].endswith("42\n"), told
    assert ".localhost:" in told["url"]
