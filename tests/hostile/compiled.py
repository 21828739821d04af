"""The hostile programs, compiled on this host."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

SOURCES = Path(__file__).parent / "programs"
COMPILERS = ("cc", "gcc", "tcc")
COMPILE_SECONDS = 60
INSTALL_SECONDS = 100


def compile_programs(into: Path, *, tell: Callable[[str], None]) -> Path:
    """Compile every program; they are linked against the libc that the default image also has."""
    compiler = _find_compiler() or _install_compiler(tell)
    for source in sorted(SOURCES.glob("*.c")):
        if source.stem == "preload":
            options = ["-shared", "-fPIC", "-o", str(into / "preload.so")]
        else:
            options = ["-pthread", "-o", str(into / source.stem)]
        _run([compiler, "-O1", *options, str(source)], seconds=COMPILE_SECONDS)
    return into


def compile_preload(source: Path, into: Path, *, tell: Callable[[str], None]) -> Path:
    """A library that is loaded before all others."""
    compiler = _find_compiler() or _install_compiler(tell)
    made = into / f"{source.stem}.so"
    options = ["-O1", "-shared", "-fPIC", "-o", str(made)]
    _run([compiler, *options, str(source)], seconds=COMPILE_SECONDS)
    return made


def _find_compiler() -> str | None:
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def _install_compiler(tell: Callable[[str], None]) -> str:
    """The smallest compiler there is in Debian; a machine that only runs sandboxd has none."""
    tell("no C compiler here: installing tcc")
    apt = ["apt-get", "-o", "DPkg::Lock::Timeout=60", "-qq"]
    _run([*apt, "update"], seconds=INSTALL_SECONDS)
    _run(
        [*apt, "install", "-y", "--no-install-recommends", "tcc", "libc6-dev"],
        seconds=INSTALL_SECONDS,
    )
    compiler = _find_compiler()
    assert compiler is not None, "tcc was installed but is not in PATH"
    return compiler


def _run(command: list[str], *, seconds: float) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, env=environment, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"


def upload_command(programs: Path) -> str:
    """A command line that puts the programs into bin/, where a session has no other way in."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for program in sorted(programs.iterdir()):
            tar.add(program, arcname=program.name)
    encoded = base64.b64encode(archive.getvalue()).decode()
    return f"mkdir -p bin && base64 -d <<'END' | tar -xzo -C bin\n{encoded}\nEND\n"
