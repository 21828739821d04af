"""The files of a session. Workers that the guest forks do everything, inside the sandbox."""

from sandboxd.files.archives import TarDownload, TarMade, TarSpec, TarUnpacked
from sandboxd.files.compression import Compression
from sandboxd.files.entries import (
    Change,
    ChangeKind,
    Changes,
    Edited,
    Entry,
    FileType,
    Found,
    GlobResult,
    GrepResult,
    LeftOut,
    Listing,
    MadeDirectory,
    TextRead,
    Uploaded,
    Usage,
)
from sandboxd.files.paths import FilePath, exact_of, text_of
from sandboxd.files.requests import (
    Chunk,
    EditSpec,
    FileSettings,
    GrepSpec,
    TextSpec,
    UploadSpec,
)
from sandboxd.files.session_files import SessionFiles
from sandboxd.files.transfer import Download
from sandboxd.files.workspace import WorkspaceFiles

__all__ = [
    "Change",
    "ChangeKind",
    "Changes",
    "Chunk",
    "Compression",
    "Download",
    "EditSpec",
    "Edited",
    "Entry",
    "FilePath",
    "FileSettings",
    "FileType",
    "Found",
    "GlobResult",
    "GrepResult",
    "GrepSpec",
    "LeftOut",
    "Listing",
    "MadeDirectory",
    "SessionFiles",
    "TarDownload",
    "TarMade",
    "TarSpec",
    "TarUnpacked",
    "TextRead",
    "TextSpec",
    "UploadSpec",
    "Uploaded",
    "Usage",
    "WorkspaceFiles",
    "exact_of",
    "text_of",
]
