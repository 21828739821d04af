"""Sandboxes as tools of AI agents.

`AsyncBashTool` (and `BashTool`, the same without `await`) runs commands for a model in the sandbox
of its conversation, and first uploads the files that they need from the agent's virtual file
system. Each framework has a separate module, with an extra of the same name: `deepagents`,
`langchain`; `postgres_files` needs the extra `postgres`.

Example:
    from sandboxd_client.integrations import BashTool, FilesInMemory

    files = FilesInMemory({"/data-exports/receipts.json": b'[{"amount": 45.5}, {"amount": 97}]'})
    with BashTool(files=files) as bash:
        result = bash.execute_bash_command(
            "jq '.[].amount' /workspace/receipts.json | awk '{s += $1} END {print s}'",
            ["/data-exports/receipts.json"],
            user_id="ada",
            thread_id="conversation-42",
        )
    print(result["stdout"], result["uploaded_files"])
"""

from sandboxd_client.integrations.agent_files import BackendFiles, StoreFiles
from sandboxd_client.integrations.bash_tool import AsyncBashTool
from sandboxd_client.integrations.bash_tool_sync import BashTool
from sandboxd_client.integrations.conversation import Conversation
from sandboxd_client.integrations.prompt import system_prompt
from sandboxd_client.integrations.tool_results import BashResult, DownloadResult, OutputPage
from sandboxd_client.integrations.virtual_files import (
    DigestedFiles,
    FilesFromFunctions,
    FilesInDirectory,
    FilesInMemory,
    VirtualFileError,
    VirtualFiles,
)

__all__ = [
    "AsyncBashTool",
    "BackendFiles",
    "BashResult",
    "BashTool",
    "Conversation",
    "DigestedFiles",
    "DownloadResult",
    "FilesFromFunctions",
    "FilesInDirectory",
    "FilesInMemory",
    "OutputPage",
    "StoreFiles",
    "VirtualFileError",
    "VirtualFiles",
    "system_prompt",
]
