"""What outlives the daemon: labels that cannot be forged, and records of ended execs."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.execs.ending import ExitStatus, Reason
from sandboxd.execs.exec import ExecDetails
from sandboxd.execs.records import ExecRecords, Labels
from sandboxd.guest.frames import MAX_LABEL
from sandboxd.isolation.meter import Usage

DETAILS = ExecDetails(
    exec_id="e1",
    digest="0" * 32,
    command="make test",
    timeout_seconds=30.0,
    no_output_seconds=None,
    survives_disconnect=True,
    has_stdin=False,
    has_terminal=False,
    shell_name="",
    started_at=1_700_000_000.25,
)
STATUS = ExitStatus(
    reason=Reason.EXITED,
    code=3,
    duration_seconds=1.5,
    stdout_bytes=10,
    stderr_bytes=0,
    hint="",
    stdout_dropped=4,
)
USAGE = Usage(peak_memory_bytes=1, cpu_seconds=0.5, peak_processes=2, oom_kills=0, refused_forks=0)
LABELS = Labels(b"secret")

details = st.builds(
    ExecDetails,
    exec_id=st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    digest=st.just("f" * 32),
    command=st.text(max_size=200),
    timeout_seconds=st.floats(0.001, 1e6),
    no_output_seconds=st.none() | st.floats(0.001, 1e6),
    survives_disconnect=st.booleans(),
    has_stdin=st.booleans(),
    has_terminal=st.booleans(),
    shell_name=st.from_regex(r"[A-Za-z0-9_.-]{0,64}", fullmatch=True),
    started_at=st.floats(0, 4e9),
    is_chosen=st.booleans(),
    began=st.none() | st.floats(0, 4e9),
    context=st.from_regex(r"[A-Za-z0-9_.-]{0,64}", fullmatch=True),
    generation=st.integers(0, 1 << 32),
    run=st.integers(0, 1 << 32),
)


@given(known=details)
def test_label_says_the_same_to_the_next_daemon(known: ExecDetails) -> None:
    """Any details come back, within what a guest may be given; at most the command is cut."""
    label = LABELS.seal(known, "sandbox").encode()
    read = LABELS.open(label, "sandbox")

    assert len(label) <= MAX_LABEL
    assert read is not None
    assert read._replace(command=known.command) == known
    assert known.command.startswith(read.command)


def test_reason_goes_with_the_record_of_the_end(tmp_path: Path) -> None:
    """Why an exec is being ended is kept until its end is, and no longer."""
    records = ExecRecords(tmp_path)
    records.save_reason("s-e1", Reason.TIMED_OUT)
    assert list(records.load("s-")) == []
    assert records.load_reason("s-e1") is Reason.TIMED_OUT
    records.save("s-e1", DETAILS, STATUS)

    assert records.load_reason("s-e1") is None
    assert [path.name for path in tmp_path.iterdir()] == ["s-e1.end"]


@pytest.mark.parametrize("content", [b"", b"NONE", b"\xff", b"TIMED_OUT" * 100])
def test_damaged_reason_is_none(content: bytes, tmp_path: Path) -> None:
    """A daemon that died while it wrote one had ended nothing yet."""
    records = ExecRecords(tmp_path)
    records.save_reason("s-e1", Reason.TIMED_OUT)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)

    assert records.load_reason("s-e1") is None


@pytest.mark.parametrize("how", ["delete", "delete_all", "sweep"])
def test_reason_is_deleted_with_its_session(how: str, tmp_path: Path) -> None:
    """No file of a session outlives it."""
    records = ExecRecords(tmp_path)
    records.save_reason("s-e1", Reason.TIMED_OUT)
    if how == "delete":
        records.delete("s-e1")
    elif how == "delete_all":
        records.delete_all("s-")
    else:
        records.sweep(("t-",))

    assert list(tmp_path.iterdir()) == []


def test_label_of_an_earlier_release_is_understood() -> None:
    """One that lacks what was added since is ours all the same: an upgrade loses no command."""
    text = json.dumps(DETAILS[:-1])
    label = LABELS._seal(text, "sandbox") + text

    assert LABELS.open(label.encode(), "sandbox") == DETAILS


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_elapsed_time_does_not_follow_the_clock_on_the_wall(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that was set meanwhile neither ends a command early nor prolongs it."""
    began = DETAILS._replace(started_at=time.time(), began=time.monotonic() - 10)
    shifted = time.time() + step
    monkeypatch.setattr(time, "time", lambda: shifted)

    assert began.elapsed_seconds == pytest.approx(10, abs=1)


@given(position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_label_with_any_byte_changed_is_not_ours(position: int, value: int) -> None:
    """One changed byte anywhere is enough."""
    label = bytearray(LABELS.seal(DETAILS, "sandbox").encode())
    before = label[position % len(label)]
    label[position % len(label)] = value

    assert (LABELS.open(bytes(label), "sandbox") is not None) == (value == before)


@given(label=st.binary(max_size=200))
def test_made_up_label_is_not_ours(label: bytes) -> None:
    """Whatever a guest makes up says nothing, and nothing is raised."""
    assert LABELS.open(label, "sandbox") is None


def test_label_is_of_one_sandbox_and_one_secret() -> None:
    """Neither a neighbour's label nor one of another daemon is believed."""
    label = LABELS.seal(DETAILS, "sandbox").encode()

    assert LABELS.open(label, "other") is None
    assert Labels(b"another").open(label, "sandbox") is None


def test_label_of_another_release_is_no_error() -> None:
    """Details in a form that this daemon does not know belong to nobody."""
    for text in ("[]", "[1,2]", "not json"):
        label = LABELS._seal(text, "sandbox") + text
        assert LABELS.open(label.encode(), "sandbox") is None


def test_secret_is_made_once_and_is_private(tmp_path: Path) -> None:
    """The next daemon reads what this one sealed, and nobody else can."""
    label = Labels.load(tmp_path).seal(DETAILS, "sandbox").encode()

    assert Labels.load(tmp_path).open(label, "sandbox") == DETAILS
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(file.read_bytes()) == 32


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("usage", [None, USAGE])
def test_record_comes_back_as_it_was_saved(
    usage: Usage | None, reason: Reason, tmp_path: Path
) -> None:
    """Every field survives."""
    records, status = ExecRecords(tmp_path), STATUS._replace(reason=reason, usage=usage)
    records.save("ses_1.1-e1", DETAILS, status)

    assert list(ExecRecords(tmp_path).load("ses_1.1-")) == [("ses_1.1-e1", DETAILS, status)]


def test_records_are_found_by_their_beginning(tmp_path: Path) -> None:
    """Those of other sessions and of other incarnations stay out, and a sweep removes them."""
    records = ExecRecords(tmp_path)
    for key in ("ses_1.1-e1", "ses_1.1-e2", "ses_1.11-e1", "ses_2.1-e1"):
        records.save(key, DETAILS, STATUS)
    records.delete("ses_1.1-e2")
    records.delete("ses_1.1-nobody")

    assert [key for key, _, _ in records.load("ses_1.1-")] == ["ses_1.1-e1"]
    records.sweep(("ses_1.11-",))
    assert [file.name for file in tmp_path.iterdir()] == ["ses_1.11-e1.end"]
    records.sweep(())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", '{"facts": {}}', '{"facts": 7, "status": 7}'),
        pytest.param("[" * 5000, id="deep"),
        '{"facts": {"exec_id": "e"}, "status": {}}',
    ],
)
def test_damaged_record_is_left_out(content: str, tmp_path: Path) -> None:
    """One that cannot be read costs nobody else theirs."""
    records = ExecRecords(tmp_path)
    (tmp_path / "s-a.end").write_text(content)
    records.save("s-b", DETAILS, STATUS)

    assert [key for key, _, _ in records.load("s-")] == ["s-b"]


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("facts", "started_at", None),
        ("facts", "started_at", float("inf")),
        ("facts", "timeout_seconds", float("nan")),
        ("facts", "command", 7),
        ("facts", "exec_id", ["e1"]),
        ("facts", "unknown", 7),
        ("status", "code", 1 << 31),
        ("status", "stdout_bytes", -1),
        ("status", "hint", None),
        ("status", "usage", {"peak_memory_bytes": "much"}),
        ("status", "usage", 7),
    ],
)
def test_record_with_what_cannot_be_is_left_out(
    part: str, field: str, value: object, tmp_path: Path
) -> None:
    """A listing would fail on it, and with it for all execs of the session."""
    records = ExecRecords(tmp_path)
    records.save("s-a", DETAILS, STATUS._replace(usage=USAGE))
    records.save("s-b", DETAILS, STATUS)
    record = json.loads((tmp_path / "s-a.end").read_text())
    record[part][field] = value
    (tmp_path / "s-a.end").write_text(json.dumps(record))

    assert [key for key, _, _ in records.load("s-")] == ["s-b"]


def test_record_of_a_reason_that_is_not_known_is_left_out(tmp_path: Path) -> None:
    """A newer daemon may have had reasons that this one lacks."""
    records = ExecRecords(tmp_path)
    records.save("s-a", DETAILS, STATUS)
    record = json.loads((tmp_path / "s-a.end").read_text())
    record["status"]["reason"] = "FUTURE"
    (tmp_path / "s-a.end").write_text(json.dumps(record))

    assert list(records.load("s-")) == []


def test_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """Late readers of a later daemon miss it; nothing else happens."""
    records = ExecRecords(tmp_path / "missing")
    records.save("s-a", DETAILS, STATUS)

    assert list(records.load("s-")) == []
