"""Who may call: the token file, tokens, and how often."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sandboxd.access import (
    HOST,
    Access,
    Caller,
    CallPlaces,
    RateLimit,
    Scope,
    TokensInvalid,
    current_caller,
)
from sandboxd.access.token_file import hash_of, line, new_token, parse
from sandboxd.cli.program import program
from sandboxd.errors import CallNotPermitted, TooManyRequests

ADA = Caller(name="ci", scope=Scope.USER, user_id="ada")
OPS = Caller(name="ops", scope=Scope.ADMIN)
LOOKER = Caller(name="board", scope=Scope.READ_ONLY)
HASH = "0" * 64


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.touch(mode=0o600)
    return file


# --- callers ---


def test_user_sees_its_own_and_nobody_else() -> None:
    """A token of a user is for that user; others are for everyone's sessions."""
    assert (ADA.sees("ada"), ADA.sees("bob"), ADA.sees("")) == (True, False, False)
    assert OPS.sees("ada")
    assert LOOKER.sees("bob")


def test_user_opens_sessions_for_itself_only() -> None:
    """Naming another user is refused in words, not answered with that user's session."""
    ADA.check_acts_for("ada")
    OPS.check_acts_for("bob")
    with pytest.raises(CallNotPermitted, match=r"'ada'.*token of the other user"):
        ADA.check_acts_for("bob")


def test_caller_outside_of_calls_is_the_host() -> None:
    """What the daemon does by itself is not limited."""
    assert current_caller() is HOST


# --- tokens ---


def test_tokens_are_long_and_never_the_same() -> None:
    """256 bits after a prefix that can be searched for."""
    tokens = {new_token() for _ in range(100)}

    assert len(tokens) == 100
    assert all(token.startswith("sbx_") and len(token) == 47 for token in tokens)


@pytest.mark.parametrize(
    "caller",
    [
        ADA,
        OPS,
        LOOKER,
        Caller(name="b", scope=Scope.READ_ONLY, user_id="ada"),
        Caller(name="c", scope=Scope.USER, user_id="Ada Lovelace #1 (ä) 50% a:b"),
        Caller(name="d", scope=Scope.USER, user_id="ada", policies=frozenset({"open", "ci-2"})),
        Caller(name="e", scope=Scope.USER, user_id="ada", policies=frozenset({"*"})),
    ],
    ids=lambda caller: caller.name,
)
def test_line_says_what_was_asked_for(caller: Caller, file: Path) -> None:
    """Whatever the name of a user, the line is read as it was written, and its token is known."""
    token = new_token()
    file.write_text(line(caller, hash_of(token)) + "\n")
    access = Access(file)

    assert access.find_by_token(token) == caller
    assert access.find_by_token(token + "x") is None
    assert access.find_by_token("") is None
    assert token not in file.read_text()


def test_comments_and_empty_lines_are_no_entries(file: Path) -> None:
    """A file can say what its lines are for."""
    file.write_text(f"# tokens\n\n  ci  user:ada  sha256:{HASH}   # of the build\n")

    assert len(Access(file)) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("ci user:ada", "line 1: write a name, a scope and a key"),
        (f"ci ada sha256:{HASH}", "'ada' is not a valid scope; write user:ID"),
        (f"ci user sha256:{HASH}", "'user' is not a valid scope"),
        (f"ci user: sha256:{HASH}", "'user:' is not a valid scope"),
        (f"ci read-only: sha256:{HASH}", "'read-only:' is not a valid scope"),
        (f"ci admin:ada sha256:{HASH}", "an admin has no user"),
        (f"c/i admin sha256:{HASH}", "a name has 1 to 64 letters"),
        ("ci admin sha256:abc", "sha256: and 64 hex digits"),
        (f"ci admin sha256:{'G' * 64}", "sha256: and 64 hex digits"),
        ("ci admin cert:", "or cert: and a common name"),
        pytest.param(
            f"ci admin {new_token()}", "this is the token itself; revoke it", id="a token"
        ),
        (f"ci admin sha256:{HASH} egress=*", "only a line with the scope user:ID has egress"),
        (f"ci user:ada sha256:{HASH} egress=", "write hosts as egress="),
        (f"ci user:ada sha256:{HASH} egress=a/b", "write hosts as egress="),
        (f"ci user:ada sha256:{HASH} open", "write the policies as policies=strict,open"),
        (f"ci user:ada sha256:{HASH} policies=", "write the policies as policies=strict,open"),
        (f"ci user:ada sha256:{HASH} policies=a,,b", "write the policies as policies="),
        (f"ci user:ada sha256:{HASH} policies=../x", "write the policies as policies="),
        (f"ci admin sha256:{HASH} policies=open", "only a line with the scope user:ID has"),
        (f"ci read-only:ada sha256:{HASH} policies=open", "only a line with the scope user:ID"),
        (f"ci user:ada sha256:{HASH} policies=open x", "write a name, a scope and a key"),
        (f"host admin sha256:{HASH}", "line 1: host is reserved for the audit log"),
        (
            f"ci admin sha256:{HASH}\nci admin sha256:{'1' * 64}",
            "line 2: the name 'ci' is used above",
        ),
        (f"ci admin sha256:{HASH}\nx admin sha256:{HASH}", "line 2: the key is used above"),
    ],
)
def test_wrong_line_is_refused_with_its_number(content: str, told: str) -> None:
    """Who writes the file by hand is told what to write."""
    with pytest.raises(TokensInvalid, match=told):
        parse(content)


def test_all_wrong_lines_are_told_at_once() -> None:
    """One look at the log is enough."""
    with pytest.raises(TokensInvalid) as caught:
        parse(f"a b\nok admin sha256:{HASH}\nc d e")

    assert [text.split(":")[0] for text in str(caught.value).split("\n")] == ["line 1", "line 3"]


def test_file_that_others_may_change_is_refused(file: Path) -> None:
    """Who can write to it could make themselves an admin."""
    file.chmod(0o620)
    with pytest.raises(TokensInvalid, match="chmod go-w"):
        Access(file)


def test_file_that_cannot_be_read_is_refused(file: Path, tmp_path: Path) -> None:
    """Missing, not text, or far too large."""
    with pytest.raises(TokensInvalid, match="No such file"):
        Access(tmp_path / "absent")
    file.write_bytes(b"\xff")
    with pytest.raises(TokensInvalid, match="not UTF-8"):
        Access(file)
    os.truncate(file, 5 << 20)
    with pytest.raises(TokensInvalid, match="more than 4 MiB"):
        Access(file)


def test_reload_takes_what_is_there_now(file: Path) -> None:
    """A new line lets in, a removed one shuts out; a broken file changes nothing."""
    first, second = new_token(), new_token()
    file.write_text(line(ADA, hash_of(first)))
    access = Access(file)
    file.write_text(line(OPS, hash_of(second)))
    assert access.find_by_token(first) == ADA

    access.reload()
    assert (access.find_by_token(first), access.find_by_token(second)) == (None, OPS)

    file.write_text("nonsense")
    with pytest.raises(TokensInvalid):
        access.reload()
    assert access.find_by_token(second) == OPS


def test_certificate_is_found_by_its_name(file: Path) -> None:
    """With a file only those in it; without one the CA alone decides."""
    file.write_text(line(OPS, "ops.example.org", kind="cert"))
    access = Access(file)

    assert access.find_by_certificate("ops.example.org") == OPS
    assert access.find_by_certificate("other.example.org") is None
    assert access.find_by_token("ops.example.org") is None
    everyone = Access(None).find_by_certificate("x")
    assert everyone is not None
    assert everyone.scope is Scope.ADMIN


# --- rate ---


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_lets_a_burst_through_and_then_its_pace() -> None:
    """After the burst a call is refused with the time to wait, and passes once it is over."""
    clock = Clock()
    rate = RateLimit(calls_per_second=4, burst=3, clock=clock)
    for _ in range(3):
        rate.take(ADA)
    with pytest.raises(TooManyRequests, match="4 calls per second") as caught:
        rate.take(ADA)
    assert caught.value.retry_after_seconds == pytest.approx(0.25)

    clock.now += 0.25
    rate.take(ADA)
    with pytest.raises(TooManyRequests):
        rate.take(ADA)

    clock.now += 1000
    for _ in range(3):
        rate.take(ADA)
    with pytest.raises(TooManyRequests):
        rate.take(ADA)


def test_rate_is_of_each_caller_and_not_of_admins() -> None:
    """One caller's haste does not slow others down; admins call for many."""
    rate = RateLimit(calls_per_second=1, burst=1, clock=Clock())
    rate.take(ADA)
    rate.take(LOOKER)
    for _ in range(50):
        rate.take(OPS)
    with pytest.raises(TooManyRequests):
        rate.take(ADA)


def test_rate_of_0_is_no_limit() -> None:
    """As it is without a setting."""
    rate = RateLimit(calls_per_second=0, burst=1, clock=Clock())
    for _ in range(1000):
        rate.take(ADA)


# --- sandboxd token create ---


@pytest.mark.parametrize(
    ("words", "caller"),
    [
        (["--user", "ada"], Caller(name="n", scope=Scope.USER, user_id="ada")),
        (
            ["--user", "ada", "--policy", "open", "--policy", "ci"],
            Caller(name="n", scope=Scope.USER, user_id="ada", policies=frozenset({"open", "ci"})),
        ),
        (["--admin"], Caller(name="n", scope=Scope.ADMIN)),
        (["--read-only"], Caller(name="n", scope=Scope.READ_ONLY)),
        (
            ["--read-only", "--user", "ada"],
            Caller(name="n", scope=Scope.READ_ONLY, user_id="ada"),
        ),
    ],
)
def test_created_token_fits_its_line(words: list[str], caller: Caller, file: Path) -> None:
    """The line, appended to the file, lets in who has the token."""
    made = CliRunner().invoke(program, ["token", "create", *words, "--name", "n", "--json"])
    document = json.loads(made.output)
    file.write_text(document["line"])

    assert Access(file).find_by_token(document["token"]) == caller


def test_created_token_is_shown_once_and_its_line_without_it() -> None:
    """For people: the token, then the line; every call makes another."""
    first, second = (CliRunner().invoke(program, ["token", "create", "--admin"]) for _ in range(2))
    _, token, _, _, entry = first.output.splitlines()

    assert hash_of(token) in entry
    assert token not in second.output


def test_check_of_a_token_file_tells_what_a_reload_would(file: Path) -> None:
    """Before the signal is sent, and with an exit code."""
    file.write_text(f"ci user:ada sha256:{HASH}\n")
    good = CliRunner().invoke(program, ["token", "check", str(file)])
    file.write_text("nonsense\n")
    bad = CliRunner().invoke(program, ["token", "check", str(file)])

    assert (good.exit_code, good.output) == (0, f"ok: {file}, 1 callers\n")
    assert bad.exit_code == 1
    assert "line 1: write a name" in bad.output


@pytest.mark.parametrize(
    "words",
    [[], ["--admin", "--user", "a"], ["--admin", "--read-only"], ["--user", ""]],
    ids=" ".join,
)
def test_token_without_a_clear_scope_is_not_made(words: list[str]) -> None:
    """Nothing is guessed about rights."""
    assert CliRunner().invoke(program, ["token", "create", *words]).exit_code == 2


def test_token_needs_a_plain_name() -> None:
    """A name with a space would be two words of the line."""
    made = CliRunner().invoke(program, ["token", "create", "--admin", "--name", "a b"])

    assert made.exit_code == 2
    assert "letters, digits" in made.output


# --- places for calls ---


def user(user_id: str, name: str = "") -> Caller:
    return Caller(name=name or user_id, scope=Scope.USER, user_id=user_id)


def taken_by(places: CallPlaces, caller: Caller) -> int:
    """How many places the caller gets until it is refused."""
    taken = 0
    while True:
        try:
            places.take(caller)
        except TooManyRequests:
            return taken
        taken += 1


def test_user_gets_a_share_of_the_places() -> None:
    """A quarter, with however many tokens; the next user gets as many."""
    places = CallPlaces(total=64)
    assert taken_by(places, user("ada")) == 16
    assert taken_by(places, user("ada", name="second-token")) == 0
    assert taken_by(places, user("bob")) == 16
    places.free(user("ada"))
    assert taken_by(places, user("ada")) == 1


def test_places_are_reserved_for_admins() -> None:
    """All users together leave an eighth, which admins and the socket share; nobody exceeds the
    total."""
    places = CallPlaces(total=64)
    assert sum(taken_by(places, user(f"u{number}")) for number in range(8)) == 56
    assert taken_by(places, Caller(name="ops", scope=Scope.ADMIN)) == 8
    places.free(HOST)
    assert taken_by(places, HOST) == 1


def test_admins_are_limited_by_the_total_only() -> None:
    """A service that calls for many users is not one user."""
    assert taken_by(CallPlaces(total=64), HOST) == 64


def test_token_for_all_users_has_a_share_by_itself() -> None:
    """A user cannot take it by having the name of the token as id."""
    places = CallPlaces(total=64, per_user=3)
    assert taken_by(places, Caller(name="board", scope=Scope.READ_ONLY)) == 3
    assert taken_by(places, user("board")) == 3


def test_a_token_may_have_hosts_of_its_own() -> None:
    """In the line, with policies or without; `sandboxd token create` writes it."""
    caller = replace(ADA, policies=frozenset({"open"}), egress=("*.example.com", "a.org:8443"))
    (entry,) = parse(line(caller, HASH))
    assert entry.caller == caller
    made = CliRunner().invoke(program, ["token", "create", "--user", "ada", "--egress", "a.org"])
    assert "egress=a.org" in made.output
