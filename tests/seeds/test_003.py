"""Document 003: a service that runs code for agents, with a database, steps and history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.data.rig import Database
from tests.docker.daemon_process import DaemonProcess
from tests.seeds.conftest import Documents
from tests.seeds.document import Document


@pytest.fixture
def guide(
    document: Documents, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Document]:
    """After its first block, which creates a sandbox."""
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    monkeypatch.setenv("SANDBOXD_DATA_SOURCE", "app")
    guide = document("003")
    guide.run(1)
    yield guide
    guide.wait(guide.names["service"].aclose())


def inside(guide: Document, code: str) -> Any:
    """The outcome of code that runs in the sandbox."""
    service, sandbox_id = guide.names["service"], guide.names["sandbox_id"]
    outcome = guide.wait(service.execute_code(sandbox_id, code))
    assert outcome.status == "completed", outcome
    return outcome


def test_code_queries_the_database(guide: Document) -> None:
    """The first program; its fault is an outcome, and no exception."""
    printed = guide.run(2)
    outcome = guide.names["result"]
    assert printed.startswith("Status: completed\nResult: {'total_users': 10,"), printed
    assert outcome.result["processed_users"][0]["domain"] == "example.com"
    assert [line["message"] for line in outcome.debug_info["logs"]] == ["Retrieved 10 users"]
    assert guide.run(12) == ""
    printed = guide.run(12, code="1 / 0")
    assert printed.startswith(
        "Execution failed: ZeroDivisionError: division by zero\nDebug info: {"
    )


def test_the_database_from_outside(guide: Document) -> None:
    """Parameters by name; the tables."""
    printed = guide.run(3)
    assert guide.names["query_result"] == [{"user_count": 1000}]
    assert "'users'" in printed
    guide.run(13)
    assert len(guide.names["results"]) == 1000


def test_code_is_debugged_line_by_line(guide: Document) -> None:
    """Each line with its outcome and the variables after it."""
    lines = guide.run(4).splitlines()
    assert lines[0] == "Line 2: data = [1, 2, 3, 4, 5]"
    assert lines.count("Line 7: processed = item * 2") == 5
    assert {line for line in lines if line.startswith("Result")} == {"Result: completed"}
    assert "'result': '[2, 4, 6, 8, 10]'" in lines[-1]


def test_functions_inside(guide: Document) -> None:
    """Those of the database, of the log and of Python, called as they are written."""
    outcome = inside(guide, guide.text(5) + "\n__result__ = [results[0]['id'], tables, schema]")
    first, tables, schema = outcome.result
    assert (first, [table["name"] for table in tables]) == (1, sorted(t["name"] for t in tables))
    assert "email" in str(schema)
    outcome = inside(guide, f"data = [1]\n{guide.text(6)}\n__result__ = debug_info")
    assert outcome.debug_info["variables"]["my_data"]["value"] == "[1]"
    assert "Processing started" in str(outcome.result)
    assert inside(guide, guide.text(7)).stdout == "Hello, World!\n"
    logged = inside(guide, f"my_data = [1]\n{guide.text(14)}").debug_info
    messages = [line["message"] for line in logged["logs"]]
    assert messages == ["Starting processing", "Processing complete"]
    assert logged["variables"]["data"]["value"] == "[1]"


def test_use_cases(guide: Document, database: Database) -> None:
    """Analysis, extraction with its changes, debugging of a pipeline."""
    guide.run(8)
    analysis = guide.names["result"].result
    assert (analysis["total_activities"], analysis["unique_users"]) == (200, 7)
    guide.run(9)
    extraction = guide.names["result"].result
    knowledge = extraction["extracted_knowledge"]
    assert extraction["processed_documents"] == 20
    assert knowledge[0]["entities"]["phones"] == ["555-123-4567"]
    processed = database.execute("SELECT id FROM documents WHERE processed ORDER BY id")
    assert [row[0] for row in processed] == sorted(one["document_id"] for one in knowledge)
    guide.run(10)
    pipeline = guide.names["result"].result
    assert (pipeline["input_count"], pipeline["valid_output_count"]) == (5, 3)


def test_processor(guide: Document) -> None:
    """The template has the line that is replaced, and runs."""
    guide.run(18)
    outcome = guide.names["result"]
    assert outcome.status == "completed", outcome
    assert outcome.result["processed"][0] == {"transformed": True, "data": {"id": 1, "value": 10}}


def test_statistics_history_and_the_end(guide: Document) -> None:
    """A sandbox with these limits is created, used, looked back at and cleaned up."""
    guide.run(11)
    service = guide.names["service"]
    guide.names["sandbox_id"] = guide.wait(service.create_agent_sandbox(1, guide.names["config"]))
    inside(guide, "1")
    guide.run(12, code="1 / 0")
    assert [line.rpartition(": ")[2] for line in guide.run(17).splitlines()] == [
        "failed",
        "completed",
    ]
    active, rate, average = guide.run(16).splitlines()
    assert int(active.removeprefix("Active sandboxes: ")) >= 2
    assert rate.startswith("Success rate: ")
    assert average.endswith("s")
    guide.run(15)
    status = guide.wait(service.get_sandbox_status(guide.names["sandbox_id"]))
    assert status["status"] == "closed"
