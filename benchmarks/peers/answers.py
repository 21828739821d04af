"""The process of a contender: it reads the name of a task per line and answers with its seconds.

It runs in the environment of the contender, so this uses nothing but the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

After = Callable[[], object]
"""What follows a measurement and is no part of it: a check of the result, a clean-up."""
Call = Callable[[], After | None]
MOST_OF_A_REASON = 300


class WrongResult(Exception):
    """A contender did not do what it was asked; its figure would be worthless."""


class Contender(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def calls(self) -> Mapping[str, Call]: ...

    def close(self) -> object: ...


def check(is_right: bool, what: object) -> None:
    if not is_right:
        raise WrongResult(f"wrong result: {what}")


def reason_of(error: BaseException) -> str:
    """One line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:MOST_OF_A_REASON]


def serve(make: Callable[[Mapping[str, str]], Contender]) -> None:
    """Answer until the end of the input; the first line says which tasks there are."""
    # Libraries print, too: only we may write where the answers are read.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")

    contender = make(json.loads(sys.argv[1]))
    try:
        say(version=contender.version, tasks=list(contender.calls))
        for line in sys.stdin:
            try:
                say(seconds=_measured(contender.calls[line.strip()]))
            except Exception as error:
                say(error=reason_of(error))
    finally:
        contender.close()


def _measured(call: Call) -> float:
    began = time.perf_counter()
    after: Any = call()
    seconds = time.perf_counter() - began
    if after is not None:
        after()
    return seconds
