"""Messages are read by users of the SDK and the command line, who know no gRPC methods."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from sandboxd.service.transport.rules import RULES

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "sandboxd", ROOT / "client_py" / "sandboxd_client")
METHODS = {name.rpartition(".")[2] for name in RULES}
NAMED = re.compile(
    rf"(?<![/.\w])({'|'.join(name for name in METHODS if name not in ('Exec', 'Run'))})\b"
)
"""A method outside of a URL. Two of them are words that a sentence may begin with."""


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Texts with more than one word, except documentation, and their lines."""
    tree = ast.parse(source)
    documentation = {
        id(statement.value) for statement in ast.walk(tree) if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                if " " in text.strip():
                    yield node.lineno, text


def test_no_message_names_a_method() -> None:
    """It says what to do, not what to call: `open the session again`, not `call OpenSession`."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for source in SOURCES
        for path in source.rglob("*.py")
        if NAMED.search(written := path.read_text())  # most name none, and parsing takes long
        for line, text in sentences(written)
        if NAMED.search(text)
    ]

    assert found == []


def test_a_method_in_a_message_would_be_found() -> None:
    """Or the test above proves nothing."""
    ((line, text),) = sentences('raise Error(f"{x} is gone; call OpenSession first")')

    assert (line, NAMED.findall(text)) == (1, ["OpenSession"])
    assert not NAMED.search("http://localhost/sandboxd.v1.SessionService/OpenSession -d x")
