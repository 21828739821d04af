"""The model of an example: the one that MODEL names, or a script to try the example without one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from langchain.chat_models import init_chat_model
from langchain.messages import AIMessage
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


def call(tool: str, **arguments: Any) -> AIMessage:
    """A step of a script: call this tool."""
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": f"call-{tool}"}])


def chosen_model(script: Sequence[AIMessage]) -> BaseChatModel:
    """The model that MODEL names (provider:model); without it, one that takes these steps."""
    if name := os.environ.get("MODEL"):
        return init_chat_model(name)
    print("MODEL is not set (provider:model): the answer follows a script", file=sys.stderr)
    return _ScriptedModel(script=list(script))


class _ScriptedModel(BaseChatModel):
    """Takes one step each time it is asked; {answer} is what the last tool returned."""

    script: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> BaseChatModel:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        step = self.script.pop(0)
        text = str(step.content).replace("{answer}", str(messages[-1].content))
        message = AIMessage(text, tool_calls=step.tool_calls)
        return ChatResult(generations=[ChatGeneration(message=message)])
