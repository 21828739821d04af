"""An environment for mini-swe-agent; needs the extra `mini-swe-agent`.

Example:
    from minisweagent.agents.default import DefaultAgent
    from sandboxd_client.integrations.mini_swe_agent import SandboxdEnvironment

    with SandboxdEnvironment() as environment:
        DefaultAgent(model, environment).run("...")
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from sandboxd_client.errors import SandboxError
from sandboxd_client.sync import Sandbox

SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class SandboxdEnvironmentConfig(BaseModel):
    """What the sandbox has; the daemon is that of SANDBOXD_URL unless `server_url` is set."""

    cwd: str = "/workspace"
    env: dict[str, str] = {}
    timeout: int = 30
    environment: str = ""
    server_url: str | None = None


class SandboxdEnvironment:
    """A sandbox that `close`, or the end of the block, ends."""

    def __init__(self, *, config_class: type = SandboxdEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config_class(**kwargs)
        self.sandbox = Sandbox.create(
            env=self.config.env,
            environment=self.config.environment,
            server_url=self.config.server_url,
        )

    def __enter__(self) -> SandboxdEnvironment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sandbox.kill()
        self.sandbox.close()

    def execute(
        self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None
    ) -> dict[str, Any]:
        try:
            done = self.sandbox.commands.run(
                str(action.get("command", "")),
                cwd=cwd or self.config.cwd,
                timeout=timeout or self.config.timeout,
                merge_stderr=True,
            )
        except SandboxError as error:
            return {
                "output": "",
                "returncode": -1,
                "exception_info": f"An error occurred while executing the command: {error}",
                "extra": {"exception_type": type(error).__name__, "exception": str(error)},
            }
        output = {
            "output": done.stdout,
            "returncode": done.exit_code,
            "exception_info": done.hint,
        }
        _check_finished(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        system = {"system": "Linux", "release": "", "version": "", "machine": "", "node": ""}
        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), system, kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}


def _check_finished(output: dict[str, Any]) -> None:
    """The agent ends when a command prints the word that it was told."""
    lines = output["output"].lstrip().splitlines(keepends=True)
    if lines and lines[0].strip() == SUBMIT and output["returncode"] == 0:
        submission = "".join(lines[1:])
        raise Submitted(
            {
                "role": "exit",
                "content": submission,
                "extra": {"exit_status": "Submitted", "submission": submission},
            }
        )
