"""Archives of npm packages become files, and their programs become scripts."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import PackageIndexUnreachable, PackagesNotResolved, PackagesTooLarge
from sandboxd.packages import complaints
from sandboxd.packages.archive_check import ArchiveTooLarge, ArchiveUnsafe
from sandboxd.packages.npm_unpack import Limits, Unpacker, make_programs
from tests.fakes.npm_archives import Member, NpmArchive, a_package, of_archive, packed

MIB = 1 << 20


class Unpacking:
    """Unpacks archives as the worker does."""

    def __init__(self, directory: Path, *, unpacked_bytes: int = MIB, files: int = 100) -> None:
        self.target = directory / "unpacked"
        self._archives = directory / "archives"
        for path in (self.target, self._archives):
            path.mkdir()
        limits = Limits(unpacked_bytes, files)
        self._unpacker = Unpacker(self._archives, self.target, limits)

    def unpack(self, archive: NpmArchive, place: str = "") -> None:
        (self._archives / archive.file_name).write_bytes(archive.data)
        place = place or archive.name
        job = {"name": archive.name, "place": place, "file_name": archive.file_name}
        self._unpacker.unpack(job)

    def files(self) -> dict[str, int]:
        return {
            str(path.relative_to(self.target)): path.stat().st_mode & 0o777
            for path in self.target.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def unpacking(tmp_path: Path) -> Unpacking:
    return Unpacking(tmp_path)


def test_archive_is_unpacked_to_its_place(unpacking: Unpacking) -> None:
    """Whatever its topmost directory is called; only the right to run a file is kept."""
    members = [
        Member("repo-1/", mode=0o700, type=tarfile.DIRTYPE),
        Member("repo-1/lib/", type=tarfile.DIRTYPE),
        Member("repo-1/lib/a.js", b"a", mode=0o666),
        Member("repo-1/bin/tool", b"t", mode=0o700),
    ]
    unpacking.unpack(of_archive("outer", "1.0.0", packed(members)))
    unpacking.unpack(a_package("inner"), "outer/node_modules/inner")

    assert unpacking.files() == {
        "outer/lib/a.js": 0o644,
        "outer/bin/tool": 0o755,
        "outer/node_modules/inner/package.json": 0o644,
        "outer/node_modules/inner/index.js": 0o644,
    }


@pytest.mark.parametrize(
    "member",
    [
        Member("package/../../up"),
        Member("../up"),
        Member("/etc/x"),
        Member("package//x"),
        Member("package/./x"),
        Member("package\\..\\x"),
        Member("package/x\n"),
        Member("package/" + "a" * 300),
        Member("package/" + "a/" * 600 + "a"),
        Member("x"),
        Member("package/link", type=tarfile.SYMTYPE, target="index.js"),
        Member("package/link", type=tarfile.LNKTYPE, target="package/index.js"),
        Member("package/x", type=tarfile.CHRTYPE),
        Member("package/x", type=tarfile.FIFOTYPE),
        Member("package/x", type=tarfile.CONTTYPE),
        Member("package/x", mode=0o2755),
        Member("package/dir", mode=0o1777, type=tarfile.DIRTYPE),
        Member("package/index.js"),
        Member("package/index.js/x"),
    ],
)
def test_what_no_package_needs_is_refused(unpacking: Unpacking, member: Member) -> None:
    with pytest.raises(ArchiveUnsafe):
        unpacking.unpack(a_package("hostile", members=[member]))

    outside = [path for path in unpacking.target.parent.rglob("*") if path.name in ("up", "x")]
    assert outside == []


def test_sparse_file_is_refused(unpacking: Unpacking) -> None:
    """It would be larger than what is in the archive."""
    sparse = tarfile.TarInfo("package/sparse")
    sparse.type, sparse.size = tarfile.GNUTYPE_SPARSE, 0

    with pytest.raises(ArchiveUnsafe):
        unpacking.unpack(of_archive("sparse", "1.0.0", gzip.compress(sparse.tobuf() + bytes(1024))))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not gzip",
        gzip.compress(b"not an archive" * 100),
        packed([Member("package/x", b"x" * 5000)])[:-300],
        gzip.compress(b"")[:5],
    ],
    ids=["nothing", "text", "compressed text", "half an archive", "half a header"],
)
def test_what_is_no_archive_is_refused(unpacking: Unpacking, data: bytes) -> None:
    with pytest.raises(ArchiveUnsafe):
        unpacking.unpack(of_archive("noise", "1.0.0", data))


def test_package_does_not_take_the_place_of_another(unpacking: Unpacking) -> None:
    """One that brings files for the place of one that is installed there."""
    files = [Member("package/node_modules/inner/index.js", b"other")]
    unpacking.unpack(a_package("outer", members=files))

    with pytest.raises(ArchiveUnsafe):
        unpacking.unpack(a_package("inner"), "outer/node_modules/inner")


def test_all_archives_together_are_limited(tmp_path: Path) -> None:
    """In bytes and in files, as the archives say and as they are."""
    large = a_package("large", members=[Member("package/x", bytes(600_000))])
    unpacking = Unpacking(tmp_path)
    unpacking.unpack(large)
    with pytest.raises(ArchiveTooLarge):
        unpacking.unpack(large, "again")
    (tmp_path / "files").mkdir()
    few = Unpacking(tmp_path / "files", files=3)
    with pytest.raises(ArchiveTooLarge, match="more than 3 files"):
        few.unpack(a_package("many", members=[Member(f"package/{number}") for number in range(2)]))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_header_that_unpacks_to_too_much_is_refused(unpacking: Unpacking, kind: bytes) -> None:
    """It is not a file, but costs memory all the same."""
    header = tarfile.TarInfo("package/x")
    header.type, header.size = kind, 64 * MIB
    data = gzip.compress(header.tobuf() + bytes(header.size))

    with pytest.raises(ArchiveTooLarge):
        unpacking.unpack(of_archive("bomb", "1.0.0", data))


def test_programs_of_packages_become_scripts(unpacking: Unpacking) -> None:
    """Of those at the top only; the first package by name has a name that two want."""
    program = Member("package/cli.js", b"#!/usr/bin/env node\n")
    for name, place, programs in (
        ("b", "b", {"same": "cli.js", "mine": "cli.js"}),
        ("a", "a", {"same": "cli.js"}),
        ("@scope/c", "@scope/c", "cli.js"),
        ("inner", "a/node_modules/inner", {"inner": "cli.js"}),
    ):
        unpacking.unpack(a_package(name, members=[program], bin=programs), place)

    make_programs(unpacking.target, "/node_modules")

    scripts = {path.name: path.read_text() for path in (unpacking.target / ".bin").iterdir()}
    assert sorted(scripts) == ["c", "mine", "same"]
    assert scripts["same"] == '#!/bin/sh\nexec /node_modules/a/cli.js "$@"\n'
    assert scripts["c"] == '#!/bin/sh\nexec /node_modules/@scope/c/cli.js "$@"\n'


@pytest.mark.parametrize(
    "programs",
    [
        {"x": "../../../etc/passwd"},
        {"x": "/etc/passwd"},
        {"x": "missing.js"},
        {"x": "."},
        {"x": ["index.js"]},
        {"..": "index.js"},
        {"-rf": "index.js"},
        {"a b": "index.js"},
        {"": "index.js"},
        ["index.js"],
        7,
    ],
)
def test_program_that_makes_no_sense_is_left_out(unpacking: Unpacking, programs: object) -> None:
    unpacking.unpack(a_package("odd", bin=programs))

    make_programs(unpacking.target, "/node_modules")

    assert not (unpacking.target / ".bin").exists()


@pytest.mark.parametrize("manifest", [b"", b"[]", b"{", b"[" * 100_000, b"\xff\xfe", b'{"bin"'])
def test_manifest_that_makes_no_sense_has_no_programs(
    unpacking: Unpacking, manifest: bytes
) -> None:
    data = packed([Member("package/package.json", manifest)])
    unpacking.unpack(of_archive("odd", "1.0.0", data))

    make_programs(unpacking.target, "/node_modules")

    assert not (unpacking.target / ".bin").exists()


# --- complaints of npm ---


@pytest.mark.parametrize(
    ("complaint", "kind"),
    [
        (
            "npm error code E404\nnpm error 404 Not Found - GET https://h/x - Not found",
            "unresolved",
        ),
        ("npm error code ETARGET\nnpm error notarget No matching version for x@9.", "unresolved"),
        ("npm error code ERESOLVE\nnpm error ERESOLVE unable to resolve", "unresolved"),
        ("npm error code EALLOWREMOTE\nnpm error fetching https://h/x", "unresolved"),
        ("npm error code ENOTFOUND\nnpm error getaddrinfo ENOTFOUND host.internal", "unreachable"),
        ("npm error code ECONNREFUSED\nnpm error connect 10.1.2.3:443", "unreachable"),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "unreachable"),
        ("npm error code E401\nnpm error Unable to authenticate", "unreachable"),
        ("npm error code E503\nnpm error 503 Service Unavailable", "unreachable"),
        ("npm error code ENOSPC\nnpm error no space left", "large"),
    ],
)
def test_complaints_of_npm_are_understood(complaint: str, kind: str) -> None:
    """And shown without addresses."""
    noise = "npm warn old\nnpm error     at Socket.<anonymous> (/npm/lib/x.js:1:2)\n"
    error = complaints.explain(PackageKind.NPM, f"{noise}{complaint}", max_bytes=MIB)

    expected = {
        "unresolved": PackagesNotResolved,
        "unreachable": PackageIndexUnreachable,
        "large": PackagesTooLarge,
    }
    assert type(error) is expected[kind]
    for secret in ("https://", "host.internal", "10.1.2.3", "npm warn", "/npm/lib"):
        assert secret not in error.message
