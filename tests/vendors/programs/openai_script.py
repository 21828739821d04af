"""A model for the OpenAI Agents SDK: it calls tools by a script, then repeats the last answer."""

from __future__ import annotations

import json

from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import (
    ResponseCustomToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

set_tracing_disabled(True)


class Scripted(Model):
    def __init__(self, *steps):
        """Each step: the name of a tool, and its arguments, or the text that it takes."""
        self.steps = list(steps)
        self.answers = []

    async def get_response(self, system_instructions, input, *rest, **options):
        if isinstance(input, list) and "output" in input[-1]:
            self.answers.append(input[-1]["output"])
        if not self.steps:
            return _response(_message(self.answers[-1]))
        name, argument = self.steps.pop(0)
        if callable(argument):
            argument = argument(self.answers[-1])
        call_id = f"call-{len(self.steps)}"
        if isinstance(argument, str):
            return _response(
                ResponseCustomToolCall(
                    call_id=call_id, input=argument, name=name, type="custom_tool_call"
                )
            )
        return _response(
            ResponseFunctionToolCall(
                call_id=call_id, arguments=json.dumps(argument), name=name, type="function_call"
            )
        )

    def stream_response(self, *arguments, **options):
        raise NotImplementedError("these programs do not stream")


def _message(text):
    part = ResponseOutputText(text=text, annotations=[], type="output_text")
    return ResponseOutputMessage(
        id="message", content=[part], role="assistant", status="completed", type="message"
    )


def _response(item):
    return ModelResponse(output=[item], usage=Usage(), response_id=None)
