"""What the parts of this folder have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandboxd.execs.session_execs import SharedExecState
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRegistry
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sessions.added_packages import AddedPackages
from sandboxd.sessions.book import SessionBook
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.lines import SessionLines
from sandboxd.sessions.ownership import Ownership
from sandboxd.sessions.preparation import Preparation
from sandboxd.sessions.session import Session, SessionSettings
from sandboxd.sessions.transitions import Transitions
from sandboxd.tasks import Tasks


@dataclass(frozen=True, kw_only=True)
class SharedSessionState:
    """State and collaborators that opening, resetting, ends and expiry share."""

    pools: Pools
    kept_files: KeptFilesStore
    registry: SessionRegistry
    settings: SessionSettings
    exec_state: SharedExecState
    journal: Journal
    preparation: Preparation
    packages: AddedPackages
    lines: SessionLines
    ownership: Ownership
    sessions: SessionBook[Session] = field(default_factory=SessionBook)
    transitions: Transitions = field(default_factory=Transitions)
    tasks: Tasks = field(default_factory=Tasks)
