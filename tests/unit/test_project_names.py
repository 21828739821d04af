"""Names of project files."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.projects import names


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("report.pdf", "report.pdf"),
        ("Report (final) 100%.pdf", "Report (final) 100%.pdf"),
        ("C:\\fakepath\\report.pdf", "report.pdf"),
        ("dir/sub/report.pdf", "report.pdf"),
        ("/etc/passwd", "passwd"),
        (".env", "env"),
        ("--help.txt", "help.txt"),
        ("  a \t b \n c.txt  ", "a b c.txt"),
        ("name.", "name"),
        ("...hidden...", "hidden"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("a\u200bb\ufeff.txt", "ab.txt"),
        ("bell\x07.txt", "bell.txt"),
        ("Cafe\u0301.txt", "Caf\u00e9.txt"),
        ("\u65e5\u672c\u8a9e.csv", "\u65e5\u672c\u8a9e.csv"),
        ("$(rm -rf ~).sh", "$(rm -rf ~).sh"),
        ("a\u2028b.txt", "a b.txt"),
    ],
)
def test_names_become_safe(sent: str, stored: str) -> None:
    """Directories go, and so does what hides, turns or ends a name; the rest stays as it was."""
    assert names.clean(sent) == stored


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ("", "required"),
        ("x" * 1025, "at most 1024"),
        ("a\0.txt", "NUL"),
        ("..", "not allowed"),
        ("../../etc/passwd", "not allowed"),
        ("..\\..\\boot.ini", "not allowed"),
        ("a/../b.txt", "not allowed"),
        ("dir/", "no character"),
        (".", "no character"),
        ("....", "no character"),
        (" - ", "no character"),
        ("\u202e\u200b", "no character"),
    ],
)
def test_names_that_nobody_means_are_refused(sent: str, problem: str) -> None:
    """The refusal says what is wrong with the field."""
    with pytest.raises(InvalidRequest, match=problem) as caught:
        names.clean(sent)
    assert caught.value.field == "name"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("report.pdf", "report (7).pdf"),
        ("data.tar.gz", "data (7).tar.gz"),
        ("README", "README (7)"),
        ("report (1).pdf", "report (1) (7).pdf"),
        ("v1.2 of the plan", "v1 (7).2 of the plan"),
    ],
)
def test_a_number_stands_before_the_extension(name: str, expected: str) -> None:
    """As file managers do it."""
    assert names.numbered(name, 7) == expected


def test_long_names_keep_their_extension() -> None:
    """They are cut between characters, and room is left for a number."""
    name = names.clean("\u00e9" * 500 + ".tar.gz")

    assert name.endswith("\u00e9.tar.gz")
    assert len(name.encode()) <= names.MAX_BYTES
    numbered = names.numbered(name, 4999)
    assert numbered.endswith("\u00e9 (4999).tar.gz")
    assert len(numbered.encode()) <= names.MAX_BYTES


def test_names_that_differ_in_case_are_one() -> None:
    """Also where a small letter becomes two."""
    assert names.key("REPORT.PDF") == names.key("report.pdf")
    assert names.key("stra\u00dfe.txt") == names.key("STRASSE.TXT")
    assert names.key("a.txt") != names.key("b.txt")


@given(st.text(max_size=300))
def test_whatever_is_sent_a_name_is_safe_or_refused(sent: str) -> None:
    """No stored name has a separator, a control, a direction mark or a dot at its ends, and it is
    what a second look at it gives."""
    try:
        name = names.clean(sent)
    except InvalidRequest:
        return
    assert 0 < len(name.encode()) <= names.MAX_BYTES
    assert not set(name) & set("/\\\0\n")
    assert name[0] not in " .-"
    assert name[-1] not in " ."
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in name)
    assert names.clean(name) == name
