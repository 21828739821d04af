"""Secrets in what a server answers, replaced with stars."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from urllib.parse import quote, quote_plus


class Scrubber:
    """Replaces secrets with stars, for servers that repeat what they are sent: as it was sent, or
    as it stands in a URL, in JSON, in HTML, in base64 or in hexadecimal digits, there also within a
    longer text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """The longest form first, since one may contain another."""
        forms = {form.encode() for secret in secrets for form in _forms(secret)}
        self._secrets = sorted(forms, key=len, reverse=True)
        self._kept = max(map(len, self._secrets)) - 1

    def scrub(self, data: bytes) -> bytes:
        """The same number of bytes."""
        for secret in self._secrets:
            data = data.replace(secret, b"*" * len(secret))
        return data

    def text(self, text: str) -> str:
        """A part of a head, in which a character stands for a byte."""
        return self.scrub(text.encode("latin-1")).decode("latin-1")

    async def stream(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same bytes without secrets, also those that two parts share."""
        held = b""
        async for part in parts:
            data = self.scrub(held + part)
            cut = max(0, len(data) - self._kept)
            held = data[cut:]
            if cut:
                yield data[:cut]
        if held:
            yield held


def _forms(secret: str) -> Iterator[str]:
    yield secret
    for encoded in (quote(secret, safe=""), quote_plus(secret)):
        yield encoded
        yield _lower_escapes(encoded)
    for ascii_only in (True, False):
        yield json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
    yield html.escape(secret)
    yield from (secret.encode().hex(), secret.encode().hex().upper())
    yield base64.b64encode(secret.encode()).decode().rstrip("=")
    for inner in _within_base64(secret.encode()):
        yield inner
        yield quote(inner, safe="")
        yield _lower_escapes(quote(inner, safe=""))
        yield inner.replace("+", "-").replace("/", "_")


def _within_base64(secret: bytes) -> Iterator[str]:
    """The characters that stand for nothing but the secret, wherever it begins in what is encoded:
    at a multiple of three bytes, one later, or two later."""
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        inner = base64.b64encode(bytes(before) + secret + bytes(2)).decode()[first:end]
        if len(inner) >= len(secret):  # a shorter one would stand everywhere by chance
            yield inner


def _lower_escapes(text: str) -> str:
    """`%2F` as `%2f`: both are in use."""
    first, *parts = text.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in parts)])
