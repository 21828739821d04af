"""Patterns of file names, which become regular expressions in a worker."""

from __future__ import annotations

from collections.abc import Hashable

from sandboxd.files.requests import MAX_PATTERN
from sandboxd.guest.files import glob
from sandboxd.guest.files.daemon_connection import Refused
from tests.fuzz.target import Target, stateless


async def compile_pattern(data: bytes) -> Hashable:
    """A worker has a timer for the matching, not for this."""
    text = data.decode(errors="replace")[:MAX_PATTERN]
    try:
        compiled = glob.compiled(text)
    except Refused as refused:
        return refused.failed.failure
    return compiled.groups, len(compiled.pattern).bit_length()


PATTERNS = Target(
    name="patterns",
    open=stateless(compile_pattern),
    seeds=[b"*.py", b"src/**/test_?.[ch]", b"/[!a-z]*/x", b"**", b"[]a]", b"[^]", b"a[b"],
    words=[
        b"**/",
        b"*",
        b"?",
        b"[",
        b"]",
        b"[!",
        b"[^",
        b"-",
        b"\\",
        b"{2,3}",
        b"(?:",
        b"|",
        b"&&",
    ],
    max_bytes=4 * MAX_PATTERN,
)
