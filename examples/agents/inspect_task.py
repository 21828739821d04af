"""An evaluation whose samples have a sandbox each. Needs `pip install 'sandboxd[inspect]'`.

The solver here runs a program instead of asking a model, so any model will do. Run it:
    inspect eval examples/agents/inspect_task.py --model mockllm/model
"""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import sandbox


@solver
def run_it() -> Solver:
    """Run the sample's program in its sandbox, and answer with its output."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await sandbox().write_file("program.py", state.input_text)
        done = await sandbox().exec(["python3", "program.py"], timeout=30)
        state.output = ModelOutput.from_content("sandboxd", done.stdout or done.stderr)
        return state

    return solve


@task
def arithmetic() -> Task:
    samples = [
        Sample(input="print(6 * 7)", target="42"),
        Sample(input="print(sum(range(101)))", target="5050"),
    ]
    return Task(dataset=samples, solver=run_it(), scorer=match(), sandbox="sandboxd")
