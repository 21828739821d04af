"""Paths in a sandbox: bytes that are checked once, and shown as text."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.errors import InvalidRequest

ROOT = b"/"
MAX_PATH = 4095
MAX_NAME = 255
"""Limits of the kernel, in bytes."""


def text_of(raw: bytes) -> str:
    r"""A name as text; what is not UTF-8 or not printable appears as `\xNN`."""
    text = raw.decode(errors="surrogateescape")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogateescape"))


def exact_of(raw: bytes) -> bytes:
    """The bytes to return beside the text; none where the text is exact."""
    return b"" if text_of(raw).encode() == raw else raw


@dataclass(frozen=True)
class FilePath:
    """A path from the workspace on, without `.`, `..` and empty parts. No parts: the workspace.
    Outside of the workspace, the first part is `/`."""

    parts: tuple[bytes, ...] = ()

    @classmethod
    def parse(
        cls,
        text: str,
        exact: bytes = b"",
        *,
        workspace: str,
        start: bytes = b"",
        field: str = "path",
        may_be_workspace: bool = False,
    ) -> FilePath:
        """Check what a caller sent. `exact` replaces `text`. Relative paths begin at `start` in the
        workspace.

        InvalidRequest for what can never be a path.
        """
        raw = exact or text.encode(errors="surrogateescape")
        _check(raw, field)
        parts = _names(raw)
        if raw.startswith(ROOT):
            above = _names(workspace.encode())
            is_inside = parts[: len(above)] == above
            parts = parts[len(above) :] if is_inside else (ROOT, *parts)
        elif raw:
            parts = (*_names(start), *parts)
        if parts in ((), (ROOT,)) and not may_be_workspace:
            whole = "the workspace" if not parts else "`/`"
            raise InvalidRequest(field, f"name something in {whole}, not {whole} itself")
        return cls(parts)

    @property
    def is_outside(self) -> bool:
        """Whether it is outside of the workspace, as it is written; links are another matter."""
        return self.parts[:1] == (ROOT,)

    @property
    def raw(self) -> bytes:
        return ROOT + b"/".join(self.parts[1:]) if self.is_outside else b"/".join(self.parts)

    @property
    def name(self) -> bytes:
        return self.parts[-1] if self.parts else b""

    def __str__(self) -> str:
        return text_of(self.raw)


def _names(raw: bytes) -> tuple[bytes, ...]:
    return tuple(name for name in raw.split(b"/") if name not in (b"", b"."))


def _check(raw: bytes, field: str) -> None:
    if len(raw) > MAX_PATH:
        raise InvalidRequest(field, f"a path can have at most {MAX_PATH} bytes")
    if b"\0" in raw:
        raise InvalidRequest(field, "a path cannot contain NUL bytes")
    names = raw.split(b"/")
    if b".." in names:
        raise InvalidRequest(field, "`..` is not allowed; give the path from the workspace or / on")
    if max(map(len, names)) > MAX_NAME:
        raise InvalidRequest(field, f"a name can have at most {MAX_NAME} bytes")
