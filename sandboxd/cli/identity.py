"""The credentials that commands send to a daemon."""

from __future__ import annotations

import os


def call_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata with the token in SANDBOXD_TOKEN, for a daemon whose socket asks for one."""
    token = os.environ.get("SANDBOXD_TOKEN")
    return (("authorization", f"Bearer {token}"),) if token else ()
