"""Where the files of deploy/ are, and the programs that check them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".cache" / "deploy-tools"


def installed(name: str) -> Path:
    directory = TOOLS / name
    assert (directory / ".installed").exists(), "run tests/deploy/install_tools first"
    return directory


def write_clusters() -> ModuleType:
    """The script of deploy/envoy as a module."""
    path = DEPLOY / "envoy" / "write_clusters"
    loader = importlib.machinery.SourceFileLoader("write_clusters", str(path))
    spec = importlib.util.spec_from_loader("write_clusters", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
