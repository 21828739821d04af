"""Sandboxes for AI agents, from Python.

`SandboxClient` has one method per task. `Sandbox` is the full interface: commands, files, shells
and terminals of one session. Both connect to SANDBOXD_URL (or SANDBOX_URL), or to the local socket.
`AsyncSandboxClient` and `AsyncSandbox` have the same methods to `await` (`close` is `aclose`
there).

With `mode="local"` (or SANDBOXD_MODE, SANDBOX_MODE) the daemon runs in the process itself; this
needs the extra `daemon`. Its settings are `local_settings`, then the environment, where HOST, PORT,
REDIS_HOST and whatever else is about a server is not looked at. Processes with the same
SANDBOXD_STATE_DIR and SANDBOXD_RUN_DIR, such as the workers of a web server, share one daemon and
its sessions: that of (user, thread) is the same in all of them. The first process runs the daemon.
When it ends, the next call of another process starts the next daemon, with the files of all
sessions; a call that is under way then may fail with `ConnectionLostError`, and commands go on only
if the process was killed, not if it ended by itself.

Nothing is published to a package index. Where an agent runs, `pip install PATH` installs the SDK
and two libraries, not those of the daemon: PATH is the repository, or a wheel of it, which fits
every machine (`pip wheel --no-deps --wheel-dir dist PATH`). Extras, such as the command line, then
come with `pip install 'sandboxd[cli]'`.

Over the network, SANDBOXD_TOKEN (or `token=`) is sent with every call. For `https://`,
SANDBOXD_CA_FILE names the certificates to trust; SANDBOXD_CLIENT_CERT and SANDBOXD_CLIENT_KEY are
the client's own certificate and key.

New sessions run every command, unless `command_policy=` or an operator names a policy; those of
`SandboxClient` and `BashTool` have the policy `strict`, without `rm`, `mv` or `curl`.

Errors are typed exceptions with the daemon's reason, and tracebacks without lines of the SDK,
which are in the log `sandboxd_client` (DEBUG); how a command ends is a result. The SDK
repeats calls and resumes streams where that is safe: a command has an id, so it runs once however
often it is requested, and output continues at the next byte.

The SDK does not use plain HTTP, so it never raises `requests.HTTPError`. Programs that caught it
catch `SandboxError`, after `SessionExpiredError` and ValueError (invalid requests, refused
commands), and read `error.reason` in place of `error.response.status_code`.

The async classes run on asyncio, with or without anyio, but not on trio. A call that is cancelled
ends the command that it waits for.

Processes that are forked after the SDK was used, by multiprocessing, Celery or
`gunicorn --preload`, can use it as well, also what their parent has opened. A fork waits up to a
second for calls of other threads. In a process that is forked during a longer call, or while other
code of its parent uses gRPC for asyncio, gRPC cannot work: calls raise `ForkedError`, unless gRPC
itself crashes the process first, which GRPC_ENABLE_FORK_SUPPORT=0 in the environment prevents.
Start such processes with `spawn`. The daemon of local mode stays with the parent (`ForkedError`).

In a program with a current OpenTelemetry span, calls belong to its trace.

Example:
    from sandboxd_client import Sandbox

    with Sandbox.open("ada", "conversation-42") as sandbox:
        sandbox.files.write("numbers.txt", "1\\n2\\n3\\n")
        result = sandbox.commands.run("awk '{s += $1} END {print s}' numbers.txt")
        print(result.stdout, result.exit_code)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sandboxd_client import public_names

if TYPE_CHECKING:
    from sandboxd_client.client import AsyncSandboxClient
    from sandboxd_client.code import AsyncCode
    from sandboxd_client.code_handle import AsyncCodeHandle
    from sandboxd_client.code_help import (
        CodeCheck,
        CodeExample,
        CodeFunction,
        CodeHelp,
        CodeLimits,
        CodeViolation,
    )
    from sandboxd_client.code_results import (
        CodeException,
        CodeFrame,
        CodeLog,
        CodeNote,
        CodeRun,
        ContextInfo,
        Conversion,
        Display,
    )
    from sandboxd_client.code_stream import AsyncCodeStream
    from sandboxd_client.command_handle import AsyncCommandHandle
    from sandboxd_client.command_stream import AsyncCommandStream
    from sandboxd_client.commands import AsyncCommands
    from sandboxd_client.data import AsyncData, AsyncSandboxData
    from sandboxd_client.data_results import (
        ColumnInfo,
        DataSourceInfo,
        QueryInfo,
        QueryRows,
        TableInfo,
    )
    from sandboxd_client.debug_results import (
        Breakpoint,
        DebugStep,
        DebugValue,
        Variable,
        Variables,
    )
    from sandboxd_client.debugger import AsyncDebugger
    from sandboxd_client.door_results import EgressDenial, EgressInfo, PortInfo, PreviewInfo
    from sandboxd_client.egress import AsyncEgress
    from sandboxd_client.errors import *  # noqa: F403  # the whole tree, and nothing else
    from sandboxd_client.errors import __all__ as _errors
    from sandboxd_client.execution import (
        Execution,
        ExecutionError,
        ExecutionLogs,
        ExecutionResult,
        OutputMessage,
    )
    from sandboxd_client.file_streams import AsyncFileStream, AsyncFileWatch
    from sandboxd_client.files import AsyncFiles
    from sandboxd_client.ports import AsyncPortForward, AsyncPorts
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
        SessionList,
        TextPage,
        TransferReport,
        UploadResult,
        Usage,
    )
    from sandboxd_client.sandbox import AsyncSandbox
    from sandboxd_client.settings import Timeouts
    from sandboxd_client.snapshot_results import (
        SnapshotChange,
        SnapshotCheck,
        SnapshotDiff,
        SnapshotInfo,
    )
    from sandboxd_client.snapshots import AsyncSnapshots
    from sandboxd_client.step_stream import AsyncStepStream
    from sandboxd_client.sync import (
        Code,
        CodeHandle,
        CodeStream,
        CommandHandle,
        Commands,
        CommandStream,
        Data,
        Debugger,
        Egress,
        Files,
        FileStream,
        FileWatch,
        PortForward,
        Ports,
        Projects,
        Pty,
        Sandbox,
        SandboxClient,
        SandboxData,
        Shell,
        Snapshots,
        StepStream,
    )
    from sandboxd_client.terminals import AsyncPty, AsyncShell
    from sandboxd_client.turns import turn
else:
    _errors = public_names.ERRORS


def __getattr__(name: str) -> Any:
    """Load a name, or a module that has some, when it is first used: a program uses few of them."""
    if name == "__version__":
        from importlib.metadata import version

        return version("sandboxd")
    home = "errors" if name in _errors else public_names.HOMES.get(name)
    if home is not None:
        found = getattr(import_module(f"{__name__}.{home}"), name)
    elif name == "errors" or name in public_names.HOMES.values():
        found = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


__all__ = [
    "AsyncCode",
    "AsyncCodeHandle",
    "AsyncCodeStream",
    "AsyncCommandHandle",
    "AsyncCommandStream",
    "AsyncCommands",
    "AsyncData",
    "AsyncDebugger",
    "AsyncEgress",
    "AsyncFileStream",
    "AsyncFileWatch",
    "AsyncFiles",
    "AsyncPortForward",
    "AsyncPorts",
    "AsyncProjects",
    "AsyncPty",
    "AsyncSandbox",
    "AsyncSandboxClient",
    "AsyncSandboxData",
    "AsyncShell",
    "AsyncSnapshots",
    "AsyncStepStream",
    "Breakpoint",
    "Code",
    "CodeCheck",
    "CodeExample",
    "CodeException",
    "CodeFrame",
    "CodeFunction",
    "CodeHandle",
    "CodeHelp",
    "CodeLimits",
    "CodeLog",
    "CodeNote",
    "CodeRun",
    "CodeStream",
    "CodeViolation",
    "ColumnInfo",
    "CommandHandle",
    "CommandInfo",
    "CommandResult",
    "CommandStream",
    "Commands",
    "ContextInfo",
    "Conversion",
    "Data",
    "DataSourceInfo",
    "DebugStep",
    "DebugValue",
    "Debugger",
    "Display",
    "DownloadedFile",
    "Egress",
    "EgressDenial",
    "EgressInfo",
    "Execution",
    "ExecutionError",
    "ExecutionLogs",
    "ExecutionResult",
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
    "OutputMessage",
    "OutputPreview",
    "OutputSlice",
    "PortForward",
    "PortInfo",
    "Ports",
    "PreviewInfo",
    "ProjectFileInfo",
    "ProjectInfo",
    "ProjectUsage",
    "Projects",
    "Pty",
    "QueryInfo",
    "QueryRows",
    "Sandbox",
    "SandboxClient",
    "SandboxData",
    "SessionInfo",
    "SessionList",
    "Shell",
    "SnapshotChange",
    "SnapshotCheck",
    "SnapshotDiff",
    "SnapshotInfo",
    "Snapshots",
    "StepStream",
    "TableInfo",
    "TextPage",
    "Timeouts",
    "TransferReport",
    "UploadResult",
    "Usage",
    "Variable",
    "Variables",
    "turn",
    *_errors,
]
