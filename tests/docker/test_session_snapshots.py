"""Snapshots of real sessions: compared, restored, forked, parked, and kept through crashes."""

from __future__ import annotations

import asyncio
import io
import random
import signal
import statistics
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxd_client import (
    AsyncSandbox,
    DiskSpaceLowError,
    InvalidArchiveError,
    InvalidRequestError,
    MissingFileError,
    NotAFileError,
    SandboxError,
    SessionExistsError,
    SessionNotFoundError,
    SessionParkedError,
    SnapshotInfo,
    SnapshotLimitReachedError,
    SnapshotNotFoundError,
    turn,
)
from tests.docker.daemon_process import (
    DaemonProcess,
    running_daemon,
    served,
)
from tests.docker.small_disk import small_disk
from tests.docker.snapshot_tree import MAKE_TREE, digest, tree_of
from tests.hostile.neighbour import is_harmed
from tests.scale import SCALE

pytestmark = pytest.mark.timeout(300)
WAIT_SECONDS = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(POOL_SIZE="3") as daemon:
        await daemon.wait_until_warm()
        yield daemon


@asynccontextmanager
async def opened(
    daemon: DaemonProcess, thread: str, user: str = "ada", **fields: object
) -> AsyncIterator[AsyncSandbox]:
    """A sandbox whose session is closed afterwards."""
    sandbox = await AsyncSandbox.open(
        user,
        thread,
        server_url=f"unix:{daemon.socket}",
        **fields,  # type: ignore[arg-type]
    )
    try:
        yield sandbox
    finally:
        with suppress(SandboxError):
            await sandbox.kill()
        await sandbox.aclose()


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await check():
            await asyncio.sleep(0.02)


async def newest(sandbox: AsyncSandbox) -> SnapshotInfo | None:
    found = await sandbox.snapshots.list()
    return found[0] if found else None


async def taken_after(sandbox: AsyncSandbox, exec_id: str) -> SnapshotInfo:
    """The automatic snapshot of a command."""
    found: list[SnapshotInfo] = []

    async def is_there() -> bool:
        found[:] = [one for one in await sandbox.snapshots.list() if one.exec_id == exec_id]
        return bool(found)

    await until(is_there)
    return found[0]


# --- rewind ---


async def test_rewind_restores_everything_and_can_be_rewound(daemon: DaemonProcess) -> None:
    """Names that are no text, modes, times, links, FIFOs, holes, attributes and content; the id
    stays, the incarnation moves on; and what was there before comes back the same way."""
    async with opened(daemon, "rewind") as sandbox:
        await sandbox.commands.run(MAKE_TREE, check=True)
        good = await tree_of(sandbox)
        target = await sandbox.snapshots.create("good")
        await sandbox.commands.run(
            "rm -rf deep; echo changed > plain.txt; chmod 777 private; mv large small; mkdir new",
            check=True,
        )
        bad = await tree_of(sandbox)
        before = sandbox.info
        info = await sandbox.rewind(snapshot="good")
        after = await tree_of(sandbox)
        kept = next(one for one in await sandbox.snapshots.list() if one.cause == "before_rewind")
        await sandbox.rewind(snapshot=kept)

        assert bad != good
        assert after == good
        assert (info.session_id, info.incarnation) == (before.session_id, before.incarnation + 1)
        assert info.restored_snapshot == target.number
        assert await tree_of(sandbox) == bad


async def test_rewind_ends_commands_and_keeps_project_files(daemon: DaemonProcess) -> None:
    """A command that writes when the session is rewound ends with it; what it wrote until then is
    in the snapshot of before; and project files are as they were."""
    async with opened(daemon, "running") as sandbox:
        await sandbox.files.write("project_files/given.txt", "from the caller")
        await sandbox.snapshots.create("empty")
        running = await sandbox.commands.run(
            "for i in $(seq 9999); do echo $i >> log; done; sleep 99", background=True
        )
        await until(lambda: sandbox.files.exists("log"))
        await sandbox.rewind(snapshot="empty")
        with suppress(SandboxError):  # it may be forgotten by now
            assert (await running.wait()).exit_code != 0
        kept = next(one for one in await sandbox.snapshots.list() if one.cause == "before_rewind")

        assert not await sandbox.files.exists("log")
        assert await sandbox.files.read("project_files/given.txt") == "from the caller"
        lines = (await sandbox.snapshots.read(kept, "log")).split()
        assert lines == [b"%d" % number for number in range(1, len(lines) + 1)]
        assert lines


async def test_racing_rewinds_resets_and_commands(daemon: DaemonProcess) -> None:
    """Whatever the order, each succeeds or is refused with a typed error, and the session is usable
    afterwards."""
    async with opened(daemon, "races") as sandbox:
        await sandbox.files.write("a", "1")
        await sandbox.snapshots.create("one")
        session_id, url = sandbox.session_id, f"unix:{daemon.socket}"

        async def work(what: str) -> None:
            one = await AsyncSandbox.connect(session_id, server_url=url)
            try:
                if what == "rewind":
                    await one.rewind(snapshot="one")
                elif what == "reset":
                    await one.reset()
                else:
                    await one.commands.run("echo x > b")
            finally:
                await one.aclose()

        words = ("rewind", "reset", "run", "rewind", "reset", "run")
        done = await asyncio.gather(*map(work, words), return_exceptions=True)
        last = await AsyncSandbox.connect(session_id, server_url=url)
        await last.rewind(snapshot="one")
        content = await last.files.read("a")
        await last.aclose()

        assert all(error is None or isinstance(error, SandboxError) for error in done)
        assert any(error is None for error in done)
        assert content == "1"


# --- turns ---


async def test_every_command_that_changes_something_is_a_snapshot(daemon: DaemonProcess) -> None:
    """And no other; each holds what was there after its command."""
    async with opened(daemon, "commands", auto_snapshot="commands") as sandbox:
        for number in range(5):
            ran = await sandbox.commands.run(f"echo {number} > file; ls > /dev/null")
            await taken_after(sandbox, ran.exec_id)
            await sandbox.commands.run("cat file")
            # A list waits for the look that follows a command. A command that begins during one
            # may have a snapshot of its own, whatever it does.
            await sandbox.snapshots.list()
        found = [one for one in await sandbox.snapshots.list() if one.cause == "exec"]

        assert len(found) == 5
        contents = [await sandbox.snapshots.read(one, "file") for one in reversed(found)]
        assert contents == [b"%d\n" % number for number in range(5)]


async def test_turn_is_taken_back(daemon: DaemonProcess) -> None:
    """A turn with several commands and file calls is one snapshot; `before` undoes it."""
    async with opened(daemon, "turns", auto_snapshot="turns") as sandbox:
        with turn("first"):
            await sandbox.commands.run("echo 1 > notes")
        await until(lambda: _has_turn(sandbox, "first"))
        with turn("second"):
            await sandbox.commands.run("echo 2 > notes; mkdir mess")
            await sandbox.files.write("mess/file", "x")
            await sandbox.commands.run("rm notes")
        await until(lambda: _has_turn(sandbox, "second", without="notes"))
        await sandbox.rewind(before="second")

        assert await sandbox.files.read("notes") == "1\n"
        assert not await sandbox.files.exists("mess")
        turns = [one.turn_id for one in await sandbox.snapshots.list() if one.turn_id]
        assert sorted(turns) == ["first", "second"]
        await sandbox.rewind("second")
        assert await sandbox.files.exists("mess")
        await sandbox.rewind(snapshot="before:second")
        assert await sandbox.files.read("notes") == "1\n"


async def _has_turn(sandbox: AsyncSandbox, turn_id: str, without: str = "") -> bool:
    try:
        found = await sandbox.snapshots.get(f"turn:{turn_id}")
        if without:
            await sandbox.snapshots.read(found, without)
    except SnapshotNotFoundError:
        return False
    except MissingFileError:
        return True
    return not without


async def test_wrong_turn_id_is_refused(daemon: DaemonProcess) -> None:
    """It becomes part of records, so it has a plain form."""
    async with opened(daemon, "odd") as sandbox:
        with turn("no spaces please"), pytest.raises(InvalidRequestError, match="turn"):
            await sandbox.commands.run("true")


async def test_automatic_snapshots_cost_little(daemon: DaemonProcess) -> None:
    """The ratio of a command with and without them is printed; nothing fails because of it."""
    async with (
        opened(daemon, "cost-off") as off,
        opened(daemon, "cost-on", auto_snapshot="commands") as on,
    ):
        times: dict[str, list[float]] = {"off": [], "on": []}
        for number in range(40):
            for name, sandbox in (("off", off), ("on", on)):
                began = time.perf_counter()
                await sandbox.commands.run(f"echo {number} > file", check=True)
                times[name].append(time.perf_counter() - began)
        ran = await on.commands.run("echo last > file")
        await taken_after(on, ran.exec_id)
    medians = {name: statistics.median(found) * 1000 for name, found in times.items()}
    ratio = medians["on"] / medians["off"]
    print(
        f"snapshot cost: a command {medians['off']:.1f} ms, with one {medians['on']:.1f} ms, "
        f"x{ratio:.2f}"
    )


async def test_line_of_turns_is_bounded() -> None:
    """In number: the newest stay, and their numbers go on."""
    async with (
        running_daemon(POOL_SIZE="1", SANDBOXD_SNAPSHOT_TURNS="5") as daemon,
        opened(daemon, "bounded", auto_snapshot="commands") as sandbox,
    ):
        for number in range(12):
            ran = await sandbox.commands.run(f"echo {number} > file")
            last = await taken_after(sandbox, ran.exec_id)

        async def is_thinned() -> bool:
            return len(await sandbox.snapshots.list()) <= 5

        await until(is_thinned)
        found = await sandbox.snapshots.list()

        assert found[0].number == last.number
        assert [await sandbox.snapshots.read(one, "file") for one in found] == [
            b"%d\n" % number for number in range(11, 11 - len(found), -1)
        ]


# --- diff and reading ---


async def test_diff_against_a_snapshot_and_against_the_present(daemon: DaemonProcess) -> None:
    """Added, changed, removed and moved paths, with text diffs; the present needs no snapshot that
    stays."""
    async with opened(daemon, "diff") as sandbox:
        await sandbox.commands.run(
            "printf 'a\\nb\\nc\\n' > text; head -c 999 /dev/urandom > binary; echo gone > gone; "
            "echo moved > old-name",
            check=True,
        )
        first = await sandbox.snapshots.create()
        await sandbox.commands.run(
            "sed -i s/b/B/ text; head -c 999 /dev/urandom > binary; rm gone; mv old-name new-name; "
            "mkdir sub; echo new > sub/new",
            check=True,
        )
        found = await sandbox.snapshots.diff(first, with_text=True)
        second = await sandbox.snapshots.create()
        same = await sandbox.snapshots.diff(first, second, with_text=True)
        below = await sandbox.snapshots.diff(first, second, path="sub")
        changes = {change.path: change for change in found.changes}

        assert {path: change.kind for path, change in changes.items()} == {
            "binary": "changed",
            "gone": "removed",
            "new-name": "moved",
            "sub": "added",
            "sub/new": "added",
            "text": "changed",
        }
        assert "-b\n+B\n" in changes["text"].unified_diff
        assert changes["binary"].is_binary
        assert changes["new-name"].moved_from == "old-name"
        assert same == found
        assert [change.path for change in below.changes] == ["sub", "sub/new"]
        assert (await sandbox.snapshots.diff(second)).changes == []
        assert [one.number for one in await sandbox.snapshots.list()] == [
            second.number,
            first.number,
        ]


async def test_one_user_cannot_fill_the_store() -> None:
    """Beyond the share snapshots are refused with what to do, another user has room, and what
    closed sessions had is free soon."""
    fill = "head -c 25M /dev/urandom > file"
    async with running_daemon(POOL_SIZE="2", SANDBOXD_MAX_USER_SNAPSHOT_MB="64") as daemon:
        store = daemon.directory / "state" / "snapshots" / "objects"

        def stored() -> int:
            return sum(path.stat().st_size for path in store.rglob("*") if path.is_file())

        async with opened(daemon, "1", "eve") as eve, opened(daemon, "1", "ada") as ada:
            with pytest.raises(SnapshotLimitReachedError, match="SANDBOXD_MAX_USER_SNAPSHOT_MB"):
                for _ in range(4):
                    await eve.commands.run(fill, check=True)
                    await eve.snapshots.create()
            assert stored() <= 64 << 20
            await ada.commands.run(fill, check=True)
            await ada.snapshots.create()

        async def is_free() -> bool:
            return stored() < 1 << 20

        began = time.monotonic()
        await until(is_free)
        print(f"space of closed sessions: free after {time.monotonic() - began:.1f} s")


async def test_snapshots_leave_room_for_sessions_of_others(short_dir: Path) -> None:
    """However large the share of a user is: where snapshots stop, others still open sessions, and
    when those of a session were deleted there is room for snapshots again."""
    state = short_dir / "state"
    settings = {
        "SANDBOXD_STATE_DIR": str(state),
        "SANDBOXD_DISK_RESERVE_MB": "128",
        "MAX_WORKSPACE_SIZE_MB": "32",
        "SANDBOXD_TMP_MB": "4",
        "POOL_SIZE": "1",
    }
    with small_disk(short_dir / "disk.img", state, size_bytes=600 << 20) as disk:
        async with running_daemon(**settings) as daemon:
            async with opened(daemon, "1", "eve") as eve:
                with pytest.raises(DiskSpaceLowError, match="delete snapshots or close sessions"):
                    for _ in range(20):
                        await eve.commands.run("head -c 20M /dev/urandom > file", check=True)
                        await eve.snapshots.create()
                assert disk.free_bytes > 192 << 20
                async with opened(daemon, "1", "ada") as ada:
                    await ada.commands.run("true", check=True)

            async def has_room() -> bool:
                return disk.free_bytes > 384 << 20

            await until(has_room)
            async with opened(daemon, "2", "ada") as ada:
                await ada.snapshots.create()


@pytest.mark.alone
async def test_comparisons_of_one_user_do_not_slow_another(daemon: DaemonProcess) -> None:
    """Eight loops of the largest comparisons, of which every second is cancelled at once."""
    make = (
        "import random\nfor n in range(20):\n"
        " open(f'f{n}', 'w').writelines(f'{random.randrange(10**6)}\\n' for _ in range(100_000))\n"
    )
    async with opened(daemon, "compare", "eve") as eve, opened(daemon, "works", "ada") as ada:
        for _ in range(2):
            await eve.files.write("make.py", make)
            await eve.commands.run("python3 make.py", check=True, timeout=60)
            await eve.snapshots.create()

        async def compare(*, cancelled: bool) -> None:
            while True:
                with suppress(SandboxError, TimeoutError):
                    async with asyncio.timeout(0.01 if cancelled else WAIT_SECONDS):
                        await eve.snapshots.diff(1, 2, with_text=True)
                await asyncio.sleep(0.001)

        async def median_ms() -> float:
            took = []
            for _ in range(40):
                began = time.monotonic()
                await ada.commands.run("true", check=True)
                took.append((time.monotonic() - began) * 1000)
            return statistics.median(took)

        async def measured() -> tuple[float, float]:
            quiet = await median_ms()
            loops = [asyncio.create_task(compare(cancelled=bool(n % 2))) for n in range(8)]
            try:
                await asyncio.sleep(1)  # under way
                return quiet, await median_ms()
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.wait(loops)

        # What else the host does harms one of them now and then; comparisons would harm all.
        figures = [await measured() for _ in range(3)]
    for quiet, during in figures:
        print(f"a neighbour's `true` beside comparisons: {quiet:.1f} ms, then {during:.1f} ms")
    assert not all(is_harmed(quiet_ms=quiet, during_ms=during) for quiet, during in figures)


async def test_wrong_paths_and_names_have_typed_errors(daemon: DaemonProcess) -> None:
    """A path outside, one that is missing, a directory, and snapshots that are not there."""
    async with opened(daemon, "wrong") as sandbox:
        await sandbox.commands.run("mkdir d; ln -s /etc/passwd link")
        first = await sandbox.snapshots.create()
        for path, kind in (
            ("missing", MissingFileError),
            ("d", NotAFileError),
            ("link", NotAFileError),
            ("/etc/passwd", InvalidRequestError),
            ("../x", InvalidRequestError),
        ):
            with pytest.raises(kind):
                await sandbox.snapshots.read(first, path)
        for name in (99, "-5", "no-such-label", "turn:x", "before:x"):
            with pytest.raises(SnapshotNotFoundError):
                await sandbox.snapshots.get(name)
        with pytest.raises(SnapshotNotFoundError):
            await sandbox.snapshots.delete(99)


async def test_snapshots_of_another_user_are_not_there(daemon: DaemonProcess) -> None:
    """Neither by session nor by number in the own session; content stays apart."""
    async with opened(daemon, "own") as mine, opened(daemon, "own", user="bob") as other:
        await mine.files.write("secret", "ada's")
        theirs = await mine.snapshots.create()

        assert await other.snapshots.list() == []
        with pytest.raises(SnapshotNotFoundError):
            await other.snapshots.read(theirs.number, "secret")
        with pytest.raises(SnapshotNotFoundError):
            await other.rewind(snapshot=theirs.number)
        with pytest.raises(SessionNotFoundError):
            await AsyncSandbox.connect(
                "ses_000000000000000000000000", server_url=f"unix:{daemon.socket}"
            )


# --- export and import ---


async def test_export_is_a_tar_and_comes_back(daemon: DaemonProcess, tmp_path: Path) -> None:
    """Another session that imports it and is rewound to it has the same files."""
    async with opened(daemon, "export") as sandbox, opened(daemon, "import") as other:
        await sandbox.commands.run(MAKE_TREE, check=True)
        wanted = await tree_of(sandbox)
        await sandbox.snapshots.create("all")
        archive = await sandbox.snapshots.export_to("all", tmp_path / "all.tar")
        made = await other.snapshots.import_from(archive, "came")
        await other.rewind(snapshot=made)

        assert await tree_of(other) == wanted
        with tarfile.open(archive) as found:
            assert "plain.txt" in [member.name.removeprefix("./") for member in found]


@pytest.mark.parametrize("kind", ["parent", "absolute", "device", "garbage", "through a link"])
async def test_hostile_archive_is_refused(daemon: DaemonProcess, tmp_path: Path, kind: str) -> None:
    """Nothing of it becomes a snapshot."""
    archive = tmp_path / "evil.tar"
    archive.write_bytes(_evil(kind))
    async with opened(daemon, f"evil-{kind.replace(' ', '-')}") as sandbox:
        with pytest.raises((InvalidArchiveError, InvalidRequestError)):
            await sandbox.snapshots.import_from(archive)

        assert await sandbox.snapshots.list() == []


def _evil(kind: str) -> bytes:
    if kind == "garbage":
        return random.Random(1).randbytes(4096)
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        names = {"parent": "../evil", "absolute": "/evil", "through a link": "link/evil"}
        if kind == "through a link":
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc"
            archive.addfile(link)
        member = tarfile.TarInfo(names.get(kind, "evil"))
        if kind == "device":
            member.type, member.devmajor, member.devminor = tarfile.BLKTYPE, 7, 0
        archive.addfile(member, io.BytesIO(b""))
    return written.getvalue()


# --- forks ---


async def test_twenty_forks_of_one_snapshot() -> None:
    """All warm, each a session of its own with the same files and isolated from the others."""
    count = 20
    async with running_daemon(
        POOL_SIZE=str(count + 1), MAX_WORKSPACE_SIZE_MB="16", SANDBOXD_TMP_MB="8"
    ) as daemon:
        async with asyncio.timeout(180):
            await daemon.wait_until_warm()
        async with opened(daemon, "origin") as sandbox:
            await sandbox.commands.run("mkdir d; echo same > d/file; seq 1000 > numbers")
            wanted = await tree_of(sandbox)
            await sandbox.snapshots.create("base")
            misses = await _pool_misses(daemon)
            began = time.monotonic()
            forks = await sandbox.fork_many(count, snapshot="base")
            seconds = time.monotonic() - began
            print(f"snapshot forks: {count} in {seconds * 1000:.0f} ms")
            connected = [
                await AsyncSandbox.connect(one.session_id, server_url=f"unix:{daemon.socket}")
                for one in forks
            ]
            trees = await asyncio.gather(*(tree_of(one) for one in connected))
            await asyncio.gather(
                *(
                    one.commands.run(f"echo {number} > d/file", check=True)
                    for number, one in enumerate(connected)
                )
            )
            contents = [await one.files.read("d/file") for one in connected]

            assert set(trees) == {wanted}
            assert await _pool_misses(daemon) == misses
            assert contents == [f"{number}\n" for number in range(count)]
            assert await sandbox.files.read("d/file") == "same\n"
            assert {one.forked_from for one in forks} == {sandbox.session_id}
            for one in connected:
                await one.kill()
                await one.aclose()


async def _pool_misses(daemon: DaemonProcess) -> int:
    async with daemon.api() as api:
        return (await api.status()).pool.misses


async def test_fork_needs_a_free_thread(daemon: DaemonProcess) -> None:
    """It never replaces what a thread has."""
    async with opened(daemon, "from") as sandbox, opened(daemon, "to") as other:
        await other.files.write("mine", "x")
        with pytest.raises(SessionExistsError):
            await sandbox.fork("to")

        assert await other.files.read("mine") == "x"


# --- parking ---


async def test_parked_session_comes_back_with_its_files(daemon: DaemonProcess) -> None:
    """Same id, next incarnation, and the open says `unparked`; until then calls are told so."""
    async with opened(daemon, "park") as sandbox:
        await sandbox.commands.run(MAKE_TREE, check=True)
        await sandbox.files.write("project_files/given.txt", "kept too")
        wanted = await tree_of(sandbox)
        before = sandbox.info
        parked = await sandbox.park()
        with pytest.raises(SessionParkedError):
            await sandbox.commands.run("true")
        async with opened(daemon, "park") as again:
            assert parked.state == "parked"
            assert (again.info.status, again.info.workspace_kept) == ("unparked", True)
            assert again.session_id == before.session_id
            assert again.info.incarnation == before.incarnation + 1
            assert await tree_of(again) == wanted
            assert await again.files.read("project_files/given.txt") == "kept too"


async def test_idle_session_is_parked_by_itself(daemon: DaemonProcess) -> None:
    """And its sandbox is free; use postpones it."""
    async with opened(daemon, "idle", park_after=1.0) as sandbox:
        await sandbox.files.write("a", "1")
        running = await sandbox.commands.run("sleep 1.5; echo alive")
        still = await sandbox.refresh()

        async def is_parked() -> bool:
            return (await sandbox.refresh()).state == "parked"

        await until(is_parked)
        async with opened(daemon, "idle") as again:
            assert running.stdout == "alive\n"
            assert still.state == "active"
            assert again.info.status == "unparked"
            assert await again.files.read("a") == "1"


async def test_commands_that_race_with_parking_lose_nothing(daemon: DaemonProcess) -> None:
    """A command either runs, and its file is there, or is told that the session is parked."""
    async with opened(daemon, "race") as sandbox:
        written: list[int] = []

        async def write() -> None:
            for number in range(200):
                try:
                    await sandbox.commands.run(f"echo {number} > f{number}", check=True)
                except SandboxError:
                    return
                written.append(number)

        writing = asyncio.create_task(write())
        await until(lambda: _true(len(written) >= 3))
        await sandbox.park()
        await writing
        async with opened(daemon, "race") as again:
            names = {entry.name for entry in await again.files.list()}
            assert {f"f{number}" for number in written} <= names


async def _true(value: bool) -> bool:
    return value


# --- crashes ---


@pytest.mark.timeout(600)
async def test_killed_daemon_keeps_every_acknowledged_snapshot() -> None:
    """kill -9 at random moments while commands run and snapshots are taken: what was answered is
    there afterwards and restores bit for bit; the session is usable; nothing that is listed is half
    written; and the store has no damage."""
    chance, rounds = random.Random(7), max(5, int(20 * SCALE))
    # Without warm sandboxes, which every start would have to make again.
    daemon = DaemonProcess(POOL_SIZE="0", SANDBOXD_AUTO_SNAPSHOT="commands")
    answered: dict[int, str] = {}
    async with served(daemon):
        url = f"unix:{daemon.socket}"
        sandbox = await AsyncSandbox.open("ada", "crash", server_url=url)
        await sandbox.commands.run(MAKE_TREE, check=True)
        for round_number in range(rounds):
            known = len(answered)
            work = asyncio.create_task(_work(sandbox, answered, round_number))
            await until(lambda known=known: _true(len(answered) > known))  # type: ignore[misc]
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            await daemon.signal(signal.SIGKILL)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await sandbox.aclose()
            await daemon.start()
            sandbox = await AsyncSandbox.open("ada", "crash", server_url=url)
            listed = {one.number for one in await sandbox.snapshots.list()}
            assert set(answered) <= listed
        assert (await sandbox.snapshots.verify()).problems == []
        sample = chance.sample(sorted(answered), 4)
        for number in sample:
            await sandbox.rewind(snapshot=number)
            assert digest(await tree_of(sandbox)) == answered[number]
        print(
            f"snapshot crashes: {rounds} kills, {len(answered)} acknowledged, all listed, "
            f"{len(sample)} of them restored and equal"
        )
        await sandbox.kill()
        await sandbox.aclose()


async def _work(sandbox: AsyncSandbox, answered: dict[int, str], round_number: int) -> None:
    """Change something, look at everything, and take a snapshot, again and again."""
    for number in range(1000):
        await sandbox.commands.run(
            f"echo {round_number}.{number} >> plain.txt; mkdir -p r{round_number}; "
            f"head -c 20000 /dev/urandom > r{round_number}/f{number % 5}",
            check=True,
        )
        seen = digest(await tree_of(sandbox))
        taken = await sandbox.snapshots.create()
        answered[taken.number] = seen


async def test_parked_session_outlives_a_killed_daemon() -> None:
    """And one that was being parked is either parked or open, with its files."""
    daemon = DaemonProcess(POOL_SIZE="2")
    async with served(daemon):
        url = f"unix:{daemon.socket}"
        first = await AsyncSandbox.open("ada", "parked", server_url=url)
        await first.commands.run(MAKE_TREE, check=True)
        wanted = await tree_of(first)
        await first.park()
        second = await AsyncSandbox.open("ada", "parking", server_url=url)
        await second.commands.run(MAKE_TREE, check=True)
        also_wanted = await tree_of(second)
        parking = asyncio.create_task(second.park())
        await asyncio.sleep(0.01)
        await daemon.signal(signal.SIGKILL)
        parking.cancel()
        await asyncio.gather(parking, return_exceptions=True)
        await first.aclose()
        await second.aclose()
        await daemon.start()
        first = await AsyncSandbox.open("ada", "parked", server_url=url)
        second = await AsyncSandbox.open("ada", "parking", server_url=url)

        assert first.info.status == "unparked"
        assert await tree_of(first) == wanted
        assert second.info.workspace_kept
        assert await tree_of(second) == also_wanted
        for sandbox in (first, second):
            await sandbox.kill()
            await sandbox.aclose()


# --- hostile workspaces ---


async def test_hostile_workspaces_are_taken_right_or_refused(daemon: DaemonProcess) -> None:
    """Deep directories, a full disk, many names in one directory, a file that changes all the time:
    what comes back is what was there, or the error is typed."""
    async with opened(daemon, "hostile") as sandbox:
        await sandbox.commands.run(
            "python3 - <<'E'\nimport os\nfor _ in range(300):\n"
            "    os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('bottom', 'w').write('deep')\nE\n"
            "for i in $(seq 300); do : > many-$i-$(printf 'x%.0s' $(seq 100)); done",
            timeout=60,
        )
        before = await sandbox.commands.run("find . | sort | sha256sum", timeout=60)
        await sandbox.snapshots.create("hostile")
        await sandbox.commands.run("rm -rf ./many* ./ddd*", timeout=60)
        await sandbox.rewind(snapshot="hostile")
        after = await sandbox.commands.run("find . | sort | sha256sum", timeout=60)

        assert after.stdout == before.stdout
        await sandbox.reset()
        await sandbox.commands.run("head -c 200000000 /dev/zero > full; sync", timeout=60)
        await sandbox.snapshots.create("full")
        await sandbox.rewind(snapshot="full")
        assert (await sandbox.commands.run("stat -c %s full")).exit_code == 0

        await sandbox.reset()
        await sandbox.commands.run("while :; do date +%s%N > moving; done", background=True)
        await until(lambda: sandbox.files.exists("moving"))
        moving = await sandbox.snapshots.create("moving")
        content = await sandbox.snapshots.read(moving, "moving")
        assert content == b"" or content.strip().isdigit()
