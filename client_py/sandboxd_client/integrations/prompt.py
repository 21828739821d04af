"""Text for the system prompt of an agent that has the tools."""

from __future__ import annotations

from sandboxd_proto.v1.session_pb2 import SessionLimits

_MB = 1 << 20
_TEXT = """\
### Bash in a sandbox

`execute_bash_command(command, file_paths=None)` runs a bash command line in a Linux sandbox that \
belongs to this conversation.

- It starts in `{workspace}`. Files stay there from one command to the next; variables and the \
current directory do not.
- `file_paths` names files of your virtual file system. They are copied to \
`{workspace}/<file name>` before the command runs, so never paste data into a command: save it \
with your file tools, then name its path.
- The answer has `exit_code`, `stdout`, `stderr`, `execution_time_ms` and `uploaded_files`. A \
non-zero `exit_code` is the command's own; read `stderr` and `hint`.
- Long output is shortened in the middle. Filter with grep, head, jq or awk, or read the rest with \
`read_command_output(output_id, ...)`.
- `download_sandbox_file(filename, save_path)` copies a file of the sandbox to your virtual file \
system. Use it for results that are worth keeping: the sandbox is cleaned up when the conversation \
has been idle for a while. A `notice` in an answer says when that has happened.
- Limits: {seconds} seconds per command, {file_mb} MB per file, {total_mb} MB and {count} files \
in all. There is no network. A command that a policy refuses is answered with the rule in `error`; \
find another way.

Use it for exact arithmetic, for filtering and reshaping data (jq, awk, sed, sort, python3), and \
for checking a result before you report it.

Example:
1. write_file("/data-exports/receipts.json", "[{{\\"amount\\": 45.5}}, {{\\"amount\\": 97}}]")
2. execute_bash_command(
     command="jq '.[].amount' {workspace}/receipts.json | awk '{{s += $1}} END {{print s}}'",
     file_paths=["/data-exports/receipts.json"])
   answers {{"exit_code": 0, "stdout": "142.5\\n", "uploaded_files": ["receipts.json"], ...}}
"""


def system_prompt(
    limits: SessionLimits | None = None,
    *,
    workspace_dir: str = "/workspace",
    command_seconds: float | None = None,
) -> str:
    """What a model must know to use the tools, with the limits of a session or the defaults.

    Example:
        agent = create_agent(model, tools, system_prompt=system_prompt())
    """
    known = limits or SessionLimits()
    seconds = command_seconds or known.default_exec_timeout.seconds or 30
    return _TEXT.format(
        workspace=workspace_dir,
        seconds=f"{seconds:g}",
        file_mb=(known.max_file_bytes or 100 * _MB) // _MB,
        total_mb=(known.workspace_bytes or 500 * _MB) // _MB,
        count=known.workspace_files or 1000,
    )
