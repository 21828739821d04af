"""How long the long runs last: a factor for what they do, 1 unless TEST_SCALE is set; 0.1 in the
quick pass."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("TEST_SCALE", "1"))


def examples(number: int) -> int:
    """How many examples a property is tried with."""
    return max(10, round(number * SCALE))
