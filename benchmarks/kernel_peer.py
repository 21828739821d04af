"""ipykernel through jupyter_client, for comparison; runs in a virtual environment of its own.

Reads a word per line and answers with seconds: `start` for a kernel from its start to its first
result, `run` for `1 + 1` in one that runs.
"""

from __future__ import annotations

import sys
import time
from typing import Any

SECONDS = 60


def started() -> Any:
    from jupyter_client.manager import start_new_kernel  # type: ignore[import-not-found]

    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=SECONDS)
    return manager, client


def run(client: Any) -> float:
    began = time.perf_counter()
    client.execute("1 + 1")
    while True:
        message = client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "execute_result":
            taken = time.perf_counter() - began
            client.get_shell_msg(timeout=SECONDS)
            return taken


def start() -> float:
    began = time.perf_counter()
    manager, client = started()
    run(client)
    taken = time.perf_counter() - began
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return taken


def main() -> None:
    manager, client = started()
    run(client)
    print("ready", flush=True)
    for line in sys.stdin:
        print(start() if line.strip() == "start" else run(client), flush=True)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
