"""Adapters for more frameworks, each driven by the framework against a real daemon."""

from __future__ import annotations

import asyncio

import pytest

from tests.vendors.frameworks import PROGRAM_SECONDS, ROOT, output_of, program

FRAMEWORKS = [
    "ag2",
    "autogen",
    "google-adk",
    "mini-swe-agent",
    "openai-agents",
    "pydantic-ai",
    "smolagents",
    "strands",
    "swe-rex",
]
EXAMPLES = ROOT / "examples" / "frameworks"
CONVERSATIONS = "tests.vendors.programs.many_workspaces"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_twenty_conversations_at_once_do_not_mix(url: str, framework: str) -> None:
    """Each finds in its workspace what it wrote, and nothing else."""
    name = framework.replace("-", "_")
    found = await output_of(framework, CONVERSATIONS, name, SANDBOXD_URL=url)

    assert found == [str(number) for number in range(20)]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_the_example(url: str, framework: str) -> None:
    """The program of the examples runs with nothing but the address of a daemon."""
    (example,) = EXAMPLES.glob(f"{framework.replace('-', '_')}_*.py")
    async with program(framework, str(example), SANDBOXD_URL=url) as process:
        async with asyncio.timeout(PROGRAM_SECONDS):
            printed, _ = await process.communicate()

    assert process.returncode == 0, printed.decode()
    assert "42" in printed.decode().split()


@pytest.mark.parametrize("framework", ["pydantic-ai"])
async def test_the_checks_of_the_framework(url: str, framework: str) -> None:
    """The workspace passes the conformance suite of the framework."""
    arguments = ("-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", "-p")
    checks = "tests/vendors/programs/pydantic_ai_suite.py"
    async with program(
        framework,
        *arguments,
        "no:asyncio",
        "-p",
        "anyio",
        "-p",
        "no:cacheprovider",
        checks,
        SANDBOXD_URL=url,
    ) as process:
        async with asyncio.timeout(PROGRAM_SECONDS):
            printed, _ = await process.communicate()

    assert process.returncode == 0, printed.decode()
