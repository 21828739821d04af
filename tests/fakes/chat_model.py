"""A chat model that follows a script."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

Answer = dict[str, Any]
"""What a tool answered, as the model reads it."""
Step = Callable[[Answer], AIMessage]
"""The next message, given the last tool's answer."""


def calls(name: str, **arguments: Any) -> Step:
    """Call a tool, whatever the answer before."""
    return lambda _: call(name, **arguments)


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": f"call_{name}"}])


def says(text: Callable[[Answer], str]) -> Step:
    """Say something about the last tool's answer."""
    return lambda answer: AIMessage(text(answer))


class ScriptedModel(BaseChatModel):
    """Takes one step each time it is asked; keeps what it was shown."""

    steps: list[Step]
    shown: list[list[BaseMessage]] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> BaseChatModel:
        """Keep what a provider would be told of the tools."""
        self.tools = [convert_to_openai_tool(one)["function"] for one in tools]
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        self.shown.append(messages)
        last = messages[-1]
        answer = _answer(last) if isinstance(last, ToolMessage) else {}
        message = self.steps[len(self.shown) - 1](answer)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _answer(message: ToolMessage) -> Answer:
    """What a tool answered; plain words are its `text`."""
    try:
        answer = json.loads(str(message.content))
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {"text": str(message.content)}
