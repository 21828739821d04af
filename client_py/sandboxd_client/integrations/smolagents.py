"""A Python executor for smolagents' CodeAgent; needs the extra `smolagents`.

Example:
    from smolagents import CodeAgent
    from sandboxd_client.integrations.smolagents import SandboxdExecutor

    with SandboxdExecutor(user_id="ada", thread_id="42") as executor:
        CodeAgent(tools=[], model=model, executor=executor).run("...")
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

from sandboxd_client.code_results import CodeRun
from sandboxd_client.errors import SessionNotFoundError
from sandboxd_client.sync import Sandbox

MAX_ANSWER_CHARACTERS = 10_000
"""How much of an exception's message the daemon returns; smolagents puts the answer there."""


# smolagents' version imports numpy and PIL, which a sandbox need not have.
_FINAL_ANSWER = """
class FinalAnswerException(BaseException):
    pass

def final_answer(answer=None):
    import json
    plain = lambda value: value.tolist() if hasattr(value, "tolist") else str(value)
    raise FinalAnswerException("safe:" + json.dumps(answer, default=plain))
"""


class SandboxdExecutor(RemotePythonExecutor):
    """Runs an agent's code in a context of a sandbox, which keeps its variables.

    The sandbox is that of a conversation, which stays, or a new one that `cleanup` ends. `timeout`
    is how many seconds one step may run; `options` are those of `Sandbox.create`. Tools that need
    packages find them only if the sandbox has them: see `packages` of `Sandbox.create`.
    """

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        timeout: float = 30,
        logger: AgentLogger | None = None,
        **options: Any,
    ) -> None:
        super().__init__([], logger or AgentLogger(level=LogLevel.ERROR))
        self._is_ours = sandbox is None
        self._is_kept = user_id is not None or thread_id is not None
        self._timeout = timeout
        self.sandbox = sandbox or _opened(user_id, thread_id, **options)

    def __enter__(self) -> SandboxdExecutor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cleanup()

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Define the tools in the sandbox; a final answer comes back as JSON has it."""
        super().send_tools({name: tool for name, tool in tools.items() if name != "final_answer"})
        if "final_answer" in tools:
            self.run_code_raise_errors(_FINAL_ANSWER)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        run = self.sandbox.code.run(code, timeout=self._timeout)
        logs = run.stdout + run.stderr
        if run.error is not None and run.error.type == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(output=self._answer(run), logs=logs, is_final_answer=True)
        if not run.ok:
            raise AgentError(f"{logs}\n{_what_happened(run)}", self.logger)
        value = run.result if run.result is not None else run.text
        return CodeOutput(output=value, logs=logs, is_final_answer=False)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Nothing is installed while an agent runs; a failing import reports what is missing."""
        return additional_imports

    def cleanup(self) -> None:
        """Free the connection, and end a sandbox that nobody else can reach."""
        if not self._is_ours:
            return
        try:
            if not self._is_kept:
                self.sandbox.kill()
        except SessionNotFoundError:
            pass  # it ended long ago
        finally:
            self.sandbox.close()

    def _answer(self, run: CodeRun) -> Any:
        assert run.error is not None
        if len(run.error.message) >= MAX_ANSWER_CHARACTERS:
            raise AgentError(
                f"The final answer has more than {MAX_ANSWER_CHARACTERS} characters. Write it to a "
                "file, and pass the name of the file to final_answer.",
                self.logger,
            )
        return self._deserialize_final_answer(run.error.message, self.allow_pickle)


def _opened(user_id: str | None, thread_id: str | None, **options: Any) -> Sandbox:
    if user_id is None and thread_id is None:
        return Sandbox.create(**options)
    return Sandbox.open(user_id or "", thread_id or "", **options)


def _what_happened(run: CodeRun) -> str:
    if run.error is not None:
        return f"{run.error.traceback}\n{run.hint}".rstrip()
    return run.hint or f"The code ended as {run.status}."
