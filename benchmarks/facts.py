"""The machine of the measurements, without which figures mean nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

from benchmarks.engine import Engine


def facts(engine: Engine) -> dict[str, str | int]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "kernel": platform.release(),
        "docker": engine.version(),
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "protobuf": version("protobuf"),
    }
