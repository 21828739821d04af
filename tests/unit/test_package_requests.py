"""What sessions may ask for as packages, and how that becomes a lock."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import InvalidRequest, PackagesNotAllowed
from sandboxd.packages import lock as locks
from sandboxd.packages import requests
from sandboxd.packages.allowed import AllowedPackages, InvalidAllowList
from sandboxd.packages.lock import Archive, Lock, LockUnusable, request_key
from sandboxd.packages.package import Package
from sandboxd.packages.pylock import parse_pylock, requirements
from sandboxd.packages.requests import MAX_PACKAGES
from sandboxd.packages.requirements import lines, parse
from sandboxd.packages.target import Target, UnsuitableEnvironment

TARGET = Target(
    PackageKind.PYTHON, "3.11", "x86_64-manylinux_2_36", "/usr/local/lib/python3.11/dist-packages"
)
SHA256 = "ab" * 32
PYTHON = PackageKind.PYTHON


def parse_all(texts: list[str]) -> Sequence[Package]:
    return requests.parse_all(PYTHON, texts)


# --- grammar ---


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("pandas", "pandas"),
        ("Scikit_Learn", "scikit-learn"),
        ("  numpy  ", "numpy"),
        ("plotly >= 5, < 6", "plotly<6,>=5"),
        ("uvicorn[Standard]==0.30.*", "uvicorn[standard]==0.30.*"),
        ("requests[socks,security]~=2.0", "requests[security,socks]~=2.0"),
        ("torch==2.1+cpu", "torch==2.1+cpu"),
    ],
)
def test_same_requests_have_the_same_text(text: str, normal: str) -> None:
    """Case, spaces and order make no difference."""
    assert str(parse(text)) == normal


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pandas @ https://example.org/pandas.whl",
        "https://example.org/pandas.whl",
        "git+https://example.org/pandas",
        "./pandas",
        "/etc/passwd",
        "../pandas",
        "file:///etc/passwd",
        "-r requirements.txt",
        "--index-url=https://example.org",
        "-e .",
        "pandas --hash=sha256:00",
        "pandas # harmless",
        "pandas\nnumpy",
        "pandas\x00",
        "pandas;python_version<'3'",
        "pandas===2.0",
        "pandas>=",
        "pändas",
        "pandas numpy",
        "$(reboot)",
        "`reboot`",
        "pandas[" + ",".join(f"x{n}" for n in range(11)) + "]",
        "p" * 201,
    ],
)
def test_what_leads_elsewhere_is_refused(text: str) -> None:
    """No addresses, paths, options, conditions, comments or second lines; the field is named."""
    with pytest.raises(InvalidRequest) as refused:
        parse_all([text])

    assert refused.value.field == "packages"


def test_request_is_sorted_and_names_nothing_twice() -> None:
    assert lines(parse_all(["pandas", "Numpy<2"])) == "numpy<2\npandas\n"
    with pytest.raises(InvalidRequest, match="numpy is named twice"):
        parse_all(["numpy", "NumPy>1"])


def test_request_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="at most 50"):
        parse_all([f"p{n}" for n in range(MAX_PACKAGES + 1)])


# --- what the operator allows ---


def test_listed_packages_are_allowed_within_the_versions_of_the_list() -> None:
    allowed = AllowedPackages.of("listed", {PYTHON: ["NumPy", "requests>=2"]})

    narrowed = allowed.check(PYTHON, parse_all(["numpy", "requests<3"]))

    assert lines(narrowed) == "numpy\nrequests<3,>=2\n"


def test_package_that_is_not_listed_is_named() -> None:
    allowed = AllowedPackages.of("listed", {PYTHON: ["numpy", "pandas"]})

    with pytest.raises(PackagesNotAllowed, match=r"list does not have evil;.*numpy") as e:
        allowed.check(PYTHON, parse_all(["numpy", "evil"]))

    assert e.value.metadata == {"package": "evil"}
    assert "SANDBOXD_PACKAGES_POLICY=open" in str(e.value)


def test_extra_needs_to_be_listed() -> None:
    """An extra brings packages that the operator may not have thought of."""
    allowed = AllowedPackages.of("listed", {PYTHON: ["pandas[excel]", "uvicorn"]})

    assert allowed.check(PYTHON, parse_all(["pandas[excel]"]))
    with pytest.raises(PackagesNotAllowed, match=r"without the extra standard.*POLICY=open"):
        allowed.check(PYTHON, parse_all(["uvicorn[standard]"]))


def test_open_policy_allows_all_and_off_allows_none() -> None:
    anything = parse_all(["whatever[all]>1"])

    assert AllowedPackages.of("open", {PYTHON: []}).check(PYTHON, anything) == anything
    with pytest.raises(PackagesNotAllowed, match="SANDBOXD_PACKAGES_POLICY is off"):
        AllowedPackages.of("off", {PYTHON: ["whatever[all]"]}).check(PYTHON, anything)


def test_allow_list_is_checked() -> None:
    with pytest.raises(InvalidAllowList, match="https"):
        AllowedPackages.of("listed", {PYTHON: ["https://example.org"]})


# --- targets ---


def a_target(**changes: str) -> Target:
    answer = {
        "version": "3.11",
        "machine": "x86_64",
        "glibc": "glibc 2.36",
        "directory": "/usr/local/lib/python3.11/dist-packages",
    }
    return Target.of(PYTHON, **{**answer, **changes})


def test_target_comes_from_what_an_image_says() -> None:
    """A glibc newer than any platform of uv counts as the newest that uv knows."""
    assert a_target().platform == "x86_64-manylinux_2_36"
    assert a_target(glibc="glibc 2.41").platform == "x86_64-manylinux_2_40"


@pytest.mark.parametrize(
    "change",
    [
        {"version": ""},
        {"version": "2.7"},
        {"machine": "riscv"},
        {"glibc": ""},
        {"directory": ""},
        {"directory": "relative"},
        {"directory": "/usr/../etc"},
        {"directory": "/a b"},
    ],
)
def test_image_that_makes_no_sense_is_unsuitable(change: dict[str, str]) -> None:
    """An image's answer is not believed beyond what it can mean."""
    with pytest.raises(UnsuitableEnvironment):
        a_target(**change)


# --- locks ---


def pylock(**changes: str) -> str:
    fields = {
        "name": "numpy",
        "version": "2.1.0",
        "url": "https://files.example/numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "sha256": SHA256,
    } | changes
    return (
        'lock-version = "1.0"\n[[packages]]\n'
        f'name = "{fields["name"]}"\nversion = "{fields["version"]}"\n'
        f'wheels = [{{ url = "{fields["url"]}", hashes = {{ sha256 = "{fields["sha256"]}" }} }}]\n'
    )


def test_lock_is_read() -> None:
    lock = parse_pylock(pylock(), a_target())

    (wheel,) = lock.archives
    assert (wheel.name, wheel.version, wheel.digest) == ("numpy", "2.1.0", f"sha256:{SHA256}")
    assert wheel.file_name == "numpy-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
    assert requirements(lock) == f"numpy==2.1.0 --hash=sha256:{SHA256}\n"
    assert locks.loads(locks.dumps(lock)) == lock


@pytest.mark.parametrize(
    "change",
    [
        {"url": "file:///etc/passwd"},
        {"url": "https://[files.example/numpy-2.1.0-py3-none-any.whl"},
        {"url": "ftp://files.example/numpy-2.1.0-py3-none-any.whl"},
        {"url": "https://files.example/numpy-2.1.0.tar.gz"},
        {"url": "https://files.example/other-2.1.0-py3-none-any.whl"},
        {"url": "https://files.example/numpy-2.2.0-py3-none-any.whl"},
        {"url": "https://files.example/..%2Fnumpy-2.1.0-py3-none-any.whl"},
        {"url": "https://files.example/numpy-2.1.0-py3-none-any.whl%00.whl"},
        {"sha256": "md5"},
        {"sha256": ""},
        {"version": "not a version"},
        {"name": "other"},
    ],
)
def test_lock_of_anything_but_wheels_with_hashes_is_refused(change: dict[str, str]) -> None:
    """Also one whose files would be written under other names."""
    with pytest.raises(LockUnusable):
        parse_pylock(pylock(**change), a_target())


MANY = [
    "py3-none-any",
    "cp37-abi3-manylinux1_x86_64.manylinux_2_28_x86_64.manylinux_2_5_x86_64",
    "cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64",
    "cp311-cp311-manylinux_2_26_x86_64.manylinux_2_28_x86_64",
]
"""As an index offers them, the last the best for Python 3.11 and glibc 2.36."""


def lock_of(names: Sequence[str]) -> str:
    wheels = ", ".join(
        f'{{ url = "https://files.example/a-1.0-{name}.whl", hashes = {{ sha256 = "{SHA256}" }} }}'
        for name in names
    )
    return f'[[packages]]\nname = "a"\nversion = "1.0"\nwheels = [{wheels}]\n'


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("change", "best"),
    [
        ({}, MANY[3]),
        ({"glibc": "glibc 2.25"}, MANY[2]),
        ({"glibc": "glibc 2.5"}, MANY[1]),
        ({"version": "3.13"}, MANY[1]),
        ({"machine": "aarch64"}, MANY[0]),
    ],
    ids=str,
)
def test_of_several_wheels_the_best_one_is_taken(
    change: dict[str, str], best: str, order: int
) -> None:
    """uv lists all that fit: those for the machine come before those for any."""
    (wheel,) = parse_pylock(lock_of(MANY[::order]), a_target(**change)).archives
    assert wheel.file_name == f"a-1.0-{best}.whl"


def test_of_equal_wheels_the_last_build_is_taken() -> None:
    builds = [f"{build}-py3-none-any" for build in ("2", "10b", "9")]
    (wheel,) = parse_pylock(lock_of(builds), a_target()).archives
    assert wheel.file_name == "a-1.0-10b-py3-none-any.whl"


def test_wheels_whose_names_stand_for_very_many_tags_cost_little_time() -> None:
    """A short name can stand for 10,000 of them, and a lock can have many names."""
    name = "-".join(".".join(f"{letter}{number}" for number in range(20)) for letter in "abc")
    started = time.process_time()
    with pytest.raises(LockUnusable, match="no wheel"):
        parse_pylock(lock_of([name] * 500), a_target())
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("text", ["not toml [", '[[packages]]\nname = "numpy"\nversion = "1"\n'])
def test_lock_without_wheels_is_refused(text: str) -> None:
    with pytest.raises(LockUnusable):
        parse_pylock(text, a_target())


def test_lock_is_bounded() -> None:
    with pytest.raises(LockUnusable, match="301 packages are needed"):
        parse_pylock(pylock() * 301, a_target())
    with pytest.raises(LockUnusable, match="twice"):
        parse_pylock(pylock() * 2, a_target())


def test_key_says_what_is_in_a_set() -> None:
    """The address of a wheel is not part of it; every property of the target is."""
    wheel = Archive(
        "numpy", "2.1.0", "https://a.example/numpy-2.1.0-py3-none-any.whl", f"sha256:{SHA256}"
    )
    key = Lock([wheel]).key(TARGET)

    assert Lock([wheel._replace(url="https://b.example/x", size_bytes=1)]).key(TARGET) == key
    assert Lock([wheel._replace(digest="sha256:" + "cd" * 32)]).key(TARGET) != key
    for name in TARGET._fields:
        assert Lock([wheel]).key(TARGET._replace(**{name: "other"})) != key


def test_requests_that_mean_the_same_have_one_key() -> None:
    one = request_key(parse_all(["Pandas", "numpy<2,>1"]), TARGET)

    assert request_key(parse_all(["numpy >1,<2", "pandas"]), TARGET) == one
    assert request_key(parse_all(["numpy>1", "pandas"]), TARGET) != one
