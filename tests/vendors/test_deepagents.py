"""A deep agent of an older release works in the sandbox of its thread."""

from __future__ import annotations

from tests.vendors.frameworks import output_of

FRAMEWORK = "deepagents-0.6"


async def test_an_agent_of_the_previous_release(url: str) -> None:
    """The backend works with the release before the current one, whose protocol has less."""
    release, *answers = await output_of(FRAMEWORK, "tests.vendors.programs.deep_agent", url)

    assert release.startswith("0.6.")
    _, _, read, grep, glob, ls, preview, count = answers
    assert "three" in read
    assert "three" in grep
    assert "/workspace/a.txt" in glob
    assert "/workspace/a.txt" in ls
    assert "exit code 3" in preview
    assert "/workspace/.deepagents/large_tool_results/" in preview
    assert int(count.split()[0]) >= 99_999
