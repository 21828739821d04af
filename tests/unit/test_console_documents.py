"""What the console makes of HTML before a browser sees it; test_attacks.py shows it to one."""

from __future__ import annotations

import pytest

from sandboxd.console.bodies import without_connections

CONNECTING = b"<link rel=preconnect href=http://evil.test>"


@pytest.mark.parametrize(
    "html",
    [
        CONNECTING,
        CONNECTING.upper(),
        b"<p>" + CONNECTING.replace(b" ", b"\n", 1),
        b"<LiNk/rel=preconnect href=http://evil.test>",
        b"<noscript><p title='</noscript>" + CONNECTING,
        b"\xef\xbb\xbf\xef\xbb\xbf" + CONNECTING,
        b"\xef\xbb\xbf" + CONNECTING.decode().encode("utf-16"),
        CONNECTING.decode().encode("utf-16"),
        CONNECTING.decode().encode("utf-16-be"),
        b"\x2b\x2f\x76\x38-" + CONNECTING,
        b"<iframe srcdoc='&lt;link rel=preconnect href=http://evil.test>'>",
        b"<frameset><frame src=http://evil.test>",
        b"<object data=http://evil.test>",
    ],
)
def test_no_element_is_left_that_connects(html: bytes) -> None:
    """However it is written: the browser reads the text that was looked at, which is UTF-8."""
    made = without_connections(html)
    assert not made.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"))
    text = made.decode().lower()
    for name in ("link", "iframe", "frame", "object"):
        assert f"<{name}" not in text


def test_all_else_stays_as_it_is() -> None:
    html = '<!doctype html><p class="blink">a < b; größer 😀</p><style>p{}</style>'
    assert without_connections(html.encode()).decode() == html
    assert without_connections(b"<iframe src=a>b</iframe>") == b"<x-iframe src=a>b</x-iframe>"
