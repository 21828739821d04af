"""Types of parameters, by the numbers that PostgreSQL has for them."""

from __future__ import annotations

from typing import NamedTuple

UNKNOWN, BOOL, INT8, INT4, FLOAT8, NUMERIC = 0, 16, 20, 23, 701, 1700


class Parameter(NamedTuple):
    value: bytes | None
    type: int = UNKNOWN
    """PostgreSQL decides on the type of unknown ones by where they are used."""
