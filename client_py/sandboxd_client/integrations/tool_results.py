"""Results of the tools: dicts that a framework can pass to a model, with attributes."""

from __future__ import annotations

from sandboxd_client.results import Result

NOT_RUN_CODE = -1
"""Exit code of a command that was not run."""


class BashResult(Result):
    """How a command ended, in a size that a model can read.

    The keys up to `uploaded_files` are always set, the others only if they apply.

    Example:
        result = bash.execute_bash_command("seq 3", user_id="ada", thread_id="42")
        print(result["exit_code"], result["stdout"])
    """

    exit_code: int
    """Exit code; 128 + n if signal n ended it, 124 if it timed out, -1 if it did not run."""
    stdout: str
    stderr: str
    execution_time_ms: int
    uploaded_files: list[str]
    """Names of all requested files, relative to the workspace; each is there."""
    unchanged_files: list[str]
    """Those of them that were already there and were not sent again."""
    output_id: str
    """Id of the whole output if some of it is left out; see `read_command_output`."""
    hint: str
    """What happened beyond the exit code, and what to do next."""
    notice: str
    """A notice that the workspace has changed since the last command."""
    turn_id: str
    """Turn of this call, with `auto_snapshot`; `undo` takes it back."""
    error: str
    """Why nothing was run."""


class DownloadResult(Result):
    """A file saved to the virtual file system, or the error."""

    status: str
    """`downloaded` or `error`."""
    path: str
    size_bytes: int
    error: str


class OutputPage(Result):
    """A piece of an earlier command's output, or the lines of it that match a pattern."""

    text: str
    next_offset: int | None
    """Position of the next piece; None at the end, and for a search."""
    total_bytes: int
    error: str
