"""Types of project files, found in their content and compared with their names.

A policy and not a boundary: a file can be of two types at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import filetype

from sandboxd.errors import FileTypeNotAllowed
from sandboxd.projects import names

HEAD_BYTES = 8192
"""Bytes at the beginning of a file that are looked at."""
COMMON, ANY = "common", "any"
"""Words for all types of the tables below, and for no check at all."""
NO_EXTENSION = "none"
"""Word for names without an extension."""
UNKNOWN_TYPE = "application/octet-stream"

_TEXT, _ZIP, _OLE, _DATA, _PROGRAM = "text", "zip", "ole", "data", "program"

_SIGNATURES = (
    (b"PK\x03\x04", _ZIP),
    (b"PK\x05\x06", _ZIP),  # an empty archive
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLE),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"FEA1", "arrow"),
    (b"\x93NUMPY", "npy"),
    (b"SQLite format 3\0", "sqlite"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"\x7fELF", _PROGRAM),
    (b"MZ", _PROGRAM),
    (b"\0asm", _PROGRAM),
    (b"\xca\xfe\xba\xbe", _PROGRAM),
    (b"\xfe\xed\xfa\xce", _PROGRAM),
    (b"\xfe\xed\xfa\xcf", _PROGRAM),
    (b"\xce\xfa\xed\xfe", _PROGRAM),
    (b"\xcf\xfa\xed\xfe", _PROGRAM),
)
"""Of kinds that the library does not know, or that are one kind here. Text was excluded before."""
_PROGRAM_EXTENSIONS = frozenset({"exe", "elf", "swf", "dex", "dey", "deb", "rpm", "crx", "nes"})
"""As the library calls them."""

_TEXT_TYPES = {
    "application/json": "json geojson",
    "application/jsonl": "jsonl ndjson",
    "application/toml": "toml",
    "application/x-ipynb+json": "ipynb",
    "application/xml": "xml xsd xsl gpx kml",
    "application/yaml": "yaml yml",
    "image/svg+xml": "svg",
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html htm",
    "text/javascript": "js mjs cjs",
    "text/markdown": "md markdown",
    "text/plain": (
        f"{NO_EXTENSION} txt text log rst ini cfg conf properties env lock diff patch tex bib sql "
        "graphql proto srt vtt eml bat ps1 r rmd jl m go rs rb php pl lua swift kt scala cs vue jsx"
    ),
    "text/tab-separated-values": "tsv",
    "text/x-c": "c h cc cpp hpp",
    "text/x-java": "java",
    "text/x-python": "py pyi",
    "text/x-shellscript": "sh bash",
    "text/x-typescript": "ts tsx",
}
_OTHER_TYPES = {
    # extension: what is reported, and the kinds of content that it may have
    "pdf": ("application/pdf", "pdf"),
    "rtf": ("application/rtf", "rtf text"),
    "docx": ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", _ZIP),
    "xlsx": ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", _ZIP),
    "pptx": ("application/vnd.openxmlformats-officedocument.presentationml.presentation", _ZIP),
    "odt": ("application/vnd.oasis.opendocument.text", _ZIP),
    "ods": ("application/vnd.oasis.opendocument.spreadsheet", _ZIP),
    "odp": ("application/vnd.oasis.opendocument.presentation", _ZIP),
    "epub": ("application/epub+zip", _ZIP),
    "doc": ("application/msword", _OLE),
    "xls": ("application/vnd.ms-excel", _OLE),
    "ppt": ("application/vnd.ms-powerpoint", _OLE),
    "png": ("image/png", "png apng"),
    "jpg": ("image/jpeg", "jpg"),
    "jpeg": ("image/jpeg", "jpg"),
    "gif": ("image/gif", "gif"),
    "webp": ("image/webp", "webp"),
    "bmp": ("image/bmp", "bmp"),
    "tif": ("image/tiff", "tif"),
    "tiff": ("image/tiff", "tif"),
    "ico": ("image/vnd.microsoft.icon", "ico"),
    "heic": ("image/heic", "heic"),
    "avif": ("image/avif", "avif"),
    "mp3": ("audio/mpeg", "mp3"),
    "wav": ("audio/wav", "wav"),
    "ogg": ("audio/ogg", "ogg"),
    "flac": ("audio/flac", "flac"),
    "m4a": ("audio/mp4", "m4a mp4"),
    "mp4": ("video/mp4", "mp4 m4v mov"),
    "mov": ("video/quicktime", "mov mp4"),
    "webm": ("video/webm", "webm mkv"),
    "mkv": ("video/x-matroska", "mkv webm"),
    "avi": ("video/x-msvideo", "avi"),
    "mpg": ("video/mpeg", "mpg"),
    "zip": ("application/zip", _ZIP),
    "npz": ("application/zip", _ZIP),
    "tar": ("application/x-tar", "tar"),
    "gz": ("application/gzip", "gz"),
    "tgz": ("application/gzip", "gz"),
    "bz2": ("application/x-bzip2", "bz2"),
    "xz": ("application/x-xz", "xz"),
    "zst": ("application/zstd", "zst"),
    "7z": ("application/x-7z-compressed", "7z"),
    "parquet": ("application/vnd.apache.parquet", "parquet"),
    "arrow": ("application/vnd.apache.arrow.file", "arrow"),
    "feather": ("application/vnd.apache.arrow.file", "arrow"),
    "npy": ("application/x-npy", "npy"),
    "sqlite": ("application/vnd.sqlite3", "sqlite"),
    "sqlite3": ("application/vnd.sqlite3", "sqlite"),
    "db": ("application/vnd.sqlite3", "sqlite"),
    "h5": ("application/x-hdf5", "hdf5"),
    "hdf5": ("application/x-hdf5", "hdf5"),
    "ttf": ("font/ttf", "ttf"),
    "otf": ("font/otf", "otf"),
    "woff": ("font/woff", "woff"),
    "woff2": ("font/woff2", "woff2"),
}


_OF_ANY_CONTENT = frozenset({"bin", "dat", "pkl", "pickle"})
"""Extensions that say nothing about the content; it may be anything but a program."""


class _Expected(NamedTuple):
    """What an extension stands for."""

    mime_type: str
    kinds: frozenset[str]


_EXPECTED = {
    **{
        extension: _Expected(mime_type, frozenset({_TEXT}))
        for mime_type, extensions in _TEXT_TYPES.items()
        for extension in extensions.split()
    },
    **{
        extension: _Expected(mime_type, frozenset(kinds.split()))
        for extension, (mime_type, kinds) in _OTHER_TYPES.items()
    },
}

_TEXT_CONTROLS = b"\t\n\r\f\b\x1b"
_CONTROLS = re.compile(b"[%s]" % re.escape(bytes(set(range(32)) - set(_TEXT_CONTROLS)) + b"\x7f"))
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class ContentTypes:
    """Which types of files projects may have."""

    def __init__(self, allowed: Collection[str] = (COMMON,)) -> None:
        """With extensions, `none`, `common` or `any`. An extension that is in no table stands for
        any content but a program."""
        self._allows_all = ANY in allowed
        common = _EXPECTED.keys() | _OF_ANY_CONTENT if COMMON in allowed else frozenset()
        self._allowed = frozenset(allowed) | common

    def check(self, name: str, head: bytes) -> str:
        """The MIME type of a file with this name and this beginning; FileTypeNotAllowed if it may
        not be stored."""
        self.check_name(name)
        if not self._allows_all:
            self._check_content(name, head)
        return mime_type_of(name, head)

    def check_name(self, name: str) -> None:
        """FileTypeNotAllowed if no file with this name may be stored."""
        extension = extension_of(name)
        if not self._allows_all and extension not in self._allowed:
            kind = "without an extension" if extension == NO_EXTENSION else f"*.{extension}"
            raise FileTypeNotAllowed(name, f"files {kind} are not allowed here")

    def _check_content(self, name: str, head: bytes) -> None:
        kind, expected = _kind(head), _EXPECTED.get(extension_of(name))
        if expected is None and kind == _PROGRAM:
            raise FileTypeNotAllowed(name, "its content is a program")
        if expected is not None and head and kind not in expected.kinds:
            raise FileTypeNotAllowed(
                name, f"its content is {_called(kind)}, which is not what the name says"
            )


def mime_type_of(name: str, head: bytes) -> str:
    """The MIME type that a name says, if the content is like that; else that of the content."""
    kind, expected = _kind(head), _EXPECTED.get(extension_of(name))
    if expected is not None and (not head or kind in expected.kinds):
        return expected.mime_type
    if kind == _TEXT:
        return "text/plain"
    found = filetype.guess(head)
    return str(found.mime) if found is not None else UNKNOWN_TYPE


def extension_of(name: str) -> str:
    """The last extension in small letters; `none` if there is none."""
    _, extension = names.split(name)
    return extension.rpartition(".")[2].lower() or NO_EXTENSION


def _kind(head: bytes) -> str:
    if _is_text(head):
        return _TEXT
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    found = filetype.guess(head)
    if found is None:
        return _DATA
    return _PROGRAM if found.extension in _PROGRAM_EXTENSIONS else str(found.extension)


def _is_text(head: bytes) -> bool:
    """Whether it has no control characters, in UTF-8, UTF-16 with its mark or a code page.

    First of all checks: a binary format has a NUL soon, and some have marks that are words.
    """
    if head.startswith(_UTF_16_MARKS):
        text = head[: len(head) // 2 * 2].decode("utf-16", errors="ignore")
        return text.isprintable() or not _CONTROLS.search(text.encode(errors="ignore"))
    return _CONTROLS.search(head) is None


def _called(kind: str) -> str:
    """The kind in words."""
    words = {_TEXT: "text", _ZIP: "a zip archive", _OLE: "an old office document"}
    words |= {_DATA: "of no type that is known", _PROGRAM: "a program"}
    return words.get(kind, kind)
