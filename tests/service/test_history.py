"""What is remembered of commands: history, audit log and statistics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.audit.check import check, entries
from sandboxd.audit.files import strangers_directory
from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd_proto.v1 import admin_service_pb2, exec_pb2, session_service_pb2
from sandboxd_proto.v1 import file_service_pb2 as pb
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, events, exec_request, refused
from tests.service.file_client import FileClient

StartDaemon = Callable[..., Awaitable[Daemon]]


async def told(daemon: Daemon, *, action: str) -> list[dict[str, Any]]:
    """Entries of the audit log whose action begins so, once all is written."""
    daemon.journal.flush()
    await eventually(lambda: daemon.journal.audit.is_flushed)
    found = [entry for entry, _ in entries(daemon.config.audit_dir)]
    return [entry for entry in found if entry["action"].startswith(action)]


async def told_of_strangers(daemon: Daemon) -> list[dict[str, Any]]:
    """Lines of the log of strangers, once all is written."""
    strangers = daemon.journal.strangers
    strangers.flush()
    await eventually(lambda: strangers.audit.is_flushed)
    found = [entry for entry, _ in entries(strangers_directory(daemon.config.audit_dir))]
    return [entry for entry in found if entry["action"] == "calls.refused"]


# --- history ---


async def test_every_command_is_in_the_history(api: Api) -> None:
    """However it was started, an ended command is listed with its end, newest first."""
    session_id = await api.open_id()
    await api.run(session_id, "echo one")
    await api.run(session_id, "err two; exit 3", exec_id="e2")
    _ = [event async for event in events(api.exec(session_id, "echo three", exec_id="e3"))]
    await api.start(session_id, "echo four", "e4")
    await api.wait(session_id, "e4")

    found = (await api.executions(session_id)).executions
    assert [one.command for one in found] == [
        "echo four",
        "echo three",
        "err two; exit 3",
        "echo one",
    ]
    second = found[2]
    assert (second.exec_id, second.incarnation, second.exit.code) == ("e2", 1, 3)
    assert second.exit.reason == exec_pb2.EXIT_REASON_EXITED
    assert (second.exit.stdout_bytes, second.exit.stderr_bytes) == (0, len("two\n"))
    assert second.exit.duration.ToTimedelta().total_seconds() > 0
    assert second.start_time.seconds > 1_600_000_000


async def test_history_comes_in_pages(api: Api) -> None:
    """Page after page gives every command once, also when others end meanwhile."""
    session_id = await api.open_id()
    for number in range(5):
        await api.run(session_id, f"echo {number}")
    seen, token = [], ""
    while True:
        page = await api.executions(session_id, page_size=2, page_token=token)
        seen += [one.command for one in page.executions]
        await api.run(session_id, "echo later")
        if not (token := page.next_page_token):
            break
    assert seen == [f"echo {number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "\u0663"])
async def test_history_refuses_a_token_that_is_none(token: str, api: Api) -> None:
    """A page token of the caller's own making is told as such."""
    session_id = await api.open_id()
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await api.executions(session_id, page_token=token)


async def test_history_of_a_session_is_bounded(start_daemon: StartDaemon) -> None:
    """Of each session the newest commands stay, up to the setting, and of all together too."""
    daemon = await start_daemon(history_per_session=3, history_in_all=4)
    async with Api(daemon.config.api_socket) as api:
        first, second = await api.open_id(thread="t1"), await api.open_id(thread="t2")
        for number in range(5):
            await api.run(first, f"echo {number}")
        assert [one.command for one in (await api.executions(first)).executions] == [
            "echo 4",
            "echo 3",
            "echo 2",
        ]
        for number in range(3):
            await api.run(second, f"echo {number}")
        assert len((await api.executions(second)).executions) == 3
        assert [one.command for one in (await api.executions(first)).executions] == ["echo 4"]


async def test_history_outlives_the_daemon_and_the_session(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A closed session still tells what ran in it, also after a restart."""
    async with running(config, engine=engine, maker=guests.maker), Api(config.api_socket) as api:
        session_id = await api.open_id()
        await api.run(session_id, "echo kept")
        await api.close(session_id)
    async with running(config, engine=engine, maker=guests.maker), Api(config.api_socket) as api:
        (kept,) = (await api.executions(session_id)).executions
    assert kept.command == "echo kept"


async def test_history_of_a_session_that_is_not_there(api: Api) -> None:
    """An unknown session has no history to tell."""
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await api.executions("ses_none")


# --- audit ---


async def test_short_command_is_one_entry(api: Api, daemon: Daemon) -> None:
    """Who, where, what, why it was allowed, how it ended and how much it moved."""
    session_id = await api.open_id("ada", "t1")
    await api.run(session_id, "echo hi; exit 4", exec_id="e1")

    (entry,) = await told(daemon, action="exec")
    wanted = {
        "action": "exec",
        "who": "host",
        "user": "ada",
        "thread": "t1",
        "session": session_id,
        "incarnation": 1,
        "exec": "e1",
        "command": "echo hi; exit 4",
        "decision": "allowed by policy open",
        "ending": "EXITED",
        "code": 4,
        "signal": None,
        "bytes_in": 0,
        "bytes_out": 3,
    }
    assert {name: entry[name] for name in wanted} == wanted
    assert check(daemon.config.audit_dir).is_whole


async def test_long_command_is_told_when_it_starts_and_when_it_ends(
    api: Api, daemon: Daemon
) -> None:
    """A command that runs is in the log already, and its end follows."""
    session_id = await api.open_id()
    await api.start(session_id, "sleep", "e1")
    (started,) = await told(daemon, action="exec")
    assert (started["action"], started["command"]) == ("exec.started", "sleep")
    await api.close(session_id)

    _, ended = await told(daemon, action="exec")
    assert (ended["action"], ended["exec"]) == ("exec.ended", "e1")
    assert ended["ending"] == "SESSION_CLOSED"


async def test_long_command_line_is_cut_and_counted(api: Api, daemon: Daemon) -> None:
    """Only the length of a command is bounded in the log, and it is said that it was."""
    await api.run(await api.open_id(), "echo " + "x" * 10_000)
    (entry,) = await told(daemon, action="exec")
    assert (len(entry["command"]), entry["command_characters"]) == (4096, 10_005)


async def test_sessions_and_refusals_are_told(api: Api, daemon: Daemon) -> None:
    """Opening, ending, and every call that was refused, with what it asked for."""
    session_id = await api.open_id("ada", "t1")
    await api.open_id("ada", "t1")
    await api.sessions.ResetSession(session_service_pb2.ResetSessionRequest(session_id=session_id))
    await api.close(session_id)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
        await api.run(session_id, argv=["rm", "-rf", "a b"])

    opened, attached, reset, ended = await told(daemon, action="session")
    assert (opened["outcome"], attached["outcome"]) == ("created", "attached")
    assert (reset["action"], reset["who"], reset["incarnation"]) == ("session.reset", "host", 2)
    assert (ended["who"], ended["state"], ended["why"]) == ("host", "closed", "it was closed")
    (refusal,) = await told(daemon, action="call.refused")
    assert (refusal["method"], refusal["reason"]) == ("Run", "SESSION_CLOSED")
    assert (refusal["session"], refusal["command"]) == (session_id, "rm -rf 'a b'")


async def test_denied_command_is_told_with_the_rule(start_daemon: StartDaemon) -> None:
    """A command that the policy refuses is in the log, with what it was and why."""
    daemon = await start_daemon(command_policy="strict")
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        with refused(grpc.StatusCode.PERMISSION_DENIED, "COMMAND_NOT_ALLOWED"):
            await api.run(session_id, "sudo reboot")

    (refusal,) = await told(daemon, action="call.refused")
    assert (refusal["reason"], refusal["command"]) == ("COMMAND_NOT_ALLOWED", "sudo reboot")
    assert refusal["session"] == session_id
    assert "sudo" in refusal["message"]


async def test_caller_with_a_token_is_named(start_daemon: StartDaemon, short_dir: Path) -> None:
    """Who did it is the name of the token, not what the request says."""
    tokens, secret = short_dir / "tokens", new_token()
    caller = Caller(name="adas-laptop", scope=Scope.USER, user_id="ada")
    tokens.write_text(line(caller, hash_of(secret)))
    tokens.chmod(0o600)
    daemon = await start_daemon(tokens_file=tokens, socket_auth="token")
    async with Api(daemon.config.api_socket) as api:
        request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="t1")
        bearer = (("authorization", f"Bearer {secret}"),)
        await api.sessions.OpenSession(request, metadata=bearer)

    (opened,) = await told(daemon, action="session.opened")
    assert (opened["who"], opened["user"]) == ("adas-laptop", "ada")


@pytest.mark.parametrize("path", ["docs/\u00e4.txt", b"odd\xff"])
async def test_failed_uploads_are_told_with_their_path(
    path: str | bytes, api: Api, daemon: Daemon
) -> None:
    """Of an upload that fails, before or after its bytes came, the log has session and path."""
    session_id = await api.open_id()
    files = FileClient(api.files, session_id)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await files.upload(path, b"x", sha256=b"short")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARCHIVE"):
        await files.upload_tar(path, b"no archive")

    refusals = await told(daemon, action="call.refused")
    assert [one["method"] for one in refusals] == ["UploadFile", "UploadTar"]
    for refusal in refusals:
        assert (refusal["who"], refusal["session"]) == ("host", session_id)
        assert refusal["path"] == (path if isinstance(path, str) else "odd\ufffd")


@pytest.mark.parametrize("who", ["watcher", "unknown"])
async def test_denied_calls_are_put_down_to_who_made_them(
    who: str, start_daemon: StartDaemon, short_dir: Path
) -> None:
    """A call that is denied at the entrance is recorded with the name of the token and what it
    asked for; calls of somebody unknown are counted in a log of their own."""
    tokens, secret = short_dir / "tokens", new_token()
    tokens.write_text(line(Caller(name="watcher", scope=Scope.READ_ONLY), hash_of(secret)))
    tokens.chmod(0o600)
    daemon = await start_daemon(tokens_file=tokens, socket_auth="token")
    bearer = (("authorization", f"Bearer {secret if who == 'watcher' else new_token()}"),)
    async with Api(daemon.config.api_socket) as api:
        files = FileClient(api.files, "ses_one")
        for call in (
            api.execs.Run(exec_request("ses_one", "echo hi"), metadata=bearer),
            api.files.UploadFile(iter_of(files.header("secret.txt")), metadata=bearer),
            api.files.UploadTar(
                iter_of(pb.UploadTarRequest(header=pb.UploadTarHeader(path="up"))), metadata=bearer
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError):
                await call

    denied = await told(daemon, action="call.refused")
    if who == "unknown":
        assert denied == []
        (line_of_peer,) = await told_of_strangers(daemon)
        assert (line_of_peer["who"], line_of_peer["peer"]) == ("unknown", "unix")
        assert line_of_peer["methods"] == {"Run": 1, "UploadFile": 1, "UploadTar": 1}
        return
    refusals = {one["method"]: one for one in denied}
    run, upload, tar = (refusals[method] for method in ("Run", "UploadFile", "UploadTar"))
    assert {one["who"] for one in refusals.values()} == {who}
    assert (run["session"], run["command"]) == ("ses_one", "echo hi")
    assert (upload["session"], upload["path"]) == ("ses_one", "secret.txt")
    assert tar["path"] == "up"


async def test_strangers_cannot_fill_the_audit_log(
    start_daemon: StartDaemon, short_dir: Path
) -> None:
    """Any number of calls without credentials, whatever they carry, adds nothing to the log of
    known callers, and one line for each peer and minute to that of strangers."""
    tokens = short_dir / "tokens"
    tokens.write_text(line(Caller(name="ops", scope=Scope.ADMIN), hash_of(new_token())))
    tokens.chmod(0o600)
    daemon = await start_daemon(tokens_file=tokens, socket_auth="token")
    before = await told(daemon, action="")
    long = "\x1b" * 4000
    async with Api(daemon.config.api_socket) as api:
        for _ in range(100):
            with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
                await api.run(long, long, exec_id=long)

    assert await told(daemon, action="") == before
    assert check(daemon.config.audit_dir).is_whole
    (told_line,) = await told_of_strangers(daemon)
    assert told_line["calls"] == 100
    assert len(str(told_line)) < 1000


async def test_refused_call_is_recorded_in_bounds(api: Api, daemon: Daemon) -> None:
    """Ids that cannot be valid do not make the line of a known caller long."""
    long = "x" * 100_000
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await api.run(long, "true", exec_id=long)
    (refusal,) = await told(daemon, action="call.refused")

    assert (len(refusal["session"]), len(refusal["exec"])) == (256, 256)
    assert len(str(refusal)) < 2000


async def iter_of(*messages: Message) -> AsyncIterator[Message]:
    for message in messages:
        yield message


async def test_session_that_expires_is_ended_by_the_daemon(api: Api, daemon: Daemon) -> None:
    """What nobody asked for is not put down to a caller."""
    await api.open(idle_timeout=1.0)
    await eventually(lambda: daemon.sessions.active_count == 0)
    (ended,) = await told(daemon, action="session.ended")
    assert (ended["who"], ended["state"]) == ("daemon", "expired")


# --- statistics ---


async def test_input_for_a_command_that_has_ended_is_no_refused_call(api: Api) -> None:
    """The command line passes on its input, and every command may end before it has read it."""
    session_id = await api.open_id()
    await api.start(session_id, "echo hi", "over", stdin=True)
    await api.wait(session_id, "over")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "EXEC_ENDED"):
        await api.write(session_id, "over", 0, b"", eof=True)

    assert not (await api.statistics()).refused_calls


async def test_statistics_count_what_happened(api: Api, daemon: Daemon) -> None:
    """Opens, ends, success, times, reuse, limits and refusals, each where it belongs."""
    session_id = await api.open_id()
    await api.open_id()
    await api.run(session_id, "echo hi")
    await api.run(session_id, "exit 1")
    await api.run(session_id, "sleep", timeout=0.05)
    await api.run(session_id, "echo hi")
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await api.get("ses_none")
    other = await api.open_id(thread="t2")
    await api.close(other)
    statistics = await api.statistics()
    assert dict(statistics.sessions.opens) == {"CREATED": 2, "ATTACHED": 1}
    assert dict(statistics.sessions.ends) == {"CLOSED": 1}
    assert statistics.sessions.reuse_rate == pytest.approx(1 / 3)
    execs = statistics.execs
    assert dict(execs.ends) == {"EXITED": 3, "TIMED_OUT": 1}
    assert (execs.total, execs.succeeded, execs.success_rate) == (4, 2, 0.5)
    assert execs.output_bytes == 6
    assert execs.durations.count == 4
    assert execs.durations.p99.ToTimedelta().total_seconds() >= 0.05
    assert dict(statistics.limit_violations) == {"TIMEOUT": 1}
    assert dict(statistics.refused_calls) == {"SESSION_NOT_FOUND": 1}
    assert (statistics.calls["Run"], statistics.failed_calls["GetSession"]) == (4, 1)
    assert (statistics.active_sandboxes, statistics.running_execs) == (1, 0)
    assert 0 <= statistics.pool_hit_rate <= 1
    assert [pool.environment for pool in statistics.pools] == ["default"]


async def test_statistics_say_since_when(api: Api) -> None:
    """Counts come with the time from which on they count; the history is told only when asked."""
    statistics = await api.statistics()
    began = statistics.since.ToDatetime(UTC) + statistics.uptime.ToTimedelta()
    assert abs(datetime.now(UTC) - began) < timedelta(seconds=5)
    assert not statistics.HasField("history")


async def test_statistics_of_the_history_outlive_the_daemon(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """What an earlier daemon ran is in the figures of the history and not in the counts."""
    async with running(config, engine=engine, maker=guests.maker), Api(config.api_socket) as api:
        session_id = await api.open_id()
        empty = (await api.statistics(with_history=True)).history
        assert (empty.total, empty.success_rate, empty.HasField("since")) == (0, 1, False)
        await api.run(session_id, "echo kept")
        await api.run(session_id, "exit 3")
        await api.run(session_id, "sleep", timeout=0.05)
    async with running(config, engine=engine, maker=guests.maker), Api(config.api_socket) as api:
        statistics = await api.statistics(with_history=True)
    history = statistics.history
    assert (statistics.execs.total, history.total, history.succeeded) == (0, 3, 1)
    assert dict(history.ends) == {"EXITED": 2, "TIMED_OUT": 1}
    assert history.success_rate == pytest.approx(1 / 3)
    assert history.durations.count == 3
    assert history.durations.max.ToTimedelta() >= timedelta(seconds=0.05)
    assert history.durations.p50.ToTimedelta() <= history.durations.p99.ToTimedelta()
    assert history.since.ToDatetime() < statistics.since.ToDatetime()


async def test_statistics_tell_the_head_of_the_audit_log(api: Api, daemon: Daemon) -> None:
    """An operator can note how far the log is, and check for it later."""
    await api.open_id()
    await told(daemon, action="session")
    audit = (await api.statistics()).audit
    head = check(daemon.config.audit_dir).head
    assert (audit.head_sequence, audit.head_hash, audit.lost_entries) == (*head, 0)


async def test_lines_of_the_audit_log_are_listed(api: Api, daemon: Daemon) -> None:
    """Newest first, in pages that together are the log, and by user, session and action."""
    mine = [await api.open_id(user="ada", thread=str(number)) for number in range(3)]
    await api.open_id(user="bob")
    whole = await told(daemon, action="")
    listed: list[admin_service_pb2.AuditLine] = []
    token = ""
    while token or not listed:
        page = await api.admin.ListAudit(
            admin_service_pb2.ListAuditRequest(page_size=3, page_token=token)
        )
        listed += page.lines
        token = page.next_page_token
    assert [line.sequence for line in listed] == [entry["seq"] for entry in reversed(whole)]
    assert json.loads(listed[0].json)["action"] == listed[0].action == whole[-1]["action"]

    async def sessions(**asked: str) -> list[str]:
        request = admin_service_pb2.ListAuditRequest(action="session.opened", **asked)
        lines = (await api.admin.ListAudit(request)).lines
        return [json.loads(line.json)["session"] for line in lines]

    assert await sessions(who="ada") == mine[::-1]
    assert await sessions(session_id=mine[1]) == [mine[1]]
    assert await sessions(who="eve") == []
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await api.admin.ListAudit(admin_service_pb2.ListAuditRequest(page_token="x"))


async def test_changed_audit_log_is_noticed(api: Api, daemon: Daemon) -> None:
    """A line that is changed after it was written breaks the chain, and is left out of listings."""
    await api.open_id()
    whole = await told(daemon, action="")
    verdict = await api.admin.VerifyAudit(admin_service_pb2.VerifyAuditRequest())
    assert (verdict.whole, verdict.lines, list(verdict.problems)) == (True, len(whole), [])
    (file,) = daemon.config.audit_dir.glob("audit-*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"session.opened", b"session.closed"))

    verdict = await api.admin.VerifyAudit(admin_service_pb2.VerifyAuditRequest())
    assert not verdict.whole
    assert "hash" in verdict.problems[0]
    page = await api.admin.ListAudit(admin_service_pb2.ListAuditRequest())
    assert "session.closed" not in {line.action for line in page.lines}


async def test_figures_have_a_past(api: Api, daemon: Daemon) -> None:
    """The first message has what is kept, then one sample comes after the other."""
    session_id = await api.open_id()
    await api.run(session_id, "true")
    call = api.admin.WatchFigures(admin_service_pb2.WatchFiguresRequest(), timeout=60)
    first = await call.read()
    assert first.minutes
    assert first.seconds
    counts = [first.seconds[-1]]
    while not counts[-1].execs:
        counts += (await call.read()).seconds
    assert (counts[-1].active_sessions, counts[-1].opens) == (1, 1)
    assert [sample.time.ToNanoseconds() for sample in counts] == sorted(
        {sample.time.ToNanoseconds() for sample in counts}
    )
    call.cancel()


async def test_repeated_calls_are_counted_with_their_success(api: Api) -> None:
    """Clients say which calls they repeat by themselves; the part that helped is told."""
    session_id = await api.open_id()
    again = (("sandboxd-retry", "1"),)
    await api.execs.Run(exec_request(session_id, "true"), metadata=again)
    call = api.execs.Exec(exec_request(session_id, "true"), metadata=again)
    _ = [event async for event in events(call)]
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        await api.execs.Run(exec_request("ses_none", "true"), metadata=again)
    await api.run(session_id, "true")

    retries = (await api.statistics()).retries
    assert (retries.attempts, retries.succeeded) == (3, 2)
    assert retries.success_rate == pytest.approx(2 / 3)


async def test_command_that_cannot_start_is_counted_as_such(api: Api, guests: FakeGuests) -> None:
    """A command that never ran is neither a success nor an exit."""
    session_id = await api.open_id()
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "COMMAND_NOT_STARTABLE"):
        await api.run(session_id, "refuse no such directory")

    assert dict((await api.statistics()).execs.ends) == {"NOT_STARTED": 1}
    (one,) = (await api.executions(session_id)).executions
    assert one.not_started
    assert "no such directory" in one.exit.hint


async def test_usage_is_asked_for(api: Api) -> None:
    """Listing tells no usage unless asked, and then in smaller pages."""
    await api.open_id()
    (plain,) = (await api.list()).sessions
    assert not plain.HasField("usage")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"):
        await api.list(with_usage=True, page_size=201)
    request = session_service_pb2.ListSessionsRequest(with_usage=True, page_size=200)
    assert len((await api.sessions.ListSessions(request)).sessions) == 1
