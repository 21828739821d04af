"""docs/from-the-design.md is true on our side, and has what the documents' code uses."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandboxd_client
from sandboxd.config import Config
from sandboxd.http.seeds import seed_routes
from sandboxd.service.transport.rules import RULES
from sandboxd_client import integrations
from sandboxd_client.integrations import sandbox_service
from tests.seeds.document import blocks, setting, settings_of
from tests.seeds.page import ROOT, imports, names, rows

HOMES = (sandboxd_client, sandboxd_client.errors, integrations, sandbox_service)
DOCUMENTS = ("000", "001", "002", "003", "004")


def ours(name: str) -> Any:
    """What a name such as `Sandbox.commands.run` stands for; properties lead to their type."""
    first, *rest = name.split(".")
    found = next(getattr(home, first) for home in HOMES if hasattr(home, first))
    for part in rest:
        if isinstance(found, property):
            found = typing.get_type_hints(found.fget, vars(sandboxd_client.sync))["return"]
        found = getattr(found, part)
    return found


def python_of_documents() -> Iterator[ast.AST]:
    for document in DOCUMENTS:
        for block in blocks(document).values():
            try:
                yield ast.parse(block.text)
            except SyntaxError:
                continue  # another language


def test_imports_work() -> None:
    """Each line of our column is one that a program may begin with."""
    assert imports()
    for statement in imports().values():
        exec(statement, {})


def test_python_names_are_there() -> None:
    """Ours exists, and begins with the arguments that the documents give."""
    for theirs, here in rows("Python"):
        found = [ours(name) for name in names(here) if not name.startswith("error.")]
        if found and (call := re.match(r"`[\w.]+\((.+?)\)`", theirs)):
            arguments = call[1].split(", ")
            signature = [name for name in inspect.signature(found[0]).parameters if name != "self"]
            assert signature[: len(arguments)] == arguments, theirs


def test_every_method_that_the_documents_call_has_a_row() -> None:
    """Of the objects that they get from us."""
    called = {
        node.attr
        for tree in python_of_documents()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and re.fullmatch(r"(self\.|sandbox_)?client|service|bash_tool", ast.unparse(node.value))
    }
    listed = {name for row in rows("Python") for name in re.findall(r"\.(\w+)", row[0])}
    assert called
    assert called <= listed


def test_settings_are_those_of_the_documents_with_our_defaults() -> None:
    """Each has a row; written as text, our default is that of the daemon."""
    listed = {names(row[0])[0]: names(row[1])[0] for row in rows("Settings")}
    assert settings_of(blocks("001")[9].text) == listed
    for variable, _, here in rows("Settings"):
        field, about = setting(names(variable)[0])
        for default in names(here)[:1]:
            assert getattr(Config(**{field: default}), field) == about.default, variable


def test_files_are_there() -> None:
    """Each row names at least one, and all exist."""
    for theirs, here in rows("Files"):
        assert {(ROOT / name).exists() for name in names(here)} == {True}, theirs


def test_routes_are_served_and_name_methods() -> None:
    """No route of the documents is missing, and none is there without a row."""
    known = {name.removeprefix("sandboxd.v1.") for name in RULES}
    named = [name for row in rows("Routes") for name in names(row[1])]
    assert named
    assert set(named) <= known
    asked = {name for row in rows("Routes") for name in names(row[0])}
    theirs = {name.replace("{sandbox_id}", "{session_id}") for name in asked}
    served = {f"{one.method} {one.path}" for one in seed_routes(None)}  # type: ignore[arg-type]
    assert theirs == served | {"GET /health", "GET /docs"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_runs_or_says_why_not(document: str) -> None:
    """Its number is in the tests of the document, or a reason beside it."""
    source = (Path(__file__).parents[1] / "seeds" / f"test_{document}.py").read_text()
    run = {int(number) for number in re.findall(r"\.(?:run|text|value)\((\d+)", source)}
    for listed in re.findall(r"for block in \(([\d, ]+)\):", source):
        run |= {int(number) for number in listed.split(", ")}
    found = blocks(document)
    assert list(found) == [*range(1, len(found) + 1)]
    assert run == {number for number, block in found.items() if not block.left_out}
    for block in found.values():
        for path in re.findall(r"(?:docs|deploy|tests)/[\w./-]*\w", block.left_out):
            assert (ROOT / path).exists(), block.left_out
