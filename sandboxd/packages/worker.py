"""The confined process of a build: `python -m sandboxd.packages.worker`.

It reads one job as JSON, confines itself, and then becomes uv or npm, or fetches or unpacks
archives itself.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from sandboxd.packages import confinement, fetch, npm_unpack
from sandboxd.packages.confinement import ProcessLimits, View

MAX_JOB_BYTES = 4 << 20


def main() -> None:
    job: dict[str, Any] = json.loads(sys.stdin.buffer.read(MAX_JOB_BYTES))
    confinement.end_with_parent(job["parent"])
    confinement.set_limits(ProcessLimits(**job["limits"]))
    if job["view"] is not None:
        confinement.enter(View.decode(job["view"]))
    confinement.give_up_privileges()
    if "fetch" in job:
        sys.exit(fetch.run(job["fetch"]))
    if "unpack" in job:
        sys.exit(npm_unpack.run(job["unpack"]))
    argv: list[str] = job["argv"]
    os.execve(argv[0], argv, job["environment"])


if __name__ == "__main__":
    main()
