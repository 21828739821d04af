"""`sandboxd project`: files of users from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command_line import CommandLine


async def test_a_project_is_made_filled_and_deleted(sandboxd: CommandLine, tmp_path: Path) -> None:
    """Names that files got go to standard output, for scripts; the rest is for people."""
    source = tmp_path / "numbers.csv"
    source.write_text("1,2\n")
    created = await sandboxd("project", "create", "ada/book")
    first = await sandboxd("project", "upload", "ada/book", str(source))
    source.write_text("3,4\n")
    second = await sandboxd("project", "upload", "ada/book", str(source))
    named = (
        await sandboxd("project", "upload", "ada/book", str(source), "--name", "x.txt", "--json")
    ).document

    assert (created.code, created.stderr) == (0, "ada/book has 0 files\n")
    assert (first.stdout, second.stdout) == ("numbers.csv\n", "numbers (1).csv\n")
    assert first.stderr == "created, 4B, text/csv\n"
    assert [(one["name"], one["status"]) for one in named] == [("x.txt", "created")]

    projects = await sandboxd("project", "list", "ada")
    files = (await sandboxd("project", "list", "ada/book", "--json")).document
    assert projects.stdout.splitlines()[1].split()[:3] == ["book", "3", "12B"]
    assert [one["name"] for one in files] == ["numbers (1).csv", "numbers.csv", "x.txt"]

    copied = await sandboxd("project", "download", "ada/book", "numbers (1).csv", str(tmp_path))
    assert copied.stdout == f"{tmp_path}/numbers (1).csv\n"
    assert (tmp_path / "numbers (1).csv").read_text() == "3,4\n"

    assert (await sandboxd("project", "delete", "ada/book", "x.txt")).code == 0
    refused = await sandboxd("project", "delete", "ada/book")
    assert (refused.code, "--with-files" in refused.stderr) == (2, True)
    assert (await sandboxd("project", "delete", "ada/book", "--with-files")).code == 0
    assert (await sandboxd("project", "list", "ada", "--json")).document == []


async def test_a_session_is_opened_on_a_project(sandboxd: CommandLine) -> None:
    """It is shown with the session."""
    await sandboxd("project", "create", "ada/book")
    opened = (
        await sandboxd("session", "open", "ada", "42", "--project", "book", "--json")
    ).document
    shown = await sandboxd("session", "show", "ada/42")

    assert opened["project_id"] == "book"
    assert "project     book" in shown.stdout


async def test_failures_have_their_codes(sandboxd: CommandLine, tmp_path: Path) -> None:
    """Wrong usage, what does not exist, and what is not allowed."""
    (tmp_path / "a.exe").write_bytes(b"MZ")
    await sandboxd("project", "create", "ada/book")
    unnamed = await sandboxd("project", "create", "book")
    missing = await sandboxd("project", "list", "ada/none")
    no_file = await sandboxd("project", "upload", "ada/book", str(tmp_path / "none"))
    refused = await sandboxd("project", "upload", "ada/book", str(tmp_path / "a.exe"))
    no_name = await sandboxd("project", "download", "ada/book", "none.txt", str(tmp_path))

    assert [one.code for one in (unnamed, missing, no_file, refused, no_name)] == [2, 3, 1, 5, 3]
    assert "*.exe are not allowed" in refused.stderr
