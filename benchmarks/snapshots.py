"""Snapshots of a workspace over many turns, next to tar and restic on the same tree.

`python -m benchmarks.snapshots` runs it alone: as root, without Docker.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.table import Group, Row, render
from sandboxd.snapshots.contract import Line, WorkspaceDisk
from sandboxd.snapshots.opening import Place, open_snapshots
from sandboxd.snapshots.snapshots import DiskSnapshots
from sandboxd.workspaces import disk_template, loop_mount
from sandboxd.workspaces.layout import Layout

FILES = 950
TREE_BYTES = 48 << 20
CHANGED = 5
_UID = 65534
_LINE = Line(user_id="bench", name="bench")
_SECONDS = 120


@dataclass
class Method:
    """A way to take a snapshot, and how long it took each time."""

    milliseconds: list[float] = field(default_factory=list)
    stored_bytes: int = 0
    first_ms: float = 0.0
    first_bytes: int = 0

    def add(self, milliseconds: float, stored_bytes: int, *, is_first: bool) -> None:
        if is_first:
            self.first_ms, self.first_bytes = milliseconds, stored_bytes
        else:
            self.milliseconds.append(milliseconds)
            self.stored_bytes += stored_bytes

    def row(self) -> Row:
        times = sorted(self.milliseconds)
        return {
            "p50_ms": statistics.median(times),
            "p95_ms": times[int(0.95 * (len(times) - 1))],
            "turns": len(times),
            "kB_per_turn": self.stored_bytes / len(times) / 1000,
            "first_ms": self.first_ms,
            "first_MB": self.first_bytes / 1e6,
        }


def make_tree(root: Path) -> None:
    """Half of the bytes are random, half are text."""
    random = Random(1)
    text = b"\n".join(b"line %d of a text that compresses well" % n for n in range(2000))
    for number in range(FILES):
        directory = root / f"d{number % 30}"
        directory.mkdir(exist_ok=True)
        size = TREE_BYTES // FILES
        data = random.randbytes(size) if number % 2 else (text * (size // len(text) + 1))[:size]
        (directory / f"f{number}").write_bytes(data)


def change(root: Path, random: Random) -> None:
    for _ in range(CHANGED):
        number = random.randrange(FILES)
        (root / f"d{number % 30}" / f"f{number}").write_bytes(random.randbytes(100))


@contextmanager
def workspace(directory: Path) -> Iterator[tuple[Path, Path]]:
    """The image of a new disk, and where its workspace is mounted."""
    image, point = directory / f"{time.monotonic_ns()}.img", directory / f"m{time.monotonic_ns()}"
    disk_template.build(image, point, size_bytes=128 << 20, max_files=4000, layout=Layout.SHARED)
    with loop_mount.attached(image, point):
        yield image, point / disk_template.WORKSPACE
    image.unlink()


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


class Others:
    """What the same tree costs with other programs. Each time it is all or a process more."""

    def __init__(self, root: Path, directory: Path) -> None:
        self._root = root
        self._archive = directory / "tree.tar.zst"
        self._repository = directory / "restic"
        self._environment = {
            **os.environ,
            "RESTIC_REPOSITORY": str(self._repository),
            "RESTIC_PASSWORD": "bench",
            "RESTIC_CACHE_DIR": str(directory / "cache"),
        }
        self.tar, self.restic = Method(), Method()
        self._restic("init")

    def take(self, *, is_first: bool = False) -> None:
        milliseconds = timed(self._tar)
        self.tar.add(milliseconds, self._archive.stat().st_size, is_first=is_first)
        before = self._restic_size()
        milliseconds = timed(self._back_up)
        self.restic.add(milliseconds, self._restic_size() - before, is_first=is_first)

    def _tar(self) -> None:
        self._archive.unlink(missing_ok=True)
        command = f"tar -C {self._root} -cf - . | zstd -1 -q -o {self._archive}"
        subprocess.run(["sh", "-c", command], check=True, timeout=_SECONDS)

    def _back_up(self) -> None:
        self._restic("backup", str(self._root))

    def _restic(self, *arguments: str) -> None:
        command = ["restic", "-q", *arguments]
        subprocess.run(command, check=True, timeout=_SECONDS, env=self._environment)

    def _restic_size(self) -> int:
        found = (path for path in self._repository.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in found)


async def snapshots(*, turns: int, others_every: int) -> list[Group]:
    """Turns with small changes. The others take part in some of the turns."""
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-") as name:
        directory = Path(name)
        opened = open_snapshots(Place(directory=directory / "store"))
        try:
            return await _measure(opened, directory, turns=turns, others_every=others_every)
        finally:
            await opened.close()


async def _measure(
    opened: DiskSnapshots, directory: Path, *, turns: int, others_every: int
) -> list[Group]:
    ours, durable, random = Method(), Method(), Random(2)
    with workspace(directory) as (image, root):
        make_tree(root)
        others = Others(root, directory)
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        disk = WorkspaceDisk(image=image, workspace=descriptor)

        async def take(method: Method, *, is_durable: bool, is_first: bool = False) -> None:
            started = time.perf_counter()
            taken = await opened.take(_LINE, disk, is_durable=is_durable)
            milliseconds = (time.perf_counter() - started) * 1000
            assert taken is not None
            method.add(milliseconds, taken.stored_bytes, is_first=is_first)

        others.take(is_first=True)
        await take(ours, is_durable=False, is_first=True)
        for turn in range(turns - 1):
            change(root, random)
            await asyncio.sleep(0.025)  # as long as a turn lasts at least
            if turn % others_every:
                await take(ours, is_durable=False)
            else:
                await take(durable, is_durable=True)
                others.take()
        os.close(descriptor)
    restores = {
        f"restore of turn {turn}": await _restore(opened, directory, turn) for turn in (1, turns)
    }
    rows = {
        "inode tables": ours.row(),
        "inode tables, durable": durable.row(),
        "tar | zstd -1": others.tar.row(),
        "restic": others.restic.row(),
    }
    title = f"snapshots, {FILES} files, {TREE_BYTES >> 20} MiB, {CHANGED} changed per turn"
    return [Group(title, rows), Group("restore into a new disk", restores)]


async def _restore(opened: DiskSnapshots, directory: Path, turn: int) -> Row:
    times = []
    for _ in range(3):
        with workspace(directory) as (_image, root):
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
            started = time.perf_counter()
            await opened.restore(_LINE, turn, descriptor, uid=_UID, gid=_UID)
            times.append((time.perf_counter() - started) * 1000)
            os.close(descriptor)
    return {"p50_ms": statistics.median(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--others-every", type=int, default=20)
    arguments = parser.parse_args()
    for program in ("restic", "zstd"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not installed; run benchmarks/install_tools")
    groups = asyncio.run(snapshots(turns=arguments.turns, others_every=arguments.others_every))
    for group in groups:
        print(render(group), end="\n\n")


if __name__ == "__main__":
    main()
