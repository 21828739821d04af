"""Builds of sets of npm packages: with npm, a registry on this machine and the real worker."""

from __future__ import annotations

import gzip
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandboxd.environments.environment import PackageKind
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.parts import output_of
from sandboxd.errors import (
    InvalidRequest,
    PackageIndexUnreachable,
    PackagesBuildFailed,
    PackagesNotResolved,
    PackagesTooLarge,
    PackagesUnsafe,
    SandboxdError,
)
from tests.docker.test_package_builds import SET_MB, TOO_SLOW_SECONDS, Rig, refused
from tests.fakes.npm_archives import Member, NpmArchive, a_package, of_archive, packed
from tests.fakes.npm_registry import NpmRegistry

pytestmark = pytest.mark.timeout(600)

Start = Mapping[str, Any]
"""What a rig needs for packages of npm."""


@pytest.fixture
def registry() -> Iterator[NpmRegistry]:
    with NpmRegistry().serving() as serving:
        yield serving


@pytest.fixture
async def rig(tmp_path: Path, registry: NpmRegistry, node: Start) -> AsyncIterator[Rig]:
    async with Rig(tmp_path, registry, **node).running() as running:
        yield running


# --- sets ---


async def test_set_has_the_packages_and_what_they_depend_on(
    rig: Rig, registry: NpmRegistry
) -> None:
    """Each where Node.js finds it, in two versions if need be, owned by root, writable by nobody,
    and with all of the build gone."""
    registry.add(a_package("first", dependencies={"second": "^1", "@scope/third": "*"}))
    registry.add(a_package("second", "1.5.0"), a_package("second", "2.0.0"))
    registry.add(a_package("@scope/third", dependencies={"second": "2"}))

    built = await rig.ensure("first", "second@2")

    assert built.packages == [
        ("@scope/third", "1.0.0"),
        ("first", "1.0.0"),
        ("second", "1.5.0"),
        ("second", "2.0.0"),
    ]
    path = rig.packages.sets.path(built)
    for place, version in (
        ("second", "2.0.0"),
        ("first/node_modules/second", "1.5.0"),
        ("@scope/third", "1.0.0"),
    ):
        assert (path / place / "index.js").read_text() == f"exports.version = '{version}';\n"
    for file in path.rglob("*"):
        assert (file.lstat().st_uid, file.lstat().st_mode & 0o7222) == (0, 0)
    assert built.target == (PackageKind.NPM, "20.20", "linux-x64-glibc", "/node_modules")
    assert await rig.left_behind() == []


async def test_only_packages_for_the_platform_are_fetched(rig: Rig, registry: NpmRegistry) -> None:
    """A package offers its program for several; the others are left out."""
    systems = {"linux": ["linux"], "mac": ["darwin"], "other": ["!linux"]}
    registry.add(a_package("tool", optionalDependencies={f"tool-{one}": "1" for one in systems}))
    registry.add(*(a_package(f"tool-{name}", os=names) for name, names in systems.items()))
    registry.add(a_package("windows", os=["win32"]))

    built = await rig.ensure("tool")

    assert built.packages == [("tool", "1.0.0"), ("tool-linux", "1.0.0")]
    with pytest.raises(PackagesNotResolved, match="windows"):
        await rig.ensure("windows")


async def test_young_versions_are_not_used(
    tmp_path: Path, registry: NpmRegistry, node: Start
) -> None:
    registry.add(a_package("good", "1.0.0"), a_package("good", "1.1.0"))
    registry.published["good", "1.1.0"] = datetime.now(UTC).isoformat()
    async with Rig(tmp_path, registry, packages_min_age_days=3, **node).running() as rig:
        assert (await rig.ensure("good")).packages == [("good", "1.0.0")]


async def test_versions_for_the_node_of_the_environment_are_preferred(
    rig: Rig, registry: NpmRegistry
) -> None:
    """Not those for the one that npm runs with; who asks for one gets it."""
    registry.add(a_package("good", "1.0.0", engines={"node": ">=18"}))
    registry.add(a_package("good", "2.0.0", engines={"node": ">=22"}))

    assert (await rig.ensure("good")).packages == [("good", "1.0.0")]
    assert (await rig.ensure("good@2")).packages == [("good", "2.0.0")]


async def test_private_registry_is_asked_with_its_credentials(tmp_path: Path, node: Start) -> None:
    """They are in no message, not even when it refuses them."""
    with NpmRegistry("reader:pass-word").serving() as private:
        private.add(a_package("good"))
        async with Rig(tmp_path, private, **node).running() as rig:
            assert (await rig.ensure("good")).packages == [("good", "1.0.0")]
            with pytest.raises(SandboxdError) as missing:
                await rig.ensure("missing")
        private.credentials = "reader:other-word"
        async with Rig(tmp_path / "changed", private, **node).running() as rig:
            private.credentials = "reader:pass-word"
            with pytest.raises(SandboxdError) as refusal:
                await rig.ensure("good")
    for error in (missing.value, refusal.value):
        assert "-word" not in error.message
        assert "cmVhZGVy" not in error.message


async def test_programs_are_found_by_their_interpreter(rig: Rig, registry: NpmRegistry) -> None:
    """Small files that start a program at its own place; a name with a path in it is left out."""
    members = [
        Member("package/cli.js", b"#!/usr/bin/env node\n"),
        Member("package/plain.js", b"console.log(1)\n"),
        Member("package/dos.js", b"#!/usr/bin/env node\r\n"),
        Member("package/it's", b"#!/bin/sh\n"),
    ]
    programs = {
        "tool": "./cli.js",
        "plain": "plain.js",
        "dos": "dos.js",
        "quote": "it's",
        "up": "../../../etc/passwd",
        "../evil": "cli.js",
        ".hidden": "cli.js",
        "missing": "missing.js",
    }
    registry.add(a_package("programs", members=members, bin=programs))

    path = rig.packages.sets.path(await rig.ensure("programs"))

    scripts = {file.name: file.read_text().splitlines()[-1] for file in (path / ".bin").iterdir()}
    assert scripts == {
        "tool": 'exec /node_modules/programs/cli.js "$@"',
        "plain": 'exec node /node_modules/programs/plain.js "$@"',
        "dos": 'exec node /node_modules/programs/dos.js "$@"',
        "quote": """exec '/node_modules/programs/it'"'"'s' "$@\"""",
        "evil": 'exec /node_modules/programs/cli.js "$@"',
    }
    for file in (path / ".bin" / "tool", path / "programs" / "cli.js"):
        assert file.stat().st_mode & 0o777 == 0o555


async def test_environment_without_node_cannot_have_them(
    tmp_path: Path, registry: NpmRegistry, node: Start
) -> None:
    """The image of the default environment, with a setting that is wrong for it."""
    wrong = {"packages": PackageKind.NPM}
    async with Rig(tmp_path, registry, environment=wrong, npm_dir=node["npm_dir"]).running() as rig:
        with pytest.raises(InvalidRequest, match=r"cannot have packages: it has no Node\.js"):
            await rig.ensure("good")


WITHOUT_NEW_CODE = """
import ctypes, os, platform, struct, sys
mmap, mprotect = {"x86_64": (9, 10), "aarch64": (222, 226)}[platform.machine()]
load, equal, any_of, mask, give = 0x20, 0x15, 0x45, 0x54, 0x06
allow, refuse = 0x7FFF0000, 0x00050001
program = b"".join(struct.pack("<HBBI", *one) for one in [
    (load, 0, 0, 0), (equal, 1, 0, mmap), (equal, 3, 5, mprotect),
    (load, 0, 0, 32), (mask, 0, 0, 6), (equal, 3, 2, 6),
    (load, 0, 0, 32), (any_of, 1, 0, 4),
    (give, 0, 0, allow), (give, 0, 0, refuse),
])
kept = ctypes.create_string_buffer(program)
filters = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, filters, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a program that cannot make memory executable, as MemoryDenyWriteExecute of systemd does."""


async def test_client_runs_under_the_systemd_unit(node: Start) -> None:
    """Node.js usually compiles code as it runs, which the unit forbids; npm runs without."""
    client = await NpmClient(node["npm_dir"], "").get()
    confined = (sys.executable, "-I", "-S", "-c", WITHOUT_NEW_CODE)

    code, output = await output_of(*confined, *client.command(), "--version")
    assert (code, output.split(".")[0]) == (0, "11")
    program, _, script = client.command()
    code, _ = await output_of(*confined, program, script, "--version")
    assert code != 0, "the filter is not in force"


# --- hostile packages ---


async def test_install_scripts_do_not_run(rig: Rig, registry: NpmRegistry, tmp_path: Path) -> None:
    """The package is used without them."""
    proof = tmp_path / "proof"
    names = ("preinstall", "install", "postinstall", "prepare")
    scripts = dict.fromkeys(names, f"touch {proof} /build/unpacked/proof")
    registry.add(a_package("scripted", scripts=scripts, hasInstallScript=True))

    path = rig.packages.sets.path(await rig.ensure("scripted"))

    assert [entry.name for entry in path.iterdir()] == ["scripted"]
    assert not proof.exists()


HOSTILE = {
    "dots": Member("package/../../../../up.txt", b"x"),
    "absolute": Member("/etc/cron.d/sandboxd-test", b"x"),
    "double": Member("package//etc/passwd", b"x"),
    "link": Member("package/shadow", type=tarfile.SYMTYPE, target="/etc/shadow"),
    "hardlink": Member("package/shadow", type=tarfile.LNKTYPE, target="package/index.js"),
    "device": Member("package/disk", type=tarfile.BLKTYPE),
    "pipe": Member("package/pipe", type=tarfile.FIFOTYPE),
    "setuid": Member("package/root", b"#!/bin/sh\n", mode=0o4755),
    "twice": Member("package/index.js", b"x"),
    "below": Member("package/index.js/inner", b"x"),
    "control": Member("package/a\x1b[2Jb", b"x"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_archive_with_what_no_package_needs_is_refused(
    rig: Rig, registry: NpmRegistry, name: str
) -> None:
    """The error names the package, also one that only another one depends on."""
    registry.add(a_package(name, members=[HOSTILE[name]]))
    registry.add(a_package("outer", dependencies={name: "*"}))

    error = await refused(rig, PackagesUnsafe, "outer")

    assert error.metadata["package"] == name


async def test_file_that_is_no_archive_is_refused(rig: Rig, registry: NpmRegistry) -> None:
    registry.add(of_archive("noise", "1.0.0", b"no archive at all"))

    await refused(rig, PackagesUnsafe, "noise")


async def test_archive_that_is_not_the_one_that_was_locked_is_refused(
    rig: Rig, registry: NpmRegistry
) -> None:
    good, other = a_package("good"), a_package("good", members=[Member("package/more.js")])
    registry.add(good._replace(data=other.data))

    error = await refused(rig, PackagesUnsafe, "good")

    assert "another file than it had announced" in error.message


async def test_registry_without_a_strong_hash_is_refused(rig: Rig, registry: NpmRegistry) -> None:
    registry.add(a_package("weak")._replace(integrity="sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="))

    error = await refused(rig, PackagesNotResolved, "weak")

    assert "SHA-512 of weak" in error.message


@pytest.mark.parametrize("address", ["remote", "git", "file"])
async def test_package_that_leads_elsewhere_is_refused(
    rig: Rig, registry: NpmRegistry, address: str
) -> None:
    """Dependencies come from the registry too, and no other address is asked for."""
    with NpmRegistry().serving() as elsewhere:
        elsewhere.add(a_package("inner"))
        where = {
            "remote": f"{elsewhere.root}/inner/-/inner-1.0.0.tgz",
            "git": f"git+{elsewhere.root}/inner.git",
            "file": "file:/etc",
        }
        registry.add(a_package("outer", dependencies={"inner": where[address]}))

        error = await refused(rig, PackagesNotResolved, "outer")

        assert elsewhere.requests.total() == 0
    assert "http" not in error.message


async def test_archive_at_another_address_is_refused(rig: Rig, registry: NpmRegistry) -> None:
    """The registry itself cannot send the daemon somewhere else."""
    with NpmRegistry().serving() as elsewhere:
        good = a_package("good")
        elsewhere.add(good)
        registry.add(good._replace(tarball=f"{elsewhere.root}/good/-/{good.file_name}"))

        error = await refused(rig, PackagesNotResolved, "good")

        assert elsewhere.requests.total() == 0
    assert "good does not come from the registry" in error.message


async def test_set_that_resolves_for_ever_is_ended(
    tmp_path: Path, registry: NpmRegistry, node: Start
) -> None:
    """Each package needs one more, without end."""

    def another(name: str) -> NpmArchive | None:
        number = name.removeprefix("endless")
        if not number.isdigit():
            return None
        return a_package(name, dependencies={f"endless{int(number) + 1}": "*"})

    registry.on_missing = another
    limit = {"packages_build_seconds": TOO_SLOW_SECONDS}
    async with Rig(tmp_path, registry, **limit, **node).running() as rig:
        error = await refused(rig, PackagesBuildFailed, "endless0")

    assert f"longer than the {TOO_SLOW_SECONDS:g} s" in error.message
    assert registry.requests.total() > 20


async def test_download_without_end_is_refused(rig: Rig, registry: NpmRegistry) -> None:
    """Whether it says so or not, and without waiting for all of it."""
    endless, announced = a_package("endless"), a_package("announced")
    registry.add(endless, announced)
    registry.endless.add(endless.file_name)
    registry.announced[announced.file_name] = 5 << 30

    for name in ("endless", "announced"):
        error = await refused(rig, PackagesTooLarge, name)
        assert error.metadata["limit"] == f"{SET_MB} MiB"


def bombs() -> Mapping[str, bytes]:
    """Archives of a few kilobytes that unpack to more than a set may have."""
    described = tarfile.TarInfo("package/huge.bin")
    described.size = 5 << 30
    header = described.tobuf(tarfile.GNU_FORMAT)
    zeros = Member("package/zeros.bin", bytes((SET_MB + 1) << 20))
    long_name = tarfile.TarInfo("package/x")
    long_name.type, long_name.size = tarfile.GNUTYPE_LONGNAME, (8 * SET_MB) << 20
    return {
        "zeros": packed([zeros]),
        "announced": gzip.compress(header + bytes(1 << 20)),
        "name": gzip.compress(long_name.tobuf() + bytes(long_name.size)),
        "tail": gzip.compress(bytes((8 * SET_MB) << 20)),
    }


@pytest.mark.parametrize("name", ["zeros", "announced", "name"])
async def test_archive_that_unpacks_to_too_much_is_refused(
    rig: Rig, registry: NpmRegistry, name: str
) -> None:
    data = bombs()[name]
    assert len(data) < 1 << 20
    registry.add(of_archive("bomb", "1.0.0", data))

    await refused(rig, PackagesTooLarge, "bomb")


async def test_many_small_files_are_refused(rig: Rig, registry: NpmRegistry) -> None:
    """Empty files have no size, but use up the files of a disk."""
    members = [Member(f"package/{number}") for number in range(100_001)]
    registry.add(of_archive("many", "1.0.0", packed(members)))

    error = await refused(rig, PackagesTooLarge, "many")

    assert "files" in error.message


async def test_registry_that_does_not_answer_is_reported(tmp_path: Path, node: Start) -> None:
    """As something to try again, with the setting that names it and without its address."""
    with NpmRegistry().serving() as gone:
        pass
    async with Rig(tmp_path, gone, **node).running() as rig:
        error = await refused(rig, PackageIndexUnreachable, "good")

    assert error.retry_after_seconds
    assert "SANDBOXD_NPM_REGISTRY" in error.message
    assert "127.0.0.1" not in error.message


async def test_versions_that_do_not_exist_are_reported(rig: Rig, registry: NpmRegistry) -> None:
    registry.add(a_package("good"))

    for request in ("good@^7", "unknown-package"):
        error = await refused(rig, PackagesNotResolved, request)
        assert request.partition("@")[0] in error.message
