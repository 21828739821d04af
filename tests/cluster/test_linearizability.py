"""Get-or-create of a session behaves as if one worker after the other asked."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from sandboxd.cluster.contract import ClaimWaits, Mine, Origin, ReleaseState
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.settings import LeaseSettings, RedisSettings
from tests.cluster.linearizability import Kind, Operation, violations
from tests.cluster.model import thread
from tests.cluster.real import open_cluster, own, real_worker
from tests.cluster.servers import RedisServer
from tests.scale import SCALE

WORKERS = 4
CALLERS = 4
THREADS = 12
OPERATIONS = round(10_000 * SCALE)
LONGEST_SECONDS = 15 * max(SCALE, 1.0)


class Recorder:
    def __init__(self, give_up_at: float) -> None:
        self.operations: list[Operation] = []
        self._give_up_at = give_up_at

    @property
    def is_enough(self) -> bool:
        return len(self.operations) >= OPERATIONS or time.monotonic() > self._give_up_at

    async def caller(self, directory: SharedDirectory, seed: int) -> None:
        randomness = random.Random(seed)
        while not self.is_enough:
            number = randomness.randrange(THREADS)
            called_at = time.monotonic()
            answer = await directory.claim(thread(number))
            answered_at = time.monotonic()
            if isinstance(answer, ClaimWaits):
                continue
            is_granted = isinstance(answer, Mine) and answer.origin is not Origin.KNOWN
            self.operations.append(
                Operation(
                    number,
                    Kind.GRANT if is_granted else Kind.TELL,
                    called_at,
                    answered_at,
                    directory.worker_id if isinstance(answer, Mine) else answer.worker,
                    answer.session_id,
                    answer.epoch,
                )
            )
            # Only who was granted a tenure ends it: so it is ended once.
            if is_granted:
                await asyncio.sleep(randomness.choice((0, 0, 0.002, 0.01)))
                await self.release(directory, number, answer.session_id, answer.epoch, randomness)

    async def release(
        self,
        directory: SharedDirectory,
        number: int,
        session_id: str,
        epoch: int,
        randomness: random.Random,
    ) -> None:
        state = randomness.choice(list(ReleaseState))
        called_at = time.monotonic()
        await directory.release(session_id, epoch, state, keep_seconds=60)
        self.operations.append(
            Operation(
                number,
                Kind.RELEASE,
                called_at,
                time.monotonic(),
                directory.worker_id,
                session_id,
                epoch,
            )
        )


@pytest.mark.timeout(300 * max(SCALE, 1.0))
async def test_get_or_create_is_linearizable(redis_server: RedisServer) -> None:
    redis = RedisSettings(port=redis_server.port, call_seconds=30)
    await open_cluster(redis, "linear")
    # Long enough that no worker is fenced because the machine is busy.
    directories = [
        real_worker(redis, "linear", f"w{number}", leases=LeaseSettings())
        for number in range(WORKERS)
    ]
    for directory in directories:
        await directory.start()
    for number, directory in enumerate(directories):
        await own(directory, THREADS + number)
    recorder = Recorder(time.monotonic() + LONGEST_SECONDS)

    began_at = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for seed in range(WORKERS * CALLERS):
            group.create_task(recorder.caller(directories[seed % WORKERS], seed))
    took = time.monotonic() - began_at
    for directory in directories:
        await directory.stop()

    found = violations(recorder.operations)
    grants = sum(operation.kind is Kind.GRANT for operation in recorder.operations)
    print(
        f"linearizability of claims: {len(recorder.operations)} operations, {grants} of them "
        f"changes of the owner, in {took:.1f} s, {len(found)} violations (scale {SCALE:g})"
    )
    assert found == []
    assert grants > 100


def history(*entries: tuple[Kind, float, float, str, int]) -> list[Operation]:
    return [
        Operation(0, kind, called_at, answered_at, worker, "ses", epoch)
        for kind, called_at, answered_at, worker, epoch in entries
    ]


ORDERLY = (
    (Kind.GRANT, 0.0, 1.0, "w1", 1),
    (Kind.TELL, 0.0, 3.0, "w1", 1),
    (Kind.RELEASE, 2.0, 4.0, "w1", 1),
    (Kind.GRANT, 3.0, 5.0, "w2", 2),
    (Kind.TELL, 3.5, 3.9, "w1", 1),
)


def test_an_orderly_history_is_accepted() -> None:
    assert violations(history(*ORDERLY)) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ((Kind.TELL, 4.1, 4.2, "w1", 1), "told after it ended"),
        ((Kind.TELL, 2.0, 2.9, "w2", 2), "told before it began"),
        ((Kind.GRANT, 3.0, 5.0, "w3", 2), "2 grants"),
        ((Kind.TELL, 4.5, 6.0, "w3", 2), "two owners"),
        ((Kind.TELL, 4.5, 6.0, "w3", 3), "0 grants"),
        ((Kind.GRANT, 6.0, 7.0, "w3", 3), "while another tenure lasts"),
    ],
)
def test_a_wrong_answer_is_found(wrong: tuple[Kind, float, float, str, int], why: str) -> None:
    """The checker can fail."""
    assert why in " ".join(violations(history(*ORDERLY, wrong)))
