"""Which files were uploaded to which session, so that they are not sent again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sandboxd_client.results import FileInfo, SessionInfo

MAX_SESSIONS = 4096
"""Most sessions that are remembered; forgetting one costs only repeated uploads."""
MAX_FILES = 1000
"""Most files of one session; as many as a workspace usually holds."""


@dataclass(frozen=True)
class SentFile:
    """A file as it was when it was uploaded."""

    digest: str
    size_bytes: int
    modified: str

    def is_still(self, found: FileInfo) -> bool:
        """Whether the file is unchanged since the upload."""
        return (
            found.type == "file"
            and found.size_bytes == self.size_bytes
            and found.modified == self.modified
        )


@dataclass
class SessionMemory:
    """Uploaded files of one session on one of its sandboxes."""

    user_id: str
    thread_id: str
    incarnation: int
    files: OrderedDict[str, SentFile] = field(default_factory=OrderedDict)

    def remember(self, name: str, digest: str, written: FileInfo) -> None:
        self.files[name] = SentFile(digest, written.size_bytes, written.modified)
        self.files.move_to_end(name)
        while len(self.files) > MAX_FILES:
            self.files.popitem(last=False)


class SentFiles:
    """Uploaded files of the most recently used sessions."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, SessionMemory] = OrderedDict()

    def of(self, session: SessionInfo) -> tuple[SessionMemory, bool]:
        """The files of a session, and whether it has moved to another sandbox since then.

        Nothing is known about another sandbox, even if the files were kept.
        """
        memory = self._sessions.get(session.session_id)
        has_moved = memory is not None and memory.incarnation != session.incarnation
        if memory is None or has_moved:
            memory = SessionMemory(session.user_id, session.thread_id, session.incarnation)
            self._sessions[session.session_id] = memory
        self._sessions.move_to_end(session.session_id)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return memory, has_moved
