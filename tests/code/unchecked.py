"""Runs code with the policy at run time alone, unchecked before; prints what it raised."""

import asyncio
import sys
from _ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "sandboxd"))

from guest.code.guards import Guards  # type: ignore[import-not-found]
from guest.code.policy import Policy  # type: ignore[import-not-found]


def main() -> None:
    code = compile(sys.argv[1], "<run 1>", "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, object] = {"__name__": "__main__"}
    guards = Guards(Policy({"name": "strict"}))
    guards.builtins(names)
    guards.install()
    loop = asyncio.new_event_loop()
    guards.is_active = True
    try:
        made = eval(code, names)
        if made is not None:
            loop.run_until_complete(made)
    except BaseException as error:
        guards.is_active = False
        print(type(error).__name__)
    else:
        guards.is_active = False
        print("nothing")


main()
