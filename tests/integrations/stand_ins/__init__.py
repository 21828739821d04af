"""The classes of frameworks that our adapters use, for tests without the frameworks.

Each module has the part of one framework that the adapter touches: abstract classes with their
abstract methods, results with their fields, errors. `./scripts/test --vendors` runs the same checks
with the frameworks themselves, so a stand-in that is not like its framework shows there.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FRAMEWORKS = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
PARTS = {"openai_agents": ("openai_processes",)}
"""Modules that an adapter has besides its own."""


def put_in_place(framework: str, patch: pytest.MonkeyPatch) -> None:
    """Its adapter can be imported as if the framework were installed, until `patch` is undone."""
    stand_in = importlib.import_module(f"{__name__}.{framework}")
    for name in stand_in.MODULES:
        patch.setitem(sys.modules, name, stand_in)
    for name in (framework, *PARTS.get(framework, ())):
        adapter = f"sandboxd_client.integrations.{name}"
        patch.setitem(sys.modules, adapter, stand_in)  # so that undoing removes it
        del sys.modules[adapter]
