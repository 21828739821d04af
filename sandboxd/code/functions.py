"""What code can use besides its language: functions, modules, worked examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from sandboxd.code.settings import OPEN, CodeSettings
from sandboxd.guest.code.policy_names import ALLOWED_MODULES, BLOCKED_CALLS


class Function(NamedTuple):
    name: str
    signature: str
    description: str


class Example(NamedTuple):
    title: str
    code: str


FUNCTIONS = (
    Function(
        "debug",
        "debug(message, level='DEBUG') -> None",
        "Writes a line to the log of the run; levels are DEBUG, INFO, WARNING, ERROR, CRITICAL.",
    ),
    Function(
        "inspect_var",
        "inspect_var(name, value) -> None",
        "Writes type and summary of a value to the log of the run.",
    ),
    Function(
        "get_debug_info",
        "get_debug_info() -> dict",
        "Returns what this run has logged and inspected so far.",
    ),
    Function(
        "display",
        "display(*values) -> None",
        "Displays values in the richest form that they offer, such as HTML or PNG.",
    ),
)
EXAMPLES = (
    Example(
        "Return a result",
        "numbers = [3, 1, 2]\n"
        "__result__ = {'sorted': sorted(numbers), 'mean': sum(numbers) / len(numbers)}\n",
    ),
    Example(
        "Log while it runs",
        "total = 0\n"
        "for n in range(3):\n"
        "    total += n\n"
        "    debug(f'after {n}: {total}', 'INFO')\n"
        "inspect_var('total', total)\n"
        "__result__ = total\n",
    ),
    Example(
        "Wait for several things at once",
        "import asyncio\n\n"
        "async def slow(n):\n"
        "    await asyncio.sleep(0.01)\n"
        "    return n * n\n\n"
        "__result__ = await asyncio.gather(*(slow(n) for n in range(3)))\n",
    ),
    Example(
        "Read a file of the workspace",
        "from pathlib import Path\n"
        "Path('notes.txt').write_text('one\\ntwo\\n')\n"
        "__result__ = Path('notes.txt').read_text().split()\n",
    ),
)


class Rules(NamedTuple):
    """What a policy allows; no modules means all."""

    modules: Sequence[str]
    blocked_calls: Sequence[str]


def rules_of(settings: CodeSettings, policy: str) -> Rules:
    if policy == OPEN:
        return Rules((), ())
    table: Mapping[str, object] = settings.policy_of(policy)
    modules = table.get("allowed_modules", ALLOWED_MODULES)
    calls = table.get("blocked_calls", BLOCKED_CALLS)
    return Rules(sorted(cast(Sequence[str], modules)), sorted(cast(Sequence[str], calls)))
