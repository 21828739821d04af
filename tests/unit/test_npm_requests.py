"""What sessions may ask for as packages of npm, and how that becomes a lock."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import InvalidRequest, PackagesNotAllowed
from sandboxd.packages import lock as locks
from sandboxd.packages import npm
from sandboxd.packages.allowed import AllowedPackages, InvalidAllowList
from sandboxd.packages.lock import Archive, Lock, LockUnusable
from sandboxd.packages.npm_requests import manifest, parse
from sandboxd.packages.package_lock import NpmLock, parse_package_lock
from sandboxd.packages.requests import normal, parse_all
from sandboxd.packages.target import NpmPlatform, Target, UnsuitableEnvironment

NPM = PackageKind.NPM
TARGET = Target(NPM, "20.20", "linux-x64-glibc", "/node_modules")
REGISTRY = "https://registry.example/npm/"
SHA512 = b"\xab" * 64


# --- grammar ---


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("lodash", "lodash"),
        ("  lodash ", "lodash"),
        ("zod@^3", "zod@^3"),
        ("zod@ ^ 3", "zod@^3"),
        ("zod@v3.1.2", "zod@3.1.2"),
        ("zod@=3.1.2", "zod@3.1.2"),
        ("zod@*", "zod"),
        ("zod@x", "zod"),
        ("zod@3.x", "zod@3.x"),
        ("zod@<4  >= 3", "zod@<4 >=3"),
        ("zod@4||3", "zod@3 || 4"),
        ("@types/node@20.1.0-beta.2+build.7", "@types/node@20.1.0-beta.2+build.7"),
        ("@types/node", "@types/node"),
        ("decimal.js@~10.4", "decimal.js@~10.4"),
    ],
)
def test_same_requests_have_the_same_text(text: str, normal: str) -> None:
    """Spaces and order make no difference; and the text is a request again."""
    assert str(parse(text)) == normal
    assert str(parse(normal)) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "@1.0.0",
        "zod@",
        "zod@latest",
        "zod@next",
        "zod@npm:lodash",
        "zod@npm:lodash@1",
        "zod@https://example.org/zod.tgz",
        "https://example.org/zod.tgz",
        "zod@file:../zod",
        "zod@link:/etc",
        "zod@workspace:*",
        "zod@git+ssh://example.org/zod",
        "zod@user/zod",
        "user/zod",
        "github:user/zod",
        "./zod",
        "../zod",
        "/etc/passwd",
        "--registry=https://example.org",
        "zod --registry=https://example.org",
        "zod@1 --global",
        ".bin",
        "_zod",
        "Zod",
        "node_modules",
        "@scope/.bin",
        "@scope/",
        "@/zod",
        "@scope/a/b",
        "zod@1 - 2",
        "zod@1..2",
        "zod@1.2.3.4",
        "zod@01",
        "zod@>",
        "zod@<x",
        "zod@1 ||",
        "zod@|| 1",
        "zod@" + " || ".join("123456789"),
        "zod@" + " ".join(f">{n}" for n in range(9)),
        "zod@9999999999",
        "z" * 215,
        "zod numpy",
        "$(reboot)",
        "zod@`reboot`",
        'zod@1","x":"y',
    ],
)
def test_what_leads_elsewhere_is_refused(text: str) -> None:
    """No tags, other names, addresses, paths or options; the field is named."""
    with pytest.raises(InvalidRequest) as refused:
        parse_all(NPM, [text])

    assert refused.value.field == "packages"


def test_request_is_bounded_and_names_nothing_twice() -> None:
    assert normal(NPM, ["zod@3", "lodash"]) == ("lodash", "zod@3")
    with pytest.raises(InvalidRequest, match="zod is named twice"):
        parse_all(NPM, ["zod", "zod@3"])
    with pytest.raises(InvalidRequest, match="at most 50"):
        parse_all(NPM, [f"p{number}" for number in range(51)])
    for text in ("z" * 201, "zöd", "zod\n", "zod\x00"):
        with pytest.raises(InvalidRequest):
            parse_all(NPM, [text])


def test_request_becomes_the_manifest_of_a_project() -> None:
    packages = parse_all(NPM, ["@types/node@20", "lodash"])

    assert json.loads(manifest(packages))["dependencies"] == {"@types/node": "20", "lodash": "*"}


def test_listed_packages_are_allowed_within_the_versions_of_the_list() -> None:
    """Each alternative of both has to hold."""
    allowed = AllowedPackages.of("listed", {NPM: ["zod@3 || 4", "lodash"]})

    narrowed = allowed.check(NPM, parse_all(NPM, ["zod@>3.1", "lodash@^4"]))

    assert list(map(str, narrowed)) == ["lodash@^4", "zod@3 >3.1 || 4 >3.1"]


def test_each_kind_has_a_list_of_its_own() -> None:
    allowed = AllowedPackages.of("listed", {NPM: ["zod"], PackageKind.PYTHON: ["numpy"]})

    with pytest.raises(PackagesNotAllowed, match=r"has \(zod\).*SANDBOXD_PACKAGES_ALLOW_NPM"):
        allowed.check(NPM, parse_all(NPM, ["numpy"]))
    with pytest.raises(InvalidAllowList, match=r"SANDBOXD_PACKAGES_ALLOW_NPM.*latest"):
        AllowedPackages.of("listed", {NPM: ["zod@latest"]})


# --- targets ---


def a_target(**changes: str) -> Target:
    answer = {
        "version": "20.20.2",
        "machine": "x64",
        "glibc": "2.36",
        "directory": "/node_modules",
    }
    return Target.of(NPM, **{**answer, **changes})


def test_target_comes_from_what_an_image_says() -> None:
    """Another patch release is the same target, another C library is not."""
    assert a_target() == TARGET
    assert a_target(version="20.20.0") == TARGET
    assert a_target(glibc="").platform == "linux-x64-musl"
    assert TARGET.npm_platform == NpmPlatform("linux", "x64", "glibc")


@pytest.mark.parametrize(
    "change",
    [
        {"version": ""},
        {"version": "20"},
        {"machine": "mips"},
        {"directory": ""},
        {"directory": "/etc"},
        {"directory": "/node_modules/../etc"},
    ],
)
def test_image_that_makes_no_sense_is_unsuitable(change: dict[str, str]) -> None:
    with pytest.raises(UnsuitableEnvironment):
        a_target(**change)


# --- locks ---


def an_entry(name: str = "zod", version: str = "3.0.0", **changes: Any) -> dict[str, Any]:
    return {
        "version": version,
        "resolved": f"{REGISTRY}{name}/-/{name}-{version}.tgz",
        "integrity": f"sha512-{base64.b64encode(SHA512).decode()}",
        **changes,
    }


def parsed(entries: dict[str, Any], **changes: Any) -> NpmLock:
    lock = {"lockfileVersion": 3, "packages": {"": {"name": "set"}, **entries}, **changes}
    return parse_package_lock(
        json.dumps(lock), registry=REGISTRY, platform=NpmPlatform("linux", "x64", "glibc")
    )


def places(lock: NpmLock) -> list[str]:
    return [archive.place for archive in lock.lock.archives]


def test_lock_is_read() -> None:
    """With packages in packages, and those that have another name where they are used."""
    lock = parsed(
        {
            "node_modules/zod": an_entry(),
            "node_modules/@a/b/node_modules/zod": an_entry(version="2.0.0"),
            "node_modules/@a/b": an_entry("@a/b", hasInstallScript=True),
            "node_modules/other-name": an_entry(name="zod") | {"name": "zod"},
        }
    )

    assert places(lock) == ["@a/b", "@a/b/node_modules/zod", "other-name", "zod"]
    assert lock.with_scripts == ["@a/b"]
    assert lock.lock.archives[1].name == "zod"
    assert lock.lock.archives[1].digest == f"sha512:{SHA512.hex()}"
    assert lock.lock.archives[2].name == "zod"
    assert locks.loads(locks.dumps(lock.lock)) == lock.lock


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({}, True),
        ({"os": ["linux"], "cpu": ["x64", "arm64"], "libc": ["glibc"]}, True),
        ({"os": ["!win32"]}, True),
        ({"os": "linux"}, True),
        ({"cpu": ["any"]}, True),
        ({"os": ["darwin"]}, False),
        ({"os": ["!linux"]}, False),
        ({"cpu": ["arm64"]}, False),
        ({"libc": ["musl"]}, False),
    ],
)
def test_packages_for_other_platforms_are_left_out(filters: dict[str, Any], fits: bool) -> None:
    """With what only they contain; if they are needed, it cannot be had."""
    inner = {"node_modules/tool/node_modules/zod": an_entry()}
    found = parsed({"node_modules/tool": an_entry("tool", optional=True, **filters), **inner})

    assert bool(places(found)) == fits
    if not fits:
        with pytest.raises(LockUnusable, match="tool is not for linux-x64-glibc"):
            parsed({"node_modules/tool": an_entry("tool", **filters)})


def test_package_that_is_part_of_another_is_not_fetched() -> None:
    bundled = {"version": "1.0.0", "inBundle": True}

    found = parsed(
        {"node_modules/npm": an_entry("npm"), "node_modules/npm/node_modules/a": bundled}
    )

    assert places(found) == ["npm"]
    with pytest.raises(LockUnusable, match="part of no package"):
        parsed({"node_modules/a": bundled})


@pytest.mark.parametrize(
    "path",
    [
        "zod",
        "../node_modules/zod",
        "node_modules/../../etc",
        "node_modules/",
        "node_modules/.bin",
        "node_modules/@a/../b",
        "node_modules/a/b",
        "node_modules/a/node_modules/",
        "node_modules/a//node_modules/b",
        "/node_modules/a",
        "node_modules/a\x00",
        "node_modules/" + "/node_modules/".join("a" * 17),
    ],
)
def test_package_in_another_place_is_refused(path: str) -> None:
    with pytest.raises(LockUnusable):
        parsed({path: an_entry()})


@pytest.mark.parametrize(
    "change",
    [
        {"resolved": "https://elsewhere.example/zod/-/zod-3.0.0.tgz"},
        {"resolved": "http://registry.example/npm/zod/-/zod-3.0.0.tgz"},
        {"resolved": "https://registry.example:444/zod.tgz"},
        {"resolved": "https://registry.example@elsewhere.example/zod.tgz"},
        {"resolved": "git+ssh://git@registry.example/zod.git#abc"},
        {"resolved": "https://[registry.example/zod.tgz"},
        {"resolved": "https://registry.example:port/zod.tgz"},
        {"resolved": "file:../zod.tgz"},
        {"resolved": "../zod"},
        {"resolved": ""},
        {"link": True},
        {"integrity": ""},
        {"integrity": "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk="},
        {"integrity": "sha512-abcd"},
        {"integrity": "sha512-!!!"},
        {"version": ""},
        {"version": "1"},
        {"version": "1.0.0/../.."},
        {"name": "../zod"},
        {"os": [1]},
    ],
)
def test_lock_of_anything_but_archives_of_the_registry_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LockUnusable):
        parsed({"node_modules/zod": an_entry() | change})


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lockfileVersion": 3}', "[" * 100_000])
def test_text_that_is_no_lock_is_refused(text: str) -> None:
    with pytest.raises(LockUnusable):
        parse_package_lock(text, registry=REGISTRY, platform=TARGET.npm_platform)


def test_lock_is_bounded() -> None:
    """Packages of this platform, and entries of all of them."""
    with pytest.raises(LockUnusable, match="301 packages are needed"):
        parsed({f"node_modules/p{number}": an_entry() for number in range(301)})
    with pytest.raises(LockUnusable, match="3001 packages are listed"):
        parsed({f"node_modules/p{number}": an_entry() for number in range(3000)})
    with pytest.raises(LockUnusable, match="not one of npm"):
        parsed({"node_modules/zod": an_entry()}, lockfileVersion=2)


def test_key_says_where_each_package_is() -> None:
    """The same archives in other places are another set; one file serves several places."""
    digest = f"sha512:{SHA512.hex()}"
    one, other = (Archive("zod", "3.0.0", REGISTRY, digest, place=place) for place in ("a", "b"))

    assert Lock([one]).key(TARGET) != Lock([other]).key(TARGET)
    assert one.file_name == other.file_name == f"{SHA512.hex()[:64]}.tgz"


# --- npm ---


def test_credentials_are_in_the_configuration_of_the_registry_only() -> None:
    assert npm.config("https://registry.example/npm") == f"registry={REGISTRY}\n"
    text = npm.config("https://reader:pass%20word@registry.example/npm/")

    pair = base64.b64encode(b"reader:pass word").decode()
    assert text == f"registry={REGISTRY}\n//registry.example/npm/:_auth={pair}\n"


def test_npm_reads_certificates_that_the_daemon_was_given() -> None:
    places = npm.Places(command=("node", "npm"), area="/build")

    assert not npm.environment(places, {})["NODE_OPTIONS"]
    given = npm.environment(places, {"SSL_CERT_FILE": "/etc/ssl/company.pem"})
    assert given["NODE_OPTIONS"] == "--use-openssl-ca"
