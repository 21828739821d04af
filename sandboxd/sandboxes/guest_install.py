"""Installs the guest's program where sandboxes mount it from."""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
from pathlib import Path
from py_compile import PycInvalidationMode


def install_guest(state_dir: Path) -> Path:
    """Copy the guest's source, compiled, to where sandboxes mount it from.

    The directory is named by content, so that running sandboxes keep the version they were started
    with. Compiled, because the mount is read-only and every start would compile it again.
    """
    source = Path(__file__).parents[1] / "guest"
    files = sorted([*source.rglob("*.py"), *source.rglob("*.js"), *(source / "bin").iterdir()])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    target = state_dir / "guest" / digest
    if not target.exists():
        staging = target.with_suffix(f".{os.getpid()}")
        staging.mkdir(parents=True, mode=0o755)
        for file in files:
            copy = staging / file.relative_to(source)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, copy)
            if file.parent.name == "bin":
                copy.chmod(0o755)
        compileall.compile_dir(
            staging, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
        )
        staging.rename(target)
    return target
