"""The tool that runs code."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from sandboxd_client.integrations.mcp.commands import Workspace, progress
from sandboxd_client.integrations.mcp.workspaces import AnyContext, Workspaces
from sandboxd_client.sandbox import AsyncSandbox

MAX_CHARACTERS = 16 << 10


class CodeAnswer(BaseModel):
    """How a run of code ended."""

    status: str = Field(description="How it ended, such as ok or error.")
    value: str = Field(default="", description="The value of the last expression.")
    stdout: str = ""
    stderr: str = ""
    error: str = Field(default="", description="The traceback of an exception.")
    hint: str = Field(default="", description="What happened beyond that, and what to do next.")
    is_state_kept: bool = Field(description="Whether variables of earlier runs are still there.")
    output_id: str = Field(description="For read_output, if the output was shortened.")


class CodeTools:
    """run_code."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def run_code(
        self,
        context: AnyContext,
        code: str,
        language: Literal["python", "javascript"] = "python",
        timeout: Annotated[float | None, Field(ge=0, description="Seconds it may run.")] = None,
        workspace: Workspace = None,
    ) -> CodeAnswer:
        """Run code in an interpreter that keeps variables, imports and functions between calls.

        The value of the last expression is returned, so there is no need to print it. Files of the
        workspace are in the current directory.
        """

        async def run(sandbox: AsyncSandbox) -> CodeAnswer:
            report = progress(context)
            done: Any = await sandbox.code.run(
                code,
                context="main" if language == "python" else language,
                language=language,
                timeout=timeout,
                on_stdout=report,
                on_stderr=report,
            )
            shown = "" if done.value is None else done.value.text or str(list(done.value))
            return CodeAnswer(
                status=done.status,
                value=cut(shown),
                stdout=cut(done.stdout),
                stderr=cut(done.stderr),
                error="" if done.error is None else cut(done.error.traceback),
                hint=done.hint,
                is_state_kept=done.is_state_kept,
                output_id=done.exec_id,
            )

        return await self._workspaces.use(context, workspace, run)


def cut(text: str) -> str:
    """Both ends of a long text."""
    if len(text) <= MAX_CHARACTERS:
        return text
    half = MAX_CHARACTERS // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"
