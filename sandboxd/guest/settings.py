"""What the daemon tells a guest about its sandbox."""

import os
from typing import NotRequired, TypedDict

_KINDS = ("dist", "site")


class Settings(TypedDict):
    workspace: str
    start_dir: NotRequired[str]
    """Where commands start; without it, in the workspace."""
    directories: list[str]
    """To be made in the workspace."""
    links: NotRequired[dict[str, str]]
    """Likewise, with their targets."""
    env: dict[str, str]
    asks_to_place: bool
    """Whether each new shell has to be moved by the daemon to where commands belong."""
    is_first_victim: bool
    """Whether commands share their memory limit with the guest and have to go before it does."""
    grace_seconds: NotRequired[float]
    """How long a guest waits for the next daemon once one is gone; without it, not at all."""
    worker_share: NotRequired[float]
    """Processors that workers may use on average; without it, any number."""
    takes_remarks: NotRequired[bool]
    """Whether the daemon knows REMARKS and Cause.DEADLINE."""


_LIBRARIES = "/usr/local/lib"
"""Where packages are attached, below the directory of a Python."""
_OWN_PROGRAMS = "/.sandboxd/guest/bin"
"""Where commands of ours are, such as `sandboxd-sql`."""
_NODE_MODULES = "/node_modules"
"""Where packages of Node.js are attached."""


def environment_of(settings: Settings) -> dict[str, str]:
    """The image's own variables are what its author meant commands to see.

    Programs of packages that are attached later come last, so that they shadow no others.
    """
    environment = {**os.environ, **settings["env"]}
    programs = [*_directories_of_programs(), _OWN_PROGRAMS]
    environment["PATH"] = ":".join([environment.get("PATH", os.defpath), *programs])
    return environment


def _directories_of_programs() -> list[str]:
    try:
        pythons = sorted(name for name in os.listdir(_LIBRARIES) if name.startswith("python3."))
    except OSError:
        pythons = []
    packages = [f"{_LIBRARIES}/{name}/{kind}-packages" for name in pythons for kind in _KINDS]
    programs = [f"{directory}/bin" for directory in packages if os.path.isdir(directory)]
    return [*programs, f"{_NODE_MODULES}/.bin"] if os.path.isdir(_NODE_MODULES) else programs


def start_dir_of(settings: Settings) -> str:
    return settings.get("start_dir", settings["workspace"])
