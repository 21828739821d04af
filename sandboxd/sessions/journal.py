"""The contract of a journal, which records sessions and their commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sandboxd.data.records import QueryRecord
from sandboxd.errors import SandboxdError
from sandboxd.execs.exec import Exec
from sandboxd.execs.spec import ExecSpec
from sandboxd.projects.records import ProjectKey
from sandboxd.registry.contract import SessionRecord
from sandboxd.snapshots.contract import Snapshot


class Journal:
    """Is called when something happens to sessions and their commands. This one records nothing."""

    def on_opened(self, record: SessionRecord, outcome: str, seconds: float) -> None:
        """A session was opened."""

    def on_reset(self, record: SessionRecord) -> None:
        """A session was given a fresh sandbox."""

    def on_changed(
        self, record: SessionRecord, labels: Mapping[str, str], removed_labels: Collection[str]
    ) -> None:
        """The idle time or the labels of a session were changed."""

    def on_session_ended(self, record: SessionRecord) -> None:
        """A session is no longer active."""

    def on_started(
        self, record: SessionRecord, execution: Exec, spec: ExecSpec, decision: str
    ) -> None:
        """A command was started; `decision` is why it was allowed."""

    def on_ended(self, record: SessionRecord, execution: Exec) -> None:
        """A command has ended."""

    def on_file_moved(
        self, record: SessionRecord, action: str, path: str, *, bytes_in: int, bytes_out: int
    ) -> None:
        """A file was written, read or deleted; `action` is a word such as `file.written`."""

    def on_environment(self, action: str, environment: str, detail: str = "") -> None:
        """An environment was built or deleted; `action` is a word such as `environment.built`."""

    def on_project(
        self, action: str, key: ProjectKey, name: str = "", *, bytes_in: int = 0, bytes_out: int = 0
    ) -> None:
        """A project, or the file of this name in it, was made, read or deleted; `action` is a word
        such as `project.created`."""

    def on_query(self, record: QueryRecord) -> None:
        """A query of a data source has ended, or was refused."""

    def on_parked(self, record: SessionRecord, snapshot: Snapshot) -> None:
        """A session gave up its sandbox; the snapshot holds its files."""

    def on_rewound(self, record: SessionRecord, snapshot: Snapshot) -> None:
        """A session was given the files of one of its snapshots."""

    def on_snapshot(
        self, action: str, record: SessionRecord, number: int, detail: str = ""
    ) -> None:
        """A snapshot was taken, read, deleted or used by a caller; `action` is a word such as
        `snapshot.created`."""

    def on_turn(self, record: SessionRecord, snapshot: Snapshot, seconds: float) -> None:
        """An automatic snapshot was taken."""

    def on_turn_failed(self, record: SessionRecord) -> None:
        """An automatic snapshot could not be taken."""

    def on_door(self, record: SessionRecord, action: str, details: Mapping[str, Any]) -> None:
        """A door of a session was used, changed, or refused something; `action` is a word such as
        `egress.denied`."""

    def on_refused(self, error: SandboxdError, asked: Mapping[str, Any]) -> None:
        """A call was refused; `asked` has the names in its request."""

    def on_stranger_refused(self, error: SandboxdError, method: str, peer: str) -> None:
        """A call of an unknown caller was refused, before its request was read."""
