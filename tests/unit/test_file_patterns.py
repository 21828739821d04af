"""Patterns of file names: which are valid, and what their braces stand for."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.files.patterns import (
    MAX_ALTERNATIVES,
    MAX_EXPANDED,
    excluded_names,
    expanded,
)
from sandboxd.guest.files import glob
from sandboxd.guest.files.daemon_connection import Refused


@pytest.mark.parametrize(
    ("pattern", "alternatives"),
    [
        ("*.py", "*.py"),
        ("*.{py,md}", "*.py *.md"),
        ("{a,b}{c,d}", "ac ad bc bd"),
        ("{a,{b,c}d}e", "ae bde cde"),
        ("x{,.bak}", "x x.bak"),
        ("{src,tests}/**/*.{ts,tsx}", "src/**/*.ts src/**/*.tsx tests/**/*.ts tests/**/*.tsx"),
        ("{a/b,c}/d", "a/b/d c/d"),
        ("{a}", "{a}"),
        ("{}", "{}"),
        ("{a{b,c}}", "{ab} {ac}"),
        ("{a,b", "{a,b"),
        ("a,b}", "a,b}"),
        ("}{a,b}{", "}a{ }b{"),
        ("{a,b{c,d}", "{a,bc {a,bd"),
        ("[{,}]", "[{,}]"),
        ("[{,]{a,b}", "[{,]a [{,]b"),
        ("[a/{b,c]}", "[a/b [a/c]"),
        ("[]{a,b}", "[]a []b"),
        ("[]{a,b}]", "[]{a,b}]"),
    ],
)
def test_what_braces_stand_for(pattern: str, alternatives: str) -> None:
    """Every combination, as in a shell; what is no group of alternatives stands for itself."""
    assert list(expanded(pattern, "glob")) == alternatives.split(" ")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("../*.py", "`..`"),
        ("a/../b", "`..`"),
        ("a/{b,..}/c", "`..`"),
        ("{.,}./x", "`..`"),
        ("/", "name something"),
        ("./.", "name something"),
        ("{1..3}.txt", "range"),
        ("{a..z..2}", "range"),
        ("{a,b}" * 9, "combinations"),
        ("{" + "a," * 300 + "}", "combinations"),
        ("{a,b}" * 4 + "x" * 900, "characters in all"),
        ("{a," * 40 + "b" + "}" * 40, "nested"),
        ("x" * 1001, "at most 1000"),
    ],
)
def test_what_is_not_a_pattern(pattern: str, problem: str) -> None:
    """It is refused, with the field that it came from, and not answered with nothing."""
    with pytest.raises(InvalidRequest, match=re.escape(problem)) as caught:
        expanded(pattern, "glob")

    assert caught.value.field == "glob"


words = st.text("ab*?.", min_size=1, max_size=4).filter(lambda word: word.strip("."))
"""Words without braces that are no `..`."""


def groups(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(st.lists(inner, min_size=1, max_size=2), min_size=2, max_size=3)


trees = st.lists(st.recursive(words, groups, max_leaves=4), min_size=1, max_size=2)
"""Sequences of words and of groups, each of which is a list of sequences."""


def written(sequence: list[object]) -> str:
    return "".join(
        part if isinstance(part, str) else "{" + ",".join(map(written, part)) + "}"  # type: ignore[arg-type]
        for part in sequence
    )


def meant(sequence: list[object]) -> list[str]:
    choices = [
        [part] if isinstance(part, str) else [one for inner in part for one in meant(inner)]  # type: ignore[attr-defined]
        for part in sequence
    ]
    return ["".join(choice) for choice in product(*choices)]


@given(trees)
def test_any_nesting_of_groups(tree: list[object]) -> None:
    """The combinations are those of the groups, in their order; or they are too many."""
    expected = meant(tree)
    try:
        found = list(expanded(written(tree), "glob"))
    except InvalidRequest:
        is_dots = any(one.strip("/") in (".", "..") for one in expected)
        assert is_dots or len(expected) > 100 or "{{{{" in written(tree)
        return
    assert found == expected


@given(st.text("{},[]/.*!^-ab\\|()?+\n\u20ac", max_size=60))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    """Nothing else is raised, the alternatives are bounded, and the guest can compile them."""
    try:
        patterns = expanded(text, "glob")
    except InvalidRequest:
        return
    assert 1 <= len(patterns) <= MAX_ALTERNATIVES
    assert sum(map(len, patterns)) <= MAX_EXPANDED
    assert not any(".." in one.split("/") for one in patterns)
    try:
        matches = glob.matcher(patterns)
    except Refused:
        return  # a class such as [b-a]
    matches(b"a/b")


def test_as_many_alternatives_as_can_be() -> None:
    """Each is compiled, however many alternatives it has."""
    patterns = expanded("*" + "{a,b}" * 8 + "*", "glob")
    matches = glob.matcher(patterns)

    assert len(patterns) == MAX_ALTERNATIVES
    assert matches(b"d/xabababbb.txt")
    assert not matches(b"d/xabababb.txt")


@pytest.mark.parametrize("names", [[""], ["a/b"], ["x" * 256], ["a"] * 33])
def test_names_that_cannot_be_excluded(names: list[str]) -> None:
    """Names are not paths, and there are not many of them."""
    with pytest.raises(InvalidRequest) as caught:
        excluded_names(names, "exclude_dirs")

    assert caught.value.field == "exclude_dirs"
    assert excluded_names([".git", "*.egg-info"], "exclude_dirs") == [".git", "*.egg-info"]
