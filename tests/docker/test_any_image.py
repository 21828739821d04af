"""The guest brings its own runtime."""

from __future__ import annotations

from tests.docker.commands import run, stream
from tests.docker.daemon_process import running_daemon
from tests.docker.test_lifecycle import open_session

BUSYBOX = "/bin/busybox"


async def test_image_with_nothing_but_busybox_works() -> None:
    """An image without Python, libc, bash or /etc runs commands, streams, times out and goes on."""
    async with (
        running_daemon(CONTAINER_IMAGE="sandboxd/test-busybox:latest", POOL_SIZE="1") as daemon,
        daemon.api() as api,
    ):
        session_id = (await open_session(api)).session.session_id

        def shell(line: str) -> list[str]:
            return [BUSYBOX, "sh", "-c", line]

        listing = await run(api, session_id, shell("busybox ls -a /; pwd"), env={"PATH": "/bin"})
        assert b"bin" in listing.stdout.data
        written = await run(api, session_id, shell("echo kept > f"))
        assert written.exit.code == 0, written
        streamed = await stream(api, session_id, [BUSYBOX, "cat", "f"])
        assert streamed.stdout == b"kept\n", streamed
        slow = await run(api, session_id, [BUSYBOX, "sleep", "100"], timeout=0.3)
        assert slow.exit.signal == 9
        assert (await run(api, session_id, shell("exit 5"))).exit.code == 5
