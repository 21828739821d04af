"""Stands in for smolagents."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

MODULES = (
    "smolagents.local_python_executor",
    "smolagents.monitoring",
    "smolagents.remote_executors",
    "smolagents.utils",
)


class LogLevel:
    ERROR = 0


class AgentLogger:
    def __init__(self, level):
        self.level = level

    def log(self, *args, **kwargs): ...


class AgentError(Exception):
    def __init__(self, message, logger):
        super().__init__(message)
        self.message = message


@dataclass
class CodeOutput:
    output: Any
    logs: str
    is_final_answer: bool


class RemotePythonExecutor:
    FINAL_ANSWER_EXCEPTION = "FinalAnswerException"

    def __init__(self, additional_imports, logger, allow_pickle=False):
        self.logger, self.allow_pickle = logger, allow_pickle

    def send_tools(self, tools):
        """Of our test, none but the final answer, which the adapter defines."""
        assert tools == {}

    def send_variables(self, variables):
        code = f"import json\nlocals().update(json.loads({json.dumps(variables)!r}))"
        self.run_code_raise_errors(code)

    def __call__(self, code_action):
        return self.run_code_raise_errors(code_action)

    @staticmethod
    def _deserialize_final_answer(encoded_value, allow_pickle=False):
        assert encoded_value.startswith("safe:")
        return json.loads(encoded_value[5:])
