"""Who the commands are that call a daemon."""

from __future__ import annotations

import os


def call_metadata() -> tuple[tuple[str, str], ...]:
    """The token that SANDBOXD_TOKEN has, for a daemon whose socket asks for one."""
    token = os.environ.get("SANDBOXD_TOKEN")
    return (("authorization", f"Bearer {token}"),) if token else ()
