"""A daemon that is killed by itself, as by SIGKILL, at a step of the first move of a kept disk.

The step is named by SANDBOXD_TEST_KILLED_AT. A start without it is an ordinary one.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

from sandboxd.cli import run
from sandboxd.isolation import attachment
from sandboxd.link.connection import GuestLink
from sandboxd.registry.sqlite import SqliteRegistry
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sandboxes.maker import SandboxMaker

STEPS: dict[str, tuple[Any, str, bool]] = {
    "before the disk is claimed": (KeptFilesStore, "claim_instead", False),
    "when the disk is on the host": (SandboxMaker, "_show_disk", False),
    "when the old disk is unmounted": (attachment, "_unmount", True),
    "when the disk is inside": (SandboxMaker, "_show_disk", True),
    "before the guest knows": (GuestLink, "workspace_moved", False),
    "when the guest knows": (GuestLink, "workspace_moved", True),
    "before the record is saved": (SqliteRegistry, "save", False),
    "when the record is saved": (SqliteRegistry, "save", True),
}
"""What is called there, and whether the kill comes after it rather than before."""


def break_at(step: str) -> None:
    owner, name, is_after = STEPS[step]
    is_moving = False
    function, move_in = getattr(owner, name), SandboxMaker.move_in

    def die() -> None:
        if is_moving:
            os.kill(os.getpid(), signal.SIGKILL)

    def noted(*arguments: Any) -> Any:
        nonlocal is_moving
        is_moving = True
        return move_in(*arguments)

    def broken(*arguments: Any) -> Any:
        if not is_after:
            die()
        result = function(*arguments)
        if is_after and hasattr(result, "__await__"):
            return _then(result, die)
        if is_after:
            die()
        return result

    SandboxMaker.move_in = noted  # type: ignore[method-assign, assignment]
    setattr(owner, name, broken)


async def _then(result: Any, die: Callable[[], None]) -> Any:
    value = await result
    die()
    return value


if __name__ == "__main__":
    if step := os.environ.get("SANDBOXD_TEST_KILLED_AT", ""):
        break_at(step)
    run()
