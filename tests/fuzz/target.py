"""What is fuzzed: a parser, valid inputs for it, and what may go wrong with any other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random

Run = Callable[[bytes], Awaitable[Hashable]]
"""Gives an input to the parser. Returns in a few words what became of it: an input with an outcome
that was not seen before is kept and changed further. Raises whatever the parser must not raise."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One parser of hostile bytes."""

    name: str
    open: Callable[[], AbstractContextManager[Run]]
    seeds: Sequence[bytes]
    """Valid inputs, from which the others are made."""
    words: Sequence[bytes] = ()
    """Pieces that mean something to the parser."""
    repair: Callable[[bytes, Random], bytes] | None = None
    """Makes lengths and checksums of a changed input valid again, so that it gets past them."""
    max_bytes: int = 64 << 10
    processor_seconds: float = 0.5
    """Most that one input may take; a hundred times what they should."""
    growth_bytes: int = 48 << 20
    """Most memory for one input, and most growth over all of them."""
    found: Sequence[bytes] = field(default=())
    """Inputs that went wrong once."""


def stateless(run: Run) -> Callable[[], AbstractContextManager[Run]]:
    """For a target that needs nothing but the input."""
    return lambda: nullcontext(run)
