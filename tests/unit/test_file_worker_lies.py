"""What a worker may say, and that one which lies harms nobody but its own call.

A worker runs in the sandbox, under the uid of commands; everything it says may be made up.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.errors import FileWorkInterrupted, InvalidRequest, SandboxdError, SandboxLost
from sandboxd.files import (
    EditSpec,
    FilePath,
    FileSettings,
    FileType,
    GrepSpec,
    TarSpec,
    TextSpec,
    UploadSpec,
    WorkspaceFiles,
    operations,
)
from sandboxd.files.answers import CHANGES_PER_SECOND
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import CHUNK, Change, Entry, Failed, Failure, Found, Kind, LeftOut
from sandboxd.guest.frames import Purpose
from sandboxd.guest.worker_frames import HEADER, frame, header
from sandboxd.link import LinkClosed
from tests.scale import examples

FILE = Entry(b"file", 1, 0o644, 3, 0, b"")
PATH = FilePath((b"file",))
OUTSIDE = FilePath((b"/", b"tmp", b"file"))


class LyingLink:
    """Its workers say what the test gives them, whatever they are asked."""

    def __init__(self, words: bytes, *, is_silent: bool = False) -> None:
        self._words = words
        self._is_silent = is_silent
        self.closed_because: str | None = None
        self.keeps_workers = False
        self.started = self.ended = 0
        self.known: set[Purpose] = set(Purpose)
        self._open: list[socket.socket] = []

    def knows(self, purpose: Purpose) -> bool:
        return purpose in self.known

    async def start_worker(self, its_end: socket.socket, purpose: Purpose) -> int:
        if self.closed_because:
            raise LinkClosed(self.closed_because)
        self.started += 1
        end = its_end.dup()
        end.setblocking(True)
        if self._is_silent:
            self._open.append(end)
        else:
            threading.Thread(target=self._lie, args=(end,), daemon=True).start()
        return self.started

    def _lie(self, end: socket.socket) -> None:
        with end:
            try:
                end.sendall(self._words)
                end.shutdown(socket.SHUT_WR)
                while end.recv(1 << 16):
                    pass
            except OSError:
                pass  # nobody listens

    def wake_worker(self, number: int) -> None: ...

    def end_worker(self, number: int) -> None:
        self.ended += 1

    def close(self) -> None:
        for end in self._open:
            end.close()


def files_of(link: LyingLink, **changes: object) -> WorkspaceFiles:
    settings = FileSettings(
        workspace_dir="/workspace",
        max_file_bytes=1 << 30,
        workspace_bytes=1 << 30,
        workspace_files=1000,
        **{"idle_seconds": 5.0, "search_seconds": 1.0, **changes},  # type: ignore[arg-type]
    )
    return WorkspaceFiles(link, settings)  # type: ignore[arg-type]


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * 1000


async def download(files: WorkspaceFiles) -> object:
    async with files.download(PATH) as content:
        return [len(chunk) async for chunk in content]


async def download_tar(files: WorkspaceFiles) -> object:
    async with files.download_tar(PATH) as tar:
        return [len(chunk) async for chunk in tar]


async def watch(files: WorkspaceFiles) -> object:
    async with files.watch(PATH) as changes:
        return [change async for change in changes]


CALLS: dict[str, Callable[[WorkspaceFiles], Awaitable[object]]] = {
    "upload": lambda files: files.upload(UploadSpec(path=PATH), chunks()),
    "download": download,
    "list": lambda files: files.list(PATH, page_size=10),
    "stat": lambda files: files.stat(PATH),
    "make_directory": lambda files: files.make_directory(PATH),
    "move": lambda files: files.move(PATH, FilePath((b"new",))),
    "remove": lambda files: files.remove(PATH),
    "read_text": lambda files: files.read_text(PATH, max_bytes=1000),
    "write_text": lambda files: files.write_text(TextSpec(path=PATH, text="x")),
    "edit_text": lambda files: files.edit_text(EditSpec(path=PATH, old_text="x", new_text="y")),
    "grep": lambda files: files.grep(GrepSpec(path=PATH, pattern="x", max_matches=10)),
    "glob": lambda files: files.glob(PATH, "*", max_entries=10),
    "watch": watch,
    "upload_tar": lambda files: files.upload_tar(TarSpec(path=PATH), chunks()),
    "download_tar": download_tar,
    "upload outside": lambda files: files.upload(UploadSpec(path=OUTSIDE), chunks()),
    "list outside": lambda files: files.list(OUTSIDE, page_size=10),
    "move outside": lambda files: files.move(OUTSIDE, FilePath((b"/", b"new"))),
}

CHANGE = Change(1, False, b"file", b"")
READY = frame(Kind.READY)
DONE = codec.encode_done()
ENTRIES = frame(Kind.ENTRIES, codec.encode_entry(FILE))
LIES = {
    "nothing": b"",
    "half a header": b"\x02",
    "half a frame": header(Kind.ENTRIES, 100) + b"x",
    "a kind that is none": HEADER.pack(99, 0),
    "a frame of 4 GiB": HEADER.pack(Kind.DATA, 0xFFFFFFFF),
    "a frame over the limit": HEADER.pack(Kind.DATA, CHUNK + 1),
    "a request": frame(Kind.REQUEST, b"{}"),
    "an end": frame(Kind.END),
    "a malformed failure": frame(Kind.FAILED, b"\xff" * 20),
    "ready for ever": READY * 10_000,
    "entries for ever": ENTRIES * 10_000,
    "empty entries for ever": frame(Kind.ENTRIES) * 10_000,
    "an impossible entry": frame(Kind.ENTRIES, b"\xff" * 50),
    "finds for ever": codec.encode_found(Found(1, b"p", b"x")) * 10_000,
    "members for ever": READY
    + frame(Kind.LEFT_OUT, codec.encode_left_out(LeftOut(codec.Why.SPARSE, b"m"))) * 10_000,
    "another size of data": ENTRIES + frame(Kind.DATA, b"xx") + DONE,
    "tiny data for ever": ENTRIES + frame(Kind.DATA, b"x") * 10_000,
    "no data but the end": ENTRIES + DONE,
    "more changes at once than are gathered": READY
    + codec.encode_changes(overflow=False, changes=codec.encode_change(CHANGE) * 20_000),
    "a way into the project": codec.encode_failed(Failed(Failure.IN_PROJECT, 0, 0, b"../x")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("lie", LIES)
async def test_lies_end_the_call(lie: str, call: str) -> None:
    """The call ends, as interrupted or with what was plausible; its worker is ended; the next one
    begins afresh."""
    link = LyingLink(LIES[lie])
    files = files_of(link)
    said = "FILE_WORK_INTERRUPTED"
    try:
        async with asyncio.timeout(20):
            await CALLS[call](files)
    except SandboxdError as error:
        said = error.reason
    await files.aclose()

    assert said in ("FILE_WORK_INTERRUPTED", "PROTECTED_PATH")
    assert link.started == link.ended == 1


words = st.one_of(
    st.just(READY),
    st.just(DONE),
    st.just(ENTRIES),
    st.builds(frame, st.sampled_from(Kind), st.binary(max_size=40)),
    st.builds(
        lambda failure, path: codec.encode_failed(Failed(failure, 1, 2, path)),
        st.sampled_from(Failure),
        st.binary(max_size=20),
    ),
    st.builds(
        lambda kind, path: codec.encode_changes(
            overflow=False, changes=codec.encode_change(Change(kind, False, path, b""))
        ),
        st.integers(1, 4),
        st.binary(max_size=20),
    ),
    st.binary(max_size=20),
)


@settings(max_examples=examples(30))
@given(call=st.sampled_from(sorted(CALLS)), said=st.lists(words, max_size=12))
async def test_any_conversation_ends(call: str, said: list[bytes]) -> None:
    """Whatever a worker says, nothing but an error for the caller comes of it, and no worker or
    slot is left."""
    link = LyingLink(b"".join(said))
    files = files_of(link, max_workers=1, wait_seconds=5.0)
    for _ in range(2):
        try:
            async with asyncio.timeout(20):
                await CALLS[call](files)
        except SandboxdError:
            pass
    await files.aclose()

    assert link.started == link.ended == 2


@pytest.mark.parametrize("call", sorted(CALLS))
async def test_silence_ends_the_call(call: str) -> None:
    """A worker that was stopped is given up after a while."""
    link = LyingLink(b"", is_silent=True)
    files = files_of(link, idle_seconds=0.05, search_seconds=0.05)
    with pytest.raises(FileWorkInterrupted):
        await CALLS[call](files)
    await files.aclose()
    link.close()

    assert link.ended == 1


@pytest.mark.parametrize("call", sorted(CALLS))
async def test_a_lost_sandbox_is_said(call: str) -> None:
    """Before and during the call."""
    link = LyingLink(b"")
    files = files_of(link)
    link.closed_because = "it died"
    with pytest.raises(SandboxLost):
        await CALLS[call](files)


@pytest.mark.parametrize("call", sorted(CALLS))
async def test_noise_does_not_grow_the_daemon(call: str) -> None:
    """Megabytes of anything are not kept."""
    chance = random.Random(call)
    link = LyingLink(READY + ENTRIES + chance.randbytes(8 << 20))
    files = files_of(link)
    tracemalloc.start()
    try:
        try:
            async with asyncio.timeout(20):
                await CALLS[call](files)
        except SandboxdError:
            pass
        await files.aclose()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 6 << 20


@pytest.mark.parametrize("call", sorted(CALLS))
async def test_a_cancelled_call_gives_its_place_back(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is cancelled, the next one is served."""
    monkeypatch.setattr(operations, "CLEAN_UP_SECONDS", 0.1)
    link = LyingLink(b"", is_silent=True)
    files = files_of(link, max_workers=1, max_watches=1, wait_seconds=5.0)
    for number in range(1, 4):
        task = asyncio.ensure_future(CALLS[call](files))
        async with asyncio.timeout(20):
            while link.started < number:
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await files.aclose()
    link.close()

    assert link.started == link.ended == 3


async def test_changes_are_taken_at_the_pace_of_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever workers report, the watches of a session together wait as long as their changes
    count for."""
    clock = asyncio.get_running_loop().time
    began, waits_until = clock(), [0.0]
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        waits_until.append(clock() + seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", counted)
    report = codec.encode_changes(overflow=False, changes=codec.encode_change(CHANGE) * 2000)
    files = files_of(LyingLink(READY + report * 10))
    results = await asyncio.gather(watch(files), watch(files), return_exceptions=True)
    await files.aclose()

    assert [type(result) for result in results] == [FileWorkInterrupted] * 2
    assert max(waits_until) - began >= 2 * 10 * 2000 / CHANGES_PER_SECOND


TOO_NEW: dict[str, Callable[[WorkspaceFiles], Awaitable[object]]] = {
    "path": CALLS["list outside"],
    "depth": lambda files: files.list(PATH, depth=2),
    "make_parents": lambda files: files.move(PATH, FilePath((b"d", b"new")), make_parents=True),
    "types": lambda files: files.glob(PATH, "*", types=[FileType.FILE]),
    "skip_hidden": lambda files: files.glob(PATH, "*", skip_hidden=True),
    "exclude_dirs": lambda files: files.grep(
        GrepSpec(path=PATH, pattern="x", exclude_dirs=[".git"])
    ),
}


@pytest.mark.parametrize("field", TOO_NEW)
async def test_what_a_guest_of_an_earlier_release_would_ignore(field: str) -> None:
    """It is refused with what to do, not done in part; what the guest knows is done."""
    link = LyingLink(ENTRIES + DONE)
    link.known = {Purpose.FILES}
    files = files_of(link)
    with pytest.raises(InvalidRequest, match="earlier release") as caught:
        await TOO_NEW[field](files)
    assert (caught.value.field, link.started) == (field, 0)

    assert len((await files.list(PATH, depth=1)).entries) == 1
    assert link.started == 1
