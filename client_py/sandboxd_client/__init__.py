"""Sandboxes for AI agents, from Python.

`SandboxClient` has one method per task. `Sandbox` is the full interface: commands, files, shells
and terminals of one session. Both connect to SANDBOXD_URL, or to the local socket.
`AsyncSandboxClient` and `AsyncSandbox` have the same methods to `await` (`close` is `aclose`
there). With `mode="local"` the daemon runs in the process itself; this needs the extra `daemon`.

Over the network, SANDBOXD_TOKEN (or `token=`) is sent with every call. For `https://`,
SANDBOXD_CA_FILE names the certificates to trust; SANDBOXD_CLIENT_CERT and SANDBOXD_CLIENT_KEY are
the client's own certificate and key.

Errors are typed exceptions with the daemon's reason; how a command ends is a result. The SDK
repeats calls and resumes streams where that is safe: a command has an id, so it runs once however
often it is requested, and output continues at the next byte.

The async classes run on asyncio, with or without anyio, but not on trio. A call that is cancelled
ends the command that it waits for.

In a program with a current OpenTelemetry span, calls belong to its trace.

Example:
    from sandboxd_client import Sandbox

    with Sandbox.open("ada", "conversation-42") as sandbox:
        sandbox.files.write("numbers.txt", "1\\n2\\n3\\n")
        result = sandbox.commands.run("awk '{s += $1} END {print s}' numbers.txt")
        print(result.stdout, result.exit_code)
"""

from sandboxd_client.client import AsyncSandboxClient
from sandboxd_client.command_handle import AsyncCommandHandle
from sandboxd_client.command_stream import AsyncCommandStream
from sandboxd_client.commands import AsyncCommands
from sandboxd_client.errors import *  # noqa: F403  # the whole tree, and nothing else
from sandboxd_client.errors import __all__ as _errors
from sandboxd_client.file_streams import AsyncFileStream, AsyncFileWatch
from sandboxd_client.files import AsyncFiles
from sandboxd_client.projects import AsyncProjects
from sandboxd_client.results import (
    CommandInfo,
    CommandResult,
    DownloadedFile,
    FileEvent,
    FileInfo,
    FileListing,
    GlobResult,
    GrepMatch,
    GrepResult,
    ListedFile,
    OutputChunk,
    OutputGap,
    OutputMatch,
    OutputPreview,
    OutputSlice,
    ProjectFileInfo,
    ProjectInfo,
    ProjectUsage,
    SessionInfo,
    TextPage,
    TransferReport,
    UploadResult,
    Usage,
)
from sandboxd_client.sandbox import AsyncSandbox
from sandboxd_client.settings import Timeouts
from sandboxd_client.sync import (
    CommandHandle,
    Commands,
    CommandStream,
    Files,
    FileStream,
    FileWatch,
    Projects,
    Pty,
    Sandbox,
    SandboxClient,
    Shell,
)
from sandboxd_client.terminals import AsyncPty, AsyncShell


def __getattr__(name: str) -> str:
    """`__version__`, which takes longer to find than most programs want to wait at import."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("sandboxd")


__all__ = [
    "AsyncCommandHandle",
    "AsyncCommandStream",
    "AsyncCommands",
    "AsyncFileStream",
    "AsyncFileWatch",
    "AsyncFiles",
    "AsyncProjects",
    "AsyncPty",
    "AsyncSandbox",
    "AsyncSandboxClient",
    "AsyncShell",
    "CommandHandle",
    "CommandInfo",
    "CommandResult",
    "CommandStream",
    "Commands",
    "DownloadedFile",
    "FileEvent",
    "FileInfo",
    "FileListing",
    "FileStream",
    "FileWatch",
    "Files",
    "GlobResult",
    "GrepMatch",
    "GrepResult",
    "ListedFile",
    "OutputChunk",
    "OutputGap",
    "OutputMatch",
    "OutputPreview",
    "OutputSlice",
    "ProjectFileInfo",
    "ProjectInfo",
    "ProjectUsage",
    "Projects",
    "Pty",
    "Sandbox",
    "SandboxClient",
    "SessionInfo",
    "Shell",
    "TextPage",
    "Timeouts",
    "TransferReport",
    "UploadResult",
    "Usage",
    *_errors,
]
