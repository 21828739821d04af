"""How long the long runs last: a factor for what they do, 1 unless TEST_SCALE is set."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("TEST_SCALE", "1"))
