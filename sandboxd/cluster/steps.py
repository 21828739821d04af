"""The steps of one worker: arguments of the scripts, and their answers as values."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from sandboxd.cluster import answers
from sandboxd.cluster.contract import Holding, Load, ReleaseState, Worker, WorkerState
from sandboxd.cluster.session_ids import SLOT_DIGITS, thread_digest
from sandboxd.cluster.settings import ClusterSettings
from sandboxd.cluster.store import Store


class Steps:
    def __init__(self, store: Store, settings: ClusterSettings) -> None:
        self._store = store
        self._settings = settings
        leases = settings.leases
        self._times = {
            "lease": _milliseconds(leases.lease_seconds),
            "write": _milliseconds(leases.write_seconds),
            "renew": _milliseconds(leases.renew_seconds),
            "gap": _milliseconds(leases.gap_seconds),
            "held": _milliseconds(leases.held_seconds),
            "tombstone": _milliseconds(leases.tombstone_seconds),
            "forget": _milliseconds(leases.forget_seconds),
        }
        self._number = 0
        """Highest number of an era that this worker has seen."""

    async def register(
        self, known_generation: int, state: WorkerState, load: Load
    ) -> answers.Registered | answers.Taken:
        arguments = {
            **self._about_me(state, load),
            "instance": self._settings.instance,
            "known": known_generation,
        }
        return answers.registered(await self._run("register", known_generation, arguments))

    async def renew(
        self, generation: int, told: str, state: WorkerState, load: Load
    ) -> answers.Renewed | answers.Refused:
        arguments = {**self._about_me(state, load), "told": told}
        answer = answers.renewed(await self._run("renew", generation, arguments))
        if isinstance(answer, answers.Renewed):
            self._number = max(self._number, answer.number)
        return answer

    async def assert_held(
        self, generation: int, holdings: Sequence[Holding]
    ) -> answers.Asserted | answers.Refused:
        sessions = [
            {
                **self._slot(thread_digest(self._settings.cluster_key, held.thread)),
                "session_id": held.session_id,
                "epoch": str(held.epoch),
                "head": held.head,
                "seq": str(held.seq),
            }
            for held in holdings
        ]
        answer = answers.asserted(await self._run("assert", generation, {"sessions": sessions}))
        if isinstance(answer, answers.Asserted):
            self._number = max(self._number, answer.number)
        return answer

    async def claim(
        self, generation: int, digest: str, session_id: str, known_epoch: int, *, takes: bool
    ) -> answers.Claimed | answers.Refused:
        arguments = {
            **self._slot(digest),
            "session_id": session_id,
            "known": str(known_epoch),
            "takes": takes,
        }
        return answers.claimed(await self._run("claim", generation, arguments))

    async def commit(
        self, generation: int, holding: Holding, head: str, seq: int
    ) -> answers.Done | answers.Refused:
        arguments = {**self._own(holding), "head": head, "seq": str(seq)}
        return answers.written(await self._run("commit", generation, arguments))

    async def release(
        self, generation: int, holding: Holding, state: ReleaseState, keep_seconds: float
    ) -> answers.Done | answers.Refused:
        arguments = {
            **self._own(holding),
            "state": state.value,
            "keep": _milliseconds(keep_seconds),
            "head": holding.head,
            "seq": str(holding.seq),
        }
        return answers.written(await self._run("release", generation, arguments))

    async def leave(self, generation: int) -> None:
        answers.written(await self._run("leave", generation, {}))

    async def fence(self, generation: int, worker_id: str) -> answers.Done | answers.Refused:
        return answers.written(await self._run("fence", generation, {"target": worker_id}))

    async def find(self, slot: str) -> answers.Found | None:
        """What the store has, which may lack the last writes."""
        return answers.found(await self._run("find", 0, {"slot": slot}))

    async def confirm(self, slot: str) -> answers.Found | answers.Waits | None:
        """The same, for certain; Waits while a worker that may know more has still to report."""
        return answers.confirmed(await self._run("confirm", 0, {"slot": slot}))

    async def workers(self) -> list[Worker]:
        return answers.workers(await self._run("workers", 0, {}))

    async def _run(self, script: str, generation: int, arguments: Mapping[str, object]) -> bytes:
        common = {
            **self._times,
            "worker": self._settings.worker_id,
            "generation": str(generation),
            "nonce": secrets.token_hex(8),
            "number": self._number,
        }
        return await self._store.run(script, common, arguments)

    def _about_me(self, state: WorkerState, load: Load) -> dict[str, object]:
        return {
            "address": self._settings.address,
            "version": self._settings.version,
            "state": state.value,
            "load": answers.load_text(load),
        }

    def _own(self, holding: Holding) -> dict[str, object]:
        digest = thread_digest(self._settings.cluster_key, holding.thread)
        own = {"session_id": holding.session_id, "epoch": str(holding.epoch)}
        return {**self._slot(digest), **own}

    @staticmethod
    def _slot(digest: str) -> dict[str, object]:
        return {"slot": digest[:SLOT_DIGITS], "digest": digest}


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
