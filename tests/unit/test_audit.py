"""The audit log: chained, bounded, and honest about what it lacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sandboxd.audit import AuditLog, AuditSettings
from sandboxd.audit import log as log_module
from sandboxd.audit.chain import GENESIS, Head
from sandboxd.audit.check import check, entries
from sandboxd.audit.files import audit_files
from sandboxd.cli.program import program

ODD_TEXT = 'a"b\\c\n\u2028\u00e9\U0001f600'


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "COLLECT_SECONDS", 0.01)


@contextmanager
def a_log(directory: Path, **settings: Any) -> Iterator[AuditLog]:
    with AuditLog(AuditSettings(directory=directory, **settings)) as log:
        yield log


def append(log: AuditLog, number: int, **fields: Any) -> None:
    assert log.append(lambda: {"action": "test", "number": number, **fields})


def wait_for(predicate: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not predicate():
        assert time.monotonic() < deadline, "it did not come true within 10 s"
        time.sleep(0.005)


def numbers(directory: Path) -> list[int]:
    return [entry["number"] for entry, _ in entries(directory) if entry["action"] == "test"]


def lines_of(directory: Path) -> list[bytes]:
    return b"".join(file.path.read_bytes() for file in audit_files(directory)).splitlines(True)


def write_lines(directory: Path, lines: list[bytes]) -> None:
    (file,) = audit_files(directory)
    file.path.write_bytes(b"".join(lines))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A log of five entries."""
    with a_log(tmp_path) as log:
        for number in range(5):
            append(log, number, text=ODD_TEXT)
    return tmp_path


def test_entries_are_written_in_order_and_chained(written: Path) -> None:
    """Every entry is there with its sequence, its time and the hash of the one before."""
    found = [entry for entry, _ in entries(written)]
    assert [entry["seq"] for entry in found] == [1, 2, 3, 4, 5]
    assert numbers(written) == [0, 1, 2, 3, 4]
    assert all(entry["text"] == ODD_TEXT for entry in found)
    assert found[0]["prev"] == GENESIS

    verdict = check(written)
    assert verdict.is_whole
    assert (verdict.lines, verdict.head.sequence, verdict.notes) == (5, 5, [])
    assert (written / audit_files(written)[0].path.name).stat().st_mode & 0o777 == 0o600


def test_next_daemon_continues_the_chain(written: Path) -> None:
    """A restart continues the sequence, in the same file."""
    with a_log(written) as log:
        assert log.head.sequence == 5
        append(log, 5)
    assert numbers(written) == [0, 1, 2, 3, 4, 5]
    assert len(audit_files(written)) == 1
    assert check(written).is_whole


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a byte changed": lambda lines: [
        lines[0],
        lines[1].replace(b'"number":1', b'"number":7'),
        *lines[2:],
    ],
    "a line removed": lambda lines: lines[:2] + lines[3:],
    "the first line removed": lambda lines: lines[1:],
    "two lines exchanged": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "a line twice": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "a line of another log": lambda lines: [*lines, lines[0]],
    "rubbish between": lambda lines: [lines[0], b"rubbish\n", *lines[1:]],
    "an empty line": lambda lines: [lines[0], b"\n", *lines[1:]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_changed_log_is_not_whole(
    change: Callable[[list[bytes]], list[bytes]], written: Path
) -> None:
    """Every change between the first and the last line is detected."""
    write_lines(written, change(lines_of(written)))
    assert check(written).problems


def test_lines_missing_at_the_end_are_detected_with_a_head_kept_elsewhere(written: Path) -> None:
    """A shortened log is whole by itself, but lacks a head that was noted before."""
    head = check(written).head
    write_lines(written, lines_of(written)[:-2])
    assert check(written).is_whole
    assert check(written, head).problems == ["line 5 with the expected hash is not there"]


def test_head_kept_elsewhere_is_found_in_a_longer_log(written: Path) -> None:
    """The head of an earlier day is still in the chain later."""
    head = check(written).head
    with a_log(written) as log:
        append(log, 5)
    assert check(written, head).is_whole
    assert check(written, Head(head.sequence, "f" * 64)).problems


@pytest.mark.parametrize("kept_bytes", [1, 40, -1])
def test_line_torn_by_a_kill_is_noted_at_the_next_start(kept_bytes: int, written: Path) -> None:
    """Half a line at the end becomes an entry about the repair, and the chain stays whole."""
    lines = lines_of(written)
    torn = lines[-1][:kept_bytes]
    write_lines(written, [*lines[:-1], torn])
    assert check(written).notes == ["the last line is incomplete: it is just being written"]
    with a_log(written) as log:
        append(log, 5)

    verdict = check(written)
    assert verdict.is_whole, verdict.problems
    assert "killed" in verdict.notes[0]
    (repaired,) = (entry for entry, _ in entries(written) if entry["action"] == "audit.repaired")
    assert (repaired["torn_bytes"], repaired["torn"]) == (len(torn), torn.decode())
    assert numbers(written) == [0, 1, 2, 3, 5]


WRITE_FOR_EVER = """
import sys
from pathlib import Path
from sandboxd.audit import AuditLog, AuditSettings, log
log.COLLECT_SECONDS = 0.001
with AuditLog(AuditSettings(directory=Path(sys.argv[1]), file_bytes=20_000)) as audit:
    number = 0
    while True:
        if audit.append(lambda number=number: {"action": "test", "number": number}):
            number += 1
"""


def test_log_of_a_killed_process_is_whole(tmp_path: Path) -> None:
    """After a kill at any moment, also during rotations, the log is whole and continues."""
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path)])
        before = len(audit_files(tmp_path))
        wait_for(lambda: len(audit_files(tmp_path)) > before + 2)  # noqa: B023  # waited for here
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with a_log(tmp_path) as log:
        append(log, -1)

    verdict = check(tmp_path)
    assert verdict.is_whole, verdict.problems[:3]
    assert numbers(tmp_path)[-1] == -1


def test_line_torn_at_the_beginning_of_a_file_is_noted(tmp_path: Path) -> None:
    """A kill just after a rotation loses neither the chain nor the note about it."""
    with a_log(tmp_path, file_bytes=1) as log:
        append(log, 0)
        wait_for(lambda: log.head.sequence == 1)
        wait_for(lambda: len(audit_files(tmp_path)) == 2)
    newest = audit_files(tmp_path)[-1].path
    newest.write_bytes(b'{"seq":2,"ti')
    with a_log(tmp_path) as log:
        append(log, 1)

    verdict = check(tmp_path)
    assert verdict.is_whole, verdict.problems
    assert (numbers(tmp_path), verdict.head.sequence) == ([0, 1], 3)


def test_damaged_last_line_is_kept_and_the_log_continues(written: Path) -> None:
    """A change while no daemon ran is not hidden by the next one, which writes all the same."""
    lines = lines_of(written)
    write_lines(written, [*lines[:-1], lines[-1].replace(b'"number":4', b'"number":9')])
    with a_log(written) as log:
        append(log, 5)

    assert numbers(written) == [0, 1, 2, 3, 5]
    assert check(written).problems


def test_old_files_are_pruned_and_that_is_noted(tmp_path: Path) -> None:
    """The log keeps to its size; files that are missing without a note are a problem."""
    with a_log(tmp_path, file_bytes=2000, total_bytes=6000) as log:
        for number in range(200):
            append(log, number)
            if number % 8 == 7:
                wait_for(lambda: log.is_flushed)
    sizes = [file.path.stat().st_size for file in audit_files(tmp_path)]
    assert sum(sizes) <= 6000 + 4 * 2000
    verdict = check(tmp_path)
    assert verdict.is_whole, verdict.problems
    assert verdict.first > 1
    assert numbers(tmp_path)[-1] == 199

    audit_files(tmp_path)[0].path.unlink()
    assert any("were not pruned" in problem for problem in check(tmp_path).problems)


@pytest.mark.parametrize("bound", ["max_files", "max_age_seconds"])
def test_files_that_are_too_many_or_too_old_are_pruned(bound: str, tmp_path: Path) -> None:
    """The number of files and their age are bounded too."""
    with a_log(tmp_path, file_bytes=1) as log:
        for number in range(20):
            append(log, number)
            wait_for(lambda: log.is_flushed)
        wait_for(lambda: log.head.sequence == 20)
    for file in audit_files(tmp_path):
        os.utime(file.path, (0, 0))
    settings = {bound: {"max_files": 3, "max_age_seconds": 3600.0}[bound]}
    with a_log(tmp_path, file_bytes=1, **settings) as log:
        append(log, 20)
    assert len(audit_files(tmp_path)) <= 4
    assert check(tmp_path).is_whole


def test_entries_beyond_the_queue_are_reported_as_a_gap(tmp_path: Path) -> None:
    """No caller waits for the writer; a line of the log counts the entries that found no place."""
    log = AuditLog(AuditSettings(directory=tmp_path, max_pending=10))
    pending = [log.append(lambda: {"action": "test", "number": 0}) for _ in range(25)]
    assert sum(entry is not None for entry in pending) == 10
    with log:
        wait_for(lambda: log.is_flushed)

    verdict = check(tmp_path)
    assert verdict.is_whole
    assert verdict.notes == ["line 11: 15 entries were not written"]
    assert log.gaps == 15


def test_disk_that_cannot_be_written_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk is full nothing fails; half a line is removed, and the gap reported later."""
    is_full = True
    write = os.write

    def limited(descriptor: int, data: bytes) -> int:
        if not is_full:
            return write(descriptor, data)
        write(descriptor, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_module.os, "write", limited)
    with a_log(tmp_path) as log:
        for number in range(3):
            append(log, number)
        wait_for(lambda: log.is_flushed)
        is_full = False
        append(log, 3)

    verdict = check(tmp_path)
    assert verdict.is_whole, verdict.problems
    assert numbers(tmp_path)[-1] == 3
    assert sum(entry.get("lost", 0) for entry, _ in entries(tmp_path)) == 3


def test_entry_can_be_amended_until_it_is_written(tmp_path: Path) -> None:
    """An amended entry is one line; a written one stays as it is."""
    log = AuditLog(AuditSettings(directory=tmp_path))
    entry = log.append(lambda: {"action": "test", "number": 1})
    assert entry is not None
    assert log.amend(entry, lambda: {"action": "test", "number": 2})
    with log:
        wait_for(lambda: log.written == 1)
        assert not log.amend(entry, lambda: {"action": "test", "number": 3})
    assert numbers(tmp_path) == [2]


def test_entry_that_cannot_be_made_does_not_end_the_log(tmp_path: Path) -> None:
    """A fault in one entry costs that entry only."""

    def broken() -> dict[str, Any]:
        raise RuntimeError("no")

    with a_log(tmp_path) as log:
        log.append(broken)
        append(log, 1)
    assert numbers(tmp_path) == [1]
    assert check(tmp_path).is_whole


def test_verify_command_reports_by_its_exit_code(written: Path, tmp_path: Path) -> None:
    """`audit verify` prints what it found, and its exit code is enough for a script."""
    written.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    state = tmp_path
    state.mkdir()
    directory = tmp_path.with_name(f"{tmp_path.name}-moved").rename(state / "audit")
    head = check(directory).head

    def verify(*options: str) -> Any:
        return CliRunner().invoke(program, ["audit", "verify", "--state-dir", str(state), *options])

    whole = verify("--expect", f"{head.sequence}:{head.hash}")
    since = next(entries(directory))[0]["time"]
    assert whole.exit_code == 0, whole.output
    assert whole.output.startswith(f"whole since {since} (line 1): 5 lines")
    write_lines(directory, lines_of(directory)[1:])
    assert verify().exit_code == 1
    assert "PROBLEM" in verify().output
    assert verify("--expect", "nonsense").exit_code == 2
    missing = CliRunner().invoke(program, ["audit", "verify", "--state-dir", str(state / "no")])
    assert (missing.exit_code, "no audit log" in missing.output) == (1, True)


def test_verify_command_says_since_when_the_log_is_whole(tmp_path: Path) -> None:
    """What was pruned is not vouched for: the verdict names the oldest line and its time."""
    with a_log(tmp_path / "audit", file_bytes=1, max_files=3) as log:
        for number in range(20):
            append(log, number)
            wait_for(lambda: log.is_flushed)
    oldest = next(entries(tmp_path / "audit"))[0]
    result = CliRunner().invoke(program, ["audit", "verify", "--state-dir", str(tmp_path)])

    assert oldest["seq"] > 1
    assert f"whole since {oldest['time']} (line {oldest['seq']}):" in result.output
    assert result.exit_code == 0


def emptied(directory: Path) -> None:
    for file in audit_files(directory):
        file.path.write_bytes(b"")


def removed(directory: Path) -> None:
    for file in audit_files(directory):
        file.path.unlink()


@pytest.mark.parametrize("change", [emptied, removed])
@pytest.mark.parametrize("log", [".", "strangers"])
def test_log_without_lines_is_not_called_whole(
    change: Callable[[Path], None], log: str, tmp_path: Path
) -> None:
    """Neither the log of known callers nor that of strangers can be emptied unnoticed."""
    directory = tmp_path / "audit"
    for begun in (directory, directory / "strangers"):
        with a_log(begun) as written:
            append(written, 1)
    whole = CliRunner().invoke(program, ["audit", "verify", "--state-dir", str(tmp_path)])
    assert whole.exit_code == 0, whole.output
    change(directory / log)

    result = CliRunner().invoke(program, ["audit", "verify", "--state-dir", str(tmp_path)])
    assert (result.exit_code, "NOT WHOLE: 0 lines" in result.output) == (1, True), result.output


def test_commands_find_the_log_by_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --state-dir they read the log of the daemon with these settings."""
    with a_log(tmp_path / "audit") as log:
        append(log, 1)
    monkeypatch.setenv("SANDBOXD_STATE_DIR", str(tmp_path))
    result = CliRunner().invoke(program, ["audit", "verify"])
    assert (result.exit_code, result.output.startswith("whole since ")) == (0, True)
    assert "(line 1): 1 lines" in result.output


def test_show_command_selects(tmp_path: Path) -> None:
    """`audit show` prints the selected lines; text from callers cannot forge one."""
    with a_log(tmp_path / "audit") as log:
        log.append(lambda: {"action": "session.opened", "user": "ada", "session": "s1"})
        log.append(lambda: {"action": "exec", "user": "ada", "command": "echo\n  9 forged"})
        log.append(lambda: {"action": "session.ended", "user": "bob", "session": "s2"})

    def show(*options: str) -> list[str]:
        result = CliRunner().invoke(
            program, ["audit", "show", "--state-dir", str(tmp_path), *options]
        )
        assert result.exit_code == 0, result.output
        return result.output.splitlines()

    assert len(show()) == 3
    assert "command='echo\\n  9 forged'" in show("--action", "exec")[0]
    assert len(show("--action", "session")) == 2
    assert len(show("--user", "ada", "--session", "s1")) == 1
    assert "session.ended" in show("-n", "1")[0]
    assert len(show("-n", "0")) == 3
    assert show("--since", "2999") == []
    assert json.loads(show("--json", "--user", "bob")[0])["session"] == "s2"
    with a_log(tmp_path / "audit" / "strangers") as log:
        log.append(lambda: {"action": "calls.refused", "peer": "ipv4:10.0.0.1", "calls": 7})
    assert len(show()) == 3
    (line,) = show("--strangers")
    assert "peer='ipv4:10.0.0.1' calls=7" in line
