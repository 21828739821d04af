"""The code blocks of the documents that sandboxd was designed from, run as they stand.

`blocks_NNN.txt` has the blocks of a document in their order, by number. A block runs unless it says
why it is left out. Only imports are replaced, by the table in docs/from-the-design.md, and what a
test names: addresses, and places that a document leaves open with `...`.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from sandboxd.config import Config
from tests.seeds.page import imports

_BLOCK = re.compile(
    r"^## (\d+)\n(?:Left out: ([^\n]*)\n)?(?:\n```\w*\n(.*?)\n```\n)?(?=\n## |\Z)", re.M | re.S
)


class Block(NamedTuple):
    left_out: str
    """Why it does not run; empty if it does."""
    text: str


def blocks(document: str) -> dict[int, Block]:
    text = (Path(__file__).parent / f"blocks_{document}.txt").read_text()
    return {int(number): Block(why, code) for number, why, code in _BLOCK.findall(text)}


def assigned(text: str) -> str:
    """The program that a block has as a string."""
    return next(
        node.value.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


class Document:
    """Its blocks share their names, in the order in which they are run."""

    def __init__(self, document: str, replaced: Mapping[str, str], **names: Any) -> None:
        self.names: dict[str, Any] = {"__name__": "document", "print": self._print, **names}
        self._blocks = blocks(document)
        self._replaced = {**imports(), **replaced}
        self._printed: list[str] = []
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self._runner.close()

    def replace(self, theirs: str, ours: str) -> None:
        """Fill in what the document leaves open."""
        self._replaced[theirs] = ours

    def text(self, number: int) -> str:
        """A block with everything replaced."""
        text = self._blocks[number].text
        for theirs, ours in self._replaced.items():
            text = text.replace(theirs, ours)
        return text

    def run(self, number: int, **names: Any) -> str:
        """Run a block after these names have been set; what it printed."""
        self.names.update(names)
        self._printed.clear()
        code = compile(
            self.text(number),
            f"block {number}",
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        answer = eval(code, self.names)
        if inspect.iscoroutine(answer):
            self.wait(answer)
        return "\n".join(self._printed)

    def value(self, number: int) -> Any:
        """The value of a block that is an expression."""
        return eval(self.text(number), {})

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine in the event loop of the blocks."""
        return self._runner.run(coroutine)

    def _print(self, *words: object) -> None:
        self._printed.append(" ".join(map(str, words)))


def is_a(value: object, described: Any) -> bool:
    """Whether it is what a document describes with types: `{'exit_code': int}`, `[{...}, ...]`."""
    match described:
        case type():
            return isinstance(value, described)
        case dict():
            return isinstance(value, dict) and all(
                key in value and is_a(value[key], kind) for key, kind in described.items()
            )
        case [kind, *_]:
            return isinstance(value, list) and all(is_a(one, kind) for one in value)
    return value == described


def settings_of(text: str) -> dict[str, str]:
    """The variables that a block sets, as lines of a shell with comments."""
    script = f"set -a\n{text}\nenv --null"
    done = subprocess.run(
        ["/bin/bash", "-c", script], env={}, capture_output=True, text=True, check=True, timeout=10
    )
    pairs = (line.partition("=") for line in done.stdout.split("\0") if line)
    return {name: value for name, _, value in pairs if name not in ("PWD", "SHLVL", "_")}


def setting(variable: str) -> tuple[str, FieldInfo]:
    """The setting of the daemon with this name in the environment."""
    return next(
        (name, field)
        for name, field in Config.model_fields.items()
        if variable in getattr(field.validation_alias, "choices", [])
    )
