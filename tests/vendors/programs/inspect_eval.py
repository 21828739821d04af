"""Evaluations with `sandbox="sandboxd"`; prints what became of their samples.

Arguments: the name of a task below, and a directory for logs.
"""

from __future__ import annotations

import json
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import Score, accuracy, includes, scorer
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import bash, bash_session, python, text_editor
from inspect_ai.util import sandbox


@solver
def write_and_read():
    """Each sample writes its own number, meets the others, and reads what is there."""

    async def solve(state, _):
        number = state.input_text
        await sandbox().write_file("number.txt", number)
        done = await sandbox().exec(["bash", "-c", "sleep 1; cat *.txt; echo; hostname"])
        state.output = ModelOutput.from_content("sandboxd", done.stdout)
        return state

    return solve


@solver
def fail_in_several_ways():
    async def solve(state, _):
        if state.input_text == "raises":
            raise RuntimeError("as it should")
        await sandbox().exec(["sleep", "600"])
        return state

    return solve


@scorer(metrics=[accuracy()])
def is_own_number():
    async def score(state, target):
        first = state.output.completion.split()[0]
        return Score(value=first == state.input_text and await has_file(state.input_text))

    async def has_file(number):
        return await sandbox().read_file("number.txt") == number

    return score


TASKS = {
    "twenty": lambda: Task(
        dataset=[Sample(input=str(number)) for number in range(20)],
        solver=write_and_read(),
        scorer=is_own_number(),
        sandbox="sandboxd",
    ),
    "failures": lambda: Task(
        dataset=[Sample(input="raises"), Sample(input="takes too long")],
        solver=fail_in_several_ways(),
        sandbox="sandboxd",
        time_limit=5,
        fail_on_error=False,
    ),
    "endless": lambda: Task(
        dataset=[Sample(input=f"endless {number}") for number in range(3)],
        solver=fail_in_several_ways(),
        sandbox="sandboxd",
    ),
    "agent": lambda: Task(
        dataset=[Sample(input="Count.", target="42", files={"data/n.txt": "40"})],
        solver=[use_tools(bash(), python(), text_editor(), bash_session()), generate()],
        scorer=includes(),
        sandbox=("sandboxd", "default"),
    ),
}
AGENT = [
    ("bash", {"command": "cat data/n.txt"}),
    ("python", {"code": "print(int(open('data/n.txt').read()) + 2)"}),
    ("text_editor", {"command": "view", "path": "/workspace/data/n.txt"}),
    ("bash_session", {"action": "type_submit", "input": "cd data && seen=$(cat n.txt)"}),
    ("bash_session", {"action": "type_submit", "input": 'echo "$PWD has $((seen + 2))"'}),
    ("", "It is 42."),
]


def scripted(name, arguments):
    if name == "":
        return ModelOutput.from_content("mockllm/model", arguments)
    return ModelOutput.for_tool_call("mockllm/model", tool_name=name, tool_arguments=arguments)


task, logs = sys.argv[1:]
model = get_model("mockllm/model", custom_outputs=[scripted(*call) for call in AGENT])


async def roughly(text):
    """Tokens of a text, which the scripted model counts with a table from the network."""
    return len(text) // 4


model.api.count_text_tokens = roughly
(log,) = eval(
    TASKS[task](), model=model, log_dir=logs, display="none", max_samples=20, max_sandboxes=20
)
samples = log.samples or []
print(
    json.dumps(
        {
            "status": log.status,
            "error": log.error.message if log.error else None,
            "scores": [
                score.value for sample in samples for score in (sample.scores or {}).values()
            ],
            "errors": [sample.error.message for sample in samples if sample.error],
            "limits": [sample.limit.type for sample in samples if sample.limit],
            "tools": [
                str(message.content)
                for sample in samples
                for message in sample.messages
                if message.role == "tool"
            ],
        }
    )
)
