"""A worker of the command policy whose check does not end."""

from __future__ import annotations

import itertools
from typing import Any

from sandboxd.policy import worker


def _never(*_: Any) -> None:
    for _ in itertools.count():
        pass


if __name__ == "__main__":
    worker.check = _never  # type: ignore[assignment]
    worker.main()
