"""Wheels made by hand, good ones and hostile ones."""

from __future__ import annotations

import base64
import hashlib
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import NamedTuple

FILE = stat.S_IFREG | 0o644


class Entry(NamedTuple):
    """A file of a wheel."""

    name: str
    data: bytes = b""
    mode: int = FILE


class WheelFile(NamedTuple):
    """A wheel or a source archive, as an index offers it."""

    file_name: str
    data: bytes
    metadata: bytes = b""
    """What an index says of it apart from the file; nothing of a source archive."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def a_wheel(
    name: str,
    version: str = "1.0",
    *,
    entries: Iterable[Entry] = (),
    requires: Sequence[str] = (),
    compression: int = zipfile.ZIP_DEFLATED,
) -> WheelFile:
    """A wheel for any platform with a module of its name, which knows its version."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    wheel = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = [
        Entry(f"{name}/__init__.py", f"VERSION = {version!r}\n".encode()),
        Entry(f"{info}/METADATA", metadata.encode()),
        Entry(f"{info}/WHEEL", wheel.encode()),
        *entries,
    ]
    record = "".join(f"{entry.name},{_hash(entry.data)},{len(entry.data)}\n" for entry in files)
    files.append(Entry(f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    data = zipped(files, compression)
    return WheelFile(f"{name}-{version}-py3-none-any.whl", data, metadata.encode())


def zipped(entries: Iterable[Entry], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for entry in entries:
            described = zipfile.ZipInfo(entry.name)
            described.create_system = 3  # Unix: the mode counts
            described.external_attr = entry.mode << 16
            described.compress_type = compression
            archive.writestr(described, entry.data)
    return buffer.getvalue()


def a_source_archive(name: str, *, proof: str, version: str = "1.0") -> WheelFile:
    """A package without a wheel, whose build would create the file `proof`."""
    setup = f"open({proof!r}, 'w').close()\n"
    build = '[build-system]\nrequires = []\nbuild-backend = "setup"\nbackend-path = ["."]\n'
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "setup.py": setup,
        "pyproject.toml": build,
    }
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file_name, text in files.items():
            described = tarfile.TarInfo(f"{name}-{version}/{file_name}")
            described.size = len(text)
            archive.addfile(described, BytesIO(text.encode()))
    return WheelFile(f"{name}-{version}.tar.gz", buffer.getvalue())


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
