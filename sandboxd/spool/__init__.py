"""The kept output of commands: in memory while it is small, then on disk, bounded."""

from sandboxd.spool.budget import SpoolBudget
from sandboxd.spool.preview import Preview
from sandboxd.spool.query import Match, SearchQuery, SearchResult, StoppedBy
from sandboxd.spool.settings import SpoolSettings
from sandboxd.spool.spool import Spool, sweep
from sandboxd.spool.store import Disk, SpoolUnreadable
from sandboxd.spool.stream import Gap, Piece

__all__ = [
    "Disk",
    "Gap",
    "Match",
    "Piece",
    "Preview",
    "SearchQuery",
    "SearchResult",
    "Spool",
    "SpoolBudget",
    "SpoolSettings",
    "SpoolUnreadable",
    "StoppedBy",
    "sweep",
]
