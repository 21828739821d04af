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

from sandboxd.errors import FileWorkInterrupted, SandboxdError, SandboxLost
from sandboxd.files import (
    EditSpec,
    FilePath,
    FileSettings,
    GrepSpec,
    TarSpec,
    TextSpec,
    UploadSpec,
    WorkspaceFiles,
)
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import CHUNK, Change, Entry, Failed, Failure, Found, Kind, LeftOut
from sandboxd.link import LinkClosed

FILE = Entry(b"file", 1, 0o644, 3, 0, b"")
PATH = FilePath((b"file",))


class LyingLink:
    """Its workers say what they were told to, whatever they are asked."""

    def __init__(self, words: bytes, *, is_silent: bool = False) -> None:
        self._words = words
        self._is_silent = is_silent
        self.closed_because: str | None = None
        self.started = self.ended = 0
        self._open: list[socket.socket] = []

    async def start_worker(self, its_end: socket.socket) -> int:
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

    def end_worker(self, number: int) -> None:
        self.ended += 1

    def close(self) -> None:
        for end in self._open:
            end.close()


class Liar:
    """A sandbox of such workers."""

    def __init__(self, link: LyingLink) -> None:
        self.link = link


def files_of(link: LyingLink, **changes: object) -> WorkspaceFiles:
    settings = FileSettings(
        workspace_dir="/workspace",
        max_file_bytes=1 << 30,
        workspace_bytes=1 << 30,
        workspace_files=1000,
        **{"idle_seconds": 5.0, "search_seconds": 1.0, **changes},  # type: ignore[arg-type]
    )
    return WorkspaceFiles(Liar(link), settings)  # type: ignore[arg-type]


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"x" * 1000


async def download(files: WorkspaceFiles) -> object:
    async with files.download(PATH) as one:
        return [len(chunk) async for chunk in one]


async def download_tar(files: WorkspaceFiles) -> object:
    async with files.download_tar(PATH) as tar:
        return [len(chunk) async for chunk in tar]


async def watch(files: WorkspaceFiles) -> object:
    async with files.watch(PATH) as told:
        return [change async for change in told]


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
}

READY = codec.frame(Kind.READY)
DONE = codec.encode_done()
ENTRIES = codec.frame(Kind.ENTRIES, codec.encode_entry(FILE))
LIES = {
    "nothing": b"",
    "half a header": b"\x02",
    "half a frame": codec.header(Kind.ENTRIES, 100) + b"x",
    "a kind that is none": codec.HEADER.pack(99, 0),
    "a frame of 4 GiB": codec.HEADER.pack(Kind.DATA, 0xFFFFFFFF),
    "a frame over the limit": codec.HEADER.pack(Kind.DATA, CHUNK + 1),
    "a request": codec.frame(Kind.REQUEST, b"{}"),
    "an end": codec.frame(Kind.END),
    "a malformed failure": codec.frame(Kind.FAILED, b"\xff" * 20),
    "ready for ever": READY * 10_000,
    "entries for ever": ENTRIES * 10_000,
    "empty entries for ever": codec.frame(Kind.ENTRIES) * 10_000,
    "an impossible entry": codec.frame(Kind.ENTRIES, b"\xff" * 50),
    "finds for ever": codec.encode_found(Found(1, b"p", b"x")) * 10_000,
    "members for ever": READY
    + codec.frame(Kind.LEFT_OUT, codec.encode_left_out(LeftOut(codec.Why.SPARSE, b"m"))) * 10_000,
    "another size of data": ENTRIES + codec.frame(Kind.DATA, b"xx") + DONE,
    "tiny data for ever": ENTRIES + codec.frame(Kind.DATA, b"x") * 10_000,
    "no data but the end": ENTRIES + DONE,
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
    st.builds(codec.frame, st.sampled_from(Kind), st.binary(max_size=40)),
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


@settings(max_examples=60)
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
async def test_a_cancelled_call_gives_its_place_back(call: str) -> None:
    """However often it is cancelled, the next one is served."""
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
