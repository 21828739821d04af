"""Where the files of deploy/ are, and the programs that check them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".cache" / "deploy-tools"
BASE = "sandboxd/base:bookworm"
"""A Debian that every engine with the images of the tests has."""


def program_directories() -> set[str]:
    """What a container needs of this host to run the program of this checkout."""
    return {str(path) for path in (ROOT, Path(sys.prefix).resolve(), sys.base_prefix, "/usr")}


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
