"""The first program of a sandbox's Python that runs code: it loads the runner and forks contexts.

The runner's modules have builtins and a table of modules that no other code sees, so that code
which replaces `len`, `json` or `socket` changes nothing for them.
"""

from __future__ import annotations

import builtins
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any


class Modules:
    """The runner's modules, loaded with private builtins, and absent from sys.modules."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._loaded: dict[str, ModuleType] = {}
        self._import_other = builtins.__import__
        self._builtins = {**vars(builtins), "__import__": self._import}

    def load(self, name: str) -> Any:
        module = self._loaded.get(name)
        if module is None:
            path = self._directory + "/" + name + ".py"
            module = self._loaded[name] = ModuleType("sandboxd_code." + name)
            module.__dict__.update(
                __builtins__=self._builtins, __file__=path, __package__="sandboxd_code"
            )
            code = SourceFileLoader(module.__name__, path).get_code(module.__name__)
            exec(code, module.__dict__)  # type: ignore[arg-type]
        return module

    def _import(
        self,
        name: str,
        names: Any = None,
        scope: Any = None,
        wanted: tuple[str, ...] | None = (),
        level: int = 0,
    ) -> Any:
        if level:
            return self.load(name) if name else self._package(wanted or ())
        return self._import_other(name, names, scope, wanted or (), level)

    def _package(self, wanted: tuple[str, ...]) -> Any:
        package = ModuleType("sandboxd_code")
        for name in wanted:
            setattr(package, name, self.load(name))
        return package


def main() -> None:
    directory = __file__.rpartition("/")[0] or "."
    sys.path[:] = [path for path in sys.path if path != directory]
    sys.dont_write_bytecode = True
    Modules(directory).load("forking").serve(sys.argv[1:])


if __name__ == "__main__":
    main()
