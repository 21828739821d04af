"""What is read again on SIGHUP."""

from __future__ import annotations

from structlog.testing import capture_logs

from sandboxd.daemon.reloads import Reloads


async def test_every_part_is_read_again_although_one_fails() -> None:
    """A file that cannot be read is logged by the name of its part, and the others are read."""
    read = []

    async def broken() -> None:
        read.append("broken")
        raise ValueError("line 3 makes no sense")

    async def well() -> None:
        read.append("well")

    reloads = Reloads()
    reloads.add("tokens", broken)
    reloads.add("certificates", well)
    with capture_logs() as logs:
        assert not await reloads.run()

    assert read == ["broken", "well"]
    assert [line["event"] for line in logs] == ["part.reload_failed", "daemon.reload_failed"]
    assert logs[1]["parts"] == ["tokens"]


async def test_reload_without_a_failure_says_so() -> None:
    """The log tells which parts were read."""
    reloads = Reloads()
    with capture_logs() as logs:
        assert await reloads.run()

    assert logs[0]["event"] == "daemon.reloaded"
