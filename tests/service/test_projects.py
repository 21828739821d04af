"""ProjectService at its edge: uploads of all kinds, bad requests, limits, and who did what."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio

from sandboxd.daemon.composition import Daemon
from sandboxd.daemon.instance import StartRefused
from sandboxd.isolation.attachment import Attachment
from sandboxd.projects.index import VERSION
from sandboxd_proto.v1 import project_service_pb2 as pb
from tests.fakes.guest import FakeGuests, FakeProcess
from tests.fakes.waiting import eventually
from tests.service.client import Api, refused
from tests.service.project_client import ProjectClient
from tests.service.test_history import told

StartDaemon = Callable[..., Awaitable[Daemon]]
INVALID = (StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST")
NOT_ALLOWED = (StatusCode.PERMISSION_DENIED, "FILE_TYPE_NOT_ALLOWED")
MIB = 1 << 20
ELF = b"\x7fELF\x02\x01\x01" + bytes(57)


@pytest.fixture
async def project(api: Api) -> ProjectClient:
    """One that exists."""
    project = ProjectClient(api.projects)
    assert await project.create()
    return project


def stored_in(daemon: Daemon) -> list[str]:
    """All files below the store but its index, which are content, names and descriptions."""
    store = daemon.config.state_dir / "store"
    return sorted(
        str(path.relative_to(store))
        for path in store.rglob("*")
        if path.is_file() and not path.name.startswith("index.sqlite")
    )


# --- files in and out ---


async def test_files_go_in_and_out(project: ProjectClient) -> None:
    """Whole, with size, checksum and type, in chunks of any size; and empty ones too."""
    data = os.urandom(2 * MIB + 17)
    done = await project.upload("big.bin", data, sha256=hashlib.sha256(data).digest())

    assert done.outcome == pb.UPLOAD_OUTCOME_CREATED
    assert (done.file.size_bytes, done.file.sha256) == (len(data), hashlib.sha256(data).digest())
    assert done.file.mime_type == "application/octet-stream"
    assert await project.download("big.bin") == data
    await project.upload("empty.csv", b"", size_bytes=None)
    assert await project.download("empty.csv") == b""
    call = project.stub.UploadProjectFile(timeout=20)
    await call.write(project.header("parts.txt"))
    for chunk in (b"a", b"", b"b" * 300):
        await call.write(pb.UploadProjectFileRequest(chunk=chunk))
    await call.done_writing()
    await call
    assert await project.download("parts.txt") == b"a" + b"b" * 300


async def test_names_are_cleaned_and_numbered(project: ProjectClient) -> None:
    """The answer has the name that the file got; to send it again changes nothing."""
    first = await project.upload("C:\\Users\\ada\\report.pdf", b"%PDF-1.7 \0 one")
    second = await project.upload("dir/report.pdf", b"%PDF-1.7 \0 two")
    again = await project.upload("report.pdf", b"%PDF-1.7 \0 two")

    assert [one.file.name for one in (first, second, again)] == [
        "report.pdf",
        "report (1).pdf",
        "report (1).pdf",
    ]
    assert again.outcome == pb.UPLOAD_OUTCOME_UNCHANGED
    replaced = await project.upload(
        "report.pdf", b"%PDF-1.7 \0 three", on_conflict=pb.ON_CONFLICT_REPLACE
    )
    assert replaced.outcome == pb.UPLOAD_OUTCOME_REPLACED
    with refused(StatusCode.ALREADY_EXISTS, "FILE_EXISTS"):
        await project.upload("REPORT.pdf", b"%PDF-1.7 \0 x", on_conflict=pb.ON_CONFLICT_FAIL)
    assert await project.names() == ["report (1).pdf", "report.pdf"]


async def test_listings_come_in_pages(project: ProjectClient, api: Api) -> None:
    """Every file and every project once, in order, with what the user has in all."""
    for number in range(7):
        await project.upload(f"f{number}.txt", b"x" * number)
        await ProjectClient(api.projects, project_id=f"p{number}").create()

    assert [file.name for file in await project.files(page_size=3)] == [
        f"f{number}.txt" for number in range(7)
    ]
    found, token = [], ""
    while True:
        page = await project.all_of_user(page_size=3, page_token=token)
        found += [one.project_id for one in page.projects]
        token = page.next_page_token
        assert (page.usage.projects, page.usage.files, page.usage.size_bytes) == (8, 7, 21)
        if not token:
            break
    assert found == ["book", *(f"p{number}" for number in range(7))]
    assert (await project.get()).files == 7


async def test_a_project_is_created_once_and_deleted_with_its_files(
    project: ProjectClient, daemon: Daemon
) -> None:
    """To create it again is not an error; what is deleted is gone from the disk."""
    await project.upload("a.txt", b"x")
    assert not await project.create()
    assert (await project.delete_file("a.txt")).size_bytes == 1
    await project.upload("b.txt", b"y")
    assert (await project.delete()).files == 1

    assert stored_in(daemon) == []
    for call in (project.get, project.delete, project.files):
        with refused(StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND"):
            await call()
    with refused(StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND"):
        await project.upload("a.txt", b"x")


async def test_a_download_outlives_its_file(project: ProjectClient) -> None:
    """What was begun is sent to its end, also when the project is deleted."""
    data = os.urandom(8 * MIB)
    await project.upload("big.bin", data)
    request = pb.DownloadProjectFileRequest(user_id="ada", project_id="book", name="big.bin")
    call = project.stub.DownloadProjectFile(request, timeout=60)
    assert (await call.read()).HasField("file")
    await project.delete()

    received = bytearray()
    while (part := await call.read()) is not aio.EOF:
        received += part.chunk
    assert received == data


# --- what is refused ---


HOSTILE = {
    "up": ("../../etc/passwd", b"x", INVALID),
    "up on Windows": ("..\\..\\boot.ini", b"x", INVALID),
    "nothing": ("", b"x", INVALID),
    "a directory": ("dir/", b"x", INVALID),
    "dots": ("...", b"x", INVALID),
    "invisible": ("\u202e\u200b", b"x", INVALID),
    "NUL": ("a\0.txt", b"x", INVALID),
    "endless": ("x" * 2000, b"x", INVALID),
    "a program": ("setup.exe", b"MZ" + bytes(100), NOT_ALLOWED),
    "a program in disguise": ("report.pdf", ELF, NOT_ALLOWED),
    "a turned program": ("report\u202efdp.exe", ELF, NOT_ALLOWED),
    "an archive in disguise": ("image.png", b"PK\x03\x04" + bytes(30), NOT_ALLOWED),
    "a script in disguise": ("image.png", b"<svg onload=alert(1)/>", NOT_ALLOWED),
    "a large one in disguise": ("notes.txt", ELF + bytes(3 * MIB), NOT_ALLOWED),
    "an unknown type": ("x.qqq", b"x", NOT_ALLOWED),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_hostile_names_and_types_leave_nothing(
    case: str, project: ProjectClient, daemon: Daemon
) -> None:
    """Each is refused with a reason, whether its size is announced or not, and neither a name nor a
    byte of it stays."""
    name, data, expected = HOSTILE[case]
    before = stored_in(daemon)
    for size in (len(data), None):
        with refused(*expected):
            await project.upload(name, data, size_bytes=size)

    assert stored_in(daemon) == before
    assert await project.names() == []


async def test_content_must_be_what_was_announced(project: ProjectClient, daemon: Daemon) -> None:
    """Of another size or checksum nothing is stored."""
    before = stored_in(daemon)
    for fields in ({"size_bytes": 3}, {"size_bytes": 9}, {"sha256": bytes(32)}):
        with refused(StatusCode.ABORTED, "CHECKSUM_MISMATCH"):
            await project.upload("a.txt", b"12345", **fields)
    with refused(*INVALID):
        await project.upload("a.txt", b"12345", sha256=b"short")
    assert stored_in(daemon) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"user_id": ""},
        {"project_id": ""},
        {"user_id": "x" * 257},
        {"project_id": "a\nb"},
    ],
)
async def test_ids_are_checked(fields: dict[str, str], api: Api) -> None:
    """As those of sessions."""
    names = {"user_id": "ada", "project_id": "book", **fields}
    with refused(*INVALID):
        await api.projects.CreateProject(pb.CreateProjectRequest(**names), timeout=20)
    with refused(*INVALID):
        await ProjectClient(api.projects, **names).upload("a.txt", b"x")


async def test_bad_requests_are_refused(project: ProjectClient, api: Api) -> None:
    """Streams that begin with a chunk, have two headers or chunks that are too large; tokens of
    other listings; words that the API does not know."""
    chunk = pb.UploadProjectFileRequest(chunk=b"x")
    for parts in (
        [chunk],
        [],
        [project.header("a.txt"), project.header("a.txt")],
        [project.header("a.txt"), pb.UploadProjectFileRequest(chunk=bytes(5 * MIB))],
        [project.header("a.txt", on_conflict=99), chunk],
    ):
        with refused(*INVALID):
            await project.stub.UploadProjectFile(iter(parts), timeout=20)
    with refused(*INVALID):
        await project.all_of_user(page_token="rubbish")
    with refused(*INVALID):
        await project.all_of_user(page_size=100_000)
    with refused(*INVALID):
        await project.download("")
    with refused(StatusCode.NOT_FOUND, "FILE_NOT_FOUND"):
        await project.download("../../registry.sqlite")
    assert await project.names() == []


# --- limits ---


async def test_limits_of_projects_hold(start_daemon: StartDaemon) -> None:
    """Of a file, a project, a user and their number; what announces its size is refused before a
    byte is sent, and what does not is cut off."""
    daemon = await start_daemon(
        max_file_mb=2,
        max_project_mb=3,
        max_user_projects_mb=4,
        max_project_files=3,
        max_user_projects=2,
    )
    async with Api(daemon.config.api_socket) as api:
        first = ProjectClient(api.projects, project_id="1")
        second = ProjectClient(api.projects, project_id="2")
        await first.create()
        await second.create()
        with refused(StatusCode.FAILED_PRECONDITION, "PROJECT_FULL"):
            await ProjectClient(api.projects, project_id="3").create()
        await ProjectClient(api.projects, user_id="bob").create()

        for size in (2 * MIB + 1, None):
            with refused(StatusCode.FAILED_PRECONDITION, "FILE_TOO_LARGE"):
                await first.upload("a.bin", bytes(2 * MIB + 1), size_bytes=size)
        call = first.stub.UploadProjectFile(timeout=20)
        await call.write(first.header("a.bin", size_bytes=3 * MIB))
        with refused(StatusCode.FAILED_PRECONDITION, "FILE_TOO_LARGE"):
            await call

        await first.upload("a.bin", os.urandom(2 * MIB))
        for size in (2 * MIB, None):
            with refused(StatusCode.FAILED_PRECONDITION, "PROJECT_FULL"):
                await first.upload("b.bin", os.urandom(2 * MIB), size_bytes=size)
        await second.upload("a.bin", os.urandom(2 * MIB))
        with refused(StatusCode.FAILED_PRECONDITION, "PROJECT_FULL") as refusal:
            await second.upload("b.txt", b"x")
        assert "of this user" in refusal.message
        usage = (await first.all_of_user()).usage
        assert (usage.max_size_bytes, usage.max_projects, usage.max_project_files) == (
            4 * MIB,
            2,
            3,
        )


async def test_uploads_under_way_count(start_daemon: StartDaemon) -> None:
    """A user cannot fill the disk with uploads that never end."""
    daemon = await start_daemon(max_user_projects_mb=2)
    async with Api(daemon.config.api_socket) as api:
        project = ProjectClient(api.projects)
        await project.create()
        calls = []
        for number in range(2):
            call = project.stub.UploadProjectFile(timeout=60)
            await call.write(project.header(f"{number}.bin"))
            await call.write(pb.UploadProjectFileRequest(chunk=bytes(MIB)))
            calls.append(call)
        unfinished = daemon.config.state_dir / "store" / "unfinished"
        await eventually(lambda: used(unfinished) == 2 * MIB)

        with refused(StatusCode.FAILED_PRECONDITION, "PROJECT_FULL") as refusal:
            await project.upload("one.txt", b"x")

        assert "under way" in refusal.message
        for call in calls:
            call.cancel()
        await eventually(lambda: not list(unfinished.iterdir()))
        await project.upload("one.txt", b"x")


def used(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


async def test_the_reserve_of_the_disk_is_left_alone(start_daemon: StartDaemon) -> None:
    """No upload takes the space that running sessions need."""
    daemon = await start_daemon(disk_reserve_mb=1 << 40)
    async with Api(daemon.config.api_socket) as api:
        project = ProjectClient(api.projects)
        await project.create()
        with refused(StatusCode.RESOURCE_EXHAUSTED, "DISK_SPACE_LOW"):
            await project.upload("a.txt", b"x")
        assert list((daemon.config.state_dir / "store" / "unfinished").iterdir()) == []


# --- callers that go away ---


@pytest.mark.parametrize("announced", [{}, {"size_bytes": 8}], ids=["unannounced", "announced"])
async def test_an_upload_that_breaks_off_leaves_nothing(
    announced: dict[str, int], project: ProjectClient, daemon: Daemon
) -> None:
    """Cancelled in the middle, it is as if it had never been."""
    before = stored_in(daemon)
    unfinished = daemon.config.state_dir / "store" / "unfinished"
    for _ in range(5):
        call = project.stub.UploadProjectFile(timeout=20)
        await call.write(project.header("a.txt", **announced))
        await call.write(pb.UploadProjectFileRequest(chunk=b"part"))
        await eventually(lambda: used(unfinished) == 4)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually(lambda: not list(unfinished.iterdir()))

    assert stored_in(daemon) == before
    assert await project.names() == []


async def test_an_upload_that_stalls_is_ended(start_daemon: StartDaemon) -> None:
    """A caller that sends nothing holds nothing for long."""
    daemon = await start_daemon(upload_idle_seconds=0.2)
    async with Api(daemon.config.api_socket) as api:
        project = ProjectClient(api.projects)
        await project.create()
        call = project.stub.UploadProjectFile(timeout=20)
        await call.write(project.header("a.txt"))
        with refused(StatusCode.ABORTED, "UPLOAD_STALLED"):
            await call
        assert list((daemon.config.state_dir / "store" / "unfinished").iterdir()) == []


# --- records ---


async def test_the_audit_log_names_who_did_what(project: ProjectClient, daemon: Daemon) -> None:
    """Every change and every read, with user, project, file and bytes; refusals too."""
    await project.upload("a.txt", b"four")
    await project.download("a.txt")
    await project.delete_file("a.txt")
    with refused(*NOT_ALLOWED):
        await project.upload("a.exe", b"MZ")
    await project.delete()

    entries = [entry for entry in await told(daemon, action="") if entry.get("project") == "book"]

    assert [(one["action"], one["user"], one.get("name")) for one in entries] == [
        ("project.created", "ada", None),
        ("project.file_uploaded", "ada", "a.txt"),
        ("project.file_downloaded", "ada", "a.txt"),
        ("project.file_deleted", "ada", "a.txt"),
        ("call.refused", "ada", "a.exe"),
        ("project.deleted", "ada", None),
    ]
    assert [one.get("bytes_in", 0) for one in entries] == [0, 4, 0, 0, 0, 0]
    assert [one.get("bytes_out", 0) for one in entries] == [0, 0, 4, 0, 0, 0]


# --- sessions ---


def attached_to(guests: FakeGuests) -> list[list[Attachment]]:
    """What each sandbox that was given out shows."""
    processes = [guest.process for guest in guests.by_container.values()]
    return [one.attached for one in processes if isinstance(one, FakeProcess) and one.attached]


async def test_racing_opens_with_projects_share_or_are_refused(
    api: Api, project: ProjectClient, guests: FakeGuests
) -> None:
    """One sandbox, one attachment; those who ask for another project are told."""
    await ProjectClient(api.projects, project_id="other").create()
    asked = ["book", "", "other"] * 10

    answers = await asyncio.gather(
        *(api.open(project_id=one) for one in asked), return_exceptions=True
    )

    opened = [one for one in answers if not isinstance(one, BaseException)]
    failures = [one for one in answers if isinstance(one, aio.AioRpcError)]
    assert len(opened) + len(failures) == len(asked)
    assert {one.session.project_id for one in opened} == {"book"}
    assert len({one.session.session_id for one in opened}) == 1
    assert len(failures) == 10
    assert all("PROJECT_MISMATCH" in str(one.trailing_metadata()) for one in failures)
    assert [len(one) for one in attached_to(guests)] == [1]


async def test_an_expired_session_may_change_its_project(api: Api, project: ProjectClient) -> None:
    """Nothing of it is left that could be mixed up."""
    other = ProjectClient(api.projects, project_id="other")
    await other.create()
    first = (await api.open(project_id="book", idle_timeout=1)).session
    await eventually_expired(api, first.session_id)

    again = (await api.open(project_id="other")).session

    assert (again.session_id, again.project_id) == (first.session_id, "other")
    assert (await api.get(first.session_id)).project_id == "other"


async def eventually_expired(api: Api, session_id: str) -> None:
    async with asyncio.timeout(20):
        while not (await api.get(session_id)).end_reason:
            await asyncio.sleep(0.02)


async def test_a_project_that_does_not_exist_takes_no_sandbox(
    api: Api, daemon: Daemon, guests: FakeGuests
) -> None:
    """The open is refused before anything is given out."""
    with refused(StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND"):
        await api.open(project_id="none")
    assert daemon.pools.default.figures.in_use == 0
    assert attached_to(guests) == []


# --- the start ---


async def test_a_daemon_does_not_start_on_a_newer_store(
    start_daemon: StartDaemon, config: Any
) -> None:
    """It says why, and leaves the files as they are."""

    store = config.state_dir / "store"
    store.mkdir(parents=True)
    with sqlite3.connect(store / "index.sqlite") as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()

    with pytest.raises(StartRefused, match=f"version {VERSION + 1}"):
        await start_daemon()
