"""Archives of npm packages made by hand, good ones and hostile ones."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Member(NamedTuple):
    """A member of an archive; with a target it is a link."""

    name: str
    data: bytes = b""
    mode: int = 0o644
    type: bytes = tarfile.REGTYPE
    target: str = ""


class NpmArchive(NamedTuple):
    """A version of a package, as a registry offers it."""

    name: str
    version: str
    manifest: Mapping[str, Any]
    data: bytes
    integrity: str
    tarball: str = ""
    """Where the registry says that it is; empty for where it is."""

    @property
    def file_name(self) -> str:
        return f"{self.name.rpartition('/')[2]}-{self.version}.tgz"


def a_package(
    name: str,
    version: str = "1.0.0",
    *,
    members: Iterable[Member] = (),
    **manifest: Any,
) -> NpmArchive:
    """A package with a module that knows its version; what is left of the arguments is part of its
    manifest."""
    written = {"name": name, "version": version, "main": "index.js", **manifest}
    files = [
        Member("package/package.json", json.dumps(written).encode()),
        Member("package/index.js", f"exports.version = {version!r};\n".encode()),
        *members,
    ]
    return of_archive(name, version, packed(files), **manifest)


def of_archive(name: str, version: str, data: bytes, **manifest: Any) -> NpmArchive:
    manifest = {"name": name, "version": version, **manifest}
    return NpmArchive(name, version, manifest, data, integrity_of(data))


def packed(members: Iterable[Member]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member in members:
            described = tarfile.TarInfo(member.name)
            described.size, described.mode = len(member.data), member.mode
            described.type, described.linkname = member.type, member.target
            archive.addfile(described, io.BytesIO(member.data))
    return buffer.getvalue()


def integrity_of(data: bytes) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(data).digest()).decode()}"
