"""The bash tool for LangChain agents; needs the extra `langchain`.

Example:
    from langchain.agents import create_agent
    from sandboxd_client.integrations import AsyncBashTool
    from sandboxd_client.integrations.langchain import sandbox_tools

    bash = AsyncBashTool(files=...)
    agent = create_agent(
        model, sandbox_tools(bash), system_prompt=bash.system_prompt(), context_schema=AgentContext
    )
    await agent.ainvoke({"messages": [...]}, context=AgentContext(user_id="ada", thread_id="42"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool

from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.integrations.bash_tool import AsyncBashTool
from sandboxd_client.integrations.bash_tool_sync import BashTool
from sandboxd_client.integrations.conversation import Conversation

AnyRuntime: TypeAlias = ToolRuntime[Any, Any]
Identify: TypeAlias = Callable[[AnyRuntime], Conversation]

_COMMAND = """Execute a bash command in the persistent sandbox of this conversation.

Files from the virtual filesystem are automatically uploaded to the sandbox before execution and \
are at /workspace/<filename>. The workspace keeps its files from one command to the next.

Args:
    command: Bash command to execute.
    file_paths: Paths of files in the virtual filesystem to upload first, for example \
["/data-exports/receipts.json", "/scripts/process.py"].
"""
_DOWNLOAD = """Copy a file of the sandbox workspace to the virtual filesystem.

Only needed for results worth keeping or too large for stdout.

Args:
    filename: File in the sandbox, for example "results.csv".
    save_path: Where to save it in the virtual filesystem, for example \
"/data-exports/results.csv".
"""
_OUTPUT = """Read the part of an earlier command's output that was left out of its answer.

Args:
    output_id: The output_id of that answer.
    stream: "stdout" or "stderr".
    offset: Byte to start at.
    pattern: Regular expression; only the lines that match are returned, with their numbers.
"""


def from_context(runtime: AnyRuntime) -> Conversation:
    """User and thread of a tool call, from the agent's context or its configuration.

    The context is an object or a dict with `user_id` and `thread_id` (or `session_id`); in the
    configuration they are `configurable`.
    """
    return conversation_of(runtime.context, runtime.config.get("configurable", {}), runtime)


def conversation_of(
    context: object, configurable: Mapping[str, Any], runtime: object = None
) -> Conversation:
    """User and thread in the context of an agent, or else in its configuration."""
    user_id = _field(context, "user_id") or configurable.get("user_id")
    thread_id = (
        _field(context, "thread_id")
        or _field(context, "session_id")
        or configurable.get("thread_id")
    )
    for name, value in (("user_id", user_id), ("thread_id", thread_id)):
        if not value:
            raise InvalidRequestError(
                f"{name}: missing in the agent's context; invoke it with context=..., or with "
                f'config={{"configurable": {{"{name}": ...}}}}'
            )
    return Conversation(str(user_id), str(thread_id), runtime)


def sandbox_tools(
    bash: AsyncBashTool | BashTool, *, identify: Identify = from_context
) -> list[BaseTool]:
    """execute_bash_command, download_sandbox_file and read_command_output for an agent.

    The model sees only commands and paths; `identify` decides whose sandbox is used. Tools of an
    AsyncBashTool are for agents that are awaited, those of a BashTool for any agent.

    Example:
        tools = sandbox_tools(AsyncBashTool(files=files))
    """
    if isinstance(bash, BashTool):
        return _sync_tools(bash, identify)
    return _async_tools(bash, identify)


def _async_tools(bash: AsyncBashTool, identify: Identify) -> list[BaseTool]:
    async def execute_bash_command(
        command: str, runtime: AnyRuntime, file_paths: list[str] | None = None
    ) -> dict[str, Any]:
        return await bash.execute_bash_command(command, file_paths, **_whose(identify, runtime))

    async def download_sandbox_file(
        filename: str, save_path: str, runtime: AnyRuntime
    ) -> dict[str, Any]:
        return await bash.download_sandbox_file(filename, save_path, **_whose(identify, runtime))

    async def read_command_output(
        output_id: str,
        runtime: AnyRuntime,
        stream: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        pattern: str | None = None,
    ) -> dict[str, Any]:
        return await bash.read_command_output(
            output_id, stream=stream, offset=offset, pattern=pattern, **_whose(identify, runtime)
        )

    return [
        StructuredTool.from_function(coroutine=execute_bash_command, description=_COMMAND),
        StructuredTool.from_function(coroutine=download_sandbox_file, description=_DOWNLOAD),
        StructuredTool.from_function(coroutine=read_command_output, description=_OUTPUT),
    ]


def _sync_tools(bash: BashTool, identify: Identify) -> list[BaseTool]:
    def execute_bash_command(
        command: str, runtime: AnyRuntime, file_paths: list[str] | None = None
    ) -> dict[str, Any]:
        return bash.execute_bash_command(command, file_paths, **_whose(identify, runtime))

    def download_sandbox_file(filename: str, save_path: str, runtime: AnyRuntime) -> dict[str, Any]:
        return bash.download_sandbox_file(filename, save_path, **_whose(identify, runtime))

    def read_command_output(
        output_id: str,
        runtime: AnyRuntime,
        stream: Literal["stdout", "stderr"] = "stdout",
        offset: int = 0,
        pattern: str | None = None,
    ) -> dict[str, Any]:
        return bash.read_command_output(
            output_id, stream=stream, offset=offset, pattern=pattern, **_whose(identify, runtime)
        )

    return [
        StructuredTool.from_function(execute_bash_command, description=_COMMAND),
        StructuredTool.from_function(download_sandbox_file, description=_DOWNLOAD),
        StructuredTool.from_function(read_command_output, description=_OUTPUT),
    ]


def _whose(identify: Identify, runtime: AnyRuntime) -> dict[str, Any]:
    conversation = identify(runtime)
    return {
        "user_id": conversation.user_id,
        "thread_id": conversation.thread_id,
        "runtime": conversation.runtime,
    }


def _field(context: object, name: str) -> object:
    return context.get(name) if isinstance(context, Mapping) else getattr(context, name, None)
