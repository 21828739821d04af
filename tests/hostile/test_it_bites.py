"""The same programs do harm where there are no protections: what holds them is ours."""

from __future__ import annotations

import re
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import aiodocker
import pytest

from tests.hostile.plain_container import Ended, plain_container
from tests.hostile.scoreboard import Scoreboard

pytestmark = pytest.mark.alone

FINE = "agent fine"
FAILED = 1
KILLED = 128 + signal.SIGKILL
INTERRUPTED = 128 + signal.SIGINT


@pytest.fixture
async def docker() -> AsyncIterator[aiodocker.Docker]:
    async with aiodocker.Docker() as client:
        yield client


@pytest.fixture
def uid() -> int:
    """Unlike that of any sandbox, and of any other run of these tests."""
    return 1_000_000 + secrets.randbelow(1_000_000)


async def end_of(
    docker: aiodocker.Docker, attack: Sequence[str], *, programs: Path, uid: int
) -> Ended:
    async with plain_container(docker, attack, programs=programs, uid=uid) as container:
        return await container.ended()


# The kernel kills by size, and what these take is nobody's or everybody's.
@pytest.mark.parametrize(
    ("title", "attack", "codes"),
    [
        # Its processor time is up at the next tick; until then it may have missed a descriptor.
        ("prlimit on PID 1 ends the agent", ("guest", "limits"), {KILLED, FAILED}),
        ("a memfd bomb ends the agent", ("memory", "memfd"), {KILLED}),
        ("small processes end the agent", ("memory", "small"), {KILLED}),
        ("small processes that come back end the agent", ("memory", "respawning"), {KILLED}),
        ("socket buffers end the agent", ("memory", "sockets"), {KILLED}),
        ("an interrupt ends the agent", ("guest", "interrupt"), {INTERRUPTED}),
        (
            "a fork bomb keeps the agent from starting anything",
            ("processes", "fork-bomb"),
            {FAILED},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_agent_does_not_survive(
    docker: aiodocker.Docker,
    programs: Path,
    scoreboard: Scoreboard,
    uid: int,
    title: str,
    attack: tuple[str, str],
    codes: set[int],
) -> None:
    """An agent that shares uid and limits with a command is ended or made useless by it."""
    program, mode = attack
    end = await end_of(docker, [f"/programs/{program}", mode], programs=programs, uid=uid)

    assert "agent ready" in end.output
    assert FINE not in end.output
    assert end.code in codes, end
    scoreboard.harmed_without.append(title)


@pytest.mark.parametrize(
    ("title", "attack", "seen"),
    [
        ("AF_VSOCK opens", ("kernel", "families"), r"^vsock: ok$"),
        ("io_uring opens", ("kernel", "calls"), r"^io_uring_setup: ok$"),
        ("the agent is slowed down", ("guest", "slow-down"), r"^agent nice 19$"),
        ("the agent's environment is read", ("guest", "files"), r"^read /proc/1/environ: ok$"),
        ("32-bit calls open AF_VSOCK", ("kernel", "foreign-calls"), r"^int80 socket vsock: ok$"),
        ("commands load filters", ("kernel_memory", "filters"), r"^listener: ok$"),
        ("sockets have filters", ("kernel_memory", "filters"), r"^socket: ok$"),
        ("sockets join groups", ("kernel_memory", "socket-options"), r"^group: ok$"),
        ("sockets keep 60 kB of options", ("kernel_memory", "socket-options"), r"^option: ok$"),
        ("/tmp takes files without end", ("storage", "files", "/tmp"), r"^files: \d{5,}$"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_attempt_succeeds(
    docker: aiodocker.Docker,
    programs: Path,
    scoreboard: Scoreboard,
    uid: int,
    title: str,
    attack: tuple[str, ...],
    seen: str,
) -> None:
    """What is refused in a sandbox is there for the taking in a plain container."""
    program, *arguments = attack
    end = await end_of(docker, [f"/programs/{program}", *arguments], programs=programs, uid=uid)

    assert re.search(seen, end.output, re.MULTILINE), end
    scoreboard.harmed_without.append(title)


async def test_sysv_memory_stays(
    docker: aiodocker.Docker, programs: Path, scoreboard: Scoreboard, uid: int
) -> None:
    """Segments outlive the program that made them, and so does the memory they take."""
    attack = ["bash", "-c", "/programs/memory sysv; grep -c ' 16777216 ' /proc/sysvipc/shm"]
    end = await end_of(docker, attack, programs=programs, uid=uid)

    assert re.search(r"^[1-9]\d*$", end.output, re.MULTILINE), end
    scoreboard.harmed_without.append("SysV memory stays")


async def test_shared_uid_starves_another_container(
    docker: aiodocker.Docker, programs: Path, scoreboard: Scoreboard, uid: int
) -> None:
    """What the kernel counts per uid, one container can take from another."""
    take_all = ["/programs/quotas", "inotify", "hold"]
    async with plain_container(docker, take_all, programs=programs, uid=uid) as attacker:
        await attacker.until("holding: ok")
        victim = await end_of(docker, ["/programs/quotas", "inotify"], programs=programs, uid=uid)

    assert "inotify taken: 0\n" in victim.output, victim
    scoreboard.harmed_without.append("a shared uid starves another container")


@pytest.fixture
def listening_directory(uid: int) -> Iterator[Path]:
    """A directory with a socket in it that someone listens on."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-", dir="/tmp"))
    directory.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "control.sock"))
        (directory / "control.sock").chmod(0o666)
        listener.listen()
        yield directory
    shutil.rmtree(directory)


async def test_read_only_mount_does_not_protect_a_socket(
    docker: aiodocker.Docker,
    programs: Path,
    scoreboard: Scoreboard,
    uid: int,
    listening_directory: Path,
) -> None:
    """A control socket that is left in a read-only mount can be connected to."""
    attack = ["/programs/guest", "socket", "/control/control.sock"]
    async with plain_container(
        docker, attack, programs=programs, uid=uid, binds=[f"{listening_directory}:/control:ro"]
    ) as container:
        end = await container.ended()

    assert "connect: ok\n" in end.output, end
    scoreboard.harmed_without.append("a control socket in a read-only mount is connected to")
