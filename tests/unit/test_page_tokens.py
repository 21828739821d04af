"""Page tokens: they come back as they were, and nothing else is taken for one."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.service import page_tokens
from sandboxd.service.page_tokens import EXECS, EXECUTIONS, FILES, MAX_TOKEN, SESSIONS, PageTokens

MAX_PATH = 4095
moments = st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=64))
places: dict[str, tuple[PageTokens[Any], st.SearchStrategy[Any]]] = {
    "sessions": (SESSIONS, moments),
    "execs": (EXECS, moments),
    "executions": (EXECUTIONS, st.integers(-(1 << 63), (1 << 63) - 1)),
    "files": (FILES, st.binary(min_size=1, max_size=MAX_PATH)),
}


def packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()


@pytest.mark.parametrize("listing", places)
@given(data=st.data())
def test_token_leads_back_to_its_place(listing: str, data: st.DataObject) -> None:
    """Any place comes back exactly, in a token that fits the limit."""
    tokens, strategy = places[listing]
    place = data.draw(strategy)
    token = tokens.encode(place)

    assert len(token) <= MAX_TOKEN
    assert tokens.decode(token) == place


@pytest.mark.parametrize("listing", places)
def test_no_place_and_no_token_belong_together(listing: str) -> None:
    """The last page has no token, and no token means the first page."""
    tokens, _ = places[listing]

    assert (tokens.encode(None), tokens.decode("")) == ("", None)


@pytest.mark.parametrize("issuer", places)
@pytest.mark.parametrize("listing", places)
def test_token_of_another_listing_is_refused(listing: str, issuer: str) -> None:
    """A token says which listing it belongs to, so that none is read as something else."""
    examples: dict[str, Any] = {"executions": 7, "files": b"a/b"}
    token = places[issuer][0].encode(examples.get(issuer, (1.5, "x")))
    if listing == issuer:
        assert places[listing][0].decode(token) is not None
    else:
        with pytest.raises(InvalidRequest, match="page_token"):
            places[listing][0].decode(token)


@pytest.mark.parametrize("listing", places)
@pytest.mark.parametrize(
    "token",
    [
        *("x", "é", "AAAA", "bm90IGEgdG9rZW4=", "=", " " * 1000, "-1", "1.5", "\u0663", "12345"),
        *("1700000000.25_e1", "\ud800", "x" * MAX_TOKEN),
    ],
)
def test_made_up_token_is_refused(token: str, listing: str) -> None:
    """Only our own tokens are taken, and the answer says what to send."""
    with pytest.raises(InvalidRequest, match="next_page_token") as caught:
        places[listing][0].decode(token)

    assert caught.value.field == "page_token"


@pytest.mark.parametrize(
    ("tokens", "data"),
    [
        pytest.param(SESSIONS, b"s2:" + struct.pack(">d", 1.0), id="another version"),
        pytest.param(SESSIONS, b"s1:short", id="too short for a time"),
        pytest.param(EXECS, b"e1:" + struct.pack(">d", float("nan")) + b"e", id="not a number"),
        pytest.param(EXECS, b"e1:" + struct.pack(">d", float("inf")) + b"e", id="not finite"),
        pytest.param(EXECS, b"e1:" + struct.pack(">d", 1.0) + b"\xff", id="not UTF-8"),
        pytest.param(EXECUTIONS, b"h1:123456789", id="too long for a number"),
    ],
)
def test_place_that_cannot_be_is_refused(tokens: PageTokens[Any], data: bytes) -> None:
    """What has the right kind but no place in it is no token either."""
    with pytest.raises(InvalidRequest):
        tokens.decode(packed(data))


def test_changed_token_is_refused_although_base64_reads_it() -> None:
    """Bits that base64 ignores count as well."""
    token = FILES.encode(b"a")
    changed = token.replace("Q==", "R==")
    assert changed != token
    assert base64.urlsafe_b64decode(changed) == base64.urlsafe_b64decode(token)

    with pytest.raises(InvalidRequest):
        FILES.decode(changed)


@pytest.mark.parametrize("size", [MAX_TOKEN + 1, 90_000])
def test_long_token_is_refused_before_it_is_decoded(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is, refusing it costs nothing."""

    def decode(*_: object, **__: object) -> bytes:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(page_tokens, "b64decode", decode)
    with pytest.raises(InvalidRequest, match="page_token"):
        FILES.decode("A" * size)
