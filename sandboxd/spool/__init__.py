"""Where the output of a command is kept: in memory while it is little, then on disk, bounded."""

from sandboxd.spool.budget import SpoolBudget
from sandboxd.spool.disk import Disk
from sandboxd.spool.piece import Gap, Piece
from sandboxd.spool.preview import Preview
from sandboxd.spool.query import Match, SearchQuery, SearchResult, StoppedBy
from sandboxd.spool.settings import SpoolSettings
from sandboxd.spool.spool import Spool, sweep
from sandboxd.spool.store import SpoolUnreadable

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
