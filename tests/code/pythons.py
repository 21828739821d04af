"""The Pythons of this machine that the runner is tested on."""

from __future__ import annotations

import subprocess
import sys
from glob import glob
from os.path import expanduser
from shutil import which

_VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13")


def _find() -> list[tuple[str, str]]:
    """This one and every other version there is, each once."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in _VERSIONS:
        candidates = [
            which(f"python{version}"),
            *glob(expanduser(f"~/.pyenv/versions/{version}.*/bin/python3")),
        ]
        for path in candidates:
            if path and version not in found and _works(path, version):
                found[version] = path
    return sorted(found.items())


def _works(path: str, version: str) -> bool:
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        ended = subprocess.run(
            [path, "-c", script], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.stdout.strip() == version


PYTHONS = _find()
