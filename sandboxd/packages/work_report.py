"""What the confined worker reports, as lines of JSON; with nothing but the standard library."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Refused(Exception):
    """A package cannot be used; the text says why, and the type of the error in which way."""


class TooLarge(Refused):
    """The packages are larger than allowed; the text says how large."""


def for_each(
    packages: Iterable[Mapping[str, Any]], work: Callable[[Mapping[str, Any]], None]
) -> int:
    """Do this for every package, up to the first that is refused; the last line is the outcome."""
    done = 0
    for package in packages:
        try:
            work(package)
        except MemoryError:
            report({"failed": TooLarge.__name__, "name": package["name"], "why": "too many files"})
            return 1
        except Refused as error:
            report({"failed": type(error).__name__, "name": package["name"], "why": str(error)})
            return 1
        done += 1
    report({"done": done})
    return 0


def report(line: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
