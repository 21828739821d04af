"""Types of project files, by content and by name."""

from __future__ import annotations

import gzip
import io
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandboxd.errors import FileTypeNotAllowed
from sandboxd.projects.content_types import HEAD_BYTES, ContentTypes


def png() -> bytes:
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    crc = struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(header)) + chunk + crc


def zipped() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("a", "b")
    return made.getvalue()


def tarred() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
    return made.getvalue()


def shown(value: str | bytes) -> str:
    """The same in every process, which an archive is not."""
    return value if isinstance(value, str) else "content"


ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\0\x3e\0" + bytes(44)
EXE = b"MZ\x90\0\x03\0\0\0\x04\0"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n\0"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01"
GIF = b"GIF89a\x01\0\x01\0\0\0\0"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
TYPES = ContentTypes()


@pytest.mark.parametrize(
    ("name", "content", "mime_type"),
    [
        ("a.txt", b"hello\n", "text/plain"),
        ("a.TXT", b"hello\n", "text/plain"),
        ("README", b"read me", "text/plain"),
        ("a.csv", b"a,b\n1,2\n", "text/csv"),
        ("latin.csv", "Stra\u00dfe;K\u00f6ln\n".encode("latin-1"), "text/csv"),
        ("utf16.csv", "a,b\u00e9\n".encode("utf-16"), "text/csv"),
        ("BMW.txt", b"BMW and MZ are words", "text/plain"),
        ("a.py", b"#!/usr/bin/python3\nprint(1)\n", "text/x-python"),
        ("a.json", b"{}", "application/json"),
        ("a.html", b"<script>1</script>", "text/html"),
        ("a.ipynb", b"{}", "application/x-ipynb+json"),
        ("a.pdf", PDF, "application/pdf"),
        ("a.png", png(), "image/png"),
        ("a.jpeg", JPEG, "image/jpeg"),
        ("a.gif", GIF, "image/gif"),
        ("a.zip", zipped(), "application/zip"),
        (
            "a.xlsx",
            zipped(),
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        ),
        ("a.xls", OLE, "application/vnd.ms-excel"),
        ("a.tar", tarred(), "application/x-tar"),
        ("a.tar.gz", gzip.compress(tarred()), "application/gzip"),
        ("a.parquet", b"PAR1\x15\x04", "application/vnd.apache.parquet"),
        ("a.npy", b"\x93NUMPY\x01\0v\0", "application/x-npy"),
        ("a.arrow", b"ARROW1\0\0", "application/vnd.apache.arrow.file"),
        ("a.h5", b"\x89HDF\r\n\x1a\n\0", "application/x-hdf5"),
        ("a.pkl", b"\x80\x04\x95\0\0", "application/octet-stream"),
        ("a.pkl", b"(dp0\nS'a'\n.", "text/plain"),
        ("a.bin", b"text", "text/plain"),
        ("a.dat", b"BM\0\0 bytes that begin as an image", "image/bmp"),
        ("empty.pdf", b"", "application/pdf"),
        ("empty.txt", b"", "text/plain"),
    ],
    ids=shown,
)
def test_a_file_is_what_its_name_says(name: str, content: bytes, mime_type: str) -> None:
    """The usual types of an agent's users are known, and text in any code page is text."""
    assert TYPES.check(name, content[:HEAD_BYTES]) == mime_type


def test_a_real_database_is_one(tmp_path: Path) -> None:
    """As SQLite writes it."""
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()

    head = (tmp_path / "x.db").read_bytes()[:HEAD_BYTES]
    assert TYPES.check("x.db", head) == "application/vnd.sqlite3"


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("setup.exe", EXE, r"\*\.exe are not allowed"),
        ("lib.so", ELF, r"\*\.so are not allowed"),
        ("report.pdf", ELF, "a program"),
        ("data.csv", EXE, "a program"),
        ("image.png", zipped(), "a zip archive"),
        ("image.png", b"<svg onload=alert(1)>", "text"),
        ("notes.txt", PDF, "pdf"),
        ("notes.txt", bytes(range(256)), "no type that is known"),
        ("book.xlsx", b"just text", "text"),
        ("book.xlsx", OLE, "an old office document"),
        ("archive.zip", png(), "png"),
        ("model.pkl", ELF, "a program"),
        ("data.bin", b"\0asm\x01\0\0\0", "a program"),
        ("x.weird", b"text", r"\*\.weird are not allowed"),
        ("report.pdf.exe", PDF, r"\*\.exe are not allowed"),
    ],
    ids=shown,
)
def test_other_files_are_refused(name: str, content: bytes, problem: str) -> None:
    """By the name, or because the content is something else; the message says which."""
    with pytest.raises(FileTypeNotAllowed, match=problem):
        TYPES.check(name, content[:HEAD_BYTES])


def test_the_operator_can_allow_less() -> None:
    """Then nothing else is stored, and names without an extension have a word of their own."""
    types = ContentTypes(["csv", "none"])

    assert types.check("a.csv", b"1") == "text/csv"
    assert types.check("README", b"1") == "text/plain"
    for name in ("a.txt", "a.pdf"):
        with pytest.raises(FileTypeNotAllowed):
            types.check_name(name)
    with pytest.raises(FileTypeNotAllowed, match="without an extension"):
        ContentTypes(["csv"]).check_name("README")


def test_the_operator_can_allow_more() -> None:
    """An extension of theirs may have any content but a program."""
    types = ContentTypes(["common", "weird"])

    assert types.check("a.weird", bytes(8)) == "application/octet-stream"
    assert types.check("a.weird", b"text") == "text/plain"
    assert types.check("a.weird", png()) == "image/png"
    assert types.check("a.txt", b"1") == "text/plain"
    with pytest.raises(FileTypeNotAllowed, match="a program"):
        types.check("a.weird", ELF)


def test_the_operator_can_allow_everything() -> None:
    """The type is still found, and what lies about itself is not called what it is not."""
    types = ContentTypes(["any"])

    assert types.check("a.pdf", PDF) == "application/pdf"
    assert types.check("a.pdf", png()) == "image/png"
    assert types.check("program", ELF) == "application/x-executable"
    assert types.check("a.unknown", bytes(9)) == "application/octet-stream"


@given(st.binary(max_size=600), st.sampled_from(["a.png", "a.mp4", "a.txt", "a.zip", "a.heic"]))
@example(b"\xff\xff\xff\xffftypheic" + bytes(40), "a.heic")
@example(b"\0\0\0\x20ftyp", "a.mp4")
def test_no_content_breaks_the_check(content: bytes, name: str) -> None:
    """Whatever the bytes are, there is a type or a refusal."""
    try:
        assert TYPES.check(name, content)
    except FileTypeNotAllowed:
        pass
