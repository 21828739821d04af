"""The program that starts a worker in a container."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.deploy.tools import DEPLOY

PROGRAM = DEPLOY / "worker_entrypoint"
SHOW = ["python3", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def started(**variables: str) -> dict[str, str]:
    """The environment of what it starts."""
    environment = {"PATH": os.environ["PATH"], **variables}
    ended = subprocess.run(
        [PROGRAM, *SHOW], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, str] = json.loads(ended.stdout)
    return found


def test_credentials_come_from_a_file(tmp_path: Path) -> None:
    """Values are taken as they are, and nothing else of the file is."""
    file = tmp_path / "object_store"
    file.write_text(
        '# comment\nAWS_ACCESS_KEY_ID=id\nAWS_SECRET_ACCESS_KEY=a=b $(id) "c" \'\n'
        "LD_PRELOAD=x\nAWS_REGION=last"
    )
    found = started(OBJECT_STORE_ENV_FILE=str(file))

    assert found["AWS_ACCESS_KEY_ID"] == "id"
    assert found["AWS_SECRET_ACCESS_KEY"] == 'a=b $(id) "c" \''
    assert found["AWS_REGION"] == "last"
    assert "LD_PRELOAD" not in found


def test_a_file_that_is_missing_stops_it(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "OBJECT_STORE_ENV_FILE": str(tmp_path / "none")}
    ended = subprocess.run([PROGRAM, "true"], env=environment, capture_output=True, timeout=60)

    assert ended.returncode != 0


def test_a_worker_is_told_its_name_in_kubernetes() -> None:
    """Its address with dashes, as a headless service names it."""
    found = started(POD_IP="10.1.2.3", WORKER_DOMAIN="workers.example", PORT="5001")
    assert found["SANDBOXD_ADVERTISE"] == "10-1-2-3.workers.example:5001"
    six = started(POD_IP="fd00::1", WORKER_DOMAIN="workers.example")
    assert six["SANDBOXD_ADVERTISE"] == "fd00--1.workers.example:5000"

    assert "SANDBOXD_ADVERTISE" not in started(POD_IP="10.1.2.3")
