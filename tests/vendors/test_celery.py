"""Celery forks its workers after it has imported the tasks, and with them whatever they share."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.docker.daemon_process import running_daemon
from tests.vendors.frameworks import FRAMEWORKS

FRAMEWORK = "celery"
INSTALLED = FRAMEWORKS / FRAMEWORK
LIMIT = 120
TASKS = """
import os
from celery import Celery
from sandboxd_client import Sandbox

queue = {"data_folder_in": "queue", "data_folder_out": "queue"}
app = Celery("tasks", broker="filesystem://", backend="file://" + os.path.abspath("results"))
app.conf.broker_transport_options = queue
shared = Sandbox.open("ada", "shared")
shared.files.write("by-the-parent.txt", "written before the fork")

@app.task
def run(number):
    with Sandbox.open("ada", f"task {number}") as own:
        own_number = own.commands.run(f"echo {number}").stdout.strip()
    return [os.getpid(), own_number, shared.commands.run("cat by-the-parent.txt").stdout]
"""
ASKING = """
from tasks import run
answers = [run.delay(number) for number in range(6)]
for number, answer in enumerate(answers):
    pid, own, shared = answer.get(timeout=60)
    assert own == str(number) and shared == "written before the fork", (own, shared)
print("all answered")
"""


async def test_tasks_in_forked_workers_use_sandboxes(tmp_path: Path) -> None:
    """Their own and one that was opened before the fork; nothing is to be set up for it."""
    for name in ("queue", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "tasks.py").write_text(TASKS)
    async with running_daemon(POOL_SIZE="2") as daemon:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(INSTALLED), str(tmp_path))),
            "SANDBOXD_URL": f"unix:{daemon.socket}",
        }
        options = ["--pool", "prefork", "--concurrency", "2", "--without-mingle"]
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "celery", "-A", "tasks", "worker", *options),
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(LIMIT):
                asking = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", ASKING),
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
                answer, _ = await asking.communicate()
            assert answer.decode() == "all answered\n"
            worker.terminate()
            async with asyncio.timeout(LIMIT):
                assert await worker.wait() == 0
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
