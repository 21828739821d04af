"""The files of a session. Everything happens in the sandbox, by a worker that its guest forks."""

from sandboxd.files.archive import Compression, TarMade, TarSpec, TarUnpacked
from sandboxd.files.desk import FileDesk
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
from sandboxd.files.tarring import TarDownload
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
    "FileDesk",
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
