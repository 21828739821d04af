"""Paths in a workspace: bytes that are checked once, and shown as text."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.errors import InvalidRequest

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
    """A path below the workspace, without `.`, `..` and empty parts. No parts: the workspace."""

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
        """Check what a caller sent. `exact` replaces `text`. Absolute paths have to be below
        `workspace`; relative ones begin at `start` in it.

        InvalidRequest for what can never be a path in the workspace.
        """
        raw = exact or text.encode(errors="surrogateescape")
        _check(raw, field)
        names = raw.split(b"/")
        if raw.startswith(b"/"):
            root = [name for name in workspace.encode().split(b"/") if name]
            names = [name for name in names if name not in (b"", b".")]
            if names[: len(root)] != root:
                raise InvalidRequest(field, f"absolute paths have to be below {workspace}")
            names = names[len(root) :]
        elif raw:
            names = [*start.split(b"/"), *names]
        parts = tuple(name for name in names if name not in (b"", b"."))
        if not parts and not may_be_workspace:
            raise InvalidRequest(field, "name something in the workspace, not the workspace itself")
        return cls(parts)

    @property
    def raw(self) -> bytes:
        return b"/".join(self.parts)

    @property
    def name(self) -> bytes:
        return self.parts[-1] if self.parts else b""

    def __str__(self) -> str:
        return text_of(self.raw)


def _check(raw: bytes, field: str) -> None:
    if len(raw) > MAX_PATH:
        raise InvalidRequest(field, f"a path can have at most {MAX_PATH} bytes")
    if b"\0" in raw:
        raise InvalidRequest(field, "a path cannot contain NUL bytes")
    names = raw.split(b"/")
    if b".." in names:
        raise InvalidRequest(field, "`..` is not allowed; give the path from the workspace on")
    if max(map(len, names)) > MAX_NAME:
        raise InvalidRequest(field, f"a name can have at most {MAX_NAME} bytes")
