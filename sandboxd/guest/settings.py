"""What the daemon tells a guest about its sandbox."""

import os
from typing import NotRequired, TypedDict


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


def environment_of(settings: Settings) -> dict[str, str]:
    """The image's own variables are what its author meant commands to see."""
    return {**os.environ, **settings["env"]}


def start_dir_of(settings: Settings) -> str:
    return settings.get("start_dir", settings["workspace"])
