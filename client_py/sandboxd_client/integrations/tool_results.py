"""What the tools answer: dicts that a framework can hand to a model, with attributes for people."""

from __future__ import annotations

from sandboxd_client.results import Result

NOT_RUN_CODE = -1
"""Exit code of a command that was not run."""


class BashResult(Result):
    """How a command ended, in a size that a model can read.

    The keys up to `uploaded_files` are always there, the others when there is something to tell.

    Example:
        result = bash.execute_bash_command("seq 3", user_id="ada", thread_id="42")
        print(result["exit_code"], result["stdout"])
    """

    exit_code: int
    """What it returned; 128 + n if signal n ended it, 124 if it timed out, -1 if it did not run."""
    stdout: str
    stderr: str
    execution_time_ms: int
    uploaded_files: list[str]
    """Names, below the workspace, of all files that were asked for; each is there."""
    unchanged_files: list[str]
    """Those of them that were there already and were not sent again."""
    output_id: str
    """Names the whole output, where some of it is left out; see `read_command_output`."""
    hint: str
    """What happened, where it is more than an exit code, and what to do."""
    notice: str
    """That the workspace is not what it was."""
    error: str
    """Why nothing was run."""


class DownloadResult(Result):
    """A file that was saved to the virtual file system, or why not."""

    status: str
    """`downloaded` or `error`."""
    path: str
    size_bytes: int
    error: str


class OutputPage(Result):
    """A piece of the output of an earlier command, or the lines that match a pattern."""

    text: str
    next_offset: int | None
    """Where the next piece begins; None at the end, and for a search."""
    total_bytes: int
    error: str
