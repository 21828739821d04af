"""`:name` parameters, by PostgreSQL's lexical rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.data.worker import grammar
from sandboxd.data.worker.binder import bind

PIECES = [
    *("a", "1", ":p", ":q", "::", ":=", ":", "'", "''", '"', "E'", "e'", "\\", "$$", "$t$", "$1"),
    *("$", "--", "\n", "/*", "*/", " ", "(", ")", ",", "x", "\u00e9", "U&'", "_", "SELECT", "+"),
]


@pytest.mark.parametrize(
    ("sql", "bound", "names"),
    [
        ("SELECT :a, :b, :a", "SELECT $1, $2, $1", ["a", "b"]),
        ("SELECT ':a', :a", "SELECT ':a', $1", ["a"]),
        ("SELECT 'it''s :a' || :a", "SELECT 'it''s :a' || $1", ["a"]),
        (r"SELECT E'\':a', :a", r"SELECT E'\':a', $1", ["a"]),
        (r"SELECT '\', :a, '", r"SELECT '\', $1, '", ["a"]),
        ('SELECT ":a", :a', 'SELECT ":a", $1', ["a"]),
        ("SELECT $$:a$$, $t$:a $$ :a$t$, :a", "SELECT $$:a$$, $t$:a $$ :a$t$, $1", ["a"]),
        ("SELECT 1 -- :a\n, :a", "SELECT 1 -- :a\n, $1", ["a"]),
        ("SELECT /* /* :a */ :a */ :a", "SELECT /* /* :a */ :a */ $1", ["a"]),
        ("SELECT x::int, :a::text", "SELECT x::int, $1::text", ["a"]),
        ("SELECT f(x := :a)", "SELECT f(x := $1)", ["a"]),
        ("SELECT a[1 : 2], '12:30'::time", "SELECT a[1 : 2], '12:30'::time", []),
        ("SELECT :a_1", "SELECT $1", ["a_1"]),
        ("SELECT name$a$ :p", "SELECT name$a$ $1", ["p"]),
    ],
)
def test_what_is_a_parameter(sql: str, bound: str, names: list[str]) -> None:
    """Nothing in a string, a quoted name, a comment or a cast is."""
    found = bind(sql)
    assert (found.sql, list(found.names)) == (bound, names)


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_a_bound_text_has_no_parameter_left_that_postgresql_sees(text: str) -> None:
    """What PostgreSQL's own grammar accepts after binding, it would not have accepted with a colon
    where a parameter was, and a text without parameters is not changed."""
    bound = bind(text)
    if not bound.names:
        assert bound.sql == text
        return
    try:
        grammar.parse(f"SELECT {bound.sql}")
    except (grammar.NotSql, grammar.TooComplex):
        return
    # Each number stands where PostgreSQL reads a parameter: without it the text is no statement.
    with pytest.raises(grammar.NotSql):
        grammar.parse(f"SELECT {text}")
