"""Tables between two marks of a page that is otherwise written by hand."""

from __future__ import annotations


def between(page: str, begin: str, end: str, tables: str) -> str:
    """The page with these tables between its marks. ValueError if it has no marks."""
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs one line {begin!r} and after it one line {end!r}")
    before, after = page.split(begin)[0], page.split(end)[1]
    return f"{before}{begin}\n{tables}\n{end}{after}"
