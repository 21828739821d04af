"""The repository is tidy: nothing stray in its root, scripts that run, pages that are true."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from sandboxd.config import Config
from tests.integrations import stand_ins
from tests.vendors.frameworks import PACKAGES

ROOT = Path(__file__).parents[2]
IN_THE_ROOT = {
    ".ci",
    ".dockerignore",
    ".gitattributes",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile.secure",
    "LICENSE",
    "README.md",
    "benchmarks",
    "console_web",
    "client_py",
    "client_ts",
    "deploy",
    "docs",
    "environments",
    "examples",
    "protos",
    "pyproject.toml",
    "sandboxd",
    "scripts",
    "tests",
}


def tracked_files() -> list[str]:
    # A checkout that belongs to another user is usual in CI, and git would refuse to read it.
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return listed.rstrip("\0").split("\0")


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_nothing_unexpected_is_in_the_root() -> None:
    unexpected = {name.split("/")[0] for name in tracked_files()} - IN_THE_ROOT

    assert unexpected == set()


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").iterdir()), ids=lambda path: path.name)
def test_a_script_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in script.read_text()


def test_ci_can_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_points_at_is_there(page: Path) -> None:
    """Relative links lead somewhere, and so do the scripts it names."""
    text = page.read_text()
    links = re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text)
    scripts = re.findall(r"(?<![\w/])(?:\./)?(scripts/\w+)", text)

    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [script for script in scripts if not (ROOT / script).exists()]

    assert missing == []


def test_most_used_settings_have_the_defaults_of_the_daemon() -> None:
    """Written as text, each default of the page is the one that the daemon has."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([^`]*)` \|", page, re.MULTILINE)
    assert len(rows) >= 25

    for name, default in rows:
        field_name = next(
            field_name
            for field_name, field in Config.model_fields.items()
            if name in getattr(field.validation_alias, "choices", [field.validation_alias])
        )
        parsed = Config(**{field_name: default})  # as text, as it would be set
        assert getattr(parsed, field_name) == Config.model_fields[field_name].default, name


def test_the_architecture_page_names_every_room() -> None:
    """Diagram and table list every folder of `sandboxd/`, and nothing that has no layer."""
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    diagram, below = page.split("```")[1:3]
    table = page.partition("## Rooms")[2].partition("Outside `sandboxd/`")[0]
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE)[2:])
    drawn = set(re.findall(r"\b([a-z]+)/(?!\w)", diagram + below.partition("\n## ")[0]))
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    known = set(re.findall(r"[a-z]+", " ".join(layers["contracts"][0]["layers"])))

    for named in (drawn - {"sandboxd"}, set(re.findall(r"`([a-z]+)/`", first_cells))):
        assert named >= {path.parent.name for path in (ROOT / "sandboxd").glob("*/__init__.py")}
        assert named <= known


def test_console_is_installed_without_a_build() -> None:
    """The package has every file of the built pages, and they name no other."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["sandboxd.console"]
    console = ROOT / "sandboxd" / "console"
    installed = {path.name for pattern in patterns for path in console.glob(pattern)}
    tracked = {Path(name).name for name in tracked_files() if "/console/assets/" in name}
    assert installed == tracked
    named = re.compile(r"""["'](?:\./|/assets/)([\w.-]+\.(?:js|css|svg))["']""")
    pages = [path.read_text() for path in (console / "assets").glob("*.*") if path.suffix != ".txt"]
    found = {name for page in pages for name in named.findall(page)}
    assert {"main.js", "main.css"} <= found <= installed


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_an_adapter_for_a_framework_that_is_not_installed_has_a_stand_in_for_it() -> None:
    """So the default run checks every adapter."""
    missing = {
        adapter.stem
        for adapter in (ROOT / "client_py/sandboxd_client/integrations").glob("*.py")
        for node in ast.walk(ast.parse(adapter.read_text()))
        if isinstance(node, ast.ImportFrom) and not is_installed(str(node.module))
    }

    assert missing == {*stand_ins.FRAMEWORKS, *sum(stand_ins.PARTS.values(), ())}


def test_every_framework_that_tests_install_gets_a_row() -> None:
    """Or its tests would run, and the page of versions would not name it."""
    installing = (ROOT / "tests/vendors/install_frameworks").read_text()

    assert set(re.findall(r"^framework (\S+)", installing, re.MULTILINE)) <= PACKAGES.keys()
