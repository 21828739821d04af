"""`sandboxd status`, `session` and `top`: tables for people, documents for programs."""

from __future__ import annotations

from tests.cli.command_line import CommandLine


async def test_status_tells_what_the_daemon_is_doing(sandboxd: CommandLine) -> None:
    """A summary for people, and every field of the API for programs."""
    told = await sandboxd("status")
    document = (await sandboxd("status", "--json")).document

    assert told.code == 0
    assert "sessions   0 active, 0 commands running" in told.stdout
    assert document["active_sessions"] == 0
    assert document["pool"]["target"] == document["pool"]["warm"]
    assert document["protections"]


async def test_a_session_is_opened_found_and_closed(sandboxd: CommandLine) -> None:
    """The id alone goes to standard output, so that a script can take it."""
    opened = await sandboxd(
        "session", "open", "ada", "42", "--timeout-minutes", "5", "--label", "team=blue"
    )
    session_id = opened.stdout.strip()
    again = (await sandboxd("session", "open", "ada", "42", "--json")).document
    shown = (await sandboxd("session", "show", "ada/42", "--json")).document
    facts = await sandboxd("session", "show", session_id)

    assert opened.code == 0
    assert "created" in opened.stderr
    assert (again["session_id"], again["status"]) == (session_id, "attached")
    assert shown["metadata"] == {"team": "blue"}
    assert shown["limits"]["workspace_files"] > 0
    assert "labels      team=blue" in facts.stdout

    closed = (await sandboxd("session", "close", "ada/42", "--json")).document
    assert [one["state"] for one in closed] == ["closed"]


async def test_sessions_are_listed_by_what_is_asked_for(sandboxd: CommandLine) -> None:
    """By user, thread, state and label; as a table, as ids, as a document."""
    for user, thread in (("ada", "1"), ("ada", "2"), ("bob", "1")):
        await sandboxd("session", "open", user, thread, "--label", f"of={user}")
    await sandboxd("session", "close", "ada/2")

    listed = await sandboxd("session", "list", "--user", "ada", "--all")
    closed = (await sandboxd("session", "list", "--state", "closed", "--json")).document
    ids = await sandboxd("session", "list", "--quiet")
    labelled = (await sandboxd("session", "list", "--label", "of=bob", "--json")).document

    header, first, second = listed.stdout.splitlines()
    assert " ".join(header.split()) == "SESSION USER THREAD STATE RUN INC AGE USED EXPIRES"
    assert first.split()[1:4] == ["ada", "1", "active"]
    assert second.split()[1:4] == ["ada", "2", "closed"]
    assert [one["thread_id"] for one in closed] == ["2"]
    assert len(ids.stdout.split()) == 2
    assert [one["user_id"] for one in labelled] == ["bob"]


async def test_the_session_that_was_used_last_comes_first(sandboxd: CommandLine) -> None:
    """And those that have ended come after all others, if they are asked for."""
    for thread in ("1", "2", "3", "4"):
        await sandboxd("session", "open", "ada", thread)
    await sandboxd("session", "close", "ada/4")
    await sandboxd("exec", "ada/2", "echo x")
    await sandboxd("session", "open", "ada", "1")  # as if for the next message

    async def listed(*options: str) -> list[str]:
        found = (await sandboxd("session", "list", "--json", *options)).document
        return [one["thread_id"] for one in found]

    assert await listed() == ["1", "2", "3"]
    assert await listed("--all") == ["1", "2", "3", "4"]


async def test_labels_of_a_session_are_changed(sandboxd: CommandLine) -> None:
    """The result is printed as it would be typed."""
    await sandboxd("session", "open", "ada", "42", "--label", "team=red", "--label", "old=1")

    told = await sandboxd("session", "label", "ada/42", "team=blue", "turn=7", "--remove", "old")
    nothing = await sandboxd("session", "label", "ada/42")
    listed = (await sandboxd("session", "list", "--label", "turn=7", "--json")).document

    assert (told.code, told.stdout) == (0, "team=blue\nturn=7\n")
    assert nothing.code == 2
    assert [one["metadata"] for one in listed] == [{"team": "blue", "turn": "7"}]


async def test_images_are_listed(sandboxd: CommandLine) -> None:
    """Which environments there are, and what they are made of."""
    told = await sandboxd("images")
    (image,) = (await sandboxd("images", "--json")).document

    assert told.stdout.split()[:2] == ["ENVIRONMENT", "IMAGE"]
    assert image["environment"] == "default"
    assert image["image_id"]
    assert image["warm"] >= 1


async def test_a_session_is_reset(sandboxd: CommandLine) -> None:
    """The id stays, the incarnation moves on."""
    session_id = (await sandboxd("session", "open", "ada", "42")).stdout.strip()
    (reset,) = (await sandboxd("session", "reset", session_id, "--json")).document

    assert (reset["session_id"], reset["incarnation"]) == (session_id, 2)


async def test_top_shows_the_daemon_and_its_busiest_sessions(sandboxd: CommandLine) -> None:
    """Where output goes elsewhere it is printed once, without control characters."""
    await sandboxd("session", "open", "ada", "idle")
    await sandboxd("exec", "--detach", "ada/busy", "sleep")

    told = await sandboxd("top", "--once")
    piped = await sandboxd("top")

    rows = [line.split()[1:4] for line in told.stdout.splitlines() if line.startswith("ses_")]
    assert rows == [["ada", "busy", "1"], ["ada", "idle", "0"]]
    assert "2 active, 1 commands running" in told.stdout
    assert piped.code == 0
    assert "\x1b" not in piped.stdout


async def test_errors_have_a_line_and_a_code_of_their_kind(sandboxd: CommandLine) -> None:
    """Wrong usage, not found, no daemon: a script can tell them apart, a person can read them."""
    wrong = await sandboxd("session", "show", "nonsense")
    missing = await sandboxd("session", "show", "ses_0123456789abcdef01234567")
    nobody = await sandboxd("session", "show", "ada/none")
    unheard = await sandboxd("status", "--url", "unix:/nowhere/sandboxd.sock")
    unreadable = await sandboxd("status", "--url", "ftp://host")

    assert [one.code for one in (wrong, missing, nobody, unheard, unreadable)] == [2, 3, 3, 4, 2]
    assert "USER/THREAD" in wrong.stderr
    assert "sandboxd session open ada none" in nobody.stderr
    assert "no daemon" in unheard.stderr
    for one in (wrong, missing, nobody, unheard, unreadable):
        assert one.stderr.startswith("sandboxd: ")
        assert len(one.stderr.splitlines()) == 1
        assert one.stdout == ""
