"""Archives that a worker unpacks in a workspace."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from sandboxd.guest.files.area import Area
from sandboxd.guest.files.codec import Failed, Failure, LeftOut
from sandboxd.guest.files.daemon_connection import DaemonConnection, Gone, Refused
from sandboxd.guest.files.failures import failure_of
from sandboxd.guest.files.request import Request
from sandboxd.guest.files.tar_stream import BLOCK, MAX_EXTENDED
from sandboxd.guest.files.unpack import unpack
from tests.fuzz.target import Run, Target

MEMORY = Path("/dev/shm")
SECRET = b"not to be changed"
KINDS = (b"0", b"\0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"x", b"g", b"L", b"K", b"V", b"S")


class _Daemon(DaemonConnection):
    """Sends an archive, in pieces as they happen to come, and takes what is answered."""

    def __init__(self, archive: bytes, piece: int) -> None:
        self._archive = memoryview(archive)
        self._piece = piece
        self._has_ended = False
        self._left = 0
        self._steps = 0
        self.answers: list[object] = []

    def receive_into(self, buffer: memoryview) -> int:
        piece = self._archive[: min(self._piece, len(buffer))]
        buffer[: len(piece)] = piece
        self._archive = self._archive[len(piece) :]
        return len(piece)

    def look(self) -> None: ...

    def ready(self) -> None: ...

    def left_out(self, members: list[LeftOut]) -> None:
        self.answers += [member.why for member in members]

    def done(self, *figures: int) -> None:
        self.answers.append(figures[0])

    def failed(self, failed: Failed) -> None:
        self.answers.append(failed.failure)


def written(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive, after a byte for the pieces it comes in and for whether files are replaced."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=form) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return b"\0" + archive.getvalue().rstrip(b"\0") + bytes(2 * BLOCK)


def member(
    name: str, data: bytes = b"", kind: bytes = b"0", **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.mtime, info.mode = kind, 1_700_000_000.25, 0o644
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


SEEDS = [
    written(member("a.txt", b"text")),
    written(member("d", kind=b"5"), member("d/e/f", b"x" * 600), member("d/e/f", b"again")),
    written(member("n" * 200, b"long"), member("é\u3000", b"odd"), form=tarfile.GNU_FORMAT),
    written(member("n/" * 60 + "x", b"deep"), form=tarfile.USTAR_FORMAT),
    written(
        member("out", kind=b"2", linkname="../outside"),
        member("out/secret", b"changed"),
        member("again", kind=b"1", linkname="out/secret"),
    ),
    written(
        member("file", b"1"),
        member("hard", kind=b"1", linkname="file"),
        member("soft", kind=b"2", linkname="t" * 150),
        member("soft/x", b"2"),
        member("fifo", kind=b"6"),
        member("device", kind=b"3"),
    ),
    written(member("../outside/secret", b"changed"), member("/etc/x", b"1"), member("./.", b"")),
    written(member("p", b"12", pax_headers={"mtime": "-1.5", "comment": "c", "size": "2"})),
    written(member("s", b"", pax_headers={"GNU.sparse.major": "1", "path": "d/../x"})),
]


def summed(data: bytes, random: Random) -> bytes:
    """The same with right checksums, where there seem to be headers."""
    archive = bytearray(data)
    position = 1
    while position + BLOCK <= len(archive):
        header = archive[position : position + BLOCK]
        if any(header):
            if random.random() < 0.1:
                header[156:157] = random.choice(KINDS)
            size = header[124:136].partition(b"\0")[0].strip()
            if not size.isdigit() or random.random() < 0.05:
                header[124:136] = b"%011o\0" % random.choice((0, 5, 511, 512, 513, 4000))
            header[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * 0x20)
            archive[position : position + BLOCK] = header
            try:
                count = int(bytes(header[124:136]).partition(b"\0")[0].strip() or b"0", 8)
            except ValueError:
                count = 0
            if header[156:157] in (b"1", b"2", b"3", b"4", b"5", b"6"):
                count = 0
            position += min(-(-count // BLOCK) * BLOCK, len(archive))
        position += BLOCK
    return bytes(archive)


class Sandbox:
    """A workspace in memory, with something outside of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workspace = directory / "workspace"
        self._secret = directory / "outside/secret"
        self._secret.parent.mkdir()
        self._secret.write_bytes(SECRET)
        self._outside = self._seen_outside()

    def _seen_outside(self) -> object:
        status = self._secret.stat()
        names = [sorted(os.listdir(path)) for path in (self._directory, self._secret.parent)]
        return names, status.st_nlink, status.st_mode, status.st_mtime_ns, self._secret.read_bytes()

    def unpack(self, data: bytes) -> Hashable:
        self._workspace.mkdir()
        root = os.open(self._workspace, os.O_PATH | os.O_DIRECTORY)
        first = data[0] if data else 0
        daemon = _Daemon(data[1:], (1 << 20, 512, 100, 7)[first % 4])
        request = Request({"path": "", "replace": bool(first & 4), "max_file_bytes": 3000})
        try:
            unpack(Area(root, b"/workspace", room_bytes=1 << 20, room_files=500), request, daemon)
        except Refused as refused:
            daemon.failed(refused.failed)
        except OSError as error:
            if failure_of(error) is Failure.BROKEN:
                raise
            daemon.answers.append(failure_of(error))
        except Gone:
            daemon.answers.append(Failure.BROKEN)
        finally:
            os.close(root)
            _clear(self._workspace)
        assert self._seen_outside() == self._outside, "it was unpacked outside"
        return tuple(daemon.answers[:6])


def _clear(directory: Path) -> None:
    for path, names, _ in os.walk(directory):
        for name in names:
            if not os.path.islink(os.path.join(path, name)):
                os.chmod(os.path.join(path, name), 0o700)
    shutil.rmtree(directory)


@contextmanager
def workspace() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(prefix="sbx-fuzz-", dir=MEMORY) as name:
        sandbox = Sandbox(Path(name))
        # The first look; the workspace comes and goes.
        sandbox._outside = sandbox._seen_outside()

        async def run(data: bytes) -> Hashable:
            return sandbox.unpack(data)

        yield run


TAR = Target(
    name="tar",
    open=workspace,
    seeds=SEEDS,
    words=[
        *KINDS,
        *(b"30 mtime=1350244992.023960108\n", b"20 path=../../../x\n", b"9 size=1\n", b"5 a=\n"),
        *(b"ustar\000", b"ustar  \0", b"\x80" + bytes(10) + b"\x01", b"\xff" * 12, b"../"),
    ],
    repair=summed,
    max_bytes=MAX_EXTENDED + 4 * BLOCK,
)
