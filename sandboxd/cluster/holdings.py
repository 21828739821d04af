"""The sessions that this worker holds, as far as it knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sandboxd.cluster.contract import Holding, ThreadKey


class Holdings:
    def __init__(self) -> None:
        self._held: dict[str, Holding] = {}
        self._of_threads: dict[ThreadKey, str] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._held

    def get(self, session_id: str) -> Holding | None:
        return self._held.get(session_id)

    def of_thread(self, thread: ThreadKey) -> Holding | None:
        return self._held.get(self._of_threads.get(thread, ""))

    def add(self, holding: Holding) -> None:
        """In place of what was held for its thread."""
        if (before := self.of_thread(holding.thread)) is not None:
            self.discard(before.session_id)
        self._held[holding.session_id] = holding
        self._of_threads[holding.thread] = holding.session_id

    def note_commit(self, session_id: str, epoch: int, head: str, seq: int) -> None:
        held = self._held.get(session_id)
        if held is not None and held.epoch == epoch and held.seq < seq:
            self._held[session_id] = replace(held, head=head, seq=seq)

    def discard(self, session_id: str, epoch: int | None = None) -> bool:
        """Whether it was there, under this epoch if one is given."""
        held = self._held.get(session_id)
        if held is None or (epoch is not None and held.epoch != epoch):
            return False
        del self._held[session_id]
        del self._of_threads[held.thread]
        return True

    def batches(self, size: int) -> Iterator[Sequence[Holding]]:
        """All that is held at this moment."""
        everything = list(self._held.values())
        for start in range(0, len(everything), size):
            yield everything[start : start + size]
