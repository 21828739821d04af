"""Patterns of file names: expanded by the daemon, regular expressions in a worker."""

from __future__ import annotations

from collections.abc import Hashable

from sandboxd.errors import InvalidRequest
from sandboxd.files.patterns import MAX_PATTERN, excluded_names, expanded
from sandboxd.guest.files import glob
from sandboxd.guest.files.daemon_connection import Refused
from tests.fuzz.target import Target, stateless


async def compile_pattern(data: bytes) -> Hashable:
    """A worker has a timer for the matching, not for this."""
    text = data.decode(errors="replace")[:MAX_PATTERN]
    try:
        patterns = expanded(text, "pattern")
        names = excluded_names(text.split(","), "excluded")
    except InvalidRequest as error:
        return error.problem[:30]
    try:
        glob.matcher(patterns, hidden=glob.names_hidden(patterns))
        glob.names_matcher(names)
    except Refused as refused:
        return refused.failed.failure
    return len(patterns)


PATTERNS = Target(
    name="patterns",
    open=stateless(compile_pattern),
    seeds=[
        *(b"*.py", b"src/**/test_?.[ch]", b"/[!a-z]*/x", b"**", b"[]a]", b"[^]", b"a[b", b".*"),
        *(b"*.{c,h}", b"{a,b{c,d}}/x", b"{1..3}", b"{a,}{b,}", b"a{b", b"{}", b"{a\\,b,[c,d]}"),
    ],
    words=[
        *(b"**/", b"*", b"?", b"[", b"]", b"[!", b"[^", b"-", b"\\", b"{2,3}", b"(?:", b"|", b"&&"),
        *(b"{", b"}", b",", b"{a,b}", b"{,}", b"..", b"/", b"./"),
    ],
    max_bytes=4 * MAX_PATTERN,
)
