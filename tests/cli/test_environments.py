"""`sandboxd environments`: tables for people, documents for programs, progress of a build."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sandboxd.config import EnvironmentTable
from sandboxd.daemon.composition import Daemon
from sandboxd.errors import EngineFailed
from tests.cli.command_line import CommandLine
from tests.fakes.engine import FakeEngine


@pytest.fixture
async def daemon(start_daemon: Callable[..., Awaitable[Daemon]], short_dir: Path) -> Daemon:
    """A daemon with the environment `small`."""
    dockerfile = short_dir / "Dockerfile"
    dockerfile.write_text("ARG BASE\nFROM ${BASE}\n")
    small = EnvironmentTable(
        description="A small one", dockerfile=dockerfile, env_vars={"COLOUR": "blue"}
    )
    return await start_daemon(environments={"small": small})


async def test_an_environment_is_built_used_and_removed(sandboxd: CommandLine) -> None:
    """The progress goes to standard error, the result to standard output."""
    built = await sandboxd("environments", "build", "small")
    listed = await sandboxd("environments", "list")
    document = (await sandboxd("environments", "list", "--json")).document
    shown = await sandboxd("environments", "show", "small")

    assert built.code == 0
    assert built.stdout.startswith("small: built in")
    assert "small: " in built.stderr
    assert "0% after 0 s, base" in built.stderr
    rows = {line.split()[0]: line.split() for line in listed.stdout.splitlines()}
    assert rows["small"][1] == "ready"
    assert rows["node20"][1:3] == ["not", "built"]
    assert document[0]["name"] == "default"
    assert "description  A small one" in shown.stdout
    assert "variables    COLOUR" in shown.stdout
    assert "source       environment" in shown.stdout
    assert (await sandboxd("environments", "build", "small")).stdout.startswith("small: ready")

    opened = await sandboxd("session", "open", "ada", "1", "--environment", "small")
    facts = await sandboxd("session", "show", "ada/1")
    assert opened.code == 0
    assert "environment small" in " ".join(facts.stdout.split())
    used = await sandboxd("environments", "remove", "small")
    assert used.code == 1
    assert "1 sessions are open" in used.stderr
    await sandboxd("session", "close", "ada/1")
    removed = await sandboxd("environments", "remove", "small")
    assert (removed.code, removed.stdout.strip()) == (0, "small: removed")


async def test_failures_say_what_is_wrong(sandboxd: CommandLine, engine: FakeEngine) -> None:
    """With the exit codes of the other commands."""
    engine.failures["build_image.step"] = EngineFailed("The image build failed at 'RUN x': no.")
    failed = await sandboxd("environments", "build", "small")
    assert failed.code == 1
    assert "RUN x" in failed.stderr

    unknown = await sandboxd("environments", "show", "large")
    assert unknown.code == 3
    assert "no environment 'large'" in unknown.stderr
    hostile = await sandboxd("environments", "build", "../x")
    assert hostile.code == 2


async def test_a_session_may_wait_and_ask_for_a_policy(sandboxd: CommandLine) -> None:
    """What it got is part of its description."""
    opened = await sandboxd(
        *("session", "open", "ada", "2", "--environment", "small"),
        *("--build-wait", "60", "--policy", "strict", "--json"),
    )

    document = opened.document
    assert (document["environment"], document["command_policy"]) == ("small", "strict")


async def test_status_has_a_line_for_each_environment(sandboxd: CommandLine) -> None:
    """And the images of all of them are listed."""
    await sandboxd("environments", "build", "small")
    await sandboxd("session", "open", "ada", "3", "--environment", "small")
    told = await sandboxd("status")
    images = (await sandboxd("images", "--json")).document

    assert "small: " in told.stdout
    assert "1 in use" in told.stdout
    assert {one["environment"] for one in images} == {"default", "small"}
    assert all(one["image_id"] for one in images)


async def test_document_of_an_environment_is_an_option(
    sandboxd: CommandLine, tmp_path: Path
) -> None:
    """As JSON or in a file. Packages that are not allowed are all named, with the setting that
    would allow them and what they may cost."""
    heavy = '{"packages": ["tensorflow", "keras"], "env_vars": {"DEBUG": "1"}}'
    light = tmp_path / "light.json"
    light.write_text('{"env_vars": {"DEBUG": "1"}}')
    opening = ("session", "open", "ada", "1", "--environment-type", "default")

    refused = await sandboxd(*opening, "--environment-config", heavy)
    opened = await sandboxd(*opening, "--environment-config", f"@{light}")
    wrong = [
        await sandboxd(*opening, "--environment-config", text)
        for text in ("{", "[]", f"@{tmp_path}/none.json")
    ]

    assert refused.code != 0
    for text in ("keras, tensorflow", "SANDBOXD_PACKAGES_POLICY=open", "1024 MiB", "300 s"):
        assert text in refused.stderr
    assert opened.code == 0
    assert [one.code for one in wrong] == [2, 2, 2]
    assert "not a JSON object" in wrong[1].stderr
